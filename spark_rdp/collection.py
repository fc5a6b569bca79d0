"""From a collection query to its plans: one noise plan per column. Nothing here looks at data."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.local_build import build_local
from spark_rdp.planning.finite import plan_finite
from spark_rdp.planning.local import AUTO, plan_local
from spark_rdp.planning.local_metrics import WORST, LocalMetric
from spark_rdp.planning.plan import Plan
from spark_rdp.planning.problem import TIE
from spark_rdp.queries import AnyColumn, CellColumn, CollectQuery, NoisedColumn, Sharing, check_id

#: With k values reported, each has the k-th part of the budget; the best k is near the budget over this.
EPSILON_OF_ONE = 2.5


@dataclass(frozen=True)
class Share:
    """Values of one row that share one budget: all are reported, or each row reports some, drawn without its data.

    Attributes:
        columns: The columns the values are of.
        epsilon: The budget of all reports of a row together.
        values: How many values there are; an array counts as many as its elements.
        reported: How many of them a row reports, each with an equal part of the budget.
        alternatives: For each number that was compared, the variance of a published value over its squared range,
            averaged over the values; empty where nothing was to be chosen.
    """

    columns: tuple[str, ...]
    epsilon: float
    values: int
    reported: int
    alternatives: Mapping[int, float] = field(default_factory=dict)

    @property
    def scale(self) -> float:
        """What the distance of a report from the constant of the unreported values is multiplied by."""
        return self.values / self.reported

    def content(self) -> dict[str, Any]:
        """The share as JSON values."""
        return {
            "columns": list(self.columns),
            "epsilon": self.epsilon,
            "values": self.values,
            "reported": self.reported,
            "scale": self.scale,
            "alternatives": {str(number): score for number, score in self.alternatives.items()},
        }

    @classmethod
    def of_content(cls, content: Mapping[str, Any]) -> Share:
        """The share whose `content` it was."""
        compared = {int(number): score for number, score in content["alternatives"].items()}
        return cls(tuple(content["columns"]), content["epsilon"], content["values"], content["reported"], compared)


@dataclass(frozen=True)
class ColumnPlan:
    """How a column is published.

    A reported value x is published as ``unsampled + scale * (report - unsampled)``, where the report is x with the
    noise of the plan; any other value as ``unsampled``. The mean of both is x.

    Attributes:
        column: Its name.
        kind: What its values are.
        length: How many elements its arrays have; None for single values.
        plan: The noise of one report.
        share: The budget it is part of.
        cells: What the cells are, for places and categories; ``lower`` and ``upper`` are then the numbers of the first
            and the last one, and the epsilon of the plan is per unit of distance.
    """

    column: str
    kind: str
    lower: float
    upper: float
    length: int | None
    plan: Plan
    share: Share
    cells: Mapping[str, Any] | None = None

    @property
    def epsilon(self) -> float:
        """The most one row spends on this column; for places, between the two cells farthest apart."""
        if self.cells is not None:
            return self.share.epsilon
        return float(min(self.share.reported, self.length or 1) * Decimal(repr(self.plan.epsilon)))

    @property
    def unsampled(self) -> float | None:
        """What stands for a value that is not reported: half a lattice step beside the middle of the range.

        So it is not a report, as long as doubles that far from 0 hold half steps. None where all are reported.
        """
        if self.share.reported == self.share.values:
            return None
        step = self.plan.granularity
        return (math.floor((self.lower / 2 + self.upper / 2) / step) + 0.5) * step

    @property
    def stream(self) -> str:
        """Names the noise: what it depends on besides secret, collection, column, row and value."""
        noise = [self.plan.mechanism, self.plan.parameters, *([] if self.cells is None else [dict(self.cells)])]
        text = json.dumps(noise, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def content(self) -> dict[str, Any]:
        """The plan as JSON values, with all that an estimate needs."""
        return {
            "column": self.column,
            "kind": self.kind,
            "lower": self.lower,
            "upper": self.upper,
            "length": self.length,
            "plan": json.loads(self.plan.to_json()),
            "share": self.share.content(),
            "unsampled": self.unsampled,
            "stream": self.stream,
            **({} if self.cells is None else {"cells": dict(self.cells)}),
        }

    @classmethod
    def of_content(cls, content: Mapping[str, Any]) -> ColumnPlan:
        """The plan whose `content` it was."""
        named = {name: content[name] for name in ("column", "kind", "lower", "upper", "length")}
        plan = Plan.from_json(json.dumps(content["plan"]))
        return cls(**named, plan=plan, share=Share.of_content(content["share"]), cells=content.get("cells"))


@dataclass(frozen=True)
class CollectPlan:
    """The noise of every column of a collection.

    Attributes:
        query_digest: The digest of the query it was made from.
        columns: How each noised column is published, by its name, in the order of publication.
    """

    query_digest: str
    columns: Mapping[str, ColumnPlan]

    @property
    def shares(self) -> tuple[Share, ...]:
        """The budgets, each once."""
        return tuple({item.share.columns: item.share for item in self.columns.values()}.values())

    @property
    def epsilon(self) -> float:
        """What one report of all columns spends: the sum of the budgets, as decimal numbers are added."""
        return float(sum(Decimal(repr(share.epsilon)) for share in self.shares))

    def content(self) -> dict[str, Any]:
        """The plan as JSON values."""
        return {"query_digest": self.query_digest, "columns": [item.content() for item in self.columns.values()]}

    @classmethod
    def of_content(cls, content: Mapping[str, Any]) -> CollectPlan:
        """The plan whose `content` it was."""
        columns = [ColumnPlan.of_content(item) for item in content["columns"]]
        return cls(content["query_digest"], {item.column: item for item in columns})


def plan_collect(query: CollectQuery) -> CollectPlan:
    """Plan the noise of a collection.

    Raises:
        InvalidInput: A mechanism cannot serve its column; the message names the column's place in the query.
    """
    planned: dict[int, ColumnPlan] = {}
    for sharing in query.sharings:
        planned |= _plan_share(query, sharing)
    return CollectPlan(query.digest(), {item.column: planned[place] for place, item in enumerate(query.columns)})


def _plan_share(query: CollectQuery, sharing: Sharing) -> dict[int, ColumnPlan]:
    """The columns of one budget, with the number of reports that was asked for or, by the planner, is the best."""
    values = sum(query.columns[place].values for place in sharing.places)
    if sharing.sample != AUTO:
        return _with_reports(query, sharing, values, int(sharing.sample))
    near = sharing.epsilon / EPSILON_OF_ONE
    numbers = sorted({min(max(number, 1), values) for number in (1, math.floor(near), math.ceil(near), values)})
    plans: dict[int, dict[int, ColumnPlan]] = {}
    for number in numbers:  # the largest parts of the budget first: if one is too small, so are the others
        try:
            plans[number] = _with_reports(query, sharing, values, number)
        except InvalidInput:
            if not plans:
                raise
    if values == 1:
        return plans[1]
    scores = {number: _score(query, found) for number, found in plans.items()}
    best = max(number for number, score in scores.items() if score <= min(scores.values()) * (1 + TIE))
    return _with_reports(query, sharing, values, best, scores)


def _with_reports(
    query: CollectQuery,
    sharing: Sharing,
    values: int,
    reported: int,
    alternatives: Mapping[int, float] | None = None,
) -> dict[int, ColumnPlan]:
    names = tuple(query.columns[place].column for place in sharing.places)
    share = Share(names, sharing.epsilon, values, reported, alternatives or {})
    each = _part(sharing.epsilon, reported)
    return {place: _plan_column(place, query.columns[place], each, share) for place in sharing.places}


def _plan_column(place: int, item: AnyColumn, epsilon: float, share: Share) -> ColumnPlan:
    try:
        if isinstance(item, CellColumn):
            plan = plan_finite(item.distance_epsilon, item.domain, mechanism=item.mechanism)
            last, content = float(item.domain.size - 1), item.cells_content()
            return ColumnPlan(item.column, item.kind, 0.0, last, None, plan, share, content)
        plan = plan_local(epsilon, item.lower, item.upper, metric=item.metric, mechanism=item.mechanism)
    except InvalidInput as failure:
        raise InvalidInput(f"columns[{place}].{failure}") from None
    return ColumnPlan(item.column, item.kind, item.lower, item.upper, item.length, plan, share)


def _part(epsilon: float, number: int) -> float:
    """The largest double of which ``number`` are, exactly, at most epsilon."""
    part = epsilon / number
    while number * Fraction(part) > Fraction(epsilon):
        part = math.nextafter(part, 0)
    return part


def _score(query: CollectQuery, planned: Mapping[int, ColumnPlan]) -> float:
    """Variance of a published value over its squared range, by each column's metric, averaged over the values."""
    total = sum(query.columns[place].values * _spread(query.columns[place], item) for place, item in planned.items())
    return total / next(iter(planned.values())).share.values


def _spread(item: AnyColumn, planned: ColumnPlan) -> float:
    assert isinstance(item, NoisedColumn)  # only numbers share a budget
    metric = LocalMetric.of(item.metric, item.lower, item.upper, None)
    x, weights = metric.inputs
    variance = build_local(planned.plan.mechanism, planned.plan.parameters).variance(x)
    if planned.unsampled is not None:
        away, scale = (x - planned.unsampled) ** 2, planned.share.scale
        variance = scale * (variance + away) - away
    spread = variance.max() if metric.kind == WORST else weights @ variance
    return float(spread) / (item.upper - item.lower) ** 2


def collect_id(query: CollectQuery, run: str | None = None) -> str:
    """The id under which a collection is published and found again: ``name``, or ``name@run``.

    Raises:
        InvalidInput: The run is not made of letters, digits, dots, dashes and underscores.
    """
    return query.name if run is None else f"{query.name}@{check_id(run, 'run')}"
