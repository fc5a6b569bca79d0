"""The ledger itself: every call is one transaction."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from fractions import Fraction
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from spark_rdp.domains import DELTA, Whole
from spark_rdp.errors import BudgetRefused, InvalidInput, JobFailed, invalid
from spark_rdp.ledger.records import (
    ABANDONED,
    MILLION,
    PUBLISHED,
    RESERVED,
    Balance,
    Entry,
    Reservation,
    to_millionths,
)
from spark_rdp.ledger.tables import (
    DATASETS,
    ENTRIES,
    METADATA,
    SCHEMA,
    SCHEMA_VERSION,
    begin_sqlite,
    prepare_sqlite,
)

#: Seconds a writer waits for the others before it gives up (exit code 4, safe to run again).
WAIT_SECONDS = 30
#: How many of the largest earlier charges a refusal names.
NAMED_SPENDS = 3

_CHARGE = Whole("epsilon_millionths", 1, 10**10, "Give the charge in millionths of epsilon, rounded up.")
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def _utc_now() -> datetime:
    return datetime.now(timezone.utc)


def _show(millionths: int) -> str:
    return f"{millionths / MILLION:.6f}".rstrip("0").rstrip(".")


def _checked_name(name: str, value: Any, remedy: str) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise invalid(name, "a printable text of 1 to 200 characters", value, remedy)
    return value


def _checked_digest(name: str, value: Any) -> str:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise invalid(name, "a SHA-256 digest in hexadecimal", value, "Use query.digest().")
    return value


class Ledger:
    """The budget of data sets.

    Args:
        url: A SQLAlchemy URL; ``sqlite:///budget.db`` is a file beside the job. Nothing is opened before it is used.
        dataset: The data set meant when a call names none.
        clock: Gives the time of an event; only tests pass one.

    Raises:
        InvalidInput: The URL cannot be used.
    """

    def __init__(self, url: str, dataset: str | None = None, *, clock: Callable[[], datetime] = _utc_now) -> None:
        remedy = 'Write for example "sqlite:///budget.db".'
        try:
            self._url = sa.make_url(url)
            self._sqlite = self._url.get_backend_name() == "sqlite"
            if self._sqlite and self._url.database in (None, "", ":memory:"):
                raise invalid("ledger.url", "a data base that outlives the job", url, remedy)
            options: dict[str, Any] = {"connect_args": {"timeout": WAIT_SECONDS}} if self._sqlite else {}
            # No pool: nothing stays open between calls, so a ledger can be shared by threads and forked processes.
            self._engine = sa.create_engine(self._url, poolclass=NullPool, **options)
        except (ArgumentError, NoSuchModuleError, ImportError):
            # The URL is not echoed: it may hold a password.
            constraint = "the URL of a data base whose driver is installed"
            raise InvalidInput(f"ledger.url must be {constraint}. {remedy}") from None
        self.dataset = dataset
        self._clock = clock
        if self._sqlite:
            sa.event.listen(self._engine, "connect", prepare_sqlite)
            sa.event.listen(self._engine, "begin", begin_sqlite)

    @property
    def url(self) -> str:
        """The URL without a password."""
        return self._url.render_as_string(hide_password=True)

    def create(self, dataset: str | None = None, epsilon: float = 1.0, delta: float = 0.0) -> Balance:
        """Open the budget of a data set; repeating it with the same numbers changes nothing.

        Args:
            dataset: Its name.
            epsilon: All that may ever be spent on it (rounded down to millionths).
            delta: All the delta that may ever be spent on it; 0 allows pure releases only.

        Raises:
            InvalidInput: A number is out of range, or the data set exists with another budget.
        """
        name = self._name(dataset)
        total = to_millionths(epsilon, up=False)
        text = repr(DELTA.check(delta))
        if self._sqlite and not self._file.parent.is_dir():
            raise InvalidInput(f"The folder of the ledger, {self._file.parent}, does not exist. Create it first.")
        with self._transaction(fresh=True) as connection:
            METADATA.create_all(connection)
            if connection.execute(sa.select(SCHEMA.c.version)).first() is None:
                connection.execute(SCHEMA.insert().values(version=SCHEMA_VERSION))
            self._check_schema(connection)
            row = connection.execute(sa.select(DATASETS).where(DATASETS.c.name == name)).first()
            if row is None:
                values = {"name": name, "epsilon_millionths": total, "delta": text, "accounting": "sum"}
                connection.execute(DATASETS.insert().values(created=self._now(), **values))
            elif (row.epsilon_millionths, Fraction(row.delta)) != (total, Fraction(text)):
                raise InvalidInput(
                    f"The data set {name} already has a budget of epsilon {_show(row.epsilon_millionths)} and delta "
                    f"{row.delta}. A budget is a promise and is not changed; use another data set name for other data."
                )
            return self._balance(connection, self._find(connection, name))

    def reserve(
        self,
        dataset: str | None,
        release_id: str,
        query_digest: str,
        epsilon_millionths: int,
        delta: float = 0.0,
        *,
        location: str = "",
    ) -> Reservation:
        """Charge a release once, before any data is read.

        A release id that is known with the same query is never charged again: what is known about it comes back, even
        when the budget is used up.

        Args:
            dataset: The data set that pays.
            release_id: Names the release within the data set.
            query_digest: SHA-256 of the query in hexadecimal.
            epsilon_millionths: The charge; a whole number >= 1, already rounded up.
            delta: The delta charged.
            location: The absolute path the output is going to; it is fixed with the first reservation.

        Raises:
            BudgetRefused: Epsilon or delta is short; nothing is charged.
            InvalidInput: The charge is out of range, the release id belongs to another query or another place, or the
                data set does not exist.
        """
        name = self._name(dataset)
        _checked_name("release_id", release_id, "Use the name of the query and the run.")
        _checked_digest("query_digest", query_digest)
        charge = _CHARGE.check(epsilon_millionths)
        delta_text = repr(DELTA.check(delta))
        with self._transaction() as connection:
            row = self._find(connection, name)
            attempt, known = self._known(connection, row, release_id)
            if known is not None:
                self._same_query(known, release_id, query_digest)
                # A published release can be read from wherever its folder was moved to; one that is only reserved must
                # not be computed towards two places, or two different results could both become visible.
                if known.event == RESERVED and known.location != location:
                    raise InvalidInput(
                        f"Release {release_id} was started with output {known.location or 'to the caller'}. Finish it "
                        "there, or use another run id (which is charged)."
                    )
                return _reservation(name, known, new=False)
            self._afford(connection, row, release_id, charge, delta_text)
            entry = {"query_digest": query_digest, "epsilon_millionths": charge, "delta": delta_text}
            entry |= {"location": location, "content_digest": ""}
            self._append(connection, row.id, release_id, attempt, RESERVED, entry)
            _, made = self._known(connection, row, release_id)
            return _reservation(name, made, new=True)

    def publish(self, dataset: str | None, release_id: str, query_digest: str, content_digest: str = "") -> bool:
        """Mark a reserved release as published.

        Returns:
            True if this call published it, False if it was published before with the same content.

        Raises:
            InvalidInput: The release was never reserved, or was published before with another content.
        """
        name = self._name(dataset)
        _checked_digest("query_digest", query_digest)
        with self._transaction() as connection:
            row = self._find(connection, name)
            attempt, known = self._known(connection, row, release_id)
            if known is None:
                raise InvalidInput(f"Release {release_id} was never reserved on {name}. Run the release again.")
            self._same_query(known, release_id, query_digest)
            if known.event == PUBLISHED:
                if known.content_digest == content_digest:
                    return False
                raise InvalidInput(
                    f"Release {release_id} was published before, with another result. Use another run id."
                )
            entry = {key: getattr(known, key) for key in ("query_digest", "epsilon_millionths", "delta", "location")}
            entry |= {"content_digest": content_digest}
            self._append(connection, row.id, release_id, attempt, PUBLISHED, entry)
            return True

    def abandon(self, dataset: str | None, release_id: str, query_digest: str) -> None:
        """Give the charge of a reserved release back. Only for a release of which nothing left the job.

        Raises:
            InvalidInput: The release was never reserved, or is already published.
        """
        name = self._name(dataset)
        with self._transaction() as connection:
            row = self._find(connection, name)
            attempt, known = self._known(connection, row, release_id)
            if known is None or known.event == PUBLISHED:
                state = "never reserved" if known is None else "already published"
                raise InvalidInput(f"Release {release_id} was {state} on {name}: there is no charge to give back.")
            self._same_query(known, release_id, query_digest)
            entry = {key: getattr(known, key) for key in ("query_digest", "epsilon_millionths", "delta", "location")}
            self._append(connection, row.id, release_id, attempt, ABANDONED, entry | {"content_digest": ""})

    def balance(self, dataset: str | None = None) -> Balance:
        """What was spent on a data set and what is left."""
        name = self._name(dataset)
        with self._transaction(read=True) as connection:
            return self._balance(connection, self._find(connection, name))

    def history(self, dataset: str | None = None) -> list[Entry]:
        """Every event of a data set, oldest first."""
        name = self._name(dataset)
        with self._transaction(read=True) as connection:
            row = self._find(connection, name)
            rows = connection.execute(sa.select(ENTRIES).where(ENTRIES.c.dataset_id == row.id).order_by(ENTRIES.c.id))
            return [_entry(each) for each in rows]

    def datasets(self) -> list[str]:
        """The names of all data sets, sorted."""
        with self._transaction(read=True) as connection:
            return list(connection.execute(sa.select(DATASETS.c.name).order_by(DATASETS.c.name)).scalars())

    # -- inside a transaction -------------------------------------------------------------------------------------

    def _known(self, connection: sa.Connection, dataset: Any, release_id: str) -> tuple[int, Any]:
        """The number of abandoned attempts, and the newest event of the attempt that counts (None if there is none)."""
        mine = (ENTRIES.c.dataset_id == dataset.id) & (ENTRIES.c.release_id == release_id)
        rows = connection.execute(sa.select(ENTRIES).where(mine).order_by(ENTRIES.c.id)).all()
        if not rows:
            return 0, None
        newest = rows[-1]
        return (newest.attempt + 1, None) if newest.event == ABANDONED else (newest.attempt, newest)

    def _same_query(self, known: Any, release_id: str, query_digest: str) -> None:
        if known.query_digest != query_digest:
            raise InvalidInput(
                f"Release {release_id} was charged on {known.at} for another query. A release id names one query for "
                "ever: undo the change of the query, or use another run id or name (which is charged)."
            )

    def _spent(self, connection: sa.Connection, dataset: Any) -> tuple[int, Fraction, int]:
        """Epsilon (millionths), delta (exact) and number of the charges that count."""
        # One row per distinct charge: the sums stay exact, and short even for a history of many thousand releases.
        per_charge = (
            sa.select(ENTRIES.c.event, ENTRIES.c.epsilon_millionths, ENTRIES.c.delta, sa.func.count().label("times"))
            .where((ENTRIES.c.dataset_id == dataset.id) & ENTRIES.c.event.in_([RESERVED, ABANDONED]))
            .group_by(ENTRIES.c.event, ENTRIES.c.epsilon_millionths, ENTRIES.c.delta)
        )
        epsilon, delta, releases = 0, Fraction(0), 0
        for row in connection.execute(per_charge):
            times = row.times if row.event == RESERVED else -row.times
            epsilon += times * row.epsilon_millionths
            delta += times * Fraction(row.delta)
            releases += times
        return epsilon, delta, releases

    def _afford(self, connection: sa.Connection, dataset: Any, release_id: str, charge: int, delta: str) -> None:
        spent, spent_delta, _ = self._spent(connection, dataset)
        left = dataset.epsilon_millionths - spent
        left_delta = Fraction(dataset.delta) - spent_delta
        short = []
        if charge > left:
            asked = f"asked {_show(charge)}, left {_show(left)} of {_show(dataset.epsilon_millionths)}"
            short.append(f"epsilon is short by {_show(charge - left)} ({asked})")
        if Fraction(delta) > left_delta:
            asked = f"asked {delta}, left {float(left_delta):.6g} of {dataset.delta}"
            short.append(f"delta is short by {float(Fraction(delta) - left_delta):.6g} ({asked})")
        if not short:
            return
        closed = (
            sa.select(ENTRIES.c.release_id, ENTRIES.c.attempt)
            .where((ENTRIES.c.dataset_id == dataset.id) & (ENTRIES.c.event == ABANDONED))
            .subquery()
        )
        is_closed = (closed.c.release_id == ENTRIES.c.release_id) & (closed.c.attempt == ENTRIES.c.attempt)
        largest = connection.execute(
            sa.select(ENTRIES)
            .where((ENTRIES.c.dataset_id == dataset.id) & (ENTRIES.c.event == RESERVED))
            .where(~sa.exists().where(is_closed))
            .order_by(ENTRIES.c.epsilon_millionths.desc(), ENTRIES.c.id)
            .limit(NAMED_SPENDS)
        ).all()
        spends = "; ".join(
            f"{row.release_id} on {row.at}: epsilon {_show(row.epsilon_millionths)}, delta {row.delta}"
            for row in largest
        )
        raise BudgetRefused(
            f"The budget of {dataset.name} does not cover release {release_id}: {' and '.join(short)}. "
            + (f"Largest earlier spends: {spends}." if spends else "Nothing was spent before.")
        )

    def _append(
        self,
        connection: sa.Connection,
        dataset_id: int,
        release_id: str,
        attempt: int,
        event: str,
        entry: dict[str, Any],
    ) -> None:
        fixed = {
            "dataset_id": dataset_id,
            "release_id": release_id,
            "attempt": attempt,
            "event": event,
            "at": self._now(),
        }
        connection.execute(ENTRIES.insert().values(**fixed, **entry))

    def _balance(self, connection: sa.Connection, dataset: Any) -> Balance:
        spent, spent_delta, releases = self._spent(connection, dataset)
        remaining_delta = float(Fraction(dataset.delta) - spent_delta)
        totals = (dataset.epsilon_millionths, spent, float(dataset.delta), float(spent_delta), remaining_delta)
        return Balance(dataset.name, dataset.accounting, *totals, releases)

    def _find(self, connection: sa.Connection, name: str) -> Any:
        """The row of a data set, locked until the transaction ends."""
        row = connection.execute(sa.select(DATASETS).where(DATASETS.c.name == name).with_for_update()).first()
        if row is None:
            raise self._not_created(name)
        return row

    # -- plumbing -------------------------------------------------------------------------------------------------

    @property
    def _file(self) -> Path:
        return Path(str(self._url.database)).absolute()

    def _name(self, dataset: str | None) -> str:
        name = self.dataset if dataset is None else dataset
        return _checked_name("ledger.dataset", name, "Name the data set whose budget is spent.")

    def _now(self) -> str:
        return self._clock().astimezone(timezone.utc).isoformat(timespec="seconds")

    def _not_created(self, name: str | None) -> InvalidInput:
        command = f"spark-rdp ledger create {shlex.quote(name) if name else 'NAME'} --epsilon EPSILON --url {self.url}"
        what = f"The data set {name} has no budget" if name else "There is no ledger"
        return InvalidInput(f"{what} in {self.url}. Decide one first: {command}")

    def _check_schema(self, connection: sa.Connection) -> None:
        versions = list(connection.execute(sa.select(SCHEMA.c.version)).scalars())
        if versions != [SCHEMA_VERSION]:
            raise InvalidInput(
                f"The ledger {self.url} has schema version {versions}; this spark_rdp reads version {SCHEMA_VERSION}. "
                "Use the version of spark_rdp that wrote it."
            )

    @contextmanager
    def _transaction(self, *, read: bool = False, fresh: bool = False) -> Iterator[sa.Connection]:
        """One transaction: committed as a whole when the block ends well, otherwise without any effect."""
        if self._sqlite and not fresh and not self._file.is_file():
            raise self._not_created(None)  # opening it would create an empty file
        try:
            with self._engine.connect().execution_options(ledger_read=read) as connection, connection.begin():
                if not fresh:
                    if not sa.inspect(connection).has_table(SCHEMA.name):
                        raise self._not_created(None)
                    self._check_schema(connection)
                yield connection
        except (DBAPIError, SQLAlchemyError) as error:
            reason = str(getattr(error, "orig", None) or type(error).__name__)
            if "not a database" in reason:
                raise InvalidInput(
                    f"{self.url} is not a ledger. Give the path of one, or of a file to be made."
                ) from None
            raise JobFailed(
                f"The ledger {self.url} could not be used ({reason}). Nothing was charged by this step; run it again."
            ) from error


def _reservation(dataset: str, row: Any, *, new: bool) -> Reservation:
    facts = {key: getattr(row, key) for key in ("release_id", "query_digest", "epsilon_millionths", "location", "at")}
    return Reservation(
        dataset=dataset, state=row.event, delta=float(row.delta), content_digest=row.content_digest, new=new, **facts
    )


def _entry(row: Any) -> Entry:
    facts = {
        key: getattr(row, key) for key in ("release_id", "event", "query_digest", "epsilon_millionths", "location")
    }
    return Entry(delta=float(row.delta), content_digest=row.content_digest, at=row.at, **facts)
