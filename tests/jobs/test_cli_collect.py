"""`spark-rdp collect` with the documented example, from data to published rows."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_rdp.cli import main
from spark_rdp.demo import telemetry

EXAMPLE = Path(__file__).parents[2] / "conf" / "telemetry.yaml"
DATA = "demo-out/data/telemetry.parquet"
SECRET = "0123456789abcdef" * 4
#: 50 devices with 17 to 228 rows each, of which the example publishes 24.
ROWS = telemetry(rows=2000, devices=50)
PUBLISHED = 1152
BUDGET = (
    "A run publishes at most 24 of the rows of one device. Budgets add up: 24 times epsilon 1 is 24, and every further "
    "run adds as much."
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the example finds its data and its secret."""
    (tmp_path / DATA).parent.mkdir(parents=True)
    pq.write_table(ROWS, tmp_path / DATA)
    # A JVM that runs already looks for relative paths where it was started.
    (tmp_path / "conf.yaml").write_text(EXAMPLE.read_text(encoding="utf-8").replace(DATA, str(tmp_path / DATA)))
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "secret").chmod(0o600)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_example_is_published_once_and_then_read_back(
    spark: SparkSession, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["collect", "conf.yaml", "--run", "1"]
    assert main([*command, "--dry-run"]) == 0
    told = capsys.readouterr()
    assert "telemetry@1 would spend epsilon 1 on each row. Nothing was read." in told.out
    assert BUDGET in told.out
    assert not (folder / "out").exists()

    assert main(command) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert f"telemetry@1 is published. {PUBLISHED:,} rows in" in told.out
    assert BUDGET in told.out
    assert "Report: out/telemetry/report.html" in told.out
    page = (folder / "out" / "telemetry" / "report.html").read_text(encoding="utf-8")
    assert f"mean over all {PUBLISHED:,} rows" in page
    assert BUDGET in page
    published = folder / "out" / "telemetry" / "run=1"
    files = {file.name: file.read_bytes() for file in published.iterdir()}
    manifest = json.loads(files["manifest.json"])
    assert manifest["columns"] == "`country` string, `battery` double"
    assert manifest["privacy"] == {"unit": "device", "max_reports": 24, "unit_epsilon": 24.0, "composition": BUDGET}
    assert all(SECRET.encode() not in content for content in files.values())
    noisy = pq.ParquetFile(published / "part-00000.snappy.parquet").read()
    assert noisy.column_names == ["country", "battery"]
    assert noisy.num_rows == PUBLISHED == sum(min(size, 24) for size in Counter(ROWS["device"].to_pylist()).values())

    (folder / "secret").unlink()  # reading back needs neither the secret nor the data
    (folder / DATA).unlink()
    assert main(command) == 0
    assert "telemetry@1 was published before: nothing was read." in capsys.readouterr().out
    assert {file.name: file.read_bytes() for file in published.iterdir()} == files


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("lower: 0 ", "lower: 200 ", "columns[0].lower must be below upper"),
        ("column: battery", "column: charge", "columns[0].column must be a column of the source; got 'charge'."),
        ("secret: file:secret", "secret: file:nowhere", "secret must be an existing file"),
        ("output:", "# output:", "output must be given"),
        ("source:", "from:", "from is not a known key"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(
    spark: SparkSession, folder: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, sentence: str
) -> None:
    text = (folder / "conf.yaml").read_text(encoding="utf-8")
    assert old in text
    (folder / "conf.yaml").write_text(text.replace(old, new, 1))
    assert main(["collect", "conf.yaml"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"spark-rdp: {sentence}")
    assert told.err.count("\n") == 1
    assert not (folder / "out" / "telemetry").exists()


def test_the_schema_knows_every_key_of_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "collect"]) == 0
    keys = set(json.loads(capsys.readouterr().out)["properties"])
    assert {
        "kind",
        "name",
        "source",
        "row_key",
        "columns",
        "invalid",
        "null_policy",
        "keep",
        "memoize",
        "privacy",
    } <= keys
