"""The planar Laplace mechanism rounded to a grid: the rival that geo-indistinguishability is usually served by."""

from __future__ import annotations

import numpy as np

from spark_rdp.mechanisms.finite.grids import EUCLIDEAN, Grid

_NODES = 24
#: The density counts out to e^-this.
_TAIL = 40.0


def planar_laplace_utility(grid: Grid, epsilon: float) -> float | None:
    """How often continuous planar Laplace noise, its end moved to the nearest cell, leaves the cell as it is.

    Args:
        grid: Cells of a plane; None is returned for other grids.
        epsilon: Per unit of distance.

    Source: Andres, Bordenabe, Chatzikokolakis, Palamidessi 2013: density ``epsilon^2 / (2 pi) e^(-epsilon r)``.
    """
    if grid.norm != EUCLIDEAN or grid.axes != 2 or len(grid.shape) != 2:
        return None
    halves = [step / 2 for step in grid.steps]
    mass = np.array(
        [[_mass(epsilon, halves[0], halves[1], out_y, out_x) for out_x in (False, True)] for out_y in (False, True)]
    )
    # Each cell has both its halves along an axis; 2 of n cells are followed outwards on one side.
    sides = [np.array([2.0, 2 / n]) for n in grid.shape]
    return float(sides[0] @ mass @ sides[1])


def _mass(epsilon: float, a: float, b: float, out_y: bool, out_x: bool) -> float:
    """Mass of the quarter cell [0, a] x [0, b], or of what lies beyond it along the axes asked for."""
    places, weights = zip(_panels(epsilon, a, out_y), _panels(epsilon, b, out_x), strict=True)
    radius = np.hypot(places[0][:, None], places[1][None, :])
    return float(weights[0] @ (epsilon**2 / (2 * np.pi) * np.exp(-epsilon * radius)) @ weights[1])


def _panels(epsilon: float, side: float, outwards: bool) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [0, side] or [side, infinity): short panels near 0, where the density has its peak."""
    if outwards:
        ends = side + np.linspace(0, _TAIL / epsilon, 41)
    else:
        ends = side * np.concatenate([[0.0], 2.0 ** np.arange(-12, 1)])
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    middles, halves = (ends[1:] + ends[:-1]) / 2, (ends[1:] - ends[:-1]) / 2
    return (middles[:, None] + halves[:, None] * nodes).reshape(-1), (halves[:, None] * weights).reshape(-1)
