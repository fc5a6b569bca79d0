"""The certified optimum: the tables of mathematics 1.1, an independent linear programme, gaps and edge cases."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import linprog

from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.expected_loss import laplace_objective, lattice_objective, tabulated
from spark_rdp.mechanisms.second_fold import Degenerate, TwoPoint
from spark_rdp.metrics import L1, L2, CustomLoss, Lp, Mallows, Metric, Usefulness
from spark_rdp.planning.certified import LARGEST_EPSILON, Certificate, certify, law_loss, shared_scale_loss

GAMMAS = (0.05, 0.1, 0.2, 0.4, 0.6)
USEFULNESS = {
    1: (0.048771, 0.095163, 0.181269, 0.329680, 0.451188),
    2: (0.101473, 0.184099, 0.329680, 0.550671, 0.698806),
    3: (0.193522, 0.310562, 0.473781, 0.698806, 0.834701),
    5: (0.519757, 0.660051, 0.787199, 0.893514, 0.950232),
    8: (0.918452, 0.954360, 0.976474, 0.989778, 0.995037),
}
METRICS: list[Metric] = [
    L1(),
    L2(),
    Lp(3.5),
    Lp(16),
    Mallows(2),
    Usefulness(0.01),
    Usefulness(0.3),
    Usefulness(40),
    CustomLoss(lambda x: np.minimum(np.abs(x), 3.0)),
    CustomLoss(lambda x: (np.abs(x) > 0.25) * 1.0 + (np.abs(x) > 2) * 5.0),
    CustomLoss(lambda x: np.where(x > 0, x, -3 * x)),
]


def continuous(metric: L1 | L2 | Lp | Usefulness, epsilon: float, shift: float = 1.0) -> Certificate:
    return certify(laplace_objective(metric), epsilon, shift, lattice=False)


@pytest.mark.parametrize("epsilon", USEFULNESS)
def test_certified_usefulness_of_mathematics(epsilon: int) -> None:
    found = [1 - continuous(Usefulness(gamma), epsilon).primal for gamma in GAMMAS]
    assert found == pytest.approx(USEFULNESS[epsilon], abs=6e-7)


@pytest.mark.parametrize(
    ("metric", "epsilon", "ratio"),
    [
        (L1(), 0.01, 1),
        (L1(), 1, 1),
        (L1(), 3.5, 1),
        (L1(), 4, 0.997362),
        (L1(), 5, 0.889641),
        (L1(), 7, 0.529260),
        (L1(), 10, 0.179832),
        (L2(), 1, 1),
        (L2(), 4.5, 1),
        (L2(), 5, 0.998822),
        (L2(), 6, 0.873678),
        (L2(), 8, 0.459846),
    ],
    ids=str,
)
def test_certified_errors_relative_to_laplace(metric: L1 | L2, epsilon: float, ratio: float) -> None:
    certificate = continuous(metric, epsilon)
    assert certificate.primal / certificate.laplace == pytest.approx(ratio, abs=1e-6)
    if ratio == 1:
        assert isinstance(certificate.law, Degenerate)
        assert "no second fold beats Laplace" in certificate.reason


def programme(objective: Callable[[np.ndarray], np.ndarray], epsilon: float, shift: float, *, lattice: bool) -> float:
    """The same problem as a linear programme over weights on a grid of u, solved by HiGHS."""
    centre = epsilon / shift
    u = centre * np.geomspace(0.03, 300, 3001)
    height = np.tanh(u / 2) if lattice else u
    constraint = height * (1 - np.exp(epsilon - u * shift))
    constraint /= np.abs(constraint[u < centre]).max()
    phi = objective(u)
    scale = float(phi[np.abs(u - centre).argmin()])
    found = linprog(
        phi / scale, A_ub=constraint[None], b_ub=[0.0], A_eq=np.ones((1, len(u))), b_eq=[1.0], method="highs"
    )
    assert found.status == 0
    return float(found.fun) * scale


@pytest.mark.parametrize("lattice", [False, True])
@pytest.mark.parametrize("epsilon", [0.3, 2.0, 7.0])
@pytest.mark.parametrize("metric", [Usefulness(0.1), L1(), Lp(1.5)], ids=str)
def test_an_independent_programme_agrees(metric: L1 | Lp | Usefulness, epsilon: float, lattice: bool) -> None:
    """HiGHS on a grid agrees to 1e-4 and is never below the certified bound."""
    objective, shift = (lattice_objective(metric, 1 / 64), 64.0) if lattice else (laplace_objective(metric), 1.0)
    certificate = certify(objective, epsilon, shift, lattice=lattice)
    value = programme(objective, epsilon, shift, lattice=lattice)
    assert value == pytest.approx(certificate.primal, rel=1e-4)
    assert value >= certificate.dual * (1 - 1e-7)


@pytest.mark.parametrize("steps", [1, 6, 2**20 + 3])
@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: str(metric.spec()))
def test_gaps_are_small_and_budgets_are_kept(metric: Metric, steps: int) -> None:
    """Relative gap <= 1e-8 for epsilon in [1e-3, 50]; the loss never exceeds epsilon and never wastes it."""
    objective = lattice_objective(metric, 1 / steps)
    for epsilon in np.geomspace(1e-3, 50, 9):
        certificate = certify(objective, epsilon, steps, lattice=True)
        assert 0 <= certificate.relative_gap <= 1e-8
        assert certificate.dual <= certificate.primal <= certificate.laplace * (1 + 1e-12)
        rates, weights = certificate.law.atoms(2)
        assert certificate.loss == law_loss(rates, weights, steps, lattice=True)
        assert epsilon * (1 - 1e-9) <= certificate.loss <= epsilon
        assert certificate.primal == pytest.approx(float(weights @ objective(rates)), rel=1e-12)


@pytest.mark.parametrize("lattice", [False, True])
def test_no_other_law_does_better(lattice: bool) -> None:
    """The multiplier proves the bound: phi + lambda g is nowhere below it, on a grid of its own."""
    metric, shift = Usefulness(0.15), 256.0 if lattice else 1.0
    objective = lattice_objective(metric, 1 / 256) if lattice else laplace_objective(metric)
    for epsilon in (0.5, 2.0, 3.0, 6.0, 12.0):
        certificate = certify(objective, epsilon, shift, lattice=lattice)
        u = np.geomspace(1e-4, 1e4, 200_001) * epsilon / shift
        height = np.tanh(u / 2) if lattice else u
        value = objective(u) + certificate.multiplier * height * (1 - np.exp(epsilon - u * shift))
        assert value.min() >= certificate.dual * (1 - 1e-9)


def test_optimum_on_integers_with_sensitivity_one_is_the_geometric() -> None:
    """Ghosh, Roughgarden, Sundararajan: no noise at all beats it, so no second fold may."""
    for metric in (L1(), L2(), Usefulness(2)):
        for epsilon in (0.1, 1.0, 4.0, 10.0, 30.0):
            assert isinstance(certify(lattice_objective(metric, 1.0), epsilon, 1, lattice=True).law, Degenerate)


def test_a_vector_is_not_calibrated_by_its_l1_norm() -> None:
    """Mathematics, section 1.2: h(2) = 5, but the shift (1, 1) of an added edge costs 2 h(1) = 8.836."""
    law = continuous(Usefulness(0.2), 5.0, 2.0).law
    assert isinstance(law, TwoPoint)
    assert law.loss(2.0) == pytest.approx(5.0, abs=1e-9)
    assert 2 * law.loss(1.0) == pytest.approx(8.836, abs=1e-3)


@pytest.mark.parametrize("lattice", [False, True])
def test_a_vector_that_shares_one_scale_is_calibrated_by_its_l1_norm(lattice: bool) -> None:
    """Mathematics, section 1.2: the joint density E[(w(u)/2)^k e^(-u norm)] against the formula, and k = 1."""
    rates, weights = np.array([0.4, 2.5]), np.array([0.3, 0.7])
    assert shared_scale_loss(rates, weights, 1, 3.0, lattice=lattice) == law_loss(rates, weights, 3.0, lattice=lattice)
    height = np.tanh(rates / 2) if lattice else rates
    for length in (2, 5, 40):
        joint = [float(weights @ (height**length * np.exp(-rates * norm))) for norm in (0.0, 1.5)]
        loss = shared_scale_loss(rates, weights, length, 1.5, lattice=lattice)
        assert loss == pytest.approx(math.log(joint[0] / joint[1]), rel=1e-12)
        assert loss >= shared_scale_loss(rates, weights, length - 1, 1.5, lattice=lattice)
    assert shared_scale_loss(rates, weights, 1000, 1.5) == pytest.approx(2.5 * 1.5, rel=1e-9)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: str(metric.spec()))
def test_expected_losses_agree_with_the_metrics(metric: Metric) -> None:
    rates = np.array([1e-6, 1e-4, 3e-3, 0.2, 1.0, 7.0, 40.0])
    objective = lattice_objective(metric, 2.0**-6)
    reference = [metric.expect_geometric(float(u), 2.0**-6) for u in rates]
    assert objective(rates) == pytest.approx(reference, rel=1e-9, abs=1e-300)
    assert objective(rates.reshape(7, 1)).shape == (7, 1)
    fast = tabulated(objective, 1e-5, 5.0)
    assert fast(rates[1:5]) == pytest.approx(reference[1:5], rel=1e-5)


def test_a_loss_that_wants_more_noise_gets_it() -> None:
    """A loss of being right: the best law within the budget is wide, and the budget is not reached."""
    certificate = certify(lattice_objective(CustomLoss(lambda x: (np.abs(x) < 1) * 1.0), 1 / 64), 1.0, 64, lattice=True)
    assert certificate.loss < 1.0
    assert certificate.primal < certificate.laplace


def test_epsilon_beyond_the_range_is_refused() -> None:
    for epsilon in (0.0, -1.0, math.nan, LARGEST_EPSILON * 1.01, 1e4):
        with pytest.raises(InvalidInput, match="epsilon"):
            certify(laplace_objective(L1()), epsilon, 1.0, lattice=False)
    assert certify(lattice_objective(L1(), 1.0), LARGEST_EPSILON, 2**20, lattice=True).relative_gap < 1e-8


def test_the_optimum_takes_milliseconds() -> None:
    """At most 50 ms a query (median over metrics and budgets; a closed form takes about half of one)."""
    spent = []
    for metric in (L1(), L2(), Usefulness(0.1), Lp(1.5), Mallows(1)):
        for epsilon in (0.1, 1.0, 4.0, 9.0):
            start = time.perf_counter()
            certify(lattice_objective(metric, 2.0**-20), epsilon, 2**20, lattice=True)
            spent.append(time.perf_counter() - start)
    assert statistics.median(spent) < 0.05
