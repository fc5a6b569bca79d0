"""Means, totals and variances of values from sums of their noised reports, without bias, with intervals.

A report Y of x has mean x and variance v(x). Two estimates carry everything here:

* The square. For every mechanism but `fitted`, E[Y^2 | x] is a quadratic c0 + c1 x + c2 x^2 (for Podium c2 is one over
  the probability of the step), so (Y^2 - c0 - c1 Y) / c2 has the mean x^2. `fitted` has few outputs, and a table of
  numbers for them has the mean x^2. The two-point mechanism has c2 = 0: its reports tell the mean and nothing else.
* The noise. Y^2 minus the estimate of x^2 has the mean v(x): its average is the average variance of the noise given the
  values that were really there, though v depends on x.

Source: mathematics, section 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spark_rdp.estimation.intervals import FEW, chebyshev, critical
from spark_rdp.estimation.outputs import Outputs
from spark_rdp.mechanisms.fitted import Fitted

#: A curvature of E[Y^2 | x] below this is rounding: two outputs tell nothing of a square.
_FLAT = 1e-6
_INPUTS = 257


@dataclass(frozen=True)
class Counts:
    """What is known of the reports of each group: sums of whole numbers, the same in every order.

    Attributes:
        rows: How many values there are; shape (groups,).
        reported: How many of them were reported with noise; the others were not chosen to be, whatever they are.
        first, second: Sums of the reported lattice integers about the centre, and of their squares: Python integers.
        cells: How many reports lie in each cell, of shape (groups, cells); None where not counted.
        cell_sums: Sums of the reported lattice integers about the centre by cell; with ``cells`` only.
    """

    rows: np.ndarray
    reported: np.ndarray
    first: np.ndarray
    second: np.ndarray
    cells: np.ndarray | None = None
    cell_sums: np.ndarray | None = None


@dataclass(frozen=True)
class Estimate:
    """A number for each group, and an interval: NaN, and all that is possible, where nothing was reported."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class Square:
    """An unbiased estimate of the square of the input, both about the centre.

    Attributes:
        coefficients: Of 1, Y and Y^2; None where a table is used.
        table: One number for each level; None where coefficients are used.
    """

    coefficients: tuple[float, float, float] | None
    table: np.ndarray | None

    @classmethod
    def of(cls, outputs: Outputs) -> Square | None:
        """The estimate for a mechanism; None where its outputs tell nothing of a square."""
        mechanism = outputs.mechanism
        if isinstance(mechanism, Fitted):
            return cls(None, _table(mechanism, outputs))
        middle = float(np.ldexp(float(outputs.centre), mechanism.exponent))
        x = np.array([mechanism.lower, mechanism.lower / 2 + mechanism.upper / 2, mechanism.upper])
        seconds = mechanism.variance(x) + (x - middle) ** 2
        c2, c1, c0 = (float(number) for number in np.polyfit(x - middle, seconds, 2))
        if abs(c2) < _FLAT:
            return None
        return cls((-c0 / c2, -c1 / c2, 1 / c2), None)


def _table(mechanism: Fitted, outputs: Outputs) -> np.ndarray:
    """Numbers for the levels whose mean is the square of x where the window starts exactly at a cell, x being its mean.

    Between two such inputs the mechanism mixes the two, and the mean is the straight line: above the square by at most
    a quarter of the squared distance of the two. Of all such tables the one with the least variance is taken, for
    inputs of a uniform distribution.
    """
    means = np.array([float(mean - outputs.centre) for mean in mechanism.means()])
    levels = np.array(outputs.levels, dtype=np.int64)
    inputs = np.ldexp(means + outputs.centre, mechanism.exponent)
    inside = (inputs >= mechanism.lower) & (inputs <= mechanism.upper)
    ends = np.array([mechanism.lower, mechanism.upper])
    x = np.concatenate([ends[:1], inputs[inside], ends[1:]])
    chances = outputs.chances(x)
    spread = np.sqrt(chances.mean(axis=0))
    middle = float(np.ldexp(float(outputs.centre), mechanism.exponent))
    solution = np.linalg.lstsq(chances / spread, (x - middle) ** 2, rcond=1e-12)[0]
    assert len(solution) == len(levels)
    return solution / spread


@dataclass(frozen=True)
class Sampling:
    """What an interval is about, and how rows depend on each other.

    Attributes:
        confidence: How often an interval shall hold the truth.
        population: False: the truth is that of the very rows that were collected, and only noise stands between. True:
            it is that of a large population the rows were drawn from independently.
        repeats: At most this many rows of a group carry one draw of noise (memoised units); the variance is multiplied
            by it, which covers every dependence among so few.
    """

    confidence: float = 0.95
    population: bool = False
    repeats: int = 1


class Moments:
    """Estimates of the moments of one column for all groups at once.

    Args:
        outputs: The mechanism and its cells.
        counts: What was reported.
        sampling: What intervals are about.
    """

    def __init__(self, outputs: Outputs, counts: Counts, sampling: Sampling) -> None:
        mechanism = outputs.mechanism
        self._outputs, self._counts, self._sampling = outputs, counts, sampling
        self._lower, self._upper = mechanism.lower, mechanism.upper
        self._middle = float(np.ldexp(float(outputs.centre), mechanism.exponent))
        self._rows = counts.rows.astype(np.float64)
        self._reports = counts.reported.astype(np.float64)
        self._square = Square.of(outputs)
        inputs = np.linspace(mechanism.lower, mechanism.upper, _INPUTS)
        self._least_noise, self._most_noise = (float(f(mechanism.variance(inputs))) for f in (np.min, np.max))
        levels = outputs.levels or ()
        self._step = mechanism.lattice.granularity * (levels[1] - levels[0]) if len(levels) == 2 else 0.0
        # Quotients of whole numbers, rounded once.
        unit = mechanism.lattice.granularity
        self._mean = unit * _quotients(counts.first, counts.reported)
        self._second = unit**2 * _quotients(counts.second, counts.reported)

    @property
    def identified(self) -> bool:
        """Whether the reports tell more than a mean."""
        return self._square is not None

    @property
    def _spread(self) -> np.ndarray:
        """The variance of single reports, noise and values together."""
        return _at_least_zero(self._second - self._mean**2) * _bessel(self._reports)

    @property
    def noise(self) -> np.ndarray:
        """The average variance of the noise of a report, given the values; an upper estimate if not `identified`."""
        if self._square is None:  # the variance is concave in the input: the average is at most that of the average
            mean = np.clip(np.nan_to_num(self._mean + self._middle), self._lower, self._upper)
            return np.where(self._reports > 0, self._outputs.mechanism.variance(mean), np.nan)
        return np.clip(self._second - self._mean_square(), self._least_noise, self._most_noise)

    @property
    def _variance_of_mean(self) -> np.ndarray:
        """The variance the noise gives to the mean of the reports, estimated without bias: not held to its range."""
        return (self._second - self._mean_square()) / _positive(self._reports)

    def _mean_square(self) -> np.ndarray:
        """The mean square of the values about the centre."""
        assert self._square is not None
        if self._square.table is None:
            assert self._square.coefficients is not None
            c0, c1, c2 = self._square.coefficients
            return c0 + c1 * self._mean + c2 * self._second
        assert self._counts.cells is not None, "the table needs the reports in cells"
        return np.asarray(self._counts.cells @ self._square.table) / _positive(self._reports)

    def _values_spread(self) -> np.ndarray:
        """The variance of the values themselves, with one less than their number in the denominator."""
        plain = self._mean_square() - self._mean**2 + self._variance_of_mean
        return plain * _bessel(self._reports)

    def _deviation_of_rows(self) -> np.ndarray:
        """The standard error of the mean of the very rows: noise, and the choice of those that were reported."""
        few = (self._rows - self._reports) / _positive(self._rows)  # not reported, as a share
        values = 0.0 * self._mean
        if np.any(few > 0):
            values = _at_least_zero(self._values_spread() if self.identified else self._spread - self._least_noise)
        return np.sqrt(self._sampling.repeats * (self.noise + few * values) / _positive(self._reports))

    def _reach(self, deviation: np.ndarray, sampled: bool) -> np.ndarray:
        """Half the width of intervals: normal with many reports, by Chebyshev's inequality with few."""
        few = (self._rows - self._reports) / _positive(self._rows)
        worst = self._most_noise + (1.0 if sampled else few) * (self._upper - self._lower) ** 2 / 4
        surest = np.sqrt(self._sampling.repeats * worst / _positive(self._reports))
        confidence = self._sampling.confidence
        # A mean of two outputs has steps: half of one, so that the normal interval does not fall short of the next.
        normal = critical(confidence) * deviation + self._step / 2 / _positive(self._reports)
        return np.where(self._reports < FEW, chebyshev(confidence) * surest, normal)

    def mean(self) -> Estimate:
        """The mean of the values; where nothing was reported it is anywhere in the range."""
        population = self._sampling.population
        deviation = self._deviation_of_rows()
        if population:
            deviation = np.sqrt(self._sampling.repeats * self._spread / _positive(self._reports))
        value, reach = self._mean + self._middle, self._reach(deviation, population)
        unknown = self._reports == 0
        low, high = np.where(unknown, self._lower, value - reach), np.where(unknown, self._upper, value + reach)
        return Estimate(value, low, high)

    def total(self) -> Estimate:
        """The sum of the values of the very rows; 0 where there are none, whatever intervals are about otherwise."""
        value, reach = self._mean + self._middle, self._reach(self._deviation_of_rows(), False)
        unknown, empty = self._reports == 0, self._rows == 0
        low, high = np.where(unknown, self._lower, value - reach), np.where(unknown, self._upper, value + reach)
        return Estimate(np.where(empty, 0.0, self._rows * value), self._rows * low, self._rows * high)

    def variance(self) -> Estimate:
        """The variance of the values: of the very rows, or of the population. Needs the reports in cells.

        Its interval covers the chance of drawing the rows in any case, and is a little wide for the very rows.
        """
        assert self._square is not None
        rows, reports, sampling = self._rows, self._reports, self._sampling
        value = self._values_spread()
        if not sampling.population:  # all rows in the denominator
            share = np.where(rows > 0, (rows - 1) / _positive(rows), np.nan)
            plain = self._mean_square() - self._mean**2 + self._variance_of_mean
            value = np.where(reports < rows, value * share, plain)
        reach = critical(sampling.confidence) * np.sqrt(sampling.repeats * self._square_spread() / _positive(reports))
        most = (self._upper - self._lower) ** 2 / 4
        unknown = reports < FEW
        low, high = np.where(unknown, 0.0, value - reach), np.where(unknown, most, value + reach)
        return Estimate(value, low, high)

    def _square_spread(self) -> np.ndarray:
        """The variance of (estimate of the square) - 2 mean Y over reports, from the means of the cells."""
        assert self._square is not None
        cells, sums = self._counts.cells, self._counts.cell_sums
        assert cells is not None
        assert sums is not None
        unit = self._outputs.mechanism.lattice.granularity
        reports = unit * sums / np.maximum(cells, 1)
        if self._square.table is None:
            assert self._square.coefficients is not None
            c0, c1, c2 = self._square.coefficients
            squares = c0 + reports * (c1 + c2 * reports)
        else:
            squares = self._square.table
        influence = squares - 2 * self._mean[:, None] * reports
        weights = cells / _positive(self._reports)[:, None]
        first = (weights * influence).sum(axis=1)
        return _at_least_zero((weights * influence**2).sum(axis=1) - first**2) * _bessel(self._reports)

    def noise_share(self) -> np.ndarray:
        """How much of the variance of a mean of rows from a population is noise: the rest would stay without it."""
        noise, values = self.noise, _at_least_zero(self._values_spread())
        return np.asarray(noise / (noise + values))


def _quotients(numerators: np.ndarray, denominators: np.ndarray) -> np.ndarray:
    pairs = zip(numerators.tolist(), denominators.tolist(), strict=True)
    return np.array([top / below if below else np.nan for top, below in pairs], dtype=np.float64)


def _positive(numbers: np.ndarray) -> np.ndarray:
    """The numbers, NaN in place of 0: nothing divided by nothing is not known."""
    return np.where(numbers > 0, numbers, np.nan)


def _at_least_zero(numbers: np.ndarray) -> np.ndarray:
    return np.maximum(numbers, 0.0)


def _bessel(count: np.ndarray) -> np.ndarray:
    return count / _positive(count - 1)
