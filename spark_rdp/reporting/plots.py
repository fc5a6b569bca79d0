"""Pictures of noise, as SVG to put into a page."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from spark_rdp.mechanisms.base import Additive

#: Okabe and Ito's colours, told apart by people with any colour vision; dashes tell the lines apart in black and white.
CHOSEN = "#0072B2"
RIVALS = [
    ("#D55E00", (0, (5, 2))),
    ("#009E73", (0, (1, 1.5))),
    ("#CC79A7", (0, (6, 2, 1, 2))),
    ("#56B4E9", (0, (3, 3))),
]
INK = "#444444"
#: Up to this many lattice points each one is drawn as a step of its own.
MOST_STEPS = 120
SAMPLES = 801
_STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
}


def noise_plot(chosen: tuple[str, Additive], rivals: Mapping[str, Additive], granularity: float, identity: str) -> str:
    """The mass function of the chosen noise against those of its rivals, and the range of 95 % of the chosen one.

    Args:
        chosen: Name and mechanism.
        rivals: The others by name, best first; the first ones are drawn, as many as can be told apart.
        granularity: The lattice unit, in the unit of the value.
        identity: Makes the element ids of this picture differ from those of the others on a page.

    Returns:
        An ``svg`` element without any reference to something outside it.
    """
    name, mechanism = chosen
    half = mechanism.quantile(0.95)
    reach = max(mechanism.quantile(0.975), 3)
    coarse = 2 * reach + 1 <= MOST_STEPS
    points = np.unique(np.linspace(-reach, reach, 2 * reach + 1 if coarse else SAMPLES).round().astype(np.int64))
    # On a fine lattice a probability per step says nothing to a reader; per unit of the value it does.
    scale = 1.0 if coarse else 1 / granularity
    errors = points * granularity
    settings: dict[Any, Any] = {**_STYLE, "svg.hashsalt": identity}
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(6.4, 2.7), layout="constrained")
        axes = figure.subplots()
        span = (half + (0.5 if coarse else 0.0)) * granularity
        axes.axvspan(-span, span, color=CHOSEN, alpha=0.09, linewidth=0)
        styles = [(CHOSEN, "solid", 2.2), *((colour, dashes, 1.6) for colour, dashes in RIVALS)]
        curves = {f"{name} (chosen)": mechanism, **rivals}
        for (label, curve), (colour, dashes, width) in zip(curves.items(), styles, strict=False):
            (line,) = axes.plot(errors, np.exp(curve.log_mass(points)) * scale, label=label)
            line.set(color=colour, linestyle=dashes, linewidth=width, drawstyle="steps-mid" if coarse else "default")
        axes.set_xlim(errors[0], errors[-1])
        axes.set_ylim(bottom=0)
        axes.set_xlabel("noise, in the unit of the value")
        axes.set_ylabel("probability" if coarse else "density")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="upper right")
        drawn = io.StringIO()
        figure.savefig(
            drawn,
            format="svg",
            transparent=True,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    return _embedded(drawn.getvalue(), f"Mass function of {name} noise against {', '.join(rivals) or 'no rival'}")


def _embedded(document: str, description: str) -> str:
    """The ``svg`` element of an SVG document, as wide as its place, with a description for those who cannot see it."""
    element = document[document.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>\s*", "", element, flags=re.DOTALL)
    element = re.sub(r'<g id="[^"]*"', "<g", element)  # named alike in every picture, and used by nobody
    element = re.sub(r'^<svg ([^>]*?)width="[^"]*" height="[^"]*"', r"<svg \1", element, count=1)
    element = re.sub(r'^<svg ([^>]*?)height="[^"]*" ([^>]*?)width="[^"]*"', r"<svg \1\2", element, count=1)
    return element.replace("<svg ", f'<svg role="img" aria-label="{description}" ', 1)
