"""The counts that estimates rest on: one aggregation over published rows, in Spark, batch or streaming.

No published value is collected: what leaves the executors are, for every group, counts of reports by cells of outputs,
and sums of whole numbers, the same in every order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from spark_rdp.errors import InvalidInput
from spark_rdp.estimation.cells import CellEstimator
from spark_rdp.estimation.estimator import Estimator
from spark_rdp.estimation.moments import Counts
from spark_rdp.estimation.numbers import NumberEstimator
from spark_rdp.queries.estimate import EventWindow
from spark_rdp.spark.keys import GROUP

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The time of a row, and the start of a window in microseconds since 1970.
TIME, START = "time", "start"
_SLOT, _CELL, _REPORT, _WRONG = "slot", "cell", "report", "wrong"
#: What a row of counts is about.
KEY = (GROUP, _SLOT, _CELL)
#: The cell of values that were not reported.
_NOT_REPORTED = -1
#: Reports farther from the centre count as this far where their squares are summed. Only additive noise has such
#: reports, some 2**25 times its scale away.
_FARTHEST = 2**47


def count_reports(
    frame: DataFrame, names: Sequence[str], found: Sequence[Estimator], window: EventWindow | None = None
) -> DataFrame:
    """The counts every estimator needs: one row for every group and cell that was met, and for every window, if asked.

    Args:
        frame: The rows: the number of the group, the noised columns ``c0, c1, ...``, and TIME where windows are asked.
        names: What those columns are called.
        found: The estimators.
        window: Groups by windows of TIME as well; rows without a time are in none.
    """
    values = [
        _REPORTS[estimator.planned.kind](F.col(f"c{names.index(estimator.asked.column)}"), slot, estimator)
        for slot, estimator in enumerate(found)
    ]
    report = F.col(_REPORT)
    near = F.greatest(F.least(report, F.lit(_FARTHEST)), F.lit(-_FARTHEST)).cast("decimal(15,0)")
    square = F.when(report.isNotNull(), near * near)  # least and greatest pass over nulls
    kept, keys = [GROUP], [F.col(name) for name in KEY]
    if window is not None:
        kept, keys = [GROUP, TIME], [F.window(TIME, window.every, window.slide).alias(START), *keys]
    counted = (
        frame.select(*kept, F.inline(F.concat(*values)))
        .groupBy(*keys)
        .agg(
            F.count(F.lit(1)).alias("values"),
            F.count(report).alias("reported"),
            F.coalesce(F.sum(report.cast("decimal(20,0)")), F.lit(0)).alias("first"),
            F.coalesce(F.sum(square), F.lit(0)).alias("second"),
            F.count_if(F.col(_WRONG)).alias(_WRONG),
        )
    )
    return counted if window is None else counted.withColumn(START, F.unix_micros(F.col(START).getField("start")))


def counts_of(table: pa.Table, found: Sequence[Estimator], groups: int) -> list[Counts]:
    """The counts of every estimator for all groups.

    Args:
        table: What `count_reports` found.
        found: The estimators.
        groups: How many groups there are; they are numbered from 0.

    Raises:
        InvalidInput: A value is none that the plan of its column can have published.
    """
    if sum(table[_WRONG].to_pylist()):
        raise _foreign()
    slots = table[_SLOT].to_numpy()
    return [_counts_of(table.filter(pa.array(slots == slot)), item, groups) for slot, item in enumerate(found)]


def by_window(table: pa.Table, groups: int) -> tuple[np.ndarray, pa.Table]:
    """The starts of the windows that were met, increasing, and the counts with a number for each window and group."""
    starts, place = np.unique(table[START].to_numpy(), return_inverse=True)
    numbers = pa.array(place.astype(np.int64) * groups + table[GROUP].to_numpy(), pa.int64())
    return starts, table.set_column(table.column_names.index(GROUP), GROUP, numbers)


def _counts_of(table: pa.Table, estimator: Estimator, groups: int) -> Counts:
    """The counts of one column for all groups."""
    group, cell, values, reported = (table[name].to_numpy() for name in (GROUP, _CELL, "values", "reported"))
    sums = [np.array([int(number) for number in table[name].to_pylist()], dtype=object) for name in ("first", "second")]

    def of_groups(numbers: np.ndarray) -> np.ndarray:
        added = np.zeros(groups, dtype=numbers.dtype)
        np.add.at(added, group, numbers)
        return added

    cells = cell_sums = None
    if estimator.cells > 1:
        place = estimator.places(cell)
        chosen = reported > 0
        if np.any(place[chosen] < 0):
            raise _foreign()
        cells, cell_sums = np.zeros((groups, estimator.cells)), np.zeros((groups, estimator.cells))
        where = group[chosen], place[chosen]
        cells[where] = reported[chosen]
        cell_sums[where] = sums[0][chosen].astype(np.float64)
    first, second = map(of_groups, sums)
    return Counts(of_groups(values), of_groups(reported), first, second, cells, cell_sums)


def _foreign() -> InvalidInput:
    return InvalidInput(
        "The files of the collection hold values that its plans cannot have published. Restore the folder from a copy."
    )


def _numbers(column: Column, slot: int, estimator: NumberEstimator) -> Column:
    """The values of a row as an array of structs: slot, cell of the output, report from the centre, not possible."""
    length = estimator.planned.length
    if length is None:
        return F.array(_number(column, slot, estimator))
    if estimator.asked.element is not None:
        return F.array(_number(F.get(column, F.lit(estimator.asked.element)), slot, estimator))
    elements = F.transform(column, lambda value: _number(value, slot, estimator))
    return F.when(F.size(column) == length, elements).otherwise(F.array(_number(F.lit(math.nan), slot, estimator)))


def _number(value: Column, slot: int, estimator: NumberEstimator) -> Column:
    outputs, planned = estimator.outputs, estimator.planned
    report, chosen, slack = value, F.lit(True), 0.0
    if planned.unsampled is not None:
        unsampled = F.lit(planned.unsampled)
        report, chosen = (value - unsampled) / F.lit(planned.share.scale) + unsampled, value != unsampled
        slack = 0.25  # the report was scaled and is scaled back in doubles
    steps = report * F.lit(math.ldexp(1.0, -outputs.mechanism.exponent))
    integer = F.rint(steps)
    low, high = outputs.mechanism.support
    fits = integer.between(F.lit(float(low)), F.lit(float(high))) & (F.abs(steps - integer) <= F.lit(slack))
    right = F.coalesce(fits & ~F.isnan(value), F.lit(False)) | F.coalesce(~chosen, F.lit(False))
    whole = F.when(right & chosen, integer.cast("bigint"))
    return F.struct(
        F.lit(slot).alias(_SLOT),
        F.coalesce(_cell(whole, estimator), F.lit(_NOT_REPORTED).cast("bigint")).alias(_CELL),
        (whole - F.lit(outputs.centre).cast("bigint")).alias(_REPORT),
        (~right).alias(_WRONG),
    )


def _cell(whole: Column, estimator: NumberEstimator) -> Column:
    """The number of the cell, or, where each output is a cell, the output itself."""
    outputs = estimator.outputs
    if estimator.cells == 1:
        return F.when(whole.isNotNull(), F.lit(0).cast("bigint"))
    if outputs.levels is not None:
        return whole
    above = F.greatest(whole - F.lit(outputs.first).cast("bigint"), F.lit(0).cast("bigint"))
    return F.least(F.call_function("div", above, F.lit(outputs.width).cast("bigint")), F.lit(outputs.count - 1))


def _cells(column: Column, slot: int, estimator: CellEstimator) -> Column:
    """A published cell, as `_numbers`; there is nothing to sum."""
    cell = column
    if estimator.labels is not None:
        numbers = F.create_map(*(F.lit(part) for place, name in enumerate(estimator.labels) for part in (name, place)))
        cell = F.try_element_at(numbers, F.collate(column, "UTF8_BINARY"))
    cell = cell.cast("bigint")
    right = F.coalesce(cell.between(0, estimator.cells - 1), F.lit(False))
    return F.array(
        F.struct(
            F.lit(slot).alias(_SLOT),
            F.coalesce(cell, F.lit(_NOT_REPORTED).cast("bigint")).alias(_CELL),
            F.when(right, F.lit(0).cast("bigint")).alias(_REPORT),
            (~right).alias(_WRONG),
        )
    )


#: How the values of each kind of column are counted.
_REPORTS: dict[str, Callable[[Column, int, Any], Column]] = {
    "number": _numbers,
    "grid": _cells,
    "categories": _cells,
}
