"""The HTML page of estimates from a local collection: one file, built from what was published only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from spark_rdp.errors import InvalidInput
from spark_rdp.reporting.cells import Cell, number_cells
from spark_rdp.reporting.cells_of_map import bars_picture, is_map, largest, map_picture
from spark_rdp.reporting.document import fill, identity, write
from spark_rdp.reporting.estimate_plots import histogram_plot
from spark_rdp.reporting.published import MOST_ROWS, key_text
from spark_rdp.reporting.story import groups_text
from spark_rdp.reporting.words import plain

if TYPE_CHECKING:
    import pyarrow as pa

#: Groups whose histograms are drawn.
MOST_DRAWN = 6
_ENDS = ("", "_low", "_high")
_POST = {"nonnegative": "what is below 0 was cut off", "range": "moved to what the range of the column admits"}


@dataclass(frozen=True)
class Section:
    """What was estimated of one column."""

    name: str
    text: str
    parts: Sequence[str]
    rows: Sequence[tuple[Sequence[str], str, Sequence[Cell]]]
    pictures: Sequence[Markup]
    caption: str = ""


def write_estimate(manifest: Mapping[str, Any], table: pa.Table, target: Path) -> Path:
    """Write the page of estimates.

    Args:
        manifest: What `spark_rdp.estimate` wrote beside them, or returned.
        table: The estimates, one row per group.
        target: The page; replaced as a whole when it exists.

    Returns:
        The path of the page.

    Raises:
        InvalidInput: It is not the manifest of estimates of this version, or the table is of others.
        JobFailed: The page cannot be written.
    """
    try:
        text = render(manifest, table)
    except (KeyError, TypeError, ValueError):
        raise InvalidInput(
            "The manifest must be that of estimates of this version. Give the manifest.json beside its data."
        ) from None
    return write(text, target)


def render(manifest: Mapping[str, Any], table: pa.Table) -> str:
    """The page of estimates as text; the same estimates give the same page."""
    columns = table.slice(0, MOST_ROWS).to_pydict()
    shown = len(columns["rows"])
    keys = [[key_text(columns[name][row]) for name in manifest["group_columns"]] for row in range(shown)]
    query = manifest["query"]
    return fill(
        "estimate.html.j2",
        name=query["name"],
        release=manifest["release_id"],
        confidence=f"{100 * query['confidence']:.10g}\u00a0%",
        population=query["intervals"] == "population",
        asked=_asked(manifest),
        keys=manifest["group_columns"],
        shown=shown,
        total=table.num_rows,
        sections=[_section(item, columns, keys, place) for place, item in enumerate(manifest["estimated"])],
        drawn=min(shown, MOST_DRAWN),
        assumptions=manifest["assumptions"],
        identity=[*_sources(manifest), *identity(manifest)],
    )


def _asked(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    query = manifest["query"]
    sources = ", ".join(source["release_id"] for source in manifest["collections"])
    truth = {"rows": "the values of the very rows that were collected", "population": "the population they are from"}
    rows = f": {manifest['rows_collected']:,} rows" if "rows_collected" in manifest else ", as it grows"
    facts = [
        ("Collection", sources + rows),
        ("Groups", groups_text(query.get("group_by")) + _window_text(query.get("window"))),
        ("Intervals", f"{100 * query['confidence']:.10g} %, for {truth[query['intervals']]}"),
        ("Budget", "nothing is spent: only what was published with noise is used"),
    ]
    return [*facts, *(("Changed", _POST[option]) for option in query.get("post", []))]


def _window_text(window: Mapping[str, Any] | None) -> str:
    if window is None:
        return ""
    slide = f", one begins every {window['slide']}" if "slide" in window else ""
    return f"; in every window of {window['every']} of {window['column']}{slide}"


def _sources(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(f"Collection {source['release_id']}", source["content_digest"]) for source in manifest["collections"]]


def _section(
    item: Mapping[str, Any], columns: Mapping[str, Sequence[Any]], keys: Sequence[Sequence[str]], place: int
) -> Section:
    if "cells" in item:
        return _cell_section(item, columns, keys, place)
    parts = [part for part in item["parts"] if part != "histogram"]
    cells = [_cells(item, part, columns) for part in parts]
    rows = [(key, f"{columns['rows'][row]:,}", [column[row] for column in cells]) for row, key in enumerate(keys)]
    pictures = _pictures(item, columns, keys, place) if "histogram" in item["parts"] else []
    element = "" if item["element"] is None else f", element {item['element']} of each array"
    text = f"Of {item['column']}{element}, between {plain(item['lower'])} and {plain(item['upper'])}."
    return Section(item["name"], text, [_part_text(part) for part in parts], rows, pictures)


def _cell_section(
    item: Mapping[str, Any], columns: Mapping[str, Sequence[Any]], keys: Sequence[Sequence[str]], place: int
) -> Section:
    """Pictures of the counts of the first groups, and their largest cells."""
    name, cells, pictures, told = item["name"], item["cells"], [], []
    for row in range(min(len(keys), MOST_DRAWN)):
        title = ", ".join(keys[row]) or "all rows"
        top = largest(item, columns, row)
        told.append(f"{title}: " + ("; ".join(f"{where}, about {count}" for where, count in top[:3]) or "no rows"))
        if is_map(cells):
            noised, likeliest = (columns[f"{name}_{part}"][row] for part in ("noised", "likeliest"))
            pictures.append(Markup(map_picture(cells, noised, likeliest, f"h{place}-{row}")))
        else:
            ends = [columns[f"{name}_histogram{end}"][row] for end in _ENDS]
            pictures.append(Markup(bars_picture(cells["labels"], ends, f"h{place}-{row}")))
    text = f"The largest cells of {item['column']}, by the likeliest counts. {'. '.join(told)}."
    what = (
        "Counts as published and as estimated, both darker for more"
        if is_map(cells)
        else "Estimated counts, with their intervals"
    )
    return Section(name, text, [], [], pictures, what)


def _part_text(part: str) -> str:
    """What a statistic is called: ``q50`` is the median."""
    if not part.startswith("q"):
        return part
    level = part[1:].replace("_", ".")
    return "median" if level == "50" else f"{level} % quantile"


def _cells(item: Mapping[str, Any], part: str, columns: Mapping[str, Sequence[Any]]) -> list[Cell]:
    values = list(zip(*(columns[f"{item['name']}_{part}{end}"] for end in _ENDS), strict=True))
    within = (item["lower"], item["upper"]) if part == "mean" or part.startswith("q") else None
    return number_cells(values, within)


def _pictures(
    item: Mapping[str, Any], columns: Mapping[str, Sequence[Any]], keys: Sequence[Sequence[str]], place: int
) -> list[Markup]:
    """The histograms of the first groups, on one scale; a group nothing is known of has none."""
    shares = {}
    for row in range(min(len(keys), MOST_DRAWN)):
        whole = columns["rows"][row] * item["values_per_row"]
        counts, low, high = (columns[f"{item['name']}_histogram{end}"][row] for end in _ENDS)
        if whole and counts is not None:
            shares[row] = (_percent(counts, whole), _percent(low, whole), _percent(high, whole))
    edges = np.array(item["edges"])
    top = max((float((high / np.diff(edges)).max()) for _, _, high in shares.values()), default=0.0)
    pictures = []
    for row, found in shares.items():
        title = ", ".join(keys[row]) or "all rows"
        pictures.append(Markup(histogram_plot(title, edges, found, top, item["column"], f"h{place}-{row}")))
    return pictures


def _percent(counts: Sequence[float], whole: int) -> np.ndarray:
    return 100 * np.array(counts, dtype=np.float64) / whole
