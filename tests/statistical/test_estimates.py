"""Estimates through the real mechanisms: unbiased, intervals that hold as often as they say, histograms that recover.

All draws are seeded, so that a test that passes does so always; the false-alarm rate is that of the choice of the seed.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats
from statistical.goodness import seeded_bits

from spark_rdp.estimation.histogram import Deconvolution
from spark_rdp.estimation.intervals import critical
from spark_rdp.estimation.moments import Counts, Moments, Sampling, Square
from spark_rdp.estimation.outputs import Outputs
from spark_rdp.mechanisms.local import Local
from spark_rdp.planning.local import LocalProblem, candidates
from spark_rdp.planning.local_metrics import AVERAGE, LocalMetric

LOWER, UPPER = -20.0, 130.0
#: Standard errors with a false-alarm rate of 1e-8 for both sides.
LIMIT = stats.norm.isf(5e-9)
MECHANISMS = ["podium", "fitted", "hybrid", "laplace", "r2dp"]


@cache
def outputs_of(name: str, epsilon: float = 1.0) -> Outputs:
    problem = LocalProblem(epsilon, LOWER, UPPER, LocalMetric.of(AVERAGE, LOWER, UPPER, None))
    return Outputs.of(candidates()[name](problem))


def values(size: int, seed: int) -> np.ndarray:
    """Skewed values with a spike at the lower end, as telemetry has."""
    numbers = np.random.default_rng(seed)
    return np.where(numbers.random(size) < 0.2, LOWER, np.clip(numbers.gamma(3.0, 12.0, size) - 10, LOWER, UPPER))


def reports(mechanism: Local, x: np.ndarray, groups: int, seed: int) -> np.ndarray:
    """Lattice integers of shape (groups, values): the same values collected many times."""
    return mechanism.release(np.tile(x, groups), seeded_bits(groups * len(x), seed)).reshape(groups, -1)


def counted(outputs: Outputs, integers: np.ndarray, rows: int | None = None) -> Counts:
    """What Spark counts, by NumPy."""
    groups, size = integers.shape
    about = integers - outputs.centre
    if outputs.levels is not None:
        cell = np.searchsorted(outputs.levels, integers)
    else:
        cell = np.clip((integers - outputs.first) // outputs.width, 0, outputs.count - 1)
    place = (np.arange(groups)[:, None] * outputs.count + cell).ravel()
    cells, sums = (
        np.bincount(place, weights=weights, minlength=groups * outputs.count).reshape(groups, -1)
        for weights in (None, about.ravel())
    )
    first = np.array([int(total) for total in about.sum(axis=1)], dtype=object)
    exact = about if np.abs(about).max() < 2**27 else about.astype(object)  # squares stay whole numbers
    second = np.array([int(total) for total in (exact**2).sum(axis=1)], dtype=object)
    return Counts(np.full(groups, rows or size), np.full(groups, size), first, second, cells.astype(float), sums)


@cache
def many(name: str, size: int = 100, groups: int = 20_000) -> tuple[np.ndarray, Outputs, Counts]:
    x, outputs = values(size, 1), outputs_of(name)
    return x, outputs, counted(outputs, reports(outputs.mechanism, x, groups, 2))


@pytest.mark.parametrize("name", MECHANISMS)
def test_mean_square_and_variance_are_unbiased(name: str) -> None:
    """Their averages over 20,000 collections are the truth within LIMIT standard errors: false alarm 1e-8 each."""
    x, outputs, counts = many(name)
    moments = Moments(outputs, counts, Sampling())
    about = x - np.ldexp(float(outputs.centre), outputs.mechanism.exponent)
    found = {
        "mean": (moments.mean().value, x.mean()),
        "total": (moments.total().value, x.sum()),
        "square": (moments._mean_square(), (about**2).mean()),
        "noise": (moments._variance_of_mean, outputs.mechanism.variance(x).mean() / len(x)),
        "variance": (moments.variance().value, x.var()),
        "variance of a population": (
            Moments(outputs, counts, Sampling(population=True)).variance().value,
            x.var(ddof=1),
        ),
    }
    for what, (estimates, truth) in found.items():
        error = estimates.std() / np.sqrt(len(estimates))
        # The table of `fitted` is the square of x at 148 inputs and the straight line between them.
        bent = name == "fitted" and what not in ("mean", "total")
        slack = 2e-5 * (UPPER - LOWER) ** 2 if bent else 1e-9 * abs(truth)
        assert abs(estimates.mean() - truth) <= LIMIT * error + slack, what


def check_coverage(held: np.ndarray, share: float = 0.95) -> None:
    """As many intervals hold as should; false alarm 1e-7, and half a point for sums that are only about normal."""
    band = stats.norm.isf(5e-8) * np.sqrt(share * (1 - share) / len(held))
    assert share - band <= held.mean() + 0.0005, f"{held.mean():.4f} of {len(held)} intervals hold, too few"
    assert held.mean() <= share + band + 0.004, f"{held.mean():.4f} of {len(held)} intervals hold, too many"


def holds(estimate: Any, truth: float) -> np.ndarray:
    return (estimate.low <= truth) & (truth <= estimate.high)


@pytest.mark.parametrize("name", ["podium", "fitted", "laplace"])
def test_95_percent_of_the_intervals_of_20000_collections_hold_the_mean(name: str) -> None:
    x, outputs, counts = many(name)
    moments = Moments(outputs, counts, Sampling())
    check_coverage(holds(moments.mean(), x.mean()))
    check_coverage(holds(moments.total(), x.sum()))


def test_sums_of_two_outputs_have_intervals_that_reach_their_next_step() -> None:
    """Means of 100 two-point reports have 101 values: plain normal intervals would hold 94 % (known-faults, 144)."""
    x, outputs, counts = many("duchi")
    held = holds(Moments(outputs, counts, Sampling()).mean(), x.mean()).mean()
    assert 0.95 <= held <= 0.97


@pytest.mark.parametrize("name", ["podium", "fitted"])
@pytest.mark.parametrize("wrong", [0.9, 0.85])
def test_noise_understated_by_10_percent_is_noticed(name: str, wrong: float, monkeypatch: pytest.MonkeyPatch) -> None:
    x, outputs, counts = many(name)
    right = Moments.noise.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(Moments, "noise", property(lambda self: wrong * right(self)))
    with pytest.raises(AssertionError, match="too few"):
        check_coverage(holds(Moments(outputs, counts, Sampling()).mean(), x.mean()))


def test_intervals_of_a_population_cover_the_choice_of_the_rows_too() -> None:
    """With much budget the choice of the rows is what matters: intervals about the rows miss the population."""
    outputs, numbers = outputs_of("podium", 6.0), np.random.default_rng(3)
    population = values(10**6, 4)
    chosen = numbers.choice(population, (20_000, 100))
    integers = outputs.mechanism.release(chosen.ravel(), seeded_bits(chosen.size, 5)).reshape(chosen.shape)
    counts = counted(outputs, integers)
    check_coverage(holds(Moments(outputs, counts, Sampling(population=True)).mean(), population.mean()))
    assert holds(Moments(outputs, counts, Sampling()).mean(), population.mean()).mean() < 0.8


def test_reports_of_some_rows_stand_for_all() -> None:
    """Half of the rows report: the interval of the mean of all rows is as wide as it has to be, and no wider."""
    outputs, numbers = outputs_of("podium", 6.0), np.random.default_rng(6)
    x = values(200, 7)
    chosen = np.argsort(numbers.random((20_000, len(x))), axis=1)[:, :100]
    integers = outputs.mechanism.release(x[chosen].ravel(), seeded_bits(chosen.size, 8)).reshape(chosen.shape)
    moments = Moments(outputs, counted(outputs, integers, rows=len(x)), Sampling())
    check_coverage(holds(moments.mean(), x.mean()))
    check_coverage(holds(moments.total(), x.sum()))
    variance = moments.variance().value
    assert abs(variance.mean() - x.var()) <= LIMIT * variance.std() / np.sqrt(len(variance))


def test_copies_of_one_report_are_covered_by_rows_per_unit() -> None:
    """Each report is there three times: intervals that do not know hold too rarely, those that do often enough."""
    x, outputs = values(100, 1), outputs_of("podium")
    integers = np.repeat(reports(outputs.mechanism, x, 5000, 9), 3, axis=1)
    counts = counted(outputs, integers)
    assert holds(Moments(outputs, counts, Sampling()).mean(), x.mean()).mean() < 0.8
    check_coverage(holds(Moments(outputs, counts, Sampling(repeats=3)).mean(), x.mean()))


@pytest.mark.parametrize("name", ["podium", "fitted", "laplace", "duchi"])
@pytest.mark.parametrize("size", [1, 2, 7, 29])
def test_few_reports_have_intervals_that_hold_whatever_the_noise_looks_like(name: str, size: int) -> None:
    """Chebyshev's inequality: never more than 5 % misses. Of 2,000, a rate of 5 % exceeds 8.1 % with chance 1e-8."""
    x, outputs = values(size, 10), outputs_of(name)
    moments = Moments(outputs, counted(outputs, reports(outputs.mechanism, x, 2000, 11)), Sampling())
    assert holds(moments.mean(), x.mean()).mean() >= 1 - 0.081


def test_the_variance_of_the_values_has_an_interval_that_holds() -> None:
    """2,000 collections of 1,000 values; the interval is that of a population, a little wide for the rows."""
    x, outputs = values(1000, 12), outputs_of("podium")
    moments = Moments(outputs, counted(outputs, reports(outputs.mechanism, x, 2000, 13)), Sampling())
    held = holds(moments.variance(), x.var()).mean()
    assert 0.925 <= held <= 0.985  # 95 % within 5 standard errors: 1e-6


def bimodal(size: int, seed: int) -> np.ndarray:
    numbers = np.random.default_rng(seed)
    low = numbers.random(size) < 0.4
    return np.clip(np.where(low, numbers.normal(15, 8, size), numbers.normal(85, 12, size)), LOWER, UPPER)


@pytest.mark.parametrize("name", ["podium", "fitted"])
def test_a_bimodal_distribution_is_recovered_better_than_by_the_noised_values(name: str) -> None:
    """The error of the shares of 15 bins against that of the plain histogram of what was collected, measured.

    Shown for 30,000 values at epsilon 1: two peaks and the valley between them are there, which the noised values
    do not show; the total error is below a quarter of theirs. The seed is fixed; over 40 others the ratio was 0.05 to
    0.15.
    """
    x, outputs = bimodal(30_000, 14), outputs_of(name)
    integers = reports(outputs.mechanism, x, 1, 15)
    edges = np.linspace(LOWER, UPPER, 16)
    truth = np.histogram(x, edges)[0] / len(x)
    found = Deconvolution(outputs).of(counted(outputs, integers).cells[0]).bins(edges, 0.95)
    noised = np.clip(outputs.mechanism.lattice.to_values(integers[0]), LOWER, UPPER)
    naive = np.histogram(noised, edges)[0] / len(x)
    error, plain = np.abs(found.value - truth).sum(), np.abs(naive - truth).sum()
    assert error < plain / 4
    low, valley, high = found.value[2:5].max(), found.value[6:8].min(), found.value[9:12].max()
    assert valley < 0.6 * min(low, high)
    assert found.value.sum() == pytest.approx(1)
    assert np.all(found.value >= 0)


def test_intervals_of_the_bins_of_smooth_distributions_hold() -> None:
    """150 bins of 10 collections, 10,000 values each: at least 90 % hold.

    Bins of one collection depend on each other, so this is no test of 95 %. The seed is fixed; over 40 other
    collections of 30,000 values 95 % held.
    """
    outputs = outputs_of("fitted")
    edges = np.linspace(LOWER, UPPER, 16)
    deconvolution, held = Deconvolution(outputs), []
    for seed in range(10):
        x = bimodal(10_000, 100 + seed)
        found = deconvolution.of(counted(outputs, reports(outputs.mechanism, x, 1, seed)).cells[0]).bins(edges, 0.95)
        held.append(holds(found, np.histogram(x, edges)[0] / len(x)).mean())
    assert np.mean(held) >= 0.9


def test_normal_intervals_have_the_width_of_their_confidence() -> None:
    assert critical(0.95) == pytest.approx(1.959964, abs=1e-6)
    x, outputs, counts = many("podium")
    wide, narrow = (Moments(outputs, counts, Sampling(confidence=c)).mean() for c in (0.999, 0.8))
    assert holds(wide, x.mean()).mean() >= 0.997
    check_coverage(holds(narrow, x.mean()), 0.8)


def test_two_outputs_tell_nothing_of_a_square() -> None:
    assert Square.of(outputs_of("duchi")) is None
    assert dataclasses.is_dataclass(Square.of(outputs_of("podium")))
