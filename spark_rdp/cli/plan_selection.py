"""``spark-rdp plan --level --candidates``: a quantile, selected among declared candidates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_rdp.cli.plan_model import Model, Planner, only


def _planner(metric: str | None, given: Mapping[str, Any]) -> Planner:
    from spark_rdp.planning.selection import plan_quantile

    arguments = only(given, "level", "candidates", "max_groups", "max_per_group", "mechanism")
    return lambda epsilon: plan_quantile(epsilon=epsilon, **arguments)


QUANTILE = Model(
    title="a quantile (--level, --candidates)",
    needs=("level", "candidates"),
    takes=("mechanism", "max_groups", "max_per_group"),
    metrics={},
    planner=_planner,
)
