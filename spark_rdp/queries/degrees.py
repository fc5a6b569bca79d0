"""What a user asks about the degrees of a graph: ``kind: degrees``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from spark_rdp.domains import NODES
from spark_rdp.errors import InvalidInput
from spark_rdp.planning import additive
from spark_rdp.queries.base import Epsilon, MaxDegree, Refused, Strict, refuse
from spark_rdp.queries.keys import KeyFile
from spark_rdp.queries.measures import Column, Mechanism, MetricSpec
from spark_rdp.queries.published import PublishedQuery

#: A sequence has one row per node, made in one task.
MOST_IN_SEQUENCE = 2**24


def _nodes(given: Any) -> Any:
    if isinstance(given, KeyFile):
        return given
    if isinstance(given, Mapping):
        return KeyFile.of(given)
    try:
        return NODES.check(given)
    except InvalidInput:
        constraint = f"a whole number between {NODES.lower} and {NODES.upper}, or {{file: ...}}"
        raise refuse("", constraint, given, NODES.remedy) from None


Nodes = Annotated[
    int | KeyFile,
    BeforeValidator(_nodes),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": NODES.lower}, {"type": "object"}]}),
]


class Edges(Strict):
    """The two columns of an edge list; an edge is the same in both directions."""

    source: Column = Field(description="Name the column of one end of an edge.")
    target: Column = Field(description="Name the column of its other end.")

    @model_validator(mode="after")
    def _different(self) -> Edges:
        if self.source == self.target:
            raise refuse("target", "another column than source", self.target, "An edge has two ends.")
        return self


class GraphPrivacy(Strict):
    """What is protected in a graph, and how much.

    Args:
        epsilon: The budget of the release.
        protect: ``edge``: whether two nodes are linked. ``node``: all the edges of a node together.
    """

    epsilon: Epsilon = Field(description="Common choices lie between 0.1 and 10.")
    protect: Literal["edge", "node"] = Field(description="Write edge, or node to protect all edges of a node together.")


class DegreesQuery(PublishedQuery):
    """How many nodes of a graph have each degree.

    The graph is simple and undirected: an edge listed several times or in both directions is one edge; loops and
    edges without one of their ends are dropped.

    Args:
        edges: The columns of the edge list, both of texts or both of whole numbers.
        privacy: Whether an edge or a node is protected.
        max_degree: Degrees 0 to this one are told apart. Under edge protection larger ones count as "more"; under
            node protection every node keeps at most so many edges.
        publish: ``histogram``: the number of nodes of each degree. ``sequence``: the degrees, largest first.
            ``distribution``: the share of nodes of each degree and of at least each degree, from the better of the
            two for the metric.
        nodes: How many nodes there are, which is public; or a file that lists them, edges of other nodes being
            dropped. Without it only nodes with an edge are counted, and nothing is said about degree 0.
        metric: The error to keep small; with ``mallows`` the distance between the published and the true distribution.
        mechanism: ``auto`` for the best pure noise, or the name of one.
    """

    kind: Literal["degrees"] = "degrees"
    edges: Edges = Field(description="Name the columns of the edge list, for example {source: a, target: b}.")
    privacy: GraphPrivacy = Field(description="Give epsilon and protect.")
    max_degree: MaxDegree = Field(
        description="Give the largest degree that is told apart, without looking at the data."
    )
    publish: Literal["histogram", "sequence", "distribution"] = "histogram"
    nodes: Nodes | None = None
    metric: MetricSpec = Field(default={"mallows": 1}, validate_default=True)
    mechanism: Mechanism = "auto"

    @property
    def known_nodes(self) -> int | None:
        """How many nodes there are, where the query says so in numbers."""
        return self.nodes if isinstance(self.nodes, int) else None

    @model_validator(mode="after")
    def _consistent(self) -> DegreesQuery:
        if self.publish != "histogram" and self.nodes is None:
            remedy = "How many nodes there are has to be public for it."
            raise Refused("nodes", f" must be given to publish a {self.publish}. {remedy}")
        if self.known_nodes is not None and not self.max_degree < self.known_nodes:
            constraint = f"below nodes ({self.known_nodes})"
            raise refuse("max_degree", constraint, self.max_degree, "A node has at most nodes - 1 neighbours.")
        if self.publish == "sequence" and (self.known_nodes or 0) > MOST_IN_SEQUENCE:
            constraint = f"at most {MOST_IN_SEQUENCE} to publish a sequence"
            raise refuse("nodes", constraint, self.nodes, "Publish the histogram: it holds the same degrees.")
        if self.mechanism in additive.NEED_DELTA:
            remedy = "Use auto, laplace, staircase or r2dp."
            raise refuse("mechanism", "a noise that is private without a delta", self.mechanism, remedy)
        return self
