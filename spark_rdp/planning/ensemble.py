"""The second folds of the R2DP paper: one family at a time, or a sum of independent members of several.

Algorithm 1 of the paper optimises shapes under a privacy constraint. Here the constraint is gone: if u loses eps(D),
then c u loses eps(c D), so one root-find in c gives any shape exactly the loss asked for. What is left is
a search over shapes; it starts from several fixed places and is deterministic.

Source: R2DP, Theorem 3.2, Corollary 4.2, Algorithm 1, Appendix D; mathematics, section 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq, minimize, minimize_scalar

from spark_rdp.errors import invalid
from spark_rdp.mechanisms.expected_loss import Objective, tabulated
from spark_rdp.mechanisms.fold_base import add_up
from spark_rdp.mechanisms.second_fold import Atoms, LinearCombination, SecondFold
from spark_rdp.planning.certified import Certificate, certify, law_loss
from spark_rdp.planning.families import ENSEMBLE, FAMILIES

#: Atoms of a law while searching, and of the law that is returned.
SEARCH_ATOMS = 96
FINAL_ATOMS = 256
#: How far the order of a law at 0 must exceed the power of 1/u in the objective for its expectation to be trusted.
_MARGIN = 0.05
#: Step in ln c of the first look at the loss.
_COARSE = 0.5
#: What stands for the logarithm of an infinite value.
_INFINITE = 700.0
#: Atoms of one member of a sum while searching.
_MEMBER_ATOMS = 48
#: Evaluations of one search: for each parameter of a family, and for a sum.
_SINGLE_EVALUATIONS = 30
_ENSEMBLE_EVALUATIONS = 90


@dataclass(frozen=True)
class Fit:
    """A second fold of a family that meets a budget.

    Args:
        family: Name in FAMILIES, or ``ensemble``.
        law: Calibrated: the loss of its atoms is at most epsilon.
        value: E[phi(u)] over its atoms.
        loss: Privacy loss of its atoms for the shift.
        laplace: The same objective for Laplace noise.
        evaluations: How many laws the search had tried.
    """

    family: str
    law: SecondFold
    value: float
    loss: float
    laplace: float
    evaluations: int


@dataclass(frozen=True)
class Ensemble:
    """The best sum of several families, the best of each, and the best of all laws."""

    best: Fit
    members: dict[str, Fit | None]
    certificate: Certificate

    @property
    def distance(self) -> float:
        """How far the ensemble is from the best law of all, relative to that law's objective."""
        bound = self.certificate.dual
        return self.best.value / bound - 1 if bound > 0 else (0.0 if self.best.value == bound else math.inf)


def calibrate(
    rates: np.ndarray, weights: np.ndarray, epsilon: float, shift: float, *, lattice: bool, tolerance: float = 1e-15
) -> float:
    """The largest factor c for which the atoms ``c * rates`` lose epsilon; their loss is never above it.

    The loss lies between the smallest and the largest rate times the shift, which brackets c. For continuous noise it
    increases with c. On a coarse lattice, where tanh(u/2) saturates, it may fall in between: the largest c is the one
    with the least noise.
    """

    def excess(log_factor: float) -> float:
        """As `law_loss` less epsilon, but for digits that do not matter to a search, and in a fifth of the time."""
        scaled = rates * math.exp(log_factor)
        heights = weights * (np.tanh(scaled / 2) if lattice else scaled)
        total, left = float(heights.sum()), float(heights @ np.exp(-scaled * shift))
        if 2 * left > total:
            return -math.log1p(float(heights @ np.expm1(-scaled * shift)) / total) - epsilon
        return math.log(total / max(left, 1e-300)) - epsilon

    low, high = (math.log(epsilon / (shift * float(rate))) for rate in (rates.max(), rates.min()))
    if high - low > 1e-9:
        grid = np.linspace(low, high, math.ceil((high - low) / _COARSE) + 1)
        scaled = np.exp(grid)[:, None] * rates
        heights = weights * (np.tanh(scaled / 2) if lattice else scaled)
        left = (heights * np.exp(-scaled * shift)).sum(axis=1)
        with np.errstate(divide="ignore"):
            within = np.flatnonzero(np.log(heights.sum(axis=1)) - np.log(left) <= epsilon)
        last = int(within[-1]) if len(within) else 0
        low, high = float(grid[last]), float(grid[min(last + 1, len(grid) - 1)])
    low, high = low - 1e-9, high + 1e-9
    root = float(brentq(excess, low, high, xtol=tolerance, rtol=1e-14))
    back = max(tolerance, 2.0**-52 * abs(root))
    while law_loss(rates * math.exp(root), weights, shift, lattice=lattice) > epsilon:
        root, back = root - back, 2 * back
    return math.exp(root)


class _Search:
    """Values of laws for one objective and budget."""

    def __init__(self, objective: Objective, epsilon: float, shift: float, lattice: bool) -> None:
        self.objective, self.epsilon, self.shift, self.lattice = objective, epsilon, shift, lattice
        self.evaluations = 0
        self.fast = tabulated(objective, 1e-8 * epsilon / shift, 1e4 * (1 + 1 / epsilon) * epsilon / shift)
        scale = epsilon / shift
        self.laplace = float(objective(np.array([scale]))[0])
        # the power of 1/u with which the objective grows: its expectation is finite for laws of a larger order only
        far = objective(scale * np.array([1e-6, 1e-7]))
        self.power = math.log10(far[1] / far[0]) if far[0] > 0 else 0.0

    def finite(self, order: float) -> bool:
        """Whether the objective has a finite expectation under laws of this order."""
        return self.power < 1e-6 or order > self.power + _MARGIN

    def value(self, law: SecondFold) -> float:
        """About the objective of a law once it meets the budget."""
        return self.value_of(law.atoms(SEARCH_ATOMS)) if self.finite(law.order) else math.inf

    def value_of(self, atoms: Atoms) -> float:
        """The same for atoms of a law that has a finite objective."""
        self.evaluations += 1
        rates, weights = atoms
        factor = calibrate(rates, weights, self.epsilon, self.shift, lattice=self.lattice, tolerance=1e-9)
        return float(weights @ self.fast(rates * factor))

    def finish(self, family: str, law: SecondFold) -> Fit:
        """Calibrate on the atoms that will be sampled."""
        factor = calibrate(*law.atoms(FINAL_ATOMS), self.epsilon, self.shift, lattice=self.lattice)
        scaled = law.scaled(factor)
        for power in range(-50, -20):
            rates, weights = scaled.atoms(FINAL_ATOMS)
            loss = law_loss(rates, weights, self.shift, lattice=self.lattice)
            if loss <= self.epsilon:
                break
            scaled = scaled.scaled(1 - 2.0**power)
        value = float(weights @ self.objective(rates))
        return Fit(family, scaled, value, loss, self.laplace, self.evaluations)

    def family(self, name: str) -> tuple[Fit, list[float]] | None:
        """The best law of a family and its shape; None if no law of it has a finite objective."""
        family = FAMILIES[name]
        if not family.bounds:
            law = family.law(())
            return (self.finish(name, law), []) if self.finite(law.order) else None

        def value(shape: Sequence[float]) -> float:
            return self.value(family.law(shape))

        ranked = sorted(family.starts, key=value)
        if len(family.bounds) == 1:
            shape, height = _between(value, ranked[0][0], [*family.bounds[0], *(start[0] for start in family.starts)])
        else:
            limit = _SINGLE_EVALUATIONS * len(family.bounds)
            shape, height = min((_descend(value, start, limit) for start in ranked[:2]), key=lambda found: found[1])
        law = family.law(shape)
        return (self.finish(name, law), shape) if self.finite(law.order) and height < _INFINITE else None


def _height(value: float) -> float:
    """What searches look at: the logarithm of a value."""
    return math.log(value) if 0 < value < math.inf else (_INFINITE if value > 0 else -_INFINITE)


def _between(
    value: Callable[[Sequence[float]], float], start: float, places: Sequence[float]
) -> tuple[list[float], float]:
    """Where a function of one number is smallest around the best of some places, between its neighbours."""
    low, high = max((x for x in places if x < start), default=start), min(x for x in places if x > start)
    options = {"xatol": 1e-3}
    found = minimize_scalar(lambda x: _height(value([x])), bounds=(low, high), method="bounded", options=options)
    return [float(found.x)], float(found.fun)


def _descend(
    value: Callable[[Sequence[float]], float], start: Sequence[float], evaluations: int
) -> tuple[list[float], float]:
    """Where a function of several numbers is about smallest (Nelder-Mead), and the logarithm of its value there."""
    simplex = np.array([start, *(np.add(start, 0.7 * row) for row in np.eye(len(start)))], dtype=np.float64)
    options = {"initial_simplex": simplex, "maxfev": evaluations, "xatol": 1e-4, "fatol": 1e-9}
    found = minimize(lambda shape: _height(value(shape)), simplex[0], method="Nelder-Mead", options=options)
    return [float(x) for x in found.x], float(found.fun)


class _Sums:
    """Sums of independent rates, one of each family: a share of the mean and a shape for each."""

    def __init__(self, search: _Search, families: Sequence[str]) -> None:
        self._search, self._families = search, [FAMILIES[name] for name in families]

    def _terms(self, point: Sequence[float]) -> list[tuple[float, SecondFold, Atoms]]:
        """Factor, law and atoms of each member. A point is the logarithms of all shares but the first, then shapes."""
        place = len(self._families) - 1
        shares = np.exp(np.clip(np.append(0.0, point[:place]), -30.0, 30.0))
        terms = []
        for share, family in zip(shares / shares.sum(), self._families, strict=True):
            law = family.law(point[place : place + len(family.bounds)])
            atoms = law.atoms(_MEMBER_ATOMS)
            terms.append((float(share / (atoms.weights @ atoms.rates)), law, atoms))
            place += len(family.bounds)
        return terms

    def law(self, point: Sequence[float]) -> LinearCombination:
        """The law of a point."""
        factors, laws, _ = zip(*self._terms(point), strict=True)
        return LinearCombination(factors, laws)

    def value(self, point: Sequence[float]) -> float:
        """As `_Search.value`."""
        terms = self._terms(point)
        if not self._search.finite(sum(law.order for _, law, _ in terms)):
            return math.inf
        parts = [Atoms(factor * atoms.rates, atoms.weights) for factor, _, atoms in terms]
        return self._search.value_of(add_up(parts, SEARCH_ATOMS))


def best_family(name: str, objective: Objective, epsilon: float, shift: float, *, lattice: bool) -> Fit:
    """The best second fold of one family.

    Args:
        name: ``gamma``, ``uniform``, ``truncnorm``, ``ncx2`` or ``rayleigh``.
        objective, epsilon, shift, lattice: As for `certify`.

    Raises:
        InvalidInput: The family is unknown, or the expected loss is infinite under each of its laws.
    """
    if name not in FAMILIES:
        raise invalid("family", "one of " + ", ".join(FAMILIES), name, "Use ensemble for several of them.")
    found = _Search(objective, epsilon, shift, lattice).family(name)
    if found is None:
        raise invalid(
            "metric", f"one whose expected loss is finite under a {name} second fold", "another", "Use r2dp or laplace."
        )
    return found[0]


def best_ensemble(
    objective: Objective, epsilon: float, shift: float, *, lattice: bool, families: Sequence[str] = ENSEMBLE
) -> Ensemble:
    """The best sum of independent members of several families; never worse than the best of a single family.

    Args:
        objective, epsilon, shift, lattice: As for `certify`.
        families: Names in FAMILIES, two or more; by default those of Algorithm 1 (the paper's experiments also use
            ``ncx2`` and ``rayleigh``).
    """
    search = _Search(objective, epsilon, shift, lattice)
    singles = {name: search.family(name) for name in families}
    members = {name: found[0] if found else None for name, found in singles.items()}
    fits = [fit for fit in members.values() if fit is not None]
    sums = _Sums(search, families)
    shapes = [found[1] if found else list(FAMILIES[name].starts[0]) for name, found in singles.items()]
    tail = [x for shape in shapes for x in shape]
    leading = [0.0] * (len(families) - 1)
    if fits:
        best = min(fits, key=lambda fit: fit.value)
        index = list(families).index(best.family)
        leading = [(3.0 if i + 1 == index else 0.0) - (3.0 if index == 0 else 0.0) for i in range(len(families) - 1)]
    for start in (leading, [0.0] * (len(families) - 1)):
        point, height = _descend(sums.value, [*start, *tail], _ENSEMBLE_EVALUATIONS)
        if height < _INFINITE:
            fits.append(search.finish("ensemble", sums.law(point)))
    if not fits:
        raise invalid(
            "metric", "one whose expected loss is finite under the ensemble", "another", "Use r2dp or laplace."
        )
    winner = replace(min(fits, key=lambda fit: fit.value), evaluations=search.evaluations)
    return Ensemble(winner, members, certify(objective, epsilon, shift, lattice=lattice))


def cannot_beat_laplace(law: SecondFold, epsilon: float, shift: float) -> str | None:
    """Why a second fold that meets the budget cannot beat Laplace noise; None when it may.

    For every metric whose loss grows with the error, E[loss] falls and is convex in the inverse scale u (l1: 1/u, l2:
    2/u^2, usefulness: e^(-gamma u), and mixtures of the last one in general). By Jensen's inequality a second fold
    does no better than Laplace noise of inverse scale E[u], and that is no better than Laplace noise with the same
    epsilon, epsilon/shift, unless E[u] > epsilon/shift. This is the condition necessary for a gain (the
    role of R2DP, Theorem 4.5); by Theorem 4.1 it reads shift * M'(0) > ln M'(0) / M'(-shift).

    Args:
        law: A law of u in units of 1/shift.
        epsilon: Its privacy loss, or more.
        shift: Sensitivity.
    """
    mean, needed = law.mean * shift, epsilon
    if mean > needed:
        return None
    return f"its mean inverse scale times the sensitivity, {mean:.6g}, is not above epsilon, {needed:.6g}"
