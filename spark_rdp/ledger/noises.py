"""The noise of a release as a ledger keeps it: what its loss depends on, and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_rdp.planning.plan import CENTRAL
from spark_rdp.privacy.accounting import Bounded, Loss, Noise
from spark_rdp.vectors import VectorPlan

if TYPE_CHECKING:
    from spark_rdp.kinds import AnyPlan
    from spark_rdp.releases import Component


def losses_of(plan: AnyPlan) -> tuple[Loss, ...]:
    """What a release is composed of: one loss per noised column, and one for a selection of keys.

    A column's own noise is composed only where the worst that a unit can do is known: to change so many numbers, each
    by the sensitivity. Rows of one unit may share a bin, and a replaced unit may change one number twice; the loss of
    twice the change is at most twice the loss, but its distribution is not that of two losses. There, and where
    candidates or keys are selected, all that is used is the epsilon and delta of the column.
    """
    if isinstance(plan, VectorPlan):  # several changes of one unit may fall on one number
        return (Bounded(plan.noise.verified_epsilon, plan.delta),)
    losses = [_of_component(part, plan.neighbours) for part in plan.components]
    if plan.selection is not None:
        losses.append(Bounded(plan.selection.epsilon_millionths / 1e6, plan.selection.delta))
    return tuple(losses)


def _of_component(part: Component, neighbours: str) -> Loss:
    plan = part.plan
    shares_a_number = neighbours != "add-remove" or (part.kind == "bins" and part.cap > 1)
    if plan.model != CENTRAL or shares_a_number:
        return Bounded(plan.verified_epsilon, plan.delta)
    parameters = json.dumps(plan.parameters, sort_keys=True)
    return Noise(plan.mechanism, parameters, plan.integer_sensitivity, plan.coordinates)


def to_text(losses: Sequence[Loss]) -> str:
    """The losses as compact JSON; the same losses are always the same text."""
    items = [
        [loss.epsilon, loss.delta]
        if isinstance(loss, Bounded)
        else [loss.mechanism, json.loads(loss.parameters), loss.shift, loss.coordinates]
        for loss in losses
    ]
    return json.dumps(items, sort_keys=True, separators=(",", ":"), allow_nan=False)


def from_text(text: str) -> tuple[Loss, ...]:
    """The losses that `to_text` wrote."""
    return tuple(
        Bounded(*item) if len(item) == 2 else Noise(item[0], json.dumps(item[1], sort_keys=True), item[2], item[3])
        for item in json.loads(text)
    )


def digest(text: str) -> str:
    """What the text is found by."""
    return hashlib.sha256(text.encode()).hexdigest()
