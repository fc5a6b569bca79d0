"""The local planner, the limit of the linear programme, and how close the fitted mechanism comes to it."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from spark_rdp.collection import plan_collect
from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.fitted import Fitted
from spark_rdp.mechanisms.local_build import build_local
from spark_rdp.planning.fitting import Goal, _Objective, fit_shape
from spark_rdp.planning.limits import programme
from spark_rdp.planning.local import CANDIDATES, limit, plan_local
from spark_rdp.planning.local_metrics import Prior
from spark_rdp.planning.plan import Plan
from spark_rdp.queries import CollectQuery

#: Least average and worst-case variance found by the programme with 41 inputs (the limit itself, within 0.1 %).
LIMITS = {
    0.5: (4.0002, 4.0003),
    1.0: (0.97136, 0.99755),
    2.0: (0.19408, 0.21632),
    3.0: (0.064981, 0.075979),
    5.0: (0.011640, 0.014313),
}


@pytest.mark.parametrize(("epsilon", "average", "worst"), [(1.0, 0.976, 0.9976), (3.0, 0.0664, 0.0759)])
def test_programme_gives_the_limits_of_the_design(epsilon: float, average: float, worst: float) -> None:
    inputs = np.linspace(-0.5, 0.5, 21)
    for weights, expected in ((np.full(21, 1 / 21), average), (None, worst)):
        found = programme(epsilon, inputs, weights)
        assert found.lower <= found.value * (1 + 1e-9)
        assert found.lower == pytest.approx(found.value, rel=1.1e-3)
        assert found.value == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 4.0, 6.0])
def test_the_limit_is_certified_and_below_every_mechanism(epsilon: float) -> None:
    bound = limit(epsilon, 0, 1)
    values = [value for value in plan_local(epsilon, 0, 1).alternatives.values() if value is not None]
    assert 0.975 * min(values) <= bound <= min(values)
    with pytest.raises(InvalidInput, match="limit"):
        limit(7, 0, 1)


@pytest.mark.parametrize("epsilon", LIMITS)
@pytest.mark.parametrize("kind", [0, 1])
def test_fitted_is_within_one_per_cent_of_the_limit(epsilon: float, kind: int) -> None:
    """The target was 3 %."""
    metric = ("average-variance", "worst-variance")[kind]
    plan = plan_local(epsilon, -0.5, 0.5, metric, mechanism="fitted")
    mechanism = build_local(plan.mechanism, plan.parameters)
    x = np.linspace(-0.5, 0.5, 10_001)
    variance = mechanism.variance(x)
    reached = variance.max() if kind else variance.mean()
    assert LIMITS[epsilon][kind] * 0.999 <= reached <= LIMITS[epsilon][kind] * 1.01
    assert plan.metric_value == pytest.approx(reached, rel=2e-3)
    assert plan.verified_epsilon <= epsilon
    assert np.abs(mechanism.mean_output(x) - x).max() < 1e-10
    assert len(plan.to_json()) < 8192
    assert mechanism.support == (mechanism.parameters()["levels"][0], mechanism.parameters()["levels"][-1])


def test_gradient_of_the_fit() -> None:
    rng = np.random.default_rng(3)
    points = np.linspace(-0.45, 0.45, 40)
    skewed = Goal(tuple(points), tuple(np.linspace(2, 0.1, 40) / np.linspace(2, 0.1, 40).sum()))
    even = Goal(tuple(points), (1 / 40,) * 40)
    for goal, size in ((Goal(worst=True), 16), (even, 16), (skewed, 31)):
        objective = _Objective(1.0, 32, 12, goal)
        objective.sharpness = 5.0
        start = rng.random(size) + 0.1
        steps = 1e-6 * np.eye(size)
        slopes = [(objective(start + step)[0] - objective(start - step)[0]) / 2e-6 for step in steps]
        assert objective(start)[1] == pytest.approx(np.array(slopes), abs=1e-7)


def test_fits_are_found_again() -> None:
    goal = Goal(worst=True)
    assert fit_shape(1.0, goal) is fit_shape(1.0, goal)


def test_any_shape_and_any_range_is_unbiased_and_private() -> None:
    """Privacy and unbiasedness do not depend on the fit: outputs at random, and lattices too coarse for the range."""
    rng = np.random.default_rng(5)
    for epsilon in (0.05, 1.0, 7.0):
        for lower, upper in ((0.0, 1.0), (1e15, 1e15 + 4), (-7.3, 1e6)):
            shape = np.sort(rng.normal(size=50)) * 4 / min(1, epsilon)
            mechanism = Fitted.of_shape(epsilon, lower, upper, 13, shape - shape.mean())
            x = np.linspace(lower, upper, 301)
            assert mechanism.loss() <= epsilon
            assert np.abs(mechanism.mean_output(x) - x).max() <= 1e-8 * (upper - lower) / min(1, epsilon)


def test_auto_takes_the_best_and_lists_the_rivals() -> None:
    plan = plan_local(1, 0, 100)
    assert plan.model == "local"
    assert plan.mechanism == "fitted"
    assert set(CANDIDATES) <= set(plan.alternatives)
    assert {"laplace", "staircase"} <= set(plan.alternatives)
    values = {name: value for name, value in plan.alternatives.items() if value is not None}
    assert plan.metric_value == values["fitted"] == min(values.values())
    assert values["laplace"] == pytest.approx(20_000, rel=1e-3)
    assert values["podium"] == pytest.approx(10_378, rel=1e-3)
    assert values["duchi"] == pytest.approx(1e4 * ((math.e + 1) ** 2 / (math.e - 1) ** 2 / 4 - 1 / 12), rel=1e-3)
    assert Plan.from_json(plan.to_json()) == plan
    assert build_local(plan.mechanism, json.loads(plan.to_json())["parameters"]).loss() == plan.verified_epsilon


def test_auto_prefers_the_simpler_on_a_tie() -> None:
    tied = plan_local(0.01, 0, 1)
    assert tied.mechanism == "duchi"
    assert tied.why.startswith("duchi ties with ")
    assert plan_local(20, 0, 1).mechanism == "podium"
    assert plan_local(1, 0, 1).why.startswith("fitted is the best for this metric: average-variance ")


def test_every_second_fold_can_be_asked_for() -> None:
    """The names the command line promises; none of the others is built when one is asked for."""
    for name in ("r2dp", "r2dp-ensemble", "r2dp-gamma", "r2dp-uniform", "r2dp-truncnorm", "r2dp-ncx2"):
        plan = plan_local(5, 0, 10, mechanism=name)
        noise = build_local(plan.mechanism, plan.parameters)
        assert plan.mechanism == name
        assert 0.99 * 5 < plan.verified_epsilon == noise.loss() <= 5
        assert plan.metric_value == pytest.approx(float(noise.variance(np.linspace(0, 10, 2001)).mean()), rel=1e-4)
        assert [other for other in plan.alternatives if other.startswith("r2dp-")] == [name] * (name != "r2dp")
        assert (plan.alternatives["r2dp"] or 0) <= plan.metric_value * 1.0001
        assert Plan.from_json(plan.to_json()) == plan
    column = {"column": "battery", "lower": 0, "upper": 10, "epsilon": 5, "mechanism": "r2dp-gamma"}
    query = CollectQuery(name="telemetry", row_key=["device"], columns=[column])
    assert plan_collect(query).columns["battery"].plan.mechanism == "r2dp-gamma"
    with pytest.raises(InvalidInput, match="finite"):
        plan_local(5, 0, 10, mechanism="r2dp-rayleigh")
    assert plan_local(5, 0, 10, {"usefulness": 1}, mechanism="r2dp-rayleigh").metric_value > 0.1
    with pytest.raises(InvalidInput, match=r"one of auto, .*r2dp-ensemble"):
        plan_local(5, 0, 10, mechanism="gaussian")


def test_usefulness() -> None:
    plan = plan_local(1, 0, 1, {"usefulness": 0.1})
    assert plan.mechanism == "staircase"
    assert plan.metric_value == pytest.approx(0.1466, abs=1e-4)
    assert plan.alternatives["laplace"] == pytest.approx(0.0952, abs=1e-4)
    values = [plan.alternatives[name] for name in ("podium-center", "podium-approximate", "podium-worst")]
    assert plan.alternatives["podium"] >= max(value for value in values if value is not None)


def test_a_prior_moves_the_fit() -> None:
    prior = {"edges": [0, 10, 50, 100], "weights": [9, 1, 1]}
    plan = plan_local(3, 0, 100, "prior-variance", prior=prior)
    even = plan_local(3, 0, 100, mechanism="fitted")
    x, weights = Prior.from_spec(prior).points()
    assert plan.mechanism == "fitted"
    assert plan.metric == {"prior-variance": prior}
    assert plan.metric_value < 0.98 * weights @ build_local("fitted", even.parameters).variance(x)
    assert plan_local(3, 0, 100, plan.metric, mechanism="podium").alternatives["podium"] == plan.alternatives["podium"]


def test_center_variance_of_the_podium_is_the_table() -> None:
    assert plan_local(1, 0, 1, "center-variance", mechanism="podium").metric_value == pytest.approx(0.917525, rel=1e-5)


def test_limit_on_demand() -> None:
    plan = plan_local(1, 0, 10, mechanism="podium", limit=True)
    assert plan.certificate["bound"] == pytest.approx(97.1, rel=2e-3)
    assert plan.certificate["bound"] == limit(1, 0, 10)
    assert plan.certificate["relative_gap"] == pytest.approx(0.068, abs=0.003)
    assert plan_local(1, 0, 10, mechanism="podium").certificate["bound"] is None


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 0},
        {"epsilon": math.nan},
        {"epsilon": "1"},
        {"epsilon": True},
        {"lower": 1.0},
        {"lower": math.nan},
        {"upper": math.inf},
        {"upper": 5e-324},
        {"metric": "l2"},
        {"metric": {"usefulness": 0}},
        {"metric": {"usefulness": math.nan}},
        {"metric": "usefulness"},
        {"metric": "prior-variance"},
        {"metric": "prior-variance", "prior": {"edges": [0, 2], "weights": [1]}},
        {"metric": "prior-variance", "prior": {"edges": [0, 1], "weights": [0]}},
        {"metric": "prior-variance", "prior": {"edges": [1, 0], "weights": [1]}},
        {"metric": "prior-variance", "prior": {"edges": [0, 1], "weights": [math.nan]}},
        {"metric": "prior-variance", "prior": [1, 2]},
        {"mechanism": "gauss"},
        {"mechanism": "fitted", "epsilon": 50},
        {"mechanism": "fitted", "metric": {"usefulness": 0.1}},
    ],
)
def test_refusals(change: dict[str, Any]) -> None:
    question: dict[str, Any] = {"epsilon": 1, "lower": 0, "upper": 1, "mechanism": "podium", **change}
    with pytest.raises(InvalidInput):
        plan_local(**question)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 300, 1e4])
@pytest.mark.parametrize("bounds", [(0, 1), (1e15, 1e15 + 1), (-1e99, 1e99), (0, 1e-90)])
def test_planner_at_extremes(epsilon: float, bounds: tuple[float, float]) -> None:
    plan = plan_local(epsilon, *bounds)
    assert 0 < plan.verified_epsilon <= epsilon
    assert plan.metric_value >= 0
    assert math.isfinite(plan.metric_value)
