"""The paper's families and their ensemble: on the budget, never above the certificate, and as planner candidates."""

from __future__ import annotations

import contextlib
import json
import math
import time
from typing import Any

import numpy as np
import pytest

from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.expected_loss import Objective, laplace_objective, lattice_objective
from spark_rdp.mechanisms.r2dp import R2DP, from_parameters
from spark_rdp.mechanisms.second_fold import Degenerate, LinearCombination, Rayleigh, SecondFold, TwoPoint
from spark_rdp.mechanisms.staircase import Staircase, best_step
from spark_rdp.metrics import L1, L2, CustomLoss, Lp, Mallows, Metric, Usefulness
from spark_rdp.planning import additive
from spark_rdp.planning.certified import certify, law_loss
from spark_rdp.planning.ensemble import best_ensemble, best_family, calibrate, cannot_beat_laplace
from spark_rdp.planning.families import ENSEMBLE, FAMILIES
from spark_rdp.planning.problem import Problem, pose
from spark_rdp.planning.r2dp import CERTIFIED, r2dp_candidates
from spark_rdp.privacy.verify import verify

STEPS = 2**20
CANDIDATES = r2dp_candidates()


def problem(epsilon: float, metric: Any, **profile: Any) -> Problem:
    known = {"sensitivity": 1, "coordinates": 1, "granularity": None, "delta": 0.0, **profile}
    return pose(epsilon=epsilon, metric=metric, **known)


def objective(metric: Metric) -> Objective:
    return lattice_objective(metric, 1 / STEPS)


def random_cases(count: int) -> list[tuple[float, int, Metric]]:
    """Budgets from 0.01 to 50, sensitivities from 1 to 2**22 lattice units, every metric; seeded."""
    generator = np.random.default_rng(20261130)
    cases: list[tuple[float, int, Metric]] = []
    for _ in range(count):
        steps = int(2 ** generator.uniform(0, 22))
        span = float(10 ** generator.uniform(-2, 1))
        metrics = (L1(), L2(), Lp(1 + 5 * generator.random()), Mallows(2), Usefulness(span * steps), CustomLoss(np.abs))
        cases.append((float(10 ** generator.uniform(-2, 1.7)), steps, metrics[generator.integers(len(metrics))]))
    return cases


def test_every_law_meets_the_budget_and_the_certificate_bounds_it() -> None:
    """200 random budgets, sensitivities and metrics.

    Each with a random law of each family and sums of them; every second with the best law of one family in turn, every
    twentieth with the ensemble. What is sampled is verified by the second route. The staircase with the step that is
    best for the metric is the optimum over all additive noise, and therefore bounds the certificate (Geng and
    Viswanath).
    """
    generator = np.random.default_rng(7)
    for number, (epsilon, steps, metric) in enumerate(random_cases(200)):
        phi = lattice_objective(metric, 1.0)
        certificate = certify(phi, epsilon, steps, lattice=True)
        assert certificate.loss <= epsilon
        staircase = Staircase(epsilon, steps, best_step(epsilon, steps, metric, 1.0))
        assert staircase.expectation(metric, 1.0) <= certificate.dual * (1 + 1e-9)
        laws: list[SecondFold] = []
        for family in FAMILIES.values():
            laws.append(family.law([generator.uniform(*bounds) for bounds in family.bounds]))
        laws.append(LinearCombination((1 / laws[0].mean, 1 / laws[2].mean), (laws[0], laws[2])))
        laws.append(TwoPoint(0.1, float(10 ** generator.uniform(-0.9, 3)), float(generator.uniform(0.001, 0.999))))
        for place, law in enumerate(laws):
            rates, weights = law.atoms(64)
            factor = calibrate(rates, weights, epsilon, steps, lattice=True)
            loss = law_loss(rates * factor, weights, steps, lattice=True)
            assert epsilon * (1 - 1e-9) <= loss <= epsilon
            assert float(weights @ phi(rates * factor)) >= certificate.dual * (1 - 1e-9), law
            if place == number % len(laws):
                noise = R2DP(law.scaled(calibrate(*law.atoms(32), epsilon, steps, lattice=True)), 32)
                assert verify(noise, steps) <= epsilon * (1 + 1e-12) + noise.sampling_slack
        fits = []
        with contextlib.suppress(InvalidInput):  # no law of the family has a finite error
            if number % 2 == 0:
                fits = [best_family(list(FAMILIES)[number // 2 % len(FAMILIES)], phi, epsilon, steps, lattice=True)]
        if number % 20 == 0:
            found = best_ensemble(phi, epsilon, steps, lattice=True)
            fits += [found.best, *(member for member in found.members.values() if member is not None)]
            assert all(found.best.value <= fit.value * (1 + 1e-6) for fit in fits if fit.family in ENSEMBLE)
        for fit in fits:
            assert epsilon * (1 - 1e-9) <= fit.loss <= epsilon
            assert fit.value >= certificate.dual * (1 - 1e-9), fit


@pytest.mark.parametrize(
    ("epsilon", "metric"),
    [(0.7, L1()), (3.0, Usefulness(0.1)), (5.0, Lp(1.5)), (8.0, L2()), (8.0, Usefulness(0.1)), (20.0, L1())],
    ids=str,
)
def test_ensembles_are_never_worse_than_their_families(epsilon: float, metric: Metric) -> None:
    phi = objective(metric)
    found = best_ensemble(phi, epsilon, STEPS, lattice=True)
    assert found.best.value >= found.certificate.dual * (1 - 1e-9)
    assert found.distance == pytest.approx(found.best.value / found.certificate.dual - 1)
    assert found.distance >= -1e-9
    for member in (*found.members.values(), found.best):
        assert member is not None
        assert found.best.value <= member.value * (1 + 1e-6)
        assert epsilon * (1 - 1e-9) <= member.loss <= epsilon
        rates, weights = member.law.atoms(256)
        assert law_loss(rates, weights, STEPS, lattice=True) == member.loss
        assert float(weights @ phi(rates)) == pytest.approx(member.value, rel=1e-12)


def test_searches_are_deterministic_and_beat_random_members() -> None:
    phi = objective(Usefulness(0.1))
    first, second = (best_ensemble(phi, 6.0, STEPS, lattice=True) for _ in range(2))
    assert first.best.law == second.best.law
    generator = np.random.default_rng(11)
    for name, member in first.members.items():
        assert member is not None
        for _ in range(15):
            law = FAMILIES[name].law([generator.uniform(*bounds) for bounds in FAMILIES[name].bounds])
            rates, weights = law.atoms(96)
            factor = calibrate(rates, weights, 6.0, STEPS, lattice=True)
            assert member.value <= float(weights @ phi(rates * factor)) * 1.02


def test_all_five_families_together() -> None:
    phi = objective(Usefulness(0.1))
    found = best_ensemble(phi, 6.0, STEPS, lattice=True, families=tuple(FAMILIES))
    assert set(found.members) == set(FAMILIES)
    assert all(member is None or found.best.value <= member.value * (1 + 1e-6) for member in found.members.values())
    assert found.best.value < found.best.laplace


def test_laws_with_an_infinite_error_are_never_returned() -> None:
    with pytest.raises(InvalidInput, match="finite"):
        best_family("rayleigh", objective(L2()), 5.0, STEPS, lattice=True)
    with pytest.raises(InvalidInput, match="finite"):
        CANDIDATES["r2dp-rayleigh"](problem(5.0, {"lp": 3}))
    for name in ("gamma", "uniform", "ncx2"):
        assert best_family(name, objective(Lp(3)), 9.0, STEPS, lattice=True).law.order > 3
    with pytest.raises(InvalidInput, match="family"):
        best_family("cauchy", objective(L1()), 1.0, STEPS, lattice=True)


def test_the_necessary_condition_never_errs() -> None:
    """No law it rejects beats Laplace; at a small budget it rejects the best of every family but near-Laplace ones."""
    generator = np.random.default_rng(5)
    rejected = 0
    for _ in range(150):
        epsilon = float(10 ** generator.uniform(-1, 1))
        name = list(FAMILIES)[generator.integers(len(FAMILIES))]
        law = FAMILIES[name].law([generator.uniform(*bounds) for bounds in FAMILIES[name].bounds])
        law = law.scaled(calibrate(*law.atoms(256), epsilon, 1.0, lattice=False))
        if cannot_beat_laplace(law, epsilon, 1.0) is None:
            continue
        rejected += 1
        rates, weights = law.atoms(256)
        for metric in (L1(), Usefulness(0.1), Usefulness(2.0)):
            phi = laplace_objective(metric)
            assert float(weights @ phi(rates)) >= float(phi(np.array([epsilon]))[0]) * (1 - 1e-9)
    assert rejected > 20
    assert cannot_beat_laplace(Rayleigh(1.0).scaled(1e-3), 0.1, 1.0) is not None


@pytest.mark.parametrize("name", list(CANDIDATES))
def test_candidates_meet_the_budget(name: str) -> None:
    """What the planner gets: verified by the second route, provable, rebuilt from its parameters."""
    assert CERTIFIED == "r2dp"
    for question in (problem(5.0, {"usefulness": 0.1}), problem(3.0, "l1", coordinates=4, granularity=2.0**-3)):
        candidate = CANDIDATES[name](question)
        assert 0.999 * question.epsilon < candidate.verified_epsilon <= question.epsilon
        assert question.coordinates * verify(candidate.mechanism, question.steps) <= question.epsilon
        assert candidate.value == question.value(candidate.mechanism)
        proof = candidate.certificate
        assert proof is not None
        assert proof["relative_gap"] <= 1e-8 or name != "r2dp"
        bound, value = proof["bound"], candidate.value
        assert value <= bound * (1 + 1e-9) if question.metric.higher_is_better else value >= bound * (1 - 1e-9)
        text = json.dumps({"parameters": candidate.mechanism.parameters(), "certificate": proof}, allow_nan=False)
        assert len(text) < 2000
        again = from_parameters(**json.loads(text)["parameters"])
        assert again == candidate.mechanism
        assert again.loss(question.steps) == candidate.mechanism.loss(question.steps)
        start = time.perf_counter()
        assert CANDIDATES[name](question) is candidate
        assert time.perf_counter() - start < 0.005


def test_laplace_is_named_where_it_is_optimal() -> None:
    candidate = CANDIDATES["r2dp"](problem(1.0, {"usefulness": 0.1}))
    assert candidate.certificate is not None
    assert isinstance(candidate.mechanism, R2DP)
    assert isinstance(candidate.mechanism.law, Degenerate)
    assert "no second fold beats Laplace" in candidate.certificate["reason"]
    assert candidate.value == pytest.approx(0.0951625, abs=1e-6)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 4.0, 12.0, 50.0, 100.0])
@pytest.mark.parametrize("granularity", [None, 2.0**-30, 0.125, 1.0])
def test_budgets_and_lattices_of_all_sizes(epsilon: float, granularity: float | None) -> None:
    for metric in ("l1", "l2", {"usefulness": 0.25}):
        candidate = CANDIDATES["r2dp"](problem(epsilon, metric, granularity=granularity))
        assert 0.999 * epsilon < candidate.verified_epsilon <= epsilon
        laplace = additive.CANDIDATES["laplace"](problem(epsilon, metric, granularity=granularity))
        higher = isinstance(metric, dict)
        slack = 1e-7 * abs(laplace.value)
        assert candidate.value >= laplace.value - slack if higher else candidate.value <= laplace.value + slack


def test_budgets_out_of_reach_are_refused_in_words() -> None:
    for epsilon, profile in ((500.0, {}), (1e-4, {"coordinates": 10**6})):
        with pytest.raises(InvalidInput, match="epsilon"):
            CANDIDATES["r2dp-gamma"](problem(epsilon, "l1", **profile))
    assert math.isfinite(CANDIDATES["r2dp"](problem(1e-4, "l1", coordinates=10**5)).value)
