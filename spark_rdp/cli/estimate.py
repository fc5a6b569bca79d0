"""``spark-rdp estimate``: collected data in, answers with error bars out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Optional

import typer

from spark_rdp.cli.terminal import LogJson, progress, report_path, short_path, show
from spark_rdp.errors import missing


def schema() -> None:
    """Print the JSON schema of a `kind: estimate` file."""
    from spark_rdp.queries import EstimateQuery

    typer.echo(json.dumps(EstimateQuery.schema(), indent=2))


def estimate(
    conf: Annotated[Path, typer.Argument(help="The query file (YAML).", show_default=False)],
    run: Annotated[
        Optional[str],  # noqa: UP045 (typer evaluates it at run time, also on Python 3.10)
        typer.Option(help="Names this run of the query, for example its date."),
    ] = None,
    log_json: LogJson = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show what Spark says, and the trace of an error.")
    ] = False,
) -> None:
    """Estimate answers from a collection; running the same estimate again reads back what was published."""
    from spark_rdp.queries import EstimateQuery
    from spark_rdp.reporting.estimate_table import estimate_table
    from spark_rdp.reporting.table import TERMINAL_ROWS

    query = EstimateQuery.from_yaml(conf)
    if query.output is None:
        raise missing("output", "Say where the estimates are published, for example {format: parquet, path: out}.")
    page = report_path(query.report, run)
    with progress(f"estimating {query.name}"):
        from spark_rdp.spark import session
        from spark_rdp.spark.estimate import estimate as run_estimate

        # A session is started here only to let it speak; without one, what was published needs no Spark.
        spark = session.build(f"spark-rdp {query.name}", verbose=True) if verbose else None
        result = run_estimate(query, run=run, spark=spark)
        if page is not None:
            result.report(page)
    assert result.folder is not None
    show(estimate_table(result.manifest, result.table().slice(0, TERMINAL_ROWS).to_pydict()))
    what = "was published before: read back" if result.already_published else "is published"
    typer.echo(f"{result.release_id} {what}. {result.manifest['rows']:,} rows in {short_path(result.folder)}")
    typer.echo("Nothing was charged: what was collected is used, nothing else.")
    if page is not None:
        typer.echo(f"Report: {short_path(page)}")
