"""A plan: which noise, how much, how good, and why. Complete when it exists."""

from __future__ import annotations

import copy
import hashlib
import json
import time
from dataclasses import dataclass, field, fields, replace
from typing import Any

from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms import build
from spark_rdp.mechanisms.base import Additive

#: Models: noise is added to an aggregate, one of declared candidates is selected, or a cell is moved.
CENTRAL, SELECTION, FINITE = "central", "selection", "finite"
#: Metrics whose larger value is the better one; all others are errors.
HIGHER_IS_BETTER = frozenset({"usefulness", "exact-match"})


@dataclass(frozen=True)
class Plan:
    """The noise of one query.

    Attributes:
        model: ``central``: the noise is added to an aggregate; ``selection``: a candidate is selected (no `build`).
        mechanism: Name of the mechanism; with ``parameters`` it can be rebuilt.
        epsilon, delta: The budget asked for.
        verified_epsilon: Loss of the mass function really sampled over the whole profile; never above ``epsilon``.
        sensitivity: The most one privacy unit changes one published value, in the unit of the value.
        coordinates: How many published values one privacy unit can change, each by ``sensitivity``.
        granularity: The lattice unit, a power of two, in the unit of the value.
        integer_sensitivity: ``sensitivity`` in lattice units, rounded up.
        metric: The metric as configuration writes it.
        metric_value: What the metric reports for this noise.
        certificate: ``bound`` (no noise of the class that ``reason`` names does better), ``relative_gap`` of this plan
            to it, and ``reason``. The first two are None where nothing is known, and ``reason`` says why.
        alternatives: Metric value of each mechanism considered, the chosen one included; None where it cannot be used.
        why: One sentence on the choice.
        facts: Figures about the noise that not every plan has, by name.
        seconds: How long planning took; not part of the identity of the plan.
    """

    model: str
    mechanism: str
    parameters: dict[str, Any]
    epsilon: float
    verified_epsilon: float
    delta: float
    sensitivity: float
    coordinates: int
    granularity: float
    integer_sensitivity: int
    metric: str | dict[str, Any]
    metric_value: float
    certificate: dict[str, Any]
    alternatives: dict[str, float | None]
    why: str
    facts: dict[str, Any] = field(default_factory=dict)
    seconds: float = field(default=0.0, compare=False)

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger metric value is the better one."""
        name = self.metric if isinstance(self.metric, str) else next(iter(self.metric))
        return name in HIGHER_IS_BETTER

    @property
    def plan_id(self) -> str:
        """SHA-256 of the content, the time spent excepted."""
        content = self._content()
        del content["seconds"]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def __hash__(self) -> int:
        return hash(self.plan_id)

    def _content(self) -> dict[str, Any]:
        content = {item.name: getattr(self, item.name) for item in fields(self)}
        return content if self.facts else {name: value for name, value in content.items() if name != "facts"}

    def build(self) -> Additive:
        """The mechanism."""
        return build(self.mechanism, self.parameters)

    def to_json(self) -> str:
        """One JSON object with every attribute, ``plan_id``, and the facts once more by their names; exact."""
        return json.dumps({**self.facts, **self._content(), "plan_id": self.plan_id}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read what `to_json` wrote.

        Raises:
            InvalidInput: The text is not a plan, or its content does not match its ``plan_id``.
        """
        try:
            content = json.loads(text)
            plan_id = content.pop("plan_id")
            names = {item.name for item in fields(cls)}
            again = content.get("facts", {}).keys() - names
            plan = cls(**{name: value for name, value in content.items() if name not in again})
            matches = plan.plan_id == plan_id
        except (ValueError, TypeError, KeyError, AttributeError):
            raise InvalidInput("plan must be the JSON text of a plan of this version. Plan again.") from None
        if not matches:
            raise InvalidInput("plan must be unchanged; its plan_id does not match its content. Plan again.")
        return plan


def remember(plan: Plan, began: float) -> Plan:
    """A copy of a plan that is kept for the next time the same is asked, with the time since ``began``."""
    return replace(copy.deepcopy(plan), seconds=time.perf_counter() - began)
