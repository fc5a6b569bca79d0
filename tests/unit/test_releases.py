"""From queries to plans: budgets that never exceed epsilon, and sensitivities that hold for what is computed.

The reference functions here say in plain Python what a unit contributes to a group; adversarial rows must not move
them further than a plan claims.
"""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_rdp.errors import InvalidInput
from spark_rdp.lattice import ROW_LIMIT
from spark_rdp.queries import ReleaseQuery
from spark_rdp.releases import Component, ReleasePlan, charge, plan_release, release_id, split

EXAMPLE = Path(__file__).parents[2] / "conf" / "orders.yaml"


def query(*measures: dict[str, Any], by: bool = True, **privacy: Any) -> ReleaseQuery:
    settings = {"unit": "customer", "epsilon": 1.0, **({"max_groups": 3} if by else {}), **privacy}
    named = [{"name": f"m{place}", **measure} for place, measure in enumerate(measures)]
    return ReleaseQuery(
        name="q", privacy=settings, group_by={"g": {"file": "keys.csv"}} if by else None, measures=named
    )


def only(measure: dict[str, Any], **privacy: Any) -> Component:
    return plan_release(query(measure, **privacy)).components[0]


# --- The budget ---


def test_the_documented_example_is_planned() -> None:
    plan = plan_release(ReleaseQuery.from_yaml(EXAMPLE))
    assert [(c.column, c.measure, c.role, c.kind) for c in plan.components] == [
        ("c0", "orders", "count", "rows"),
        ("c1", "customers", "count", "units"),
        ("c2", "revenue", "sum", "total"),
        ("c3", "basket", "sum", "centred"),
        ("c4", "basket", "count", "rows"),
        ("c5", "spread", "bins", "bins"),
    ]
    assert [c.plan.epsilon for c in plan.components] == [0.166666, 0.166666, 0.333333, 0.083333, 0.083333, 0.166666]
    assert sum(Decimal(repr(c.plan.epsilon)) for c in plan.components) <= 1
    assert all(c.plan.verified_epsilon <= c.plan.epsilon for c in plan.components)
    assert (plan.epsilon_millionths, plan.delta, plan.max_groups) == (1_000_000, 0.0, 5)
    assert plan.measures == ("orders", "customers", "revenue", "basket", "spread")
    assert ReleasePlan.from_json(plan.to_json()) == plan


@settings(max_examples=150, deadline=None)
@given(
    epsilon=st.floats(1e-6, 1e4),
    weights=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=12),
)
def test_shares_never_exceed_the_budget(epsilon: float, weights: list[float]) -> None:
    shares = split(epsilon, weights)
    written = Decimal(repr(epsilon)) * 10**6
    assert sum(shares) <= written <= charge(epsilon) < written + 1
    for share, weight in zip(shares, weights, strict=True):
        exact = Fraction(written) * Fraction(weight) / sum(map(Fraction, weights))
        assert exact - 1 - Fraction(weight) / sum(map(Fraction, weights)) < share <= exact


def test_the_charge_is_the_number_that_was_written() -> None:
    assert [charge(x) for x in (0.1, 0.3, 1.0, 1e-6, 1.0000001)] == [100_000, 300_000, 10**6, 1, 1_000_001]
    assert sum(split(0.3, [1, 1, 1])) == 300_000


def test_too_small_a_share_is_refused() -> None:
    rows = {"type": "count", "max_per_group": 1}
    with pytest.raises(InvalidInput, match=r"privacy\.epsilon must be large enough .*; got 1e-06\."):
        plan_release(query(rows, rows, epsilon=1e-6))
    with pytest.raises(InvalidInput, match=r"privacy\.epsilon must be large enough"):
        plan_release(query(rows, {**rows, "weight": 1e-6}, epsilon=0.1))


def test_the_selection_of_keys_takes_a_share() -> None:
    rows = [{"name": f"m{i}", "type": "count_units"} for i in range(3)]
    groups = {"select": ["g"], "delta": 1e-6}
    privacy = {"unit": "customer", "epsilon": 1, "delta": 1e-5, "max_groups": 4}
    plan = plan_release(ReleaseQuery(name="q", privacy=privacy, group_by=groups, measures=rows))
    assert plan.selection is not None
    assert plan.selection.epsilon_millionths == 250_000
    assert plan.selection.table.epsilon == Fraction(1, 16)
    assert plan.delta == 1e-6
    assert [component.plan.epsilon for component in plan.components] == [0.25] * 3
    assert ReleasePlan.from_json(plan.to_json()) == plan
    replaced = {**privacy, "neighbours": "replace-one"}
    plan = plan_release(ReleaseQuery(name="q", privacy=replaced, group_by=groups, measures=rows))
    assert plan.selection is not None
    assert plan.selection.table.epsilon == Fraction(1, 32)


def test_equal_components_share_one_plan() -> None:
    plan = plan_release(query({"type": "count_units"}, {"type": "count", "max_per_group": 1}))
    assert plan.components[0].plan is plan.components[1].plan
    assert plan.components[0].column != plan.components[1].column, "but each has noise of its own"


def test_release_ids() -> None:
    asked = query({"type": "count_units"})
    assert (release_id(asked), release_id(asked, "2026-11-30")) == ("q", "q@2026-11-30")
    for run in ("", "a/b", "..", "a@b", "-x"):
        with pytest.raises(InvalidInput, match=r"^run must be"):
            release_id(asked, run)


# --- Sensitivity profiles ---


def test_profiles() -> None:
    count = only({"type": "count", "max_per_group": 7})
    assert (count.plan.coordinates, count.plan.integer_sensitivity, count.plan.granularity) == (3, 7, 1.0)
    units = only({"type": "count_units"}, neighbours="replace-one")
    assert (units.plan.coordinates, units.plan.integer_sensitivity) == (6, 1)
    bins = only({"type": "histogram", "column": "x", "bins": [0, 1, 2], "max_per_group": 7})
    assert (bins.plan.coordinates, bins.plan.integer_sensitivity, bins.width) == (21, 1, 2)
    rows = only({"type": "count"}, unit="row", max_groups=None)
    assert (rows.plan.coordinates, rows.plan.integer_sensitivity, rows.cap) == (1, 1, 1)


def total(component: Component, values: list[float]) -> int:
    """A unit's contribution to a sum: rounded and limited row by row, added exactly, clamped."""
    summed = 0
    for value in values:
        exact = Fraction(value) / Fraction(math.ldexp(1.0, component.exponent)) if math.isfinite(value) else None
        limit = ROW_LIMIT if value > 0 else -ROW_LIMIT
        summed += limit if exact is None else max(-ROW_LIMIT, min(ROW_LIMIT, round(exact)))
    return max(component.lower, min(component.upper, summed))


BOUNDS = [
    (0, 100), (-100, 0), (-3, 100), (5, 7), (-7, -5), (0, 5), (0, 0.3), (2.0**52, 2.0**52 + 1), (-1e100, 1e100),
    (0, 1e-90), (5, math.nextafter(5, 6)), (-1e-100, 3),
]  # fmt: skip


@pytest.mark.parametrize(("lower", "upper"), BOUNDS)
def test_totals_move_a_sum_no_further_than_claimed(lower: float, upper: float) -> None:
    component = only({"type": "sum", "column": "x", "lower": lower, "upper": upper})
    claim = component.plan.integer_sensitivity
    hostile = [0.0, lower, upper, -lower, upper / 3, 1e308, -1e308, 5e-324, math.inf, -math.inf, 1e9]
    rows = itertools.chain([(v,) for v in hostile], itertools.product(hostile, hostile))
    reached = {abs(total(component, list(values))) for values in rows}
    assert max(reached) == claim > 0, "the claim holds, and is no larger than need be"
    assert 2**20 <= claim <= 2**21
    step = math.ldexp(1.0, component.exponent)
    if component.lower < component.upper:
        assert lower <= Fraction(component.lower) * Fraction(step)
        assert Fraction(component.upper) * Fraction(step) <= upper
    assert component.plan.sensitivity <= max(abs(lower), abs(upper)) * (1 + 2**-20)


def centred(component: Component, values: list[float]) -> tuple[int, int]:
    """A unit's contribution to the sum and the count of a mean; above the cap it counts at its own average."""
    assert component.value_lower is not None
    assert component.value_upper is not None
    assert component.centre is not None
    summed, cap = 0, component.cap
    for value in values:
        clamped = max(component.value_lower, min(component.value_upper, value))
        steps = round(math.ldexp(clamped - component.centre, -component.exponent))
        summed += max(-component.row_limit, min(component.row_limit, steps))
    n = len(values)
    if n > cap:
        summed = math.copysign(1, summed) * ((2 * abs(summed) * cap + n) // (2 * n))
    return int(summed), min(n, cap)


@pytest.mark.parametrize("cap", [1, 3, 200])
@pytest.mark.parametrize(
    ("lower", "upper"), [(0, 100), (-3, 100), (5, 7), (0.1, 0.3), (-1e90, 1e90), (2.0**30, 2.0**30 + 7)]
)
def test_means_move_no_further_than_claimed(lower: float, upper: float, cap: int) -> None:
    component = only({"type": "mean", "column": "x", "lower": lower, "upper": upper, "max_per_group": cap})
    claim = component.plan.integer_sensitivity
    hostile = [lower, upper, upper / 2 + lower / 2, 1e308, -math.inf, 0.0, upper / 3]
    reached = set()
    for copies in (1, cap, cap + 1, 2 * cap + 1):
        for one, other in itertools.product(hostile, hostile):
            summed, rows = centred(component, [one] * (copies - copies // 3) + [other] * (copies // 3))
            assert rows <= cap
            assert abs(summed) <= rows * component.row_limit <= claim
            reached.add(abs(summed))
    assert max(reached) >= claim * (1 - 2**-18), "the claim is no larger than need be"
    assert claim == component.upper == -component.lower


def sampled(bins: list[int], cap: int, offset: int) -> list[int]:
    """A unit's contribution to a histogram: all its rows, or a systematic sample of ``cap`` of them."""
    n = sum(bins)
    if n <= cap:
        return bins
    ends = [(cap * cumulated + offset) // n for cumulated in itertools.accumulate(bins, initial=0)]
    return [high - low for low, high in itertools.pairwise(ends)]


@settings(max_examples=150, deadline=None)
@given(bins=st.lists(st.integers(0, 40), min_size=1, max_size=8), cap=st.integers(1, 30), seed=st.integers(0, 10**9))
def test_histograms_take_at_most_cap_rows(bins: list[int], cap: int, seed: int) -> None:
    n = sum(bins)
    taken = sampled(bins, cap, seed % max(n, 1))
    assert sum(taken) == min(n, cap)
    assert all(0 <= kept <= had for kept, had in zip(taken, bins, strict=True))
    if n > cap and n <= 60:  # every row is equally likely to be kept: no bin is favoured
        kept = [sum(bin_) for bin_ in zip(*(sampled(bins, cap, offset) for offset in range(n)), strict=True)]
        assert kept == [cap * had for had in bins]


def test_sums_of_very_many_units_fit_63_bits() -> None:
    for lower, upper in BOUNDS:
        component = only({"type": "sum", "column": "x", "lower": lower, "upper": upper})
        assert max(abs(component.lower), abs(component.upper)) * 2**40 < 2**62


# --- The lattice ---


def test_a_granularity_of_ones_own() -> None:
    euros = {"type": "sum", "column": "x", "lower": 0, "upper": 500, "granularity": 0.25}
    component = only(euros)
    assert (component.exponent, component.lower, component.upper, component.plan.granularity) == (-2, 0, 2000, 0.25)
    coarse = only({**euros, "granularity": 128.0})
    assert (coarse.lower, coarse.upper, coarse.plan.integer_sensitivity, coarse.plan.sensitivity) == (0, 3, 3, 384.0)


@pytest.mark.parametrize("granularity", [512.0, 2.0**-40])
def test_a_granularity_that_does_not_fit_the_bounds(granularity: float) -> None:
    with pytest.raises(InvalidInput, match=r"measures\[0\]\.granularity must be between .*; got "):
        only({"type": "sum", "column": "x", "lower": 0, "upper": 500, "granularity": granularity})


def test_impossible_plans_name_the_measure() -> None:
    histogram = {"type": "histogram", "column": "x", "bins": [0, 1], "max_per_group": 2**31 - 1}
    with pytest.raises(InvalidInput, match=r"^measures\[0\]\.max_per_group must be such .*; got 2147483647\."):
        only(histogram)
    with pytest.raises(
        InvalidInput, match=r"^measures\[0\] cannot be planned with its share of privacy\.epsilon: epsilon"
    ):
        only({"type": "count_units"}, max_groups=2**31 - 1, epsilon=0.01)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-4, 0.1, 50, 709, 710, 1e4])
def test_every_budget_is_planned_within_it(epsilon: float) -> None:
    component = only({"type": "count", "max_per_group": 3}, epsilon=epsilon)
    assert 0.999 * epsilon < component.plan.verified_epsilon <= component.plan.epsilon <= epsilon
