"""Second-fold laws: moment generating functions against quadrature and closed forms, errata E1 and E5, extremes."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.second_fold import (
    Degenerate,
    Gamma,
    LinearCombination,
    NoncentralChiSquared,
    Rayleigh,
    SecondFold,
    TruncatedGaussian,
    TwoPoint,
    Uniform,
    law_from_spec,
)

CONTINUOUS: list[tuple[SecondFold, Any]] = [
    (Gamma(3, 0.3), stats.gamma(3, scale=0.3)),
    (Gamma(0.7, 2.0), stats.gamma(0.7, scale=2.0)),
    (Uniform(0.2, 3.0), stats.uniform(0.2, 2.8)),
    (Uniform(0.0, 3.0), stats.uniform(0.0, 3.0)),
    (TruncatedGaussian(0.5223, 1.5454, 0.5223, math.inf), stats.truncnorm(0, np.inf, 0.5223, 1.5454)),
    (TruncatedGaussian(1.0, 0.05, 0.2, 2.0), stats.truncnorm(-16, 20, 1.0, 0.05)),
    (TruncatedGaussian(-3.0, 1.0, 0.5, 4.0), stats.truncnorm(3.5, 7, -3.0, 1.0)),
    (TruncatedGaussian(9.0, 1.0, 0.5, 4.0), stats.truncnorm(-8.5, -5, 9.0, 1.0)),
    (Rayleigh(1.3), stats.rayleigh(scale=1.3)),
    (NoncentralChiSquared(3, 2.0, 0.4), stats.ncx2(3, 2.0, scale=0.4)),
    (NoncentralChiSquared(1.5, 20.0, 0.04), stats.ncx2(1.5, 20.0, scale=0.04)),
]
SUM = LinearCombination((1.0, 0.5, 0.3), (Gamma(2, 0.3), Uniform(0.1, 3.0), TruncatedGaussian(1.0, 0.5, 0.2, 4.0)))
LAWS: list[SecondFold] = [Degenerate(1.7), TwoPoint(0.4, 6.0, 0.2), TwoPoint(0.4, 6.0, 1e-12), SUM]
LAWS += [law for law, _ in CONTINUOUS]


def moment(law: Any, t: float, power: int) -> float:
    """E[u^power e^(tu)] by quadrature of a frozen SciPy distribution."""
    low, high = law.support()
    high = min(high, law.isf(1e-17) * 1.5 + 1)
    points = np.append(law.ppf([1e-6, 1e-3, 0.1, 0.5, 0.9, 0.999]), low + np.array([0.1, 1, 5, 20]) / (1 - t))
    inside = np.unique(points[(points > low) & (points < high)])
    result = integrate.quad(
        lambda u: u**power * np.exp(t * u) * law.pdf(u), low, high, points=inside, epsabs=0, epsrel=1e-12, limit=2000
    )
    return float(result[0])


@pytest.mark.parametrize("t", [0.0, -0.3, -80.0])
@pytest.mark.parametrize(("law", "reference"), CONTINUOUS, ids=lambda x: x.name if isinstance(x, SecondFold) else "")
def test_moment_generating_functions_agree_with_quadrature(law: SecondFold, reference: Any, t: float) -> None:
    assert float(law.log_mgf(t)) == pytest.approx(math.log(moment(reference, t, 0)), abs=1e-11)
    assert float(law.log_mgf_derivative(t)) == pytest.approx(math.log(moment(reference, t, 1)), abs=1e-11)
    assert law.mean == pytest.approx(reference.mean(), rel=1e-11)


@pytest.mark.parametrize(("law", "reference"), CONTINUOUS, ids=lambda x: x.name if isinstance(x, SecondFold) else "")
def test_negative_moments(law: SecondFold, reference: Any) -> None:
    """Infinite exactly where the density near 0 makes them so, else the integral."""
    for p in (0.5, 1.0, 2.0, 3.0):
        if p >= law.order:
            assert law.negative_moment(p) == math.inf
        elif law.order > 2 * p:
            atoms = law.atoms(1024)
            assert law.negative_moment(p) == pytest.approx(float(atoms.weights @ atoms.rates**-p), rel=1e-6)
    atoms = SUM.atoms(1024)
    assert SUM.negative_moment(1.0) == pytest.approx(float(atoms.weights @ (1 / atoms.rates)), rel=1e-6)
    assert Gamma(1, 1.0).negative_moment(1) == Gamma(2, 1.0).negative_moment(2) == math.inf
    assert Gamma(3, 0.3).negative_moment(1) == pytest.approx(1 / 0.6)


@pytest.mark.parametrize("shift", [0.01, 0.6, 3.0, 50.0])
def test_closed_forms_of_the_paper(shift: float) -> None:
    """[R2DP] Theorems B.1 (gamma), B.3 (uniform) and the generating function behind B.5 (truncated Gaussian)."""
    assert Gamma(3, 0.3).loss(shift) == pytest.approx(4 * math.log1p(0.3 * shift), rel=1e-12)
    low, high = 0.5 * shift, 3 * shift
    tail = (1 + low) * math.exp(-low) - (1 + high) * math.exp(-high)
    assert Uniform(0.5, 3.0).loss(shift) == pytest.approx(math.log((high**2 - low**2) / (2 * tail)), rel=1e-9)
    mu, sigma, a, b, t = 1.0, 0.5, 0.2, 4.0, -min(shift, 3.0)
    alpha, beta = (a - mu) / sigma, (b - mu) / sigma
    top = special.ndtr(beta - sigma * t) - special.ndtr(alpha - sigma * t)
    closed = mu * t + (sigma * t) ** 2 / 2 + math.log(top / (special.ndtr(beta) - special.ndtr(alpha)))
    assert float(TruncatedGaussian(mu, sigma, a, b).log_mgf(t)) == pytest.approx(closed, rel=1e-9)


def test_erratum_e1_the_two_point_claim_breaks_privacy() -> None:
    """Theorem B.2 of the paper claims a loss that its own law exceeds: an implementation of it must be caught."""
    law = TwoPoint(0.001, 1.0, 0.5)
    claimed = math.log(0.5 * math.exp(0.001) + 0.5 * math.e)
    assert claimed == pytest.approx(0.62038, abs=1e-5)
    assert law.loss(1.0) == pytest.approx(0.99829, abs=1e-5)
    x = np.linspace(-3, 3, 2001)
    density = 0.5 * (0.001 * np.exp(-0.001 * np.abs(x)) + np.exp(-np.abs(x)))
    moved = 0.5 * (0.001 * np.exp(-0.001 * np.abs(x - 1)) + np.exp(-np.abs(x - 1)))
    measured = float(np.abs(np.log(density / moved)).max())
    assert claimed < measured - 0.3
    assert law.loss(1.0) == pytest.approx(measured, rel=1e-12)


def test_erratum_e5_lemma_b8() -> None:
    law = TruncatedGaussian(0.5223, 1.5454, 0.5223, math.inf)
    assert law.loss(0.6) == pytest.approx(1.1801, abs=5e-5)
    assert float(law.log_mgf(0.6)) == pytest.approx(1.2417, abs=5e-5)


@pytest.mark.parametrize(("order", "exact", "bound"), [(2, 0.489520, 0.705577), (4, 0.689358, 2.116)])
def test_renyi_divergence_of_a_gamma_fold(order: int, exact: float, bound: float) -> None:
    """Mathematics, section 1.4: the exact divergence lies below both the bound F.4 and epsilon."""
    law = Gamma(3, 0.3)
    assert law.loss(1.0) == pytest.approx(1.04946, abs=5e-6)

    def log_density(x: float) -> float:
        return float(law.log_mgf_derivative(-abs(x))) - math.log(2)

    def term(x: float) -> float:
        return math.exp(order * log_density(x) + (1 - order) * log_density(x - 1))

    pieces = ((-2000.0, -20.0), (-20.0, 0.0), (0.0, 1.0), (1.0, 20.0), (20.0, 2000.0))
    integral = sum(integrate.quad(term, low, high, epsabs=1e-12, limit=500)[0] for low, high in pieces)
    assert math.log(integral) / (order - 1) == pytest.approx(exact, abs=2e-6)
    top = order * math.exp(float(law.log_mgf(order - 1))) + (order - 1) * math.exp(float(law.log_mgf(-order)))
    assert math.log(top / (2 * order - 1)) / (order - 1) == pytest.approx(bound, abs=5e-4)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_extreme_arguments_stay_finite(law: SecondFold) -> None:
    t = -np.array([0.0, 1e-300, 1e-16, 1e-9, 1e-3, 1.0, 700.0, 1e4, 1e6])
    for values in (law.log_mgf(t), law.log_mgf_derivative(t)):
        assert np.all(np.isfinite(values))
        assert np.all(np.diff(values) <= 1e-12)
    assert float(law.log_mgf(0.0)) == pytest.approx(0.0, abs=1e-13)
    loss = law.log_mgf_derivative(0.0) - law.log_mgf_derivative(-np.linspace(0, 9, 40))
    assert np.all(np.diff(loss, 2) <= 1e-12), "the loss is concave in the shift"


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_scaling_and_text(law: SecondFold) -> None:
    assert law.scaled(3.7).loss(0.8) == pytest.approx(law.loss(0.8 * 3.7), rel=1e-11)
    assert law_from_spec(json.loads(json.dumps(law.spec()))) == law
    assert len(json.dumps(law.spec())) < 1000


@pytest.mark.parametrize("law", [*LAWS, Gamma(1.5, 1.0), Gamma(400, 0.01), NoncentralChiSquared(4, 900, 0.01)], ids=str)
def test_atoms_stand_for_the_law(law: SecondFold) -> None:
    """The mass function and the loss of the atoms are those of the continuous law, to 1e-6 or better."""
    atoms = law.atoms(512)
    assert atoms.weights.sum() == pytest.approx(1, abs=1e-12)
    assert np.all(np.diff(atoms.rates) > 0)
    assert np.all(atoms.weights > 0)
    for product in (0.0, 0.1, 1.0, 10.0, 40.0):
        t = -product / law.mean
        terms = atoms.weights * np.exp(t * atoms.rates)
        assert math.log(terms.sum()) == pytest.approx(float(law.log_mgf(t)), abs=2e-6)
        assert math.log(terms @ atoms.rates) == pytest.approx(float(law.log_mgf_derivative(t)), abs=2e-6)


parameter = st.floats(-1.6, 2.5).map(lambda x: 10.0**x)


@settings(max_examples=30, deadline=None)
@given(parameter, parameter, parameter, st.floats(-3.0, 3.0), st.floats(1e-3, 1.0))
def test_any_parameters_give_a_concave_loss(a: float, b: float, c: float, d: float, share: float) -> None:
    """Property over the parameters of every law: finite, loss increasing and concave, below the largest rate."""
    laws = [
        TwoPoint(a, a + b, share * 0.999),
        Gamma(a, b),
        Uniform(a, a + b),
        TruncatedGaussian(d * b, b, a, a + c),
        Rayleigh(a),
        NoncentralChiSquared(min(a, 250.0), b, c),
        LinearCombination((a, b), (Gamma(c, 1.0), Rayleigh(1.0))),
    ]
    shifts = np.linspace(0, 5, 21)
    for law in laws:
        loss = float(law.log_mgf_derivative(0.0)) - law.log_mgf_derivative(-shifts / law.mean)
        assert np.all(np.isfinite(loss))
        assert np.all(np.diff(loss) > 0)
        assert np.all(np.diff(loss, 2) <= 1e-10)
        assert law.atoms(64).weights.sum() == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (Degenerate, (0.0,)),
        (TwoPoint, (2.0, 1.0, 0.5)),
        (TwoPoint, (1.0, 2.0, 0.0)),
        (TwoPoint, (1.0, 2.0, 1.0)),
        (Gamma, (math.nan, 1.0)),
        (Gamma, (1.0, -1.0)),
        (Uniform, (2.0, 2.0)),
        (Uniform, (-1.0, 2.0)),
        (TruncatedGaussian, (0.0, 1.0, -0.1, 1.0)),
        (TruncatedGaussian, (0.0, 1.0, 1.0, math.nan)),
        (Rayleigh, (math.inf,)),
        (NoncentralChiSquared, (1.0, -1.0, 1.0)),
        (LinearCombination, ((), ())),
        (LinearCombination, ((-1.0,), (Rayleigh(1.0),))),
    ],
    ids=str,
)
def test_impossible_parameters_are_refused(kind: type[SecondFold], arguments: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidInput):
        kind(*arguments)
    with pytest.raises(InvalidInput):
        law_from_spec({"law": "cauchy"})
