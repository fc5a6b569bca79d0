"""``Phi z = 1``: the figures of mathematics section 5 and erratum E3, and independent dense references."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from spark_rdp.mechanisms.finite.domains import Categories, Domain, Points
from spark_rdp.mechanisms.finite.existence import (
    any_prior_information,
    corner_priors,
    prior_bounds,
    threshold,
    utility_bound,
)
from spark_rdp.mechanisms.finite.grids import CHEBYSHEV, L1, Grid, line
from spark_rdp.mechanisms.finite.operators import operator_of
from spark_rdp.mechanisms.finite.toeplitz import Toeplitz

MAP = Grid((100, 100), (1.0, 1.0))
SUM = Grid((751,), (1.0,), span=5)
COUNTS = Grid((31, 31), (1.0, 1.0), CHEBYSHEV)


@pytest.mark.parametrize(("epsilon", "mean"), [(0.7, 0.08185), (1.0, 0.15941), (1.3, 0.25573)])
def test_geo_indistinguishability_on_a_map_of_ten_thousand_cells(epsilon: float, mean: float) -> None:
    solution = operator_of(MAP, epsilon).unit()
    assert round(float(solution.values.mean()), 5) == mean
    assert solution.nonnegative
    assert solution.error < 1e-8


def test_the_map_mechanism_does_not_exist_at_a_small_epsilon() -> None:
    solution = operator_of(MAP, 0.4).unit()
    assert round(float(solution.values.min()), 3) == -0.058
    assert not solution.nonnegative


@pytest.mark.parametrize(
    ("domain", "epsilon", "mean"),
    [(SUM, 1.0, 0.148323), (SUM, 1.3, 0.212412), (COUNTS, 1.3, 0.217167)],
)
def test_means_of_erratum_e3(domain: Domain, epsilon: float, mean: float) -> None:
    assert round(float(operator_of(domain, epsilon).unit().values.mean()), 6) == mean


@pytest.mark.parametrize(
    ("domain", "first", "papers", "least"), [(SUM, 0.97, 0.80, -0.070), (COUNTS, 1.14, 0.90, -0.094)]
)
def test_thresholds_of_erratum_e3(domain: Domain, first: float, papers: float, least: float) -> None:
    """The first epsilon of a 0.01 grid where the mechanism exists; at the paper's it does not."""
    found = threshold(domain)
    assert found is not None
    assert math.ceil(found * 100) / 100 == first
    assert operator_of(domain, first).unit().nonnegative
    assert not operator_of(domain, first - 0.01).unit().nonnegative
    assert round(float(operator_of(domain, papers).unit().values.min()), 3) == least


@pytest.mark.parametrize(
    "domain", [SUM, Grid((20, 13), (1.0, 0.6)), Points(((0.0, 0.0), (1.0, 0.1), (0.4, 1.1), (2.0, 2.0)))]
)
def test_a_threshold_is_known_to_a_millionth(domain: Domain) -> None:
    found = threshold(domain)
    assert found is not None
    if found:
        assert (
            operator_of(domain, found + 1e-6).unit().values.min()
            >= 0
            > operator_of(domain, found - 1e-6).unit().values.min()
        )


def test_the_threshold_of_a_large_map_is_that_of_its_corner() -> None:
    assert threshold(Grid((90, 200), (1.0, 1.0))) == pytest.approx(threshold(Grid((60, 60), (1.0, 1.0))), abs=1e-6)


def reference(domain: Domain, epsilon: float) -> np.ndarray:
    """Phi, without the code under test but for the distances."""
    return np.exp(-epsilon * domain.distances())


@pytest.mark.parametrize(
    ("domain", "epsilon"),
    [
        (Grid((40, 40), (1.0, 1.0)), 0.7),
        (Grid((40, 40), (1.0, 1.0)), 0.3),
        (Grid((25, 30), (1.0, 0.8)), 1.0),
        (SUM, 0.5),
        (COUNTS, 0.9),
        (Grid((5, 6, 7), (1.0, 1.0, 1.0), CHEBYSHEV), 0.8),
        (Grid((12, 17), (1.0, 0.5), L1), 0.2),
        (line(300), 0.05),
        (Categories(4, 4), 0.3),
    ],
)
def test_fast_solutions_agree_with_a_dense_one(domain: Domain, epsilon: float) -> None:
    matrix = reference(domain, epsilon)
    operator = operator_of(domain, epsilon)
    rng = np.random.default_rng(7)
    for b in (np.ones(domain.size), rng.normal(size=domain.size)):
        found, exact = operator.solve(b), np.linalg.solve(matrix, b)
        assert np.abs(found.values - exact).max() < 1e-9
        assert np.abs(operator.product(b) - matrix @ b).max() < 1e-11
        assert np.abs(matrix @ found.values - b).max() <= found.residual + 1e-11
    z = operator.unit()
    assert np.abs(matrix @ z.values - 1).max() < 1e-12
    assert np.abs(z.values - np.linalg.solve(matrix, np.ones(domain.size))).max() < 1e-9


def test_closed_forms() -> None:
    q = math.exp(-0.3)
    z = operator_of(line(50), 0.3).unit().values
    assert z == pytest.approx([1 / (1 + q)] + 48 * [(1 - q) / (1 + q)] + [1 / (1 + q)], rel=1e-13)
    assert operator_of(Categories(15), 0.3).unit().values == pytest.approx([1 / (1 + 14 * q)] * 15, rel=1e-13)
    assert operator_of(Categories(3, 4), 0.3).unit().values == pytest.approx([(1 + 2 * q) ** -4] * 81, rel=1e-13)


def test_a_ring_has_the_same_ball_around_every_point() -> None:
    """Proposition 9: where all balls of a radius have one size, ``z = 1 / sum_r n_r e^-r``."""
    places = np.arange(12)
    steps = np.minimum(abs(places[:, None] - places), 12 - abs(places[:, None] - places)).astype(float)
    ring = Points(tuple(map(tuple, steps)), "matrix")
    expected = 1 / np.exp(-0.4 * steps[0]).sum()
    assert operator_of(ring, 0.4).unit().values == pytest.approx([expected] * 12, rel=1e-12)


def test_the_error_bound_holds_where_phi_is_badly_conditioned() -> None:
    """Few digits are left at a small epsilon; how few is known."""
    grid = Grid((30, 30), (1.0, 1.0))
    found = operator_of(grid, 0.06).unit()
    exact = np.linalg.solve(reference(grid, 0.06).astype(np.longdouble).astype(float), np.ones(900))
    assert np.abs(found.values - exact).max() <= found.error < 1e-4


def test_a_solution_that_is_only_just_not_negative_is_not_trusted() -> None:
    """At the threshold the least entry is nearly 0: existence is claimed only where rounding cannot hide a sign."""
    found = threshold(SUM)
    assert found is not None
    at = operator_of(SUM, found).unit()
    assert abs(at.values.min()) < 1e-5
    assert at.nonnegative == bool(at.values.min() >= at.error)


def test_memory_is_a_few_vectors() -> None:
    """A matrix of this grid would need 65 GB."""
    grid = Grid((300, 300), (1.0, 1.0))
    tracemalloc.start()
    try:
        solution = Toeplitz(grid, 1.0).unit()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert solution.nonnegative
    assert peak / grid.size < 500  # bytes per cell: some 60 doubles


def test_example_3_and_erratum_e4() -> None:
    """Four values, five people: the bound is only valid where the prior is regular, from epsilon ln 2 on."""
    prior = np.array([0.3, 0.27, 0.23, 0.2])
    at_half = prior_bounds(operator_of(Categories(4), 0.5), prior)
    assert round(5 * at_half.formula_information, 4) == 1.2074
    assert not at_half.regular
    assert at_half.utility is None
    assert at_half.information is None
    assert round(any_prior_information(4, 5, 0.5), 4) == 2.5226
    assert not prior_bounds(operator_of(Categories(4), math.log(2) - 1e-6), prior).regular
    regular = prior_bounds(operator_of(Categories(4), math.log(2) + 1e-6), prior)
    assert regular.regular
    assert regular.utility == pytest.approx(regular.weights.sum())
    # The whole database at once is the product of its people.
    people = np.ones(1)
    for _ in range(5):
        people = np.multiply.outer(people, prior).reshape(-1)
    whole = prior_bounds(operator_of(Categories(4, 5), 0.5), people)
    assert whole.formula_information == pytest.approx(5 * at_half.formula_information)


def test_corner_priors_are_regular_with_one_weight() -> None:
    operator = operator_of(Grid((9, 9), (1.0, 1.0)), 0.9)
    corners = corner_priors(operator, np.array([0, 40]))
    assert corners.sum(axis=1) == pytest.approx([1, 1])
    for cell, corner in zip((0, 40), corners, strict=True):
        weights = prior_bounds(operator, corner).weights
        assert np.flatnonzero(np.abs(weights) > 1e-9).tolist() == [cell]


def test_a_uniform_prior_is_regular_exactly_where_the_mechanism_exists() -> None:
    for epsilon in (0.8, 1.0, 1.13, 1.2):
        operator = operator_of(COUNTS, epsilon)
        assert prior_bounds(operator, np.ones(961)).regular == operator.unit().nonnegative


def test_the_utility_bound_is_that_of_a_linear_programme() -> None:
    """``max prior h`` over ``Phi h <= 1``, which every d-private mechanism obeys."""
    from scipy.optimize import linprog

    grid = Grid((5, 5), (1.0, 1.0))
    for epsilon in (0.3, 0.6, 1.5):
        operator = operator_of(grid, epsilon)
        best = -linprog(-np.ones(25) / 25, A_ub=reference(grid, epsilon), b_ub=np.ones(25)).fun
        bound = utility_bound(operator, np.full(25, 1 / 25), operator.unit().values / 25)
        assert best <= bound * (1 + 1e-9)
        if operator.unit().nonnegative:
            assert bound == pytest.approx(best, rel=1e-9)
