"""``spark-rdp stream``: a query file in, and events with noise of their own out, for as long as it runs."""

from __future__ import annotations

import json
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from spark_rdp.cli.terminal import Conf, DryRun, LogJson, Verbose, progress, show, stop_signals
from spark_rdp.stages import reached_stage

if TYPE_CHECKING:
    from spark_rdp.spark.stream import Stream

_LOOK_SECONDS = 1.0


def schema() -> None:
    """Print the JSON schema of a `kind: stream` file."""
    from spark_rdp.queries.stream import StreamQuery

    typer.echo(json.dumps(StreamQuery.schema(), indent=2))


def stream(
    conf: Conf,
    once: Annotated[bool, typer.Option("--once", help="Publish what is there now, and end.")] = False,
    dry_run: DryRun = False,
    log_json: LogJson = False,
    verbose: Verbose = False,
) -> None:
    """Publish every event with noise of its own, once, until told to stop; a start continues where the last one ended.

    SIGTERM and Ctrl-C end it with exit code 0: a batch that is not done is given up, and published by the next start.
    """
    from spark_rdp.collection import plan_collect
    from spark_rdp.queries.stream import StreamQuery
    from spark_rdp.reporting.collection_table import columns_table
    from spark_rdp.unit_budget import UnitBudget

    query = StreamQuery.from_yaml(conf)
    plan = plan_collect(query)
    show(columns_table(plan))
    if dry_run:
        typer.echo(f"{query.name} would spend epsilon {plan.epsilon:g} on each event. Nothing was read.")
        typer.echo(UnitBudget.of(query, plan).composition)
        return
    with stop_signals() as stopped, progress(f"streaming {query.name}"):
        from spark_rdp.spark import session
        from spark_rdp.spark.stream import stream as start

        spark = session.build(f"spark-rdp {query.name}", verbose=verbose)
        with stop_signals(stopped):  # Spark's own handler, set meanwhile, would make a failure of it
            running = start(query, once=once, spark=spark)
            rows = _watch(running, stopped)
    reached_stage("stopped", query.name, rows=rows)
    typer.echo(f"{query.name} has ended: {rows:,} events since it was started, in {query.output.path or 'its sink'}.")


def _watch(running: Stream, stopped: Event) -> int:
    """Tell of every batch until the stream ends or is to stop; returns how many events were published."""
    rows = 0
    ended = False
    while not ended:
        ended = stopped.is_set() or running.wait(_LOOK_SECONDS)
        if stopped.is_set():
            running.stop()
        for batch in running.batches():
            rows += batch.published
            reached_stage("batch", running.query.name, **batch.content())
    return rows
