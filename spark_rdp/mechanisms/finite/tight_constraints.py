"""The tight-constraints mechanism: ``H[y, z] = exp(-epsilon d(y, z)) weight[z]``, optimal for every regular prior.

Source: ElSalamouny, Chatzikokolakis, Palamidessi 2014; mathematics, section 5.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.coins import Rows
from spark_rdp.mechanisms.finite.base import Finite
from spark_rdp.mechanisms.finite.domains import Categories, Domain, Points
from spark_rdp.mechanisms.finite.exact_table import ExactTable
from spark_rdp.mechanisms.finite.grids import Grid
from spark_rdp.mechanisms.finite.operators import decay, kernel_slack, operator_of
from spark_rdp.mechanisms.finite.windows import Coins, Window, folded_kernel
from spark_rdp.mechanisms.geometric import SAMPLER_LANES, GeometricSampler
from spark_rdp.randomness import LANES, Bits

_UNIT = 2.0**-53
#: Longer offsets than e^-this of the next are left out of a proposal: they only save refusals.
_TAILS = 8.0
_SPARE = 2.0**-20


class Tight(Finite):
    """The mechanism of a domain at an epsilon; `tight` makes the one whose sampler suits the domain.

    Args:
        domain: The cells and their distances.
        epsilon: Per unit of distance.

    Raises:
        InvalidInput: ``Phi z = 1`` has a negative solution, or none that is known for certain not to be negative.
    """

    name: ClassVar[str] = "tight-constraints"

    def __init__(self, domain: Domain, epsilon: float) -> None:
        self.domain, self.epsilon = domain, epsilon
        self.operator = operator_of(domain, epsilon)
        solution = self.operator.unit()
        if not solution.nonnegative:
            raise InvalidInput("mechanism tight-constraints does not exist at this epsilon. Use auto.")
        self.weights = solution.values

    def parameters(self) -> dict[str, Any]:
        return {"domain": self.domain.spec(), "epsilon": self.epsilon}

    def row(self, cell: int) -> np.ndarray:
        distances = self.domain.between(np.array(cell), np.arange(self.domain.size))
        row = decay(self.epsilon * distances) * self.weights
        return np.asarray(row / row.sum())

    def diagonal(self) -> np.ndarray:
        return self.weights / self.operator.product(self.weights)

    def forward(self, inputs: np.ndarray) -> np.ndarray:
        return self.weights * self.operator.product(inputs)

    def backward(self, outputs: np.ndarray) -> np.ndarray:
        return self.operator.product(self.weights * outputs)

    def invert(self, outputs: np.ndarray) -> np.ndarray:
        return self.operator.solve(outputs / self.weights).values

    @abstractmethod
    def draw(self, cells: np.ndarray, bits: Bits, rows: np.ndarray) -> np.ndarray: ...


class TightGrid(Tight):
    """On a grid: an offset off one table, clamped to the grid and accepted with coins that restore the mechanism.

    All rows sum to 1, so every input accepts the same share of its draws, up to rounding, which `loss` counts.
    """

    def __init__(self, domain: Grid, epsilon: float) -> None:
        super().__init__(domain, epsilon)
        weights, self._sums = folded_kernel(domain, epsilon, _TAILS)
        quadrant = np.ix_(*(np.arange(n, dtype=np.float64) for n in domain.shape))
        kernel = decay(epsilon * domain.length(*quadrant))
        self._window = Window(weights)
        self.coins = Coins(self._window, weights, kernel, self.weights)

    def loss(self) -> float:
        wanted = self.coins.chances
        shares = self.operator.product(wanted)
        rounding = self.operator.rounding(wanted) / float(shares.min())
        each = kernel_slack(self.domain, self.epsilon) + self.coins.roughness + _UNIT * (self._sums + 8)
        spread = math.log(float(shares.max()) / float(shares.min())) + 2 * rounding + 2 * each
        return self.epsilon + (2 * each + spread) / self.domain.smallest

    def draw(self, cells: np.ndarray, bits: Bits, rows: np.ndarray) -> np.ndarray:
        return self._window.draw(cells, bits, rows, self.coins)


class TightPoints(Tight):
    """On listed points: a table of thresholds for each input."""

    def __init__(self, domain: Domain, epsilon: float) -> None:
        super().__init__(domain, epsilon)
        rows = decay(epsilon * domain.distances()) * self.weights
        self._scales = (1 - _SPARE) / rows.sum(axis=1)
        rows *= self._scales[:, None]
        self._sums = rows.sum(axis=1)
        self._table = ExactTable(rows)

    def loss(self) -> float:
        shares = self._scales / self._sums
        spread = math.log(float(shares.max() / shares.min())) + 2 * _UNIT * self.domain.size
        slack = 2 * (kernel_slack(self.domain, self.epsilon) + 8 * _UNIT) + spread
        return self.epsilon + slack / self.domain.smallest

    def draw(self, cells: np.ndarray, bits: Bits, rows: np.ndarray) -> np.ndarray:
        result = np.full(len(cells), -1, dtype=np.int64)
        waiting, attempt = np.arange(len(cells)), 0
        while len(waiting):
            lane = attempt * LANES
            words = bits.words(lane, 1, rows[waiting])[:, 0]
            result[waiting] = self._table.draw(words, bits, lane + 1, rows[waiting], cells[waiting])
            waiting, attempt = waiting[result[waiting] < 0], attempt + 1
        return result


class TruncatedGeometric(Tight):
    """Where the distance is a sum over the axes: geometric noise on each axis, clamped at both ends.

    Source: Ghosh, Roughgarden, Sundararajan 2009; it is what the tight constraints give on a line.
    """

    def __init__(self, domain: Grid, epsilon: float) -> None:
        super().__init__(domain, epsilon)
        self._shape = domain.shape
        self._rates = [epsilon * rate for rate in domain.axis_rates]
        self._units = domain.axis_rates
        self._noise = [GeometricSampler([rate]) for rate in self._rates]

    def loss(self) -> float:
        ways = zip(self._noise, self._rates, self._units, self._shape, strict=True)
        return max((rate * (1 + 2.0**-50) + noise.slack) / unit for noise, rate, unit, n in ways if n > 1)

    def draw(self, cells: np.ndarray, bits: Bits, rows: np.ndarray) -> np.ndarray:
        result, stride = np.zeros(len(cells), dtype=np.int64), 1
        chosen = Rows(bits, rows)
        for axis in reversed(range(len(self._shape))):
            n = self._shape[axis]
            noise = np.clip(self._noise[axis].two_sided(chosen, SAMPLER_LANES * axis), -n, n)
            result += np.clip(cells // stride % n + noise, 0, n - 1) * stride
            stride *= n
        return result


def tight(domain: Domain, epsilon: float) -> Tight:
    """The tight-constraints mechanism of a domain, with the sampler that suits it; the last few are kept.

    Raises:
        InvalidInput: It does not exist at this epsilon.
    """
    return _tight(domain, float(epsilon))


@lru_cache(maxsize=4)
def _tight(domain: Domain, epsilon: float) -> Tight:
    from spark_rdp.mechanisms.finite.randomized_response import RandomizedResponse

    if isinstance(domain, Categories):
        return RandomizedResponse(domain, epsilon)
    if isinstance(domain, Points):
        return TightPoints(domain, epsilon)
    if isinstance(domain, Grid) and domain.is_product:
        return TruncatedGeometric(domain, epsilon)
    if isinstance(domain, Grid):
        return TightGrid(domain, epsilon)
    raise TypeError(f"no sampler for {type(domain).__name__}")
