"""The R2DP sampler against its mass function. Every check rejects a right sampler with probability at most 1e-8."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from statistical import goodness

from spark_rdp.mechanisms.r2dp import R2DP, AtomChooser
from spark_rdp.mechanisms.second_fold import Gamma, LinearCombination, Rayleigh, SecondFold, TwoPoint, Uniform
from spark_rdp.randomness import Bits

DRAWS = 10**6
LAWS: list[SecondFold] = [
    TwoPoint(0.08, 1.7, 0.3),
    TwoPoint(2.6 / 2**20, 11.1 / 2**20, 0.2986),
    TwoPoint(0.001, 6.0, 0.01),
    Gamma(5.0, 0.06),
    Gamma(5.0, 2.0**-22),
    LinearCombination((1.0, 0.5), (Gamma(6.0, 0.05), Uniform(0.1, 0.6))),
]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_draws_follow_the_mass_function(law: SecondFold) -> None:
    """Law, balance and tails; false alarm 1e-8 each."""
    noise = R2DP(law)
    draws = goodness.draw(noise, DRAWS, seed=81)
    goodness.check_law(draws, noise)
    goodness.check_balance(draws, noise)
    goodness.check_tails(draws, noise)


@pytest.mark.parametrize("factor", [0.97, 1.03])
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_a_scale_off_by_three_percent_is_rejected(law: SecondFold, factor: float) -> None:
    """The control of the test above, in both directions."""
    draws = goodness.draw(R2DP(law), DRAWS // 2, seed=82)
    with pytest.raises(AssertionError):
        goodness.check_law(draws, R2DP(law.scaled(factor)))


def test_a_wrong_weight_is_rejected() -> None:
    """Atoms chosen with 0.31 instead of 0.30."""
    draws = goodness.draw(R2DP(TwoPoint(0.08, 1.7, 0.31)), DRAWS, seed=83)
    with pytest.raises(AssertionError):
        goodness.check_law(draws, R2DP(TwoPoint(0.08, 1.7, 0.3)))


def test_equal_rows_get_unrelated_noise() -> None:
    """8,000 equal values; false alarm 1e-8 each."""
    for law in (TwoPoint(2.6 / 2**20, 11.1 / 2**20, 0.2986), Rayleigh(2.0**-19)):
        goodness.check_no_repeats(goodness.draw(R2DP(law), 8000, seed=84), R2DP(law))


def test_noise_depends_on_the_row_alone() -> None:
    """A row's noise does not change with the batch it comes in."""
    noise = R2DP(Gamma(3.0, 0.01))
    whole = noise.noise(goodness.seeded_bits(5000, 85))
    assert np.array_equal(noise.noise(goodness.seeded_bits(700, 85)), whole[:700])
    assert noise.noise(goodness.seeded_bits(0, 85)).shape == (0,)


class Scripted(Bits):
    """Given words, whatever the lane."""

    def __init__(self, rows: list[list[int]]) -> None:
        self._rows = np.array(rows, dtype=np.uint64)
        self.size = len(rows)

    def words(self, lane: int, count: int, rows: np.ndarray | None = None) -> np.ndarray:
        return (self._rows if rows is None else self._rows[rows])[:, :count]


@pytest.mark.parametrize(
    "weights",
    [[0.5, 0.5], [0.3, 0.7], [1e-30, 1.0], [0.25, 1e-25, 0.5, 3e-22, 0.25], [2.0**-64, 1.0], [1e-200, 1.0]],
    ids=str,
)
def test_atoms_are_chosen_with_exactly_their_weights(weights: list[float]) -> None:
    """Read the probabilities off the thresholds: words just below and at each of them go to different atoms."""
    chooser = AtomChooser(np.array(weights))
    size = chooser._words
    largest = int(np.argmax(weights))
    total = Fraction(0)
    for atom, threshold in enumerate([*chooser._thresholds, 2 ** (64 * size)]):
        share = Fraction(threshold, 2 ** (64 * size)) - total
        total += share
        if atom != largest:
            assert share == Fraction(weights[atom])
        else:
            assert abs(share - Fraction(weights[atom])) <= Fraction(1, 2**50)
    for atom, threshold in enumerate(chooser._thresholds):
        numbers = [threshold - 1, threshold]
        rows = [[number >> 64 * (size - 1 - i) & (2**64 - 1) for i in range(size)] for number in numbers]
        for row in rows:
            row.insert(1, 2**63)  # is not read
        assert chooser.choose(Scripted(rows), 0).tolist() == [atom, atom + 1]


def test_rare_atoms_are_drawn_as_often_as_they_should() -> None:
    """512 weights from 1e-6 to 1e-2 against their counts; chi-square, false alarm 1e-8."""
    weights = np.geomspace(1e-6, 1e-2, 512)
    weights /= weights.sum()
    chooser = AtomChooser(weights)
    counts = np.bincount(chooser.choose(goodness.seeded_bits(DRAWS, 86), 3), minlength=512)
    kept = weights * DRAWS >= 20
    observed = np.append(counts[kept], counts[~kept].sum())
    expected = np.append(weights[kept], weights[~kept].sum()) * DRAWS
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-8
