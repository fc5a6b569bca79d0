"""The page and the tables of a release: right numbers, nothing from outside, no markup that comes from data."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from html_page import Page
from rich.console import Console

from spark_rdp.errors import InvalidInput
from spark_rdp.ledger import Ledger
from spark_rdp.outputs import public_values
from spark_rdp.planning.additive import plan
from spark_rdp.queries import ReleaseQuery
from spark_rdp.releases import ReleasePlan, plan_release
from spark_rdp.reporting import words
from spark_rdp.reporting.figures import figure
from spark_rdp.reporting.page import write_report
from spark_rdp.reporting.plots import noise_plot
from spark_rdp.reporting.published import of_table, read_published
from spark_rdp.reporting.story import charge_facts
from spark_rdp.reporting.table import (
    balance_table,
    charge_table,
    history_table,
    noise_table,
    plan_table,
    release_table,
)

HOSTILE = ['<script>alert("x")</script>', "</td></tr>", "{{ 7 * 7 }}", "&amp;", "$x$", "\x1b[31mred", "", None]
MEASURES = [
    {"name": "orders", "type": "count", "max_per_group": 2, "metric": {"usefulness": 5}},
    {"name": "customers", "type": "count_units"},
    {"name": "revenue", "type": "sum", "column": "amount", "lower": 0, "upper": 500},
    {"name": "basket", "type": "mean", "column": "amount", "lower": 0, "upper": 100},
    {"name": "spread", "type": "histogram", "column": "amount", "bins": [0, 10, 20, 50]},
]


def query(**changed) -> ReleaseQuery:
    asked = {
        "name": "orders",
        "source": {"format": "csv", "path": "orders.csv", "schema": "customer BIGINT, country STRING, amount DOUBLE"},
        "privacy": {"unit": "customer", "epsilon": 2.0, "max_groups": 3},
        "group_by": {"country": ["FR", "DE"]},
        "measures": MEASURES,
    }
    return ReleaseQuery.of({**asked, **changed})


def published(folder: Path, asked: ReleaseQuery, keys: list, seed: int = 7) -> Path:
    """A folder as a release leaves it, with made-up statistics."""
    numbers = np.random.default_rng(seed)
    release: ReleasePlan = plan_release(asked)
    columns: dict[str, list] = dict.fromkeys(release.group_columns, keys)
    noised = {}
    for part in release.components:
        shape = (len(keys), part.width) if part.role == "bins" else (len(keys),)
        noised[part.column] = numbers.integers(-50, 3000, shape) << (0 if part.role != "sum" else 12)
    for measure in release.measures:
        for end, values in zip(("", "_low", "_high"), public_values(measure, release.components, noised), strict=True):
            columns[measure + end] = values.tolist()
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / "part-00000.parquet")
    manifest = {
        "query": asked.describe(),
        "plan": release.content(),
        "release_id": "orders@today",
        "query_digest": asked.digest(),
        "content_digest": "0" * 64,
        "versions": {"spark_rdp": "0.1.0"},
        "charge": {
            "dataset": "shop",
            "fingerprint": "warehouse v7",
            "epsilon_millionths": 2_000_000,
            "delta": 0.0,
            "accounting": "pure",
            "composition": "The epsilons of all releases add up, and so do their deltas.",
            "balance": {
                "total_epsilon": 10.0,
                "spent_epsilon": 3.5,
                "remaining_epsilon": 6.5,
                "total_delta": 1e-6,
                "spent_delta": 0.0,
                "remaining_delta": 1e-6,
                "releases": 2,
            },
        },
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def printed(renderable) -> str:
    console = Console(width=250, color_system=None, file=None, record=True, quiet=False, highlight=False)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return published(tmp_path_factory.mktemp("release") / "out", query(), ["FR", "DE"])


@pytest.fixture(scope="module")
def html(folder, tmp_path_factory) -> str:
    return write_report(folder / "manifest.json", tmp_path_factory.mktemp("page") / "new" / "report.html").read_text()


def test_page_needs_nothing_from_outside(html):
    page = Page(html)
    assert not {"script", "link", "iframe", "img", "object", "embed", "form", "base"} & {tag for tag, _ in page.tags}
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            assert name not in ("src", "srcset", "action", "onload", "onclick"), (tag, name)
            assert "href" not in name or value.startswith("#"), (tag, name, value)
    outside = set(re.findall(r"https?://[^\"')\s]+", html))
    assert all(address.startswith("http://www.w3.org/") for address in outside), outside  # names of SVG, never fetched
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)


def test_element_ids_are_unique(html):
    ids = [attributes["id"] for _, attributes in Page(html).tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_page_tells_what_was_asked_protected_and_charged(html):
    text = Page(html).text
    for told in (
        "two data sets that differ by adding or removing one customer",
        "at most 7.39 times more or less likely",
        "rows without a customer and rows of groups that were not declared",
        "one customer counts in at most 2 groups",
        "the total of one customer in a group is clamped to 0 to 500",
        "each value is clamped to 0 to 100",
        "country: FR, DE",
        "Epsilon, in total 2",
        "epsilon 2, once for this release id",
        "shop (warehouse v7)",
        "The epsilons of all releases add up",
        "epsilon 3.5 of 10 spent, 6.5 left; delta 0 of 1e-06 spent, 1e-06 left, with this release and 1 before it",
        "The error bars cover the noise only",
    ):
        assert told in text, told


@pytest.mark.parametrize("accounting", ["pure", "pld"])
def test_the_charge_is_told_with_balance_and_rule(tmp_path, accounting):
    """On the terminal as on the page, from the facts a ledger leaves in a manifest."""
    ledger = Ledger(f"sqlite:///{tmp_path}/budget.db", "shop")
    ledger.create(epsilon=3.0, delta=1e-6, accounting=accounting)
    balance = ledger.reserve(None, "orders@today", "a" * 64, 1_250_000).balance
    charge = {"dataset": "shop", "epsilon_millionths": 1_250_000, "delta": 0.0, "accounting": accounting}
    charge |= {"composition": balance.composition, "balance": balance.facts()}
    told = " ".join(printed(charge_table({"charge": charge})).split())
    rule = {
        "pure": "composition The epsilons of all releases add up, and so do their deltas.",
        "pld": "composition The noise of all releases is composed by its privacy loss distributions, to the epsilon "
        "spent at delta 1e-06;",
    }
    assert rule[accounting] in told
    assert "charge epsilon 1.25, once for this release id" in told
    assert "epsilon 1.25 of 3 spent, 1.75 left; delta" in told
    assert charge_facts({"charge": charge})[2] == ("Composition", balance.composition)


def test_page_has_a_picture_and_rivals_for_every_noise(html, folder):
    release = read_published(folder).plan
    assert html.count('<svg role="img"') == len(release.components)
    text = Page(html).text
    for part in release.components:
        assert part.plan.plan_id[:16] in text
        for name in part.plan.alternatives:
            assert name in text


def test_page_and_terminal_show_the_published_values(html, folder):
    release = read_published(folder)
    page, terminal = Page(html).text, printed(release_table(release))
    for row in range(release.rows):
        for measure in ("orders", "customers", "revenue", "basket"):
            shown = figure(*release.value(measure, row), release.range_of(measure))
            assert shown.text in page
            assert shown.text in terminal
            assert shown.error in page
            assert shown.error in terminal
        for count in release.value("spread", row)[0]:
            assert figure(count, count, count).text in page


def test_the_same_release_gives_the_same_page(folder, html, tmp_path):
    assert write_report(folder, tmp_path / "again.html").read_text() == html
    assert not list(tmp_path.glob(".*")), "no temporary file is left"


def test_keys_from_data_are_text_everywhere(tmp_path):
    asked = query(group_by={"country": {"file": "keys.csv"}})
    folder = published(tmp_path / "out", asked, HOSTILE)
    html = write_report(folder, tmp_path / "report.html").read_text()
    page = Page(html)
    assert "script" not in {tag for tag, _ in page.tags}
    assert html.count("</tr>") == len(re.findall(r"<tr[ >]", html))
    for key in HOSTILE[:5]:
        assert key in page.words, key
    assert "(missing)" in page.text
    assert "\x1b" not in printed(release_table(read_published(folder)))


def test_names_from_configuration_are_text_too(tmp_path):
    asked = query(
        source={"format": "csv", "path": "<b>x</b>.csv", "schema": "customer BIGINT, country STRING, amount DOUBLE"},
        group_by={"<i>land</i>": ["<u>FR</u>", "DE"]},
    )
    folder = published(tmp_path / "out", asked, ["<u>FR</u>", "DE"])
    tags = {tag for tag, _ in Page(write_report(folder, tmp_path / "report.html").read_text()).tags}
    assert "u" not in tags
    html = (tmp_path / "report.html").read_text()
    assert "<b>x" not in html
    assert "<i>land" not in html


def test_a_large_release_is_cut_and_says_so(tmp_path):
    asked = query(group_by={"day": {"range": [0, 999]}}, measures=MEASURES[:1])
    folder = published(tmp_path / "out", asked, list(range(1000)))
    html = write_report(folder, tmp_path / "report.html").read_text()
    assert "The first 200 of 1,000 rows are shown" in Page(html).text
    assert len(html) < 400_000
    shown = printed(release_table(read_published(folder)))
    assert "The first 24 of 1,000 rows; 976 are not shown here." in shown


def test_the_largest_values_of_a_large_release_are_shown(tmp_path):
    """Whichever file and row they lie in, with ties in the order of the rows; not of means, which say little there."""
    asked = query(group_by={"day": {"range": [0, 999]}}, measures=[MEASURES[0], MEASURES[3]])
    folder = published(tmp_path / "out", asked, list(range(1000)))
    table = pq.read_table(folder / "part-00000.parquet")
    for number in range(4):
        pq.write_table(table.slice(250 * number, 250), folder / f"part-0000{number}.parquet", row_group_size=100)
    values = table.column("orders").to_numpy()
    expected = np.argsort(-values, kind="stable")[:10]
    release = read_published(folder)
    assert list(release.largest) == ["orders"]
    assert release.largest["orders"]["day"] == expected.tolist()
    assert release.largest["orders"]["orders"] == values[expected].tolist()
    assert of_table(release.manifest, table).largest == release.largest
    text = Page(write_report(folder, tmp_path / "report.html").read_text()).text
    rows = [
        f"{day} {figure(*release.largest_of('orders').value('orders', row)).text}" for row, day in enumerate(expected)
    ]
    assert all(row in text.partition("Largest values")[2] for row in rows)
    assert not read_published(published(tmp_path / "small", asked, list(range(200)))).largest


@pytest.mark.parametrize(
    "privacy", [{"unit": "row", "epsilon": 1.0}, {"unit": "customer", "epsilon": 60.0, "neighbours": "replace-one"}]
)
def test_one_overall_row_and_other_units(tmp_path, privacy):
    cap = {} if privacy["unit"] == "row" else {"max_per_group": 1}
    asked = query(privacy=privacy, group_by=None, measures=[{"name": "rows", "type": "count", **cap}])
    folder = published(tmp_path / "out", asked, [0])
    text = Page(write_report(folder, tmp_path / "report.html").read_text()).text
    assert "one row over all data" in text
    if privacy["unit"] == "row":
        assert "every single row by itself" in text
        assert "Dropped" not in text
    else:
        assert "replacing one customer by another" in text
        assert "e^60" in text


def test_a_relative_entropy_is_shown_as_analysts_will_see_it(tmp_path):
    """Planned as a sum over cells; the page also shows the divergence of normalised histograms, by simulation."""
    metric = {"relative_entropy": {"prior": [900, 500, 80]}}
    asked = query(measures=[{**MEASURES[4], "metric": metric}])
    out = published(tmp_path / "out", asked, ["FR", "DE"])
    write_report(out, tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text())
    simulated = read_published(out).plan.components[0].plan.facts["normalised_divergence"]
    assert f"Divergence after normalising {simulated['value']:.3g} ± " in page.text
    assert "2,048 simulated histograms" in page.text


def test_an_empty_release_has_a_page(tmp_path):
    folder = published(tmp_path / "out", query(), [])
    assert "Result" in Page(write_report(folder, tmp_path / "report.html").read_text()).text
    printed(release_table(read_published(folder)))


def test_without_a_ledger_the_page_says_that_nobody_adds_up(folder, tmp_path):
    manifest = json.loads((folder / "manifest.json").read_text())
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "part-00000.parquet").write_bytes((folder / "part-00000.parquet").read_bytes())
    (copy / "manifest.json").write_text(json.dumps({**manifest, "charge": None}))
    assert "no ledger was named" in Page(write_report(copy, tmp_path / "report.html").read_text()).text


@pytest.mark.parametrize("damage", ["missing", "no json", "other json", "no data", "other data", "changed plan"])
def test_a_folder_that_is_no_release_is_refused(folder, tmp_path, damage):
    copy = tmp_path / "copy"
    copy.mkdir()
    manifest = json.loads((folder / "manifest.json").read_text())
    data = (folder / "part-00000.parquet").read_bytes()
    if damage == "changed plan":
        manifest["plan"]["components"][0]["plan"]["epsilon"] = 9.0
    if damage != "missing":
        text = {"no json": "{", "other json": "[1]"}.get(damage, json.dumps(manifest))
        (copy / "manifest.json").write_text(text)
    if damage == "other data":
        pq.write_table(pa.table({"x": [1]}), copy / "part-00000.parquet")
    elif damage != "no data":
        (copy / "part-00000.parquet").write_bytes(data)
    with pytest.raises(InvalidInput) as refused:
        write_report(copy, tmp_path / "report.html")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("value", "low", "high", "text", "error", "drowned"),
    [
        (10, 3, 17, "10", "± 7", False),
        (-1, -5, 3, "−1", "± 4", True),
        (1234.5678, 1222.2178, 1246.9178, "1,235", "± 12", False),
        (0.0123, 0.0111, 0.0135, "0.0123", "± 0.0012", False),
        (-0.01, -5.01, 4.99, "0.0", "± 5.0", True),
        (70.0, 60.0, 90.0, "70", "(60 to 90)", False),
        (0.0, 0.0, 0.0, "0", "± 0", False),
        (2**60, 2**60 - 5, 2**60 + 5, f"{2**60:,}", "± 5", False),
    ],
)
def test_figures(value, low, high, text, error, drowned):
    shown = figure(value, low, high)
    assert (shown.text, shown.error, shown.drowned) == (text, error, drowned)


def test_a_mean_is_drowned_when_half_its_range_is_open():
    assert figure(50.0, 20.0, 80.0, (0.0, 100.0)).drowned
    assert not figure(5.0, -5.0, 15.0, (-100.0, 100.0)).drowned


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (12.0, "12"),
        (1234567, "1,234,567"),
        (42.4249, "42.42"),
        (0.00011, "0.0001100"),
        (1e-9, "1.000e-09"),
        (1e300, "1.000e+300"),
        (math.inf, "inf"),
        (math.nan, "–"),
        (None, "–"),
    ],
)
def test_numbers(value, text):
    assert words.number(value) == text


def test_rivals_are_compared_in_the_direction_of_the_metric():
    assert words.against({"usefulness": 5}, 0.5, 0.8) == "37.5% worse"
    assert words.against("l2", 12.0, 10.0) == "20.0% worse"
    assert words.against("l2", 9.0, 10.0) == "10.0% better"
    assert words.against("l2", 10.0, 10.0) == "same"
    assert words.against("l2", 1e9, 1.0) == "1,000,000,000 times worse"
    assert words.against("l2", None, 1.0) == "not available here"


@pytest.mark.parametrize("granularity", [None, 1.0])
def test_the_picture_is_deterministic_and_self_contained(granularity):
    made = plan(epsilon=1, sensitivity=1, metric="l1", granularity=granularity)
    other = plan(epsilon=1, sensitivity=1, metric="l1", granularity=granularity, mechanism="laplace")
    drawn = [
        noise_plot((made.mechanism, made.build()), {"rival": other.build()}, made.granularity, "a") for _ in range(2)
    ]
    assert drawn[0] == drawn[1]
    assert drawn[0].startswith("<svg ")
    assert "<metadata" not in drawn[0]


def test_tables_for_the_terminal(folder, tmp_path):
    from spark_rdp.ledger import Ledger

    release = read_published(folder)
    noise = printed(noise_table(release.plan))
    assert all(name in noise for name in ("orders", "basket: sum", "basket: count", "spread: each bin"))
    assert "staircase" in printed(plan_table(plan(epsilon=1, sensitivity=1, metric={"usefulness": 0.1})))
    ledger = Ledger(f"sqlite:///{tmp_path}/budget.db", "shop")
    assert "1.500000" in printed(balance_table(ledger.create(epsilon=1.5)))
    assert printed(history_table("shop", ledger.history())).strip() == "Nothing was charged to shop yet."
    ledger.reserve(None, "orders@1", "a" * 64, 250_000)
    assert "0.250000" in printed(history_table("shop", ledger.history()))


def test_a_quantile_and_gaussian_noise_are_explained(tmp_path):
    median = {"name": "typical", "type": "quantile", "column": "amount", "lower": 0, "upper": 100, "step": 5}
    total = {**MEASURES[2], "mechanism": "gaussian"}
    privacy = {"unit": "customer", "epsilon": 2.0, "delta": 1e-6, "max_groups": 3}
    asked = query(measures=[median, total], privacy=privacy)
    plan = plan_release(asked)
    noised = {"c0": np.array([[4, 2, 9], [0, 0, 20]]), "c1": np.array([1 << 20, 2 << 20])}
    columns: dict[str, list] = {"country": ["FR", "DE"]}
    for name in plan.measures:
        for end, values in zip(("", "_low", "_high"), public_values(name, plan.components, noised), strict=True):
            columns[name + end] = values.tolist()
    folder = published(tmp_path / "other", query(measures=[total], privacy=privacy), ["FR", "DE"])
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "query": asked.describe(), "plan": plan.content()}))
    pq.write_table(pa.table(columns), folder / "part-00000.parquet")
    text = Page(write_report(folder, tmp_path / "page.html").read_text()).text
    for told in (
        "Median of amount, to the nearest of 21 candidates from 0 to 100",
        "permute-and-flip",
        "rank error, 95 % within",
        "half for the value, a quarter for each end of the interval",
        "up to an added probability of at most 1e-06 (delta)",
        "1e-06, spent by revenue",
        "(10 to 45)",
    ):
        assert told in text, told
    terminal = printed(noise_table(plan)) + printed(release_table(read_published(folder)))
    assert "ranks" in terminal
    assert "gaussian" in terminal
    assert "1 (delta 1e-06)" in terminal
    assert "1 (delta 1e-06)" in text
