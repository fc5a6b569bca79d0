"""``spark-rdp ledger create | show | history | abandon``: who may spend what on a data set, and who did."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from spark_rdp.cli.terminal import show
from spark_rdp.errors import invalid

if TYPE_CHECKING:
    from spark_rdp.ledger import Balance, Window

app = typer.Typer(help="Open a privacy budget, and see what was spent.", rich_markup_mode=None)

Dataset = Annotated[str, typer.Argument(help="Name of the data set.", show_default=False)]
Url = Annotated[
    str,
    typer.Option("--url", help="A SQLite file or a PostgreSQL server, as a URL.", show_default="sqlite:///budget.db"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Add the trace to an error.")]
DEFAULT_URL = "sqlite:///budget.db"
_WINDOW = re.compile(r"([1-9][0-9]{0,4})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}


@app.command()
def create(
    dataset: Dataset,
    epsilon: Annotated[float, typer.Option(help="All that may ever be spent on it.", show_default=False)],
    delta: Annotated[
        float, typer.Option(help="All the delta that may ever be spent; 0 allows pure releases only.")
    ] = 0.0,
    accounting: Annotated[
        str,
        typer.Option(
            help="pure: charges add up. pld: the noise of all releases is composed by its privacy loss distributions "
            "(needs a delta; for releases that are not chosen by looking at earlier results)."
        ),
    ] = "pure",
    fingerprint: Annotated[
        str, typer.Option(help="What the data are, such as a table with its version; every query must then repeat it.")
    ] = "",
    url: Url = DEFAULT_URL,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Decide the privacy budget of a data set, once; repeating the same decision changes nothing."""
    from spark_rdp.ledger import Ledger

    found = Ledger(url).create(dataset, epsilon, delta, accounting=accounting, fingerprint=fingerprint)
    _show_balance(found, None, as_json)


@app.command("show")
def balance(
    dataset: Dataset,
    window: Annotated[
        Optional[str],  # noqa: UP045 (typer evaluates it at run time, also on Python 3.10)
        typer.Option(
            help="Show also what was charged in the last 24h, 30d or 4w; the budget is for life all the same."
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """What a data set has spent in its life and what is left."""
    from spark_rdp.ledger import Ledger

    since = None if window is None else _window_start(window)
    ledger = Ledger(url)
    found = ledger.balance(dataset)
    _show_balance(found, None if since is None else ledger.window(dataset, since), as_json)


@app.command()
def history(
    dataset: Dataset,
    since: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Only events since this day (UTC) or time, for example 2026-11-01."),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Every reservation and publication of a data set, oldest first, and what was spent in its life."""
    from spark_rdp.ledger import Ledger

    start = None if since is None else _moment(since)
    ledger = Ledger(url)
    entries = ledger.history(dataset, since=start)
    if as_json:
        rows = [{**asdict(entry), "epsilon": entry.epsilon} for entry in entries]
        typer.echo(json.dumps(rows, indent=2, sort_keys=True))
        return
    from spark_rdp.reporting.table import history_table

    show(history_table(dataset, entries))
    typer.echo(_life(ledger.balance(dataset)))


@app.command()
def abandon(
    dataset: Dataset,
    release: Annotated[str, typer.Argument(help="The release id, as in the history.", show_default=False)],
    url: Url = DEFAULT_URL,
    verbose: Verbose = False,
) -> None:
    """Give the charge of a release back of which nothing left the job; refused once its result was about to appear."""
    from spark_rdp.ledger import Ledger

    ledger = Ledger(url)
    ledger.abandon(dataset, release)
    typer.echo(f"The charge of {release} is given back. {_life(ledger.balance(dataset))}")


def _show_balance(found: Balance, window: Window | None, as_json: bool) -> None:
    if as_json:
        record: dict[str, Any] = {**asdict(found), **found.facts(), "composition": found.composition}
        if window is not None:
            record["window"] = {**asdict(window), "spent_epsilon": window.spent_epsilon}
        typer.echo(json.dumps(record, indent=2, sort_keys=True))
        return
    from spark_rdp.reporting.table import balance_table

    show(balance_table(found))
    if found.fingerprint:
        typer.echo(f"The data are {found.fingerprint}.")
    typer.echo(found.composition)
    if window is not None:
        spent = f"epsilon {window.spent_epsilon:g}, delta {window.spent_delta:g}"
        typer.echo(f"Since {window.since}: {spent} by {_releases(window.releases)}. {_life(found)}")


def _life(found: Balance) -> str:
    spent = f"epsilon {found.spent_epsilon:g}, delta {found.spent_delta:g}"
    return f"In the life of {found.dataset}: {spent} by {_releases(found.releases)}; left: {found.remaining_epsilon:g}."


def _releases(number: int) -> str:
    return f"{number} release{'' if number == 1 else 's'}"


def _window_start(text: str) -> datetime:
    found = _WINDOW.fullmatch(text)
    if found is None:
        raise invalid("window", "a number of hours, days or weeks", text, "Write for example 24h, 30d or 4w.")
    return datetime.now(timezone.utc) - timedelta(hours=int(found[1]) * _HOURS[found[2]])


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise invalid("since", "a day or a time", text, "Write for example 2026-11-01.") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=timezone.utc)
