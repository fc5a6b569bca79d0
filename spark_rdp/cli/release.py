"""``spark-rdp release`` and ``spark-rdp schema``: a query file in, a published release out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from spark_rdp.cli.terminal import progress, show
from spark_rdp.errors import missing

if TYPE_CHECKING:
    from spark_rdp.queries import ReleaseQuery
    from spark_rdp.spark.release import Result

schema_app = typer.Typer(help="Print what a query file may contain.", rich_markup_mode=None)


@schema_app.command("release")
def schema() -> None:
    """Print the JSON schema of a `kind: release` file."""
    from spark_rdp.queries import ReleaseQuery

    typer.echo(json.dumps(ReleaseQuery.schema(), indent=2))


@schema_app.callback()
def _schemas() -> None:
    """Print what a query file may contain."""


def release(
    conf: Annotated[Path, typer.Argument(help="The query file (YAML).", show_default=False)],
    run: Annotated[
        Optional[str],  # noqa: UP045 (typer evaluates it at run time, also on Python 3.10)
        typer.Option(help="Names this run of the query, for example its date. The same run is never charged twice."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan, its cost and what is left; read no data, charge nothing.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show what Spark says, and the trace of an error.")
    ] = False,
) -> None:
    """Release a query once; running the same release again reads back what was published."""
    from spark_rdp.queries import ReleaseQuery
    from spark_rdp.releases import release_id

    query = ReleaseQuery.from_yaml(conf)
    if query.source is None:
        raise missing("source", "Say where the rows are.")
    if query.output is None:
        raise missing("output", "Say where the release is published, for example {format: parquet, path: out}.")
    release_id(query, run)
    report_path(query, run)
    if dry_run:
        _show_cost(query, run)
        return
    if query.ledger is not None:
        from spark_rdp.ledger import Ledger

        Ledger(query.ledger.url, query.ledger.dataset).balance()  # a budget that was never decided is told at once
    perform(query, run, verbose=verbose)


def perform(query: ReleaseQuery, run: str | None, *, verbose: bool = False) -> Result:
    """Run a release, write its report, and show both on the terminal."""
    with progress(f"releasing {query.name}"):
        from spark_rdp.spark import session
        from spark_rdp.spark.release import release as run_release

        # A session is started here only to let it speak; without one, a release that was published needs no Spark.
        spark = session.build(f"spark-rdp {query.name}", verbose=True) if verbose else None
        result = run_release(None, query, run=run, spark=spark)
        page = report_path(query, run)
        if page is not None:
            result.report(page)
    show_result(result, page)
    return result


def report_path(query: ReleaseQuery, run: str | None) -> Path | None:
    """Where the report goes; ``{run}`` in the configured path is the run."""
    if query.report is None:
        return None
    if run is None and "{run}" in query.report:
        raise missing("run", "report contains {run}; use for example --run 2026-11-30.")
    return Path(query.report.replace("{run}", run or ""))


def show_result(result: Result, page: Path | None) -> None:
    """Print the values with their error bars, the noise, and where everything is."""
    from spark_rdp.reporting.published import read_published
    from spark_rdp.reporting.table import noise_table, release_table

    assert result.folder is not None
    published = read_published(result.folder)
    show(release_table(published))
    show(noise_table(published.plan))
    known = result.already_published
    what = "was published before: read back, nothing was charged" if known else "is published"
    typer.echo(f"{result.release_id} {what}. {published.total_rows:,} rows in {_short(result.folder)}")
    if result.plan.unit != "row":
        typer.echo(f"Rows without a {result.plan.unit} are not in it.")
    charge = result.manifest["charge"]
    if charge is None:
        typer.echo("No ledger was named: nobody adds up what is spent on these data.")
    elif not known:
        typer.echo(f"Charged epsilon {charge['epsilon_millionths'] / 1e6:g} to {charge['dataset']}.")
    if page is not None:
        typer.echo(f"Report: {_short(page)}")


def _short(path: Path) -> str:
    """A path relative to where the user is, if it lies below."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) else path)


def _show_cost(query: ReleaseQuery, run: str | None) -> None:
    """Print the noise a release would get, its charge, and what would be left. Needs neither data nor Spark."""
    from spark_rdp.ledger import Ledger
    from spark_rdp.releases import plan_release, release_id
    from spark_rdp.reporting.table import noise_table

    plan, identity = plan_release(query), release_id(query, run)
    show(noise_table(plan))
    delta = f" and delta {plan.delta:g}" if plan.delta else ""
    typer.echo(f"{identity} would cost epsilon {plan.epsilon_millionths / 1e6:g}{delta}. Nothing was read or charged.")
    if query.ledger is None:
        typer.echo("No ledger is named: nobody would add up what is spent on these data.")
        return
    ledger = Ledger(query.ledger.url, query.ledger.dataset)
    balance = ledger.balance()
    if any(entry.release_id == identity for entry in ledger.history()):
        typer.echo("This release id was charged before; running it again costs nothing.")
        return
    left = f"epsilon {balance.remaining_epsilon:g} and delta {balance.remaining_delta:g}"
    enough = plan.epsilon_millionths <= balance.remaining_millionths and plan.delta <= balance.remaining_delta
    typer.echo(f"Left on {balance.dataset}: {left}; {'enough' if enough else 'not enough, it would be refused'}.")
