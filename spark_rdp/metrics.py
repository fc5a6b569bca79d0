"""What "good" means: the loss of an error, and how its expectation is reported.

Planning always minimises E[loss(error)]. The reported value is the one a person reads: the root mean square rather
than the mean square, the probability of being useful rather than of failing.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from spark_rdp.domains import EXPONENT, GAMMA
from spark_rdp.errors import InvalidInput, invalid
from spark_rdp.series import tail_sum


class Metric(ABC):
    """A loss of the error of one published value, in the unit of that value."""

    name: ClassVar[str]
    #: Whether a larger reported value is the better one.
    higher_is_better: ClassVar[bool] = False
    #: Whether the loss is symmetric and does not decrease with the size of the error.
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
        return self.loss(x) if self.increasing else (self.loss(x) + self.loss(-x)) / 2

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
        """Read ``"l1"``, ``"l2"``, ``{"lp": 3}``, ``{"usefulness": 5}``, ``{"mallows": 1}``; a metric stays as it is.

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
        choices = ", ".join([*PLAIN, *(f"{{{name}: NUMBER}}" for name in WITH_ARGUMENT)])
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
    increasing: ClassVar[bool] = False
    function: Callable[[np.ndarray], np.ndarray]

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


#: Metrics configuration can name: those without a parameter, and those with one.
PLAIN: dict[str, Callable[[], Metric]] = {"l1": L1, "l2": L2}
WITH_ARGUMENT: dict[str, Callable[[Any], Metric]] = {"lp": Lp, "usefulness": Usefulness, "mallows": Mallows}
