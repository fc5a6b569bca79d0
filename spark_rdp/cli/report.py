"""``spark-rdp report``: explain a published release, from its manifest and data files only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from spark_rdp.cli.terminal import progress, show


def report(
    manifest: Annotated[
        Path, typer.Argument(help="The manifest.json of a release, or its folder.", show_default=False)
    ],
    output: Annotated[
        Optional[Path],  # noqa: UP045 (typer evaluates it at run time, also on Python 3.10)
        typer.Option(help="The page to write.", show_default="report.html beside the manifest"),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Add the trace to an error.")] = False,
) -> None:
    """Write the HTML page of a published release and print its table. Starts no Spark."""
    from spark_rdp.reporting.page import write_report
    from spark_rdp.reporting.published import read_published
    from spark_rdp.reporting.table import noise_table, release_table

    published = read_published(manifest)
    target = output or (manifest if manifest.is_dir() else manifest.parent) / "report.html"
    with progress("drawing the report"):
        write_report(manifest, target)
    show(release_table(published))
    show(noise_table(published.plan))
    typer.echo(f"Report: {target}")
