"""The command line: ``spark-rdp plan | release | collect | stream | estimate | ledger | schema | report | demo``.

A verb imports what it needs when it runs, so that planning needs neither Spark nor Java and answers in a second.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Optional

import typer

from spark_rdp.cli import collect, demo, estimate, ledger, plan, release, report, stream
from spark_rdp.cli.terminal import LOG_JSON, explain
from spark_rdp.stages import json_lines

app = typer.Typer(
    name="spark-rdp",
    help="Differentially private reports on Apache Spark.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("plan")(plan.plan)
app.command("release")(release.release)
app.command("collect")(collect.collect)
app.command("stream")(stream.stream)
app.command("estimate")(estimate.estimate)
release.schema_app.command("collect")(collect.schema)
release.schema_app.command("stream")(stream.schema)
release.schema_app.command("estimate")(estimate.schema)
app.add_typer(ledger.app, name="ledger")
app.add_typer(release.schema_app, name="schema")
app.command("report")(report.report)
app.command("demo")(demo.demo)


def _print_version(asked: bool) -> None:
    if asked:
        try:
            typer.echo(version("spark-rdp"))
        except PackageNotFoundError:
            typer.echo("unknown (not installed as a package)")
        raise typer.Exit()


@app.callback()
def options(
    _version: Annotated[
        Optional[bool],  # noqa: UP045 (evaluated by typer at run time, also on Python 3.10)
        typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True),
    ] = None,
) -> None:
    """Differentially private reports on Apache Spark."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0 done, 2 bad configuration or input, 3 budget refused, 4 failed and safe to run again. Every failure is one
    sentence on stderr; ``--verbose`` adds the trace.

    Args:
        argv: Arguments after the program's name; those of the process if None.
    """
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    log_json = LOG_JSON in arguments
    with json_lines(sys.stderr) if log_json else nullcontext():
        try:
            return int(app(arguments, prog_name="spark-rdp", standalone_mode=False) or 0)
        except BrokenPipeError:  # the reader of a pipe (head, less) went away
            return 0
        except (Exception, KeyboardInterrupt) as failure:
            return explain(failure, verbose="--verbose" in arguments, log_json=log_json)
