"""Podium: the formulas of the paper, and the lattice mechanism checked in whole numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from spark_rdp.mechanisms.exact import exp_below
from spark_rdp.mechanisms.podium import (
    CENTER,
    UNIFORM,
    WORST,
    Piecewise,
    Podium,
    approximate_fraction,
    best_fraction,
    piecewise_fraction,
    support_ratio,
    variance_at,
)
from spark_rdp.randomness import SystemBits

WORD = 2**64
#: epsilon: r center, m, variance at 0 and at the ends, r worst, its worst variance, r uniform, its mean variance.
TABLE = {
    0.5: (0.44628025, 8.043951, 4.42261124, 5.28613482, 0.468671, 5.26453927, 0.454208, 4.70789890),
    1.0: (0.39532733, 4.088392, 0.91752525, 1.28555995, 0.436918, 1.26642029, 0.410893, 1.03780019),
    2.0: (0.30512276, 2.177314, 0.15825292, 0.28649445, 0.371658, 0.27303924, 0.332360, 0.19912392),
    5.0: (0.13106362, 1.210398, 0.00800214, 0.02094176, 0.190082, 0.01837145, 0.157640, 0.01190142),
}


@pytest.mark.parametrize("epsilon", TABLE)
def test_table_of_the_design(epsilon: float) -> None:
    center, worst, uniform = (best_fraction(epsilon, moment) for moment in (CENTER, WORST, UNIFORM))
    values = (
        center,
        support_ratio(epsilon, center),
        variance_at(epsilon, center, 0),
        variance_at(epsilon, center, 0.25),
        worst,
        variance_at(epsilon, worst, 0.25),
        uniform,
        variance_at(epsilon, uniform, 1 / 12),
    )
    tolerances = (2e-8, 1e-6, 2e-8, 2e-8, 1e-6, 2e-8, 1e-6, 1e-7)  # as many digits as the table has
    for value, expected, tolerance in zip(values, TABLE[epsilon], tolerances, strict=True):
        assert value == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.5, 1, 3, 10, 50, 150])
def test_quartic_root_is_the_minimum(epsilon: float) -> None:
    root = best_fraction(epsilon, CENTER)
    direct = minimize_scalar(
        lambda t: math.log(variance_at(epsilon, math.exp(t), 0)),
        bounds=(math.log(root / 10), math.log(min(10 * root, 0.9))),
        options={"xatol": 1e-12},
    )
    assert root == pytest.approx(math.exp(direct.x), rel=1e-5)
    assert variance_at(epsilon, root, 0) <= variance_at(epsilon, math.exp(direct.x), 0) * (1 + 1e-12)


def test_efficiency_against_laplace_at_log_three() -> None:
    epsilon = math.log(3)
    ratio = variance_at(epsilon, best_fraction(epsilon, CENTER), 0) / (2 / epsilon**2)
    assert ratio == pytest.approx(0.4422, abs=5e-5)


def test_small_budgets_tend_to_four_thirds() -> None:
    assert variance_at(1e-5, best_fraction(1e-5, CENTER), 0) * 1e-10 == pytest.approx(4 / 3, rel=1e-4)


def test_the_published_steps() -> None:
    assert approximate_fraction(3.0) == pytest.approx(1 / (1 + math.e))
    assert piecewise_fraction(2.0) == pytest.approx(1 / (1 + math.e))


def _settings(count: int) -> list[tuple[float, float, float, float]]:
    rng = np.random.default_rng(20)
    result = []
    for _ in range(count):
        epsilon = float(10 ** rng.uniform(-6, 3))
        lower = float(rng.normal() * 10 ** rng.uniform(-6, 12))
        upper = lower + float(10 ** rng.uniform(-6, 12))
        fraction = float(rng.uniform(0.05, 0.5)) if rng.random() < 0.5 else best_fraction(epsilon, CENTER)
        result.append((epsilon, lower, max(upper, math.nextafter(lower, math.inf)), fraction))
    return result


def test_cell_ratio_in_whole_numbers_for_a_thousand_settings() -> None:
    """The ratio of the probabilities of a cell inside and outside the step is at most e^epsilon, exactly; one threshold
    higher it would not be."""
    tight = 0
    for epsilon, lower, upper, fraction in _settings(1000):
        podium = Podium.fit(epsilon, lower, upper, fraction)
        limit = exp_below(epsilon)
        rest = Fraction(WORD - podium.threshold, podium.cells)
        assert 1 + Fraction(podium.threshold, podium.step) / rest <= limit
        assert podium.loss() <= epsilon
        if podium.threshold < WORD - 1:
            above = podium.threshold + 1
            assert 1 + Fraction(above, podium.step) / Fraction(WORD - above, podium.cells) > limit
            tight += 1
        begin, end = (podium._exact_place(Fraction(bound)) for bound in (lower, upper))
        assert 0 <= begin <= end <= podium.cells - podium.step  # both ends are reached without bias
    assert tight > 500


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1, 5, 20, 50])
@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-3.3, 17.1), (1e15, 1e15 + 1)])
@pytest.mark.parametrize("moment", [CENTER, WORST])
def test_unbiased_at_the_ends_and_the_middle(epsilon: float, bounds: tuple[float, float], moment: float) -> None:
    """The mean over every random word, a rational number: off by the rounding of the place to 2**-32 cells at most."""
    podium = Podium.fit(epsilon, *bounds, best_fraction(epsilon, moment))
    x = np.array([bounds[0], bounds[0] / 2 + bounds[1] / 2, bounds[1]])
    places = (podium.place(podium.clamp(x)) * 2.0**32).astype(np.int64)
    for value, place in zip(x, places, strict=True):
        start = Fraction(int(place), 2**32)  # E floor(place + U), U a multiple of 2**-32
        inside = Fraction(podium.threshold, WORD)
        cell = inside * (start + Fraction(podium.step - 1, 2)) + (1 - inside) * Fraction(podium.cells - 1, 2)
        mean = (cell + podium.first) * Fraction(2) ** podium.exponent
        cells = Fraction(2) ** podium.exponent
        assert abs(mean - Fraction(float(value))) <= cells * podium.cells * Fraction(1, 2**52) + cells / 2**32
    assert podium.mean_output(x) == pytest.approx(x, abs=1e-9 * (bounds[1] - bounds[0]) * support_ratio(epsilon, 0.4))


@pytest.mark.parametrize("epsilon", [0.5, 1, 2, 5])
def test_the_lattice_costs_next_to_nothing(epsilon: float) -> None:
    podium = Podium.fit(epsilon, -0.5, 0.5, best_fraction(epsilon, CENTER))
    assert podium.variance(np.array([0.0]))[0] == pytest.approx(TABLE[epsilon][2], rel=1e-5)
    assert podium.variance(np.array([-0.5, 0.5])) == pytest.approx(TABLE[epsilon][3], rel=1e-5)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0])
def test_one_support_for_every_input(epsilon: float) -> None:
    """On a coarse lattice every cell has a positive probability under every input, one outside the range included."""
    podium = Podium.fit(epsilon, 0.0, 10.0, best_fraction(epsilon, CENTER), exponent=-1)
    first, last = podium.support
    cells = np.arange(first - 3, last + 4)
    for x in (-1e300, -math.inf, 0.0, 3.3, 5.0, 10.0, 1e308, math.inf, math.nan):
        reachable = cells[podium.pmf(x, cells) > 0]
        assert (reachable[0], reachable[-1], len(reachable)) == (first, last, last - first + 1)
        drawn = podium.release(np.full(3000, x), SystemBits(3000))
        assert first <= drawn.min() <= drawn.max() <= last


def test_inputs_are_clamped_before_anything_else() -> None:
    podium = Podium.fit(1.0, -2.0, 3.0, 0.4)
    bits = SystemBits(500)
    for outside, inside in ((-1e9, -2.0), (7.0, 3.0), (math.inf, 3.0), (math.nan, 0.5), (-0.0, 0.0)):
        values = np.full(500, outside)
        assert np.array_equal(podium.release(values, bits), podium.release(np.full(500, inside), bits))
        assert np.array_equal(podium.keys(values), podium.keys(np.full(500, inside)))


def test_blocks_do_not_matter() -> None:
    """The same rows of the same bits give the same noise, drawn together or apart."""
    podium = Podium.fit(1.0, 0.0, 1.0, 0.4)
    bits = SystemBits(10_000)
    values = np.linspace(0, 1, 10_000)
    rows = np.array([9_999, 4_096, 4_095, 0])
    assert np.array_equal(podium.release(values, bits)[rows], podium.draw(values[rows], bits, 0, rows))
    assert len(podium.release(values[:0], SystemBits(0))) == 0


def test_parameters_rebuild_the_mechanism() -> None:
    podium = Podium.fit(0.7, -5.0, 8.0, 0.3)
    assert Podium(**podium.parameters()) == podium
    assert Piecewise.fit(1.0, 0.0, 1.0, piecewise_fraction(1.0)).name == "piecewise"
    with pytest.raises(ValueError, match="support"):
        Podium(**{**podium.parameters(), "upper": 80.0})
