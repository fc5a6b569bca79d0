"""Exact bounded statistics: what is published, before noise.

One shuffle on the privacy unit (none when every row is its own unit) decides which groups a unit keeps and adds up
what it contributes to each; one small shuffle on the group adds up the units. Bins make rows of their own, so that
neither a unit with many rows nor a histogram with many bins has to fit into one row. All sums are sums of whole
numbers: the same in every order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import DataType
from pyspark.sql.window import Window

from spark_rdp.queries import Count, ReleaseQuery
from spark_rdp.releases import Component, ReleasePlan
from spark_rdp.spark.bounding import (
    bounded_total,
    check_unit,
    keep_groups,
    salted_hash,
    sampled,
    share_of_total,
    with_unit,
)
from spark_rdp.spark.io import needed
from spark_rdp.spark.keys import Declared, KeyColumn, Keys, keys_of
from spark_rdp.spark.values import bin_number, check_numeric, lattice_integer, present

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_UNIT, _ROWS = "unit", "rows"
#: Rows of a bin have the number of their component here; rows that carry everything else have _SCALARS.
_SLOT, _BIN, _COUNT = "slot", "bin", "bin_rows"
_SCALARS = -1


def aggregate(df: DataFrame, query: ReleaseQuery, plan: ReleasePlan, salt: int) -> DataFrame:
    """The exact bounded statistics of a release. They are secret: noise has to be added before anybody sees them.

    Args:
        df: The rows; columns are found by name, case and dots included.
        query: What is asked.
        plan: The plan of the query.
        salt: A whole number of 64 bits. Which groups a unit keeps depends on it, the unit and the group only.

    Returns:
        Lazy; one partition, one row per declared group, sorted by the declared keys (bins in the order of their
        edges): the key columns, then one BIGINT (ARRAY<BIGINT> for bins) per component of the plan. For a private
        selection one row per key in the data, sorted by the keys, and one more BIGINT, the number of units. No
        statistic is null.

    Raises:
        InvalidInput: A column is missing or of a type that does not fit; told from the schema, no row is read. (A
            file of declared keys is read.)
    """
    frame = needed(df, query)
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    # Names of the source may hold dots or differ by case only; from here on columns have plain names.
    columns = {name: KeyColumn(name, f"_{place}", kinds[name]) for place, name in enumerate(frame.columns)}
    frame = frame.toDF(*(column.column for column in columns.values()))
    _check_types(query, kinds)
    keys = keys_of(df.sparkSession, query, columns)
    statistics = _Statistics.of(plan, columns)

    rows = keys.numbered(frame)
    if query.privacy.by_row:
        contributions = statistics.of_rows(rows, keys)
    else:
        unit = columns[query.privacy.unit]
        rows = with_unit(rows.withColumn(_UNIT, F.col(unit.column)), _UNIT, unit.kind)
        contributions = statistics.of_units(rows, keys, plan.max_groups, salt)
    return statistics.summed(contributions, keys)


def _check_types(query: ReleaseQuery, kinds: Mapping[str, DataType]) -> None:
    if not query.privacy.by_row:
        check_unit(query.privacy.unit, kinds[query.privacy.unit])
    for place, measure in enumerate(query.measures):
        column = getattr(measure, "column", None)
        if column is not None and not isinstance(measure, Count):
            check_numeric(f"measures[{place}].column", column, kinds[column])


@dataclass(frozen=True)
class _Statistics:
    """The numbers of one release on their way from rows to groups.

    Args:
        scalars: The columns with one number per group; the count of units for a selection has no component.
        bins: The components with one number per bin; a place in this tuple is a slot.
        values: For every use of a source column, the name of its values and the expression that makes them. Values
            are null where a row has none.
        uses: The name of the values of a component; None where rows are counted whatever is in them.
        outputs: All columns, in the order of the plan.
    """

    scalars: tuple[tuple[str, Component | None], ...]
    bins: tuple[Component, ...]
    values: Mapping[str, Column]
    uses: Mapping[str, str | None]
    outputs: tuple[str, ...]

    @classmethod
    def of(cls, plan: ReleasePlan, columns: Mapping[str, KeyColumn]) -> _Statistics:
        """Find out which values are needed; components that use the same ones share them."""
        known: dict[tuple[object, ...], str] = {}
        values: dict[str, Column] = {}
        uses: dict[str, str | None] = {}
        # Counts come last: the values of a sum tell as well whether there is one.
        for component in sorted(plan.components, key=lambda item: item.kind == "rows"):
            if component.source is None:
                uses[component.column] = None
                continue
            form = _form(component)
            shared = [name for key, name in known.items() if key == form or (len(form) == 1 and key[0] == form[0])]
            name = shared[0] if shared else f"v{len(known)}"
            if not shared:
                known[form], values[name] = name, _values(component, columns[component.source])
            uses[component.column] = name
        scalars: list[tuple[str, Component | None]] = [(c.column, c) for c in plan.components if c.kind != "bins"]
        bins = tuple(component for component in plan.components if component.kind == "bins")
        outputs = [component.column for component in plan.components]
        if plan.selection is not None:
            scalars.append((plan.selection.column, None))
            outputs.append(plan.selection.column)
        return cls(tuple(scalars), bins, values, uses, tuple(outputs))

    def of_rows(self, rows: DataFrame, keys: Keys) -> DataFrame:
        """What every row contributes when it is its own unit."""
        frame = self._with_bins(rows.select(*keys.group, *self._made()), keys.group)
        contributions = self._contributions(_long(1), lambda name: F.col(name).isNotNull().cast("bigint"), F.col)
        counts = [F.when(F.col(_SLOT) == _SCALARS, 0).otherwise(1).cast("bigint").alias(_COUNT)] if self.bins else []
        return frame.select(*keys.group, *contributions, *self._slots, *counts)

    def of_units(self, rows: DataFrame, keys: Keys, max_groups: int, salt: int) -> DataFrame:
        """What every unit contributes to each group it keeps."""
        frame, group = rows.select(_UNIT, *keys.group, *self._made()), keys.group
        cut = keys.count is None or keys.count > max_groups
        if cut:
            frame, group = keys.scattered(frame, _UNIT, salt)
            frame = keep_groups(frame, _UNIT, group, max_groups)
        frame = self._with_bins(frame, (_UNIT, *group))
        sums = [F.count(F.lit(1)).alias(_ROWS)]
        for name in self._scalar_values:
            sums += [F.count(name).alias(f"n_{name}"), F.sum(name).alias(f"s_{name}")]
        frame = frame.groupBy(_UNIT, *group, *self._slots).agg(*sums)
        if self.bins:
            frame = self._sampled(frame, (_UNIT, *group), salt)
        if cut:
            frame = keys.gathered(frame)
        contributions = self._contributions(
            F.col(_ROWS), lambda name: F.col(f"n_{name}"), lambda name: F.col(f"s_{name}")
        )
        return frame.select(*keys.group, *contributions, *self._slots, *([_COUNT] if self.bins else []))

    def summed(self, contributions: DataFrame, keys: Keys) -> DataFrame:
        """Add up the contributions to every group; declared groups nobody contributed to are there as well."""
        if isinstance(keys, Declared):
            nothing = {_SLOT: F.lit(_SCALARS), _BIN: F.lit(_SCALARS)}
            rest = [name for name in contributions.columns if name not in keys.group]
            zeros = [nothing.get(name, _long(0)).alias(name) for name in rest]
            contributions = contributions.unionByName(keys.all(contributions.sparkSession).select(*keys.group, *zeros))
        sums = [F.sum(name).alias(name) for name, _ in self.scalars]
        if self.bins:
            counts = F.sum(_COUNT).alias(_COUNT)
            contributions = contributions.groupBy(*keys.group, *self._slots).agg(*sums, counts)
            pair = F.struct(F.col(_BIN).alias("bin"), F.col(_COUNT).alias("rows"))
            sums += [
                F.collect_list(F.when(F.col(_SLOT) == slot, pair)).alias(component.column)
                for slot, component in enumerate(self.bins)
            ]
        frame = contributions.groupBy(*keys.group).agg(*sums)
        for component in self.bins:
            frame = frame.withColumn(component.column, _dense(F.col(component.column), component.width))
        # One partition whatever the data; the order is that of the declared keys.
        frame = keys.named(frame).repartition(1).sortWithinPartitions(*keys.group)
        labels = zip(keys.labels, keys.columns, strict=True)
        return frame.select(*(F.col(label).alias(column.name) for label, column in labels), *self.outputs)

    @property
    def _slots(self) -> list[str]:
        return [_SLOT, _BIN] if self.bins else []

    @property
    def _scalar_values(self) -> list[str]:
        used = {self.uses[name] for name, component in self.scalars if component is not None}
        return [name for name in self.values if name in used]

    def _made(self) -> list[Column]:
        return [made.alias(name) for name, made in self.values.items()]

    def _with_bins(self, frame: DataFrame, group: Sequence[str]) -> DataFrame:
        """Every row once for the scalars, and once for each component with bins, with the number of its bin."""
        if not self.bins:
            return frame
        slots = [(F.lit(_SCALARS), F.lit(_SCALARS))] if self.scalars else []
        slots += [(F.lit(slot), F.col(str(self.uses[item.column]))) for slot, item in enumerate(self.bins)]
        structs = F.array(*(F.struct(slot.alias(_SLOT), number.alias(_BIN)) for slot, number in slots))
        frame = frame.select(*group, *self._scalar_values, F.inline(structs)).where(F.col(_BIN).isNotNull())
        own = [F.when(F.col(_SLOT) == _SCALARS, F.col(name)).alias(name) for name in self._scalar_values]
        return frame.select(*group, *own, *self._slots)

    def _sampled(self, frame: DataFrame, group: Sequence[str], salt: int) -> DataFrame:
        """The rows of each bin that count, out of those a unit has in the bin."""
        whole = Window.partitionBy(*group, _SLOT)
        cap = F.lit(1)
        for slot, component in enumerate(self.bins):
            cap = F.when(F.col(_SLOT) == slot, component.cap).otherwise(cap)
        counted = frame.withColumns(
            {
                "up_to_here": F.sum(_ROWS).over(whole.orderBy(_BIN).rowsBetween(Window.unboundedPreceding, 0)),
                "all_rows": F.sum(_ROWS).over(whole),
            }
        )
        # Another hash than the one that chose the group, and another one for each component.
        offset = salted_hash(salt, F.lit("offset"), _SLOT, *group)
        kept = sampled(F.col(_ROWS), F.col("up_to_here"), F.col("all_rows"), cap.cast("bigint"), offset)
        return counted.withColumn(_COUNT, F.when(F.col(_SLOT) == _SCALARS, 0).otherwise(kept))

    def _contributions(
        self, rows: Column, count: Callable[[str], Column], total: Callable[[str], Column]
    ) -> list[Column]:
        """One column per scalar; 0 in the rows of bins."""
        made = []
        for name, component in self.scalars:
            value = _long(1) if component is None else _contribution(component, self.uses[name], rows, count, total)
            value = F.when(F.col(_SLOT) == _SCALARS, value).otherwise(0) if self.bins else value
            made.append(F.coalesce(value, F.lit(0)).cast("bigint").alias(name))
        return made


def _long(number: int) -> Column:
    return F.lit(number).cast("bigint")


def _form(component: Component) -> tuple[object, ...]:
    """Equal for components that need the same values of a row."""
    if component.kind == "rows":
        return (component.source,)
    if component.kind == "bins":
        return (component.source, component.edges)
    bounds = (component.value_lower, component.value_upper, component.row_limit)
    return (component.source, component.kind, component.exponent, *(bounds if component.kind == "centred" else ()))


def _values(component: Component, source: KeyColumn) -> Column:
    column = F.col(source.column)
    if component.kind == "rows":
        return F.when(present(column, source.kind), F.lit(1).cast("bigint"))
    if component.kind == "bins":
        assert component.edges is not None
        return bin_number(column, source.kind, component.edges, outside=True)
    return lattice_integer(column, source.kind, component)


def _contribution(
    component: Component,
    values: str | None,
    rows: Column,
    count: Callable[[str], Column],
    total: Callable[[str], Column],
) -> Column:
    """What a unit contributes to a group, from the number and the total of its values there."""
    if component.kind == "units":
        return _long(1)
    with_value = rows if values is None else count(values)
    if component.kind == "rows":
        return F.least(with_value, _long(component.cap))
    assert values is not None
    if component.kind == "total":
        return bounded_total(total(values), with_value, component.lower, component.upper)
    return share_of_total(total(values), with_value, component.cap)


def _dense(pairs: Column, width: int) -> Column:
    """Pairs of bin and rows as an array with a number for every bin."""
    zero = _long(0).alias("rows")
    none = F.transform(F.sequence(F.lit(0), F.lit(width - 1)), lambda number: F.struct(number.alias("bin"), zero))
    # Sorted by bin and rows, the last pair of each bin is the one to keep.
    every = F.sort_array(F.concat(pairs, none))
    beside = F.arrays_zip(every.alias("this"), F.slice(every, 2, width * 2).alias("next"))
    last = F.filter(beside, lambda two: F.coalesce(two["this"]["bin"] != two["next"]["bin"], F.lit(True)))
    return F.transform(last, lambda two: two["this"]["rows"])
