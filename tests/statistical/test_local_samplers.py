"""Draws of the local mechanisms against their mass functions."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import chi2

from spark_rdp.mechanisms.additive_local import AdditiveLocal, sensitivity
from spark_rdp.mechanisms.fitted import Fitted
from spark_rdp.mechanisms.geometric import Geometric
from spark_rdp.mechanisms.hybrid import Hybrid
from spark_rdp.mechanisms.local import Local
from spark_rdp.mechanisms.podium import CENTER, Podium, best_fraction
from spark_rdp.mechanisms.two_point import TwoPoint
from spark_rdp.randomness import SystemBits

DRAWS = 1_000_000
ALARM = 1e-6


def mechanisms(epsilon: float) -> dict[str, Local]:
    fraction = best_fraction(epsilon, CENTER)
    exponent = -10
    rate = epsilon / sensitivity(0.0, 1.0, exponent)
    shape = np.sinh(np.linspace(-1.5, 1.5, 64)) / -math.expm1(-epsilon)
    return {
        "podium": Podium.fit(epsilon, 0.0, 1.0, fraction, exponent),
        "duchi": TwoPoint.fit(epsilon, 0.0, 1.0),
        "hybrid": Hybrid.fit(epsilon, 0.0, 1.0),
        "fitted": Fitted.of_shape(epsilon, 0.0, 1.0, 17, shape),
        "laplace": AdditiveLocal(0.0, 1.0, exponent, Geometric(rate)),
    }


def p_value(drawn: np.ndarray, mechanism: Local, x: float) -> float:
    """Of Pearson's chi-square over runs of outputs that the mass function expects at least 400 times each."""
    if isinstance(mechanism, Fitted):
        cells = np.unique(np.array(mechanism.levels))
    elif isinstance(mechanism, TwoPoint):
        cells = np.array(mechanism.support)
    else:
        cells = np.arange(drawn.min(), drawn.max() + 1)
    mass = mechanism.pmf(x, cells)
    groups = np.minimum((np.cumsum(mass) * 60).astype(int), 59)
    inside = np.searchsorted(cells, drawn)
    assert np.array_equal(cells[inside], drawn)  # nothing comes out that has no mass
    expected = np.bincount(groups, mass, 60) * len(drawn)
    observed = np.bincount(groups[inside], minlength=60)
    kept = expected > 400
    rest = len(drawn) - expected[kept].sum(), len(drawn) - observed[kept].sum()
    statistic = ((observed[kept] - expected[kept]) ** 2 / expected[kept]).sum()
    if rest[0] > 400:
        statistic += (rest[1] - rest[0]) ** 2 / rest[0]
    return float(chi2.sf(statistic, kept.sum()))


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
@pytest.mark.parametrize("name", ["podium", "duchi", "fitted", "laplace"])
def test_draws_follow_the_mass_function(name: str, epsilon: float) -> None:
    """False alarms: 3e-6 / 3 for each input, from fresh random words."""
    mechanism = mechanisms(epsilon)[name]
    for x in (0.0, 0.317, 1.0):
        drawn = mechanism.release(np.full(DRAWS, x), SystemBits(DRAWS))
        assert p_value(drawn, mechanism, x) > ALARM / 3


@pytest.mark.parametrize("factor", [0.97, 1.03])
@pytest.mark.parametrize("name", ["podium", "fitted", "laplace"])
def test_a_three_per_cent_wrong_scale_is_rejected(name: str, factor: float) -> None:
    """What the test above rejects: a Podium made for a budget 3 % off, a window 1 % too light, Laplace noise stretched
    by 3 %."""
    epsilon = 3.0
    mechanism = mechanisms(epsilon)[name]
    x = 0.317
    centre = math.ldexp(x, -mechanism.exponent)
    if isinstance(mechanism, Podium):
        fraction = best_fraction(epsilon * factor, CENTER)
        mutant: Local = Podium.fit(epsilon * factor, 0.0, 1.0, fraction, mechanism.exponent)
        drawn = mutant.release(np.full(DRAWS, x), SystemBits(DRAWS))
        first, last = mechanism.support
        drawn = np.clip(drawn, first, last)
    elif isinstance(mechanism, Fitted):
        mutant = dataclasses.replace(mechanism, threshold=int(mechanism.threshold * (1 - abs(factor - 1) / 3)))
        drawn = mutant.release(np.full(DRAWS, x), SystemBits(DRAWS))
    else:
        drawn = mechanism.release(np.full(DRAWS, x), SystemBits(DRAWS))
        drawn = np.rint(centre + (drawn - centre) * factor).astype(np.int64)
    assert p_value(drawn, mechanism, x) < ALARM


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
@pytest.mark.parametrize("name", ["podium", "duchi", "hybrid", "fitted", "laplace"])
def test_moments(name: str, epsilon: float) -> None:
    """Mean and variance within 5.1 standard errors (3.4e-7 each way); a variance 3 % off is outside them."""
    mechanism = mechanisms(epsilon)[name]
    for x in (0.0, 0.6, 1.0):
        drawn = mechanism.lattice.to_values(mechanism.release(np.full(DRAWS, x), SystemBits(DRAWS)))
        variance = float(mechanism.variance(np.array([x]))[0])
        assert abs(drawn.mean() - x) <= 5.1 * math.sqrt(variance / DRAWS)
        squares = (drawn - x) ** 2
        error = 5.1 * squares.std() / math.sqrt(DRAWS)
        assert abs(squares.mean() - variance) <= error
        assert name == "duchi" or error < 0.015 * variance  # twice this is less than 3 %


def test_rejected_words_leave_cells_uniform() -> None:
    """With some 2**27 cells, several per cent of the 32-bit words are refused and drawn again (false alarms 1e-6)."""
    mechanism = Podium.fit(1e-5, 0.0, 1.0, 0.49, exponent=-9)
    assert 2**27 < mechanism.cells < 2**28
    drawn = mechanism.release(np.full(DRAWS, 0.5), SystemBits(DRAWS))
    assert p_value_of_blocks(drawn, mechanism) > ALARM


def p_value_of_blocks(drawn: np.ndarray, mechanism: Local) -> float:
    """Chi-square over 64 equal parts of the support, whose expected counts follow from the step and the rest."""
    first, last = mechanism.support
    assert isinstance(mechanism, Podium)
    edges = np.linspace(first, last + 1, 65).astype(np.int64)
    observed = np.histogram(drawn, edges)[0]
    point = np.full(64, 0.5)
    expected = mechanism._probability(point, edges[:-1] - first, edges[1:] - first) * len(drawn)
    return float(chi2.sf(((observed - expected) ** 2 / expected).sum(), 63))
