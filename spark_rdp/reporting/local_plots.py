"""Pictures of the noise on one bounded value, before and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from spark_rdp.mechanisms.local import Local
from spark_rdp.planning.limits import Limit
from spark_rdp.reporting.local_noise import COMPARED, merged, output_range, output_shares
from spark_rdp.reporting.picture import CHOSEN, INK, RIVALS, canvas, short, ticks
from spark_rdp.reporting.words import number, plain

SIZE = (6.4, 3.3)
#: Bins of a picture of outputs.
BINS = 90
INPUTS = 101
#: Curves further apart than this factor are drawn on a logarithmic axis.
_FAR = 6.0


def density_plot(name: str, mechanism: Local, column: str, identity: str) -> str:
    """Where the outputs lie for the smallest, the middle and the largest input.

    Returns:
        An ``svg`` element.
    """
    low, high = mechanism.lower, mechanism.upper
    edges = np.linspace(*_widened(output_range(mechanism)), BINS + 1)
    inputs = (low, low / 2 + high / 2, high)
    styles = [RIVALS[0], (CHOSEN, "solid"), RIVALS[1]]
    told = f"Distribution of the published value under {name} for the inputs {', '.join(map(plain, inputs))}"
    with canvas(SIZE, identity, told) as drawing:
        (axes,) = drawing.axes()
        axes.axvspan(low, high, color=INK, alpha=0.08, linewidth=0)
        for x, (colour, dashes) in zip(inputs, styles, strict=True):
            shares = 100 * output_shares(mechanism, x, edges)
            axes.stairs(shares, edges, color=colour, linestyle=dashes, linewidth=1.8, label=f"input {short(x)}")
        ticks(axes.xaxis, 7)
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(bottom=0, top=axes.get_ylim()[1] * 1.22)  # room for the legend
        axes.set_xlabel(f"published {column} (grey: the range of the inputs)")
        axes.set_ylabel(f"% of outputs, per {short(float(f'{edges[1] - edges[0]:.3g}'))}")
        axes.legend(frameon=False, loc="upper center", ncols=3, handlelength=2.4, columnspacing=1.4)
    return drawing.svg


def variance_plot(
    chosen: tuple[str, Local], rivals: Mapping[str, Local], limit: Limit | None, column: str, identity: str
) -> str:
    """The variance of a published value over the input, for each mechanism and for the limit.

    Args:
        chosen: Name and mechanism.
        rivals: The others by name; those that coincide share a line.
        limit: For a range of length 1; None to draw none.
        column: Names the axis.
        identity: As for `canvas`.

    Returns:
        An ``svg`` element.
    """
    name, mechanism = chosen
    width = mechanism.upper - mechanism.lower
    inputs = np.linspace(mechanism.lower, mechanism.upper, INPUTS)
    own = f"{name} (chosen)"
    curves = merged({own: mechanism.variance(inputs), **{key: each.variance(inputs) for key, each in rivals.items()}})
    ours = next(iter(curves))
    told = f"Variance over the input: on average {', '.join(f'{key} {number(c.mean())}' for key, c in curves.items())}"
    with canvas(SIZE, identity, told) as drawing:
        (axes,) = drawing.axes()
        for key in sorted(curves, key=lambda key: -curves[key].mean()):  # the legend has the order of the lines
            colour, dashes = (CHOSEN, "solid") if key == ours else _style(key)
            thick = 2.4 if key == ours else 1.6
            axes.plot(inputs, curves[key], color=colour, linestyle=dashes, linewidth=thick, label=key)
        lowest = min(curve.min() for curve in curves.values())
        if limit is not None:
            best = np.array(limit.variances) * width**2
            places = np.linspace(mechanism.lower, mechanism.upper, len(best))
            axes.plot(
                places, best, color="black", linestyle=":", linewidth=1, marker="o", markersize=2.6, label="limit"
            )
            lowest = min(lowest, float(np.nanmin(best)))
        highest = max(curve.max() for curve in curves.values())
        far = bool(highest > _FAR * lowest)
        if far:
            axes.set_yscale("log")
        else:
            axes.set_ylim(0, 1.05 * highest)
        ticks(axes.xaxis, 5)
        ticks(axes.yaxis, 6, logarithmic=far)
        axes.set_xlim(inputs[0], inputs[-1])
        axes.set_xlabel(f"true {column}")
        axes.set_ylabel("variance, in squared units")
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=2.6)
    return drawing.svg


def trial_plot(inputs: np.ndarray, noised: Mapping[str, np.ndarray], column: str, identity: str) -> str:
    """Made-up inputs, and what each mechanism made of them, on one scale.

    Args:
        inputs: float64 of shape (n,), in the unit of the value.
        noised: By mechanism, the published values of these inputs; the scale is that of the first one.
        column: Names the axis.
        identity: As for `canvas`.

    Returns:
        An ``svg`` element.
    """
    first = next(iter(noised.values()))
    reach = np.quantile(first, [0.001, 0.999])
    edges = np.linspace(*_widened((min(reach[0], inputs.min()), max(reach[1], inputs.max()))), BINS // 2 + 1)
    panels = {"true values": inputs, **noised}
    spreads = {name: float(np.sqrt(np.mean((values - inputs) ** 2))) for name, values in noised.items()}
    told = f"{len(inputs):,} made-up values; root mean square of the noise: " + ", ".join(
        f"{name} {number(spread, 3)}" for name, spread in spreads.items()
    )
    with canvas((11.5, 2.5), identity, told) as drawing:
        all_axes = drawing.axes(len(panels))
        for place, (axes, (name, values)) in enumerate(zip(all_axes, panels.items(), strict=True)):
            colour = (INK, CHOSEN)[place] if place < 2 else _style(name)[0]
            shares = 100 * np.histogram(values, edges)[0] / len(values)
            axes.stairs(shares, edges, fill=True, color=colour, alpha=0.75)
            ticks(axes.xaxis, 3)
            ticks(axes.yaxis, 4)
            axes.set_xlim(edges[0], edges[-1])
            outside = 1 - shares.sum() / 100
            beyond = f", {outside:.0%} outside" if outside >= 0.005 else ""
            spread = f"\nnoise ± {short(float(f'{spreads[name]:.3g}'))}{beyond}" if name in spreads else "\n "
            axes.set_title(f"{name}{spread}", fontsize=9.5, color=INK)
            axes.set_xlabel(column)
        all_axes[0].set_ylabel("% of values")
    return drawing.svg


def _style(name: str) -> tuple[str, Any]:
    """The colour and the dashes of a rival, the same in every picture."""
    first = name.partition(",")[0]
    return RIVALS[COMPARED.index(first)] if first in COMPARED else (INK, "solid")


def _widened(ends: tuple[float, float]) -> tuple[float, float]:
    """A range with a little room on both sides, so that what lies at an end is seen whole."""
    room = 0.02 * (ends[1] - ends[0])
    return ends[0] - room, ends[1] + room
