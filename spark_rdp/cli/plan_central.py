"""``spark-rdp plan --sensitivity``: noise added to a published value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_rdp.cli.plan_model import Model, Planner, only


def _planner(metric: str | None, given: Mapping[str, Any]) -> Planner:
    from spark_rdp.metrics import Metric
    from spark_rdp.planning import additive

    goal = Metric.from_spec(_spec(str(metric), given))
    arguments = only(given, "sensitivity", "mechanism", "coordinates", "granularity", "delta", "norm")
    return lambda epsilon: additive.plan(epsilon=epsilon, metric=goal, **arguments)


def _spec(metric: str, given: Mapping[str, Any]) -> Any:
    """The metric as configuration writes it: ``{usefulness: 5}``; several parameters are named."""
    argument: Any = only(given, *CENTRAL.metrics[metric])
    if not argument:
        return metric
    named = argument if len(CENTRAL.metrics[metric]) > 1 else next(iter(argument.values()))
    return {metric.replace("-", "_"): named}


CENTRAL = Model(
    title="noise on a value of given --sensitivity",
    needs=("sensitivity",),
    takes=("mechanism", "coordinates", "granularity", "delta", "norm"),
    metrics={
        "l2": {},
        "l1": {},
        "lp": {"p": "3"},
        "usefulness": {"gamma": "0.1"},
        "mallows": {"p": "1"},
        "relative-entropy": {"prior": "expected.csv", "order": None},
    },
    planner=_planner,
)
