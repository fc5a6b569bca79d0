"""The tables of a ledger, and how an older file becomes a newer one."""

from __future__ import annotations

import sqlalchemy as sa

SCHEMA_VERSION = 2

METADATA = sa.MetaData()
SCHEMA = sa.Table("ledger_schema", METADATA, sa.Column("version", sa.Integer, primary_key=True, autoincrement=False))
DATASETS = sa.Table(
    "ledger_datasets",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(200), nullable=False, unique=True),
    sa.Column("epsilon_millionths", sa.BigInteger, nullable=False),
    sa.Column("delta", sa.String(40), nullable=False),  # decimal text: exact, and the same in every database
    sa.Column("accounting", sa.String(20), nullable=False),  # pure or pld
    sa.Column("created", sa.String(40), nullable=False),
    sa.Column("fingerprint", sa.String(1000), nullable=False, server_default=""),  # of the source; empty: any
)
#: The noise of releases, one row for all releases with the same one. Only kept where it decides (accounting pld).
NOISES = sa.Table(
    "ledger_noises",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False, unique=True),
    sa.Column("content", sa.Text, nullable=False),
)
ENTRIES = sa.Table(
    "ledger_entries",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("dataset_id", sa.ForeignKey("ledger_datasets.id"), nullable=False),
    sa.Column("release_id", sa.String(200), nullable=False),
    # Counts the abandoned attempts before this one. With it, the constraint below is the data base's own promise that
    # a release id is charged once, prepared once and published once.
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("event", sa.String(10), nullable=False),
    sa.Column("query_digest", sa.String(64), nullable=False),
    sa.Column("epsilon_millionths", sa.BigInteger, nullable=False),
    sa.Column("delta", sa.String(40), nullable=False),
    sa.Column("location", sa.String(4000), nullable=False),  # where the output goes; empty: handed to the caller
    sa.Column("content_digest", sa.String(64), nullable=False),  # of what is published; empty before it is prepared
    sa.Column("at", sa.String(40), nullable=False),  # UTC, ISO 8601
    sa.Column("noise_id", sa.ForeignKey("ledger_noises.id"), nullable=True),
    sa.UniqueConstraint("dataset_id", "release_id", "attempt", "event", name="one_event_per_attempt"),
    sa.CheckConstraint("epsilon_millionths > 0", name="charge_is_positive"),
    sa.CheckConstraint("event IN ('reserved', 'prepared', 'published', 'abandoned')", name="known_event"),
    sa.Index("ledger_largest_charges", "dataset_id", "event", "epsilon_millionths"),
)


def create(connection: sa.Connection) -> None:
    """Make the tables of a new ledger."""
    METADATA.create_all(connection)
    connection.execute(SCHEMA.insert().values(version=SCHEMA_VERSION))


def migrate(connection: sa.Connection, version: int) -> None:
    """Bring the tables of an older version to this one, within the transaction that is open.

    Version 2 knows the event ``prepared``, the noise of entries and the fingerprint of a data set.
    """
    if version == 1:
        run = connection.exec_driver_sql
        run("ALTER TABLE ledger_datasets ADD COLUMN fingerprint VARCHAR(1000) NOT NULL DEFAULT ''")
        run("UPDATE ledger_datasets SET accounting = 'pure' WHERE accounting = 'sum'")
        # SQLite cannot change a constraint, so the entries move into a new table; events are what they were.
        run("CREATE TABLE ledger_entries_1 AS SELECT * FROM ledger_entries")
        run("DROP TABLE ledger_entries")
        METADATA.create_all(connection)
        columns = ", ".join(column.name for column in ENTRIES.columns if column.name not in ("id", "noise_id"))
        run(f"INSERT INTO ledger_entries ({columns}) SELECT {columns} FROM ledger_entries_1 ORDER BY id")
        run("DROP TABLE ledger_entries_1")
        connection.execute(SCHEMA.update().values(version=2))
