"""Estimates from a local collection: one aggregation to counts in Spark, the mathematics on the driver.

No published value is collected: what leaves the executors are, for every group, counts of reports by cells of outputs,
and sums of whole numbers, the same in every order.
"""

from __future__ import annotations

import math
import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import functions as F

from spark_rdp import __version__
from spark_rdp.errors import InvalidInput, missing
from spark_rdp.estimation.cells import CellEstimator
from spark_rdp.estimation.collected import Collected, find_collections
from spark_rdp.estimation.estimates import assumptions, check_size, estimate_id, estimators
from spark_rdp.estimation.estimator import Estimator
from spark_rdp.estimation.moments import Counts
from spark_rdp.estimation.numbers import NumberEstimator
from spark_rdp.folders import DATA_FILES, Manifest, output_folder
from spark_rdp.publishing import publish_folder
from spark_rdp.queries import EstimateQuery
from spark_rdp.spark import io, session
from spark_rdp.spark.failures import worded
from spark_rdp.spark.keys import GROUP, Declared, KeyColumn, keys_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ROWS, RUN = "rows", "run"
_SLOT, _CELL, _REPORT, _WRONG = "slot", "cell", "report", "wrong"
#: The cell of values that were not reported.
_NOT_REPORTED = -1
#: Reports farther from the centre count as this far where their squares are summed. Only additive noise has such
#: reports, some 2**25 times its scale away.
_FARTHEST = 2**47


@dataclass(frozen=True)
class Estimates:
    """Estimates from a local collection.

    Attributes:
        release_id: The id they are published under.
        manifest: What is written beside them: the query, the collections, and ``assumptions`` in sentences.
        folder: Where they are published; None without ``query.output``.
        already_published: True if an earlier run had published them, and this one read them back.
    """

    release_id: str
    manifest: Manifest
    folder: Path | None
    already_published: bool
    _spark: Callable[[], SparkSession] = field(repr=False)
    _table: pa.Table | None = field(default=None, repr=False)

    @property
    def assumptions(self) -> list[str]:
        """What the estimates rest on."""
        return list(self.manifest["assumptions"])

    @cached_property
    def df(self) -> DataFrame:
        """One row per declared group, sorted by key."""
        with worded():
            if self.folder is None:
                return self._spark().createDataFrame(self.table())
            return io.read_published(self._spark(), self.folder, self.manifest["columns"])

    def table(self) -> pa.Table:
        """The same as an Arrow table; needs no Spark."""
        if self._table is not None:
            return self._table
        assert self.folder is not None
        return pa.concat_tables([pq.ParquetFile(file).read() for file in sorted(self.folder.glob(DATA_FILES))])

    def report(self, path: str | Path | None = None) -> Path:
        """Write the HTML page that explains the estimates.

        Args:
            path: Where to; by default ``report.html`` in the folder of the estimates.
        """
        from spark_rdp.reporting.estimate_page import write_estimate

        if path is None and self.folder is None:
            raise missing("path", "The estimates were not written to a folder, so say where their report goes.")
        target = Path(path) if path is not None else self.folder / "report.html"  # type: ignore[operator]
        return write_estimate(self.manifest, self.table(), target)


def estimate(query: EstimateQuery, *, run: str | None = None, spark: SparkSession | None = None) -> Estimates:
    """Estimate means, totals, variances, histograms and quantiles of what was collected with noise.

    Args:
        query: What to estimate, and of which collection.
        run: Names this run of the query; with the name of the query it is the id.
        spark: The session; by default the running one, or a new one.

    Returns:
        Published estimates. The same id again reads back what was published.

    Raises:
        InvalidInput: The collection cannot answer the query, or its files are not those that were published.
        JobFailed: Spark failed; nothing was published, and the same call can be made again.
    """
    identity = estimate_id(query, run)
    job = _Job(query, run, spark)
    if query.output is None:
        table = job.table
        facts = {**job.manifest(), "release_id": identity, "query_digest": query.digest()}
        return Estimates(identity, facts, None, False, job.session, table)
    folder = output_folder(query.output.path, run)
    done = publish_folder(folder, identity, query.digest(), None, job.write)
    return Estimates(identity, done.manifest, folder, done.already_published, job.session)


class _Job:
    """One attempt to work out estimates."""

    def __init__(self, query: EstimateQuery, run: str | None, spark: SparkSession | None) -> None:
        self._query, self._run, self._spark = query, run, spark

    def session(self) -> SparkSession:
        """The session; built only when something needs Spark."""
        if self._spark is None:
            self._spark = session.build(f"spark-rdp {self._query.name}")
        return self._spark

    @cached_property
    def _collected(self) -> Collected:
        return find_collections(self._query.collection)

    @cached_property
    def _estimators(self) -> list[Estimator]:
        return estimators(self._query, self._collected)

    @cached_property
    def _answers(self) -> tuple[pa.Table, str]:
        """The published rows, and their types as Spark writes them."""
        found = self._estimators  # what cannot be answered is refused before Spark starts
        spark = self.session()
        with worded():
            frame, keys = _grouped(spark, self._query, self._collected)
            check_size(keys.count, found)
            labels = keys.named(keys.all(spark)).sort(GROUP).select(*keys.labels)
            names = [column.name for column in keys.columns]
            kinds = [
                f"{io.quoted(name)} {item.dataType.simpleString()}"
                for name, item in zip(names, labels.schema, strict=True)
            ]
            columns = dict(zip(names, labels.toArrow().columns if names else [], strict=True))
            counts = _counted(frame, list(self._collected.columns), found, keys.count)
        columns[ROWS] = pa.array(counts[0].rows // found[0].values_per_row, pa.int64())
        for estimator, counted in zip(found, counts, strict=True):
            columns |= estimator.answers(counted)
        kinds += [f"{io.quoted(name)} {_KINDS[item.type]}" for name, item in columns.items() if name not in names]
        return pa.table(columns), ", ".join(kinds)

    @property
    def table(self) -> pa.Table:
        """One row per declared group, sorted by key."""
        return self._answers[0]

    def write(self, folder: Path) -> Manifest:
        """Work out the estimates into a new folder."""
        table = self.table
        folder.mkdir()
        pq.write_table(table, folder / "part-00000.snappy.parquet", compression="snappy")
        return self.manifest()

    def manifest(self) -> Manifest:
        """All that explains the estimates."""
        query, collected = self._query, self._collected
        return {
            "kind": query.kind,
            "name": query.name,
            "run": self._run,
            "query": query.describe(),
            "collections": collected.sources,
            "rows_collected": collected.rows,
            "plan": {"columns": [item.content() for item in collected.columns.values()]},
            "estimated": [item.describe() for item in self._estimators],
            "group_columns": list(query.group_columns),
            "assumptions": assumptions(query, collected, self._estimators),
            "epsilon": {"total": 0.0, "covers": "nothing: what was collected is used, nothing else"},
            "columns": self._answers[1],
            "rows": self.table.num_rows,
            "versions": {
                "spark_rdp": __version__,
                "pyspark": pyspark.__version__,
                "numpy": np.__version__,
                "pyarrow": pa.__version__,
                "python": platform.python_version(),
            },
        }


_KINDS: dict[pa.DataType, str] = {
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.list_(pa.float64()): "array<double>",
    pa.list_(pa.int64()): "array<bigint>",
    pa.list_(pa.string()): "array<string>",
}


def _grouped(spark: SparkSession, query: EstimateQuery, collected: Collected) -> tuple[DataFrame, Declared]:
    """The collected rows of declared groups, with the number of the group, and the groups."""
    frame = _read(spark, collected)
    wanted = dict.fromkeys(query.group_columns, "group_by") | dict.fromkeys(collected.columns, "collection")
    frame = io.columns_of(frame, wanted)
    kinds = {item.name: item.dataType for item in frame.schema}
    columns = {name: KeyColumn(name, f"_{place}", kinds[name]) for place, name in enumerate(frame.columns)}
    keys = keys_of(spark, query, columns)
    assert isinstance(keys, Declared)
    numbered = keys.numbered(frame.toDF(*(column.column for column in columns.values())))
    noised = [F.col(columns[name].column).alias(f"c{place}") for place, name in enumerate(collected.columns)]
    return numbered.select(GROUP, *noised), keys


def _read(spark: SparkSession, collected: Collected) -> DataFrame:
    """The published rows of all collections; those that are runs have a column ``run``."""
    escaped = [re.sub(r"([{}\[\]*?\\])", r"\\\1", str(folder)) for folder in collected.folders]
    reader = spark.read.option("pathGlobFilter", DATA_FILES)
    frames = []
    for folder, path in zip(collected.folders, escaped, strict=True):
        frame = reader.schema(collected.schema).parquet(f"file://{path}")
        if collected.by_run and RUN not in (name.casefold() for name in frame.columns):
            frame = frame.withColumn(RUN, F.lit(folder.name.partition("=")[2]))
        frames.append(frame)
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.union(frame)
    return whole


def _counted(frame: DataFrame, names: Sequence[str], found: Sequence[Estimator], groups: int) -> list[Counts]:
    """The counts every estimator needs, from one aggregation over the rows.

    Raises:
        InvalidInput: A value is none that the plan of its column can have published.
    """
    values = [
        _REPORTS[estimator.planned.kind](F.col(f"c{names.index(estimator.asked.column)}"), slot, estimator)
        for slot, estimator in enumerate(found)
    ]
    report = F.col(_REPORT)
    near = F.greatest(F.least(report, F.lit(_FARTHEST)), F.lit(-_FARTHEST)).cast("decimal(15,0)")
    square = F.when(report.isNotNull(), near * near)  # least and greatest pass over nulls
    counted = (
        frame.select(GROUP, F.inline(F.concat(*values)))
        .groupBy(GROUP, _SLOT, _CELL)
        .agg(
            F.count(F.lit(1)).alias("values"),
            F.count(report).alias("reported"),
            F.coalesce(F.sum(report.cast("decimal(20,0)")), F.lit(0)).alias("first"),
            F.coalesce(F.sum(square), F.lit(0)).alias("second"),
            F.count_if(F.col(_WRONG)).alias(_WRONG),
        )
    )
    table = counted.toArrow()
    if sum(table[_WRONG].to_pylist()):
        raise _foreign()
    slots = table[_SLOT].to_numpy()
    return [_counts_of(table.filter(pa.array(slots == slot)), item, groups) for slot, item in enumerate(found)]


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
