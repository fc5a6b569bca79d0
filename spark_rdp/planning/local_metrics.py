"""What "good" means for one noised bounded value: a variance or a probability, over the inputs that matter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from spark_rdp.domains import BOUND, GAMMA, Real
from spark_rdp.errors import InvalidInput, invalid
from spark_rdp.mechanisms.local import Local
from spark_rdp.planning.fitting import Goal

AVERAGE, WORST, CENTER, PRIOR, USEFULNESS = (
    "average-variance",
    "worst-variance",
    "center-variance",
    "prior-variance",
    "usefulness",
)
#: Inputs an average is taken over.
_POINTS = 256
_MASS = Real("prior weight", 0.0, 1e100, "Give one weight, not negative, for each bin.")


@dataclass(frozen=True)
class Prior:
    """A histogram of the inputs one expects.

    Args:
        edges: Ends of the bins, increasing, in the unit of the value.
        weights: One for each bin; not negative, not all 0. They need not sum to 1.
    """

    edges: tuple[float, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        edges = tuple(BOUND.named("prior edge").check(edge) for edge in self.edges)
        weights = tuple(_MASS.check(weight) for weight in self.weights)
        ordered = all(low < high for low, high in pairwise(edges))
        if len(edges) != len(weights) + 1 or not weights or not ordered or not sum(weights) > 0:
            raise InvalidInput(
                "prior must be increasing edges and one weight for each bin between them, not all 0. "
                "For example: {edges: [0, 10, 100], weights: [0.9, 0.1]}."
            )
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "weights", weights)

    @classmethod
    def from_spec(cls, spec: Any) -> Prior:
        """Read ``{"edges": [...], "weights": [...]}``; a prior stays as it is."""
        if isinstance(spec, Prior):
            return spec
        if not isinstance(spec, dict) or set(spec) != {"edges", "weights"}:
            raise invalid(
                "prior", "a histogram {edges: [...], weights: [...]}", spec, "Give public or expected counts."
            )
        return cls(tuple(spec["edges"]), tuple(spec["weights"]))

    def spec(self) -> dict[str, Any]:
        """The prior as configuration writes it."""
        return {"edges": list(self.edges), "weights": list(self.weights)}

    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """Points that stand for the histogram, and their weights."""
        each = max(4, _POINTS // len(self.weights))
        edges = np.array(self.edges)
        inside = (np.arange(each) + 0.5) / each
        points = (edges[:-1, None] + np.diff(edges)[:, None] * inside).ravel()
        weights = np.repeat(np.array(self.weights) / each, each)
        kept = weights > 0
        return points[kept], weights[kept] / weights.sum()


@dataclass(frozen=True)
class LocalMetric:
    """A metric of local noise on one range.

    Args:
        kind: One of the names above.
        lower, upper: The range.
        prior: For PRIOR.
        gamma: For USEFULNESS: the largest error that is still useful.
    """

    kind: str
    lower: float
    upper: float
    prior: Prior | None = None
    gamma: float | None = None

    @classmethod
    def of(cls, metric: Any, lower: float, upper: float, prior: Any) -> LocalMetric:
        """Read a metric as configuration writes it: a name, ``{"usefulness": 0.1}``, ``{"prior-variance": {...}}``."""
        kind, argument = next(iter(metric.items())) if isinstance(metric, dict) and len(metric) == 1 else (metric, None)
        if kind == PRIOR:
            expected = Prior.from_spec(argument if prior is None else prior)
            if expected.edges[0] < lower or expected.edges[-1] > upper:
                raise InvalidInput("prior must lie within lower and upper. Clamp its outer edges to the range.")
            return cls(kind, lower, upper, prior=expected)
        if kind == USEFULNESS and argument is not None:
            return cls(kind, lower, upper, gamma=GAMMA.check(argument))
        if kind in (AVERAGE, WORST, CENTER) and argument is None:
            return cls(kind, lower, upper)
        choices = f"{AVERAGE}, {WORST}, {CENTER}, {{{PRIOR}: HISTOGRAM}}, {{{USEFULNESS}: NUMBER}}"
        raise invalid("metric", f"one of {choices}", metric, f"{AVERAGE} suits most collections.")

    @property
    def higher_is_better(self) -> bool:
        """Whether the larger value is the better one."""
        return self.kind == USEFULNESS

    def spec(self) -> str | dict[str, Any]:
        """The metric as configuration writes it."""
        if self.prior is not None:
            return {self.kind: self.prior.spec()}
        return self.kind if self.gamma is None else {self.kind: self.gamma}

    @cached_property
    def inputs(self) -> tuple[np.ndarray, np.ndarray]:
        """The inputs that matter, and their weights."""
        if self.prior is not None:
            return self.prior.points()
        if self.kind == CENTER:
            return np.array([self.lower / 2 + self.upper / 2]), np.ones(1)
        shares = (np.arange(_POINTS) + 0.5) / _POINTS
        if self.kind == WORST:
            shares = np.linspace(0, 1, 2 * _POINTS + 1)
        return self.lower + (self.upper - self.lower) * shares, np.full(len(shares), 1 / len(shares))

    def value(self, mechanism: Local) -> float:
        """What the metric says of a mechanism."""
        x, weights = self.inputs
        if self.gamma is not None:
            return float(weights @ mechanism.usefulness(x, self.gamma))
        variance = mechanism.variance(x)
        return float(variance.max() if self.kind == WORST else weights @ variance)

    @property
    def second_moment(self) -> float:
        """E[(x - centre)^2] / range^2 of the inputs that decide: all a Podium's variance depends on."""
        if self.kind == WORST:
            return 0.25
        if self.kind == AVERAGE:
            return 1 / 12
        x, weights = self.inputs
        return float(weights @ ((x - self.lower / 2 - self.upper / 2) / (self.upper - self.lower)) ** 2)

    def goal(self) -> Goal:
        """The metric for `planning.fitting`."""
        if self.kind == WORST:
            return Goal(worst=True)
        x, weights = self.inputs
        points = (x - self.lower) / (self.upper - self.lower) - 0.5
        if self.kind == AVERAGE:  # the same numbers for every range, so that a fit is found again
            points = (np.arange(_POINTS) + 0.5) / _POINTS - 0.5
        return Goal(tuple(points.tolist()), tuple(weights.tolist()))
