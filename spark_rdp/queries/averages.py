"""What a user asks of a series in time: ``kind: averages``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from spark_rdp.queries.base import Periods, Refused, refuse
from spark_rdp.queries.keys import GroupBy, KeyRange
from spark_rdp.queries.measures import Count, Sum
from spark_rdp.queries.published import PublishedQuery
from spark_rdp.queries.ranges import check_pure
from spark_rdp.queries.release import Privacy, ReleaseQuery


def _one_period_each(given: Any) -> Any:
    """The time axis: one column with its periods."""
    if not isinstance(given, dict) or len(given) != 1:
        raise refuse("", "one column with its periods", given, "For example {hour: {range: [0, 167]}}.")
    return given


class AveragesQuery(PublishedQuery):
    """Moving averages of a count or a sum over declared periods, for each declared group.

    Args:
        privacy: Unit, budget and neighbours; ``max_groups`` is the most periods (of all groups together) one unit
            counts in. Pure: no delta.
        time: The column of the period and its periods, ``{hour: {range: [0, 167]}}``: whole numbers or dates.
        group_by: Declared keys per column, crossed; without it there is one series.
        measure: What is averaged: a count or a sum, as in a release; the metric is l2.
        window: How many periods an average is of.
        stride: How many periods the window moves from one average to the next.
        method: ``auto`` for the smaller root mean square error, ``periods`` to noise the periods, ``windows`` to noise
            the averages.
    """

    kind: Literal["averages"] = "averages"
    privacy: Privacy = Field(description="Give at least unit and epsilon.")
    time: Annotated[GroupBy, BeforeValidator(_one_period_each)] = Field(
        description="Give the column of the period, for example {hour: {range: [0, 167]}}."
    )
    group_by: GroupBy | None = None
    measure: Annotated[Count | Sum, Field(discriminator="type")] = Field(
        description="Say what is averaged, for example {name: trips, type: count, max_per_group: 1}."
    )
    window: Periods = Field(description="Give how many periods an average is of.")
    stride: Periods = 1
    method: Literal["auto", "periods", "windows"] = "auto"

    @property
    def time_column(self) -> str:
        """The column of the period."""
        assert isinstance(self.time, dict)
        return next(iter(self.time))

    @property
    def periods(self) -> int:
        """How many periods there are."""
        assert isinstance(self.time, dict)
        axis = self.time[self.time_column]
        assert isinstance(axis, KeyRange)
        return axis.size

    @property
    def windows(self) -> int:
        """How many averages each group has."""
        return (self.periods - self.window) // self.stride + 1

    @property
    def cells(self) -> ReleaseQuery:
        """The release of the periods of all groups: which rows count where, and how much of a unit."""
        groups = dict(self.group_by) if isinstance(self.group_by, dict) else {}
        assert isinstance(self.time, dict)
        return ReleaseQuery.of(
            {
                "name": self.name,
                "privacy": self.privacy,
                "group_by": {**groups, **self.time},
                "measures": [self.measure],
            }
        )

    @model_validator(mode="after")
    def _consistent(self) -> AveragesQuery:
        if not isinstance(self.time, dict) or not isinstance(self.time[self.time_column], KeyRange):
            raise refuse("time", "one column with a range of periods", None, "For example {hour: {range: [0, 167]}}.")
        if self.group_by is not None and not isinstance(self.group_by, dict):
            raise refuse("group_by", "declared", "select", "Declare the keys of each column.")
        if isinstance(self.group_by, dict) and self.time_column in self.group_by:
            raise refuse("group_by", "without the column of the periods", self.time_column, "Leave it in time.")
        if self.window > self.periods:
            constraint = f"at most the number of periods ({self.periods})"
            raise refuse("window", constraint, self.window, "Declare more periods, or a shorter window.")
        check_pure(self.privacy, self.measure.mechanism, "measure.mechanism")
        if self.measure.metric.spec() != "l2":
            remedy = "The error of an average of noises is known exactly for l2 only."
            raise refuse("measure.metric", "l2", self.measure.metric.spec(), remedy)
        try:
            _ = self.cells
        except Refused as failure:  # its measures[0] is our measure
            raise Refused(failure.path.replace("measures[0]", "measure", 1), failure.rest) from None
        taken = {key.casefold() for key in (self.group_by or {})} if isinstance(self.group_by, dict) else set()
        published = {f"{self.time_column}{end}".casefold() for end in ("_from", "_to")}
        if taken & published or self.measure.name.casefold() in published:
            raise refuse("time", f"a column other than {self.time_column}", None, "Two columns would have one name.")
        return self
