"""Draws of finite mechanisms against their matrices."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from spark_rdp.mechanisms.finite.base import Finite
from spark_rdp.mechanisms.finite.domains import Categories, Points
from spark_rdp.mechanisms.finite.frequencies import count_errors, likeliest_counts, unbiased_counts
from spark_rdp.mechanisms.finite.grids import CHEBYSHEV, Grid, line
from spark_rdp.mechanisms.finite.tight_constraints import tight
from spark_rdp.mechanisms.finite.unbounded import UnboundedRemap
from spark_rdp.randomness import SystemBits

DRAWS = 1_000_000
ALARM = 1e-8
PLACES = tuple(map(tuple, np.random.default_rng(3).normal(size=(40, 2)) * 3))


def made(name: str, scale: float = 1.0) -> Finite:
    makers = {
        "map": lambda: tight(Grid((50, 60), (1.0, 1.0)), 1.0 * scale),
        "map below": lambda: UnboundedRemap(Grid((50, 60), (1.0, 1.0)), 0.4 * scale),
        "counts": lambda: tight(Grid((20, 20), (1.0, 1.0), CHEBYSHEV), 1.3 * scale),
        "sum": lambda: tight(Grid((101,), (1.0,), span=5), 1.2 * scale),
        "scale": lambda: tight(line(50), 0.2 * scale),
        "boxes": lambda: tight(Grid((15, 10), (1.0, 0.5), blend=1.0), 0.8 * scale),
        "names": lambda: tight(Categories(15), 1.0 * scale),
        "databases": lambda: tight(Categories(3, 3), 1.0 * scale),
        "points": lambda: tight(Points(PLACES), 2.0 * scale),
    }
    return makers[name]()


def p_value(drawn: np.ndarray, masses: np.ndarray) -> float:
    """Of Pearson's chi-square over cells that are expected at least 100 times, and all others together."""
    expected, observed = masses * len(drawn), np.bincount(drawn, minlength=len(masses))
    kept = expected > 100
    statistic = ((observed[kept] - expected[kept]) ** 2 / expected[kept]).sum()
    rest = expected[~kept].sum(), observed[~kept].sum()
    if rest[0] > 100:
        statistic += (rest[1] - rest[0]) ** 2 / rest[0]
    return float(chi2.sf(statistic, kept.sum() + (rest[0] > 100) - 1))


@pytest.mark.parametrize(
    "name", ["map", "map below", "counts", "sum", "scale", "boxes", "names", "databases", "points"]
)
def test_draws_follow_the_matrix(name: str) -> None:
    """At a corner and in the middle. False alarms: 18 checks of 1e-8 each."""
    mechanism = made(name)
    for cell in (0, mechanism.domain.size // 2):
        drawn = mechanism.release(np.full(DRAWS, cell), SystemBits(DRAWS))
        assert p_value(drawn, mechanism.row(cell)) > ALARM


@pytest.mark.parametrize("name", ["map", "map below", "sum", "scale", "names", "points"])
@pytest.mark.parametrize("scale", [0.97, 1.03])
def test_a_three_per_cent_wrong_scale_is_rejected(name: str, scale: float) -> None:
    mechanism, wrong = made(name), made(name, scale)
    cell = mechanism.domain.size // 2
    drawn = wrong.release(np.full(DRAWS, cell), SystemBits(DRAWS))
    assert p_value(drawn, mechanism.row(cell)) < ALARM


def test_rows_and_inputs_have_noise_of_their_own() -> None:
    """Equal inputs in many batches, and what each row is drawn with beside its neighbours.

    False alarms: correlations of 250,000 draws beyond 6 standard errors, ten of them: 2e-8.
    """
    mechanism = made("map")
    cell = 25 * 60 + 30
    drawn = mechanism.release(np.full(250_000, cell), SystemBits(250_000))
    away = (drawn != cell).astype(float) - (drawn != cell).mean()
    for lag in (1, 2, 3, 7, 64, 1000, 4095, 4096, 4097, 100_000):
        correlation = np.mean(away[lag:] * away[:-lag]) / away.var()
        assert abs(correlation) < 6 / np.sqrt(len(away) - lag)


def test_the_same_words_give_the_same_cells_in_any_split() -> None:
    """A row's noise depends on its own words alone: not on the batch it is in."""
    rng = np.random.default_rng(1)
    for name in ("map", "map below", "names", "points", "scale"):
        mechanism = made(name)
        cells = rng.integers(mechanism.domain.size, size=10_000)
        bits = SystemBits(10_000)
        whole = mechanism.release(cells, bits)
        parts = [mechanism.draw(cells[rows], bits, rows) for rows in np.array_split(np.arange(10_000), 7)]
        assert np.array_equal(whole, np.concatenate(parts))


@pytest.mark.parametrize("name", ["names", "scale", "counts", "points", "map below"])
def test_frequencies_are_recovered_within_their_errors(name: str) -> None:
    """Unbiased counts within 6.5 standard errors in every cell: false alarms 5e-7 over all 3,500 cells.

    The errors are right too: the mean of their squared ratios is 1 within its own spread (6 standard errors: 1e-8).
    """
    mechanism = made(name)
    size = mechanism.domain.size
    rng = np.random.default_rng(17)
    truth = rng.multinomial(200_000, rng.dirichlet(np.full(size, 0.4)))
    inputs = np.repeat(np.arange(size), truth)
    outputs = np.bincount(mechanism.release(inputs, SystemBits(len(inputs))), minlength=size)
    counts = unbiased_counts(mechanism, outputs)
    errors = count_errors(mechanism, outputs, counts)
    assert counts.sum() == pytest.approx(200_000)
    ratios = (counts - truth) / errors
    assert np.abs(ratios).max() < 6.5
    likely = likeliest_counts(mechanism, outputs)
    assert likely.min() >= 0
    assert likely.sum() == pytest.approx(200_000)
    # Knowing that counts are not negative helps where the noise is larger than they are.
    assert np.abs(likely - truth).sum() <= 1.1 * np.abs(np.maximum(counts, 0) - truth).sum()


def test_standard_errors_are_measured_ones() -> None:
    """Over 400 repetitions, within 15 % in all 15 cells: the relative standard error of a spread is 3.5 %; 4.2 of them.

    False alarms: 15 cells times 2.7e-5 would be too many; the mean over the cells is checked to 6 %, six of its own.
    """
    mechanism = tight(Categories(15), 1.0)
    truth = np.arange(15) * 200
    inputs = np.repeat(np.arange(15), truth)
    found, errors = [], []
    for _ in range(400):
        outputs = np.bincount(mechanism.release(inputs, SystemBits(len(inputs))), minlength=15)
        found.append(unbiased_counts(mechanism, outputs))
        errors.append(count_errors(mechanism, outputs, found[-1]))
    measured = np.std(found, axis=0)
    assert np.mean(measured / np.mean(errors, axis=0)) == pytest.approx(1, abs=0.06)
