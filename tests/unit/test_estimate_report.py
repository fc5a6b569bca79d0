"""The page of estimates: the published numbers and nothing else, unknown groups said to be so, no markup from data."""

from __future__ import annotations

import copy
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from html_page import Page

from spark_rdp.cli import main
from spark_rdp.errors import InvalidInput
from spark_rdp.reporting.estimate_page import render, write_estimate

KEYS = ["DE", "<b>$x$</b>", None]
EDGES = [0.0, 10.0, 40.0, 100.0]
MANIFEST: dict[str, Any] = {
    "kind": "estimate",
    "release_id": "battery@1",
    "query_digest": "1" * 64,
    "content_digest": "2" * 64,
    "query": {
        "name": "battery",
        "group_by": {"country": ["DE", "FR"]},
        "confidence": 0.95,
        "intervals": "rows",
        "post": ["range"],
    },
    "collections": [{"release_id": "telemetry@1", "content_digest": "3" * 64, "query_digest": "4" * 64, "rows": 900}],
    "rows_collected": 900,
    "group_columns": ["country"],
    "assumptions": ["Missing values count as the middle of the range."],
    "estimated": [
        {
            "name": "level",
            "column": "battery",
            "element": None,
            "values_per_row": 2,
            "lower": 0.0,
            "upper": 100.0,
            "parts": ["mean", "total", "histogram", "q50"],
            "edges": EDGES,
        }
    ],
    "rows": 3,
    "versions": {"spark_rdp": "0.1.0"},
}
COLUMNS: dict[str, list[Any]] = {
    "country": KEYS,
    "rows": [500, 400, 0],
    "level_mean": [54.3, 40.0, None],
    "level_mean_low": [52.4, -60.0, 0.0],
    "level_mean_high": [56.2, 140.0, 100.0],
    "level_total": [54300.0, 32000.0, 0.0],
    "level_total_low": [52400.0, -48000.0, 0.0],
    "level_total_high": [56200.0, 112000.0, 0.0],
    "level_histogram": [[200.0, 300.0, 500.0], [80.0, 240.0, 480.0], None],
    "level_histogram_low": [[50.0, 240.0, 400.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
    "level_histogram_high": [[250.0, 360.0, 700.0], [800.0, 800.0, 800.0], [0.0, 0.0, 0.0]],
    "level_q50": [60.5, 61.0, None],
    "level_q50_low": [58.0, 10.0, 0.0],
    "level_q50_high": [62.0, 90.0, 100.0],
}
TABLE = pa.table(COLUMNS)


@pytest.fixture(scope="module")
def html() -> str:
    return render(MANIFEST, TABLE)


def test_page_needs_nothing_from_outside_and_takes_keys_as_text(html: str) -> None:
    page = Page(html)
    assert not {"script", "link", "iframe", "img", "object", "embed", "b"} & {tag for tag, _ in page.tags}
    assert "<b>$x$</b>" in page.words
    assert "(missing)" in page.text
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_page_tells_the_numbers_and_what_they_rest_on(html: str) -> None:
    text = Page(html).text
    for told in (
        "telemetry@1: 900 rows",
        "country: DE, FR",
        "95 %, for the values of the very rows that were collected",
        "moved to what the range of the column admits",
        "nothing is spent",
        "Of battery, between 0 and 100.",
        "country rows mean total median",
        "DE 500 54.3 ± 1.9 54,300 ± 1,900 60.5 (58.0 to 62.0)",
        "(missing) 0 unknown (0 to 100) 0 ± 0 unknown (0 to 100)",
        "Missing values count as the middle of the range.",
    ):
        assert told in text, told
    assert re.search(r'drowned"><span class="value">40<', html)  # an interval over the whole range and more


def test_histograms_are_drawn_to_scale_with_their_band(html: str) -> None:
    """Bins of different widths: heights are shares per unit of the value, here those of the first group."""
    pictures = re.findall(r"<svg .*?</svg>", html, re.DOTALL)
    assert len(pictures) == 2  # nothing is known of the third group
    root = ElementTree.fromstring(pictures[0])
    told = root.get("aria-label", "")
    assert "battery, DE: highest between 0 and 10 with 20 % of the values" in told
    words = ["".join(text.itertext()) for text in root.iter() if text.tag.endswith("text")]
    assert "% of values, per 1" in words
    heights = outline(root)
    expected = np.array([200 / 10, 300 / 30, 500 / 60])
    assert np.allclose(heights / heights.max(), expected / expected.max(), atol=1e-3)
    assert [group for group in ("DE", "<b>$x$</b>") for picture in pictures if group in texts(picture)] == KEYS[:2]


def texts(picture: str) -> list[str]:
    return ["".join(text.itertext()) for text in ElementTree.fromstring(picture).iter() if text.tag.endswith("text")]


def outline(root: ElementTree.Element) -> np.ndarray:
    """The heights of the steps of the line."""
    for path in root.iter():
        style = path.get("style", "")
        if path.tag.endswith("path") and "stroke-width: 2;" in style and "fill: none" in style:
            points = np.array(re.findall(r"[ML] (\S+) (\S+)", path.get("d", "")), dtype=float)
            steps = [y for (x, y), (after, same) in pairwise(points) if after > x and y == same]
            return points[:, 1].max() - np.array(steps)
    raise AssertionError("no line")


def test_report_takes_a_folder_of_estimates(tmp_path: Path, capsys: pytest.CaptureFixture[str], html: str) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(MANIFEST))
    pq.write_table(TABLE, tmp_path / "part-00000.parquet")
    assert main(["report", str(tmp_path)]) == 0
    assert "54.3 ± 1.9" in capsys.readouterr().out
    assert (tmp_path / "report.html").read_text() == html
    (tmp_path / "part-00000.parquet").unlink()
    assert main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_many_groups_are_cut_and_say_so() -> None:
    many = {name: [values[0]] * 300 for name, values in COLUMNS.items()}
    html = render({**MANIFEST, "rows": 300}, pa.table(many))
    text = Page(html).text
    assert "The first 200 of 300 groups are shown" in text
    assert "of the first 6 of 300 groups" in text
    assert html.count("<svg ") == 6
    assert len(html) < 500_000


@pytest.mark.parametrize("damage", ["estimated", "column", "query"])
def test_what_belongs_to_something_else_is_refused(damage: str, tmp_path: Path) -> None:
    manifest, table = copy.deepcopy(MANIFEST), TABLE
    if damage == "column":
        table = TABLE.drop_columns(["level_mean_low"])
    elif damage == "query":
        manifest["query"] = {"name": "other"}
    else:
        manifest["estimated"][0]["edges"] = None
    with pytest.raises(InvalidInput) as refused:
        write_estimate(manifest, table, tmp_path / "report.html")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "report.html").exists()
