"""A private PostgreSQL server for tests, where one can be started."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def binaries() -> Path | None:
    """The folder of the server's programs, newest version first; None if there is no server."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: -float(each.parent.name))
    return next((each for each in folders if (each / "initdb").exists() and (each / "postgres").exists()), None)


@contextmanager
def server(programs: Path) -> Iterator[str]:
    """A running server that only this machine reaches, by a socket in a folder of its own; its URL.

    PostgreSQL refuses to run as root: then it runs as the user ``postgres``, or as ``nobody``.
    """
    user = None
    if os.geteuid() == 0:
        names = {each.pw_name for each in pwd.getpwall()}
        user = "postgres" if "postgres" in names else "nobody"
    folder = Path(tempfile.mkdtemp(prefix="ledger-"))  # short: the name of a socket has at most 107 characters
    if user is not None:
        shutil.chown(folder, user)
    try:
        data = folder / "data"
        make = [programs / "initdb", "-D", data, "-A", "trust", "-U", "ledger", "-E", "UTF8", "--no-sync"]
        subprocess.run(make, user=user, cwd=folder, check=True, capture_output=True, timeout=120)
        # Nothing here has to survive a power cut.
        settings = ["listen_addresses=", "max_connections=60", "fsync=off"]
        options = ["-k", folder, *(part for each in settings for part in ("-c", each))]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                [programs / "postgres", "-D", data, *options], user=user, cwd=folder, stdout=log, stderr=log
            )
        try:
            _wait(folder, process)
            yield f"postgresql://ledger@/postgres?host={folder}"
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait(folder: Path, process: subprocess.Popen[bytes]) -> None:
    import psycopg

    for _ in range(300):
        try:
            psycopg.connect(host=str(folder), user="ledger", dbname="postgres").close()
            return
        except psycopg.OperationalError:
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(0.1)
    raise AssertionError((folder / "log").read_text())
