"""The one place that builds a Spark session, and the one that words a failure of Spark.

A session that runs already (a notebook, a cluster's shell, a test) is used as it is and never stopped. A session
built here starts a quiet JVM: what it and its Python workers write goes to a private log file.
"""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from spark_rdp import java
from spark_rdp.errors import JobFailed

#: What a session built here sets; ``conf`` of :func:`build` wins. Values of a cluster's own defaults file stay.
SETTINGS: dict[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # What is remembered for it, all the same: a thousand of each, which a stream takes a quarter of an hour to gather.
    **dict.fromkeys(("spark.ui.retainedJobs", "spark.ui.retainedStages", "spark.sql.ui.retainedExecutions"), "100"),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Which Python line made a column: a third of the time it takes to build a query, and no message of ours says it.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}

_LOG_SETTINGS = Path(java.__file__).resolve().parent / "resources" / "log4j2.properties"
_log: Path | None = None


def log_file() -> Path | None:
    """Where a JVM started by this process writes, or None when it writes to the terminal or was started elsewhere."""
    return _log


def running_session() -> SparkSession | None:
    """The session of this thread or, failing that, of this process; None when Spark does not run."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def build(
    app_name: str, *, master: str | None = None, conf: Mapping[str, str] | None = None, verbose: bool = False
) -> SparkSession:
    """Return the running session, or build one.

    Args:
        app_name: Name shown by the cluster.
        master: Spark master, for example ``local[2]``. By default the one that spark-submit, the defaults file or
            ``SPARK_REMOTE`` names, and all cores of this machine when nothing does.
        conf: Settings that win over :data:`SETTINGS`.
        verbose: Let the JVM write its warnings to the terminal.

    Returns:
        A running session. When one ran before the call it is returned unchanged.

    Raises:
        SparkRdpError: There is no usable Java.
        JobFailed: Spark did not start; the message names the log file.
    """
    running = running_session()
    if running is not None:
        return running
    # Spark says so on its first use of every pandas 3.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    remote = "SPARK_REMOTE" in os.environ or (master or "").startswith("sc:")
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    for name, value in {**SETTINGS, **(conf or {})}.items():
        of_session = name.startswith("spark.sql.") and not name.startswith("spark.sql.ui.")
        if of_session or not remote:  # the others are those of a server that runs already
            builder = builder.config(name, value)
    if remote:
        try:
            return builder.getOrCreate()
        except PySparkException as error:  # the URL may hold a token: it is not repeated
            remedy = "Check SPARK_REMOTE (sc://HOST:PORT) and the server; pip install 'pyspark[connect]' if need be."
            raise JobFailed(f"The Spark Connect server cannot be used. {remedy}") from error
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return builder.getOrCreate()  # the JVM runs already: spark-submit started it

    os.environ.update(java.require().environment())
    if master is None or master.startswith("local"):
        # Workers on this machine need the Python that has the packages, whatever `python3` is on PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with _own_output(verbose), _log_settings(verbose):
        try:
            return builder.getOrCreate()
        except Exception as error:
            if _log is not None:
                atexit.unregister(_log.unlink)
            where = "" if _log is None else f" What it wrote is in {_log}."
            raise JobFailed(f"Spark could not be started.{where}") from error


@contextmanager
def opened(
    app_name: str, *, master: str | None = None, conf: Mapping[str, str] | None = None, verbose: bool = False
) -> Iterator[SparkSession]:
    """Like :func:`build`, for a ``with`` block: stops the session at the end when, and only when, it was built here."""
    found = running_session() is not None
    spark = build(app_name, master=master, conf=conf, verbose=verbose)
    try:
        yield spark
    finally:
        if not found:
            spark.stop()


@contextmanager
def settings(spark: SparkSession, given: Mapping[str, str]) -> Iterator[None]:
    """Settings of a session for the time of the block."""
    before: dict[str, str | None] = {name: spark.conf.get(name, None) for name in given}
    try:
        for name, value in given.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


@contextmanager
def _log_settings(verbose: bool) -> Iterator[None]:
    """Hand our log settings to the JVM through the variable its launcher reads, so that a site's Java options stay."""
    before = os.environ.get("SPARK_SUBMIT_OPTS")
    level = "warn" if verbose else "fatal"
    ours = f'"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}" -Dspark_rdp.log.level={level}'
    os.environ["SPARK_SUBMIT_OPTS"] = f"{ours} {before}" if before else ours
    try:
        yield
    finally:
        if before is None:
            del os.environ["SPARK_SUBMIT_OPTS"]
        else:
            os.environ["SPARK_SUBMIT_OPTS"] = before


@contextmanager
def _own_output(verbose: bool) -> Iterator[None]:
    """Give a JVM launched inside the block a log file as its standard output and error.

    A child inherits file descriptors 1 and 2; they point at the file while it is launched and back at the terminal
    afterwards. Python's own ``sys.stderr`` keeps writing to the terminal meanwhile, so that a progress line goes on.
    """
    global _log
    if verbose:
        yield
        return
    if _log is None:
        handle, name = tempfile.mkstemp(prefix="spark-rdp-", suffix=".log")  # readable by its owner only
        _log = Path(name)
        atexit.register(_log.unlink, missing_ok=True)
    else:
        handle = os.open(_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    streams = {1: sys.stdout, 2: sys.stderr}
    for stream in streams.values():
        stream.flush()
    saved = {number: os.dup(number) for number in streams}
    for number in streams:
        os.dup2(handle, number)
    os.close(handle)
    if _is_descriptor(streams[2], 2):
        sys.stderr = os.fdopen(os.dup(saved[2]), "w", buffering=1, encoding=streams[2].encoding, errors="replace")
    try:
        yield
    finally:
        if sys.stderr is not streams[2]:
            sys.stderr.close()
            sys.stderr = streams[2]
        sys.stdout.flush()
        for number, copy in saved.items():
            os.dup2(copy, number)
            os.close(copy)


def _is_descriptor(stream: object, number: int) -> bool:
    """Whether a Python stream writes to this descriptor; a notebook's or a test runner's stream may not."""
    try:
        return bool(stream.fileno() == number)  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return False
