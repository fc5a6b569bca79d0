"""`spark-rdp release` with the other kinds: the commented examples run, and mistakes are told in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_rdp.cli import main

CONF = Path(__file__).resolve().parent.parent.parent / "conf"
KINDS = ("degrees", "ranges", "averages")


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A folder with the data and the ledger that the examples name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    edges = [f"{user},{friend}" for user in range(300) for friend in (user + 1, user * 7 % 300, user)]
    (tmp_path / "data/friendships.csv").write_text("\n".join(["user,friend", *edges, "5,", ",", "x,y"]) + "\n")
    orders = [f"{c},{('FR', 'DE', 'XX')[c % 3]},{c % 31},{c % 110}.5" for c in range(400)]
    (tmp_path / "data/orders.csv").write_text(
        "\n".join(["customer,country,day,amount", *orders, ",DE,1,2", "1,DE,,"]) + "\n"
    )
    for dataset in ("friendships", "orders"):
        assert main(["ledger", "create", dataset, "--epsilon", "2", "--url", "sqlite:///budget.db"]) == 0
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_an_example_is_planned_published_once_read_back_and_explained(spark, place, capsys, kind):
    # Spark's own working folder is not this one.
    (place / "conf.yaml").write_text((CONF / f"{kind}.yaml").read_text().replace("path: data/", f"path: {place}/data/"))
    command = ["release", "conf.yaml", "--run", "1"]
    capsys.readouterr()
    assert main([*command, "--dry-run"]) == 0
    assert "would cost epsilon 1" in capsys.readouterr().out
    assert not (place / "out").exists()

    assert main(command) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert "@1 is published." in told.out
    assert "Charged epsilon 1 to" in told.out
    assert "±" in told.out
    (manifest,) = place.glob("out/*/run=1/manifest.json")
    files = {file.name: file.read_bytes() for file in manifest.parent.iterdir()}
    assert json.loads(files["manifest.json"])["plan"]["kind"] == kind
    page = manifest.parent.parent / "report.html"
    first = page.read_text()
    assert "<svg" in first
    assert "<image" not in first, "a picture of pixels would be blocked by the page's own policy"
    assert "mathdefault" not in first

    assert main(command) == 0
    assert "was published before: read back, nothing was charged" in capsys.readouterr().out
    assert {file.name: file.read_bytes() for file in manifest.parent.iterdir()} == files
    assert main(["report", str(manifest), "--output", str(place / "again.html")]) == 0
    assert (place / "again.html").read_text() == first


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("degrees", "protect: edge", "protect: person"),
        ("degrees", "max_degree: 100", "max_degree: 20000"),
        ("degrees", "kind: degrees", "kind: degree"),
        ("degrees", "nodes: 20000", "nodes: 20000\nsurprise: 1"),
        ("ranges", "max_groups: 5", "max_groups: 0"),
        ("ranges", "workload: ranges", "workload: all"),
        ("ranges", "range: [0, 29]", "range: [0, 2900000]"),
        ("averages", "window: 7", "window: 31"),
        ("averages", "type: count", "type: median"),
        ("averages", "epsilon: 1.0", "epsilon: .nan"),
    ],
)
def test_bad_configuration_is_one_sentence_before_spark_starts(tmp_path, capsys, monkeypatch, kind, old, new):
    text = (CONF / f"{kind}.yaml").read_text()
    assert old in text
    (tmp_path / "x.yaml").write_text(text.replace(old, new, 1))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("spark_rdp.spark.session.build", lambda *_, **__: pytest.fail("a Spark session was asked for"))
    assert main(["release", "x.yaml", "--run", "1"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("spark-rdp: ")
    assert told.err.count("\n") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_lists_every_key_of_the_example(capsys, kind):
    from spark_rdp.queries.reading import read_yaml

    assert main(["schema", kind]) == 0
    assert set(read_yaml(CONF / f"{kind}.yaml")) <= set(json.loads(capsys.readouterr().out)["properties"])
