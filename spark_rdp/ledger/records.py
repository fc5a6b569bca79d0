"""What a ledger tells: events, reservations and balances."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from spark_rdp.domains import EPSILON

MILLION = 1_000_000
RESERVED, PUBLISHED, ABANDONED = "reserved", "published", "abandoned"


def to_millionths(epsilon: float, *, up: bool) -> int:
    """Epsilon in whole millionths, read as the decimal number it prints as; charges round up, totals down."""
    exact = Fraction(repr(EPSILON.check(epsilon))) * MILLION
    return -((-exact.numerator) // exact.denominator) if up else exact.numerator // exact.denominator


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
class Reservation:
    """What the ledger knows about a release id.

    Attributes:
        state: ``reserved`` (charged, not yet published) or ``published``.
        new: True if this call made the charge.
        location: Where the release was reserved to be written; empty if it is handed to the caller.
        content_digest: Digest of what was published; empty before.
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

    @property
    def epsilon(self) -> float:
        return self.epsilon_millionths / MILLION


@dataclass(frozen=True)
class Balance:
    """What a data set may still spend; all epsilons in millionths."""

    dataset: str
    accounting: str
    total_millionths: int
    spent_millionths: int
    total_delta: float
    spent_delta: float
    remaining_delta: float
    releases: int

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
