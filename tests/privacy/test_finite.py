"""What an attacker can learn from cells published by finite mechanisms: never more than the distance allows."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from spark_rdp.mechanisms.finite.base import Finite
from spark_rdp.mechanisms.finite.build import build_finite
from spark_rdp.mechanisms.finite.domains import Categories, Domain, Points
from spark_rdp.mechanisms.finite.exact_table import ExactTable
from spark_rdp.mechanisms.finite.grids import CHEBYSHEV, L1, Grid, line
from spark_rdp.mechanisms.finite.randomized_response import RandomizedResponse
from spark_rdp.mechanisms.finite.tight_constraints import TightGrid, tight
from spark_rdp.mechanisms.finite.unbounded import UnboundedRemap
from spark_rdp.planning.finite import CANDIDATES, _fit, _Problem, plan_finite
from spark_rdp.privacy.audit import audit
from spark_rdp.privacy.verify import verify_finite
from spark_rdp.randomness import Bits, SystemBits

PLACES = tuple(map(tuple, np.random.default_rng(3).normal(size=(40, 2)) * 3))
#: Domains of at most 900 cells and epsilons, above and below their thresholds.
SMALL: dict[str, tuple[Domain, float]] = {
    "map": (Grid((13, 13), (1.0, 1.0)), 1.0),
    "map below": (Grid((13, 13), (1.0, 1.0)), 0.3),
    "oblong map": (Grid((9, 31), (0.5, 1.1)), 2.0),
    "counts": (Grid((12, 12), (1.0, 1.0), CHEBYSHEV), 1.3),
    "counts below": (Grid((12, 12), (1.0, 1.0), CHEBYSHEV), 0.7),
    "sum": (Grid((151,), (1.0,), span=5), 1.2),
    "sum below": (Grid((151,), (1.0,), span=5), 0.6),
    "three counts": (Grid((5, 6, 7), (1.0, 1.0, 1.0), L1), 0.4),
    "scale": (line(200), 0.05),
    "names": (Categories(15), 1.0),
    "names, much": (Categories(15), 60.0),
    "databases": (Categories(3, 4), 0.5),
    "points": (Points(PLACES), 2.0),
    "points below": (Points(PLACES), 0.2),
    "far apart": (Grid((8, 8), (1.0, 1.0)), 40.0),
    "hardly anything": (line(12), 1e-4),
}


def mechanisms(name: str) -> dict[str, tuple[Finite, float]]:
    """Every mechanism the planner can emit for a question, and its loss per unit of distance."""
    domain, epsilon = SMALL[name]
    found = {}
    for candidate in CANDIDATES:
        try:
            found[candidate] = _fit(_Problem(epsilon, domain), candidate)
        except ValueError:  # does not exist here
            continue
    return found


def check_all_pairs(mechanism: Finite, domain: Domain, loss: float) -> None:
    """``abs(ln H[y, z] / H[y', z]) <= d(y, y') (1 + 1e-9)`` for every y, y', z, and rows that sum to 1."""
    matrix, distances = mechanism.matrix(), domain.distances()
    assert np.abs(matrix.sum(axis=1) - 1).max() < 1e-12
    assert matrix.min() > 0  # the same outputs for every input
    logs = np.log(matrix)
    rounding = 2.0**-50 * np.abs(logs).max()  # a logarithm of a double is only right to some 2^-52 of its size
    for cell in range(1, domain.size):
        losses = np.abs(logs[:cell] - logs[cell]).max(axis=1)
        assert np.all(losses <= loss * distances[cell, :cell] * (1 + 1e-9) + rounding)


@pytest.mark.parametrize("name", SMALL)
def test_no_pair_of_inputs_is_told_apart_by_more_than_the_distance(name: str) -> None:
    domain, epsilon = SMALL[name]
    found = mechanisms(name)
    assert found
    for mechanism, loss in found.values():
        assert loss <= epsilon
        check_all_pairs(mechanism, domain, loss)
        assert verify_finite(mechanism, domain) <= loss * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [1.0, 0.4])
def test_all_pairs_of_a_map_of_nine_hundred_cells(epsilon: float) -> None:
    domain = Grid((30, 30), (1.0, 1.0))
    plan = plan_finite(epsilon, domain)
    check_all_pairs(build_finite(plan.mechanism, plan.parameters), domain, plan.verified_epsilon)


@pytest.mark.parametrize("epsilon", [1.0, 0.4])
def test_a_million_random_pairs_on_a_map_of_ten_thousand_cells(epsilon: float) -> None:
    grid = Grid((100, 100), (1.0, 1.0))
    plan = plan_finite(epsilon, grid)
    mechanism = build_finite(plan.mechanism, plan.parameters)
    assert plan.verified_epsilon <= epsilon
    assert np.abs(mechanism.backward(np.ones(grid.size)) - 1).max() < 1e-12
    rng = np.random.default_rng(11)
    cells = rng.integers(grid.size, size=200)
    logs = np.log(np.stack([mechanism.row(int(cell)) for cell in cells]))
    first, second = rng.integers(200, size=(2, 10**6))
    outputs = rng.integers(grid.size, size=10**6)
    losses = np.abs(logs[first, outputs] - logs[second, outputs])
    assert np.all(losses <= epsilon * grid.between(cells[first], cells[second]) * (1 + 1e-9))


def test_a_mechanism_that_loses_more_is_found_out() -> None:
    domain = Grid((12, 12), (1.0, 1.0))
    mechanism = tight(domain, 1.03)
    assert verify_finite(mechanism, domain) == pytest.approx(1.03)
    clipped = UnboundedRemap(domain, 0.5)  # what clipping negative entries and renormalising would do
    z = np.linalg.solve(np.exp(-0.4 * domain.distances()), np.ones(144))
    assert z.min() < 0
    wrong = np.exp(-0.4 * domain.distances()) * np.maximum(z, 1e-9)
    wrong /= wrong.sum(axis=1, keepdims=True)
    clipped.row = lambda cell: wrong[cell]  # type: ignore[method-assign]
    assert verify_finite(clipped, domain, most=144) > 0.4 * 1.005


class Chosen(Bits):
    """Words that a test chooses, by lane; 0 where it does not."""

    def __init__(self, words: dict[int, int]) -> None:
        self.size, self._words = 1, words

    def words(self, lane: int, count: int, rows: np.ndarray | None = None) -> np.ndarray:
        return np.full((1 if rows is None else len(rows), count), self._words.get(lane, 0), dtype=np.uint64)


def exact_masses(weights: list[float]) -> list[Fraction]:
    """The probability of each position, by following every table down; none is rounded."""
    table = ExactTable(np.array([weights]))
    masses = [Fraction(0)] * len(weights)
    share = Fraction(1)
    while True:
        ends = [int(end) for end in table._sums[0]]
        for place, (low, high) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            masses[place] += share * Fraction(high - low, 2**64)
        room = int(table._room)
        if not room:
            return masses
        share *= Fraction(room, 2**64)
        table = ExactTable(table._rest / float(room))


def test_a_table_draws_the_very_doubles_it_was_given() -> None:
    weights = [0.3, 0.1 + 2.0**-55, 1e-19, 3e-25, math.exp(-141.4), 2.0**-900, 0.25, 1e-60]
    assert exact_masses(weights) == [Fraction(weight) for weight in weights]


def test_far_outputs_stay_possible() -> None:
    """A word that falls below the first 64 bits opens the next table; cut-off tails would be a loss without limit."""
    weights = np.array([[0.5, 2.0**-70, 2.0**-72, 0.25]])
    table = ExactTable(weights)
    end = int(table._sums[0, -1])
    row = np.zeros(1, dtype=np.int64)
    below = np.array([end], dtype=np.uint64)
    finer = ExactTable(table._rest / float(table._room))
    for word, expected in ((0, 1), (int(finer._sums[0, 1]), 2), (2**64 - 1, -1)):
        assert table.draw(below, Chosen({5: word}), 5, row, None).tolist() == [expected]
    assert table.draw(np.array([2**64 - 1], dtype=np.uint64), Chosen({}), 5, row, None).tolist() == [-1]


def test_rows_of_a_table_do_not_mix() -> None:
    rng = np.random.default_rng(2)
    weights = rng.random((5, 37)) * 0.02
    table = ExactTable(weights)
    words = rng.integers(0, 2**64, size=20_000, dtype=np.uint64)
    which = rng.integers(5, size=20_000)
    together = table.draw(words, Chosen({}), 0, np.zeros(20_000, dtype=np.int64), which)
    for row in range(5):
        own = which == row
        alone = ExactTable(weights[row : row + 1]).draw(words[own], Chosen({}), 0, np.zeros(own.sum(), np.int64), None)
        assert np.array_equal(together[own], alone)


def test_randomised_response_keeps_its_budget_in_whole_numbers() -> None:
    for epsilon in (1e-6, 0.1, 1.0, 8.0, 30.0):
        mechanism = RandomizedResponse(Categories(15), epsilon)
        rest = Fraction(2**64 - mechanism.threshold)
        ratio = (mechanism.threshold * 15 + rest) / rest
        assert float(ratio) <= math.exp(epsilon) * (1 + 1e-15)
        assert 0.999999 * epsilon < mechanism.loss() <= epsilon


def test_every_input_accepts_the_same_share_of_its_draws() -> None:
    """Otherwise refusals would change the mass function by input."""
    for epsilon in (0.7, 1.0, 3.0):
        mechanism = tight(Grid((40, 40), (1.0, 1.0)), epsilon)
        assert isinstance(mechanism, TightGrid)
        shares = mechanism.operator.product(mechanism.coins.chances)
        assert shares.max() / shares.min() - 1 < 1e-12
        assert 0.5 < mechanism.coins.accepted <= 1


@pytest.mark.parametrize(
    ("mechanism", "first", "second"),
    [
        (tight(Grid((20, 20), (1.0, 1.0)), 1.0), 0, 1),
        (tight(Grid((20, 20), (1.0, 1.0)), 1.0), 0, 399),
        (UnboundedRemap(Grid((20, 20), (1.0, 1.0)), 0.3), 210, 211),
        (tight(Grid((61,), (1.0,), span=5), 1.2), 20, 25),
        (tight(line(30), 0.5), 0, 1),
        (tight(Categories(15), 1.0), 0, 14),
        (tight(Points(PLACES), 2.0), 0, 1),
    ],
)
def test_an_attacker_shows_no_more_than_the_distance(mechanism: Finite, first: int, second: int) -> None:
    """False alarms: 1e-7 each, 7e-7 together."""
    draws = 400_000
    samples = [mechanism.release(np.full(draws, cell), SystemBits(draws)) for cell in (first, second)]
    distance = float(mechanism.domain.between(np.array(first), np.array(second)))
    assert audit(samples[0], samples[1], alpha=1e-7) <= mechanism.loss() * distance


def test_an_attacker_finds_a_budget_that_is_overspent() -> None:
    draws = 400_000
    mechanism = tight(Categories(15), 1.3)
    samples = [mechanism.release(np.full(draws, cell), SystemBits(draws)) for cell in (0, 14)]
    assert audit(samples[0], samples[1], alpha=1e-7) > 1.0
