"""What the command line shows: results on stdout, everything else on stderr, and little of it."""

from __future__ import annotations

import contextlib
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Annotated, Any

import typer

from spark_rdp.errors import InvalidInput, SparkRdpError, invalid, missing
from spark_rdp.stages import reached_stage

#: The option of every verb that publishes; `main` looks for it.
LOG_JSON = "--log-json"
LogJson = Annotated[
    bool, typer.Option(LOG_JSON, help="Write one JSON line per stage on stderr, an error included; never with data.")
]
Conf = Annotated[Path, typer.Argument(help="The query file (YAML).", show_default=False)]
#: The option of collections and streams; a release also tells what is left.
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the noise of every column and what it costs; read no data.")
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show what Spark says, and the trace of an error.")]

#: What an unforeseen failure ends with: nothing was published, the same call can be made again.
FAILED = 4
INTERRUPTED = 130


def sentence(text: str) -> str:
    """Bring a message onto one line, with a full stop."""
    line = " ".join(text.split())
    return line if line.endswith((".", "?", "!")) else f"{line}."


def explain(failure: BaseException, verbose: bool, log_json: bool = False) -> int:
    """Tell a failure in one sentence on stderr and return the exit code that goes with it.

    Args:
        failure: What was raised.
        verbose: Print the trace as well.
        log_json: Tell it as the last stage instead.
    """
    if isinstance(failure, SparkRdpError):
        text, code = str(failure), failure.exit_code
    elif isinstance(failure, KeyboardInterrupt):
        text, code = "Stopped; nothing was published, and the same command can be run again", INTERRUPTED
    elif hasattr(failure, "format_message"):  # a usage error of the command-line parser
        text, code = failure.format_message(), InvalidInput.exit_code
    else:
        # The message of a foreign exception may quote data values, so only its kind is named.
        text, code = f"Failed unexpectedly ({type(failure).__name__}); run again with --verbose for the trace", FAILED
    if verbose:
        traceback.print_exception(type(failure), failure, failure.__traceback__, file=sys.stderr)
    if log_json:
        reached_stage("failed", exit_code=code, message=sentence(text))
    else:
        sys.stderr.write(f"spark-rdp: {sentence(text)}\n")
    return code


@contextlib.contextmanager
def progress(text: str) -> Iterator[None]:
    """Show on stderr that work is going on, and for how long; only on a terminal, and only from two seconds on."""
    if not sys.stderr.isatty():
        yield
        return
    import threading

    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task(text, total=None)
    late = threading.Timer(2.0, bar.start)
    late.daemon = True
    late.start()
    try:
        yield
    finally:
        late.cancel()
        late.join()
        bar.stop()


def speaking_session(name: str, verbose: bool) -> Any:
    """A session that lets Spark speak; None without ``--verbose``, since what was published needs no Spark."""
    if not verbose:
        return None
    from spark_rdp.spark import session

    return session.build(f"spark-rdp {name}", verbose=True)


def show(renderable: object) -> None:
    """Print a table or text on stdout; as wide as the terminal, or as needed when it goes to a file."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=200, soft_wrap=False, color_system=None)
    console.print(renderable)


def existing_file(path: Path, name: str) -> Path:
    """Return the path of a file that can be read, or raise InvalidInput."""
    if not path.is_file():
        raise invalid(name, "a file that exists", str(path), "Check the path.")
    return path


def report_path(configured: str | None, run: str | None) -> Path | None:
    """Where a report goes; ``{run}`` in the configured path is the run."""
    if configured is None:
        return None
    if run is None and "{run}" in configured:
        raise missing("run", "report contains {run}; use for example --run 2026-11-30.")
    return Path(configured.replace("{run}", run or ""))


def short_path(path: Path) -> str:
    """A path relative to where the user is, if it lies below."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) else path)


@contextlib.contextmanager
def stop_signals(stopped: Event | None = None) -> Iterator[Event]:
    """While the block runs, SIGTERM and SIGINT set the event instead of ending the process."""
    event = Event() if stopped is None else stopped

    def stop(_number: int, _frame: Any) -> None:
        event.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
