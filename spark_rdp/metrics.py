"""What "good" means: the loss of an error, and how its expectation is reported.

Planning always minimises E[loss(error)]. The reported value is the one a person reads: the root mean square rather
than the mean square, the probability of being useful rather than of failing.
"""

from __future__ import annotations

import csv
import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from spark_rdp.domains import EXPONENT, GAMMA, ORDER, PRIOR_WEIGHT
from spark_rdp.errors import InvalidInput, invalid, unknown_key
from spark_rdp.series import tail_sum


class Metric(ABC):
    """A loss of the error of one published value, in the unit of that value."""

    name: ClassVar[str]
    #: Whether a larger reported value is the better one.
    higher_is_better: ClassVar[bool] = False
    #: Whether an error and its negative are equally bad.
    symmetric: ClassVar[bool] = True
    #: Whether `even_loss` does not decrease with the size of the error.
    increasing: ClassVar[bool] = True
    #: Whether the reported value is measured in the unit of the error, so that it scales with it.
    scales: ClassVar[bool] = False

    @abstractmethod
    def loss(self, x: np.ndarray) -> np.ndarray:
        """The loss of each error in ``x``, same shape."""

    @abstractmethod
    def spec(self) -> str | dict[str, Any]:
        """The metric as configuration writes it; `Metric.from_spec` reads it back."""

    def key(self) -> str:
        """The name of the metric without its parameters, for example ``usefulness``."""
        return self.name

    def report(self, expected_loss: float) -> float:
        """The value to show for an expected loss."""
        return expected_loss

    def even_loss(self, x: np.ndarray) -> np.ndarray:
        """The mean loss of the errors ``x`` and ``-x``: all that matters under symmetric noise."""
        return self.loss(x) if self.symmetric else (self.loss(x) + self.loss(-x)) / 2

    def expect_geometric(self, rate: float, granularity: float) -> float:
        """E[loss(granularity * X)] for X with P(X = k) = tanh(rate/2) e^(-rate abs k).

        Args:
            rate: Positive, per lattice unit.
            granularity: The lattice unit, in the unit of the value.
        """
        mass = math.tanh(rate / 2)

        def term(k: np.ndarray) -> np.ndarray:
            return np.exp(-rate * k) * self.even_loss(granularity * k)

        centre = float(self.even_loss(np.zeros(1))[0])
        return mass * (centre + 2 * tail_sum(term, 1, 50 / rate))

    @staticmethod
    def from_spec(spec: Metric | str | dict[str, Any]) -> Metric:
        """Read ``"l1"``, ``"l2"``, ``{"lp": 3}``, ``{"usefulness": 5}``, ``{"mallows": 1}``,
        ``{"relative_entropy": {"prior": FILE, "order": 1}}``; a metric stays as it is.

        Raises:
            InvalidInput: The metric is unknown, or its parameter is outside its domain.
        """
        if isinstance(spec, Metric):
            return spec
        if isinstance(spec, str) and spec in PLAIN:
            return PLAIN[spec]()
        if isinstance(spec, dict) and len(spec) == 1:
            name, argument = next(iter(spec.items()))
            if name in WITH_ARGUMENT:
                return WITH_ARGUMENT[name](argument)
        arguments = {"relative_entropy": "{prior: FILE, order: NUMBER}"}
        choices = ", ".join([*PLAIN, *(f"{{{name}: {arguments.get(name, 'NUMBER')}}}" for name in WITH_ARGUMENT)])
        raise invalid("metric", f"one of {choices}", spec, "In Python, CustomLoss(function) is a loss of your own.")


class PowerLoss(Metric):
    """``abs(x) ** exponent``, reported as its ``exponent``-th root."""

    scales: ClassVar[bool] = True

    @property
    @abstractmethod
    def exponent(self) -> float:
        """The power of the error."""

    def loss(self, x: np.ndarray) -> np.ndarray:
        return np.abs(x) ** self.exponent

    def report(self, expected_loss: float) -> float:
        return float(expected_loss ** (1 / self.exponent))

    def expect_geometric(self, rate: float, granularity: float) -> float:
        if self.exponent == 1:  # 1 / sinh(rate)
            return granularity * 2 * math.exp(-rate) / -math.expm1(-2 * rate)
        if self.exponent == 2:
            return granularity**2 * 2 * math.exp(-rate) / math.expm1(-rate) ** 2
        return super().expect_geometric(rate, granularity)


@dataclass(frozen=True)
class L1(PowerLoss):
    """The mean absolute error E|X|."""

    name: ClassVar[str] = "l1"

    @property
    def exponent(self) -> float:
        return 1.0

    def spec(self) -> str:
        return self.name


@dataclass(frozen=True)
class L2(PowerLoss):
    """The root mean square error sqrt(E X^2)."""

    name: ClassVar[str] = "l2"

    @property
    def exponent(self) -> float:
        return 2.0

    def spec(self) -> str:
        return self.name


@dataclass(frozen=True)
class Lp(PowerLoss):
    """(E|X|^p)^(1/p).

    Args:
        p: Between 1 and 16.
    """

    name: ClassVar[str] = "lp"
    p: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", EXPONENT.check(self.p))

    @property
    def exponent(self) -> float:
        return self.p

    def spec(self) -> dict[str, Any]:
        return {self.name: self.p}


@dataclass(frozen=True)
class Mallows(Lp):
    """The Mallows (Wasserstein) distance of order p between the true and the noised vector, for one value of it.

    Args:
        p: Between 1 and 16.

    Source: R2DP, section 4; per value it is the expectation of `Lp`.
    """

    name: ClassVar[str] = "mallows"


@dataclass(frozen=True)
class Usefulness(Metric):
    """The probability that the error is at most gamma in size.

    Args:
        gamma: The largest error that is still useful, in the unit of the value; positive.
    """

    name: ClassVar[str] = "usefulness"
    higher_is_better: ClassVar[bool] = True
    gamma: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", GAMMA.check(self.gamma))

    def loss(self, x: np.ndarray) -> np.ndarray:
        return (np.abs(x) > self.gamma).astype(np.float64)

    def report(self, expected_loss: float) -> float:
        return 1.0 - expected_loss

    def spec(self) -> dict[str, Any]:
        return {self.name: self.gamma}

    def steps(self, granularity: float) -> int:
        """The largest error, in lattice units, that is still useful (exact: a granularity is a power of two)."""
        return math.floor(self.gamma / granularity)

    def expect_geometric(self, rate: float, granularity: float) -> float:
        return 2 * math.exp(-rate * (self.steps(granularity) + 1)) / (1 + math.exp(-rate))


@dataclass(frozen=True)
class CustomLoss(Metric):
    """Any loss of the error.

    Args:
        function: Takes an array of errors (float64, in the unit of the value) and returns their losses, finite and of
            the same shape. It may be asymmetric and need not increase; a few jumps or kinks are fine.
    """

    name: ClassVar[str] = "custom"
    symmetric: ClassVar[bool] = False
    increasing: ClassVar[bool] = False
    function: Callable[[np.ndarray], np.ndarray] = field(hash=False)  # any callable will do, hashable or not

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise invalid("function", "a function of an array", self.function, "For example: lambda x: abs(x) ** 1.5.")

    def loss(self, x: np.ndarray) -> np.ndarray:
        errors = np.asarray(x, dtype=np.float64)
        losses = np.asarray(self.function(errors), dtype=np.float64)
        if losses.shape != errors.shape:
            raise InvalidInput("metric must return one loss for each error, in the same shape. Use NumPy functions.")
        if not np.all(np.isfinite(losses)):
            raise InvalidInput("metric must return a finite loss for every error. Cap the function with numpy.minimum.")
        return losses

    def spec(self) -> dict[str, Any]:
        return {self.name: getattr(self.function, "__name__", type(self.function).__name__)}


#: A prior with more different weights than this is grouped; and the most cells a prior may have.
MOST_WEIGHTS, MOST_CELLS = 24, 10**6
#: Errors whose losses are worked out at once.
_CHUNK = 2**12


@dataclass(frozen=True)
class RelativeEntropy(Metric):
    """The divergence between a histogram and the same histogram with noise in each cell, per unit of its total.

    The histogram is the prior: what one expects before looking at the data, cell by cell, in the unit of the published
    values. A noised cell below half the smallest positive weight is lifted to that floor, since a logarithm needs
    positive cells. Cells are noised independently, so the divergence is a sum of losses of single errors. For order 1
    the loss of a cell p that became q is ``p ln(p/q) - p + q`` (Kullback-Leibler, generalised to histograms whose total
    changed); for another order a it is ``(p^a q^(1-a) - a p + (a-1) q) / (a-1)``, and the Renyi divergence of order a
    is reported for the expected sum, which by Jensen's inequality is never less than the expected divergence.

    Args:
        prior: A file with one weight a line or lines ``value,weight`` (a heading is skipped), or the weights; at least
            one is positive. It must not come from the data that is released.
        order: 1 for Kullback-Leibler, or the order of the Renyi divergence.

    Raises:
        InvalidInput: The file cannot be read, or holds something that is not a weight.

    Source: R2DP, section 4; mathematics, section 1.
    """

    name: ClassVar[str] = "relative_entropy"
    symmetric: ClassVar[bool] = False
    prior: str | tuple[float, ...]
    order: float = 1.0
    #: The weight of each cell.
    given: np.ndarray = field(init=False, repr=False, compare=False)
    #: Different weights and how many cells have each; close ones are grouped.
    weights: np.ndarray = field(init=False, repr=False, compare=False)
    cells: np.ndarray = field(init=False, repr=False, compare=False)
    #: What a noised cell is lifted to.
    floor: float = field(init=False, repr=False, compare=False)
    digest: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        given = read_prior(self.prior) if isinstance(self.prior, str) else np.array(_weights(self.prior, "prior"))
        if not np.any(given > 0):
            raise invalid(
                "prior", "weights of which at least one is positive", "none", "Give the histogram you expect."
            )
        if not isinstance(self.prior, str):
            object.__setattr__(self, "prior", tuple(given.tolist()))
        object.__setattr__(self, "given", given)
        object.__setattr__(self, "order", ORDER.check(self.order))
        object.__setattr__(self, "floor", float(given[given > 0].min()) / 2)
        weights, cells = _grouped(given)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "cells", cells)
        object.__setattr__(self, "digest", hashlib.sha256(given.tobytes()).hexdigest()[:16])

    @classmethod
    def of(cls, argument: Any) -> RelativeEntropy:
        """Read ``{"prior": FILE or list, "order": 1}``; with a ``digest`` the prior must be the one it was made of."""
        if not isinstance(argument, dict) or "prior" not in argument:
            remedy = "For example {relative_entropy: {prior: expected.csv, order: 1}}."
            raise invalid("relative_entropy", "a prior and an order", argument, remedy)
        for key in argument:
            if key not in ("prior", "order", "digest"):
                raise unknown_key(f"relative_entropy.{key}", ("prior", "order"))
        prior = argument["prior"]
        if not isinstance(prior, (str, list, tuple)):
            raise invalid("prior", "a file or a list of weights", prior, "Give the histogram you expect.")
        metric = cls(prior if isinstance(prior, str) else tuple(prior), argument.get("order", 1.0))
        if argument.get("digest", metric.digest) != metric.digest:
            raise InvalidInput("prior must be the one the plan was made with; its content has changed. Plan again.")
        return metric

    def spec(self) -> dict[str, Any]:
        prior = self.prior if isinstance(self.prior, str) else list(self.prior)
        return {self.name: {"prior": prior, "order": self.order, "digest": self.digest}}

    def loss(self, x: np.ndarray) -> np.ndarray:
        errors = np.asarray(x, dtype=np.float64)
        flat = errors.ravel()
        positive = self.weights > 0
        p, cells = self.weights[positive], self.cells[positive]
        result = np.empty_like(flat)
        for start in range(0, len(flat), _CHUNK):
            part = slice(start, start + _CHUNK)
            ratios = np.maximum(flat[part, None], self.floor - p) / p
            result[part] = _divergence_of_ratio(ratios, self.order - 1) @ (p * cells)
        result += float(self.cells[~positive].sum()) * np.maximum(flat, self.floor)
        return result.reshape(errors.shape) / float(self.weights @ self.cells)

    def report(self, expected_loss: float) -> float:
        if self.order == 1:
            return expected_loss
        return math.log1p((self.order - 1) * expected_loss) / (self.order - 1)

    def divergence(self, noised: np.ndarray) -> np.ndarray:
        """The divergence from the prior's own cells to noised ones, both brought to a total of 1.

        Args:
            noised: Values of shape (..., cells), in the order of the prior.

        Returns:
            One divergence for each histogram, shape (...).
        """
        p, q = self.given / self.given.sum(), np.maximum(noised, self.floor)
        q /= q.sum(axis=-1, keepdims=True)
        kept = p > 0
        losses = np.log(p[kept]) - np.log(q[..., kept])
        if self.order == 1:
            return losses @ p[kept]
        losses *= self.order - 1
        top = losses.max(axis=-1, keepdims=True)  # taken out so as not to overflow
        return (np.log(np.exp(losses - top) @ p[kept]) + top[..., 0]) / (self.order - 1)


def _divergence_of_ratio(t: np.ndarray, b: float) -> np.ndarray:
    """``((1 + t)^-b - 1) / b + t``, at b = 0 ``t - ln(1 + t)``; by its series near 0, where the terms would cancel."""
    logs = np.log1p(t)
    result = t - logs if b == 0 else t + np.expm1(-b * logs) / b
    near = np.abs(t) < 0.08 / (b + 4)
    if np.any(near):
        small = t[near]
        coefficients = [(b + 1) / 2]
        for k in range(2, 10):
            coefficients.append(-coefficients[-1] * (b + k) / (k + 1))
        result[near] = small**2 * np.polynomial.polynomial.polyval(small, coefficients)
    return result


def _weights(given: Any, name: str) -> list[float]:
    if not 1 <= len(given) <= MOST_CELLS:
        raise invalid(name, f"1 to {MOST_CELLS} weights", len(given), "Use wider cells.")
    return [PRIOR_WEIGHT.named(f"{name}[{place}]").check(weight) for place, weight in enumerate(given)]


def read_prior(path: str) -> np.ndarray:
    """The weights of a file: one a line, or the second column of ``value,weight``; a first line of words is skipped."""
    return np.array(_weights([row[-1] for row in read_rows(path)], "prior"))


def read_rows(path: str) -> list[list[float]]:
    """The lines of a prior, each a weight, or a value and a weight.

    Raises:
        InvalidInput: The file cannot be read, or a line is neither.
    """
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as lines:
            rows = [row for row in csv.reader(lines) if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error):
        raise invalid(
            "prior", "a text file that can be read", path, "Write one weight a line, or value,weight."
        ) from None
    if rows and not _is_number(rows[0][-1]):
        rows = rows[1:]
    if not rows:
        raise invalid("prior", "a file with at least one weight", path, "Write one weight a line, or value,weight.")
    for place, row in enumerate(rows):
        if len(row) > 2 or len(row) != len(rows[0]) or not _is_number(row[-1]):
            constraint = f"one weight a line, or value,weight; line {place + 1} of weights is not"
            raise InvalidInput(f"prior must be {constraint}. Weights are plain numbers such as 12.5.")
    return [[*(float(value) if _is_number(value) else math.nan for value in row[:-1]), float(row[-1])] for row in rows]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _grouped(given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Different weights and their numbers of cells.

    Many different weights are grouped by their logarithm; a group becomes two halves that keep the mean and the spread
    of the logarithms.
    """
    weights, cells = np.unique(given, return_counts=True)
    if len(weights) <= MOST_WEIGHTS:
        return weights, cells.astype(np.float64)
    zeros = int(weights[0] == 0)
    logs, counts = np.log(weights[zeros:]), cells[zeros:].astype(np.float64)
    groups = (MOST_WEIGHTS - zeros) // 2
    index = np.minimum((logs - logs[0]) / (logs[-1] - logs[0]) * groups, groups - 1).astype(np.int64)
    sizes = np.bincount(index, counts)
    index, sizes = np.unique(index, return_inverse=True)[1], sizes[sizes > 0]
    means = np.bincount(index, counts * logs) / sizes
    spread = np.sqrt(np.bincount(index, counts * (logs - means[index]) ** 2) / sizes)
    grouped = np.exp(np.concatenate([means - spread, means + spread]))
    return np.append(weights[:zeros], grouped), np.concatenate([cells[:zeros], sizes / 2, sizes / 2])


#: Metrics configuration can name: those without a parameter, and those with one.
PLAIN: dict[str, Callable[[], Metric]] = {"l1": L1, "l2": L2}
WITH_ARGUMENT: dict[str, Callable[[Any], Metric]] = {
    "lp": Lp,
    "usefulness": Usefulness,
    "mallows": Mallows,
    "relative_entropy": RelativeEntropy.of,
}
