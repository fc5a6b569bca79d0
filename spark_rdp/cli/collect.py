"""``spark-rdp collect``: a query file in, rows with noise of their own out."""

from __future__ import annotations

import json
from typing import Annotated, Optional

import typer

from spark_rdp.cli.terminal import (
    Conf,
    DryRun,
    LogJson,
    Verbose,
    progress,
    report_path,
    short_path,
    show,
    speaking_session,
)
from spark_rdp.errors import missing


def schema() -> None:
    """Print the JSON schema of a `kind: collect` file."""
    from spark_rdp.queries import CollectQuery

    typer.echo(json.dumps(CollectQuery.schema(), indent=2))


def collect(
    conf: Conf,
    run: Annotated[
        Optional[str],  # noqa: UP045 (typer evaluates it at run time, also on Python 3.10)
        typer.Option(help="Names this run of the query, for example its date."),
    ] = None,
    dry_run: DryRun = False,
    log_json: LogJson = False,
    verbose: Verbose = False,
) -> None:
    """Publish every row with noise of its own; running the same collection again reads back what was published."""
    from spark_rdp.collection import collect_id, plan_collect
    from spark_rdp.queries import CollectQuery
    from spark_rdp.reporting.collection_table import columns_table
    from spark_rdp.unit_budget import UnitBudget

    query = CollectQuery.from_yaml(conf)
    if query.source is None:
        raise missing("source", "Say where the rows are.")
    if query.output is None:
        raise missing("output", "Say where the rows are published, for example {format: parquet, path: out}.")
    identity, page = collect_id(query, run), report_path(query.report, run)
    unit = "row" if query.memoize is None else f"distinct value of {', '.join(query.memoize.by)}"
    if dry_run:
        plan = plan_collect(query)
        show(columns_table(plan))
        typer.echo(f"{identity} would spend epsilon {plan.epsilon:g} on each {unit}. Nothing was read.")
        typer.echo(UnitBudget.of(query, plan).composition)
        return
    with progress(f"collecting {query.name}"):
        from spark_rdp.spark.collect import collect as run_collect

        result = run_collect(None, query, run=run, spark=speaking_session(query.name, verbose))
        if page is not None:
            result.report(page)
    show(columns_table(result.plan))
    what = "was published before: nothing was read" if result.already_published else "is published"
    typer.echo(f"{identity} {what}. {result.manifest['rows']:,} rows in {result.folder}")
    typer.echo(f"Spent epsilon {result.plan.epsilon:g} on each {unit}.")
    typer.echo(UnitBudget.of_manifest(result.manifest).composition)
    if page is not None:
        typer.echo(f"Report: {short_path(page)}")
