"""A ledger as schema version 1 left it behind, and what has to be true of it after whatever uses it first."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from spark_rdp.errors import BudgetRefused
from spark_rdp.ledger import Ledger

QUERY = "a" * 64
OTHER = "b" * 64
CONTENT = "c" * 64
#: The ways to use a ledger.
USES = ("balance", "history", "reserve", "create")

_VERSION_1 = """
CREATE TABLE ledger_schema (version INTEGER NOT NULL, PRIMARY KEY (version));
CREATE TABLE ledger_datasets (id {id} NOT NULL, name VARCHAR(200) NOT NULL, epsilon_millionths BIGINT NOT NULL,
 delta VARCHAR(40) NOT NULL, accounting VARCHAR(20) NOT NULL, created VARCHAR(40) NOT NULL, PRIMARY KEY (id),
 UNIQUE (name));
CREATE TABLE ledger_entries (id {id} NOT NULL, dataset_id INTEGER NOT NULL, release_id VARCHAR(200) NOT NULL,
 attempt INTEGER NOT NULL, event VARCHAR(10) NOT NULL, query_digest VARCHAR(64) NOT NULL,
 epsilon_millionths BIGINT NOT NULL, delta VARCHAR(40) NOT NULL, location VARCHAR(4000) NOT NULL,
 content_digest VARCHAR(64) NOT NULL, at VARCHAR(40) NOT NULL, PRIMARY KEY (id),
 CONSTRAINT one_event_per_attempt UNIQUE (dataset_id, release_id, attempt, event),
 CONSTRAINT charge_is_positive CHECK (epsilon_millionths > 0),
 CONSTRAINT known_event CHECK (event IN ('reserved', 'published', 'abandoned')),
 FOREIGN KEY(dataset_id) REFERENCES ledger_datasets (id));
INSERT INTO ledger_schema VALUES (1);
INSERT INTO ledger_datasets (name, epsilon_millionths, delta, accounting, created) VALUES
 ('orders', 1000000, '1e-05', 'sum', '2026-01-01T00:00:00+00:00')
"""
_ENTRIES = (
    ("a", "reserved", 300000, "1e-06", "/out", "", "2026-01-02T00:00:00+00:00"),
    ("a", "published", 300000, "1e-06", "/out", CONTENT, "2026-01-02T00:01:00+00:00"),
    ("b", "reserved", 200000, "0.0", "/b", "", "2026-01-03T00:00:00+00:00"),
    ("b", "abandoned", 200000, "0.0", "/b", "", "2026-01-03T00:01:00+00:00"),
    ("c", "reserved", 100000, "0.0", "/c", "", "2026-01-04T00:00:00+00:00"),
)


def write(url: str) -> None:
    """Make a ledger of version 1 with five events in an empty data base.

    Args:
        url: With the driver, as SQLAlchemy takes it.
    """
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        kind = "INTEGER" if engine.dialect.name == "sqlite" else "SERIAL"
        for statement in _VERSION_1.format(id=kind).split(";"):
            connection.exec_driver_sql(statement)
        names = ("release_id", "event", "epsilon_millionths", "delta", "location", "content_digest", "at")
        insert = (
            f"INSERT INTO ledger_entries (dataset_id, attempt, query_digest, {', '.join(names)}) "
            f"VALUES (1, 0, '{QUERY}', {', '.join(f':{name}' for name in names)})"
        )
        connection.execute(sa.text(insert), [dict(zip(names, entry, strict=True)) for entry in _ENTRIES])
    engine.dispose()


def use(url: str, first: str) -> None:
    """Use the ledger in one way, which brings it up to date."""
    ledger = Ledger(url, "orders")
    calls: dict[str, Callable[[], object]] = {
        "balance": ledger.balance,
        "history": ledger.history,
        "reserve": lambda: ledger.reserve(None, "a", QUERY, 300_000),
        "create": lambda: ledger.create("orders", 1.0, 1e-5),
    }
    calls[first]()


def check(url: str) -> None:
    """Its history, its promises and its replays are what they were, and it is used on like any other."""
    ledger = Ledger(url, "orders")
    told = [(entry.release_id, entry.event, entry.at[:10]) for entry in ledger.history()]
    days = ["2026-01-02", "2026-01-02", "2026-01-03", "2026-01-03", "2026-01-04"]
    events = ["reserved", "published", "reserved", "abandoned", "reserved"]
    assert told == list(zip("aabbc", events, days, strict=True))
    balance = ledger.balance()
    assert (balance.spent_epsilon, balance.spent_delta, balance.accounting) == (0.4, 1e-6, "pure")
    assert ledger.reserve(None, "a", QUERY, 300_000).content_digest == CONTENT
    assert ledger.prepare(None, "c", QUERY, CONTENT) == CONTENT
    assert ledger.publish(None, "c", QUERY, CONTENT)
    assert ledger.reserve(None, "b", OTHER, 600_000).new
    with pytest.raises(BudgetRefused):
        ledger.reserve(None, "d", QUERY, 1)
    assert ledger.create("others", 1.0, 1e-6, accounting="pld", fingerprint="v1").remaining_epsilon == 1.0
    assert ledger.reserve("others", "a", QUERY, 100_000, fingerprint="v1").new
