"""Estimates from a local collection on the terminal."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from spark_rdp.reporting.cells_of_map import largest
from spark_rdp.reporting.figures import figure
from spark_rdp.reporting.published import key_text
from spark_rdp.reporting.table import TERMINAL_ROWS, printable, simple_table

#: How many groups have their histogram shown.
HISTOGRAMS = 6


def estimate_table(manifest: Mapping[str, Any], columns: Mapping[str, Sequence[Any]]) -> RenderableType:
    """The first groups: every estimate with its interval, then the histograms of some, then what all of it assumes.

    Args:
        manifest: As published.
        columns: The first published rows, by column.
    """
    rows = len(columns["rows"])
    keys = [
        [printable(key_text(columns[name][row])) for name in manifest["group_columns"]]
        for row in range(min(rows, TERMINAL_ROWS))
    ]
    table = simple_table(manifest["release_id"])
    for name in manifest["group_columns"]:
        table.add_column(Text(name))
    table.add_column("rows", justify="right")
    parts = [(item, part) for item in manifest["estimated"] for part in item["parts"] if part != "histogram"]
    for item, part in parts:
        table.add_column(Text(f"{item['name']} {part}"), justify="right")
    for row, key in enumerate(keys):
        cells = [_cell(columns, item, part, row) for item, part in parts]
        table.add_row(*map(Text, key), f"{columns['rows'][row]:,}", *cells)
    shown: list[RenderableType] = [table]
    if len(keys) < manifest["rows"]:
        shown.append(Text(f"The first {len(keys):,} of {manifest['rows']:,} groups.", style="dim"))
    shown += [_histogram(columns, item, keys) for item in manifest["estimated"] if "histogram" in item["parts"]]
    shown += [_largest(columns, item, keys) for item in manifest["estimated"] if "cells" in item]
    shown += [Text(f"· {sentence}", style="dim") for sentence in manifest["assumptions"]]
    return Group(*shown)


def _largest(
    columns: Mapping[str, Sequence[Any]], item: Mapping[str, Any], keys: Sequence[Sequence[str]]
) -> RenderableType:
    """The largest cells of the first groups."""
    table = simple_table(f"{item['name']}: the cells with most rows, by the likeliest counts")
    for heading in ("group", "cell"):
        table.add_column(heading)
    table.add_column("about", justify="right")
    for row in range(min(len(keys), HISTOGRAMS)):
        for where, count in largest(item, columns, row):
            table.add_row(Text(", ".join(keys[row]) or "all"), Text(printable(where)), count)
    return table


def _cell(columns: Mapping[str, Sequence[Any]], item: Mapping[str, Any], part: str, row: int) -> Text:
    value, low, high = (columns[f"{item['name']}_{part}{end}"][row] for end in ("", "_low", "_high"))
    if value is None:
        return Text(f"unknown ({low:,.6g} to {high:,.6g})", style="dim")
    within = (item["lower"], item["upper"]) if part == "mean" or part.startswith("q") else None
    shown = figure(value, low, high, within)
    text = f"≈ {shown.text}" if shown.drowned else shown.text
    return Text.assemble((text, "dim" if shown.drowned else ""), (f" {shown.error}", "dim"))


def _histogram(
    columns: Mapping[str, Sequence[Any]], item: Mapping[str, Any], keys: Sequence[Sequence[str]]
) -> RenderableType:
    """A histogram in percent: a row for each bin, a column for each group."""
    name, edges = item["name"], item["edges"]
    table = simple_table(f"{name}: share of the values, in %")
    table.add_column("from")
    table.add_column("to")
    groups = range(min(len(keys), HISTOGRAMS))
    for group in groups:
        table.add_column(Text(", ".join(keys[group]) or "all"), justify="right")
    for place, (low, high) in enumerate(itertools.pairwise(edges)):
        table.add_row(f"{low:g}", f"{high:g}", *(_share(columns, item, group, place) for group in groups))
    return table


def _share(columns: Mapping[str, Sequence[Any]], item: Mapping[str, Any], group: int, place: int) -> Text:
    whole = columns["rows"][group] * item["values_per_row"]
    lists = [columns[f"{item['name']}_histogram{end}"][group] for end in ("", "_low", "_high")]
    if not whole or lists[0] is None:
        return Text("unknown", style="dim")
    value, low, high = (100 * numbers[place] / whole for numbers in lists)
    return Text.assemble(f"{value:.1f}", (f" ({low:.1f} to {high:.1f})", "dim"))
