"""The privacy loss of a mass function, found by looking at the mass function."""

from __future__ import annotations

import numpy as np

from spark_rdp.mechanisms.base import SATURATION, Additive
from spark_rdp.mechanisms.finite.base import Finite
from spark_rdp.mechanisms.finite.domains import Domain

_ROUNDING = 2.0**-50  # a few roundings of a logarithm and of the products inside it
_CENTRE = 64
_MULTIPLES = 64
_PER_OCTAVE = 4


def verify(mechanism: Additive, shift: int) -> float:
    """The largest ln P(X = k) / P(X = k + j) over j up to ``shift``, plus what the sampler may add.

    This is a second route: it evaluates `log_mass` only, over the centre, the neighbours of multiples of the shift,
    lengths in geometric progression far into the tail and every place where the mass drops between two of those. It
    knows nothing of the mechanism's own formula for the loss. What double precision cannot tell from 0 (``2**-50`` of
    the logarithms compared) is not counted as loss.

    Args:
        mechanism: The noise to look at.
        shift: The integer sensitivity, at least 1.
    """
    lengths = _lengths(mechanism, shift)
    lengths = np.union1d(lengths, _drops(mechanism, lengths))
    around = np.concatenate([lengths - 1, lengths, lengths + 1])
    points = np.unique(np.concatenate([around, -around, around - shift, -around - shift]))
    here = mechanism.log_mass(points)
    worst = 0.0
    for j in _shifts(shift):
        there = mechanism.log_mass(points + j)
        if not np.all(np.isfinite(here) & np.isfinite(there)):
            return float("inf")  # no mass where the other input has some
        rounding = _ROUNDING * np.maximum(np.abs(here), np.abs(there))
        worst = max(worst, float((np.abs(here - there) - rounding).max()))
    return worst + mechanism.sampling_slack


def _shifts(shift: int) -> list[int]:
    """Shifts to compare: the largest ones, the smallest ones and some between."""
    between = [round(shift * share) for share in (0.25, 0.5, 0.75)]
    return sorted({j for j in (1, 2, *between, shift - 1, shift) if 1 <= j <= shift})


def _lengths(mechanism: Additive, shift: int) -> np.ndarray:
    """Distances from 0, up to where the tail holds less than e^-1000 of the mass or a 64-bit integer ends."""
    octaves = 2.0 ** np.arange(0, 60, 1 / _PER_OCTAVE)
    lengths = np.concatenate([np.arange(_CENTRE), shift * np.arange(1.0, _MULTIPLES), octaves]).round()
    limit = 1
    while limit < SATURATION // 4 and mechanism.log_tail(limit) > -1000:
        limit *= 2
    return np.unique(lengths[lengths <= max(limit, shift)].astype(np.int64))


def _drops(mechanism: Additive, lengths: np.ndarray) -> np.ndarray:
    """Where the mass function drops between two neighbours of ``lengths``: the steepest place that halving finds."""
    low, high = lengths[:-1], lengths[1:]
    while np.any(high - low > 1):
        middle = (low + high) // 2
        mass = mechanism.log_mass(middle)
        left = mechanism.log_mass(low) - mass >= mass - mechanism.log_mass(high)
        low, high = np.where(left, low, middle), np.where(left, middle, high)
    return high


def verify_finite(mechanism: Finite, domain: Domain, most: int = 48) -> float:
    """The largest ln H[y, z] / H[y', z] over the distance of y and y', by looking at rows of the matrix.

    All pairs of inputs are compared where there are at most ``most``, otherwise those of ``most`` inputs: the first
    and the last cells, those about the middle, and some spread between. Where probabilities are too small for double
    precision to tell apart, ``2**-50`` of the logarithms compared is not counted as loss.

    Args:
        mechanism: The mechanism.
        domain: The distances that are promised; the mechanism may have been made for smaller ones.
        most: How many inputs are looked at.
    """
    size = domain.size
    cells = np.arange(size)
    if size > most:
        third = most // 3
        ends = [np.arange(third // 2), size - 1 - np.arange(third // 2), size // 2 + np.arange(third)]
        cells = np.unique(np.concatenate([*ends, np.linspace(0, size - 1, third).astype(np.int64)]))
    logs = np.log(np.stack([mechanism.row(int(cell)) for cell in cells]))
    worst = 0.0
    for place in range(1, len(cells)):
        apart = np.abs(logs[place] - logs[:place])
        rounding = _ROUNDING * np.maximum(np.abs(logs[place]), np.abs(logs[:place]))
        losses = (apart - rounding).max(axis=1)
        worst = max(worst, float((losses / domain.between(cells[place], cells[:place])).max()))
    return worst
