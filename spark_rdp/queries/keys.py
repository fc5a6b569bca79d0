"""The groups of a release: declared without looking at the data, or selected privately."""

from __future__ import annotations

import datetime
import itertools
import math
import numbers
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, RootModel, ValidationError, WithJsonSchema

from spark_rdp.queries.base import Bound, Delta, Refused, Strict, join, refuse, translate

KeyValue = str | int | bool | datetime.date | None

#: A release has at most this many declared groups.
MOST_KEYS = 2**20
#: A histogram, or a binned key, has at most this many edges.
MOST_EDGES = 100_001
_LONG = 2**63
_DOMAINS = "a list of keys, {file: ...}, {range: [low, high]} or {bins: [...]}"
_VALUES = "a text, a whole number, true/false, a date or null"


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "true/false values"
    return {str: "texts", int: "whole numbers", datetime.date: "dates"}[type(value)]


def _key_value(value: Any, place: str) -> KeyValue:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, numbers.Integral):
        if not -_LONG <= int(value) < _LONG:
            raise refuse(place, "a whole number of at most 64 bits", value, "Declare such keys as text.")
        return int(value)
    if value is None:
        return None
    if isinstance(value, str):
        if not value.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in value):
            raise refuse(place, "a text of whole Unicode characters", value, "Remove the lone surrogate.")
        return str(value)
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value
    if isinstance(value, (numbers.Real, np.floating)):
        raise refuse(place, _VALUES, value, "For fractions use {bins: [...]} instead.")
    if isinstance(value, (datetime.datetime, np.datetime64)):
        raise refuse(place, _VALUES, str(value), "For times derive a date column first.")
    raise refuse(place, _VALUES, value, "Write one plain value per group.")


def _listed(given: Any) -> Any:
    if isinstance(given, np.ndarray):
        given = given.tolist()
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)):
        raise refuse("", _DOMAINS, given, "Declare the groups to publish.")
    if len(given) > MOST_KEYS:
        raise refuse("", f"a list of at most {MOST_KEYS} keys", f"{len(given)} keys", "Publish fewer groups, or bins.")
    values = tuple(_key_value(value, f"[{place}]") for place, value in enumerate(given))
    kinds = {_kind(value): value for value in values if value is not None}
    if len(kinds) > 1:
        first, second = list(kinds)[:2]
        raise refuse("", "a list of keys of one type", f"{first} and {second}", "Quote the keys to make them texts.")
    value, times = Counter(values).most_common(1)[0] if values else (None, 0)
    if times > 1:
        raise refuse("", "a list without repetitions", value, "Keep each key once.")
    return values


def _edges(given: Any) -> Any:
    if isinstance(given, np.ndarray):
        given = given.tolist()
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)) or not 2 <= len(given) <= MOST_EDGES:
        raise refuse("", f"a list of 2 to {MOST_EDGES} edges", given, "Two edges make one bin.")
    return tuple(given)


def _increasing(edges: tuple[float, ...]) -> tuple[float, ...]:
    for place, (low, high) in enumerate(itertools.pairwise(edges)):
        if not low < high:
            raise refuse(f"[{place + 1}]", f"above the edge before it ({low!r})", high, "Sort the edges.")
    return edges


Edges = Annotated[
    tuple[Bound, ...],
    BeforeValidator(_edges),
    AfterValidator(_increasing),
    Field(description="Edges of the bins, increasing; they must not depend on the data."),
]


def _ends(given: Any) -> Any:
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)) or len(given) != 2:
        raise refuse("", "a pair [low, high]", given, "Both ends belong to the range.")
    ends: list[Any] = []
    for place, value in enumerate(given):
        end = _key_value(value, f"[{place}]")
        if end is None or isinstance(end, (bool, str)):
            raise refuse(f"[{place}]", "a whole number or a date", end, "For texts use a list.")
        ends.append(end)
    low, high = ends
    if type(low) is not type(high):
        raise refuse("", "a pair of whole numbers or a pair of dates", given, "Give both ends of one type.")
    if not low <= high:
        raise refuse("", "a pair with the lower end first", given, "Swap the two ends.")
    return low, high


class Listed(RootModel[tuple[Any, ...]]):
    """Keys written out, in the order of the list."""

    model_config = ConfigDict(frozen=True)

    root: Annotated[tuple[Any, ...], BeforeValidator(_listed), WithJsonSchema({"type": "array", "maxItems": MOST_KEYS})]

    @property
    def values(self) -> tuple[KeyValue, ...]:
        """The declared keys: all of one type, null besides."""
        return self.root

    @property
    def size(self) -> int:
        """How many keys there are."""
        return len(self.root)


class KeyFile(Strict):
    """Keys in a file, one per row."""

    file: str = Field(min_length=1, description="Name a file that lists the keys.")

    @property
    def size(self) -> None:
        """Not known before the file is read."""


class KeyRange(Strict):
    """All whole numbers, or all dates, between two ends; both belong to it."""

    range: Annotated[
        tuple[Any, Any],
        BeforeValidator(_ends),
        WithJsonSchema({"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": ["integer", "string"]}}),
    ] = Field(description="Give [low, high].")

    @property
    def size(self) -> int:
        """How many keys there are."""
        low, high = self.range
        return int((high - low).days if isinstance(low, datetime.date) else high - low) + 1


class KeyBins(Strict):
    """Intervals ``[edge, next edge)``; the last one is closed."""

    bins: Edges

    @property
    def size(self) -> int:
        """How many keys there are."""
        return len(self.bins) - 1


class Selected(Strict):
    """Keys that are not declared: a key is published only if a private test finds enough units behind it."""

    select: tuple[str, ...] = Field(min_length=1, description="Name the columns whose keys are selected.")
    delta: Delta = Field(description="Give how likely a key of a single unit may appear, for example 1.0e-6.")


KeyDomain = Listed | KeyFile | KeyRange | KeyBins


def _domain(given: Any) -> KeyDomain:
    if isinstance(given, (Listed, KeyFile, KeyRange, KeyBins)):
        return given
    if not isinstance(given, Mapping):
        try:
            return Listed.model_validate(given)
        except ValidationError as failure:
            raise translate(failure, given) from None
    for key, model in (("file", KeyFile), ("range", KeyRange), ("bins", KeyBins)):
        if key in given:
            return model.of(given)
    raise refuse("", _DOMAINS, dict(given), "Choose one of them.")


def _groups(given: Any) -> Any:
    if isinstance(given, Selected):
        return given
    if not isinstance(given, Mapping) or not given:
        raise refuse("", "a mapping of columns to their keys", given, "Leave it out to publish one overall row.")
    if "select" in given:
        return Selected.of(given)
    domains: dict[str, KeyDomain] = {}
    for column, domain in given.items():
        if not isinstance(column, str) or not column:
            raise refuse("", "a mapping of column names to their keys", column, "Quote the name of the column.")
        try:
            domains[column] = _domain(domain)
        except Refused as failure:
            raise Refused(join(column, failure.path), failure.rest) from None
    declared = math.prod(domain.size for domain in domains.values() if domain.size is not None)
    if declared > MOST_KEYS:
        raise refuse("", f"a product of at most {MOST_KEYS} keys", declared, "Publish fewer groups, or coarser bins.")
    return domains


#: What ``group_by`` accepts: a domain per column, crossed, or a private selection.
GroupBy = Annotated[Selected | dict[str, KeyDomain], BeforeValidator(_groups)]
