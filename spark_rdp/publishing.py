"""One release id, one published result: staging, atomic publication, recovery.

The way of a release, with every moment at which a crash (SIGKILL, power cut) can separate two steps. The names are the
arguments of :func:`reached`; a test kills the process at each of them.

======================  =================================  ====================================================
moment                  what exists                        what the next run of the same release id does
======================  =================================  ====================================================
``before-reservation``  a lock file                        starts anew
``reserved``            + the charge                       is not charged again; computes with a fresh secret
``staged``              + an empty hidden folder           removes the folder, computes with a fresh secret
``written``             + noised files nobody looked at    the same
``complete``            + the manifest, all on disk        the same
``prepared``            + the ledger knows the digest      publishes these very files
``published-folder``    the output folder, by one rename   marks the release published, reads it back
``published-ledger``    + the ledger says so               reads it back
======================  =================================  ====================================================

Before the ledger knows the digest of a result, nothing of it was visible (the staging folder is hidden and readable by
its owner only), so a second computation with a fresh secret is not a second release. From then on that one result is
the release: a run that finds neither its folder nor its staged files refuses, because somebody may have seen it and
moved it away. Without a ledger the rename takes this part.

Two runs of one release id at the same time take turns by a lock beside the output, which the system releases when its
process ends, however it ends: the second waits, and reads back the result of the first. Where a file system has no
locks both compute; the ledger takes the digest of one of them only, and the other's result is discarded unseen.

A release without an output folder is handed to the caller; there the ledger entry ``published`` takes the part of the
rename and is written before the caller sees a value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_rdp import folders
from spark_rdp.errors import InvalidInput, JobFailed, missing
from spark_rdp.folders import MANIFEST, Manifest, content_digest, find_published
from spark_rdp.ledger import PREPARED, RESERVED, Ledger, Quote, Reservation
from spark_rdp.stages import reached_stage

if TYPE_CHECKING:
    from spark_rdp.privacy.accounting import Loss
    from spark_rdp.queries import LedgerRef


def reached(moment: str) -> None:
    """Does nothing. Tests replace it to kill the process at a moment of the table above."""


@dataclass(frozen=True)
class Charge:
    """Which budget pays how much for a release.

    Args:
        losses: The noise of the release, for a ledger that composes it.
        fingerprint: What the data set is, if its budget was opened with one.
    """

    ledger: Ledger
    dataset: str
    epsilon_millionths: int
    delta: float
    losses: Sequence[Loss] = ()
    fingerprint: str = ""

    def reserve(self, release_id: str, query_digest: str, location: str) -> Reservation:
        """Charge the ledger."""
        return self.ledger.reserve(*self._arguments(release_id, query_digest), location=location, **self._more)

    def quote(self, release_id: str, query_digest: str) -> Quote:
        """What charging the ledger would do."""
        return self.ledger.quote(*self._arguments(release_id, query_digest), **self._more)

    def _arguments(self, release_id: str, query_digest: str) -> tuple[str, str, str, int, float]:
        return self.dataset, release_id, query_digest, self.epsilon_millionths, self.delta

    @property
    def _more(self) -> dict[str, Any]:
        return {"losses": self.losses, "fingerprint": self.fingerprint}


def charge_of(
    named: LedgerRef | None, ledger: Ledger | None, epsilon_millionths: int, delta: float, losses: Sequence[Loss]
) -> Charge | None:
    """The charge of a release.

    Args:
        named: The ledger and data set that the query names.
        ledger: A ledger that is given beside the query; it takes the place of the one named.
        epsilon_millionths, delta, losses: What is charged.

    Returns:
        None if neither names a ledger.

    Raises:
        InvalidInput: There is a ledger, but no data set.
    """
    if ledger is None:
        if named is None:
            return None
        ledger = Ledger(named.url, named.dataset)
    dataset = named.dataset if named is not None else ledger.dataset
    if dataset is None:
        raise missing("ledger.dataset", "Name the data set whose budget is spent.")
    fingerprint = named.fingerprint if named is not None else None
    return Charge(ledger, dataset, epsilon_millionths, delta, losses, fingerprint or "")


@dataclass(frozen=True)
class Publication:
    """A published release: its manifest, and whether it had been published before this call."""

    manifest: Manifest
    already_published: bool


def publish_folder(
    target: Path,
    release_id: str,
    query_digest: str,
    charge: Charge | None,
    compute: Callable[[Path], Manifest],
    check: Callable[[], object] = lambda: None,
) -> Publication:
    """Publish a release in a folder, once.

    Args:
        target: The folder that will hold the data files and ``manifest.json``.
        release_id, query_digest: What is released.
        charge: Who pays; None if no budget is kept.
        compute: Writes the data files (``part-*``) into the folder it is given, which does not exist yet, and returns
            the manifest without release id, digests and charge. It must draw a fresh secret at every call.
        check: Called before anything is charged, unless the folder holds the release: the place to refuse a source.

    Raises:
        InvalidInput: The place is taken, and nothing is charged; or the result was published and moved away.
        BudgetRefused: The budget does not cover the charge.
        JobFailed: The files could not be written, or another run of the release does not end; nothing was published
            by this one.
    """
    work = _Work(target, release_id, query_digest, charge)
    found = work.find()
    if found is None:
        folders.check_writable(target)
        try:
            with folders.turn(target, release_id, lambda: reached_stage("waiting", release_id)) as alone:
                found = work.find()  # another run may have published it in the meantime
                if found is None:
                    check()
                    return work.publish(compute, alone)
        except OSError as error:
            raise JobFailed(
                f"The output could not be written to {target.parent} ({error.strerror or 'input/output error'}). "
                "Nothing was published; run the same release id again."
            ) from error
    return work.read_back(found)


@dataclass(frozen=True)
class _Work:
    """One run of a release."""

    target: Path
    release_id: str
    query_digest: str
    charge: Charge | None

    def find(self) -> Manifest | None:
        return find_published(self.target, self.release_id, self.query_digest)

    def read_back(self, found: Manifest) -> Publication:
        """A folder that holds the release: make sure that it is the one of the ledger, and that the ledger knows."""
        reservation = _reserve(self.charge, self.release_id, self.query_digest, str(self.target))
        if reservation is not None and reservation.state != RESERVED:
            self._same(found, reservation.content_digest)
        self._tell_ledger(found)
        folders.clear(self.target)
        reached_stage("read-back", self.release_id, rows=found.get("rows"), folder=str(self.target))
        return Publication(found, already_published=True)

    def publish(self, compute: Callable[[Path], Manifest], alone: bool) -> Publication:
        """Compute and publish; or finish what a run that died had fixed."""
        reached("before-reservation")
        reservation = _reserve(self.charge, self.release_id, self.query_digest, str(self.target))
        attempts = folders.attempts_beside(self.target)
        if reservation is not None and reservation.state != RESERVED:
            self._finish(reservation, attempts)
        elif alone:
            folders.remove(attempts)
        reached("reserved")
        mine = None
        if reservation is None or reservation.state == RESERVED:
            reached_stage("computing", self.release_id)
            mine = self._compute(compute, reservation)
        manifest = mine or folders.appearing(self.find)
        if manifest is None:
            raise JobFailed(
                f"Release {self.release_id} is being published in {self.target} by another process, or its folder was "
                "removed meanwhile. Run the same release id again."
            )
        self._tell_ledger(manifest)
        reached_stage("published", self.release_id, rows=manifest.get("rows"), folder=str(self.target))
        return Publication(manifest, already_published=mine is None)

    def _finish(self, reservation: Reservation, attempts: Sequence[Path]) -> None:
        """Publish the staged files whose digest the ledger knows, if a run died before it could do so."""
        for attempt in attempts if reservation.state == PREPARED else ():
            data = attempt / "data"
            if (data / MANIFEST).is_file() and content_digest(data) == reservation.content_digest:
                folders.rename(data, self.target)
                folders.remove([attempt])
                return
        raise _not_there(reservation, str(self.target))

    def _compute(self, compute: Callable[[Path], Manifest], reservation: Reservation | None) -> Manifest | None:
        """The manifest of what this call published, or None if another run came first."""
        staging = folders.new_staging(self.target)
        fixed = False
        try:
            reached("staged")
            data = staging / "data"
            manifest = compute(data)
            reached("written")
            folders.tidy(data)
            digest = content_digest(data)
            identity = {"release_id": self.release_id, "query_digest": self.query_digest, "content_digest": digest}
            manifest = {**manifest, **identity, "charge": _charge_facts(reservation)}
            folders.complete(data, manifest)
            reached("complete")
            if self.charge is not None:
                fixed = True  # also if the ledger does not answer: what it may know by now must not be lost
                ledger, dataset = self.charge.ledger, self.charge.dataset
                if ledger.prepare(dataset, self.release_id, self.query_digest, digest) != digest:
                    fixed = False
                    return None
                reached_stage("prepared", self.release_id, content_digest=digest)
            reached("prepared")
            mine = folders.rename(data, self.target)
            fixed = False
            reached("published-folder")
            return manifest if mine else None
        finally:
            if not fixed:
                folders.remove([staging])

    def _same(self, found: Manifest, digest: str) -> None:
        if found["content_digest"] != digest:
            raise InvalidInput(
                f"{self.target} holds another result of release {self.release_id} than the one in the ledger. Restore "
                "the folder."
            )

    def _tell_ledger(self, manifest: Manifest) -> None:
        if self.charge is not None:
            try:
                self.charge.ledger.publish(
                    self.charge.dataset, self.release_id, self.query_digest, manifest["content_digest"]
                )
            except JobFailed as error:
                raise JobFailed(
                    f"Release {self.release_id} is published in {self.target}, but the ledger could not be told. Leave "
                    "the folder where it is and run the same release id again: it is read back, and the ledger is told."
                ) from error
        reached("published-ledger")


def publish_to_caller(
    release_id: str, query_digest: str, charge: Charge | None, compute: Callable[[], tuple[bytes, Manifest]]
) -> Manifest:
    """Hand a release to the caller, once: its values are not kept anywhere else.

    Args:
        compute: Returns the values as bytes and the manifest. The caller uses the values after this function returns.

    Raises:
        InvalidInput: The release was handed out before.
        BudgetRefused: The budget does not cover the charge.
    """
    reached("before-reservation")
    reservation = _reserve(charge, release_id, query_digest, "")
    if reservation is not None and reservation.state != RESERVED:
        raise _not_there(reservation, "the caller")
    reached("reserved")
    reached_stage("computing", release_id)
    values, manifest = compute()
    digest = hashlib.sha256(values).hexdigest()
    identity = {"release_id": release_id, "query_digest": query_digest, "content_digest": digest}
    manifest = {**manifest, **identity, "charge": _charge_facts(reservation)}
    reached("complete")
    if charge is not None:
        charge.ledger.publish(charge.dataset, release_id, query_digest, digest)
    reached("published-ledger")
    reached_stage("published", release_id, rows=manifest.get("rows"))
    return manifest


def _not_there(reservation: Reservation, place: str) -> InvalidInput:
    """Why a release whose result is fixed is not computed again."""
    name, other = reservation.release_id, "use another run id (which is charged)"
    if not reservation.location:
        return InvalidInput(
            f"Release {name} was handed out before and not kept, so there is nothing to read back. Give output.path to "
            f"keep a release, or {other}."
        )
    return InvalidInput(
        f"Release {name} was {reservation.state} before, but {place} does not hold it. Somebody may have seen it, so "
        f"it is not drawn again. Put its folder back to {reservation.location}, set output.path to where it is now, or "
        f"{other}."
    )


def _reserve(charge: Charge | None, release_id: str, query_digest: str, location: str) -> Reservation | None:
    if charge is None:
        return None
    reservation = charge.reserve(release_id, query_digest, location)
    facts = {"dataset": charge.dataset, "epsilon": reservation.epsilon, "delta": reservation.delta}
    balance = {"new": reservation.new, "remaining_epsilon": reservation.balance.remaining_epsilon}
    reached_stage("reserved", release_id, **facts, **balance)
    return reservation


def _charge_facts(reservation: Reservation | None) -> Manifest | None:
    """The charge, how it is put together with the others, and what is left; for the manifest."""
    if reservation is None:
        return None
    balance = reservation.balance
    return {
        "dataset": reservation.dataset,
        "fingerprint": balance.fingerprint,
        "epsilon_millionths": reservation.epsilon_millionths,
        "delta": reservation.delta,
        "accounting": balance.accounting,
        "composition": balance.composition,
        "balance": balance.facts(),
    }
