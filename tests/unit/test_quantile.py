"""Quantiles: scores, their sensitivity, honest intervals, and the measure in a query."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.exponential import quantile_sensitivity
from spark_rdp.mechanisms.quantile import QuantileSelector
from spark_rdp.outputs import public_values
from spark_rdp.planning.plan import Plan
from spark_rdp.planning.selection import build_quantile, plan_quantile
from spark_rdp.queries import Quantile, ReleaseQuery
from spark_rdp.releases import ReleasePlan, plan_release

GRID = {"lower": 0, "upper": 10, "step": 1}
KEY = bytes(range(32))
LEVELS = (0.5, 0.9, 0.25, 0.001)
#: Values at the candidates 0..20: spread out, one atom, two far atoms, few, one, skewed with gaps.
SHAPES = {
    "spread": np.full(21, 100),
    "atom": np.eye(21, dtype=np.int64)[7] * 3000,
    "two atoms": np.eye(21, dtype=np.int64)[2] * 900 + np.eye(21, dtype=np.int64)[19] * 901,
    "few": np.eye(21, dtype=np.int64)[3] * 4 + np.eye(21, dtype=np.int64)[4] * 5,
    "one": np.eye(21, dtype=np.int64)[20],
    "skewed": np.array([0, 2000, 0, 0, 500, 0, 200, 0, 0, 40, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 1]),
}


def selector(level: float = 0.5, epsilon: float = 1.0, candidates: int = 21) -> QuantileSelector:
    return build_quantile(plan_quantile(epsilon=epsilon, level=level, candidates=candidates))


def digests(count: int) -> np.ndarray:
    numbers = np.zeros((count, 2), dtype=np.uint64)
    numbers[:, 0] = np.arange(count)
    return numbers.view(np.uint8)


def measure(**changes: Any) -> dict[str, Any]:
    given = {"name": "m", "type": "quantile", "column": "v", **GRID, **changes}
    return {key: value for key, value in given.items() if value is not None}


def planned(*measures: dict[str, Any], **privacy: Any) -> ReleasePlan:
    return plan_release(
        ReleaseQuery(
            name="q",
            privacy={"unit": "u", "epsilon": 1.0, "max_groups": 3, **privacy},
            group_by={"k": list("abcd")},
            measures=list(measures),
        )
    )


@pytest.mark.parametrize("level", LEVELS)
def test_the_exact_quantile_alone_scores_best(level: float) -> None:
    rng = np.random.default_rng(1)
    for size in (1, 2, 7, 500):
        values = rng.integers(0, 21, size)
        scores, low, high = selector(level).scores(np.bincount(values, minlength=21)[None, :])
        below, up_to = (values[:, None] < np.arange(21)).mean(axis=0), (values[:, None] <= np.arange(21)).mean(axis=0)
        exact = (below <= level + 1e-12) & (level <= up_to + 1e-12)
        assert np.array_equal(scores[0] == 0, exact)
        assert exact[int(np.quantile(values, level, method="inverted_cdf"))]
        assert low.max() == high.max() == 0, "the ends can always be met"


@pytest.mark.parametrize("level", LEVELS)
def test_candidates_beyond_the_quantile_are_a_shift_away(level: float) -> None:
    """What the coverage of the interval rests on, for every shape of data."""
    chosen = selector(level)
    for counts in SHAPES.values():
        scores, low, high = (row[0] for row in chosen.scores(counts[None, :]))
        exact = np.flatnonzero(scores == 0)
        assert np.all(low[exact.min() + 1 :] <= -chosen.shift)
        assert np.all(high[: exact.max()] <= -chosen.shift)


@pytest.mark.parametrize("level", LEVELS)
def test_one_unit_changes_scores_by_no_more_than_claimed(level: float) -> None:
    chosen, rng = selector(level, candidates=8), np.random.default_rng(2)
    most = quantile_sensitivity(chosen.numerator, chosen.denominator, 3)
    worst = 0
    for scale in (3, 30, 3000):
        table = rng.integers(0, scale, (300, 8))
        added = table + rng.multinomial(3, np.full(8, 1 / 8), 300)
        changes = [np.abs(a - b).max() for a, b in zip(chosen.scores(table), chosen.scores(added), strict=True)]
        assert max(changes) <= most
        worst = max(worst, *changes)
    assert worst > 0.8 * most


@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("level", [0.5, 0.9])
def test_intervals_cover_the_exact_quantile(shape: str, level: float) -> None:
    """4,000 releases cover at least as often as the 0.01 % point of 95 %. Deterministic: the key is fixed."""
    releases, chosen = 4000, selector(level, epsilon=0.5)
    counts = np.tile(SHAPES[shape], (releases, 1))
    value, low, high = chosen.release(counts, KEY, digests(releases)).T
    exact = np.flatnonzero(chosen.scores(SHAPES[shape][None, :])[0][0] == 0)
    covered = ((low <= exact.min()) & (exact.max() <= high)).sum()
    assert covered >= stats.binom.ppf(1e-4, releases, 0.95)
    assert np.all((low <= value) & (value <= high))


def test_values_are_as_close_as_planned_and_ends_narrow_with_more_data() -> None:
    """1,000 medians of 21,000 values: at least 92 % within the planned 95 % bound of the rank error (seeded)."""
    plan = plan_quantile(epsilon=0.5, level=0.5, candidates=21)
    chosen, counts = build_quantile(plan), np.full((1000, 21), 1000)
    value, low, high = chosen.release(counts, KEY, digests(1000)).T
    lost = -chosen.scores(counts[:1])[0][0][value] / chosen.denominator
    assert (lost <= plan.metric_value).mean() >= 0.92
    assert (high - low).mean() < 3
    _, low, high = chosen.release(counts // 100, KEY, digests(1000)).T
    assert (high - low).mean() > 6
    _, low, high = chosen.release(counts * 0, KEY, digests(1000)).T
    assert (low == 0).mean() > 0.95, "nothing is known about an empty group"
    assert (high == 20).mean() > 0.95


def test_probabilities_of_neighbours_stay_within_the_loss() -> None:
    """200,000 releases of two neighbours; the ratio exceeds e^loss by five deviations in no place (rate < 1e-6)."""
    releases, chosen = 200_000, selector(0.5, epsilon=2.0, candidates=2)
    chances = []
    for counts in ([0, 1], [0, 0]):
        found = chosen.release(np.tile(counts, (releases, 1)), KEY, digests(releases))
        chances.append(np.bincount(found @ [4, 2, 1], minlength=8))
    first, second = chances
    for one, other in ((first, second), (second, first)):
        allowed = math.exp(chosen.loss) * other
        assert np.all(one <= allowed + 5 * np.sqrt(one + math.exp(chosen.loss) * allowed + 25))


def test_streams_depend_on_group_counts_and_target() -> None:
    chosen, counts = selector(epsilon=0.01), np.full((500, 21), 5)
    found = chosen.release(counts, KEY, digests(500))
    assert np.array_equal(found, chosen.release(counts, KEY, digests(500)))
    assert np.array_equal(found[:100], chosen.release(counts[:100], KEY, digests(100)))
    other = counts.copy()
    other[:, 20] += 1
    assert (found[:, 0] != chosen.release(other, KEY, digests(500))[:, 0]).mean() > 0.5
    assert len(np.unique(found[:, 0])) > 10
    assert chosen.release(counts[:0], KEY, digests(0)).shape == (0, 3)


def test_a_plan_spends_its_budget_on_three_selections() -> None:
    plan = plan_quantile(epsilon=0.9, level=0.25, candidates=101, max_groups=4, max_per_group=3, replace=True)
    chosen = build_quantile(plan)
    assert (plan.model, plan.coordinates, plan.integer_sensitivity) == ("selection", 8, 9)
    assert 0.899999 < plan.verified_epsilon <= 0.9
    assert chosen.value.loss == 2 * chosen.ends.loss == pytest.approx(0.9 / 16)
    assert Plan.from_json(plan.to_json()) == plan
    assert chosen.parameters() == json.loads(json.dumps(plan.parameters))
    assert plan_quantile(epsilon=1, level=0.5, candidates=9, mechanism="exponential").mechanism == "exponential"
    with pytest.raises(InvalidInput, match="epsilon"):
        plan_quantile(epsilon=1e-6, level=0.5, candidates=9)
    with pytest.raises(InvalidInput, match="epsilon must be larger"):
        plan_quantile(epsilon=1e-5, level=0.999, candidates=9, max_per_group=2**31 - 1)


def test_the_measure_in_a_query() -> None:
    plan = planned(measure(level=0.9, max_per_group=2), {"name": "n", "type": "count_units"}, neighbours="replace-one")
    part = plan.components[0]
    assert (part.role, part.kind, part.width, part.cap) == ("quantile", "bins", 11, 2)
    assert part.candidates == tuple(map(float, range(11)))
    assert part.edges == (0, *(place + 0.5 for place in range(10)), 10)
    assert (part.plan.epsilon, part.plan.coordinates, part.plan.integer_sensitivity) == (0.5, 6, 18)
    assert ReleasePlan.from_json(plan.to_json()) == plan
    published = public_values("m", plan.components, {"c0": np.array([[3, 0, 10], [5, 5, 5]])})
    assert [each.tolist() for each in published] == [[3.0, 5.0], [0.0, 5.0], [10.0, 5.0]]
    assert all(each.dtype == np.float64 for each in published)
    listed = Quantile.of({"name": "m", "column": "v", "candidates": [1, 2, 4]})
    assert listed.edges == (1, 1.5, 3, 4)
    tenths = Quantile.of({"name": "m", "column": "v", "lower": 0, "upper": 1, "step": 0.1})
    assert (len(tenths.values), tenths.values[-1]) == (11, 1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"level": 0}, r"measures\[0\]\.level must be a number between"),
        ({"level": 0.12345678}, r"measures\[0\]\.level must be a fraction with a denominator up to 1000"),
        ({"step": None}, r"measures\[0\]\.step must be given, or candidates instead"),
        ({"candidates": [1, 2]}, r"measures\[0\]\.lower must be left out beside candidates"),
        ({"step": 3}, r"measures\[0\]\.step must be positive, with a whole number of steps"),
        ({"step": -1}, r"measures\[0\]\.step must be positive"),
        ({"step": 1e-9}, r"measures\[0\]\.step must be positive"),
        ({"lower": 10}, r"measures\[0\]\.lower must be below upper"),
        ({"mechanism": "laplace"}, r"measures\[0\]\.mechanism must be one of auto, permute-and-flip, exponential"),
        ({"metric": "l2"}, r"measures\[0\]\.metric"),
        ({"granularity": 1}, r"measures\[0\]\.granularity"),
        (
            {**dict.fromkeys(GRID), "candidates": [1.0, math.nextafter(1.0, 2)]},
            r"measures\[0\]\.candidates must be such",
        ),
        ({**dict.fromkeys(GRID), "candidates": [1.0]}, r"measures\[0\]\.candidates must be a list of 2"),
    ],
)
def test_impossible_measures_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as refused:
        planned(measure(**changes))
    assert "\n" not in str(refused.value)
