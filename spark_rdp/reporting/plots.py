"""Pictures of noise that is added to an aggregate."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from spark_rdp.mechanisms.base import Additive
from spark_rdp.reporting.picture import CHOSEN, RIVALS, canvas

#: Up to this many lattice points each one is drawn as a step of its own.
MOST_STEPS = 120
SAMPLES = 801
#: Rivals that can be told apart in one picture.
MOST_RIVALS = 4


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
    description = f"Mass function of {name} noise against {', '.join(rivals) or 'no rival'}"
    with canvas((6.4, 2.7), identity, description) as drawing:
        (axes,) = drawing.axes()
        span = (half + (0.5 if coarse else 0.0)) * granularity
        axes.axvspan(-span, span, color=CHOSEN, alpha=0.09, linewidth=0)
        styles = [(CHOSEN, "solid", 2.2), *((colour, dashes, 1.6) for colour, dashes in RIVALS[:MOST_RIVALS])]
        curves = {f"{name} (chosen)": mechanism, **rivals}
        for (label, curve), (colour, dashes, width) in zip(curves.items(), styles, strict=False):
            (line,) = axes.plot(errors, np.exp(curve.log_mass(points)) * scale, label=label)
            line.set(color=colour, linestyle=dashes, linewidth=width, drawstyle="steps-mid" if coarse else "default")
        axes.set_xlim(errors[0], errors[-1])
        axes.set_ylim(bottom=0)
        axes.set_xlabel("noise, in the unit of the value")
        axes.set_ylabel("probability" if coarse else "density")
        axes.legend(frameon=False, loc="upper right")
    return drawing.svg
