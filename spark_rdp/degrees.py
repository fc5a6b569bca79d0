"""The degrees of a graph: what is noised, with which sensitivity, and what is published from it.

Let ``C_k`` be the number of nodes with at least k edges. The C_k tell everything: the number of nodes of degree k is
``C_k - C_(k+1)``, and the degrees in descending order are their conjugate, ``s_i = number of k with C_k >= i``. Noise
is added either to the C_k (one number for each degree in the declared range) or to the s_i (one for each node).

*Sensitivity, protect: edge.* Adding an edge between nodes of degrees a and b raises C_(a+1) and C_(b+1) by one (one of
them by two, if a = b): two changes of one. Conjugation keeps that: two of the s_i rise by one. Bins of a histogram
would be four changes of one. Noise in the C_k spends half of that, and the noise of a bin, then a difference of two,
still has half the variance. Cutting degrees off above the range leaves out changes and makes no new ones.

*Sensitivity, protect: node.* Neighbours are a graph and the same graph without any edge of one node v. Both are first
projected: edges are taken in the order of a keyed hash of their two ends, and an edge is kept if both ends have kept
fewer than m edges so far. The order of two edges does not depend on any other edge. Follow the two runs side by side,
and let d(w) be the difference of the degrees that a node w other than v has reached. Every edge of v that is kept, in
the one run that has it, changes one d(w) by one; v keeps s of them, at most m. An edge elsewhere that one run keeps and
the other does not meets a full end w in the other run: there d(w) is not 0 and moves towards 0 by one, while at the
other end it moves by one. So the sum of the abs d(w) grows by the edges of v only, and ends at most at s. The degree of
v itself is s in one run and 0 in the other. All degrees together change by at most 2 s, so at most 2 m, and a degree
that changes by one changes one C_k, and one s_i, by one: 2 m changes of one.

The loss of a shift by j is at most j times that of a shift by one, whatever the noise, so that changes of one may fall
on the same number.

Source: Hay, Li, Miklau, Jensen 2009 (degree sequences); Day, Li, Lyu 2016 (projection by a stable order of edges);
mathematics, section 1.2 and E6.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from spark_rdp.consistency import conjugate, difference_quantile, nonincreasing
from spark_rdp.mechanisms.base import Additive
from spark_rdp.metrics import Mallows
from spark_rdp.outputs import CONFIDENCE
from spark_rdp.planning import additive
from spark_rdp.planning.plan import Plan
from spark_rdp.queries.degrees import MOST_IN_SEQUENCE, DegreesQuery
from spark_rdp.releases import charge, split
from spark_rdp.vectors import NOISED, VectorPlan

if TYPE_CHECKING:
    import pyarrow as pa


def kept_edges(edges: Iterable[tuple[Any, Any]], most: int, kept: dict[Any, int]) -> list[bool]:
    """Take edges one after another; keep each whose two ends have kept fewer than ``most``.

    Args:
        edges: Pairs of different nodes, in order.
        most: The most edges of a node.
        kept: How many edges each node has kept so far; brought up to date.
    """
    mask = []
    for low, high in edges:
        first, second = kept.get(low, 0), kept.get(high, 0)
        fits = first < most and second < most
        if fits:
            kept[low], kept[high] = first + 1, second + 1
        mask.append(fits)
    return mask


Form = Literal["at least", "sequence"]
_HISTOGRAM, _SEQUENCE, _DISTRIBUTION = "histogram", "sequence", "distribution"


def plan_degrees(query: DegreesQuery) -> VectorPlan:
    """Plan the noise of a release of degrees.

    Raises:
        InvalidInput: The budget is too small for the protection asked for.
    """
    by_edge = query.privacy.protect == "edge"
    coordinates = 2 if by_edge else 2 * query.max_degree
    noise = additive.plan(
        epsilon=split(query.privacy.epsilon, [1])[0] / 1e6,
        sensitivity=1,
        metric=query.metric,
        mechanism=query.mechanism,
        coordinates=coordinates,
        granularity=1,
    )
    numbers = query.max_degree + 1 if by_edge else query.max_degree
    form, distances = _form(query, noise, numbers)
    return VectorPlan(
        kind=query.kind,
        query_digest=query.digest(),
        unit=query.privacy.protect,
        neighbours="add-remove",
        epsilon_millionths=charge(query.privacy.epsilon),
        measure="degrees",
        role="nodes of at least each degree" if form == "at least" else "degree of each node",
        noise=noise,
        facts={
            "publish": query.publish,
            "form": form,
            "max_degree": query.max_degree,
            "highest": numbers,
            "overflow": by_edge,
            "expected_distance": distances,
        },
    )


def _form(query: DegreesQuery, noise: Plan, numbers: int) -> tuple[Form, dict[str, float] | None]:
    """What is noised, and for a Mallows metric the most the distance to the true distribution is expected to be."""
    nodes = query.known_nodes
    distances = None
    if isinstance(query.metric, Mallows) and nodes is not None:
        distances = {
            _HISTOGRAM: mallows_bound(noise.build(), query.metric.p, numbers, nodes),
            _SEQUENCE: noise.metric_value,
        }
    if query.publish == _SEQUENCE:
        return "sequence", distances
    if query.publish == _DISTRIBUTION and distances is not None and nodes is not None and nodes <= MOST_IN_SEQUENCE:
        return ("sequence" if distances[_SEQUENCE] < distances[_HISTOGRAM] else "at least"), distances
    return "at least", distances


def mallows_bound(noise: Additive, p: float, numbers: int, nodes: int) -> float:
    """A bound on the expected p-th power of the Mallows distance of noised C_k, whatever the graph; its p-th root.

    For p = 1 the distance of distributions is the sum of the errors of the C_k over the nodes, and the bound is what
    it is expected to be before consistency. For larger p errors of neighbouring C_k can add up in one node: the m-th
    node to be moved is moved by at most as many degrees as there are C_k with an error of m or more, a binomial number.

    Args:
        noise: The noise of each C_k.
        p: The order, at least 1.
        numbers: How many C_k there are.
        nodes: How many nodes there are.
    """
    last = max(noise.quantile(1 - 1e-12), 1)
    ends = np.unique(
        np.concatenate([np.arange(1, min(last, 4096) + 2), np.geomspace(1, last + 1, 4096).astype(np.int64)])
    )
    chance = np.exp([noise.log_tail(int(m)) for m in ends[:-1]])
    mean = numbers * chance
    square = mean + numbers * (numbers - 1) * chance**2
    if p <= 2:  # moments are convex in the order, on a logarithmic scale
        power = mean ** (2 - p) * square ** (p - 1)
    else:
        power = float(numbers) ** (p - 2) * square
    return float((power @ np.diff(ends) / nodes) ** (1 / p))


@dataclass(frozen=True)
class DegreesVector:
    """From the exact numbers of nodes of each degree to the published rows.

    Args:
        plan: The plan.
        nodes: How many nodes there are, if that is public.
    """

    plan: VectorPlan
    nodes: int | None

    @property
    def _highest(self) -> int:
        return int(self.plan.facts["highest"])

    def measured(self, exact: np.ndarray) -> np.ndarray:
        """The C_k, or the degrees of the nodes, from the numbers of nodes of degree 1, 2, ..., ``highest`` or more."""
        at_least = np.cumsum(exact[::-1])[::-1]
        return at_least if self.plan.facts["form"] == "at least" else conjugate(at_least, self._known)

    @property
    def _known(self) -> int:
        assert self.nodes is not None
        return self.nodes

    def published(self, noised: np.ndarray, keys: pa.Table) -> pa.Table:
        """The public rows; ``degree`` is the largest declared degree + 1 for nodes that have more.

        The column `NOISED` holds what the row was before it was made consistent: the degree of a sequence, and for
        histogram and distribution the number, or share, of nodes of at least the degree (counted in the noised degrees
        where those got the noise). It is the output of the mechanism itself, so that keeping it costs nothing.
        """
        import pyarrow as pa

        del keys
        noise = self.plan.noise.build()
        if self.plan.facts["publish"] == _SEQUENCE:
            return pa.table(self._sequence(noised, noise))
        at_least, low, high = self._at_least(noised, noise)
        counts = self._counts(noised, at_least, low, high, noise)
        raw = noised if self.plan.facts["form"] == "at least" else conjugate(np.sort(noised)[::-1], self._highest)
        raw = raw if self.nodes is None else np.append(self.nodes, raw)
        if self.plan.facts["publish"] == _HISTOGRAM:
            return pa.table({**counts, NOISED: raw})
        ends = ("", "_low", "_high")
        total = float(self._known)
        shares = {f"share{end}": counts[f"nodes{end}"] / total for end in ends}
        reached = {
            f"at_least{end}": np.append(total, part)[: len(counts["degree"])] / total
            for end, part in zip(ends, (at_least, low, high), strict=True)
        }
        return pa.table({"degree": counts["degree"], **shares, **reached, NOISED: raw / total})

    def _sequence(self, noised: np.ndarray, noise: Additive) -> dict[str, np.ndarray]:
        degrees = nonincreasing(noised, 0, self._highest)
        reach = noise.quantile(CONFIDENCE)
        low, high = np.clip(noised - reach, 0, self._highest), np.clip(noised + reach, 0, self._highest)
        rank = np.arange(1, len(degrees) + 1)
        return {
            "rank": rank,
            "degree": degrees,
            "degree_low": np.minimum(low, degrees),
            "degree_high": np.maximum(high, degrees),
            NOISED: noised,
        }

    def _at_least(self, noised: np.ndarray, noise: Additive) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The consistent C_k, and the ends of an interval that holds each exact one with 95 % probability or more."""
        most = np.inf if self.nodes is None else self.nodes
        if self.plan.facts["form"] == "at least":
            values = nonincreasing(noised, 0, most)
            reach = noise.quantile(CONFIDENCE)
            low, high = np.clip(noised - reach, 0, most), np.clip(noised + reach, 0, most)
        else:
            # All degrees lie in their intervals at once; so the C_k lie between those of the two ends.
            reach = noise.quantile(1 - (1 - CONFIDENCE) / self._known)
            values = conjugate(nonincreasing(noised, 0, self._highest), self._highest)
            low, high = (conjugate(np.sort(noised + move)[::-1], self._highest) for move in (-reach, reach))
        low = np.minimum(low, values).astype(np.int64)
        return values, low, np.maximum(high, values).astype(np.int64)

    def _counts(
        self, noised: np.ndarray, at_least: np.ndarray, low: np.ndarray, high: np.ndarray, noise: Additive
    ) -> dict[str, np.ndarray]:
        """Nodes of each degree, with intervals."""
        following = np.append(at_least[1:], 0)
        nodes = at_least - following
        most = np.iinfo(np.int64).max if self.nodes is None else self.nodes
        if self.plan.facts["form"] == "at least":
            differences = noised - np.append(noised[1:], 0)
            reach = np.full(len(nodes), difference_quantile(noise, CONFIDENCE))
            reach[-1] = noise.quantile(CONFIDENCE)  # the last one has the noise of one number
            bottom, top = differences - reach, differences + reach
        else:
            bottom, top = low - np.append(high[1:], 0), high - np.append(low[1:], 0)
        if self.nodes is not None:
            nodes = np.append(self.nodes - at_least[0], nodes)
            bottom, top = np.append(self.nodes - high[0], bottom), np.append(self.nodes - low[0], top)
        first = 1 if self.nodes is None else 0
        return {
            "degree": np.arange(first, first + len(nodes)),
            "nodes": nodes,
            "nodes_low": np.minimum(np.clip(bottom, 0, most), nodes),
            "nodes_high": np.maximum(np.clip(top, 0, most), nodes),
        }
