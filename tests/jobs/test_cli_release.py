"""`spark-rdp release` from a file of a user to a published folder, and everything that can be wrong with it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from spark_rdp.cli import main

QUERY = """
kind: release
name: shop
source:
  format: csv
  path: {folder}/orders.csv
  options: {{header: true}}
  schema: "customer BIGINT, country STRING, amount DOUBLE"
privacy: {{unit: customer, epsilon: 1.0, max_groups: 2}}
group_by: {{country: [DE, FR, XX]}}
measures:
  - {{name: orders, type: count, max_per_group: 3}}
  - {{name: revenue, type: sum, column: amount, lower: 0, upper: 50}}
  - {{name: basket, type: mean, column: amount, lower: 0, upper: 20}}
  - {{name: spread, type: histogram, column: amount, bins: [0, 5, 10, 20]}}
output: {{format: parquet, path: {folder}/out}}
ledger: {{url: "sqlite:///{folder}/budget.db", dataset: shop}}
report: {folder}/report-{{run}}.html
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    rows = [f"{customer},{('DE', 'FR', 'SE')[customer % 3]},{customer % 17}.25" for customer in range(300)]
    (tmp_path / "orders.csv").write_text("\n".join(["customer,country,amount", *rows, ",DE,3.0", "7,DE,oops"]) + "\n")
    (tmp_path / "shop.yaml").write_text(QUERY.format(folder=tmp_path))
    return tmp_path


def content(folder: Path) -> dict[str, bytes]:
    return {
        file.name: file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file() and file.suffix != ".crc"
    }


def one_sentence(text: str) -> bool:
    return text.startswith("spark-rdp: ") and text.count("\n") == 1 and "Traceback" not in text


def test_a_release_is_published_once_then_read_back_then_refused_when_the_budget_is_used_up(spark, shop, capsys):
    url = f"sqlite:///{shop}/budget.db"
    conf = str(shop / "shop.yaml")
    assert main(["ledger", "create", "shop", "--epsilon", "1.5", "--url", url]) == 0
    capsys.readouterr()

    assert main(["release", conf, "--run", "1", "--dry-run"]) == 0
    told = capsys.readouterr()
    assert "shop@1 would cost epsilon 1." in told.out
    assert "enough." in told.out
    assert not (shop / "out").exists()

    assert main(["release", conf, "--run", "1"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert "shop@1 is published." in told.out
    assert "Charged epsilon 1 to shop." in told.out
    assert [line.split()[0] for line in told.out.splitlines() if line.split()[:1] in (["DE"], ["FR"], ["XX"])] == [
        "DE",
        "FR",
        "XX",
    ]
    first = content(shop / "out")
    assert [name.partition(".")[0] for name in first] == ["manifest", "part-00000"]
    page = (shop / "report-1.html").read_bytes()
    assert b"rows without a customer" in page

    assert main(["release", conf, "--run", "1"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert "shop@1 was published before: read back, nothing was charged." in told.out
    assert content(shop / "out") == first
    assert (shop / "report-1.html").read_bytes() == page

    assert main(["release", conf, "--run", "2"]) == 3
    told = capsys.readouterr()
    assert told.out == ""
    assert one_sentence(told.err)
    assert "shop@1" in told.err, "what spent the budget is named"
    assert "0.5" in told.err, "what is missing is named"
    assert content(shop / "out") == first

    assert main(["release", conf, "--run", "2", "--dry-run"]) == 0
    assert "not enough, it would be refused" in capsys.readouterr().out
    assert main(["release", conf, "--run", "1", "--dry-run"]) == 0
    assert "running it again costs nothing" in capsys.readouterr().out

    assert main(["ledger", "show", "shop", "--url", url, "--json"]) == 0
    balance = json.loads(capsys.readouterr().out)
    assert (balance["spent_millionths"], balance["remaining_epsilon"], balance["releases"]) == (1_000_000, 0.5, 1)
    assert main(["ledger", "history", "shop", "--url", url, "--json"]) == 0
    assert [entry["event"] for entry in json.loads(capsys.readouterr().out)] == ["reserved", "published"]

    again = shop / "again.html"
    assert main(["report", str(shop / "out/run=1/manifest.json"), "--output", str(again)]) == 0
    assert again.read_bytes() == page


def test_a_changed_query_under_a_used_id_is_refused(spark, shop, capsys):
    conf = shop / "shop.yaml"
    text = "\n".join(line for line in conf.read_text().splitlines() if not line.startswith("ledger"))
    conf.write_text(text)
    assert main(["release", str(conf), "--run", "1"]) == 0
    assert "nobody adds up" in capsys.readouterr().out
    before = content(shop / "out")
    conf.write_text(text.replace("epsilon: 1.0", "epsilon: 2.0"))
    assert main(["release", str(conf), "--run", "1"]) == 2
    assert one_sentence(capsys.readouterr().err)
    assert content(shop / "out") == before


CHANGES = [
    ("epsilon: 1.0", "epsilon: 0"),
    ("epsilon: 1.0", "epsilon: .nan"),
    ("epsilon: 1.0", "epsilon: true"),
    ("epsilon: 1.0", 'epsilon: "1"'),
    ("epsilon: 1.0, ", ""),
    ("epsilon: 1.0", "epsilon: ${SPARK_RDP_TEST_NOT_SET}"),
    (", max_groups: 2", ""),
    ("max_per_group: 3", "max_per_group: 0"),
    ("lower: 0, upper: 50", "lower: 50, upper: 0"),
    (", upper: 50", ""),
    ("type: sum", "type: median"),
    ("bins: [0, 5, 10, 20]", "bins: [0, 0]"),
    ("name: basket", "name: ORDERS"),
    ("name: shop", "name: ../shop"),
    ("kind: release", "kind: unknown"),
    ("kind: release", "kind: release\nsurprise: 1"),
    ("format: parquet, path", "format: excel, path"),
    ("group_by: {country: [DE, FR, XX]}", "group_by: [country]"),
    ("output: {", "# output: {"),
    ("  path: {folder}/orders.csv", ""),
    ("  schema:", "# schema:"),
    ("dataset: shop}", "dataset: unheard}"),
    ("sqlite:///", "nonsense:///"),
    ("kind: release", "kind: [unclosed"),
]


@pytest.mark.parametrize(("old", "new"), CHANGES, ids=[f"{old} -> {new}" for old, new in CHANGES])
def test_bad_configuration_is_one_sentence_before_spark_starts(shop, capsys, monkeypatch, old, new):
    conf = shop / "shop.yaml"
    text = conf.read_text()
    old = old.replace("{folder}", str(shop))
    assert old in text
    conf.write_text(text.replace(old, new, 1))
    if "dataset" not in new:
        main(["ledger", "create", "shop", "--epsilon", "9", "--url", f"sqlite:///{shop}/budget.db"])
        capsys.readouterr()
    monkeypatch.setattr("spark_rdp.spark.session.build", lambda *_, **__: pytest.fail("a Spark session was asked for"))
    assert main(["release", str(conf), "--run", "1"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert one_sentence(told.err), told.err
    assert not (shop / "out").exists()


@pytest.mark.parametrize("run", ["", "a/b", "..", "x y", "-x"])
def test_a_run_that_cannot_be_part_of_a_path_is_refused(shop, capsys, run):
    assert main(["release", str(shop / "shop.yaml"), f"--run={run}"]) == 2
    assert one_sentence(capsys.readouterr().err)
    assert main(["release", str(shop / "shop.yaml")]) == 2, "the report's name needs a run"
    assert one_sentence(capsys.readouterr().err)


@pytest.mark.parametrize("kind", ["absent", "directory", "binary", "empty", "list"])
def test_a_file_that_is_no_query_is_refused(tmp_path, capsys, kind):
    conf = tmp_path / "query.yaml"
    if kind == "directory":
        conf.mkdir()
    elif kind != "absent":
        conf.write_bytes({"binary": b"\xff\xfe\x00", "empty": b"", "list": b"- 1"}[kind])
    assert main(["release", str(conf)]) == 2
    assert one_sentence(capsys.readouterr().err)


def test_a_source_that_is_not_there_is_one_sentence(spark, shop, capsys):
    (shop / "orders.csv").unlink()
    main(["ledger", "create", "shop", "--epsilon", "9", "--url", f"sqlite:///{shop}/budget.db"])
    capsys.readouterr()
    assert main(["release", str(shop / "shop.yaml"), "--run", "1"]) == 2
    assert one_sentence(capsys.readouterr().err)
    assert main(["ledger", "show", "shop", "--url", f"sqlite:///{shop}/budget.db", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["spent_millionths"] == 0


def test_an_unwritable_report_is_told_after_publication(spark, shop, capsys):
    conf = shop / "shop.yaml"
    (shop / "taken").write_text("a file where a folder is needed")
    lines = [line for line in conf.read_text().splitlines() if not line.startswith(("ledger", "report"))]
    conf.write_text("\n".join([*lines, f"report: {shop}/taken/report.html"]))
    assert main(["release", str(conf), "--run", "1"]) == 4
    told = capsys.readouterr().err
    assert one_sentence(told)
    assert "The release itself is published" in told
    assert (shop / "out/run=1/manifest.json").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["create", "shop"],
        *(["create", "shop", "--epsilon", value] for value in ("0", "-1", "nan", "inf", "x")),
        ["create", "shop", "--epsilon", "1", "--delta", "1"],
        ["create", "", "--epsilon", "1"],
        ["show", "shop"],
        ["history", "shop"],
        ["show"],
    ],
    ids=" ".join,
)
def test_bad_ledger_commands_are_one_sentence(tmp_path, capsys, arguments):
    assert main(["ledger", *arguments, "--url", f"sqlite:///{tmp_path}/budget.db"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert one_sentence(told.err)


def test_a_budget_is_decided_once(tmp_path, capsys):
    create = ["ledger", "create", "shop", "--url", f"sqlite:///{tmp_path}/budget.db", "--epsilon"]
    assert main([*create, "1"]) == 0
    assert main([*create, "1"]) == 0
    capsys.readouterr()
    assert main([*create, "2"]) == 2
    assert one_sentence(capsys.readouterr().err)


def test_the_schema_knows_every_key_of_the_example(capsys):
    assert main(["schema", "release"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert {"name", "source", "privacy", "group_by", "measures", "output", "ledger", "report"} <= set(
        schema["properties"]
    )


def test_the_demo_can_be_run_twice_and_survives_another_version(spark, tmp_path, capsys):
    out = tmp_path / "demo-out"
    assert main(["demo", "--out", str(out)]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert "demo-orders is published." in told.out
    assert "±" in told.out
    assert (out / "report.html").stat().st_size > 10_000
    first = content(out / "orders")
    assert "manifest.json" in first

    assert main(["demo", "--out", str(out)]) == 0
    assert "was published before: read back" in capsys.readouterr().out
    assert content(out / "orders") == first

    # A ledger that knows the demo's release with another query, as another version would have left it.
    from spark_rdp.ledger import Ledger

    (out / "budget.db").unlink()
    ledger = Ledger(f"sqlite:///{out}/budget.db", "demo")
    ledger.create(epsilon=10.0)
    ledger.reserve("demo", "demo-orders", "a" * 64, 1_000_000)
    assert main(["demo", "--out", str(out)]) == 0
    assert "demo-orders is published." in capsys.readouterr().out
    assert content(out / "orders") != first
    assert "DEMO_OUT" not in os.environ
