"""`kind: degrees` without Spark: what is refused, what is noised, and what is made of it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy.signal import fftconvolve

from spark_rdp.consistency import conjugate, difference_quantile, nonincreasing
from spark_rdp.degrees import DegreesVector, mallows_bound, plan_degrees
from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.geometric import Geometric
from spark_rdp.mechanisms.staircase import Staircase
from spark_rdp.queries.degrees import DegreesQuery
from spark_rdp.randomness import SystemBits
from spark_rdp.vectors import VectorPlan

NO_KEYS = pa.table({})


def query(**changes) -> DegreesQuery:
    given = {
        "name": "g",
        "edges": {"source": "a", "target": "b"},
        "privacy": {"epsilon": 1.0, "protect": "edge"},
        "max_degree": 7,
        "nodes": 100,
    }
    return DegreesQuery.of({**given, **changes})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"privacy": {"epsilon": 0, "protect": "edge"}}, "privacy.epsilon"),
        ({"privacy": {"epsilon": 1.0}}, "privacy.protect"),
        ({"privacy": {"epsilon": 1.0, "protect": "user"}}, "privacy.protect"),
        ({"edges": {"source": "a", "target": "a"}}, "edges.target"),
        ({"edges": {"source": "a"}}, "edges.target"),
        ({"max_degree": 0}, "max_degree"),
        ({"max_degree": 2.5}, "max_degree"),
        ({"max_degree": True}, "max_degree"),
        ({"max_degree": 100}, "max_degree must be below nodes"),
        ({"nodes": 1}, "nodes"),
        ({"nodes": float("nan")}, "nodes"),
        ({"nodes": {"path": "x"}}, "nodes.path"),
        ({"publish": "sequence", "nodes": None}, "nodes"),
        ({"publish": "sequence", "nodes": 2**30}, "nodes"),
        ({"publish": "pmf"}, "publish"),
        ({"metric": "l3"}, "metric"),
        ({"mechanism": "gaussian"}, "mechanism"),
        ({"delta": 1e-6}, "delta"),
    ],
)
def test_bad_queries_are_one_sentence_with_the_key(changes, named):
    with pytest.raises(InvalidInput) as refused:
        query(**changes)
    assert str(refused.value).startswith(named), refused.value
    assert "\n" not in str(refused.value)


def test_the_digest_is_of_the_question_not_of_where_it_goes():
    assert query().digest() == query(output={"path": "x"}, report="r.html").digest()
    assert query().digest() != query(max_degree=8).digest()
    plan = plan_degrees(query())
    assert VectorPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(("protect", "numbers", "coordinates"), [("edge", 8, 2), ("node", 7, 14)])
def test_the_budget_is_that_of_the_profile(protect, numbers, coordinates):
    plan = plan_degrees(query(privacy={"epsilon": 1.5, "protect": protect}))
    assert (plan.noise.coordinates, plan.noise.integer_sensitivity) == (coordinates, 1)
    assert 1.498 < plan.noise.verified_epsilon <= 1.5
    assert plan.noise.build().loss(1) == pytest.approx(1.5 / coordinates, rel=1e-3)
    assert plan.facts["highest"] == numbers
    assert plan.facts["overflow"] is (protect == "edge")


def vector(publish: str = "histogram", nodes: int | None = 100, **changes) -> DegreesVector:
    return DegreesVector(plan_degrees(query(publish=publish, nodes=nodes, **changes)), nodes)


COUNTS = np.array([30, 20, 15, 10, 5, 0, 2, 3])  # degrees 1 to 7, and 3 nodes with more; 15 of 100 have none


def test_without_noise_the_exact_numbers_come_out():
    table = vector().published(vector().measured(COUNTS), NO_KEYS).to_pydict()
    assert table["degree"] == list(range(9))
    assert table["nodes"] == [15, *COUNTS]
    unknown = vector(nodes=None)
    assert unknown.published(unknown.measured(COUNTS), NO_KEYS).to_pydict()["degree"] == list(range(1, 9))

    sequence = vector("sequence")
    degrees = np.repeat(np.arange(9), [15, *COUNTS])[::-1]
    np.testing.assert_array_equal(sequence.measured(COUNTS), degrees)
    table = sequence.published(degrees, NO_KEYS).to_pydict()
    assert table["degree"] == degrees.tolist()
    assert table["rank"] == list(range(1, 101))

    table = vector("distribution").published(vector().measured(COUNTS), NO_KEYS).to_pydict()
    np.testing.assert_allclose(table["share"], np.array([15, *COUNTS]) / 100)
    np.testing.assert_allclose(table["at_least"], np.cumsum([15, *COUNTS][::-1])[::-1] / 100)


def test_conjugation_goes_there_and_back():
    at_least = np.cumsum(COUNTS[::-1])[::-1]
    np.testing.assert_array_equal(conjugate(conjugate(at_least, 100), len(COUNTS)), at_least)


def test_whatever_the_noise_says_counts_are_not_negative_and_add_up_to_the_nodes():
    rng = np.random.default_rng(3)
    for publish in ("histogram", "distribution", "sequence"):
        asked = vector(publish)
        exact = asked.measured(COUNTS)
        for scale in (1, 100, 2**61):
            noised = exact + rng.integers(-scale, scale, len(exact), endpoint=True)
            table = asked.published(noised, NO_KEYS)
            for name in ("nodes", "share", "at_least", "degree"):
                if f"{name}_low" in table.column_names:
                    value, low, high = (table.column(name + end).to_numpy() for end in ("", "_low", "_high"))
                    assert np.all((low <= value) & (value <= high))
                    assert np.all(low >= 0)
            if publish == "histogram":
                assert table.column("nodes").to_numpy().sum() == 100
            if publish == "sequence":
                assert np.all(np.diff(table.column("degree").to_numpy()) <= 0)


def test_isotonic_regression_never_makes_the_error_larger():
    rng = np.random.default_rng(4)
    for _ in range(50):
        exact = np.sort(rng.integers(0, 200, 60))[::-1]
        noised = exact + rng.integers(-80, 80, 60)
        fitted = nonincreasing(noised, -np.inf, np.inf)
        for p in (1, 2, 3):
            before, after = (np.sum(np.abs(x - exact) ** p) for x in (noised, fitted))
            assert after <= before * 1.02 + 60 * 0.5**p  # rounding to whole numbers moves each by half at most


@pytest.mark.parametrize("mechanism", [Geometric(0.7), Geometric(5.0), Geometric(1e-3), Staircase(0.9, 50, 20)])
def test_the_interval_of_a_difference_is_the_shortest_that_covers(mechanism):
    reach = difference_quantile(mechanism, 0.95)
    k = np.arange(-8 * mechanism.quantile(0.99) - 60, 8 * mechanism.quantile(0.99) + 61)
    mass = np.exp(mechanism.log_mass(k))
    both = fftconvolve(mass, mass)
    inside = both[len(both) // 2] + 2 * np.cumsum(both[len(both) // 2 + 1 :])
    exact = int(np.searchsorted(inside, 0.95)) + 1 if both[len(both) // 2] < 0.95 else 0
    assert exact <= reach <= exact * 1.005


@pytest.mark.parametrize("publish", ["histogram", "distribution"])
def test_intervals_cover(publish):
    """Each exact number lies in its interval 95 % of the time.

    1,000 releases: a number covered with probability 0.95 is covered less than 911 times with probability below 1e-7
    (binomial), so that one of nine is with less than 1e-6.
    """
    asked = vector(publish, privacy={"epsilon": 1.0, "protect": "edge"})
    exact, noise = asked.measured(COUNTS), asked.plan.noise.build()
    truth = np.array([15, *COUNTS]) / (1 if publish == "histogram" else 100)
    covered = np.zeros(9)
    for _ in range(1000):
        table = asked.published(noise.release(exact, SystemBits(len(exact))), NO_KEYS)
        name = "nodes" if publish == "histogram" else "share"
        low, high = (table.column(name + end).to_numpy() for end in ("_low", "_high"))
        covered += (low <= truth + 1e-12) & (truth - 1e-12 <= high)
    assert covered.min() >= 911


def test_the_better_form_depends_on_the_metric_and_the_shape_of_the_question():
    def form(nodes: int, max_degree: int, p: float) -> str:
        return plan_degrees(
            query(publish="distribution", nodes=nodes, max_degree=max_degree, metric={"mallows": p})
        ).facts["form"]

    assert form(47538, 120, 1) == "at least"
    assert form(47538, 120, 2) == "at least"
    assert form(4039, 1100, 1) == "at least"
    assert form(4039, 1100, 2) == "sequence"


@pytest.mark.parametrize("p", [1, 1.5, 2, 3])
def test_the_distance_stays_below_its_bound_on_the_worst_graph(p):
    """All C_k equal: the errors of all of them fall on the same nodes. 300 releases, no less than 60 % of the bound."""
    numbers, nodes = 40, 200
    noise = Geometric(0.5)
    exact = np.full(numbers, 100)
    powers = []
    for _ in range(300):
        noised = np.clip(noise.release(exact, SystemBits(numbers)), 0, nodes)
        moved = (noised[None, :] >= np.arange(1, nodes + 1)[:, None]).sum(axis=1) - np.where(
            np.arange(1, nodes + 1) <= 100, numbers, 0
        )
        powers.append(np.mean(np.abs(moved) ** p))
    bound = mallows_bound(noise, p, numbers, nodes)
    assert 0.6 * bound**p / 2 ** (p - 1) < np.mean(powers) < bound**p * 1.1
