"""Pictures of degrees, ranges and averages, from what was published only."""

from __future__ import annotations

import math
from typing import Any

import matplotlib
import numpy as np
from matplotlib.ticker import FuncFormatter

from spark_rdp.mechanisms.geometric import Geometric
from spark_rdp.metrics import L2
from spark_rdp.outputs import CONFIDENCE
from spark_rdp.planning.workload import Strategy, range_errors
from spark_rdp.reporting.picture import CHOSEN, INK, RIVALS, canvas, short
from spark_rdp.reporting.vectors import VectorPublished
from spark_rdp.vectors import NOISED

#: Series drawn in one picture, points along it, single dots, and cells along the side of a map.
MOST_SERIES, MOST_POINTS, MOST_DOTS, MOST_SIDE = 4, 4000, 1000, 64


def picture(published: VectorPublished) -> tuple[str, str]:
    """The picture of a release as an ``svg`` element, and what it shows."""
    kind, identity = published.plan.kind, f"{published.plan.kind}-{published.plan.noise.plan_id[:8]}"
    if kind == "degrees":
        return _degrees(published, identity)
    if kind == "averages":
        return _averages(published, identity)
    return _cells(published, identity)


def _numbers(published: VectorPublished, column: str) -> np.ndarray:
    return np.asarray(published.table.column(column).to_numpy(zero_copy_only=False), dtype=np.float64)


def _places(size: int, most: int = MOST_POINTS) -> np.ndarray:
    """The points drawn of a long line: near each other at its start, where a logarithmic axis has most room."""
    ends = [np.linspace(0, size - 1, min(size, most)), np.geomspace(1, size, min(size, most)) - 1]
    return np.unique(np.concatenate(ends).round().astype(np.int64))


def _band(axes: Any, x: np.ndarray, ends: list[np.ndarray], colour: str = CHOSEN, **style: Any) -> None:
    """A line with its band."""
    thin = _places(len(x))
    value, low, high = (end[thin] for end in ends)
    axes.fill_between(x[thin], low, high, color=colour, alpha=0.18, linewidth=0, step=style.pop("step", None))
    axes.plot(x[thin], value, color=colour, linewidth=1.8, **style)


def _degrees(published: VectorPublished, identity: str) -> tuple[str, str]:
    publish, most = published.plan.facts["publish"], published.query.get("nodes")
    name = {"sequence": "degree", "distribution": "at_least", "histogram": "nodes"}[publish]
    label = "rank of the node" if publish == "sequence" else "degree"
    told = {
        "sequence": "The degrees of the nodes, largest first, with the range that the noise of each leaves open.",
        "distribution": "Share of the nodes that have at least each degree.",
        "histogram": "Number of nodes of each degree. On the right the number of those that have at least each degree.",
    }[publish]
    x = _numbers(published, "rank" if publish == "sequence" else "degree")
    ends = [_numbers(published, name + end) for end in ("", "_low", "_high")]
    raw = None
    if published.noised is not None:
        raw = np.asarray(published.noised.column(NOISED).to_numpy(), dtype=np.float64)
        told += " Dotted: the noised numbers, before they were made consistent; they may fall below 0, out of sight."
    with canvas((9.6 if publish == "histogram" else 7.2, 3.4), identity, told) as drawing:
        axes, *beside = drawing.axes(2 if publish == "histogram" else 1)
        _band(axes, x, ends, label="consistent (published)")
        axes.set_ylabel({"degree": "degree", "nodes": "nodes", "at_least": "share of nodes, degree or more"}[name])
        for other in beside:
            at_least = np.cumsum(ends[0][::-1])[::-1]
            low, high = _around(published, at_least, raw, most if isinstance(most, int) else None)
            _band(other, x, [at_least, low, high], label="consistent (published)")
            other.set_ylabel("nodes, degree or more")
        if raw is not None:
            compared, (colour, _), thin = (beside or [axes])[0], RIVALS[0], _places(len(x), MOST_DOTS)
            compared.plot(
                x[thin], raw[thin], color=colour, linestyle="", marker=".", markersize=2.5, zorder=1, label="noised"
            )
            compared.legend(frameon=False, markerscale=3)
        for each in (axes, *beside):
            each.set_xlabel(label)
            each.set_xscale("symlog", linthresh=10)
            each.set_xlim(float(x.min()), float(x.max()))
            each.set_yscale("symlog", linthresh=1e-3 if name == "at_least" else 10)
            each.set_ylim(bottom=0)
            for axis in (each.xaxis, each.yaxis):
                axis.set_major_formatter(FuncFormatter(lambda tick, _: short(tick)))
    return drawing.svg, told


def _around(
    published: VectorPublished, at_least: np.ndarray, raw: np.ndarray | None, nodes: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Where the exact number of nodes of at least each degree lies, 95 % of the time."""
    if raw is None:
        return at_least, at_least
    reach = np.full(len(raw), float(published.plan.noise.build().quantile(CONFIDENCE)))
    if published.query.get("nodes") is not None:
        reach[0] = 0.0  # at least 0: all nodes, a public number
    top = np.inf if nodes is None else float(nodes)
    low, high = np.clip(raw - reach, 0, top), np.clip(raw + reach, 0, top)
    return np.minimum(low, at_least), np.maximum(high, at_least)


def _averages(published: VectorPublished, identity: str) -> tuple[str, str]:
    facts, name = published.plan.facts, published.plan.measure
    windows = (facts["periods"] - facts["window"]) // facts["stride"] + 1
    groups = published.table.num_rows // windows
    told = f"{name}: average over {facts['window']} periods, with the range that the noise leaves open."
    x = np.arange(windows) * facts["stride"] + facts["window"]
    ends = [_numbers(published, name + end).reshape(groups, windows) for end in ("", "_low", "_high")]
    colours: list[tuple[str, Any]] = [(CHOSEN, "solid"), *RIVALS]
    with canvas((7.2, 3.2), identity, told) as drawing:
        (axes,) = drawing.axes()
        for group in range(min(groups, MOST_SERIES)):
            first = published.table.slice(group * windows, 1).to_pylist()[0]
            label = ", ".join(str(first[column]) for column in facts["groups"]) or name
            colour, dashes = colours[group]
            _band(axes, x, [end[group] for end in ends], colour, linestyle=dashes, label=label)
        axes.set_xlabel(f"last period of the window, counted from 1 ({facts['time']})")
        axes.set_ylabel(name)
        if groups > 1:
            axes.legend(frameon=False)
    return drawing.svg, told + (f" The first {MOST_SERIES} of {groups:,} groups." if groups > MOST_SERIES else "")


def _cells(published: VectorPublished, identity: str) -> tuple[str, str]:
    facts, (name,) = published.plan.facts, published.values
    shape = facts["shape"]
    by_length = len(shape) == 1 and facts["workload"] != "list"
    told = (
        "The published numbers."
        if facts["workload"] == "list"
        else f"The published {name} by {', '.join(facts['columns'])}."
    )
    if by_length:
        told += (
            " On the right the expected error of a range by its length, for what was noised and for noise in the cells."
        )
    with canvas((9.6 if by_length else 7.2, 3.4), identity, told) as drawing:
        axes, *beside = drawing.axes(2 if by_length else 1)
        values = [_numbers(published, name + end) for end in ("", "_low", "_high")]
        if len(shape) == 2 and facts["workload"] != "list":
            _map(drawing.figure, axes, values[0].reshape(shape), name)
            axes.set_xlabel(f"{facts['columns'][0]}, cell")
            axes.set_ylabel(f"{facts['columns'][1]}, cell")
        else:
            _band(axes, np.arange(len(values[0])), values)
            axes.axhline(0, color=INK, linewidth=0.6)
            axes.set_xlabel("range" if facts["workload"] == "list" else f"{facts['columns'][0]}, cell")
            axes.set_ylabel(name)
        if beside:
            _by_length(beside[0], published)
    return drawing.svg, told


def _map(figure: Any, axes: Any, cells: np.ndarray, label: str) -> None:
    """Cells in colours, as vector graphics; neighbours of a large domain are drawn as their mean."""
    steps = [-(-size // MOST_SIDE) for size in cells.shape]
    edges = [np.append(np.arange(0, size, step), size) for size, step in zip(cells.shape, steps, strict=True)]
    means = cells
    for axis, own in enumerate(edges):
        widths = np.diff(own).reshape([-1 if place == axis else 1 for place in range(2)])
        means = np.add.reduceat(means, own[:-1], axis=axis) / widths
    limit = max(float(np.abs(means).max()), 1.0)
    colours = matplotlib.colormaps["RdBu_r"].resampled(31)  # more would be drawn as a picture of pixels
    mesh = axes.pcolormesh(edges[0], edges[1], means.T, cmap=colours, vmin=-limit, vmax=limit)
    figure.colorbar(mesh, ax=axes, label=label)


def _by_length(axes: Any, published: VectorPublished) -> None:
    """The root mean square error of the ranges of each length, over all their places."""
    plan = published.plan
    (chosen,) = (Strategy(*part) for part in plan.facts["strategy"])
    cells = chosen.cells
    lengths = np.unique(np.geomspace(1, cells, 60).round().astype(np.int64))
    per_number = plan.noise.epsilon / plan.noise.coordinates / plan.noise.integer_sensitivity
    variance = Geometric(per_number * chosen.levels).expectation(L2(), 1.0)

    def error(strategy: Strategy, length: int) -> float:
        places = np.unique(np.linspace(0, cells - length, 512).astype(np.int64))
        return float(range_errors(strategy, places, places + length - 1).mean())

    own = [math.sqrt(error(chosen, int(length))) * plan.noise.metric_value for length in lengths]
    axes.loglog(lengths, own, color=CHOSEN, label=f"{chosen.name} (chosen)")
    if chosen.name != "identity":
        colour, dashes = RIVALS[0]
        axes.loglog(lengths, np.sqrt(lengths * variance), color=colour, linestyle=dashes, label="identity")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda tick, _: short(tick)))
    axes.set_xlabel("cells in the range")
    axes.set_ylabel("expected error")
    axes.legend(frameon=False)
