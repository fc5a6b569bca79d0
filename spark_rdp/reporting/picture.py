"""What all pictures share: colours, fonts, and the way into a page as SVG."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

#: Okabe and Ito's colours, told apart by people with any colour vision; two of Paul Tol's for long legends. Dashes tell
#: the lines apart in black and white.
CHOSEN = "#0072B2"
RIVALS: list[tuple[str, Any]] = [
    ("#D55E00", (0, (5, 2))),
    ("#009E73", (0, (1, 1.5))),
    ("#CC79A7", (0, (6, 2, 1, 2))),
    ("#56B4E9", (0, (3, 3))),
    ("#E69F00", (0, (8, 2))),
    ("#882255", (0, (2, 1))),
    ("#777777", (0, (4, 1, 1, 1, 1, 1))),
    ("#999933", (0, (1, 3))),
]
INK = "#444444"
_STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "text.parse_math": False,  # names of columns are text, whatever signs they hold
    "axes.formatter.useoffset": False,
}


@dataclass
class Canvas:
    """A figure being drawn, and afterwards its ``svg`` element.

    Attributes:
        figure: What to draw on.
        svg: The element, once the picture is finished.
    """

    figure: Figure
    svg: str = field(default="")

    def axes(self, across: int = 1) -> list[Axes]:
        """Axes side by side, without the frame a reader does not need."""
        drawn = self.figure.subplots(1, across, squeeze=False)[0]
        for each in drawn:
            each.spines[["top", "right"]].set_visible(False)
        return list(drawn)


@contextmanager
def canvas(size: tuple[float, float], identity: str, description: str) -> Iterator[Canvas]:
    """Draw a picture; the same drawing gives the same bytes.

    Args:
        size: Width and height in inches of 72 pixels.
        identity: Makes the element ids of this picture differ from those of the others on a page.
        description: For those who cannot see it.
    """
    settings: dict[Any, Any] = {**_STYLE, "svg.hashsalt": identity}
    with matplotlib.rc_context(settings):
        drawing = Canvas(Figure(figsize=size, layout="constrained"))
        yield drawing
        drawn = io.StringIO()
        metadata = {"Date": None, "Creator": None, "Format": None, "Type": None}
        drawing.figure.savefig(drawn, format="svg", transparent=True, metadata=metadata)
    drawing.svg = _embedded(drawn.getvalue(), description)


def ticks(axis: Axis, most: int, logarithmic: bool = False) -> None:
    """So few numbers along an axis that they never touch."""
    if logarithmic:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(most))
    axis.set_major_formatter(FuncFormatter(lambda tick, _: short(tick)))


def short(value: float) -> str:
    """A number in the little room of a picture, with three digits where it is large or small."""
    if value != 0 and not 1e-3 <= abs(value) < 1e6:
        digits, _, power = f"{value:.2e}".partition("e")
        text = f"{float(digits):g}e{int(power)}"
    else:
        text = f"{value:,.6g}"
    return text.replace("-", "−")


def _embedded(document: str, description: str) -> str:
    """The ``svg`` element of an SVG document, as wide as its place."""
    element = document[document.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>\s*", "", element, flags=re.DOTALL)
    element = re.sub(r'<g id="[^"]*"', "<g", element)  # named alike in every picture, and used by nobody
    element = re.sub(r'^<svg ([^>]*?)width="[^"]*" height="[^"]*"', r"<svg \1", element, count=1)
    element = re.sub(r'^<svg ([^>]*?)height="[^"]*" ([^>]*?)width="[^"]*"', r"<svg \1\2", element, count=1)
    return element.replace("<svg ", f'<svg role="img" aria-label="{html.escape(description)}" ', 1)
