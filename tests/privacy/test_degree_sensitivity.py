"""One edge, or all edges of one node, never change more than the profile of `kind: degrees` claims. Brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from spark_rdp.degrees import DegreesVector, kept_edges, plan_degrees
from spark_rdp.queries.degrees import DegreesQuery

GRAPHS = 200


def question(protect: str, publish: str, max_degree: int, nodes: int) -> DegreesVector:
    query = DegreesQuery(
        name="g",
        edges={"source": "a", "target": "b"},
        privacy={"epsilon": 1.0, "protect": protect},
        max_degree=max_degree,
        publish=publish,
        nodes=nodes,
    )
    return DegreesVector(plan_degrees(query), nodes)


def measured(vector: DegreesVector, degrees: np.ndarray) -> np.ndarray:
    """What gets noise, from the degrees of all nodes."""
    highest = vector.plan.facts["highest"]
    counts = np.bincount(np.minimum(degrees, highest), minlength=highest + 1)[1:]
    return vector.measured(counts)


def degrees_of(edges: list[tuple[int, int]], nodes: int) -> np.ndarray:
    return np.bincount(np.array(edges, dtype=int).reshape(-1), minlength=nodes)


def graphs(seed: int):
    """Random graphs of 3 to 7 nodes, from empty to complete."""
    rng = np.random.default_rng(seed)
    for number in range(GRAPHS):
        nodes = int(rng.integers(3, 8))
        pairs = list(itertools.combinations(range(nodes), 2))
        chosen = rng.random(len(pairs)) < number / (GRAPHS - 1)
        yield nodes, pairs, [pair for pair, there in zip(pairs, chosen, strict=True) if there], rng


@pytest.mark.parametrize("publish", ["histogram", "sequence"])
def test_one_edge_changes_two_numbers_by_one(publish):
    largest = 0
    for nodes, pairs, edges, _ in graphs(1):
        # A range that holds all degrees, and one that cuts most of them off.
        for vector in (question("edge", publish, nodes - 1, nodes), question("edge", publish, 1, nodes)):
            claimed = vector.plan.noise.coordinates * vector.plan.noise.integer_sensitivity
            before = measured(vector, degrees_of(edges, nodes))
            for pair in pairs:
                other = [edge for edge in edges if edge != pair] if pair in edges else [*edges, pair]
                change = np.abs(measured(vector, degrees_of(other, nodes)) - before)
                assert change.sum() <= claimed
                largest = max(largest, int(change.sum()))
                if publish == "sequence":
                    assert change.max() <= 1
    assert largest == 2, "the claim is reached, so that it could not be smaller"


def test_a_histogram_of_bins_would_cost_twice_as_much():
    worst = 0
    for nodes, pairs, edges, _ in graphs(2):
        bins = np.bincount(degrees_of(edges, nodes), minlength=nodes + 1)
        for pair in pairs:
            other = [edge for edge in edges if edge != pair] if pair in edges else [*edges, pair]
            worst = max(worst, np.abs(np.bincount(degrees_of(other, nodes), minlength=nodes + 1) - bins).sum())
    assert worst == 4


@pytest.mark.parametrize("publish", ["histogram", "sequence"])
@pytest.mark.parametrize("most", [1, 2, 3])
def test_one_node_with_all_its_edges_changes_twice_max_degree_numbers_by_one(publish, most):
    reached = 0
    for nodes, pairs, edges, rng in graphs(3 + most):
        if most >= nodes:
            continue
        vector = question("node", publish, most, nodes)
        claimed = vector.plan.noise.coordinates
        assert claimed == 2 * most
        order = dict(zip(pairs, rng.permutation(len(pairs)), strict=True))

        def numbers(graph, order=order, nodes=nodes, vector=vector):
            queue = sorted(graph, key=order.__getitem__)
            kept: dict[int, int] = {}
            mask = kept_edges(queue, most, kept)
            degrees = degrees_of([edge for edge, there in zip(queue, mask, strict=True) if there], nodes)
            assert degrees.max(initial=0) <= most
            return measured(vector, degrees)

        before = numbers(edges)
        for node in range(nodes):
            change = np.abs(numbers([edge for edge in edges if node not in edge]) - before).sum()
            assert change <= claimed
            reached = max(reached, int(change))
    assert reached == 2 * most


def test_cutting_each_node_to_its_first_edges_would_break_the_claim():
    """Why edges are taken one after another: dropping an edge that is not among the first of *both* ends is not safe.

    A hub is the first choice of all others. Without it, every other node turns to its second choice.
    """
    others = 8
    edges = [(0, node) for node in range(1, others + 1)] + [(node, node + 1) for node in range(1, others, 2)]
    before = _first_of_both(edges, 1, others + 1)
    after = _first_of_both([edge for edge in edges if 0 not in edge], 1, others + 1)
    assert np.abs(before - after).sum() > 2


def _first_of_both(edges: list[tuple[int, int]], most: int, nodes: int) -> np.ndarray:
    first = {node: [edge for edge in edges if node in edge][:most] for node in range(nodes)}
    return degrees_of([edge for edge in edges if edge in first[edge[0]] and edge in first[edge[1]]], nodes)
