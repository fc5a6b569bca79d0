"""``spark-rdp estimate``: collected data in, answers with error bars out."""

from __future__ import annotations

import json
from threading import Event
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from spark_rdp.cli.terminal import (
    Conf,
    LogJson,
    Verbose,
    progress,
    report_path,
    short_path,
    show,
    speaking_session,
    stop_signals,
)
from spark_rdp.errors import invalid, missing
from spark_rdp.stages import reached_stage

if TYPE_CHECKING:
    from spark_rdp.queries import EstimateQuery
    from spark_rdp.spark.rolling import Watch

_LOOK_SECONDS = 1.0


def schema() -> None:
    """Print the JSON schema of a `kind: estimate` file."""
    from spark_rdp.queries import EstimateQuery

    typer.echo(json.dumps(EstimateQuery.schema(), indent=2))


def estimate(
    conf: Conf,
    run: Annotated[
        Optional[str],  # noqa: UP045 (typer evaluates it at run time, also on Python 3.10)
        typer.Option(help="Names this run of the query, for example its date."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Estimate window by window what a stream publishes, until told to stop.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="With --watch: count what is there now, and end.")] = False,
    log_json: LogJson = False,
    verbose: Verbose = False,
) -> None:
    """Estimate answers from a collection; running the same estimate again reads back what was published.

    With --watch it goes on, and continues where it was stopped or killed; SIGTERM and Ctrl-C end it with exit code 0.
    """
    from spark_rdp.queries import EstimateQuery
    from spark_rdp.reporting.estimate_table import estimate_table
    from spark_rdp.reporting.table import TERMINAL_ROWS

    query = EstimateQuery.from_yaml(conf)
    if query.output is None:
        raise missing("output", "Say where the estimates are published, for example {format: parquet, path: out}.")
    if once and not watch:
        raise invalid("--once", "given with --watch only", once, "Without --watch there is one answer anyway.")
    if watch:
        if run is not None:
            raise invalid("--run", "left out with --watch", run, "Rolling estimates go on; they have no runs.")
        _watch(query, once, verbose)
        return
    page = report_path(query.report, run)
    with progress(f"estimating {query.name}"):
        from spark_rdp.spark.estimate import estimate as run_estimate

        result = run_estimate(query, run=run, spark=speaking_session(query.name, verbose))
        if page is not None:
            result.report(page)
    assert result.folder is not None
    show(estimate_table(result.manifest, result.table().slice(0, TERMINAL_ROWS).to_pydict()))
    what = "was published before: read back" if result.already_published else "is published"
    typer.echo(f"{result.release_id} {what}. {result.manifest['rows']:,} rows in {short_path(result.folder)}")
    typer.echo("Nothing was charged: what was collected is used, nothing else.")
    if page is not None:
        typer.echo(f"Report: {short_path(page)}")


def _watch(query: EstimateQuery, once: bool, verbose: bool) -> None:
    """Estimate until it ends or is to stop, and tell what every batch has changed."""
    with stop_signals() as stopped:
        with progress(f"watching {query.collection[0]}"):
            from spark_rdp.spark import session
            from spark_rdp.spark.rolling import watch

            spark = session.build(f"spark-rdp {query.name}", verbose=verbose)
        with stop_signals(stopped):  # Spark's own handler, set meanwhile, would make a failure of it
            running = watch(query, once=once, spark=spark)
            _tell_batches(running, stopped)
    table = running.table()
    if query.report is not None:
        page = running.report(report_path(query.report, None) or query.report)
        typer.echo(f"Report: {short_path(page)}")
    reached_stage("stopped", query.name, rows=table.num_rows)
    typer.echo(f"{query.name} has ended: {table.num_rows:,} rows in {short_path(running.folder)}. Nothing was charged.")


def _tell_batches(running: Watch, stopped: Event) -> None:
    from spark_rdp.reporting.estimate_table import estimate_table
    from spark_rdp.reporting.table import TERMINAL_ROWS

    for sentence in running.manifest["assumptions"]:
        typer.echo(f"· {sentence}")
    ended = False
    while not ended:
        ended = stopped.is_set() or running.wait(_LOOK_SECONDS)
        if stopped.is_set():
            running.stop()
        for each in running.batches():
            reached_stage("batch", running.query.name, batch=each.batch, windows=each.windows)
            newest = each.table.slice(max(0, each.table.num_rows - TERMINAL_ROWS))
            told = {"release_id": f"batch {each.batch}: {each.windows} windows have changed", "assumptions": []}
            show(estimate_table({**running.manifest, **told, "rows": newest.num_rows}, newest.to_pydict()))
