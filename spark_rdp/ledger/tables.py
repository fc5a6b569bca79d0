"""The tables of a ledger, and how SQLite is made to keep its promises."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

SCHEMA_VERSION = 1

METADATA = sa.MetaData()
SCHEMA = sa.Table("ledger_schema", METADATA, sa.Column("version", sa.Integer, primary_key=True, autoincrement=False))
DATASETS = sa.Table(
    "ledger_datasets",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(200), nullable=False, unique=True),
    sa.Column("epsilon_millionths", sa.BigInteger, nullable=False),
    sa.Column("delta", sa.String(40), nullable=False),  # decimal text: exact, and the same in every database
    sa.Column("accounting", sa.String(20), nullable=False),
    sa.Column("created", sa.String(40), nullable=False),
)
ENTRIES = sa.Table(
    "ledger_entries",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("dataset_id", sa.ForeignKey("ledger_datasets.id"), nullable=False),
    sa.Column("release_id", sa.String(200), nullable=False),
    # Counts the abandoned attempts before this one. With it, the constraint below is the data base's own promise that
    # a release id is charged once and published once.
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("event", sa.String(10), nullable=False),
    sa.Column("query_digest", sa.String(64), nullable=False),
    sa.Column("epsilon_millionths", sa.BigInteger, nullable=False),
    sa.Column("delta", sa.String(40), nullable=False),
    sa.Column("location", sa.String(4000), nullable=False),  # where the output goes; empty: handed to the caller
    sa.Column("content_digest", sa.String(64), nullable=False),  # of what was published; empty before
    sa.Column("at", sa.String(40), nullable=False),  # UTC, ISO 8601
    sa.UniqueConstraint("dataset_id", "release_id", "attempt", "event", name="one_event_per_attempt"),
    sa.CheckConstraint("epsilon_millionths > 0", name="charge_is_positive"),
    sa.CheckConstraint("event IN ('reserved', 'published', 'abandoned')", name="known_event"),
)


def prepare_sqlite(connection: Any, _record: Any) -> None:
    """Settings of every new connection."""
    connection.isolation_level = None  # the driver must not begin transactions by itself
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = FULL")  # a reservation survives a power cut
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def begin_sqlite(connection: sa.Connection) -> None:
    """How a transaction begins."""
    read = connection.get_execution_options().get("ledger_read", False)
    # IMMEDIATE takes the write lock before the balance is read: no second writer can decide on the same balance.
    connection.exec_driver_sql("BEGIN" if read else "BEGIN IMMEDIATE")
