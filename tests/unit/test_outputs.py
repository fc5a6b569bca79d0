"""Published values: on the lattice, within their bounds, with intervals that cover."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from spark_rdp.outputs import public_values
from spark_rdp.queries import ReleaseQuery
from spark_rdp.randomness import KeyedBits
from spark_rdp.releases import ReleasePlan, plan_release

RUNS = 10_000


def planned(*measures: dict[str, Any], epsilon: float = 1.0) -> ReleasePlan:
    named = [{"name": f"m{place}", **measure} for place, measure in enumerate(measures)]
    return plan_release(ReleaseQuery(name="q", privacy={"unit": "u", "epsilon": epsilon}, measures=named))


def noised(plan: ReleasePlan, exact: dict[str, int]) -> dict[str, np.ndarray]:
    """RUNS releases of the same integers, with bits that are the same at every run of the tests."""
    columns = {}
    for place, component in enumerate(plan.components):
        digests = np.zeros((RUNS, 16), dtype=np.uint8)
        digests[:, :8] = np.arange(RUNS, dtype=np.uint64).view(np.uint8).reshape(RUNS, 8)
        values = np.full(RUNS, exact[component.column], dtype=np.int64)
        bits = KeyedBits(bytes([place]) * 32, digests, values)
        columns[component.column] = component.plan.build().release(values, bits)
    return columns


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_intervals_cover(epsilon: float) -> None:
    """Coverage of 10,000 releases is at least 95 % less 3 standard errors; the bits are fixed: no false alarms."""
    plan = planned(
        {"type": "count", "max_per_group": 20},
        {"type": "sum", "column": "x", "lower": 0, "upper": 500},
        {"type": "mean", "column": "x", "lower": 0, "upper": 100, "max_per_group": 2},
        epsilon=epsilon,
    )
    step, centre_step = (math.ldexp(1.0, plan.components[place].exponent) for place in (1, 2))
    columns = noised(plan, {"c0": 0, "c1": 7_000_000, "c2": 123_456_789, "c3": 300})
    exact = {"m0": 0, "m1": 7_000_000 * step, "m2": 50 + 123_456_789 * centre_step / 300}
    for name, truth in exact.items():
        values, low, high = public_values(name, plan.components, columns)
        assert np.all((low <= values) & (values <= high))
        covered = np.mean((low <= truth) & (truth <= high))
        assert covered >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / RUNS), name
        if name != "m2":  # a mean is covered by two intervals at once, and so more often
            assert covered <= 0.96 + (0.04 if epsilon == 3 else 0), name


def test_counts_of_nothing_are_not_biased() -> None:
    """The mean of 10,000 empty groups is within 5 standard errors of 0; the bits are fixed: no false alarms."""
    plan = planned({"type": "count", "max_per_group": 3}, epsilon=0.5)
    values, low, high = public_values("m0", plan.components, noised(plan, {"c0": 0}))
    assert values.dtype == low.dtype == high.dtype == np.int64
    assert abs(values.mean()) < 5 * values.std() / math.sqrt(RUNS)
    assert values.min() < 0, "counts are not clamped at 0"


def test_sums_lie_on_the_lattice() -> None:
    plan = planned({"type": "sum", "column": "x", "lower": -3, "upper": 0.7})
    values, low, high = public_values("m0", plan.components, noised(plan, {"c0": 123}))
    for published in (values, low, high):
        assert published.dtype == np.float64
        steps = np.ldexp(published, -plan.components[0].exponent)
        np.testing.assert_array_equal(steps, np.round(steps))


def test_means_stay_within_their_bounds() -> None:
    plan = planned({"type": "mean", "column": "x", "lower": 10, "upper": 30}, epsilon=0.01)
    largest = 2**62
    sums = np.array([0, 1, -largest, largest, largest, -largest, 5, 0], dtype=np.int64)
    counts = np.array([0, -largest, 1, 1, largest, 0, largest, 1], dtype=np.int64)
    values, low, high = public_values("m0", plan.components, {"c0": sums, "c1": counts})
    for published in (values, low, high):
        assert np.all((published >= 10) & (published <= 30))
    assert np.all((low <= values) & (values <= high))
    np.testing.assert_array_equal(values[counts <= 0], 20)
    assert (low[1], high[1]) == (10, 30), "where the count says nothing, neither does the interval"


def test_means_of_large_groups_are_close() -> None:
    plan = planned({"type": "mean", "column": "x", "lower": 0, "upper": 100})
    step = math.ldexp(1.0, plan.components[0].exponent)
    columns = noised(plan, {"c0": round(-25 * 10**6 / step), "c1": 10**6})
    values, low, high = public_values("m0", plan.components, columns)
    assert np.max(np.abs(values - 25)) < 0.01
    assert np.max(high - low) < 0.01


def test_histograms_keep_their_shape() -> None:
    plan = planned({"type": "histogram", "column": "x", "bins": [0, 1, 2, 3]})
    values, low, high = public_values("m0", plan.components, {"c0": np.arange(6, dtype=np.int64).reshape(2, 3)})
    np.testing.assert_array_equal(values, [[0, 1, 2], [3, 4, 5]])
    assert low.shape == high.shape == (2, 3)
    assert np.all(high - low == (high - low)[0, 0])


def test_thirty_times_the_budget_is_a_thirtieth_of_the_interval() -> None:
    wide, narrow = (
        public_values("m0", plan.components, {"c0": np.zeros(1, dtype=np.int64)})[2][0]
        for plan in (
            planned({"type": "sum", "column": "x", "lower": 0, "upper": 1, "mechanism": "laplace"}, epsilon=e)
            for e in (0.1, 3.0)
        )
    )
    assert wide / narrow == pytest.approx(30, rel=1e-3)


def test_no_groups_is_no_special_case() -> None:
    plan = planned({"type": "mean", "column": "x", "lower": 0, "upper": 1}, {"type": "count_units"})
    empty = {component.column: np.zeros(0, dtype=np.int64) for component in plan.components}
    for name in plan.measures:
        assert [len(column) for column in public_values(name, plan.components, empty)] == [0, 0, 0]
