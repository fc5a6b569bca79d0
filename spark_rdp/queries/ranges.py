"""What a user asks of an ordered domain: ``kind: ranges``."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from spark_rdp.planning import additive
from spark_rdp.queries.base import MaxPerGroup, Refused, refuse
from spark_rdp.queries.keys import GroupBy, KeyBins, KeyRange
from spark_rdp.queries.measures import Mechanism
from spark_rdp.queries.published import PublishedQuery
from spark_rdp.queries.release import Privacy, ReleaseQuery

#: The name of the published numbers.
COUNT = "count"
#: A list of ranges has at most so many.
MOST_RANGES = 100_000
NAMED_WORKLOADS = ("ranges", "prefixes", "cells")
_WORKLOADS = "ranges, prefixes, cells, or a list of ranges"

Box = Mapping[str, tuple[Any, Any]]


def _workload(given: Any) -> Any:
    if isinstance(given, str) and given in NAMED_WORKLOADS:
        return given
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)) or not 1 <= len(given) <= MOST_RANGES:
        raise refuse("", _WORKLOADS, given, "A range is written {age: [20, 29]}; columns left out are not restricted.")
    boxes = []
    for place, box in enumerate(given):
        if not isinstance(box, Mapping) or not box:
            raise refuse(f"[{place}]", "columns with a pair [first, last]", box, "For example {age: [20, 29]}.")
        ends: dict[str, tuple[Any, Any]] = {}
        for column, pair in box.items():
            if not isinstance(pair, Sequence) or isinstance(pair, (str, bytes)) or len(pair) != 2:
                raise refuse(f"[{place}].{column}", "a pair [first, last]", pair, "For example [20, 29].")
            ends[str(column)] = (pair[0], pair[1])
        boxes.append(ends)
    return tuple(boxes)


Workload = Annotated[
    Any,
    BeforeValidator(_workload),
    PlainSerializer(lambda given: given if isinstance(given, str) else [dict(box) for box in given]),
    WithJsonSchema({"anyOf": [{"enum": list(NAMED_WORKLOADS)}, {"type": "array", "items": {"type": "object"}}]}),
]


class RangesQuery(PublishedQuery):
    """Counts over ranges of an ordered domain, with what is noised chosen for the ranges that matter.

    Args:
        privacy: Unit, budget and neighbours; ``max_groups`` is the most cells one unit counts in. Pure: no delta.
        domain: Ordered values per column, ``{range: [low, high]}`` or ``{bins: [...]}``; columns are crossed. Rows
            outside are dropped.
        max_per_group: The most rows of one unit that count in a cell.
        workload: Which sums shall come out well. ``ranges``: all ranges (crossed over the columns), ``cells``: every
            cell; both publish the cells, whose sums are the ranges. ``prefixes``: the number of rows up to each cell.
            A list of ranges ``{column: [first, last]}`` publishes these. For bins, first and last are edges.
        strategy: ``auto``, ``identity``, ``hierarchy`` or ``wavelet``: what is noised.
        mechanism: ``auto`` for the best pure noise, or the name of one.
    """

    kind: Literal["ranges"] = "ranges"
    privacy: Privacy = Field(description="Give at least unit and epsilon.")
    domain: GroupBy = Field(
        description="Declare the ordered values of each column, for example {age: {range: [0, 99]}}."
    )
    max_per_group: MaxPerGroup | None = None
    workload: Workload = "ranges"
    strategy: Literal["auto", "identity", "hierarchy", "wavelet"] = "auto"
    mechanism: Mechanism = "auto"

    @property
    def cells(self) -> ReleaseQuery:
        """The release of the cells by themselves: which rows count where, and how many of a unit."""
        measure = {"name": COUNT, "type": "count", "max_per_group": self.max_per_group}
        return ReleaseQuery.of(
            {"name": self.name, "privacy": self.privacy, "group_by": self.domain, "measures": [measure]}
        )

    @property
    def axes(self) -> dict[str, KeyRange | KeyBins]:
        """The ordered values of each column."""
        assert isinstance(self.domain, dict)
        return {name: axis for name, axis in self.domain.items() if isinstance(axis, (KeyRange, KeyBins))}

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of cells along each column."""
        return tuple(axis.size for axis in self.axes.values())

    def boxes(self) -> list[list[tuple[int, int]]] | None:
        """A list of ranges as pairs of first and last cell for each column; None for a named workload."""
        if isinstance(self.workload, str):
            return None
        return [
            [
                _cells(axis, box[name], f"workload[{place}].{name}") if name in box else (0, axis.size - 1)
                for name, axis in self.axes.items()
            ]
            for place, box in enumerate(self.workload)
        ]

    @model_validator(mode="after")
    def _consistent(self) -> RangesQuery:
        if not isinstance(self.domain, dict):
            raise refuse("domain", "declared", "select", "Give {range: ...} or {bins: ...} for each column.")
        for name, axis in self.domain.items():
            if not isinstance(axis, (KeyRange, KeyBins)):
                raise refuse(f"domain.{name}", "{range: [low, high]} or {bins: [...]}", axis, "Ranges need an order.")
        check_pure(self.privacy, self.mechanism)
        try:
            _ = self.cells
        except Refused as failure:  # it speaks of its one measure and of its groups
            path = failure.path.removeprefix("measures[0].").replace("group_by", "domain", 1)
            raise Refused(path, failure.rest) from None
        for place, box in enumerate(() if isinstance(self.workload, str) else self.workload):
            for name in box:
                if name not in self.domain:
                    remedy = f"The domain has: {', '.join(self.domain)}."
                    raise refuse(f"workload[{place}]", "columns of the domain", name, remedy)
        self.boxes()
        taken = {f"{name}{end}".casefold() for name in self.domain for end in ("_from", "_to")}
        if not isinstance(self.workload, str) and len(taken) < 2 * len(self.domain):
            raise refuse("domain", "columns whose names differ by more than _from and _to", None, "Rename one.")
        return self


def check_pure(privacy: Privacy, mechanism: str, where: str = "mechanism") -> None:
    """Refuse a delta, and noise that needs one."""
    if privacy.delta:
        raise refuse("privacy.delta", "0, because nothing in this query uses it", privacy.delta, "Remove it.")
    if mechanism in additive.NEED_DELTA:
        remedy = "Use auto, laplace, staircase or r2dp."
        raise refuse(where, "a noise that is private without a delta", mechanism, remedy)


def _cells(axis: KeyRange | KeyBins, pair: tuple[Any, Any], where: str) -> tuple[int, int]:
    """The first and the last cell of a range."""
    if isinstance(axis, KeyBins):
        for end in pair:
            if isinstance(end, bool) or not isinstance(end, (int, float)) or float(end) not in axis.bins:
                raise Refused(where, f" must be two edges of the bins; got {end!r}. Ranges are made of whole bins.")
        first, last = (axis.bins.index(float(end)) for end in pair)
        last -= 1
    else:
        low, high = axis.range
        for end in pair:
            if type(end) is not type(low) or not low <= end <= high:
                raise Refused(where, f" must lie between {low} and {high}; got {end!r}. Both ends belong to it.")
        offsets = [(end - low).days if isinstance(low, datetime.date) else end - low for end in pair]
        first, last = offsets
    if not first <= last:
        raise refuse(where, "a pair with the lower end first", list(pair), "Swap the two ends.")
    return first, last


def number_of_ranges(workload: str, shape: Sequence[int]) -> int:
    """How many ranges a named workload asks for."""
    if workload == "ranges":
        return math.prod(size * (size + 1) // 2 for size in shape)
    return math.prod(shape)
