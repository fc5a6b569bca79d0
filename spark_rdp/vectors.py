"""The plan of a release whose numbers are noised together and published after post-processing (all kinds but release).

What such a release does is three steps in one task: exact whole numbers become the numbers that are noised
(`Vector.measured`), every one of those gets noise of its own, and what is published is worked out from them
(`Vector.published`), in exact order and without another look at the data.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from spark_rdp.errors import InvalidInput
from spark_rdp.planning.plan import Plan

if TYPE_CHECKING:
    import pyarrow as pa

#: The column of the noised numbers, where they are kept beside what was made of them.
NOISED = "noised"


class Vector(Protocol):
    """What travels to the task that adds the noise; small, and without data."""

    def measured(self, exact: np.ndarray) -> np.ndarray:
        """The numbers that get noise (int64), from the exact ones (int64) in the order of their rows."""

    def published(self, noised: np.ndarray, keys: pa.Table) -> pa.Table:
        """The public rows, from the noised numbers (int64) and the declared keys of the exact rows."""


@dataclass(frozen=True)
class Part:
    """One noise of a release: what it is added to, and its plan."""

    role: str
    plan: Plan


@dataclass(frozen=True)
class VectorPlan:
    """All that is decided about such a release before the data are read.

    Args:
        kind: The kind of the query.
        query_digest: The digest of the query it was made from.
        unit: ``edge``, ``node``, ``row`` or the column of the privacy unit.
        neighbours: ``add-remove`` or ``replace-one``.
        epsilon_millionths: The charge.
        measure: What is published, in one word.
        role: What the noise is added to.
        noise: The noise of every number.
        facts: What else was decided, as JSON values; see the module of the kind.
    """

    kind: str
    query_digest: str
    unit: str
    neighbours: str
    epsilon_millionths: int
    measure: str
    role: str
    noise: Plan
    facts: dict[str, Any] = field(hash=False)

    delta: ClassVar[float] = 0.0
    #: There is no private selection of keys.
    selection: ClassVar[None] = None

    @property
    def measures(self) -> tuple[str, ...]:
        """The one thing that is published."""
        return (self.measure,)

    def of(self, measure: str) -> tuple[Part, ...]:
        """Its noise."""
        return (Part(self.role, self.noise),) if measure == self.measure else ()

    def content(self) -> dict[str, Any]:
        """The plan as JSON values, for a manifest."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {**values, "noise": json.loads(self.noise.to_json())}

    def to_json(self) -> str:
        """The plan as JSON text; numbers are exact."""
        return json.dumps(self.content(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> VectorPlan:
        """Read what `to_json` wrote.

        Raises:
            InvalidInput: The text is not such a plan of this version.
        """
        try:
            content = json.loads(text)
            return cls(**{**content, "noise": Plan.from_json(json.dumps(content["noise"]))})
        except (json.JSONDecodeError, TypeError, KeyError):
            raise InvalidInput("The plan must be the text of a release plan of this version. Plan again.") from None
