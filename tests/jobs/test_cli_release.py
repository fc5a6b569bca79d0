"""`spark-rdp release` from a file of a user to a published folder, and everything that can be wrong with it."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import runpy
import sys
import types
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
    assert "Left on shop: epsilon 1.5 and delta 0; enough. Afterwards: epsilon 0.5." in told.out
    assert "The epsilons of all releases add up" in told.out
    assert not (shop / "out").exists()

    assert main(["release", conf, "--run", "1"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert "shop@1 is published." in told.out
    assert "Charged epsilon 1 to shop. Left: 0.5." in told.out
    assert "epsilon 1 of 1.5 spent, 0.5 left, with this release and 0 before it" in told.out
    assert "The epsilons of all releases add up, and so do their deltas." in told.out
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
    told = capsys.readouterr().out
    assert "not enough, it would be refused" in told
    assert "epsilon is short by 0.5 " in told
    assert main(["release", conf, "--run", "1", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "It is published in" in told
    assert "running it again costs nothing" in told

    assert main(["ledger", "show", "shop", "--url", url, "--json"]) == 0
    balance = json.loads(capsys.readouterr().out)
    assert (balance["spent_millionths"], balance["remaining_epsilon"], balance["releases"]) == (1_000_000, 0.5, 1)
    assert main(["ledger", "history", "shop", "--url", url, "--json"]) == 0
    assert [entry["event"] for entry in json.loads(capsys.readouterr().out)] == ["reserved", "prepared", "published"]

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
    ("path: {folder}/out", "path: s3a://bucket/out"),
    ("dataset: shop}", "dataset: shop, fingerprint: sales@v3}"),
    (", dataset: shop}", "}"),
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
    for more in ((), ("--dry-run",)):
        assert main(["release", str(conf), "--run", "1", *more]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert one_sentence(told.err), told.err
        assert not (shop / "out").exists()


def test_every_stage_is_one_line_of_json_without_data(spark, shop, capsys):
    conf = shop / "shop.yaml"
    url = f"sqlite:///{shop}/budget.db"
    main(["ledger", "create", "shop", "--epsilon", "1.5", "--url", url])
    capsys.readouterr()

    def lines(run: str, code: int) -> list[dict[str, object]]:
        assert main(["release", str(conf), "--run", run, "--log-json"]) == code
        return [json.loads(line) for line in capsys.readouterr().err.splitlines()]

    told = lines("1", 0)
    assert [line["stage"] for line in told] == ["planned", "reserved", "computing", "prepared", "published"]
    assert {line["release_id"] for line in told} == {"shop@1"}
    assert (told[1]["epsilon"], told[1]["remaining_epsilon"], told[1]["dataset"]) == (1.0, 0.5, "shop")
    known = {"at", "stage", "release_id", "query_digest", "epsilon", "delta", "dataset", "new", "remaining_epsilon"}
    assert set().union(*told) == known | {"content_digest", "rows", "folder"}
    assert told[-1]["rows"] == 3, "the declared keys, which are no data"
    assert [line["stage"] for line in lines("1", 0)] == ["planned", "reserved", "read-back"]
    refused = lines("2", 3)
    assert [line["stage"] for line in refused] == ["planned", "failed"]
    assert refused[-1]["exit_code"] == 3
    assert "epsilon is short by 0.5" in str(refused[-1]["message"])
    conf.write_text(conf.read_text().replace("epsilon: 1.0", "epsilon: -1"))
    (failed,) = lines("3", 2)
    assert (failed["stage"], failed["exit_code"]) == ("failed", 2)


def test_the_scheduled_example_runs(shop, capsys, monkeypatch):
    """The command of conf/airflow_daily.py, with the day filled in as Airflow does; Airflow itself is not needed."""
    commands: list[str] = []
    operators = types.ModuleType("airflow.providers.standard.operators.bash")
    operators.BashOperator = lambda *, bash_command, **_: commands.append(bash_command)
    sdk = types.ModuleType("airflow.sdk")
    sdk.DAG = lambda *_, **__: contextlib.nullcontext()
    for name, module in {operators.__name__: operators, sdk.__name__: sdk}.items():
        monkeypatch.setitem(sys.modules, name, module)
    root = Path(__file__).resolve().parents[2]
    runpy.run_path(str(root / "conf/airflow_daily.py"))
    (command,) = commands
    program, *arguments = command.replace("{{ ds }}", "2026-11-30").replace("conf/", f"{root}/conf/").split()
    assert program == "spark-rdp"
    monkeypatch.chdir(shop)
    main(["ledger", "create", "orders", "--epsilon", "30"])
    capsys.readouterr()
    assert main([*arguments, "--dry-run"]) == 0
    assert "orders-by-country@2026-11-30 would cost epsilon 1." in capsys.readouterr().out


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
    assert "is published; run the same command again for the page" in told
    assert (shop / "out/run=1/manifest.json").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["create", "shop"],
        *(["create", "shop", "--epsilon", value] for value in ("0", "-1", "nan", "inf", "x")),
        ["create", "shop", "--epsilon", "1", "--delta", "1"],
        ["create", "", "--epsilon", "1"],
        ["create", "shop", "--epsilon", "1", "--accounting", "renyi"],
        ["create", "shop", "--epsilon", "1", "--accounting", "pld"],
        ["show", "shop"],
        ["show", "shop", "--window", "0d"],
        ["history", "shop"],
        ["history", "shop", "--since", "yesterday"],
        ["abandon", "shop", "r"],
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


def test_a_window_is_shown_beside_the_life_time(tmp_path, capsys):
    from spark_rdp.ledger import Ledger

    url = f"sqlite:///{tmp_path}/budget.db"
    months_ago = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=60)
    Ledger(url).create("shop", 3.0)
    Ledger(url, clock=lambda: months_ago).reserve("shop", "old", "a" * 64, 1_000_000)
    Ledger(url).reserve("shop", "new", "a" * 64, 250_000)
    assert main(["ledger", "show", "shop", "--url", url, "--window", "30d"]) == 0
    told = capsys.readouterr().out
    assert "epsilon 0.25, delta 0 by 1 release." in told
    assert "In the life of shop: epsilon 1.25, delta 0 by 2 releases; left: 1.75." in told
    assert main(["ledger", "show", "shop", "--url", url, "--window", "9w", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["window"]["spent_epsilon"], told["spent_epsilon"], told["remaining_epsilon"]) == (1.25, 1.25, 1.75)
    since = (months_ago + datetime.timedelta(days=1)).isoformat()
    assert main(["ledger", "history", "shop", "--url", url, "--since", since]) == 0
    told = capsys.readouterr().out
    assert "new" in told
    assert "old" not in told
    assert "In the life of shop: epsilon 1.25" in told
    assert main(["ledger", "abandon", "shop", "new", "--url", url]) == 0
    assert "left: 2." in capsys.readouterr().out


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
