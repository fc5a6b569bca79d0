"""One release id, one published result: staging, atomic publication, recovery.

The way of a release, with every moment at which a crash (SIGKILL, power cut) can separate two steps. The names are the
arguments of :func:`reached`; a test kills the process at each of them.

======================  ================================  =====================================================
moment                  what exists                       what the next run of the same release id does
======================  ================================  =====================================================
``before-reservation``  nothing                           starts anew
``reserved``            the charge                        is not charged again; computes with a fresh secret
``staged``              + an empty hidden folder          removes the folder, computes with a fresh secret
``written``             + noised files nobody looked at   the same
``prepared``            + the manifest, all on disk       the same
``published-folder``    the output folder, by one rename  marks the release published, reads it back
``published-ledger``    + the ledger says so              reads it back
======================  ================================  =====================================================

Before the rename nothing of a result is visible (the staging folder is hidden and readable by its owner only), so a
second computation with a fresh secret is not a second release. From the rename on, the result is only read. Two runs
of one release id at the same time both compute; the rename of the second fails because the folder exists, its result
is discarded unseen, and it reads the result of the first. A release without an output folder is handed to the caller;
there the ledger entry ``published`` takes the part of the rename and is written before the caller sees a value.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_rdp.errors import InvalidInput, JobFailed
from spark_rdp.ledger import PUBLISHED, Ledger

MANIFEST = "manifest.json"
DATA_FILES = "part-*"

Manifest = dict[str, Any]


def reached(moment: str) -> None:
    """Does nothing. Tests replace it to kill the process at a moment of the table above."""


@dataclass(frozen=True)
class Charge:
    """Which budget pays how much for a release."""

    ledger: Ledger
    dataset: str
    epsilon_millionths: int
    delta: float


@dataclass(frozen=True)
class Publication:
    """A published release: its manifest, and whether it had been published before this call."""

    manifest: Manifest
    already_published: bool


def local_folder(path: str) -> Path:
    """The absolute local path of an output; publication needs the atomic rename of a POSIX file system."""
    scheme, colon, rest = path.partition(":")
    if colon and scheme.lower() == "file":
        path = "/" + rest.lstrip("/")
    elif colon and rest.startswith("//"):
        raise InvalidInput(
            f"output.path must be on a file system that is mounted on the driver; got the scheme {scheme!r}. Write to "
            "a local or mounted folder, and copy the published folder from there."
        )
    return Path(os.path.abspath(path))


def find_published(target: Path, release_id: str, query_digest: str) -> Manifest | None:
    """The manifest of this release if ``target`` holds it, or None if the place is free.

    Raises:
        InvalidInput: The folder holds something else, or files that are not those that were published.
    """
    elsewhere = "Choose another output.path or run id; nothing is ever overwritten."
    if not target.exists() and not target.is_symlink():
        return None
    if not target.is_dir():
        raise InvalidInput(f"output.path {target} is not a folder. {elsewhere}")
    if not any(target.iterdir()):
        return None
    try:
        manifest = json.loads((target / MANIFEST).read_text(encoding="utf-8"))
        held, digest, content = manifest["release_id"], manifest["query_digest"], manifest["content_digest"]
    except (OSError, ValueError, KeyError, TypeError):
        raise InvalidInput(f"output.path {target} already holds files that are no release. {elsewhere}") from None
    if held != release_id:
        raise InvalidInput(f"output.path {target} already holds the release {held}. {elsewhere}")
    if digest != query_digest:
        raise InvalidInput(
            f"output.path {target} holds release {release_id} of another query. A release id names one query for ever: "
            "undo the change of the query, or use another run id or name."
        )
    if content != content_digest(target):
        raise InvalidInput(f"The files in {target} are not those that were published. Restore the folder from a copy.")
    return dict(manifest)


def content_digest(folder: Path) -> str:
    """SHA-256 over the names, lengths and bytes of the data files."""
    digest = hashlib.sha256()
    for file in sorted(folder.glob(DATA_FILES)):
        digest.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


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
            the manifest without release id and digests. It must draw a fresh secret at every call.
        check: Called before anything is charged, unless the folder holds the release: the place to refuse a source.

    Raises:
        InvalidInput: The place is taken; nothing is charged.
        BudgetRefused: The budget does not cover the charge.
        JobFailed: The files could not be written; nothing was published.
    """
    found = find_published(target, release_id, query_digest)
    if found is None:
        _check_writable(target)
        check()
    reached("before-reservation")
    state, content = _reserve(charge, release_id, query_digest, str(target))
    _remove_dead_attempts(target)
    if state == PUBLISHED:
        if found is None:
            raise InvalidInput(
                f"Release {release_id} was published before, but {target} does not hold it. Set output.path to the "
                "folder it was published in (see spark-rdp ledger history), or use another run id (which is charged)."
            )
        if found["content_digest"] != content:
            raise InvalidInput(
                f"{target} holds another result of release {release_id} than the one in the ledger. Restore the folder."
            )
        return Publication(found, already_published=True)
    reached("reserved")
    try:
        made = None if found else _compute_and_rename(target, release_id, query_digest, compute)
    except OSError as error:
        raise JobFailed(
            f"The output could not be written to {target.parent} ({error.strerror or 'input/output error'}). Nothing "
            "was published; run the same release id again."
        ) from error
    manifest = made or found or find_published(target, release_id, query_digest)
    if manifest is None:
        raise JobFailed(
            f"{target} was removed while release {release_id} was published. Run the same release id again."
        )
    if charge is not None:
        try:
            charge.ledger.publish(charge.dataset, release_id, query_digest, manifest["content_digest"])
        except JobFailed as error:
            raise JobFailed(
                f"Release {release_id} is published in {target}, but the ledger could not be told. Leave the folder "
                "where it is and run the same release id again: it is read back, and the ledger is told."
            ) from error
    reached("published-ledger")
    return Publication(manifest, already_published=made is None)


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
    state, _ = _reserve(charge, release_id, query_digest, "")
    if state == PUBLISHED:
        raise InvalidInput(
            f"Release {release_id} was handed out before and not kept, so there is nothing to read back. Give "
            "output.path to keep a release, or use another run id (which is charged)."
        )
    reached("reserved")
    values, manifest = compute()
    digest = hashlib.sha256(values).hexdigest()
    manifest = {**manifest, "release_id": release_id, "query_digest": query_digest, "content_digest": digest}
    reached("prepared")
    if charge is not None:
        charge.ledger.publish(charge.dataset, release_id, query_digest, digest)
    reached("published-ledger")
    return manifest


def manifest_text(manifest: Manifest) -> str:
    """The manifest as JSON with sorted keys; the same manifest is always the same text."""
    return json.dumps(manifest, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _reserve(charge: Charge | None, release_id: str, query_digest: str, location: str) -> tuple[str, str]:
    if charge is None:
        return "", ""
    reservation = charge.ledger.reserve(
        charge.dataset, release_id, query_digest, charge.epsilon_millionths, charge.delta, location=location
    )
    return reservation.state, reservation.content_digest


def _check_writable(target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(
            f"The folder {target.parent} cannot be made ({error.strerror}). Choose another output.path."
        ) from None
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise InvalidInput(f"The folder {target.parent} is not writable. Choose another output.path.")


def _compute_and_rename(
    target: Path, release_id: str, query_digest: str, compute: Callable[[Path], Manifest]
) -> Manifest | None:
    """The manifest of what this call published, or None if another process published first."""
    with _staging(target) as staging:
        reached("staged")
        data = staging / "data"
        manifest = compute(data)
        reached("written")
        _tidy(data)
        identity = {"release_id": release_id, "query_digest": query_digest, "content_digest": content_digest(data)}
        manifest = {**manifest, **identity}
        (data / MANIFEST).write_text(manifest_text(manifest), encoding="utf-8")
        for file in data.iterdir():
            _sync(file)
        _sync(data)
        reached("prepared")
        try:
            os.rename(data, target)  # replaces nothing but an empty folder
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                return None
            raise
        _sync(target.parent)
        reached("published-folder")
    return manifest


def _tidy(folder: Path) -> None:
    """Keep the data files only, under names that are the same at every attempt."""
    for file in folder.iterdir():
        if file.name.startswith((".", "_")):
            file.unlink()
    for number, file in enumerate(sorted(folder.glob(DATA_FILES))):
        endings = re.search(r"(\.[a-z].*)$", file.name)
        file.rename(folder / f"part-{number:05d}{endings.group(1) if endings else ''}")


def _staging_prefix(target: Path) -> str:
    return f".{target.name}.staging-"


def _remove_dead_attempts(target: Path) -> None:
    for earlier in target.parent.glob(f"{glob.escape(_staging_prefix(target))}*"):
        lock = _lock(earlier)
        if lock is not None:
            shutil.rmtree(earlier, ignore_errors=True)
            os.close(lock)


@contextmanager
def _staging(target: Path) -> Iterator[Path]:
    """A hidden folder beside the target that only its owner can read.

    A living attempt holds a lock on its folder, which the system releases when the process ends, however it ends.
    """
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_staging_prefix(target), dir=target.parent))  # mode 0700
        lock = _lock(folder)
        if lock is not None:
            break  # otherwise another attempt took it for a dead one, between its making and its lock
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _lock(folder: Path) -> int | None:
    """An open descriptor that holds the lock of a folder, or None if another process holds it or removed the folder."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), folder.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
