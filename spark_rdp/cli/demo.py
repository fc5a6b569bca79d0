"""``spark-rdp demo``: the whole way of a release on made-up data, in one folder."""

from __future__ import annotations

import os
import shutil
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spark_rdp.cli.release import perform
from spark_rdp.cli.terminal import progress
from spark_rdp.errors import InvalidInput

if TYPE_CHECKING:
    from spark_rdp.ledger import Ledger
    from spark_rdp.queries import ReleaseQuery

#: All that may be spent on the demo's data: enough to try ten releases of one's own on them.
BUDGET = 10.0
FOLDER = "DEMO_OUT"


def demo(
    out: Annotated[Path, typer.Option(help="The folder of the demo.")] = Path("demo-out"),
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show what Spark says, and the trace of an error.")
    ] = False,
) -> None:
    """Release a report on made-up orders: data, budget, noise, table and page, all in one folder."""
    from spark_rdp.demo import CUSTOMERS, ORDERS, write_demo_data
    from spark_rdp.ledger import Ledger

    query = _query(out)
    assert query.ledger is not None
    with progress("making up data"):
        try:
            write_demo_data(out / "data")
        except OSError as failure:
            raise InvalidInput(
                f"The folder {out} cannot be written to ({failure.strerror}). Choose another --out."
            ) from None
        ledger = Ledger(query.ledger.url, query.ledger.dataset)
        _forget_other_version(out, query, ledger)
        ledger.create(epsilon=BUDGET)
    typer.echo(f"{ORDERS:,} made-up orders of {CUSTOMERS:,} customers, released with each customer protected:\n")
    perform(query, None, verbose=verbose)
    typer.echo(f"Budget: spark-rdp ledger show {query.ledger.dataset} --url {query.ledger.url}")


def _query(out: Path) -> ReleaseQuery:
    """The query of the demo, in the folder ``out``."""
    from spark_rdp.queries import ReleaseQuery

    packaged = Path(str(files("spark_rdp") / "resources" / "demo.yaml"))
    source = packaged if packaged.is_file() else Path(__file__).parents[2] / "conf" / "demo.yaml"  # a checkout
    before = os.environ.get(FOLDER)
    os.environ[FOLDER] = str(out)
    try:
        return ReleaseQuery.from_yaml(source)
    finally:
        if before is None:
            del os.environ[FOLDER]
        else:
            os.environ[FOLDER] = before


def _forget_other_version(out: Path, query: ReleaseQuery, ledger: Ledger) -> None:
    """Clear what the demo of another version published: its query was another one, so it cannot be read back."""
    try:
        past = [entry.query_digest for entry in ledger.history() if entry.release_id == query.name]
    except InvalidInput:  # no ledger yet
        past = []
    if any(digest != query.digest() for digest in past):
        shutil.rmtree(out / "orders", ignore_errors=True)
        for name in ("budget.db", "budget.db-wal", "budget.db-shm", "report.html"):
            (out / name).unlink(missing_ok=True)
