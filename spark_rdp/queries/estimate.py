"""What a user asks of collected data: ``kind: estimate``, from YAML or from keyword arguments."""

from __future__ import annotations

import datetime
import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, StrictBool, model_validator

from spark_rdp.queries.base import Confidence, Element, HistogramBins, Level, RowsPerUnit, Strict, refuse
from spark_rdp.queries.keys import Edges, GroupBy, Selected
from spark_rdp.queries.measures import Column, Name
from spark_rdp.queries.query import Query
from spark_rdp.queries.release import Output, Text, _paths, check_id

Statistic = Literal["mean", "total", "variance", "guess"]
Option = Literal["nonnegative", "range"]
#: What a window adds to the key of a group.
WINDOW = ("window_start", "window_end")
_SPAN = re.compile(r"([1-9][0-9]{0,6}) (second|minute|hour|day)s?")


def _distinct(given: Any) -> Any:
    if isinstance(given, (str, int, float)):
        return (given,)
    if not isinstance(given, (list, tuple)):
        return given
    for place, item in enumerate(given):
        if item in given[:place]:
            raise refuse(f"[{place}]", "different from the others", item, "Keep each once.")
    return tuple(given)


def _span(given: Any) -> Any:
    if not isinstance(given, str) or not _SPAN.fullmatch(given):
        raise refuse("", "a time such as 10 minutes", given, "Whole seconds, minutes, hours or days.")
    return given


def seconds_of(span: str) -> int:
    """The length of a span such as ``10 minutes``."""
    found = _SPAN.fullmatch(span)
    assert found is not None
    return int(found[1]) * {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}[found[2]]


Span = Annotated[str, BeforeValidator(_span)]


class EventWindow(Strict):
    """Windows of event time, an estimate for each: they are whole multiples of their slide away from 1970, in UTC.

    Args:
        column: The time of an event: a column of timestamps that was kept in clear.
        every: The length of a window.
        slide: The time from the start of one window to that of the next; by default its length, so that they do not
            overlap.
        late: With ``--watch``, how long after the latest event seen a window stays open for events of before.
    """

    column: Column = Field(description="Name a column of times that was kept.")
    every: Span = Field(description="For example 10 minutes.")
    slide: Span | None = None
    late: Span | None = None

    @model_validator(mode="after")
    def _ordered(self) -> EventWindow:
        if self.slide is not None and seconds_of(self.slide) > seconds_of(self.every):
            raise refuse("slide", f"at most {self.every}", self.slide, "Longer slides would leave events out.")
        return self

    @property
    def length(self) -> datetime.timedelta:
        """The length of a window."""
        return datetime.timedelta(seconds=seconds_of(self.every))


class EstimatedColumn(Strict):
    """What is estimated of one noised column.

    Args:
        column: A noised column of the collection.
        name: The names of what is published begin with it; that of the column by default.
        element: For a column of arrays: only the element at this place, from 0. By default all elements are values
            alike.
        statistics: ``mean``, ``total`` and ``variance`` of numbers. Of places and categories frequencies are always
            estimated; ``guess`` adds the likeliest true cell behind each published one.
        bins: A histogram with this many bins of one width over the range of the column.
        edges: A histogram with these edges, within the range, instead.
        quantiles: Levels between 0 and 1; 0.5 is the median.
    """

    column: Column = Field(description="Name a noised column of the collection.")
    name: Name | None = None
    element: Element | None = None
    statistics: Annotated[tuple[Statistic, ...], BeforeValidator(_distinct)] = ("mean", "total")
    bins: HistogramBins | None = None
    edges: Edges | None = None
    quantiles: Annotated[tuple[Level, ...], BeforeValidator(_distinct)] = ()

    @model_validator(mode="after")
    def _checked(self) -> EstimatedColumn:
        if self.bins is not None and self.edges is not None:
            raise refuse(
                "bins", "left out beside edges", self.bins, "A column has one histogram; name it twice for two."
            )
        if not self.parts:
            raise refuse("statistics", "a list that is not empty", [], "Or ask for bins, edges or quantiles.")
        return self

    @property
    def label(self) -> str:
        """What the names of its results begin with."""
        return self.column if self.name is None else self.name

    @property
    def parts(self) -> tuple[str, ...]:
        """Its results, by the ends of their names."""
        histogram = ("histogram",) if self.bins is not None or self.edges is not None else ()
        return (*self.statistics, *histogram, *map(quantile_name, self.quantiles))


def quantile_name(level: float) -> str:
    """``q50`` for the median, ``q99_9`` for 0.999."""
    return f"q{100 * level:.10g}".replace(".", "_")


class EstimateQuery(Query):
    """Answers from a local collection: noise taken out on average, with intervals. Nothing is charged for it.

    Args:
        name: With a run, the id it is published under.
        collection: The folder of a published collection, or of several runs of it (``run=...``), or a list of folders.
        group_by: Declared keys of columns the collection kept, crossed; without it there is one overall row. Several
            runs have a column ``run``.
        window: Windows of event time, which come before the other keys of a group. Those that hold a row appear: they
            are read off a column that is in clear, so that they need not be declared.
        columns: What is estimated; by default mean and total of every noised column.
        confidence: How often an interval holds what it is for.
        intervals: ``rows``: for the values of the very rows that were collected, so that only noise stands between.
            ``population``: for those of a large population the rows were drawn from, independently of each other.
        rows_per_unit: For a memoised collection, which repeats the noise of a unit and value: the most rows of one unit
            in a group. Variances are multiplied by it.
        post: ``nonnegative`` cuts off what is below 0, ``range`` moves means, variances and their intervals to what the
            range of the column admits. Both bias what is computed from the results.
        accept_unbounded: Estimate from collections that bound the budget of a single report only, not that of a unit.
        checkpoint: With ``--watch``, the folder of what has been counted; it is kept as long as the output.
        output, report: Where the estimates and their report go.

    Raises:
        InvalidInput: One sentence that names the full path of the first key that cannot be used.
    """

    _WHERE: ClassVar[tuple[str, ...]] = (*Query._WHERE, "checkpoint")

    kind: Literal["estimate"] = "estimate"
    name: Annotated[str, BeforeValidator(check_id)] = Field(description="Name the estimates.")
    collection: Annotated[tuple[str, ...], BeforeValidator(_paths)] = Field(
        description="Name the folder of the collection."
    )
    group_by: GroupBy | None = None
    window: EventWindow | None = None
    columns: tuple[EstimatedColumn, ...] = ()
    confidence: Confidence = 0.95
    intervals: Literal["rows", "population"] = "rows"
    rows_per_unit: RowsPerUnit | None = None
    post: Annotated[tuple[Option, ...], BeforeValidator(_distinct)] = ()
    accept_unbounded: StrictBool | None = None
    checkpoint: Text | None = None
    output: Output | None = None
    report: Text | None = None

    @property
    def group_columns(self) -> tuple[str, ...]:
        """The columns of the group key, in order."""
        return () if self.group_by is None else tuple(self.group_by)  # type: ignore[arg-type]

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that name a published row: those of the window, and of the group."""
        return (*(WINDOW if self.window is not None else ()), *self.group_columns)

    @property
    def selects(self) -> None:
        """Keys are declared: those of a collection are in clear, there is nothing to select privately."""

    @model_validator(mode="after")
    def _consistent(self) -> EstimateQuery:
        if isinstance(self.group_by, Selected):
            remedy = "The keys of a collection are in clear; list those to estimate."
            raise refuse("group_by", "declared keys", "select", remedy)
        taken = {column.casefold(): f"the group column {column}" for column in self.group_columns}
        reserved = ("rows", *(WINDOW if self.window is not None else ()))
        taken |= {"rows": "the number of rows"} | dict.fromkeys(reserved[1:], "the window")
        if len(taken) < len(self.group_columns) + len(reserved):
            constraint = f"columns that differ by more than case, none of them called {' or '.join(reserved)}"
            raise refuse(
                "group_by", constraint, ", ".join(self.group_columns), "Keep such a column under another name."
            )
        for place, item in enumerate(self.columns):
            for part in item.parts:
                for column in (f"{item.label}_{part}{end}" for end in ("", "_low", "_high")):
                    if column.casefold() in taken:
                        constraint = f"different from {taken[column.casefold()]} in all its columns"
                        raise refuse(f"columns[{place}].name", constraint, item.label, f"Both would publish {column}.")
                    taken[column.casefold()] = f"columns[{place}] ({item.label})"
        return self

    def _identity(self) -> dict[str, Any]:
        content = super()._identity()
        if self.group_by is not None:  # the order of columns counts
            content["group_by"] = list(content["group_by"].items())
        return content
