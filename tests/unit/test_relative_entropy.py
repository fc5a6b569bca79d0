"""Relative entropy against a histogram prior: figures, files, and what planning does with it."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from statistical import goodness

from spark_rdp.errors import InvalidInput
from spark_rdp.metrics import MOST_WEIGHTS, Metric, RelativeEntropy
from spark_rdp.planning.additive import plan
from spark_rdp.planning.certified import certify
from spark_rdp.planning.plan import Plan
from spark_rdp.reporting.story import simulated_facts

PRIOR = (120.0, 60.0, 33.0, 10.0, 0.0, 4.0, 4.0)


@pytest.mark.parametrize("order", [1, 1.5, 2, 4])
def test_the_loss_is_the_divergence_of_one_cell(order: float) -> None:
    metric = RelativeEntropy(PRIOR, order)
    for error in (-200.0, -5.0, -0.3, 0.0, 1.0, 40.0):
        p = np.array(PRIOR)
        q = np.maximum(p + error, 2.0)
        if order == 1:
            terms = np.where(p > 0, p * np.log(np.maximum(p, 1e-300) / q), 0.0) - p + q
        else:
            terms = (p**order * q ** (1 - order) - order * p + (order - 1) * q) / (order - 1)
        assert metric.loss(np.array([error]))[0] == pytest.approx(terms.sum() / p.sum(), rel=1e-12)


@pytest.mark.parametrize("order", [1.0, 1.0001, 3.0, 64.0])
def test_the_even_loss_grows_with_the_error(order: float) -> None:
    """What the search for the staircase step and its certificate rely on; and order 1 is a limit."""
    metric = RelativeEntropy(PRIOR, order)
    losses = metric.even_loss(np.linspace(0, 300, 3001))
    assert np.all(np.diff(losses) >= -1e-12 * np.abs(losses[1:]))
    near = RelativeEntropy(PRIOR, 1.0001).loss(np.array([3.0]))
    assert near == pytest.approx(RelativeEntropy(PRIOR).loss(np.array([3.0])), rel=1e-3)


def test_planned_divergence_is_the_measured_one() -> None:
    """4,000 noised histograms (seeded), within six standard errors; normalising takes away about one cell's share."""
    rng = np.random.default_rng(4)
    prior = tuple((500 * (0.2 + rng.random(40))).round().tolist())
    for order in (1.0, 2.0):
        metric = RelativeEntropy(prior, order)
        noise = plan(epsilon=0.2, sensitivity=1, granularity=1, metric=metric).build()
        draws = goodness.draw(noise, 4000 * len(prior), seed=5).reshape(4000, -1)
        losses = np.array([metric.loss(row.astype(np.float64)) @ np.ones(len(prior)) for row in draws[:1000]])
        assert losses.mean() / len(prior) == pytest.approx(noise.expectation(metric, 1.0), rel=0.1)
        measured = np.array([metric.divergence(np.array(prior) + row) for row in draws])
        planned = metric.report(noise.expectation(metric, 1.0))
        error = measured.std() / math.sqrt(len(measured))
        assert abs(measured.mean() - planned * (1 - 1 / len(prior))) < 6 * error + 0.02 * planned


@pytest.mark.parametrize("order", [1.0, 2.0])
def test_a_plan_carries_the_normalised_divergence(order: float) -> None:
    """What an analyst who divides by the total will see, from histograms noised as they will be.

    Against 4,000 other histograms; six joint standard errors (false alarm below 1e-8). The error stated is right to a
    fifth.
    """
    prior = (1200.0, 600.0, 330.0, 100.0, 40.0, 40.0)
    metric = RelativeEntropy(prior, order)
    chosen = plan(epsilon=1, sensitivity=1, granularity=1, metric=metric)
    simulated = chosen.facts["normalised_divergence"]
    draws = goodness.draw(chosen.build(), 4000 * len(prior), seed=6).reshape(4000, -1)
    measured = metric.divergence(np.array(prior) + draws)
    assert measured.shape == (4000,)
    own = measured.std() / math.sqrt(len(measured))
    assert simulated["standard_error"] == pytest.approx(measured.std() / math.sqrt(simulated["histograms"]), rel=0.2)
    assert abs(simulated["value"] - measured.mean()) < 6 * math.hypot(own, simulated["standard_error"])
    assert simulated["value"] < chosen.metric_value, "a wrong total costs nothing once it is divided by"
    again = plan(epsilon=1, sensitivity=1, granularity=1, metric=metric)
    assert again.facts == chosen.facts
    assert again.plan_id == chosen.plan_id
    assert Plan.from_json(chosen.to_json()) == chosen
    assert plan(epsilon=1, sensitivity=1, granularity=1, metric="l1").facts == {}


def test_the_normalised_divergence_is_shown() -> None:
    chosen = plan(epsilon=1, sensitivity=1, granularity=1, metric=RelativeEntropy(PRIOR))
    facts = dict(simulated_facts(chosen))
    simulated = chosen.facts["normalised_divergence"]
    assert facts == {
        "Divergence after normalising": f"{simulated['value']:.3g} ± {simulated['standard_error']:.1g} "
        f"(standard error; {simulated['histograms']:,} simulated histograms)"
    }
    assert simulated_facts(plan(epsilon=1, sensitivity=1, metric="l1")) == []


@pytest.mark.parametrize("cells", [1, 3000, 200_000])
def test_priors_of_all_sizes_are_simulated(cells: int) -> None:
    chosen = plan(epsilon=1, sensitivity=1, granularity=1, metric=RelativeEntropy((5.0,) * cells))
    simulated = chosen.facts["normalised_divergence"]
    assert simulated["histograms"] >= 4
    assert 0 <= simulated["standard_error"] <= 0.1 * simulated["value"]
    assert (simulated["value"] == 0) == (cells == 1), "one cell is all there is: normalised, it is always 1"
    assert len(pickle.dumps(chosen.facts)) < 500


def test_high_orders_do_not_overflow() -> None:
    metric = RelativeEntropy((1e6, 1.0, 0.0), 64.0)
    assert metric.divergence(np.array([-1e6, 1e5, 3.0])) == pytest.approx(math.log(2 * (1e5 + 3.5)), rel=1e-4)


def test_the_r2dp_certificate_holds_for_it() -> None:
    from spark_rdp.mechanisms.expected_loss import lattice_objective

    metric = RelativeEntropy(PRIOR, 1)
    certificate = certify(lattice_objective(metric, 1.0), 6.0, 64, lattice=True)
    assert 0 <= certificate.relative_gap <= 1e-8
    assert certificate.primal < certificate.laplace
    chosen = plan(epsilon=6, sensitivity=64, metric=metric, granularity=1, mechanism="r2dp")
    assert chosen.certificate["relative_gap"] < 1e-6
    assert (chosen.alternatives["staircase"] or 0) <= chosen.metric_value <= (chosen.alternatives["laplace"] or 0)
    assert "symmetric" in plan(epsilon=1, sensitivity=1, metric=metric, granularity=1).certificate["reason"]


def test_many_weights_are_grouped_without_changing_the_loss() -> None:
    rng = np.random.default_rng(8)
    prior = tuple(np.concatenate([[0.0, 0.0], (10 ** rng.uniform(1, 4, 3000)).round(1)]).tolist())
    metric = RelativeEntropy(prior, 2)
    assert len(metric.weights) <= MOST_WEIGHTS
    assert metric.cells.sum() == len(prior)
    p = np.array(prior)
    for error in (-4.0, 0.5, 3.0, 30.0):
        q = np.maximum(p + error, metric.floor)
        exact = float(np.where(p > 0, p**2 / q - 2 * p + q, q).sum() / p.sum())
        assert float(metric.loss(np.array([error]))[0]) == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize(
    "text", ["5\n3\n0\n", "value,weight\n1,5\n2,3\n3,0\n", "\n5\n\n3\n0", "a,5\nb,3\nc,0\n", "n\n5\n3\n0"]
)
def test_files_of_weights(tmp_path: Path, text: str) -> None:
    file = tmp_path / "prior.csv"
    file.write_text(text, encoding="utf-8")
    spec = {"relative_entropy": {"prior": str(file), "order": 2}}
    metric = Metric.from_spec(spec)
    assert isinstance(metric, RelativeEntropy)
    assert sorted(np.repeat(metric.weights, metric.cells.astype(int)).tolist()) == [0, 3, 5]
    again = Metric.from_spec(json.loads(json.dumps(metric.spec())))
    assert again == metric
    assert hash(again) == hash(metric)
    file.write_text("5\n3\n1\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match="its content has changed"):
        Metric.from_spec(metric.spec())


@pytest.mark.parametrize(
    "text", ["", "words\n", "1,2,3\n", "5\n1,2\n", "5\n-1\n", "5\nnan\n", "inf\n", "0\n0\n", "5\nx\n"]
)
def test_files_that_are_no_prior(tmp_path: Path, text: str) -> None:
    file = tmp_path / "prior.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"^prior"):
        RelativeEntropy(str(file))


BAD: list[Any] = [
    None,
    "f.csv",
    {},
    {"order": 1},
    {"prior": 3},
    {"prior": [1], "ordr": 2},
    {"prior": [1], "order": 0.5},
]
BAD += [{"prior": []}, {"prior": [0, 0]}, {"prior": [1, True]}, {"prior": "/no/such/file"}, {"prior": [1, "2"]}]


@pytest.mark.parametrize("argument", BAD, ids=str)
def test_arguments_that_are_refused(argument: Any) -> None:
    with pytest.raises(InvalidInput):
        Metric.from_spec({"relative_entropy": argument})
