"""The page of a local collection: right numbers, from the manifest alone, nothing from outside, no markup from data."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from html_page import Page

from spark_rdp.cli import main
from spark_rdp.collection import plan_collect
from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.local_build import build_local
from spark_rdp.planning.limits import variance_limit
from spark_rdp.planning.local import plan_local
from spark_rdp.queries import CollectQuery
from spark_rdp.reporting.collected import Collected
from spark_rdp.reporting.collection_page import MOST_DRAWN, render, write_collection
from spark_rdp.reporting.collection_story import column_text
from spark_rdp.reporting.local_noise import merged, output_range, output_shares, rivals_of
from spark_rdp.reporting.local_plots import variance_plot
from spark_rdp.unit_budget import UnitBudget

COLUMNS = [
    {"column": "battery", "lower": 0, "upper": 100, "epsilon": 1.0, "mechanism": "duchi"},
    {"column": "day", "lower": 18000, "upper": 20000, "epsilon": 0.5, "mechanism": "podium"},
]
QUERY: dict[str, Any] = {
    "name": "telemetry",
    "source": {"format": "parquet", "path": "telemetry.parquet"},
    "row_key": ["device", "event_id"],
    "keep": ["country"],
    "columns": COLUMNS,
}


def manifest_of(types: dict[str, str] | None = None, rows: int | None = 2500, **changed: Any) -> dict[str, Any]:
    """A manifest as a collection leaves it."""
    query = CollectQuery.of({key: value for key, value in {**QUERY, **changed}.items() if value is not None})
    plan = plan_collect(query)
    counted = {} if rows is None else {"rows": rows, "content_digest": "0" * 64}
    return {
        "kind": "collect",
        "release_id": "telemetry@1",
        "query": query.describe(),
        "query_digest": query.digest(),
        "plan": plan.content(),
        "unit": "row" if query.memoize is None else list(query.memoize.by),
        "privacy": UnitBudget.of(query, plan).content(),
        "epsilon": {"total": plan.epsilon},
        "persistent_secret": query.secret is not None,
        "source_types": types or {item.column: "double" for item in query.columns},
        "versions": {"spark_rdp": "0.1.0"},
        **counted,
    }


def text_of(manifest: dict[str, Any]) -> str:
    """The text of the page, but for what stands beside pictures."""
    return Page(render(Collected.of(manifest), most_drawn=0)).text


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    manifest = json.loads(json.dumps(manifest_of({"battery": "int", "day": "date"})))
    return write_collection(manifest, tmp_path_factory.mktemp("page") / "new" / "report.html").read_text()


def test_page_needs_nothing_from_outside(html: str) -> None:
    page = Page(html)
    assert not {"script", "link", "iframe", "img", "object", "embed", "form", "base"} & {tag for tag, _ in page.tags}
    outside = set(re.findall(r"https?://[^\"')\s]+", html))
    assert all(address.startswith("http://www.w3.org/") for address in outside), outside  # names of SVG, never fetched
    assert not re.search(r"url\((?!#)|@import", html)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_page_tells_what_was_asked_and_protected(html: str) -> None:
    text = Page(html).text
    for told in (
        "at most 4.48 times more or less likely (e to the power 1.5)",
        "parquet telemetry.parquet",
        "Rows 2,500",
        "country: published as they are",
        "and the columns country are published as they are",
        "noised as the middle of the range",
        "only for the same row (device, event_id) with the same value",
        "drawn for this collection and never stored",
        "Dates from 2019-04-14 to 2024-10-04, as days since 1970-01-01 (18,000 to 20,000).",
        "365 547.5 e^547.5",  # reports, epsilon, factor
        "averaging many such rows reveals it",
    ):
        assert told in text, told


def test_errors_are_those_of_the_mechanism(html: str) -> None:
    """For the two-point mechanism the average variance has a closed form: (C^2 / 4 - 1 / 12) of the squared range."""
    ratio = (math.e + 1) / (math.e - 1)
    variance = 100**2 * (ratio**2 / 4 - 1 / 12)
    one, mean = math.sqrt(variance), 1.959964 * math.sqrt(variance / 2500)
    row = f"battery int 0 to 100 1 duchi average variance {variance:,.0f} {one:.0f} {mean:.2f}"
    assert row in Page(html).text


def test_every_column_has_three_described_pictures(html: str) -> None:
    pictures = re.findall(r"<svg .*?</svg>", html, re.DOTALL)
    assert len(pictures) == 3 * len(COLUMNS)
    for picture in pictures:
        root = ElementTree.fromstring(picture)
        assert root.get("role") == "img"
        assert len(root.get("aria-label", "")) > 40
    assert sum("limit</text>" in picture for picture in pictures) == len(COLUMNS)
    for rival in ("podium", "piecewise", "hybrid", "fitted", "laplace", "staircase", "r2dp"):
        assert any(rival in picture for picture in pictures), rival


def test_the_same_manifest_gives_the_same_page(html: str) -> None:
    assert render(Collected.of(manifest_of({"battery": "int", "day": "date"}))) == html


def test_a_memoised_collection_tells_what_repeats_and_what_adds_up() -> None:
    manifest = manifest_of(memoize={"by": "device"}, row_key=None, keep=None, secret="env:S", columns=COLUMNS[:1])
    text = text_of(manifest)
    for told in (
        "the same device with the same value always gets the same noise",
        "different values of one device",
        "spends the epsilon of that value once",
        "Two different published values of one device tell that the true values differ",
        "mean over 10,000 devices, ± (95 %)",  # rows are not independent: their number says nothing
        "no other column is published",
        "Whoever has the secret can compute the noise of every row again",
    ):
        assert told in text, told
    assert "2,500 rows" not in text


@pytest.mark.parametrize(
    ("privacy", "words"),
    [
        (
            {"unit": "device", "max_reports": 24},
            (
                "what is published for all rows of one device in a run, at most e^36 times (e to the power 36)",
                "Budget of a unit epsilon 36 in a run: A run publishes at most 24 of the rows of one device.",
                "Budgets add up: 24 times epsilon 1.5 is 36, and every further run adds as much.",
                "what it has more is left out, and so are rows without a device. What the runs spend",
                "runs with one device",
                "7 252 e^252",  # runs, epsilon, factor
                "averaging the rows of one device, of all runs, comes as close to it as their budgets together allow",
            ),
        ),
        (
            {"unit": "row"},
            (
                "Budget of a unit epsilon 1.5 in a run: Every row is of another unit",
                "Every row is of another person or device, as whoever asked for the collection says.",
                "7 10.5 ",
            ),
        ),
        (None, ("Budget of a unit unbounded: Rows are protected one by one: a unit with several rows spends",)),
    ],
)
def test_the_budget_of_a_unit_and_its_rule_are_told(privacy: dict[str, Any] | None, words: tuple[str, ...]) -> None:
    manifest = manifest_of(privacy=privacy)
    text = text_of(manifest)
    for told in words:
        assert told in text, told
    if privacy is None:  # as an earlier version wrote it
        del manifest["privacy"]
        assert text_of(manifest) == text


def test_shared_budgets_and_arrays_are_explained() -> None:
    columns = [{"column": "a", "lower": 0, "upper": 1}, {"column": "b", "lower": 0, "upper": 1, "length": 4}]
    manifest = manifest_of({"a": "double", "b": "array<float>"}, None, columns=columns, epsilon=2.0, sample=1)
    text = text_of(manifest)
    assert "4 × float" in text
    assert "mean over 10,000 rows, ± (95 %)" in text
    told = column_text(Collected.of(manifest).columns[1])
    assert told.startswith(
        "Arrays of 4 elements, each noised on its own. Values from 0 to 1. Together with a: a row repo"
    )
    assert "reports 1 of 5 values, chosen by a keyed hash of the row, never by its data, at epsilon 2 each" in told
    column = Collected.of(manifest).columns[0]
    assert column.error_of_mean(1000) == pytest.approx(1.959964 * math.sqrt(5 * column.variance / 1000))
    split = Collected.of(manifest_of(columns=columns, epsilon=2.0, sample=5)).columns[0]
    assert column_text(split) == "Values from 0 to 1. Together with b: epsilon 2 is split over 5 reports."


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"null_policy": "drop"}, "A row that is published had all its values"),
        ({"null_policy": "error"}, "That the job did not stop tells"),
        ({"invalid": "error"}, "none: one would have stopped the job"),
    ],
)
def test_policies_that_tell_something_are_named(changed: dict[str, Any], told: str) -> None:
    assert told in text_of(manifest_of(columns=COLUMNS[:1], **changed))


def test_names_are_text_everywhere() -> None:
    name = '<b>"bad" & $x^{2}$</b>'
    columns = [{**COLUMNS[0], "column": name}]
    html = render(Collected.of(manifest_of(columns=columns, keep=["<i>k</i>"], row_key=["<u>id</u>"])))
    page = Page(html)
    assert not {"b", "i", "u"} & {tag for tag, _ in page.tags if tag != "i"}
    assert "<i>k" not in html
    for picture in re.findall(r"<svg .*?</svg>", html, re.DOTALL):
        words = " ".join("".join(text.itertext()) for text in ElementTree.fromstring(picture).iter())
        assert name in words


def test_many_columns_stay_one_light_page(html: str) -> None:
    assert len(html) * MOST_DRAWN / len(COLUMNS) < 2_000_000
    columns = [{**COLUMNS[0], "column": f"c{number}"} for number in range(3)]
    drawn = render(Collected.of(manifest_of(columns=columns)), most_drawn=1)
    assert drawn.count("<svg ") == 3
    assert "2 more columns in the table above have no pictures here." in Page(drawn).text
    assert "c2" in drawn


@pytest.mark.parametrize("damage", ["kind", "plan", "types", "release"])
def test_a_manifest_of_something_else_is_refused(damage: str, tmp_path: Path) -> None:
    manifest = manifest_of(columns=COLUMNS[:1])
    if damage == "kind":
        manifest["plan"]["columns"][0]["kind"] = "other"
    elif damage == "plan":
        del manifest["plan"]["columns"][0]["share"]
    elif damage == "types":
        del manifest["source_types"]
    else:
        manifest = {"kind": "collect", "query": {}, "plan": []}
    with pytest.raises(InvalidInput) as refused:
        write_collection(manifest, tmp_path / "report.html")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "report.html").exists()


def test_report_takes_a_folder_of_a_collection(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(manifest_of(columns=COLUMNS[:1])))
    assert main(["report", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert re.search(r"battery\s+0 to 100\s+1\s+all\s+duchi\s+average variance\s+10,873\s+± 104", told.out)
    assert "telemetry@1" in (tmp_path / "report.html").read_text()
    (tmp_path / "manifest.json").write_text("[]")
    assert main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("epsilon", [0.3, 3.0])
@pytest.mark.parametrize("name", ["podium", "duchi", "piecewise", "hybrid", "fitted", "laplace", "staircase"])
def test_drawn_shares_have_the_mean_and_the_spread_of_the_outputs(name: str, epsilon: float) -> None:
    """Binning moves a mean by at most half a bin; for these bins the spread by less than 1 %."""
    plan = plan_local(epsilon, -5, 15, mechanism=name)
    mechanism = build_local(plan.mechanism, plan.parameters)
    low, high = output_range(mechanism)
    wide = high - low
    edges = np.linspace(low - 4 * wide, high + 4 * wide, 4001)
    middles = (edges[1:] + edges[:-1]) / 2
    for x in (-5.0, 2.0, 15.0):
        shares = output_shares(mechanism, x, edges)
        assert shares.sum() == pytest.approx(1, abs=1e-6)
        assert shares @ middles == pytest.approx(x, abs=(edges[1] - edges[0]) / 2)
        assert shares @ (middles - x) ** 2 == pytest.approx(float(mechanism.variance(np.array([x]))[0]), rel=0.01)


def test_curves_that_coincide_are_one() -> None:
    one, other = np.ones(3), np.array([1.0, 2.0, 1.0])
    found = merged({"a": one, "b": other, "c": one * 1.001})
    assert list(found) == ["a, c", "b"]


def test_the_variance_picture_has_the_numbers_of_the_mechanisms() -> None:
    """At epsilon 1 on [0, 1]: Laplace 2, and Podium between 0.9175 and 1.2856 (table of the design)."""
    plan = plan_local(1.0, 0.0, 1.0, metric="center-variance", mechanism="podium")
    mechanism = build_local(plan.mechanism, plan.parameters)
    rivals = {"laplace": rivals_of(plan, mechanism)["laplace"]}
    svg = variance_plot(("podium", mechanism), rivals, None, "x", "v")
    lines = [
        np.array(re.findall(r"[ML] (\S+) (\S+)", path.get("d", "")), dtype=float)[:, 1]
        for path in ElementTree.fromstring(svg).iter()
        if path.tag.endswith("path") and path.get("d", "").count("L") > 20
    ]
    flat = next(line for line in lines if np.ptp(line) < 0.1)
    curved = next(line for line in lines if np.ptp(line) > 1)
    # Heights are linear in the variance: three known values fix the ratio.
    assert (curved.max() - curved.min()) / (curved.max() - flat[0]) == pytest.approx(
        (1.28555995 - 0.91752525) / (2 - 0.91752525), abs=2e-3
    )


def test_the_drawn_limit_is_a_mechanism_that_reaches_it() -> None:
    """The limits of the design, reached by the largest of the drawn variances; unknown where inputs do not count."""
    limit = variance_limit(1.0, (), ())
    assert max(limit.variances) == pytest.approx(limit.value, rel=1e-6)
    assert limit.lower == pytest.approx(0.9976, rel=2e-3)
    centre = variance_limit(1.0, (0.0,), (1.0,))
    known = np.array(centre.variances)
    assert np.isnan(known).sum() == len(known) - 1
    assert np.nanmax(known) == pytest.approx(centre.value, rel=1e-6)
