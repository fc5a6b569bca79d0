"""What a ledger tells: events, reservations and balances."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from spark_rdp.domains import EPSILON

MILLION = 1_000_000
RESERVED, PREPARED, PUBLISHED, ABANDONED = "reserved", "prepared", "published", "abandoned"
#: How the charges of a data set are put together.
PURE, PLD = "pure", "pld"


def to_millionths(epsilon: float, *, up: bool) -> int:
    """Epsilon in whole millionths, read as the decimal number it prints as; charges round up, totals down."""
    exact = Fraction(repr(EPSILON.check(epsilon))) * MILLION
    return -((-exact.numerator) // exact.denominator) if up else exact.numerator // exact.denominator


def show_millionths(millionths: int) -> str:
    """Millionths of epsilon as a decimal number."""
    return f"{millionths / MILLION:.6f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class Entry:
    """One event of the history; ``epsilon`` and ``delta`` are the charge of the release it belongs to."""

    release_id: str
    event: str
    query_digest: str
    epsilon_millionths: int
    delta: float
    location: str
    content_digest: str
    at: str

    @property
    def epsilon(self) -> float:
        return self.epsilon_millionths / MILLION


@dataclass(frozen=True)
class Balance:
    """What a data set has spent and may still spend; all epsilons in millionths.

    Attributes:
        accounting: ``pure`` or ``pld``.
        spent_millionths: The epsilon of all releases together. Under ``pld`` it holds at the delta of the whole budget.
        spent_delta: The delta of all releases together; under ``pld`` all of it, from the first release on.
        summed_millionths: The plain sum of the charges; the same as ``spent_millionths`` under ``pure``.
        fingerprint: What the data set is, if that was said when the budget was opened.
    """

    dataset: str
    accounting: str
    total_millionths: int
    spent_millionths: int
    total_delta: float
    spent_delta: float
    remaining_delta: float
    releases: int
    summed_millionths: int
    fingerprint: str = ""

    @property
    def remaining_millionths(self) -> int:
        return self.total_millionths - self.spent_millionths

    @property
    def total_epsilon(self) -> float:
        return self.total_millionths / MILLION

    @property
    def spent_epsilon(self) -> float:
        return self.spent_millionths / MILLION

    @property
    def remaining_epsilon(self) -> float:
        return self.remaining_millionths / MILLION

    @property
    def composition(self) -> str:
        """How the releases of the data set are put together, in one sentence."""
        if self.accounting == PURE:
            return "The epsilons of all releases add up, and so do their deltas."
        return (
            "The noise of all releases is composed by its privacy loss distributions, to the epsilon spent at delta "
            f"{self.total_delta:g}; it holds for releases that were not chosen by looking at earlier results."
        )

    def facts(self) -> dict[str, Any]:
        """The balance as JSON values, for manifests."""
        return {
            "total_epsilon": self.total_epsilon,
            "spent_epsilon": self.spent_epsilon,
            "remaining_epsilon": self.remaining_epsilon,
            "total_delta": self.total_delta,
            "spent_delta": self.spent_delta,
            "remaining_delta": self.remaining_delta,
            "releases": self.releases,
        }


@dataclass(frozen=True)
class Reservation:
    """What the ledger knows about a release id.

    Attributes:
        state: ``reserved`` (charged, not yet published), ``prepared`` (its result is fixed and may be visible) or
            ``published``.
        new: True if this call made the charge.
        location: Where the release was reserved to be written; empty if it is handed to the caller.
        content_digest: Digest of what is published; empty while it is only reserved.
        balance: Of the data set, after this charge.
    """

    dataset: str
    release_id: str
    query_digest: str
    state: str
    epsilon_millionths: int
    delta: float
    location: str
    content_digest: str
    at: str
    new: bool
    balance: Balance

    @property
    def epsilon(self) -> float:
        return self.epsilon_millionths / MILLION


@dataclass(frozen=True)
class Quote:
    """What a release would cost.

    Attributes:
        state: Empty for a release id that would be charged; otherwise what is known about it, and nothing is charged.
        before, after: The balance now, and with the release.
        refusal: Why it would be refused; empty if it would not.
    """

    state: str
    before: Balance
    after: Balance
    refusal: str


@dataclass(frozen=True)
class Window:
    """What the releases charged since some moment amount to, put together in the way of the data set."""

    since: str
    spent_millionths: int
    spent_delta: float
    releases: int

    @property
    def spent_epsilon(self) -> float:
        return self.spent_millionths / MILLION
