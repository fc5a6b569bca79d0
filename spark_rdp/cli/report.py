"""``spark-rdp report``: explain what was published, from its manifest and data files only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from spark_rdp.cli.terminal import progress, show


def report(
    manifest: Annotated[
        Path,
        typer.Argument(help="The manifest.json of anything published, or its folder.", show_default=False),
    ],
    output: Annotated[
        Optional[Path],  # noqa: UP045 (typer evaluates it at run time, also on Python 3.10)
        typer.Option(help="The page to write.", show_default="report.html beside the manifest"),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Add the trace to an error.")] = False,
) -> None:
    """Write the HTML page of something published and print its table. Starts no Spark."""
    from spark_rdp.reporting.manifests import read_manifest

    target = output or (manifest if manifest.is_dir() else manifest.parent) / "report.html"
    known = read_manifest(manifest)
    if known.get("kind") == "collect":
        _collection(known, target)
    elif known.get("kind") == "estimate":
        _estimate(manifest, known, target)
    else:
        _release(manifest, known, target)
    typer.echo(f"Report: {target}")


def _collection(manifest: dict[str, Any], target: Path) -> None:
    from spark_rdp.collection import CollectPlan
    from spark_rdp.reporting.collection_page import write_collection
    from spark_rdp.reporting.collection_table import columns_table

    with progress("drawing the report"):
        write_collection(manifest, target)
    show(columns_table(CollectPlan.of_content(manifest["plan"])))


def _estimate(place: Path, manifest: dict[str, Any], target: Path) -> None:
    from spark_rdp.reporting.estimate_page import write_estimate
    from spark_rdp.reporting.estimate_table import estimate_table
    from spark_rdp.reporting.manifests import read_table
    from spark_rdp.reporting.table import TERMINAL_ROWS

    table = read_table(place)
    with progress("drawing the report"):
        write_estimate(manifest, table, target)
    show(estimate_table(manifest, table.slice(0, TERMINAL_ROWS).to_pydict()))


def _release(manifest: Path, known: dict[str, Any], target: Path) -> None:
    from spark_rdp.cli.release import published_tables
    from spark_rdp.reporting.page import write_report
    from spark_rdp.reporting.vector_page import write_vector_page
    from spark_rdp.reporting.vectors import VectorPublished, is_vector

    tables = published_tables(manifest, known)
    with progress("drawing the report"):
        if is_vector(known):
            write_vector_page(VectorPublished.read(manifest), target)
        else:
            write_report(manifest, target)
    for table in tables:
        show(table)
