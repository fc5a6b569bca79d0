"""``spark-rdp release`` and ``spark-rdp schema``: a query file in, a published release out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from spark_rdp.cli.terminal import Conf, LogJson, Verbose, progress, report_path, short_path, show, speaking_session
from spark_rdp.errors import missing

if TYPE_CHECKING:
    from rich.console import RenderableType

    from spark_rdp.kinds import AnyPlan, AnyQuery
    from spark_rdp.spark.release import Result

schema_app = typer.Typer(help="Print what a query file may contain.", rich_markup_mode=None)


def _schema_of(kind: str) -> Callable[[], None]:
    def schema() -> None:
        from spark_rdp.kinds import QUERIES

        typer.echo(json.dumps(QUERIES[kind].schema(), indent=2))

    return schema


for _kind in ("release", "degrees", "ranges", "averages"):
    schema_app.command(_kind, help=f"Print the JSON schema of a `kind: {_kind}` file.")(_schema_of(_kind))


@schema_app.callback()
def _schemas() -> None:
    """Print what a query file may contain."""


def release(
    conf: Conf,
    run: Annotated[
        Optional[str],  # noqa: UP045 (typer evaluates it at run time, also on Python 3.10)
        typer.Option(help="Names this run of the query, for example its date. The same run is never charged twice."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan, its cost and what is left; read no data, charge nothing.")
    ] = False,
    log_json: LogJson = False,
    verbose: Verbose = False,
) -> None:
    """Release a query once; running the same release again reads back what was published."""
    from spark_rdp.folders import output_folder
    from spark_rdp.kinds import read_query
    from spark_rdp.releases import release_id

    query = read_query(conf)
    if query.source is None:
        raise missing("source", "Say where the rows are.")
    if query.output is None:
        raise missing("output", "Say where the release is published, for example {format: parquet, path: out}.")
    release_id(query, run)
    report_path(query.report, run)
    folder = output_folder(query.output.path, run)
    if dry_run:
        _show_cost(query, run, folder)
        return
    if query.ledger is not None:
        from spark_rdp.ledger import Ledger

        Ledger(query.ledger.url, query.ledger.dataset).balance()  # a budget that was never decided is told at once
    perform(query, run, verbose=verbose)


def perform(query: AnyQuery, run: str | None, *, verbose: bool = False) -> Result:
    """Run a release, write its report, and show both on the terminal."""
    with progress(f"releasing {query.name}"):
        from spark_rdp.spark.release import release as run_release

        result = run_release(None, query, run=run, spark=speaking_session(query.name, verbose))
        page = report_path(query.report, run)
        if page is not None:
            result.report(page)
    show_result(result, page)
    return result


def show_result(result: Result, page: Path | None) -> None:
    """Print the values with their error bars, the noise, and where everything is."""
    from spark_rdp.reporting.table import charge_table

    assert result.folder is not None
    for table in published_tables(result.folder, result.manifest):
        show(table)
    if result.manifest["charge"] is not None:
        show(charge_table(result.manifest))
    known = result.already_published
    what = "was published before: read back, nothing was charged" if known else "is published"
    typer.echo(f"{result.release_id} {what}. {result.manifest['rows']:,} rows in {short_path(result.folder)}")
    unit = result.plan.unit
    if unit in ("edge", "node"):
        typer.echo("Loops, repeated edges and edges without one of their ends are not in it.")
    elif unit != "row":
        typer.echo(f"Rows without a {unit} are not in it.")
    charge = result.manifest["charge"]
    if charge is None:
        typer.echo("No ledger was named: nobody adds up what is spent on these data.")
    elif not known:
        left = charge["balance"]["remaining_epsilon"]
        typer.echo(f"Charged epsilon {charge['epsilon_millionths'] / 1e6:g} to {charge['dataset']}. Left: {left:g}.")
    if page is not None:
        typer.echo(f"Report: {short_path(page)}")


def published_tables(folder: Path, manifest: Mapping[str, Any]) -> list[RenderableType]:
    """The values with their error bars, and the noise."""
    from spark_rdp.reporting.published import read_published
    from spark_rdp.reporting.table import release_table
    from spark_rdp.reporting.vectors import VectorPublished, is_vector, rows_table

    if is_vector(manifest):
        vector = VectorPublished.read(folder)
        return [rows_table(vector), _noise(vector.plan)]
    published = read_published(folder)
    return [release_table(published), _noise(published.plan)]


def _noise(plan: AnyPlan) -> RenderableType:
    """Which noise, and what it costs."""
    from spark_rdp.reporting.table import noise_table
    from spark_rdp.reporting.vectors import plan_lines
    from spark_rdp.vectors import VectorPlan

    return plan_lines(plan) if isinstance(plan, VectorPlan) else noise_table(plan)


def _show_cost(query: AnyQuery, run: str | None, folder: Path) -> None:
    """Print the noise a release would get, its charge, and what would be left. Needs neither data nor Spark."""
    from spark_rdp.folders import find_published
    from spark_rdp.kinds import plan_query
    from spark_rdp.ledger.noises import losses_of
    from spark_rdp.publishing import charge_of
    from spark_rdp.releases import release_id

    plan, identity = plan_query(query), release_id(query, run)
    published = find_published(folder, identity, query.digest()) is not None
    charge = charge_of(query.ledger, None, plan.epsilon_millionths, plan.delta, losses_of(plan))
    quote = None if charge is None else charge.quote(identity, query.digest())
    show(_noise(plan))
    delta = f" and delta {plan.delta:g}" if plan.delta else ""
    typer.echo(f"{identity} would cost epsilon {plan.epsilon_millionths / 1e6:g}{delta}. Nothing was read or charged.")
    if published:
        typer.echo(f"It is published in {short_path(folder)}: running it again reads it back.")
    if quote is None:
        typer.echo("No ledger is named: nobody would add up what is spent on these data.")
        return
    before, after = quote.before, quote.after
    left = f"epsilon {before.remaining_epsilon:g} and delta {before.remaining_delta:g}"
    if quote.state:
        typer.echo(
            f"This release id was charged before; running it again costs nothing. Left on {before.dataset}: {left}."
        )
    elif quote.refusal:
        typer.echo(f"Left on {before.dataset}: {left}; not enough, it would be refused. {quote.refusal}")
    else:
        typer.echo(f"Left on {before.dataset}: {left}; enough. Afterwards: epsilon {after.remaining_epsilon:g}.")
    typer.echo(before.composition)
