"""The best second fold of all, with its proof.

Both the objective E[phi(u)] and the privacy constraint E[g(u)] <= 0, g(u) = w(u) (1 - e^(epsilon - u D)), are linear in
the law of u, with w(u) = u for continuous noise and tanh(u/2) on the lattice. The best law is therefore the solution of
a linear programme with one constraint: it has at most two atoms, and

    max over lambda >= 0 of min over u of phi(u) + lambda g(u)

proves it. The programme is solved on a grid of u that is refined where the minimum lies until primal and dual meet.

Source: mathematics, section 1.1 (it is in none of the papers).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from spark_rdp.errors import invalid
from spark_rdp.mechanisms.expected_loss import Objective
from spark_rdp.mechanisms.second_fold import Degenerate, TwoPoint

#: Above this budget the noise is practically zero and LARGEST_RATE would bind.
LARGEST_EPSILON = 100.0
#: On the lattice no rate above this one is used: e^-128 of its noise is not zero.
LARGEST_RATE = 128.0
#: Step of the first grid in ln u.
_STEP = 0.06
_ROUNDS = 40
_GAP = 2e-11
_EVEN = 1e-4
#: Differences of this relative size count as a tie, which the simpler law wins.
_TIE = 2e-10
#: Relative distance below which two points of the grid are one.
_NEAREST = 1e-6
#: Losses above this many times that of Laplace noise count as this many.
_WIDE = 1e200


@dataclass(frozen=True)
class Certificate:
    """The best second-fold law for an objective and how it is known.

    Args:
        law: Degenerate (Laplace noise itself is optimal) or two-point.
        primal: E[phi(u)] under the law.
        dual: No second-fold law of this privacy has a smaller objective.
        multiplier: The lambda that proves it.
        loss: The privacy loss of the law [R2DP, Theorem 4.1], at most the epsilon asked for.
        laplace: The objective of Laplace noise with the same epsilon.
        reason: One sentence.
    """

    law: Degenerate | TwoPoint
    primal: float
    dual: float
    multiplier: float
    loss: float
    laplace: float
    reason: str

    @property
    def relative_gap(self) -> float:
        """(primal - dual) / primal; 0 when both are 0."""
        return 0.0 if self.primal == self.dual else (self.primal - self.dual) / max(abs(self.primal), 1e-300)


def law_loss(rates: np.ndarray, weights: np.ndarray, shift: float, *, lattice: bool) -> float:
    """The privacy loss of the noise whose inverse scale has these atoms, for one shift.

    ln of E[w(u)] / E[w(u) e^(-u shift)], accurate to a few units of the last place however small the loss is.

    Source: R2DP, Theorem 4.1; mathematics, section 3 for the lattice.
    """
    return _loss(np.log(weights) + np.log(np.tanh(rates / 2) if lattice else rates), rates * shift)


def _loss(heights: np.ndarray, fall: np.ndarray) -> float:
    """ln of sum e^heights / sum e^(heights - fall)."""
    shares = np.exp(heights - heights.max())
    shares /= shares.sum()
    lost = float(-(shares @ np.expm1(-fall)))
    if lost < 0.5:
        return -math.log1p(-lost)
    return float(np.logaddexp.reduce(heights) - np.logaddexp.reduce(heights - fall))


def shared_scale_loss(
    rates: np.ndarray, weights: np.ndarray, length: int, norm: float, *, lattice: bool = False
) -> float:
    """The privacy loss of a vector whose ``length`` noises share one draw of u: ln M^(k)(0) / M^(k)(-norm).

    M^(k) is the k-th derivative of the moment generating function of u; each coordinate brings one factor w(u). The law
    of the vector depends on its L1 norm only, so here, and only here, an R2DP vector may be calibrated by it.

    Args:
        rates, weights: The atoms of u.
        length: k, how many noises share u.
        norm: The most the vector changes, in the L1 norm.
        lattice: As for `law_loss`.

    Source: mathematics, section 1.2.
    """
    return _loss(np.log(weights) + length * np.log(np.tanh(rates / 2) if lattice else rates), rates * norm)


class _Points:
    """Points of the programme: inverse scales, objective and constraint, sorted by the inverse scale."""

    def __init__(self, objective: Objective, epsilon: float, shift: float, lattice: bool) -> None:
        self.objective, self.epsilon, self.shift, self.lattice = objective, epsilon, shift, lattice
        self.u = np.empty(0)
        self.phi = np.empty(0)
        self.g = np.empty(0)

    @property
    def below(self) -> slice:
        """Points with g < 0: more noise than Laplace."""
        return slice(0, int(np.searchsorted(self.g >= 0, True)))

    @property
    def above(self) -> slice:
        """Points with g > 0."""
        return slice(self.below.stop + 1, len(self.u))

    def constraint(self, u: np.ndarray) -> np.ndarray:
        """e^-epsilon g(u), which stays in the range of doubles; 0 at the scale of Laplace noise only."""
        height = np.tanh(u / 2) if self.lattice else u
        excess = u * self.shift - self.epsilon
        gain = np.exp(-self.epsilon) * -np.expm1(-np.maximum(excess, 0.0))
        cost = np.exp(-u * self.shift) * -np.expm1(np.minimum(excess, 0.0))
        return height * np.where(np.abs(excess) <= 4e-16 * self.epsilon, 0.0, gain - cost)

    def add(self, u: np.ndarray) -> bool:
        """Insert points, except where one is already as near as it can help; False if there was nothing to insert."""
        fresh = np.unique(u)
        fresh = fresh[np.diff(fresh, prepend=0.0) > _NEAREST * fresh]
        if len(self.u):
            place = np.clip(np.searchsorted(self.u, fresh), 1, len(self.u) - 1)
            distance = np.minimum(np.abs(fresh - self.u[place - 1]), np.abs(fresh - self.u[place]))
            fresh = fresh[distance > _NEAREST * fresh]
        if not len(fresh):
            return False
        self.u = np.concatenate([self.u, fresh])
        self.phi = np.concatenate([self.phi, self.objective(fresh)])
        self.g = np.concatenate([self.g, self.constraint(fresh)])
        order = np.argsort(self.u)
        self.u, self.phi, self.g = self.u[order], self.phi[order], self.g[order]
        return True


def _lowest(u: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Local minima of a function known at points: vertices of parabolas in ln u and their heights; both ends too."""
    middle = values[1:-1]
    at = np.flatnonzero((middle <= values[:-2]) & (middle <= values[2:])) + 1
    x = np.log(u)
    left, right = x[at - 1] - x[at], x[at + 1] - x[at]
    down, up = (values[at - 1] - values[at]) / left, (values[at + 1] - values[at]) / right
    bend = (up - down) / (right - left)
    slope = up - bend * right
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        move = np.clip(np.where(bend > 0, -slope / (2 * bend), 0.0), left / 2, right / 2)
    depth = values[at] + np.minimum(move * (slope + bend * move), 0.0)
    return np.append(u[at] * np.exp(move), u[[0, -1]]), np.append(depth, values[[0, -1]])


def _grid(epsilon: float, shift: float, lattice: bool) -> np.ndarray:
    top = max(LARGEST_RATE, 2 * epsilon / shift) if lattice else 1e9 * math.exp(epsilon / 2) / shift
    low = 1e-6 * min(epsilon, 1.0) / shift
    logs = np.arange(math.log(low), math.log(top), _STEP)
    near = np.arange(0.25, epsilon + 40.0, 0.5) / shift  # e^(-uD) changes on the scale 1/D
    near = near[(near > low) & (near < top)] if epsilon > 10 else near[:0]
    centre = epsilon / shift
    return np.concatenate([np.exp(logs), near, [top, centre, centre * math.exp(-_EVEN), centre * math.exp(_EVEN)]])


def _best_pair(points: _Points, bound: float) -> tuple[int, int, float] | None:
    """The best two points of the grid, one on either side of the constraint, and their objective; None if not better.

    ``bound`` is an objective that is reached already. While there are points u1, u2 with
    (phi1 - bound)/-g1 < (bound - phi2)/g2, mixing them is better. These quotients lose no digits even where the
    objective is tiny beside phi1.
    """
    below, above = points.below, points.above
    best = None
    for _ in range(100):
        low = int(((points.phi[below] - bound) / -points.g[below]).argmin())
        high = int(((bound - points.phi[above]) / points.g[above]).argmax()) + above.start
        g_low, g_high = -points.g[low], points.g[high]
        value = float((g_high * points.phi[low] + g_low * points.phi[high]) / (g_high + g_low))
        if not value < bound:
            break
        best, bound = (low, high, value), value
    return best


def certify(objective: Objective, epsilon: float, shift: float, *, lattice: bool) -> Certificate:
    """The second-fold law with the smallest expected loss among all laws whose privacy loss is at most epsilon.

    Args:
        objective: phi: the expected loss for each inverse scale in an array, smooth in ln u (every expectation over
            Laplace noise is).
        epsilon: Privacy loss allowed, positive and at most LARGEST_EPSILON.
        shift: Sensitivity: in lattice units if ``lattice``, else in the unit of 1/u.
        lattice: Whether the noise is the two-sided geometric of rate u, or the continuous Laplace.

    Returns:
        The certificate; its law never has a loss above epsilon.

    Raises:
        InvalidInput: epsilon is above LARGEST_EPSILON.
    """
    if not 0 < epsilon <= LARGEST_EPSILON:
        raise invalid(
            "epsilon",
            f"a positive number up to {LARGEST_EPSILON:g} for R2DP",
            epsilon,
            "Use laplace or staircase above it.",
        )
    # In units of what Laplace noise loses: powers of wide noise would overflow in the quotients below.
    scale = float(objective(np.array([epsilon / shift]))[0])
    scale = scale if 0 < scale < math.inf else 1.0
    found = _solve(_Points(lambda u: np.minimum(objective(u) / scale, _WIDE), epsilon, shift, lattice))
    primal, dual = found.primal * scale, min(found.dual * scale, found.primal * scale)
    return replace(found, primal=primal, dual=dual, multiplier=found.multiplier * scale, laplace=found.laplace * scale)


def _solve(points: _Points) -> Certificate:
    """The certificate, in the units of the points."""
    epsilon, shift, lattice = points.epsilon, points.shift, points.lattice
    points.add(_grid(epsilon, shift, lattice))
    centre = points.below.stop
    laplace = float(points.phi[centre])
    free = int(points.phi.argmin())
    if points.g[free] < 0 and points.phi[free] < laplace:
        law, value = Degenerate(float(points.u[free])), float(points.phi[free])
        loss = law_loss(*law.atoms(1), shift, lattice=lattice)
        dual = float(_lowest(points.u, points.phi)[1].min())
        return Certificate(
            law, value, dual, 0.0, loss, laplace, "this loss is smallest with more noise than the budget asks for"
        )

    better = _best_pair(points, laplace)
    if better is None or better[2] >= laplace * (1 - _TIE):
        return _laplace(points, centre)
    low, high, value = better
    pair = (float(points.u[low]), float(points.u[high]))
    for _ in range(_ROUNDS):
        below, above = points.below, points.above
        quotients = (points.phi[below] - value) / -points.g[below]
        where_low, multipliers = _lowest(points.u[below], quotients)
        multiplier = float(multipliers.min())
        where_high, values = _lowest(points.u[above], points.phi[above] + multiplier * points.g[above])
        dual = min(float(values.min()), value)
        if value - dual <= _GAP * abs(value):
            break
        fresh = np.append(where_low[multipliers <= quotients.min()], where_high[values <= value])
        place = np.clip(np.searchsorted(points.u, fresh), 1, len(points.u) - 1)
        reach = np.log(points.u[place] / points.u[place - 1]) / 16
        if not points.add(np.concatenate([fresh, fresh * np.exp(reach), fresh * np.exp(-reach)])):
            break
        better = _best_pair(points, value)
        if better is not None:
            low, high, value = better
            pair = (float(points.u[low]), float(points.u[high]))
    return _two_point(points, pair, dual, multiplier * math.exp(-epsilon), laplace)


def _laplace(points: _Points, centre: int) -> Certificate:
    """The certificate of the degenerate law, from the tangent of the curve (g, phi) at g = 0."""
    laplace = float(points.phi[centre])
    around = np.array([centre - 1, centre + 1])
    g, slopes = points.g[around], (points.phi[around] - laplace) / points.g[around]
    multiplier = max(-float((g[1] * slopes[0] - g[0] * slopes[1]) / (g[1] - g[0])), 0.0)
    below = points.below
    lowest = float(((points.phi[below] - laplace) / -points.g[below]).min())
    multiplier = min(multiplier, lowest)  # then phi + multiplier g is at least the objective wherever g < 0
    near = slice(centre - 1, None)
    dual = float(_lowest(points.u[near], points.phi[near] + multiplier * points.g[near])[1].min())
    law = _within(Degenerate(points.epsilon / points.shift), points.epsilon, points.shift, points.lattice)
    loss = law_loss(*law.atoms(1), points.shift, lattice=points.lattice)
    return Certificate(
        law,
        laplace,
        min(dual, laplace),
        multiplier * math.exp(-points.epsilon),
        loss,
        laplace,
        "no second fold beats Laplace noise for this metric and budget",
    )


def _two_point(
    points: _Points, pair: tuple[float, float], dual: float, multiplier: float, laplace: float
) -> Certificate:
    rates = np.array(pair)
    g = points.constraint(rates)
    weight = float(g[1] / (g[1] - g[0]))
    if not 0 < weight < 1:  # an end of the range of doubles: Laplace is as good
        law: Degenerate | TwoPoint = Degenerate(points.epsilon / points.shift)
    else:
        law = TwoPoint(float(rates[0]), float(rates[1]), weight)
    law = _within(law, points.epsilon, points.shift, points.lattice)
    atoms = law.atoms(2)
    primal = float(atoms.weights @ points.objective(atoms.rates))
    loss = law_loss(*atoms, points.shift, lattice=points.lattice)
    saved = (laplace - primal) / laplace if laplace else 0.0
    return Certificate(
        law,
        primal,
        dual,
        multiplier,
        loss,
        laplace,
        f"the best two-point second fold lowers the expected loss of Laplace noise by {saved:.2%}",
    )


def _within(law: Degenerate | TwoPoint, epsilon: float, shift: float, lattice: bool) -> Degenerate | TwoPoint:
    """The law, its scales enlarged by units of the last place until its loss is at most epsilon."""
    for power in range(-52, -20):
        if law_loss(*law.atoms(2), shift, lattice=lattice) <= epsilon:
            return law
        law = law.scaled(1 - 2.0**power)
    raise AssertionError("the optimal law misses its own privacy constraint")
