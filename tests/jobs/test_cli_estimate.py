"""`spark-rdp estimate` with the documented example, from collected rows to answers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_rdp.cli import main
from spark_rdp.demo import telemetry

CONF = Path(__file__).parents[2] / "conf"
DATA = "demo-out/data/telemetry.parquet"


@pytest.fixture(scope="module")
def collected(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What conf/telemetry.yaml leaves behind, in a folder of its own."""
    folder = tmp_path_factory.mktemp("estimate")
    pq.write_table(telemetry(rows=20_000, devices=2000), folder / "data.parquet")
    (folder / "secret").write_text("0123456789abcdef" * 4)
    (folder / "secret").chmod(0o600)
    text = (CONF / "telemetry.yaml").read_text(encoding="utf-8").replace(DATA, str(folder / "data.parquet"))
    text = text.replace("file:secret", f"file:{folder / 'secret'}").replace(
        "out/telemetry", str(folder / "out/telemetry")
    )
    (folder / "collect.yaml").write_text(text)
    assert main(["collect", str(folder / "collect.yaml"), "--run", "1"]) == 0
    return folder


@pytest.fixture
def folder(collected: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(collected / "out", tmp_path / "out")
    shutil.copy(CONF / "estimate.yaml", tmp_path / "conf.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_example_is_answered_once_and_then_read_back(
    collected: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["estimate", "conf.yaml", "--run", "1"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    for words in ("battery mean", "battery variance", "battery q50", "share of the values", "DE", "FR", "GB"):
        assert words in told.out, words
    assert "what is true of the very rows" in told.out
    assert "battery-by-country@1 is published. 3 rows in out/battery/run=1" in told.out
    assert "Nothing was charged" in told.out
    published = folder / "out" / "battery" / "run=1"
    files = {file.name: file.read_bytes() for file in published.iterdir()}
    assert json.loads(files["manifest.json"])["collections"][0]["release_id"] == "telemetry@1"
    # Of all rows: those of the busiest devices that are left out are drawn, and move a mean by less than 1.
    truth = pq.read_table(collected / "data.parquet").to_pandas().groupby("country").battery.mean()
    for row in pq.ParquetFile(published / "part-00000.snappy.parquet").read().to_pylist():
        # Four standard errors for three groups, with a fixed secret: a wrong alarm for one secret in 5,000.
        half = (row["battery_mean_high"] - row["battery_mean_low"]) / 2
        assert abs(row["battery_mean"] - truth[row["country"]]) < 2.05 * half
        assert half < 9

    shutil.rmtree(folder / "out" / "telemetry")  # reading back needs no collection
    assert main(["estimate", "conf.yaml", "--run", "1"]) == 0
    assert "battery-by-country@1 was published before: read back." in capsys.readouterr().out
    assert {file.name: file.read_bytes() for file in published.iterdir()} == files


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "column: battery",
            "column: charge",
            "columns[0].column must be a noised column of the collection; got 'charge'",
        ),
        ("out/telemetry", "out/nowhere", "collection must be the folder of a published collection"),
        ("country:", "town:", "group_by must be a column of the source; got 'town'."),
        ("[DE, FR, GB]", "[1, 2]", "group_by.country must be keys of the type of the column (string); got 1."),
        ("confidence: 0.95", "confidence: 95", "confidence must be a number between 0.5 and"),
        ("output:", "# output:", "output must be given"),
        ("collection:", "from:", "from is not a known key"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, sentence: str
) -> None:
    text = (folder / "conf.yaml").read_text(encoding="utf-8")
    settings = text[text.index("kind:") :]  # not the comment above
    assert old in settings
    (folder / "conf.yaml").write_text(settings.replace(old, new, 1))
    assert main(["estimate", "conf.yaml"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"spark-rdp: {sentence}")
    assert told.err.count("\n") == 1
    assert not (folder / "out" / "battery").exists()


def test_a_budget_without_bound_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As an earlier version wrote its manifests."""
    file = folder / "out" / "telemetry" / "run=1" / "manifest.json"
    manifest = json.loads(file.read_text())
    assert manifest.pop("privacy")["unit_epsilon"] == 24
    file.write_text(json.dumps(manifest))
    capsys.readouterr()
    assert main(["estimate", "conf.yaml"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("spark-rdp: collection must bound the budget of a unit; that of ")
    assert told.err.endswith(
        "is unbounded: add `privacy` to the collection, or `accept_unbounded: true` to this query to proceed.\n"
    )
    assert told.err.count("\n") == 1
    assert not (folder / "out" / "battery").exists()


def test_the_schema_knows_every_key_of_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "estimate"]) == 0
    keys = set(json.loads(capsys.readouterr().out)["properties"])
    assert {
        "kind",
        "name",
        "collection",
        "group_by",
        "columns",
        "confidence",
        "intervals",
        "post",
        "output",
        "accept_unbounded",
    } <= keys
