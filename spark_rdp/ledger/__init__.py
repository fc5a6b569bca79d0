"""Who spent what on which data set: an append-only budget ledger on SQLAlchemy.

A charge is reserved *before* any data is read and marked published *after* the output is committed. Every event is a
row of its own and no row is ever changed, so the history is complete and a crash leaves either a whole event or none.

Amounts are integers: epsilon in millionths (charges rounded up, totals rounded down), delta as the decimal number that
was written, added exactly. Ten charges of 0.1 therefore fit 1.0 exactly, and no charge is small enough to vanish.

The tables carry what a server with many writers and tighter accounting need later: the data set row is locked while a
charge is decided (``FOR UPDATE``; a SQLite file is locked as a whole by ``BEGIN IMMEDIATE``), every data set names its
accounting, and the schema has a version.
"""

from __future__ import annotations

from spark_rdp.ledger.book import Ledger
from spark_rdp.ledger.records import ABANDONED, PUBLISHED, RESERVED, Balance, Entry, Reservation, to_millionths

__all__ = ["ABANDONED", "PUBLISHED", "RESERVED", "Balance", "Entry", "Ledger", "Reservation", "to_millionths"]
