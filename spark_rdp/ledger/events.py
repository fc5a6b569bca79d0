"""The events of a release, as rows that are only ever added. Everything here happens inside a transaction."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import sqlalchemy as sa

from spark_rdp.errors import InvalidInput
from spark_rdp.ledger import spending
from spark_rdp.ledger.records import ABANDONED, RESERVED, Entry, Reservation
from spark_rdp.ledger.tables import DATASETS, ENTRIES, NOISES

#: What all events of one attempt have in common.
_SHARED = ("query_digest", "epsilon_millionths", "delta", "location", "noise_id")

_DATASET = sa.select(DATASETS).where(DATASETS.c.name == sa.bindparam("name"))
_DATASET_LOCKED = _DATASET.with_for_update()
_NEWEST = (
    sa.select(ENTRIES)
    .where(ENTRIES.c.dataset_id == sa.bindparam("dataset"), ENTRIES.c.release_id == sa.bindparam("release"))
    .order_by(ENTRIES.c.id.desc())
    .limit(1)
)


def moment(time: datetime) -> str:
    """A time as all events write it, so that texts are ordered like times."""
    return time.astimezone(timezone.utc).isoformat(timespec="seconds")


def dataset(connection: sa.Connection, name: str, *, lock: bool) -> Any:
    """The row of a data set, or None; with ``lock`` no other writer gets past it until the transaction ends."""
    return connection.execute(_DATASET_LOCKED if lock else _DATASET, {"name": name}).first()


def newest(connection: sa.Connection, owner: Any, release_id: str) -> tuple[int, Any]:
    """The number of abandoned attempts, and the newest event of the attempt that counts (None if there is none)."""
    last = connection.execute(_NEWEST, {"dataset": owner.id, "release": release_id}).first()
    if last is None:
        return 0, None
    return (last.attempt + 1, None) if last.event == ABANDONED else (last.attempt, last)


def same_query(known: Any, release_id: str, query_digest: str) -> None:
    """Refuse a release id that was charged for another query."""
    if known.query_digest != query_digest:
        raise InvalidInput(
            f"Release {release_id} was charged on {known.at} for another query. A release id names one query for "
            "ever: undo the change of the query, or use another run id or name (which is charged)."
        )


def first(
    connection: sa.Connection,
    owner: Any,
    release_id: str,
    attempt: int,
    query_digest: str,
    charge: spending.Charge,
    location: str,
    at: str,
) -> None:
    """Add the first event of an attempt, which charges it."""
    noise = _noise_id(connection, charge.noise) if spending.composes(owner) else None
    shared = (query_digest, charge.millionths, charge.delta, location, noise)
    _add(connection, owner.id, release_id, attempt, RESERVED, dict(zip(_SHARED, shared, strict=True)), "", at)


def following(connection: sa.Connection, known: Any, event: str, content_digest: str, at: str) -> None:
    """Add an event to those of an attempt."""
    shared = {key: getattr(known, key) for key in _SHARED}
    _add(connection, known.dataset_id, known.release_id, known.attempt, event, shared, content_digest, at)


def reservation(owner: Any, known: Any, spent: spending.Spent, *, new: bool) -> Reservation:
    """What is known about a release after a reservation."""
    facts = {key: getattr(known, key) for key in ("release_id", "query_digest", "epsilon_millionths", "location", "at")}
    return Reservation(
        dataset=owner.name,
        state=known.event,
        delta=float(known.delta),
        content_digest=known.content_digest,
        new=new,
        balance=spending.balance(owner, spent),
        **facts,
    )


def entry(row: Any) -> Entry:
    """An event as it is told."""
    facts = ("release_id", "event", "query_digest", "epsilon_millionths", "location", "content_digest", "at")
    return Entry(delta=float(row.delta), **{key: getattr(row, key) for key in facts})


def _add(
    connection: sa.Connection,
    dataset_id: int,
    release_id: str,
    attempt: int,
    event: str,
    shared: dict[str, Any],
    content_digest: str,
    at: str,
) -> None:
    own = {"dataset_id": dataset_id, "release_id": release_id, "attempt": attempt, "event": event}
    connection.execute(sa.insert(ENTRIES), {**own, **shared, "content_digest": content_digest, "at": at})


def _noise_id(connection: sa.Connection, noise: str) -> int:
    """The row of a noise, added if it is new."""
    from spark_rdp.ledger.noises import digest

    name = digest(noise)
    found = sa.select(NOISES.c.id).where(NOISES.c.digest == name)
    number = connection.execute(found).scalar()
    if number is None:
        connection.execute(NOISES.insert().values(digest=name, content=noise))
        number = connection.execute(found).scalar_one()
    return int(number)
