"""``spark-rdp ledger create | show | history``: who may spend what on a data set, and who did."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from spark_rdp.cli.terminal import show

app = typer.Typer(help="Open a privacy budget, and see what was spent.", rich_markup_mode=None)

Dataset = Annotated[str, typer.Argument(help="Name of the data set.", show_default=False)]
Url = Annotated[str, typer.Option("--url", help="SQLAlchemy URL of the ledger.", show_default="sqlite:///budget.db")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Add the trace to an error.")]
DEFAULT_URL = "sqlite:///budget.db"


@app.command()
def create(
    dataset: Dataset,
    epsilon: Annotated[float, typer.Option(help="All that may ever be spent on it.", show_default=False)],
    delta: Annotated[
        float, typer.Option(help="All the delta that may ever be spent; 0 allows pure releases only.")
    ] = 0.0,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Decide the privacy budget of a data set, once; repeating the same decision changes nothing."""
    from spark_rdp.ledger import Ledger

    _show_balance(Ledger(url).create(dataset, epsilon, delta), as_json)


@app.command("show")
def balance(dataset: Dataset, url: Url = DEFAULT_URL, as_json: Json = False, verbose: Verbose = False) -> None:
    """What a data set has spent and what is left."""
    from spark_rdp.ledger import Ledger

    _show_balance(Ledger(url).balance(dataset), as_json)


@app.command()
def history(dataset: Dataset, url: Url = DEFAULT_URL, as_json: Json = False, verbose: Verbose = False) -> None:
    """Every reservation and publication of a data set, oldest first."""
    from spark_rdp.ledger import Ledger

    entries = Ledger(url).history(dataset)
    if as_json:
        rows = [{**asdict(entry), "epsilon": entry.epsilon} for entry in entries]
        typer.echo(json.dumps(rows, indent=2, sort_keys=True))
        return
    from spark_rdp.reporting.table import history_table

    show(history_table(dataset, entries))


def _show_balance(found: Any, as_json: bool) -> None:
    if as_json:
        record = {**asdict(found), "total_epsilon": found.total_epsilon, "spent_epsilon": found.spent_epsilon}
        typer.echo(json.dumps({**record, "remaining_epsilon": found.remaining_epsilon}, indent=2, sort_keys=True))
        return
    from spark_rdp.reporting.table import balance_table

    show(balance_table(found))
