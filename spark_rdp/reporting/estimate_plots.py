"""Pictures of estimated distributions."""

from __future__ import annotations

import numpy as np

from spark_rdp.reporting.picture import CHOSEN, canvas, short, ticks
from spark_rdp.reporting.words import number


def histogram_plot(
    title: str,
    edges: np.ndarray,
    shares: tuple[np.ndarray, np.ndarray, np.ndarray],
    top: float,
    column: str,
    identity: str,
) -> str:
    """An estimated histogram with the band of its intervals.

    Args:
        title: Names the group.
        edges: Of the bins, in the unit of the value.
        shares: Of the values in each bin, and the lower and upper ends of its interval, in per cent.
        top: The largest height of all groups, in per cent per unit.
        column: Names the axis.
        identity: As for `canvas`.

    Returns:
        An ``svg`` element.
    """
    widths, (share, low, high) = np.diff(edges), shares
    even = bool(np.allclose(widths, widths[0]))
    unit = float(widths[0]) if even else 1.0  # bins of different widths are compared by what they hold per unit
    largest = int(np.argmax(share / widths))
    told = (
        f"Estimated histogram of {column}, {title}: highest between {number(float(edges[largest]))} and "
        f"{number(float(edges[largest + 1]))} with {number(float(share[largest]), 3)} % of the values"
    )
    with canvas((4.4, 2.7), identity, told) as drawing:
        (axes,) = drawing.axes()
        lower, middle, upper = (unit * numbers / widths for numbers in (low, share, high))
        axes.stairs(upper, edges, baseline=lower, fill=True, color=CHOSEN, alpha=0.22)
        axes.stairs(middle, edges, color=CHOSEN, linewidth=2)
        ticks(axes.xaxis, 6)
        ticks(axes.yaxis, 5)
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(0, 1.05 * unit * top or 1.0)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(column)
        axes.set_ylabel(f"% of values, per {short(unit)}")
    return drawing.svg
