"""Bounded statistics computed slowly, row by row, in plain Python: what the Spark stage has to agree with exactly."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from fractions import Fraction
from typing import Any

from spark_rdp.releases import Component, ReleasePlan

Rows = Iterable[dict[str, Any]]


def lattice_integer(component: Component, value: Any) -> int | None:
    """The lattice integer of one value; None if it is missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    number, limit = float(value), 2**31
    if component.kind == "centred":
        assert component.value_lower is not None
        assert component.value_upper is not None
        assert component.centre is not None
        number = min(max(number, component.value_lower), component.value_upper) - component.centre
        limit = component.row_limit
    steps = number * 2.0**-component.exponent
    return round(min(max(steps, -limit), limit))


def bin_of(edges: tuple[float, ...], value: Any) -> int | None:
    """The bin of one value, values outside in the nearest one; None if it is missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return min(max(sum(float(value) >= edge for edge in edges) - 1, 0), len(edges) - 2)


def contribution(component: Component, rows: list[dict[str, Any]], offset: int) -> int | list[int]:
    """What the rows of one unit in one group contribute."""
    if component.kind == "units":
        return 1
    if component.kind == "rows" and component.source is None:
        return min(len(rows), component.cap)
    assert component.source is not None
    values = [row[component.source] for row in rows]
    if component.kind == "bins":
        assert component.edges is not None
        bins = sorted(place for place in (bin_of(component.edges, value) for value in values) if place is not None)
        return _sampled(bins, component, offset)
    steps = [step for step in (lattice_integer(component, value) for value in values) if step is not None]
    if component.kind == "rows":
        present = [v for v in values if v is not None and not (isinstance(v, float) and math.isnan(v))]
        return min(len(present), component.cap)
    if component.kind == "total":
        return min(max(sum(steps), component.lower), component.upper) if steps else 0
    if len(steps) <= component.cap:
        return sum(steps)
    return math.floor(Fraction(sum(steps) * component.cap, len(steps)) + Fraction(1, 2))


def _sampled(bins: list[int], component: Component, offset: int) -> list[int]:
    counts = [0] * component.width
    rows, start = len(bins), offset % max(len(bins), 1)
    for place, number in enumerate(bins, start=1):
        before, here = component.cap * (place - 1) + start, component.cap * place + start
        counts[number] += 1 if rows <= component.cap else here // rows - before // rows
    return counts


def statistics(
    plan: ReleasePlan,
    rows: Rows,
    groups: Iterable[Hashable] | None,
    group_of: Callable[[dict[str, Any]], Hashable],
    order: Callable[[Any, Hashable], Any] = lambda unit, group: 0,
    offset: Callable[[int, Any, Hashable], int] = lambda slot, unit, group: 0,
) -> dict[Hashable, list[Any]]:
    """The statistics of every group, in the order of the plan's components, then the number of units.

    Args:
        plan: The plan.
        rows: The rows.
        groups: The declared groups; None when the data decide.
        group_of: The group of a row.
        order: Sorts the groups of a unit; the smallest are kept.
        offset: Where the sampling of bins starts, by number of the component with bins, unit and group.
    """
    declared = None if groups is None else list(groups)
    by_unit: dict[Any, dict[Hashable, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for number, row in enumerate(rows):
        unit = number if plan.unit == "row" else row[plan.unit]
        group = group_of(row)
        if unit is not None and (declared is None or group in declared):
            by_unit[unit][group].append(row)
    empty = [[0] * c.width if c.kind == "bins" else 0 for c in plan.components]
    totals: dict[Hashable, list[Any]] = {} if declared is None else {group: [*empty, 0] for group in declared}
    bins = [component.column for component in plan.components if component.kind == "bins"]
    for unit, own in by_unit.items():
        for group in sorted(own, key=lambda group: order(unit, group))[: plan.max_groups]:
            total = totals.setdefault(group, [*empty, 0])
            for place, component in enumerate(plan.components):
                start = offset(bins.index(component.column), unit, group) if component.kind == "bins" else 0
                part = contribution(component, own[group], start)
                old = total[place]
                total[place] = [a + b for a, b in zip(old, part, strict=True)] if isinstance(part, list) else old + part
            total[-1] += 1
    return totals
