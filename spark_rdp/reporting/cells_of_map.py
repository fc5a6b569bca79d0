"""Columns of cells in reports: what their noise is, and pictures of estimated frequencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spark_rdp.collection import ColumnPlan
from spark_rdp.reporting.existence import existence_facts
from spark_rdp.reporting.picture import CHOSEN, INK, canvas, ticks
from spark_rdp.reporting.words import against, metric_value, number, plain, ranked

#: How many categories are drawn, the most frequent first.
_BARS = 20


def is_map(cells: Mapping[str, Any]) -> bool:
    """Whether cells lie on a map; otherwise they are categories."""
    return "labels" not in cells


def cells_text(planned: ColumnPlan) -> str:
    """How many cells a column has, and how large they are."""
    cells = planned.cells or {}
    if not is_map(cells):
        return f"{len(cells['labels']):,} categories"
    height, width = cells["kilometres"]
    return f"{cells['columns']:,} × {cells['rows']:,} cells of {number(width, 3)} × {number(height, 3)} km"


def epsilon_text(planned: ColumnPlan) -> str:
    """The budget of a column of cells."""
    if planned.cells is not None and is_map(planned.cells):
        return f"{plain(planned.plan.epsilon)} per km"
    return plain(planned.epsilon)


def noise_facts(planned: ColumnPlan) -> list[tuple[str, str]]:
    """What is known of the noise of a column of cells, as labels and texts."""
    plan = planned.plan
    rivals = [
        f"{name} {metric_value(plan.metric, value)} ({against(plan.metric, value, plan.metric_value)})"
        for name, value in ranked(plan)
        if value is not None and name != plan.mechanism
    ]
    gap = plan.certificate["relative_gap"]
    facts = [
        ("Cells", cells_text(planned)),
        ("Epsilon", f"{epsilon_text(planned)}; verified {plan.verified_epsilon:.9g}"),
        ("Mechanism", plan.mechanism),
        (
            "Published as it is",
            f"with probability {metric_value(plan.metric, plan.metric_value)}, over all cells alike",
        ),
        ("At best", f"{number(plan.certificate['bound'])} by any mechanism; this one is {max(gap, 0):.2%} from it"),
        ("Rivals", "; ".join(rivals) or "none"),
    ]
    return [*facts, *((name.capitalize(), text) for name, text in existence_facts(plan))]


def map_picture(cells: Mapping[str, Any], noised: Sequence[float], likeliest: Sequence[float], identity: str) -> str:
    """A map of the counts as they were published beside the estimated ones, north up, as an ``svg`` element."""
    shape = cells["rows"], cells["columns"]
    sides = (cells["west"], cells["east"], cells["south"], cells["north"])
    height, width = (step * count for step, count in zip(cells["kilometres"], shape, strict=True))
    with canvas((8.2, 4.2), identity, "Maps of published and of estimated counts") as drawing:
        for axes, counts, title in zip(drawing.axes(2), (noised, likeliest), ("published", "estimated"), strict=True):
            grid = np.array(counts, dtype=np.float64).reshape(shape)
            shown = axes.imshow(np.sqrt(grid), origin="lower", extent=sides, cmap="magma_r", interpolation="nearest")
            axes.set_aspect(height / (sides[3] - sides[2]) / (width / (sides[1] - sides[0])))
            axes.set_title(f"{title}; darkest {number(float(grid.max()), 3)}", fontsize=10)
            axes.set_xlabel("longitude")
            shown.set_clim(0, max(float(np.sqrt(grid.max())), 1e-9))
            ticks(axes.xaxis, 4)
            ticks(axes.yaxis, 5)
    return drawing.svg


def bars_picture(labels: Sequence[str], lists: Sequence[Sequence[float]], identity: str) -> str:
    """Estimated counts of categories with their intervals, the largest on top, as an ``svg`` element."""
    value, low, high = (np.array(numbers, dtype=np.float64) for numbers in lists)
    order = np.argsort(-value, kind="stable")[:_BARS][::-1]
    with canvas((6.4, 0.8 + 0.28 * len(order)), identity, "Estimated counts of categories") as drawing:
        (axes,) = drawing.axes()
        places = np.arange(len(order))
        axes.barh(places, np.maximum(value[order], 0), color=CHOSEN, alpha=0.55)
        axes.hlines(places, low[order], high[order], color=INK, linewidth=1.4)
        axes.set_yticks(places, [labels[place] for place in order])
        axes.set_xlim(left=0)
        axes.set_xlabel("rows")
        ticks(axes.xaxis, 5)
    return drawing.svg


def largest(item: Mapping[str, Any], columns: Mapping[str, Sequence[Any]], row: int) -> list[tuple[str, str]]:
    """The cells with the largest estimated counts of a group: what they are, and about how many rows they have."""
    cells, name = item["cells"], item["name"]
    counts = columns[f"{name}_likeliest"][row]
    found = []
    for cell in columns[f"{name}_top"][row]:
        if is_map(cells):
            north, east = divmod(cell, cells["columns"])
            where = f"{cell} (column {east}, row {north})"
            count = counts[cell]
        else:
            where, count = cell, counts[cells["labels"].index(cell)]
        found.append((where, f"{count:,.0f}"))
    return found
