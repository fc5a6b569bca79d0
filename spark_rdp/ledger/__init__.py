"""Who spent what on which data set: an append-only budget ledger on SQLAlchemy.

A charge is reserved *before* any data is read, its result is fixed by its digest *before* it becomes visible, and it is
marked published *after*. Every event is a row of its own and no row is ever changed, so the history is complete and a
crash leaves either a whole event or none.

Amounts are integers: epsilon in millionths (charges rounded up, totals rounded down), delta as the decimal number that
was written, added exactly. Ten charges of 0.1 therefore fit 1.0 exactly, and no charge is small enough to vanish.

Writers take turns: a SQLite file is locked as a whole by ``BEGIN IMMEDIATE``, on a PostgreSQL server the row of the
data set is locked (``FOR UPDATE``) until its charge is decided. The schema has a version, and older files are brought
up to it.
"""

from __future__ import annotations

from spark_rdp.ledger.book import Ledger
from spark_rdp.ledger.records import (
    ABANDONED,
    PLD,
    PREPARED,
    PUBLISHED,
    PURE,
    RESERVED,
    Balance,
    Entry,
    Quote,
    Reservation,
    Window,
    to_millionths,
)

__all__ = [
    "ABANDONED",
    "PLD",
    "PREPARED",
    "PUBLISHED",
    "PURE",
    "RESERVED",
    "Balance",
    "Entry",
    "Ledger",
    "Quote",
    "Reservation",
    "Window",
    "to_millionths",
]
