"""The ledger itself: every call is one transaction."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from spark_rdp.domains import DELTA, Whole
from spark_rdp.errors import BudgetRefused, InvalidInput, invalid
from spark_rdp.ledger import events, spending
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
    show_millionths,
    to_millionths,
)
from spark_rdp.ledger.store import Store
from spark_rdp.ledger.tables import DATASETS, ENTRIES

if TYPE_CHECKING:
    from spark_rdp.privacy.accounting import Loss

_CHARGE = Whole("epsilon_millionths", 1, 10**10, "Give the charge in millionths of epsilon, rounded up.")
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
_FINGERPRINT = re.compile(r"[^\x00-\x1f\x7f]{0,1000}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def _utc_now() -> datetime:
    return datetime.now(timezone.utc)


class Ledger:
    """The budget of data sets.

    Args:
        url: ``sqlite:///budget.db`` is a file beside the job; ``postgresql://user@host/database`` is a server, for
            many writers. Nothing is opened before it is used.
        dataset: The data set meant when a call names none.
        clock: Gives the time of an event; only tests pass one.

    Raises:
        InvalidInput: The URL cannot be used.
    """

    def __init__(self, url: str, dataset: str | None = None, *, clock: Callable[[], datetime] = _utc_now) -> None:
        self._store = Store(url)
        self.dataset = dataset
        self._clock = clock

    @property
    def url(self) -> str:
        """The URL without user and password."""
        return self._store.url

    def create(
        self,
        dataset: str | None = None,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        accounting: str = PURE,
        fingerprint: str = "",
    ) -> Balance:
        """Open the budget of a data set; repeating it with the same decision changes nothing.

        Args:
            dataset: Its name.
            epsilon: All that may ever be spent on it (rounded down to millionths).
            delta: All the delta that may ever be spent on it; 0 allows pure releases only.
            accounting: ``pure``: charges add up. ``pld``: the noise of all releases is composed by its privacy loss
                distributions, which allows many more small releases, and needs a delta of at least 1e-10.
            fingerprint: What the data set is, such as a path or a table with its version. If given, every charge must
                repeat it.

        Raises:
            InvalidInput: A value is out of range, or the data set exists with another budget.
        """
        name = self._name(dataset)
        total, text = to_millionths(epsilon, up=False), repr(DELTA.check(delta))
        if accounting not in (PURE, PLD):
            raise invalid("accounting", "pure or pld", accounting, "pure adds up charges.")
        if accounting == PLD:
            from spark_rdp.privacy.accounting import COMPOSED_DELTA

            COMPOSED_DELTA.check(delta)
        _check("fingerprint", fingerprint, _FINGERPRINT, "a printable text of at most 1000 characters", "Shorten it.")
        decided = {"epsilon_millionths": total, "delta": text, "accounting": accounting, "fingerprint": fingerprint}
        with self._store.creating() as connection:
            row = events.dataset(connection, name, lock=False)
            if row is None:
                connection.execute(DATASETS.insert().values(name=name, created=self._now(), **decided))
                row = events.dataset(connection, name, lock=False)
            elif any(getattr(row, key) != value for key, value in decided.items()):
                source = f", fingerprint {row.fingerprint!r}" if row.fingerprint else ""
                raise InvalidInput(
                    f"The data set {name} already has a budget of epsilon {show_millionths(row.epsilon_millionths)} "
                    f"and delta {row.delta}, accounting {row.accounting}{source}. A budget is a promise and is not "
                    "changed; use another data set name for other data."
                )
            return spending.balance(row, spending.charges(connection, row).spent())

    def reserve(
        self,
        dataset: str | None,
        release_id: str,
        query_digest: str,
        epsilon_millionths: int,
        delta: float = 0.0,
        *,
        location: str = "",
        losses: Sequence[Loss] = (),
        fingerprint: str = "",
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
            losses: The noise of the release (`losses_of`); used under accounting ``pld``, where a release without is
                composed by its epsilon and delta.
            fingerprint: What the data set is; as it was said when the budget was opened.

        Raises:
            BudgetRefused: Epsilon or delta is short; nothing is charged.
            InvalidInput: The charge is out of range, the release id belongs to another query or another place, the
                fingerprint is another one, or the data set does not exist.
        """
        name, charge = self._name(dataset), _charge(release_id, query_digest, epsilon_millionths, delta, losses)
        if losses:
            # Composition can take a second. What it needs is worked out, and remembered, before others have to wait.
            self.balance(name)
        with self._store.transaction() as connection:
            row = self._find(connection, name)
            attempt, known = events.newest(connection, row, release_id)
            charges = spending.charges(connection, row)
            before = charges.spent()
            if known is not None:
                events.same_query(known, release_id, query_digest)
                # A result that is prepared or published can be read from wherever its folder was moved to; one that is
                # only reserved must not be computed towards two places, or two different results could become visible.
                if known.event == RESERVED and known.location != location:
                    raise InvalidInput(
                        f"Release {release_id} was started with output {known.location or 'to the caller'}. Finish it "
                        "there, or use another run id (which is charged)."
                    )
                return events.reservation(row, known, before, new=False)
            _same_data(row, fingerprint)
            after = charges.spent(charge)
            refusal = spending.refusal(connection, row, release_id, charge, before, after)
            if refusal:
                raise BudgetRefused(refusal)
            events.first(connection, row, release_id, attempt, query_digest, charge, location, self._now())
            _, made = events.newest(connection, row, release_id)
            return events.reservation(row, made, after, new=True)

    def quote(
        self,
        dataset: str | None,
        release_id: str,
        query_digest: str,
        epsilon_millionths: int,
        delta: float = 0.0,
        *,
        losses: Sequence[Loss] = (),
        fingerprint: str = "",
    ) -> Quote:
        """What `reserve` would do with the same arguments; nothing is written.

        Raises:
            InvalidInput: As `reserve`.
        """
        name, charge = self._name(dataset), _charge(release_id, query_digest, epsilon_millionths, delta, losses)
        with self._store.transaction(read=True) as connection:
            row = self._find(connection, name, lock=False)
            _, known = events.newest(connection, row, release_id)
            charges = spending.charges(connection, row)
            before = charges.spent()
            if known is not None:
                events.same_query(known, release_id, query_digest)
                balance = spending.balance(row, before)
                return Quote(known.event, balance, balance, "")
            _same_data(row, fingerprint)
            after = charges.spent(charge)
            refusal = spending.refusal(connection, row, release_id, charge, before, after)
            return Quote("", spending.balance(row, before), spending.balance(row, after), refusal)

    def prepare(self, dataset: str | None, release_id: str, query_digest: str, content_digest: str) -> str:
        """Fix the result of a reserved release, just before it becomes visible. From now on it is never drawn again.

        Returns:
            The digest of the result that is fixed: ``content_digest``, or that of another attempt that came first.

        Raises:
            InvalidInput: The release was never reserved, or its charge was given back.
        """
        _check_digest("content_digest", content_digest)
        with self._store.transaction() as connection:
            known = self._charged(connection, dataset, release_id, query_digest)
            if known.event != RESERVED:
                return str(known.content_digest)
            events.following(connection, known, PREPARED, content_digest, self._now())
            return content_digest

    def publish(self, dataset: str | None, release_id: str, query_digest: str, content_digest: str = "") -> bool:
        """Mark a reserved release as published.

        Returns:
            True if this call published it, False if it was published before with the same content.

        Raises:
            InvalidInput: The release was never reserved, or another result of it is fixed.
        """
        with self._store.transaction() as connection:
            known = self._charged(connection, dataset, release_id, query_digest)
            if known.event != RESERVED and known.content_digest != content_digest:
                raise InvalidInput(
                    f"Release {release_id} was {known.event} before, with another result. Use another run id."
                )
            if known.event == PUBLISHED:
                return False
            events.following(connection, known, PUBLISHED, content_digest, self._now())
            return True

    def abandon(self, dataset: str | None, release_id: str, query_digest: str | None = None) -> None:
        """Give the charge of a reserved release back. Only for a release of which nothing left the job.

        Raises:
            InvalidInput: The release was never reserved, or its result is fixed: somebody may have seen it.
        """
        name = self._name(dataset)
        with self._store.transaction() as connection:
            _, known = events.newest(connection, self._find(connection, name), release_id)
            if known is None or known.event != RESERVED:
                state = "never reserved" if known is None else f"already {known.event}"
                raise InvalidInput(f"Release {release_id} was {state} on {name}: there is no charge to give back.")
            if query_digest is not None:
                events.same_query(known, release_id, query_digest)
            events.following(connection, known, ABANDONED, "", self._now())

    def balance(self, dataset: str | None = None) -> Balance:
        """What was spent on a data set in its whole life, and what is left."""
        name = self._name(dataset)
        with self._store.transaction(read=True) as connection:
            row = self._find(connection, name, lock=False)
            return spending.balance(row, spending.charges(connection, row).spent())

    def window(self, dataset: str | None, since: datetime) -> Window:
        """What the releases charged since a moment amount to. A budget is for life: no window gives any of it back.

        Args:
            since: With a time zone.
        """
        name, moment = self._name(dataset), events.moment(since)
        with self._store.transaction(read=True) as connection:
            found = spending.charges(connection, self._find(connection, name, lock=False), moment).spent()
            return Window(moment, found.millionths, float(found.delta), found.releases)

    def history(self, dataset: str | None = None, *, since: datetime | None = None) -> list[Entry]:
        """Every event of a data set, oldest first; those since a moment (with a time zone), if one is given."""
        name, moment = self._name(dataset), "" if since is None else events.moment(since)
        with self._store.transaction(read=True) as connection:
            row = self._find(connection, name, lock=False)
            mine = (ENTRIES.c.dataset_id == row.id) & (ENTRIES.c.at >= moment)
            rows = connection.execute(sa.select(ENTRIES).where(mine).order_by(ENTRIES.c.id))
            return [events.entry(each) for each in rows]

    def datasets(self) -> list[str]:
        """The names of all data sets, sorted."""
        with self._store.transaction(read=True) as connection:
            return sorted(connection.execute(sa.select(DATASETS.c.name)).scalars())

    # -- plumbing -------------------------------------------------------------------------------------------------

    def _find(self, connection: sa.Connection, name: str, *, lock: bool = True) -> Any:
        row = events.dataset(connection, name, lock=lock)
        if row is None:
            raise self._store.not_created(name)
        return row

    def _charged(self, connection: sa.Connection, dataset: str | None, release_id: str, query_digest: str) -> Any:
        """The newest event of a release that was reserved."""
        name = self._name(dataset)
        _check_digest("query_digest", query_digest)
        attempt, known = events.newest(connection, self._find(connection, name), release_id)
        if known is None:
            given_back = ", or its charge was given back" if attempt else ""
            raise InvalidInput(f"Release {release_id} was never reserved on {name}{given_back}. Run the release again.")
        events.same_query(known, release_id, query_digest)
        return known

    def _name(self, dataset: str | None) -> str:
        name = self.dataset if dataset is None else dataset
        remedy = "Name the data set whose budget is spent."
        return _check("ledger.dataset", name, _NAME, "a printable text of 1 to 200 characters", remedy)

    def _now(self) -> str:
        return events.moment(self._clock())


def _check(name: str, value: Any, pattern: re.Pattern[str], constraint: str, remedy: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise invalid(name, constraint, value, remedy)
    return value


def _check_digest(name: str, value: Any) -> str:
    return _check(name, value, _DIGEST, "a SHA-256 digest in hexadecimal", "Use query.digest().")


def _charge(
    release_id: str, query_digest: str, epsilon_millionths: int, delta: float, losses: Sequence[Loss]
) -> spending.Charge:
    remedy = "Use the name of the query and the run."
    _check("release_id", release_id, _NAME, "a printable text of 1 to 200 characters", remedy)
    _check_digest("query_digest", query_digest)
    return spending.Charge(_CHARGE.check(epsilon_millionths), repr(DELTA.check(delta)), tuple(losses))


def _same_data(dataset: Any, fingerprint: str) -> None:
    """Refuse a charge that says to be about other data than those the budget was opened for."""
    if fingerprint != dataset.fingerprint:
        opened = repr(dataset.fingerprint) if dataset.fingerprint else "left out"
        constraint = f"{opened}, as the budget of {dataset.name} was opened"
        raise invalid("ledger.fingerprint", constraint, fingerprint, "Other data have a budget of their own.")
