"""``spark-rdp plan --lower --upper``: noise on one bounded value, before it is collected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_rdp.cli.plan_model import Model, Planner, only

PRIOR = "prior-variance"


def _planner(metric: str | None, given: Mapping[str, Any]) -> Planner:
    from spark_rdp.domains import check_bounds
    from spark_rdp.planning.local import plan_local

    goal: Any = metric
    if metric == "usefulness":
        goal = {metric: given["gamma"]}
    if metric == PRIOR:
        goal = {metric: _histogram(given["prior"], *check_bounds(given["lower"], given["upper"]))}
    arguments = only(given, "lower", "upper", "mechanism", "limit")
    return lambda epsilon: plan_local(epsilon, metric=goal, **arguments)


def _histogram(path: str, lower: float, upper: float) -> dict[str, list[float]]:
    """The histogram of a file: bins of equal width, or one line ``start,weight`` for each bin."""
    from spark_rdp.metrics import read_rows

    rows = read_rows(path)
    weights = [row[-1] for row in rows]
    if rows and len(rows[0]) == 2:
        return {"edges": [*(row[0] for row in rows), upper], "weights": weights}
    edges = [lower + (upper - lower) * place / len(rows) for place in range(len(rows))]
    return {"edges": [*edges, upper], "weights": weights}


LOCAL = Model(
    title="noise on one value between --lower and --upper",
    needs=("lower", "upper"),
    takes=("mechanism", "limit"),
    metrics={
        "average-variance": {},
        "worst-variance": {},
        "center-variance": {},
        PRIOR: {"prior": "expected.csv"},
        "usefulness": {"gamma": "0.1"},
    },
    planner=_planner,
)
