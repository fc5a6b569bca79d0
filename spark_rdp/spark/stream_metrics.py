"""What an operator sees of a batch: counts, found while it is published. Exact, and so not for release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from spark_rdp.queries import AnyColumn, CategoryColumn, NoisedColumn, PlaceColumn
from spark_rdp.queries.stream import StreamQuery
from spark_rdp.spark.cell_noise import NO_CELL
from spark_rdp.spark.cells import cell_of
from spark_rdp.spark.local_noise import values_of

if TYPE_CHECKING:
    from pyspark.sql import Column, Row
    from pyspark.sql.streaming.query import StreamingQuery

#: The names of the observations: what came in, and what went out.
CAME, WENT = "spark_rdp_came", "spark_rdp_went"
_ROWS, _MALFORMED, _CLAMPED, _MISSING = "rows", "malformed", "clamped", "missing"


@dataclass(frozen=True)
class Batch:
    """The counts of one batch, for whoever runs the stream. They are exact: do not publish them.

    Attributes:
        batch: Its number.
        rows_in: Events read.
        published: Events published.
        clamped: Values out of range (arrays and places count once each).
        missing: Values that were null or NaN (arrays: that lack an element).
        malformed: Events that could not be read as declared, or had no key.
        malformed_share: Their share of the events read.
        seconds: How long the batch took.
        rows_per_second: Events read per second.
    """

    batch: int
    rows_in: int
    published: int
    clamped: int
    missing: int
    malformed: int
    malformed_share: float
    seconds: float
    rows_per_second: float

    def content(self) -> dict[str, Any]:
        """The counts as JSON values."""
        return {**asdict(self), "for_release": False}


def came(
    query: StreamQuery, columns: Mapping[str, Column], kinds: Mapping[str, DataType], malformed: Column
) -> list[Column]:
    """The aggregates of what came in: as few and plain as can be, because every event passes them.

    Args:
        query: What is published.
        columns, kinds: Each used column of the source, and its type.
        malformed: Whether an event is malformed; never null.
    """
    found = [_count(F.lit(True)).alias(_ROWS), _count(malformed).alias(_MALFORMED)]
    for place, item in enumerate(query.columns):
        outside, absent = _counted(f"columns[{place}]", item, columns, kinds)
        found.append(_count(~malformed & outside).alias(f"{_CLAMPED}{place}"))
        found.append(_count(~malformed & absent).alias(f"{_MISSING}{place}"))
    return found


def went() -> Column:
    """The aggregate of what went out, where that is not what came in without what is malformed."""
    return _count(F.lit(True)).alias("published")


def _count(condition: Column) -> Column:
    return F.count(F.when(condition, F.lit(1)))


def _counted(
    where: str, item: AnyColumn, columns: Mapping[str, Column], kinds: Mapping[str, DataType]
) -> tuple[Column, Column]:
    """Whether a value is out of range, and whether it is missing."""
    if isinstance(item, (PlaceColumn, CategoryColumn)):
        if isinstance(item, CategoryColumn):
            item = item.model_copy(update={"other": None})
        cell = cell_of(where, item, columns, kinds, clamp=False)
        return cell == NO_CELL, cell.isNull()
    assert isinstance(item, NoisedColumn)
    value = values_of(where, item, columns[item.column], kinds[item.column])

    def outside(one: Column) -> Column:
        return (one < item.lower) | ((one > item.upper) & ~F.isnan(one))

    def absent(one: Column) -> Column:
        return one.isNull() | F.isnan(one)

    if item.length is None:
        return outside(value), absent(value)
    known = value.isNotNull()
    wrong = known & ((F.size(value) > item.length) | F.exists(value, outside))
    return wrong, ~known | (F.size(value) < item.length) | F.exists(value, absent)


def _told(counts: Row) -> dict[str, int]:
    """The counts by their names; Spark Connect tells names and values one beside the other."""
    told: dict[str, Any] = counts.asDict()
    return (
        told
        if "schema" not in told
        else {field["name"]: value for field, value in zip(told["schema"]["fields"], told["values"], strict=True)}
    )


def new_batches(query: StreamingQuery, last: int) -> list[Batch]:
    """The batches with events that have ended since the one numbered ``last``."""
    latest = query.lastProgress
    if latest is None or latest.batchId <= last:
        return []
    found = []
    for progress in query.recentProgress:
        seen = progress.observedMetrics
        counts = _told(seen[CAME]) if CAME in seen else {_ROWS: 0}
        rows, seconds = counts[_ROWS], progress.durationMs.get("triggerExecution", 0) / 1000
        if progress.batchId <= last or not rows:
            continue
        malformed = counts[_MALFORMED]
        found.append(
            Batch(
                batch=progress.batchId,
                rows_in=rows,
                published=_told(seen[WENT])["published"] if WENT in seen else rows - malformed,
                clamped=sum(number for name, number in counts.items() if name.startswith(_CLAMPED)),
                missing=sum(number for name, number in counts.items() if name.startswith(_MISSING)),
                malformed=malformed,
                malformed_share=malformed / rows,
                seconds=seconds,
                rows_per_second=round(rows / seconds, 1) if seconds else 0.0,
            )
        )
    return found
