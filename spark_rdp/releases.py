"""From a query to its plans: sensitivities, the split of the budget, and one noise plan per published column.

Nothing here looks at data. The numbers Spark needs (lattice, clamps, caps) are decided here, so that the sensitivity
claimed is the sensitivity of what is computed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import Any, Literal

from spark_rdp.domains import COORDINATES
from spark_rdp.errors import InvalidInput, invalid
from spark_rdp.lattice import SENSITIVITY_BITS, Lattice
from spark_rdp.planning import additive
from spark_rdp.planning.plan import Plan
from spark_rdp.planning.selection import plan_quantile
from spark_rdp.privacy.selection import KeepTable, keep_table
from spark_rdp.queries import (
    Count,
    CountUnits,
    Histogram,
    Mean,
    Measure,
    NoisedMeasure,
    Quantile,
    ReleaseQuery,
    Sum,
    check_id,
)
from spark_rdp.queries.published import PublishedQuery

Role = Literal["count", "sum", "bins", "quantile"]
Kind = Literal["rows", "units", "total", "centred", "bins"]

#: The most lattice steps between 0 and the bound of a unit's total (of a row's value, in a mean). Up to 2**40 units
#: (rows) are then added without leaving 63 bits.
MOST_STEPS = 2**22
_MILLION = 1_000_000


def _content(item: Any) -> dict[str, Any]:
    """The fields of a dataclass by name, with lists for tuples."""
    values = {entry.name: getattr(item, entry.name) for entry in fields(item)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


@dataclass(frozen=True)
class Component:
    """One integer column of the aggregated frame, how a unit contributes to it, and its noise.

    Args:
        column: The internal name: c0, c1, ...
        measure: The name of the measure it belongs to.
        role: What it is to the measure.
        kind: How a unit's rows of a group become its contribution.
        source: The column of the values; None for plain rows and units.
        exponent: The lattice is the multiples of ``2**exponent``.
        lower, upper: The contribution of a unit to a group (to a bin) lies between them, in lattice integers.
        cap: The most rows of a unit that count in a group.
        value_lower, value_upper: The bounds of the values (of the total, for a sum; of what is published, for a count).
        centre: What is subtracted from each value before it is added (kind centred).
        edges: The edges of the bins.
        width: How many numbers per group. Bins are an array, even a single one; everything else is one number.
        candidates: What a quantile may be: one for each bin.
        plan: The noise of each number, or the selection among the candidates.
    """

    column: str
    measure: str
    role: Role
    kind: Kind
    source: str | None
    exponent: int
    lower: int
    upper: int
    cap: int
    value_lower: float | None
    value_upper: float | None
    centre: float | None
    edges: tuple[float, ...] | None
    width: int
    candidates: tuple[float, ...] | None
    plan: Plan

    @property
    def row_limit(self) -> int:
        """The magnitude one row is clamped to, in lattice integers (kind centred)."""
        return self.upper // self.cap

    def content(self) -> dict[str, Any]:
        """The component as JSON values."""
        return {**_content(self), "plan": json.loads(self.plan.to_json())}

    @classmethod
    def of_content(cls, content: Mapping[str, Any]) -> Component:
        """The component whose `content` it was."""
        lists = {name: content[name] and tuple(content[name]) for name in ("edges", "candidates")}
        return cls(**{**content, **lists, "plan": Plan.from_json(json.dumps(content["plan"]))})


@dataclass(frozen=True)
class Selection:
    """The private selection of keys: a key is published with a probability that depends on its number of units.

    Args:
        epsilon_millionths, delta: What the selection spends.
        keys_per_unit: How many keys' counts one unit changes by one.
        column: The internal name of the column with the exact number of units per key.
    """

    epsilon_millionths: int
    delta: float
    keys_per_unit: int
    column: str = "s0"

    @property
    def table(self) -> KeepTable:
        """The probabilities; computed from the other fields, the same everywhere."""
        return keep_table(self.epsilon_millionths, self.delta, self.keys_per_unit)


@dataclass(frozen=True)
class ReleasePlan:
    """Everything Spark needs to know about a release, and everything a reader wants to know about its noise.

    Args:
        query_digest: The digest of the query it was made from.
        unit: The column of the privacy unit, or ``row``.
        neighbours: ``add-remove`` or ``replace-one``.
        group_columns: The columns of the group key.
        max_groups: The most groups a unit contributes to.
        components: One per integer column.
        selection: The private selection of keys, if there is one.
        epsilon_millionths: The charge: epsilon in millionths, rounded up.
        delta: The charge of delta: all of it if noise takes a share, otherwise what the selection spends.
    """

    query_digest: str
    unit: str
    neighbours: str
    group_columns: tuple[str, ...]
    max_groups: int
    components: tuple[Component, ...]
    selection: Selection | None
    epsilon_millionths: int
    delta: float

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of the measures, in the order they are published."""
        return tuple(dict.fromkeys(component.measure for component in self.components))

    def of(self, measure: str) -> tuple[Component, ...]:
        """The components of one measure."""
        return tuple(component for component in self.components if component.measure == measure)

    def content(self) -> dict[str, Any]:
        """The plan as JSON values, for a manifest."""
        return {
            **_content(self),
            "components": [component.content() for component in self.components],
            "selection": _content(self.selection) if self.selection else None,
        }

    def to_json(self) -> str:
        """The plan as JSON text; numbers are exact."""
        return json.dumps(self.content(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> ReleasePlan:
        """Read what `to_json` wrote.

        Raises:
            InvalidInput: The text is not the plan of a release of this version.
        """
        try:
            content = json.loads(text)
            changed = {
                "group_columns": tuple(content["group_columns"]),
                "components": tuple(Component.of_content(component) for component in content["components"]),
                "selection": Selection(**content["selection"]) if content["selection"] else None,
            }
            return cls(**{**content, **changed})
        except (json.JSONDecodeError, TypeError, KeyError):
            raise InvalidInput("The plan must be the text of a release plan of this version. Plan again.") from None


def release_id(query: ReleaseQuery | PublishedQuery, run: str | None = None) -> str:
    """The id under which a release is charged, published and found again: ``name``, or ``name@run``.

    Raises:
        InvalidInput: The run is not made of letters, digits, dots, dashes and underscores.
    """
    return query.name if run is None else f"{query.name}@{check_id(run, 'run')}"


def charge(epsilon: float) -> int:
    """The epsilon a ledger is charged: the decimal number the user wrote, in millionths, rounded up."""
    return int((Decimal(repr(epsilon)) * _MILLION).to_integral_value(ROUND_CEILING))


def split(epsilon: float, weights: Sequence[float | Fraction]) -> list[int]:
    """Shares of a budget by weight, in millionths, each rounded down: their sum never exceeds epsilon."""
    budget = int((Decimal(repr(epsilon)) * _MILLION).to_integral_value(ROUND_FLOOR))
    total = sum(Fraction(weight) for weight in weights)
    return [int(budget * Fraction(weight) / total) for weight in weights]


def split_delta(delta: Fraction, weights: Sequence[float | Fraction]) -> list[float]:
    """Shares of delta by weight, each the largest double not above its exact share: their sum never exceeds delta."""
    total = sum(Fraction(weight) for weight in weights)
    shares = []
    for weight in weights:
        exact = delta * Fraction(weight) / total
        share = float(exact)
        shares.append(math.nextafter(share, 0.0) if Fraction(share) > exact else share)
    return shares


def _delta_shares(query: ReleaseQuery, parts: Sequence[int]) -> list[float]:
    """The delta of each of the components of every measure; 0 for those with pure noise."""
    selects = query.selects
    left = Fraction(repr(query.privacy.delta)) - (Fraction(repr(selects.delta)) if selects else 0)
    asking = [place for place, measure in enumerate(query.measures) if measure.needs_delta]
    shares = split_delta(left, [query.measures[place].weight for place in asking]) if asking else []
    result = [0.0] * len(parts)
    for place, share in zip(asking, shares, strict=True):
        result[place] = split_delta(Fraction(share), [1] * parts[place])[0]
    return result


@dataclass(frozen=True)
class _Part:
    """A component before its noise is planned; a unit changes ``coordinates`` numbers per group."""

    role: Role
    kind: Kind
    source: str | None = None
    exponent: int = 0
    lower: int = 0
    upper: int = 1
    cap: int = 1
    value_lower: float | None = None
    value_upper: float | None = None
    centre: float | None = None
    edges: tuple[float, ...] | None = None
    width: int = 1
    candidates: tuple[float, ...] | None = None
    coordinates: int = 1

    @property
    def steps(self) -> int:
        """How much a unit changes a number by being added or removed, in lattice units."""
        return 1 if self.kind == "bins" else max(abs(self.lower), abs(self.upper))

    @property
    def range_steps(self) -> int:
        """How much it changes a number by being replaced; no less than `steps`."""
        return 1 if self.kind == "bins" else max(self.upper, 0) - min(self.lower, 0)


def _lattice(measure: Sum | Mean, longest: float, where: str) -> Lattice:
    """The lattice for contributions up to ``longest``: the one asked for, or one with about 2**20 steps."""
    if measure.granularity is None:
        return Lattice.for_sensitivity(longest)
    lattice = Lattice.of_granularity(measure.granularity)
    if not 1 <= lattice.steps(longest) <= MOST_STEPS or longest < measure.granularity:
        low = Lattice.for_sensitivity(longest).granularity
        constraint = f"between {low!r} and {math.ldexp(low, SENSITIVITY_BITS)!r} for these bounds"
        raise invalid(f"{where}.granularity", constraint, measure.granularity, "Leave it out to have it planned.")
    return lattice


def _total(measure: Sum, where: str) -> _Part:
    """A unit's total lies on the lattice points between the bounds; the claim is the larger of the two integers."""
    lattice = _lattice(measure, max(abs(measure.lower), abs(measure.upper)), where)
    lower, upper = lattice.steps(measure.lower), -lattice.steps(-measure.upper)
    if lower > upper:  # no lattice point between the bounds: the point next to them
        lower = upper = lattice.nearest(measure.upper)
    return _Part("sum", "total", measure.column, lattice.exponent, lower, upper, 1, measure.lower, measure.upper)


def _centred(measure: Mean, where: str) -> _Part:
    """A row contributes its distance from the middle of the bounds: half the sensitivity of the value itself."""
    centre = measure.lower / 2 + measure.upper / 2
    farthest = max(Fraction(measure.upper) - Fraction(centre), Fraction(centre) - Fraction(measure.lower))
    lattice = _lattice(measure, float(farthest), where)
    row = math.ceil(farthest / Fraction(lattice.granularity))
    cap, bounds = measure.max_per_group, (measure.lower, measure.upper)
    return _Part("sum", "centred", measure.column, lattice.exponent, -row * cap, row * cap, cap, *bounds, centre)


def _parts(measure: Measure, where: str) -> list[_Part]:
    if isinstance(measure, Count):
        cap = measure.max_per_group or 1
        return [_Part("count", "rows", measure.column, upper=cap, cap=cap, **_limits(measure.maximum))]
    if isinstance(measure, CountUnits):
        return [_Part("count", "units", **_limits(measure.maximum))]
    if isinstance(measure, Sum):
        return [_total(measure, where)]
    if isinstance(measure, Mean):
        cap = measure.max_per_group
        return [_centred(measure, where), _Part("count", "rows", measure.column, upper=cap, cap=cap)]
    if isinstance(measure, Quantile):
        values, cap = measure.values, measure.max_per_group
        return [
            _Part(
                "quantile",
                "bins",
                measure.column,
                upper=cap,
                cap=cap,
                value_lower=values[0],
                value_upper=values[-1],
                edges=measure.edges,
                width=len(values),
                candidates=values,
            )
        ]
    assert isinstance(measure, Histogram)
    cap = measure.max_per_group
    # A unit's rows may fall into as many bins as it has rows; many rows in one bin cost no more than one row in each,
    # because the loss of a shift by m is at most m times the loss of a shift by one.
    width = len(measure.bins) - 1
    return [_Part("bins", "bins", measure.column, upper=cap, cap=cap, edges=measure.bins, width=width, coordinates=cap)]


def _limits(maximum: int | None) -> dict[str, Any]:
    """The bounds of a published count with a declared maximum."""
    return {} if maximum is None else {"value_lower": 0.0, "value_upper": float(maximum)}


class _Planner:
    """Plans each noise once, however often a query asks for it.

    Args:
        query: Says how many groups a unit contributes to, and what neighbours are.
    """

    def __init__(self, query: ReleaseQuery) -> None:
        self.groups = query.groups_per_unit
        self.replace = query.privacy.neighbours == "replace-one"
        #: All groups a unit can change; a unit and its replacement may contribute to different ones.
        self.changed = self.groups * (2 if self.replace else 1)
        self.one_row = query.group_by is None
        self.plans: dict[tuple[Any, ...], Plan] = {}

    def plan(self, part: _Part, measure: Measure, millionths: int, delta: float, where: str) -> Plan:
        """The noise of one component, for a share of epsilon in millionths and a share of delta (0 for pure noise)."""
        coordinates, steps = self._profile(part, gaussian=delta > 0)
        if coordinates > COORDINATES.upper:
            constraint = f"such that one unit changes at most {COORDINATES.upper} numbers"
            raise invalid(f"{where}.max_per_group", constraint, part.cap, "Lower it, or privacy.max_groups.")
        try:
            if isinstance(measure, Quantile):
                return self._quantile(part, measure, millionths / _MILLION)
            assert isinstance(measure, NoisedMeasure)
            return self._noise(part, measure, millionths, delta, coordinates, steps)
        except InvalidInput as failure:
            shares = "shares of privacy.epsilon and privacy.delta" if delta else "share of privacy.epsilon"
            raise InvalidInput(f"{where} cannot be planned with its {shares}: {failure}") from None

    def _profile(self, part: _Part, gaussian: bool) -> tuple[int, int]:
        """How many numbers one unit changes, and by how much each.

        The loss of a pure noise for one change of 2d is at most that for two changes of d, so a replaced unit counts
        as one removed and one added. Gaussian noise goes by the Euclidean length, where a change of 2d is worse than
        two of d: there each number counts as changed by all that a replacement can do to it.
        """
        if not (gaussian and self.replace) or part.kind == "bins":
            return self.changed * part.coordinates, part.steps
        return (1 if self.one_row else self.changed), part.range_steps

    def _noise(
        self, part: _Part, measure: NoisedMeasure, millionths: int, delta: float, coordinates: int, steps: int
    ) -> Plan:
        key = (millionths, delta, steps, part.exponent, coordinates, measure.metric, measure.noise)
        if key not in self.plans:
            granularity = math.ldexp(1.0, part.exponent)
            self.plans[key] = additive.plan(
                epsilon=millionths / _MILLION,
                sensitivity=steps * granularity,
                metric=measure.metric,
                mechanism=measure.noise,
                coordinates=coordinates,
                granularity=granularity,
                delta=delta,
            )
        return self.plans[key]

    def _quantile(self, part: _Part, measure: Quantile, epsilon: float) -> Plan:
        return plan_quantile(
            epsilon=epsilon,
            level=measure.level,
            candidates=part.width,
            max_per_group=part.cap,
            max_groups=self.groups,
            replace=self.replace,
            mechanism=measure.mechanism,
        )


def plan_release(query: ReleaseQuery) -> ReleasePlan:
    """Plan the noise of a release.

    The budget is split by weight over the measures, with a share of weight 1 for a private selection of keys; a mean
    divides its share equally between its sum and its count. What a selection of keys leaves of delta is split in the
    same way over the measures that ask for Gaussian noise; all other noise is pure.

    Raises:
        InvalidInput: A share of the budget is too small, or a granularity does not fit the bounds.
    """
    selects = query.selects
    parts = [_parts(measure, f"measures[{place}]") for place, measure in enumerate(query.measures)]
    weights: list[float | Fraction] = [
        Fraction(m.weight) / len(own) for m, own in zip(query.measures, parts, strict=True) for _ in own
    ]
    shares = split(query.privacy.epsilon, [*weights, Fraction(1)] if selects else weights)
    if min(shares) < 1:
        constraint = "large enough to give every measure (half of a mean) at least 1e-06"
        raise invalid("privacy.epsilon", constraint, query.privacy.epsilon, "Raise it, or ask for fewer measures.")
    deltas = _delta_shares(query, [len(own) for own in parts])
    planner = _Planner(query)
    components: list[Component] = []
    for place, (measure, own) in enumerate(zip(query.measures, parts, strict=True)):
        for part in own:
            plan = planner.plan(part, measure, shares[len(components)], deltas[place], f"measures[{place}]")
            content = {item.name: getattr(part, item.name) for item in fields(part) if item.name != "coordinates"}
            components.append(Component(column=f"c{len(components)}", measure=measure.name, plan=plan, **content))
    selection = Selection(shares[-1], selects.delta, planner.changed) if selects else None
    if selection:
        _ = selection.table  # refused here rather than on an executor
    return ReleasePlan(
        query_digest=query.digest(),
        unit=query.privacy.unit,
        neighbours=query.privacy.neighbours,
        group_columns=query.group_columns,
        max_groups=query.groups_per_unit,
        components=tuple(components),
        selection=selection,
        epsilon_millionths=charge(query.privacy.epsilon),
        delta=query.privacy.delta if any(deltas) else selection.delta if selection else 0.0,
    )
