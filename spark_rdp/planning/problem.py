"""A question to the additive planner, and what meets its budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from spark_rdp.domains import COORDINATES, DELTA, EPSILON, SENSITIVITY
from spark_rdp.errors import InvalidInput, JobFailed, invalid
from spark_rdp.lattice import Lattice
from spark_rdp.mechanisms.base import Additive
from spark_rdp.mechanisms.staircase import best_step
from spark_rdp.metrics import Metric
from spark_rdp.privacy.verify import verify

#: The largest sensitivity in lattice units.
LARGEST_STEPS = 2**40
#: The largest scale of the noise in lattice units; a draw beyond 2**62 then has probability e^-128.
LARGEST_SCALE = 2.0**55
#: The smallest budget of one coordinate: below it, what the sampler may add is no longer small beside it.
SMALLEST_SHARE = 1e-10
#: Every plan spends at least this share of its budget.
SPENT = 0.999
#: How far the two routes to the loss may lie apart, relatively.
DISAGREEMENT = 1e-9
#: Two metric values this close, relatively, are a tie to a reader; the simpler mechanism wins it.
TIE = 1e-3


@dataclass(frozen=True)
class Problem:
    """A checked question: at most ``coordinates`` published values change, each by at most ``steps`` lattice units."""

    epsilon: float
    delta: float
    sensitivity: float
    coordinates: int
    lattice: Lattice
    steps: int
    metric: Metric

    @property
    def share(self) -> float:
        """The budget of one coordinate: noise is independent, so losses of coordinates add up (mathematics: 1.2)."""
        return self.epsilon / self.coordinates

    def loss(self, mechanism: Additive) -> float:
        """The verified loss over the whole profile: the larger of the mechanism's own formula and the second route.

        Raises:
            JobFailed: The mass function loses more than the mechanism's formula claims, beyond rounding.
        """
        claimed = mechanism.loss(self.steps)
        if self.coordinates * claimed > self.epsilon:  # too much already: no need to look further
            return self.coordinates * claimed
        verified = verify(mechanism, self.steps)
        if not verified <= claimed * (1 + DISAGREEMENT) + 2.0**-44:
            raise JobFailed(
                f"The noise {mechanism.name!r} loses {verified!r} where its formula claims {claimed!r}. "
                "This is a fault of the library: nothing was released; please report it."
            )
        return self.coordinates * max(claimed, verified)

    @property
    def unit(self) -> float:
        """The lattice unit to plan with: 1 for metrics that scale with it, so that high powers do not overflow."""
        return 1.0 if self.metric.scales else self.lattice.granularity

    def reported(self, expected_loss: float) -> float:
        """What the metric reports for an expected loss that was worked out with `unit`."""
        value = self.metric.report(expected_loss)
        return self.lattice.granularity * value if self.metric.scales else value

    def value(self, mechanism: Additive) -> float:
        """What the metric reports for a mechanism."""
        return self.reported(mechanism.expectation(self.metric, self.unit))

    @cached_property
    def best_step(self) -> int:
        """The staircase step for the metric."""
        return best_step(self.share, self.steps, self.metric, self.unit)


@dataclass(frozen=True)
class Candidate:
    """A mechanism that meets the budget, and what the metric says of it.

    Args:
        mechanism: The noise.
        verified_epsilon: Its loss over the whole profile.
        value: What the metric reports for it.
        certificate: As `Plan.certificate`, where the builder knows how good its kind of noise can be.
    """

    mechanism: Additive
    verified_epsilon: float
    value: float
    certificate: dict[str, Any] | None = None


#: Finds the mechanism of one kind for a problem; raises InvalidInput where it cannot serve it.
Builder = Callable[[Problem], Candidate]


def preferred(values: Mapping[str, float | None], higher_is_better: bool) -> tuple[str, str]:
    """The first mechanism whose metric value ties with the best one, and the best one.

    Args:
        values: Metric value of each mechanism, the simplest mechanism first; at least one is not None.
        higher_is_better: Whether the value is a probability of success; two of them tie only if the probabilities of
            failure do, too.
    """
    known = {name: value for name, value in values.items() if value is not None}
    best = (max if higher_is_better else min)(known, key=known.__getitem__)
    size = min(known[best], 1 - known[best]) if higher_is_better else abs(known[best])
    return next(name for name, value in known.items() if abs(value - known[best]) <= TIE * size), best


def tie(chosen: str, best: str) -> str:
    """Why a mechanism was chosen that is not the very best."""
    return f"{chosen} ties with {best} (less than {TIE:.1%} apart) and is simpler".replace("%", " %")


def fit(problem: Problem, make: Callable[[float], Additive]) -> Candidate:
    """Build a mechanism on the safe side of the budget.

    Args:
        problem: The question.
        make: Builds the mechanism whose loss for ``problem.steps`` is meant to be its argument; it must lose less when
            its argument is smaller.

    Raises:
        InvalidInput: The budget is too small for the sampler's precision.
    """
    share = problem.share
    for _ in range(20):
        mechanism = make(share)
        loss = problem.loss(mechanism)
        if SPENT * problem.epsilon < loss <= problem.epsilon:
            return Candidate(mechanism, loss, problem.value(mechanism))
        share -= 1.25 * (loss - problem.epsilon) / problem.coordinates + 2.0**-53 * share
        if loss <= problem.epsilon or not share > 0:
            break
    raise InvalidInput(
        f"epsilon must be larger for {problem.coordinates} coordinates; got {problem.epsilon!r}. "
        "Fewer coordinates, or a larger epsilon, leave each of them enough."
    )


def pose(epsilon: Any, sensitivity: Any, metric: Any, coordinates: Any, granularity: Any, delta: Any) -> Problem:
    """Check every argument and choose the lattice."""
    budget = EPSILON.check(epsilon)
    change = SENSITIVITY.check(sensitivity)
    goal = Metric.from_spec(metric)
    count = COORDINATES.check(coordinates)
    failure = DELTA.check(delta)
    share = budget / count
    if not share >= SMALLEST_SHARE * (1 - 1e-9):
        least = f"at least {SMALLEST_SHARE * count:g} for {count} coordinates"
        raise invalid("epsilon", least, epsilon, "Let one unit change fewer values.")
    lattice = Lattice.for_sensitivity(change) if granularity is None else Lattice.of_granularity(granularity)
    most = min(LARGEST_STEPS, int(LARGEST_SCALE * share))
    steps = lattice.steps(change)
    if steps > most:
        coarser = f"Use a granularity of at least {change / most:.3g}."
        raise invalid("granularity", f"no finer than sensitivity / {most} here", granularity, coarser)
    return Problem(budget, failure, change, count, lattice, steps, goal)
