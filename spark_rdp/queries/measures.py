"""What is published about each group."""

from __future__ import annotations

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
from spark_rdp.queries.base import Bound, Granularity, MaxPerGroup, Refused, Strict, Weight, refuse
from spark_rdp.queries.keys import Edges

#: The smallest bound, and half-width of two bounds, whose lattice is still within the domain of a granularity.
FINEST = 1e-90
NEVER_INFERRED = "Bounds are never read from the data: give a number that holds without looking at it."

TWO_BOUNDS = "Give two different bounds, the smaller one first."


def _metric(given: Any) -> Any:
    return given if isinstance(given, Metric) else Metric.from_spec(given)


def _mechanism(given: Any) -> Any:
    if not isinstance(given, str) or given not in additive.names():
        raise refuse("", f"one of {', '.join(additive.names())}", given, "`auto` takes the best one for the metric.")
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
Name = Annotated[str, BeforeValidator(_name)]
PowerOfTwo = Annotated[Granularity, AfterValidator(_granularity)]
Column = Annotated[str, Field(min_length=1)]


class Measure(Strict):
    """What all measures share.

    Args:
        name: The published column.
        metric: The error to keep small; the default is the root mean square.
        mechanism: ``auto`` or the name of a mechanism.
        weight: The share of the budget, relative to the other measures.
        granularity: The lattice, a power of two in the unit of the value; planned when left out.
    """

    #: Published values are whole numbers, so the lattice is not a choice.
    whole: ClassVar[bool] = False

    name: Name = Field(description="Name the published column.")
    metric: MetricSpec = Field(default="l2", validate_default=True)
    mechanism: Mechanism = "auto"
    weight: Weight = 1.0
    granularity: PowerOfTwo | None = None

    @model_validator(mode="after")
    def _whole_numbers(self) -> Measure:
        if self.whole and self.granularity not in (None, 1.0):
            raise refuse("granularity", "1 for whole numbers", self.granularity, "Leave it out.")
        return self


class Count(Measure):
    """The number of rows, or of rows where ``column`` is not null.

    A unit counts at most ``max_per_group`` times in a group.
    """

    whole: ClassVar[bool] = True
    type: Literal["count"] = "count"
    column: Column | None = None
    max_per_group: MaxPerGroup | None = None


class CountUnits(Measure):
    """The number of privacy units with at least one row in the group."""

    whole: ClassVar[bool] = True
    type: Literal["count_units"] = "count_units"


class _Bounded(Measure):
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


class Histogram(Measure):
    """How many rows have ``column`` in each bin; a unit contributes at most ``max_per_group`` rows to a group."""

    whole: ClassVar[bool] = True
    type: Literal["histogram"] = "histogram"
    column: Column = Field(description="Name the column of the values.")
    bins: Edges
    max_per_group: MaxPerGroup = 1


AnyMeasure = Annotated[Count | CountUnits | Sum | Mean | Histogram, Field(discriminator="type")]
