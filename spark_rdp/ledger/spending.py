"""What the charges of a data set amount to, and whether one more fits. Everything here is read inside a transaction."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from spark_rdp.ledger.records import ABANDONED, MILLION, PLD, RESERVED, Balance, show_millionths
from spark_rdp.ledger.tables import ENTRIES, NOISES

if TYPE_CHECKING:
    from spark_rdp.privacy.accounting import Loss

#: How many of the largest earlier charges a refusal names.
NAMED_SPENDS = 3
#: Stands for an epsilon that no budget covers, because delta is used up.
NONE_ENOUGH = 2**62
#: Sums of deltas, which have at most 47 decimal places, are exact with so many digits.
_EXACT = Context(prec=100)

_CLOSED = ENTRIES.alias()
#: The charges of a data set that were not given back.
_COUNTS = sa.and_(
    ENTRIES.c.dataset_id == sa.bindparam("dataset"),
    ENTRIES.c.event == RESERVED,
    ~sa.exists().where(
        _CLOSED.c.dataset_id == ENTRIES.c.dataset_id,
        _CLOSED.c.release_id == ENTRIES.c.release_id,
        _CLOSED.c.attempt == ENTRIES.c.attempt,
        _CLOSED.c.event == ABANDONED,
    ),
)
#: One row per distinct noise and delta: exact, and short even for a history of many thousand releases.
_BY_NOISE = (
    sa.select(
        ENTRIES.c.noise_id,
        ENTRIES.c.delta,
        sa.func.sum(ENTRIES.c.epsilon_millionths).label("millionths"),
        sa.func.count().label("times"),
    )
    .where(_COUNTS, ENTRIES.c.at >= sa.bindparam("since"))
    .group_by(ENTRIES.c.noise_id, ENTRIES.c.delta)
)
_NOISES = sa.select(NOISES.c.id, NOISES.c.content)
_LARGEST = (
    sa.select(ENTRIES).where(_COUNTS).order_by(ENTRIES.c.epsilon_millionths.desc(), ENTRIES.c.id).limit(NAMED_SPENDS)
)


@dataclass(frozen=True)
class Charge:
    """What one release is charged.

    Args:
        millionths: Epsilon.
        delta: As decimal text.
        losses: What it is composed of; if nothing is known of it, it is composed by its epsilon and delta.
    """

    millionths: int
    delta: str
    losses: Sequence[Loss] = field(default=())

    @cached_property
    def noise(self) -> str:
        """The losses as text."""
        from spark_rdp.ledger.noises import to_text
        from spark_rdp.privacy.accounting import Bounded

        return to_text(self.losses or (Bounded(self.millionths / MILLION, float(self.delta)),))


@dataclass(frozen=True)
class Spent:
    """What a number of charges amounts to; delta exactly."""

    millionths: int
    delta: Fraction
    releases: int
    summed: int


def composes(dataset: Any) -> bool:
    """Whether the noise of a data set's releases is composed, not only their charges added."""
    return bool(dataset.accounting == PLD)


@dataclass(frozen=True)
class Charges:
    """The charges of a data set that count: noise, delta and sum of epsilons of so many each."""

    dataset: Any
    groups: list[tuple[str, str, int, int]]

    def spent(self, extra: Charge | None = None) -> Spent:
        """What they amount to, and ``extra`` with them, put together in the way of the data set."""
        groups, composed = self.groups, composes(self.dataset)
        if extra is not None:
            groups = [*groups, (extra.noise if composed else "", extra.delta, extra.millionths, 1)]
        summed = sum(millionths for _, _, millionths, _ in groups)
        delta = _sum((text, times) for _, text, _, times in groups)
        releases = sum(times for *_, times in groups)
        if not composed or not releases:
            return Spent(summed, delta, releases, summed)
        epsilon, whole = _composed([(noise, times) for noise, _, _, times in groups], self.dataset), self.dataset.delta
        if delta <= Fraction(whole):  # then the plain sums hold as well
            epsilon = min(epsilon, summed)
        return Spent(epsilon, Fraction(whole), releases, summed)


def charges(connection: sa.Connection, dataset: Any, since: str = "") -> Charges:
    """The charges made since a moment."""
    noises = {row.id: row.content for row in connection.execute(_NOISES)} if composes(dataset) else {}
    found = connection.execute(_BY_NOISE, {"dataset": dataset.id, "since": since})
    return Charges(
        dataset, [(noises.get(row.noise_id, ""), row.delta, int(row.millionths), row.times) for row in found]
    )


def balance(dataset: Any, found: Spent) -> Balance:
    """The balance of a data set that has spent so much."""
    totals = (dataset.epsilon_millionths, found.millionths, float(dataset.delta), float(found.delta))
    left = float(Fraction(dataset.delta) - found.delta)
    facts = (found.releases, found.summed, dataset.fingerprint)
    return Balance(dataset.name, dataset.accounting, *totals, left, *facts)


def refusal(
    connection: sa.Connection, dataset: Any, release_id: str, charge: Charge, before: Spent, after: Spent
) -> str:
    """Why a charge does not fit, naming what is short and the largest earlier charges; empty if it fits."""
    short = _short(dataset, charge, before, after)
    if not short:
        return ""
    largest = connection.execute(_LARGEST, {"dataset": dataset.id})
    spends = "; ".join(
        f"{row.release_id} on {row.at}: epsilon {show_millionths(row.epsilon_millionths)}, delta {row.delta}"
        for row in largest
    )
    return f"The budget of {dataset.name} does not cover release {release_id}: {' and '.join(short)}. " + (
        f"Largest earlier spends: {spends}." if spends else "Nothing was spent before."
    )


def _short(dataset: Any, charge: Charge, before: Spent, after: Spent) -> list[str]:
    total, whole = dataset.epsilon_millionths, Fraction(dataset.delta)
    short = []
    if after.millionths == NONE_ENOUGH:
        short.append(f"delta is short (all releases together need more than {dataset.delta})")
    elif after.millionths > total:
        lacking = show_millionths(after.millionths - total)
        if composes(dataset):
            together = f"with it, all releases would spend {show_millionths(after.millionths)} at delta {dataset.delta}"
            asked = f"{together}; now {show_millionths(before.millionths)} of {show_millionths(total)}"
        else:
            left = show_millionths(total - before.millionths)
            asked = f"asked {show_millionths(charge.millionths)}, left {left} of {show_millionths(total)}"
        short.append(f"epsilon is short by {lacking} ({asked})")
    if after.delta > whole:
        asked = f"asked {charge.delta}, left {float(whole - before.delta):.6g} of {dataset.delta}"
        short.append(f"delta is short by {float(after.delta - whole):.6g} ({asked})")
    return short


def _sum(deltas: Iterable[tuple[str, int]]) -> Fraction:
    """The exact sum of decimal texts, each so many times."""
    total = Decimal(0)
    for text, times in deltas:
        total = _EXACT.fma(Decimal(text), times, total)
    return Fraction(total)


def _composed(texts: Sequence[tuple[str, int]], dataset: Any) -> int:
    """The epsilon of all noise together at the delta of the data set, in millionths, rounded up."""
    from spark_rdp.ledger.noises import from_text
    from spark_rdp.privacy.accounting import composed_epsilon

    losses = [(loss, times) for text, times in texts for loss in from_text(text)]
    epsilon = composed_epsilon(losses, float(dataset.delta), dataset.epsilon_millionths / MILLION)
    return NONE_ENOUGH if math.isinf(epsilon) else math.ceil(epsilon * MILLION)
