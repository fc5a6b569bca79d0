"""Strategies for sums of cells: what they predict is what least squares gives, to the last digit."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from spark_rdp.planning.workload import (
    Product,
    Strategy,
    all_ranges,
    best_product,
    one_range,
    prefixes,
    range_errors,
    single_cells,
    strategies,
)


def rows(workload: str, cells: int) -> np.ndarray:
    """The workload written out, one 0/1 row per range."""
    pairs = {
        "all": [(a, b) for a in range(cells) for b in range(a, cells)],
        "prefixes": [(0, b) for b in range(cells)],
        "cells": [(a, a) for a in range(cells)],
    }[workload]
    matrix = np.zeros((len(pairs), cells))
    for row, (a, b) in enumerate(pairs):
        matrix[row, a : b + 1] = 1
    return matrix


TRACES = {"all": all_ranges, "prefixes": prefixes, "cells": single_cells}
STRATEGIES = [
    strategy for cells in (2, 5, 8, 9, 13, 16) for strategy in strategies(cells) if strategy.branching <= max(cells, 4)
]


def matrix_of(strategy: Strategy) -> np.ndarray:
    """The strategy written out over the filled domain."""
    full = Strategy(strategy.name, strategy.size, strategy.branching, strategy.height, strategy.top)
    return full.measure(np.eye(strategy.size, dtype=np.int64)).T


@pytest.mark.parametrize("workload", TRACES)
def test_the_predicted_total_error_is_that_of_least_squares(workload):
    for strategy in STRATEGIES:
        a = matrix_of(strategy)
        w = np.pad(rows(workload, strategy.cells), ((0, 0), (0, strategy.size - strategy.cells)))
        exact = np.trace(w @ np.linalg.inv(a.T @ a) @ w.T)
        predicted = strategy.error([TRACES[workload](strategy.cells, length) for length in strategy.lengths])
        assert predicted == pytest.approx(exact, rel=1e-10), strategy


def test_single_ranges_are_predicted_too():
    for strategy in STRATEGIES:
        a = matrix_of(strategy)
        inverse = np.linalg.inv(a.T @ a)
        pairs = list(itertools.combinations_with_replacement(range(strategy.cells), 2))
        first, last = np.array(pairs).T
        w = np.array([(np.arange(strategy.size) >= low) & (np.arange(strategy.size) <= high) for low, high in pairs])
        exact = np.einsum("ij,jk,ik->i", w.astype(float), inverse, w.astype(float))
        np.testing.assert_allclose(range_errors(strategy, first, last), exact, rtol=1e-9)
        total = sum(one_range(first, last, length).sum() for length in strategy.lengths)
        assert total == pytest.approx(sum(all_ranges(strategy.cells, length) for length in strategy.lengths))


def test_estimates_are_those_of_least_squares_and_exact_without_noise():
    rng = np.random.default_rng(1)
    for strategy in STRATEGIES:
        a = matrix_of(strategy)
        noised = rng.normal(size=(2, strategy.answers))
        expected = np.linalg.lstsq(a, noised.T, rcond=None)[0].T[:, : strategy.cells]
        np.testing.assert_allclose(strategy.estimate(noised), expected, atol=1e-10)
        cells = rng.integers(0, 1000, size=(3, strategy.cells))
        np.testing.assert_allclose(strategy.estimate(strategy.measure(cells)), cells, atol=1e-9)


def test_a_row_changes_as_many_answers_as_claimed_each_by_one():
    for strategy in STRATEGIES:
        one_row = np.eye(strategy.cells, dtype=np.int64)
        answers = strategy.measure(one_row)
        assert answers.shape == (strategy.cells, strategy.answers)
        assert np.all(np.abs(answers).sum(axis=1) == strategy.levels), strategy
        assert np.abs(answers).max() == 1
    crossed = Product((Strategy.wavelet(5), Strategy.hierarchy(9, 3, 1), Strategy.identity(2)))
    cell = np.zeros((5, 9, 2), dtype=np.int64)
    cell[3, 8, 1] = 1
    answers = crossed.measure(cell)
    assert len(answers) == crossed.answers
    assert np.abs(answers).sum() == crossed.levels == 4 * 2 * 1
    np.testing.assert_allclose(crossed.estimate(answers), cell, atol=1e-12)


def test_a_product_of_strategies_has_the_product_of_the_errors():
    parts = (Strategy.wavelet(4), Strategy.hierarchy(5, 3))
    a = np.kron(matrix_of(parts[0]), matrix_of(parts[1]))
    w = np.kron(rows("all", 4), np.pad(rows("prefixes", 5), ((0, 0), (0, 4))))
    exact = np.trace(w @ np.linalg.inv(a.T @ a) @ w.T)
    errors = [
        parts[0].error([all_ranges(4, length) for length in parts[0].lengths]),
        parts[1].error([prefixes(5, length) for length in parts[1].lengths]),
    ]
    assert np.prod(errors) == pytest.approx(exact, rel=1e-10)


def total(strategy: Strategy, trace: Callable[[int, int], float]) -> float:
    return strategy.error([trace(strategy.cells, length) for length in strategy.lengths])


def laplace_variance(levels: int) -> float:
    return 2.0 * levels**2


def test_the_best_strategy_depends_on_domain_and_workload():
    def best(cells: int, workload: str) -> tuple[Product, dict[str, float]]:
        trace = TRACES[workload]
        return best_product([cells], lambda _, s: np.array([total(s, trace)]), laplace_variance)

    small, totals = best(16, "all")
    assert small.parts[0].name == "identity"
    assert totals["identity"] == min(totals.values())
    large, totals = best(2**16, "all")
    assert large.parts[0].name == "hierarchy"
    assert totals["hierarchy"] < totals["wavelet"] < totals["identity"] / 20
    assert best(2**16, "cells")[0].parts[0].name == "identity"
    one, _ = best_product([1, 8], lambda _, s: np.array([total(s, all_ranges)]), laplace_variance)
    assert [part.cells for part in one.parts] == [1, 8]
