"""What is published about each group."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    InstanceOf,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

from spark_rdp.domains import LARGEST
from spark_rdp.errors import InvalidInput
from spark_rdp.lattice import Lattice
from spark_rdp.metrics import Metric
from spark_rdp.planning import additive
from spark_rdp.planning import selection as selecting
from spark_rdp.queries.base import Bound, Granularity, Level, Maximum, MaxPerGroup, Refused, Strict, Weight, refuse
from spark_rdp.queries.keys import MOST_EDGES, Edges

#: The smallest bound, and half-width of two bounds, whose lattice is still within the domain of a granularity.
FINEST = 1e-90
#: Geometric noise moved into the declared range of a count.
TRUNCATED = "truncated-geometric"
NEVER_INFERRED = "Bounds are never read from the data: give a number that holds without looking at it."

TWO_BOUNDS = "Give two different bounds, the smaller one first."


def _metric(given: Any) -> Any:
    return given if isinstance(given, Metric) else Metric.from_spec(given)


def _mechanism(given: Any) -> Any:
    if not isinstance(given, str) or given not in additive.names():
        raise refuse("", f"one of {', '.join(additive.names())}", given, "`auto` takes the best one for the metric.")
    return given


def _count_mechanism(given: Any) -> Any:
    return given if given == TRUNCATED else _mechanism(given)


def _selector(given: Any) -> Any:
    if given not in selecting.names():
        raise refuse("", f"one of {', '.join(selecting.names())}", given, "`auto` takes the best one.")
    return given


def _level(given: float) -> float:
    try:
        selecting.level_fraction(given)
    except InvalidInput as failure:
        raise Refused("", str(failure).removeprefix("level")) from None
    return given


def _granularity(given: float) -> float:
    try:
        return Lattice.of_granularity(given).granularity
    except InvalidInput as failure:
        raise Refused("", str(failure).removeprefix("granularity")) from None


def _name(given: Any) -> Any:
    if not isinstance(given, str) or not given.isidentifier() or len(given) > 100:
        constraint = "at most 100 letters, digits and underscores, the first no digit"
        raise refuse("", constraint, given, "It becomes the name of a column.")
    return given


MetricSpec = Annotated[
    InstanceOf[Metric],
    BeforeValidator(_metric),
    PlainSerializer(lambda metric: metric.spec()),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]}),
]
Mechanism = Annotated[str, BeforeValidator(_mechanism)]
CountMechanism = Annotated[str, BeforeValidator(_count_mechanism)]
SelectionMechanism = Annotated[str, BeforeValidator(_selector)]
QuantileLevel = Annotated[Level, AfterValidator(_level)]
Name = Annotated[str, BeforeValidator(_name)]
PowerOfTwo = Annotated[Granularity, AfterValidator(_granularity)]
Column = Annotated[str, Field(min_length=1)]


class Measure(Strict):
    """What all measures share.

    Args:
        name: The published column.
        weight: The share of the budget, relative to the other measures.
    """

    name: Name = Field(description="Name the published column.")
    weight: Weight = 1.0

    @property
    def needs_delta(self) -> bool:
        """Whether its noise is only private with a delta, so that it takes a share of ``privacy.delta``."""
        return False


class NoisedMeasure(Measure):
    """What measures share that get noise added.

    Args:
        metric: The error to keep small; the default is the root mean square.
        mechanism: ``auto`` for the best pure mechanism, or the name of one. Gaussian noise, which needs a delta, is
            only taken where it is asked for by name.
        granularity: The lattice, a power of two in the unit of the value; planned when left out.
    """

    #: Published values are whole numbers, so the lattice is not a choice.
    whole: ClassVar[bool] = False

    metric: MetricSpec = Field(default="l2", validate_default=True)
    mechanism: Mechanism = "auto"
    granularity: PowerOfTwo | None = None

    @property
    def noise(self) -> str:
        """The name of the mechanism the noise is planned with."""
        return self.mechanism

    @property
    def needs_delta(self) -> bool:
        """Whether Gaussian noise was asked for."""
        return self.mechanism in additive.NEED_DELTA

    @model_validator(mode="after")
    def _whole_numbers(self) -> NoisedMeasure:
        if self.whole and self.granularity not in (None, 1.0):
            raise refuse("granularity", "1 for whole numbers", self.granularity, "Leave it out.")
        return self


class _Counted(NoisedMeasure):
    """What counts share.

    Args:
        maximum: A declared most; published counts and their intervals are moved into 0 to ``maximum``.
        mechanism: As everywhere, or ``truncated-geometric``: geometric noise, moved into 0 to ``maximum``, the
            tight-constraints mechanism of the counts there can be.
    """

    whole: ClassVar[bool] = True
    maximum: Maximum | None = None
    mechanism: CountMechanism = "auto"

    @property
    def noise(self) -> str:
        return "laplace" if self.mechanism == TRUNCATED else self.mechanism

    @model_validator(mode="after")
    def _with_maximum(self) -> _Counted:
        if self.mechanism == TRUNCATED and self.maximum is None:
            raise refuse("maximum", f"given with {TRUNCATED}", None, "Declare the most a count can be.")
        return self


class Count(_Counted):
    """The number of rows, or of rows where ``column`` is not null.

    A unit counts at most ``max_per_group`` times in a group.
    """

    type: Literal["count"] = "count"
    column: Column | None = None
    max_per_group: MaxPerGroup | None = None


class CountUnits(_Counted):
    """The number of privacy units with at least one row in the group."""

    type: Literal["count_units"] = "count_units"


class _Bounded(NoisedMeasure):
    column: Column = Field(description="Name the column of the values.")
    lower: Bound = Field(description=NEVER_INFERRED)
    upper: Bound = Field(description=NEVER_INFERRED)


class Sum(_Bounded):
    """The sum of ``column``; ``lower`` and ``upper`` bound the total of one unit in one group."""

    type: Literal["sum"] = "sum"

    @model_validator(mode="after")
    def _bounds(self) -> Sum:
        if not self.lower < self.upper:
            raise refuse("lower", f"below upper ({self.upper!r})", self.lower, TWO_BOUNDS)
        if max(abs(self.lower), abs(self.upper)) < FINEST:
            raise refuse(
                "upper", f"{FINEST} or more if lower is near 0", self.upper, "Use another unit of measurement."
            )
        return self


class Mean(_Bounded):
    """The mean of ``column``; ``lower`` and ``upper`` bound each value.

    A unit counts as at most ``max_per_group`` rows of a group, at its own average.
    """

    type: Literal["mean"] = "mean"
    max_per_group: MaxPerGroup = 1

    @model_validator(mode="after")
    def _bounds(self) -> Mean:
        if not self.lower < self.upper:
            raise refuse("lower", f"below upper ({self.upper!r})", self.lower, TWO_BOUNDS)
        widest = max(abs(self.lower), abs(self.upper))
        if self.upper - self.lower < max(2 * FINEST, 1e-9 * widest):
            constraint = f"further below upper ({self.upper!r})"
            raise refuse("lower", constraint, self.lower, "Doubles so close cannot be told apart reliably.")
        if (self.upper / 2 - self.lower / 2) * self.max_per_group > LARGEST / 10:
            constraint = f"closer to lower ({self.lower!r}) when {self.max_per_group} rows of a unit count"
            raise refuse("upper", constraint, self.upper, "Use another unit of measurement.")
        if self.metric.key() not in ("l1", "l2", "lp", "mallows"):
            remedy = "Other errors of a mean depend on its noisy count, which no plan can know."
            raise refuse("metric", "l1, l2, lp or mallows for a mean", self.metric.spec(), remedy)
        return self


class Histogram(NoisedMeasure):
    """How many rows have ``column`` in each bin; a unit contributes at most ``max_per_group`` rows to a group."""

    whole: ClassVar[bool] = True
    type: Literal["histogram"] = "histogram"
    column: Column = Field(description="Name the column of the values.")
    bins: Edges
    max_per_group: MaxPerGroup = 1

    @model_validator(mode="after")
    def _changes(self) -> Histogram:
        if self.needs_delta and self.max_per_group > 1:
            remedy = "Rows of one unit may share a bin, which pure noise charges per row and Gaussian noise does not."
            raise refuse("max_per_group", f"1 for {self.mechanism} noise", self.max_per_group, remedy)
        return self


class Quantile(Measure):
    """A quantile of ``column``: one of declared candidates, selected privately; 0.5 is the median.

    Every value counts for the candidate nearest to it. Published are the candidate selected, and an interval between
    two more candidates, selected at ranks so far to both sides that it holds the exact quantile of the bounded values
    with 95 % probability. Half of the budget goes to the value, a quarter to each end.

    Args:
        level: Between 0 and 1; a fraction with a denominator up to 1000.
        candidates: What the quantile may be, increasing.
        lower, upper, step: Instead of a list: every ``step`` from ``lower`` to ``upper``.
        max_per_group: The most rows of a unit that count in a group.
        mechanism: ``auto`` (permute-and-flip, which is never worse), ``permute-and-flip`` or ``exponential``.
    """

    type: Literal["quantile"] = "quantile"
    column: Column = Field(description="Name the column of the values.")
    level: QuantileLevel = 0.5
    candidates: Edges | None = None
    lower: Bound | None = Field(default=None, description=NEVER_INFERRED)
    upper: Bound | None = Field(default=None, description=NEVER_INFERRED)
    step: Bound | None = None
    max_per_group: MaxPerGroup = 1
    mechanism: SelectionMechanism = selecting.AUTO

    @property
    def values(self) -> tuple[float, ...]:
        """The candidates, increasing."""
        if self.candidates is not None:
            return self.candidates
        assert self.lower is not None
        assert self.upper is not None
        assert self.step is not None
        steps = round((self.upper - self.lower) / self.step)
        return tuple(self.lower + (self.upper - self.lower) * (place / steps) for place in range(steps + 1))

    @property
    def edges(self) -> tuple[float, ...]:
        """The edges of the bins of values nearest to each candidate; those in the middle count for the larger one."""
        values = self.values
        return (values[0], *(low / 2 + high / 2 for low, high in pairwise(values)), values[-1])

    @model_validator(mode="after")
    def _grid(self) -> Quantile:
        grid = {"lower": self.lower, "upper": self.upper, "step": self.step}
        if self.candidates is not None:
            for key, given in grid.items():
                if given is not None:
                    raise refuse(key, "left out beside candidates", given, "Give a list or a grid.")
        else:
            for key, given in grid.items():
                if given is None:
                    raise refuse(key, "given, or candidates instead", given, NEVER_INFERRED)
            self._check_grid(*grid.values())  # type: ignore[arg-type]
        if any(not low < high for low, high in pairwise(self.edges)):
            key = "step" if self.candidates is None else "candidates"
            raise refuse(key, "such that doubles lie between candidates", getattr(self, key), "Spread them.")
        return self

    @staticmethod
    def _check_grid(lower: float, upper: float, step: float) -> None:
        if not lower < upper:
            raise refuse("lower", f"below upper ({upper!r})", lower, TWO_BOUNDS)
        steps = (upper - lower) / step if step > 0 else 0.0
        if not 0.5 < steps < MOST_EDGES - 1.5 or abs(steps - round(steps)) > 1e-6:
            constraint = f"positive, with a whole number of steps, at most {MOST_EDGES - 2}, from lower to upper"
            raise refuse("step", constraint, step, "Every step from lower to upper is a candidate.")


AnyMeasure = Annotated[Count | CountUnits | Sum | Mean | Histogram | Quantile, Field(discriminator="type")]
