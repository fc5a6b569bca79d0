"""Folders that hold one release: where they are, what they hold, and how one appears in a single step."""

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
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from spark_rdp.errors import InvalidInput, JobFailed, missing

MANIFEST = "manifest.json"
DATA_FILES = "part-*"
#: Noised numbers before they were made consistent, where a release keeps them; hidden from who reads the folder whole.
NOISED_FILE = "_noised.parquet"
#: How long a run waits for another one of the same release id before it gives up (exit code 4, safe to run again).
PATIENCE_SECONDS = 600.0
_LOOK_AGAIN_SECONDS = 0.2
#: How long a folder that another process is about to publish is waited for.
_MOMENT_SECONDS = 10.0

Manifest = dict[str, Any]


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


def output_folder(path: str, run: str | None) -> Path:
    """The folder of one run: ``{run}`` in the path is the run, otherwise a run has a folder ``run=...`` of its own."""
    if "{run}" in path:
        if run is None:
            raise missing("run", "output.path contains {run}; use for example --run 2026-11-30.")
        return local_folder(path.replace("{run}", run))
    return local_folder(path) if run is None else local_folder(path) / f"run={run}"


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


def appearing(find: Callable[[], Manifest | None]) -> Manifest | None:
    """What ``find`` finds, for which another process may still need a moment."""
    began = time.monotonic()
    found = find()
    while found is None and time.monotonic() - began < _MOMENT_SECONDS:
        time.sleep(_LOOK_AGAIN_SECONDS)
        found = find()
    return found


def content_digest(folder: Path) -> str:
    """SHA-256 over the names, lengths and bytes of the data files."""
    digest = hashlib.sha256()
    for file in [*sorted(folder.glob(DATA_FILES)), *folder.glob(NOISED_FILE)]:
        digest.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def manifest_text(manifest: Manifest) -> str:
    """The manifest as JSON with sorted keys; the same manifest is always the same text."""
    return json.dumps(manifest, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def check_writable(target: Path) -> None:
    """Make the folder that will hold ``target``, and refuse one that cannot be written to."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(
            f"The folder {target.parent} cannot be made ({error.strerror}). Choose another output.path."
        ) from None
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise InvalidInput(f"The folder {target.parent} is not writable. Choose another output.path.")


def rename(data: Path, target: Path) -> bool:
    """Make a result visible, in one step; False if the place holds one already, or another run took this one there."""
    try:
        os.rename(data, target)  # replaces nothing but an empty folder
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.ENOENT):
            return False
        raise
    _sync(target.parent)
    return True


def tidy(folder: Path) -> None:
    """Keep the data files, under names that are the same at every attempt, and what is set aside beside them."""
    for file in folder.iterdir():
        if file.name.startswith((".", "_")) and file.name != NOISED_FILE:
            file.unlink()
    for number, file in enumerate(sorted(folder.glob(DATA_FILES))):
        endings = re.search(r"(\.[a-z].*)$", file.name)
        file.rename(folder / f"part-{number:05d}{endings.group(1) if endings else ''}")


def attempts_beside(target: Path) -> list[Path]:
    """The staging folders of runs towards ``target``, living or dead."""
    return list(target.parent.glob(f"{glob.escape(_staging_prefix(target))}*"))


def remove(attempts: Sequence[Path]) -> None:
    """Remove staging folders."""
    for attempt in attempts:
        shutil.rmtree(attempt, ignore_errors=True)


def clear(target: Path) -> None:
    """Remove what runs that died have left beside a published folder, unless another run is at work there."""
    lock, left = _lock_path(target), attempts_beside(target)
    if left or lock.exists():
        with suppress(OSError):
            descriptor = _lock(lock)
            if descriptor is not None:
                remove(left)
                _unlock(lock, descriptor)


def new_staging(target: Path) -> Path:
    """A new hidden folder beside the target that only its owner can read (mode 0700)."""
    return Path(tempfile.mkdtemp(prefix=_staging_prefix(target), dir=target.parent))


def complete(data: Path, manifest: Manifest) -> None:
    """Add the manifest to the data files, and bring all of it to the disk."""
    (data / MANIFEST).write_text(manifest_text(manifest), encoding="utf-8")
    for file in data.iterdir():
        _sync(file)
    for folder in (data, data.parent):
        _sync(folder)


@contextmanager
def turn(target: Path, release_id: str, waiting: Callable[[], object]) -> Iterator[bool]:
    """Wait until no other process publishes in ``target``; True if that is certain, False if there are no locks here.

    Args:
        target: The folder that is going to appear.
        release_id: Named in the error.
        waiting: Called once, if there is somebody to wait for.

    Raises:
        JobFailed: The other process takes too long.
    """
    lock = _lock_path(target)
    try:
        descriptor = _lock(lock)
        if descriptor is None:
            waiting()
        began = time.monotonic()
        while descriptor is None:
            if time.monotonic() - began > PATIENCE_SECONDS:
                raise JobFailed(
                    f"Release {release_id} is being computed by another process. When that has ended, run the same "
                    "release id again: it is read back."
                )
            time.sleep(_LOOK_AGAIN_SECONDS)
            descriptor = _lock(lock)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT):
            raise
        yield False  # a file system without locks
        return
    try:
        yield True
    finally:
        _unlock(lock, descriptor)


def _lock_path(target: Path) -> Path:
    return target.parent / f".{target.name}.lock"


def _lock(path: Path) -> int | None:
    """An open descriptor that holds the lock, or None if another one does. The system releases it with the process."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The file that was opened is the lock only while it is the one that others find.
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _unlock(path: Path, descriptor: int) -> None:
    with suppress(OSError):
        path.unlink()
    os.close(descriptor)


def _staging_prefix(target: Path) -> str:
    return f".{target.name}.staging-"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
