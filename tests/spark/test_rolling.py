"""Rolling estimates: equal to those of a batch, once the stream has ended; over crashes, late rows, as it grows."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import spark_rdp as rdp
from spark_rdp.cli import main
from spark_rdp.errors import InvalidInput, JobFailed
from spark_rdp.queries import EstimateQuery
from spark_rdp.spark.rolling_state import State

BEGIN = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)
SECRET = "0123456789abcdef" * 4


def write_events(folder: Path, file: int, minutes: list[float]) -> None:
    """Events at some minutes after noon: as true values, the event's number modulo 100."""
    folder.mkdir(exist_ok=True)
    ids = np.arange(len(minutes)) + 10_000 * file
    columns = {
        "event_id": pa.array(ids),
        "country": pa.array(["DE" if number % 3 else "FR" for number in ids]),
        "at": pa.array([BEGIN + timedelta(minutes=minute) for minute in minutes], pa.timestamp("us", "UTC")),
        "battery": pa.array((ids % 100).astype(float)),
        "load": pa.array((ids % 10).astype(float)),
    }
    pq.write_table(pa.table(columns), folder / f"{file:03d}.parquet")


def publish(spark: SparkSession, folder: Path) -> None:
    """Publish what is there, a file at a time, as a stream does."""
    (folder / "secret").write_text(SECRET)
    (folder / "secret").chmod(0o600)
    schema = "event_id BIGINT, country STRING, at TIMESTAMP, battery DOUBLE, load DOUBLE"
    options = {"maxFilesPerTrigger": 1}
    columns = [
        {"column": "battery", "lower": 0, "upper": 100, "epsilon": 4, "mechanism": "podium"},
        {"column": "load", "lower": 0, "upper": 10, "epsilon": 4, "mechanism": "fitted"},
    ]
    asked = rdp.StreamQuery.of(
        {
            "name": "s",
            "source": {"format": "parquet", "path": str(folder / "in"), "schema": schema, "options": options},
            "row_key": ["event_id"],
            "columns": columns,
            "keep": ["country", "at"],
            "secret": f"file:{folder}/secret",
            "checkpoint": str(folder / "stream-checkpoint"),
            "malformed": "fail",
            "output": {"path": str(folder / "out")},
        }
    )
    assert rdp.stream(asked, once=True, spark=spark).wait(120)


def query(folder: Path, stream: Path, **changes: Any) -> EstimateQuery:
    """Rolling estimates in ``folder`` of what was published in ``stream``."""
    given: dict[str, Any] = {
        "name": "rolling",
        "collection": str(stream / "out"),
        "window": {"column": "at", "every": "10 minutes", "slide": "5 minutes", "late": "20 minutes"},
        "group_by": {"country": ["DE", "FR", "GB"]},
        "columns": [{"column": "battery", "statistics": ["mean", "total", "variance"]}, {"column": "load"}],
        "accept_unbounded": True,
        "checkpoint": str(folder / "checkpoint"),
        "output": {"path": str(folder / "rolling")},
    }
    return EstimateQuery(**(given | changes))


def once(spark: SparkSession, asked: EstimateQuery) -> pa.Table:
    """Count what is there now."""
    running = rdp.watch(asked, once=True, spark=spark)
    assert running.wait(120)
    return running.table()


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 100
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def in_batch(asked: EstimateQuery) -> pa.Table:
    return rdp.estimate(asked.model_copy(update={"output": None})).table()


@pytest.fixture(scope="module")
def ended(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream that has published 1,800 events of half an hour in three files, out of order, but never too late."""
    folder = tmp_path_factory.mktemp("ended")
    for file, (low, high) in enumerate([(0, 15), (5, 25), (12, 30)]):
        write_events(folder / "in", file, np.random.default_rng(file).uniform(low, high, 600).tolist())
    publish(spark, folder)
    return folder


def test_rolling_estimates_are_those_of_a_batch_also_after_a_crash(
    spark: SparkSession, ended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit by bit. The crash comes after the counts of the first batch were kept, before Spark knew that it was done."""
    asked = query(tmp_path, ended)
    whole = in_batch(asked)
    assert whole.num_rows == 7 * 3  # windows begin at 11:55, 12:00, ..., 12:25
    assert sum(whole["rows"].to_pylist()) == 2 * 1800  # each event is in two windows
    assert whole.column_names[:3] == ["window_start", "window_end", "country"]
    starts = whole["window_start"].to_pylist()
    assert starts[0] == BEGIN - timedelta(minutes=5)
    assert whole["window_end"].to_pylist() == [start + timedelta(minutes=10) for start in starts]

    with monkeypatch.context() as patch:
        patch.setattr(State, "publish", lambda *_: 1 / 0)
        running = rdp.watch(asked, once=True, spark=spark)
        with pytest.raises(JobFailed):
            running.wait(120)
    assert (tmp_path / "checkpoint/counts.parquet").is_file()
    assert not list((tmp_path / "rolling").glob("part-*"))
    assert once(spark, asked).equals(whole)
    assert once(spark, asked).equals(whole)  # nothing is new
    shutil.rmtree(tmp_path / "checkpoint/spark/commits")  # the commit of the batch was lost: it is counted again
    assert once(spark, asked).equals(whole)
    manifest = json.loads((tmp_path / "rolling/manifest.json").read_text())
    assert manifest["rows"] == 21
    assert manifest["group_columns"] == whole.column_names[:3]

    other = query(tmp_path, ended, confidence=0.9)
    with pytest.raises(InvalidInput, match="checkpoint must be that of this query and stream"):
        rdp.watch(other, once=True, spark=spark)


def test_intervals_hold_the_truth(spark: SparkSession, ended: Path) -> None:
    """Means and totals of 9 window groups in 99.9 % intervals; the secret is fixed: this passes always or never."""
    window = {"column": "at", "every": "10 minutes"}
    table = in_batch(query(ended, ended, window=window, confidence=0.999, group_by={"country": ["DE", "FR"]}))
    events = pa.concat_tables([pq.read_table(file) for file in sorted((ended / "in").glob("*.parquet"))]).to_pylist()
    assert table.num_rows == 6
    for row in table.to_pylist():
        own = [
            event
            for event in events
            if event["country"] == row["country"] and row["window_start"] <= event["at"] < row["window_end"]
        ]
        assert row["rows"] == len(own)
        for name in ("battery", "load"):
            truth = sum(event[name] for event in own)
            assert row[f"{name}_total_low"] <= truth <= row[f"{name}_total_high"]
            assert row[f"{name}_mean_low"] <= truth / len(own) <= row[f"{name}_mean_high"]


def test_a_folder_that_grows_and_rows_that_are_late(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of windows that were closed do not count, also after a restart; rows of open ones do, however late."""
    asked = query(tmp_path, tmp_path, window={"column": "at", "every": "10 minutes", "late": "20 minutes"})

    def counted(table: pa.Table) -> dict[float, int]:
        found: dict[float, int] = {}
        for row in table.to_pylist():
            minute = (row["window_start"] - BEGIN).total_seconds() / 60
            found[minute] = found.get(minute, 0) + row["rows"]
        return found

    write_events(tmp_path / "in", 0, [1.0] * 30 + [12.0] * 20)
    publish(spark, tmp_path)
    running = rdp.watch(asked, spark=spark)
    expected: dict[float, int] = {0: 30, 10: 20}
    wait_until(lambda: counted(running.table()) == expected)
    write_events(tmp_path / "in", 1, [35.0] * 5)  # the first window is closed with it, the second is open until 12:40
    publish(spark, tmp_path)
    wait_until(lambda: counted(running.table()) == {**expected, 30: 5})
    told: list[int] = []  # a batch is told of when it has ended, which is after its estimates can be read

    def two_are_told() -> bool:
        told.extend(each.windows for each in running.batches())
        return len(told) > 1

    wait_until(two_are_told)
    assert told == [2, 1]
    # Spark closes windows in the batch after the one that moves the watermark, if need be one without rows.
    progress = running._running
    wait_until(lambda: any(one.eventTime.get("watermark", "")[11:16] == "12:15" for one in progress.recentProgress))
    running.stop()
    write_events(tmp_path / "in", 2, [9.0] * 7 + [11.0] * 8 + [36.0] * 2)
    publish(spark, tmp_path)
    table = once(spark, asked)
    assert counted(table) == {0: 30, 10: 28, 30: 7}
    whole = in_batch(asked)
    assert counted(whole) == {0: 37, 10: 28, 30: 7}  # a batch looks at all rows at once: none is late
    assert table.slice(3).equals(whole.slice(3))


def test_files_of_a_batch_that_was_killed_do_not_count(spark: SparkSession, ended: Path, tmp_path: Path) -> None:
    """What lies in the folder of a stream counts when the log of the sink says so."""
    (file, *_) = (ended / "out").glob("part-*")
    extra = file.with_name("part-00099-killed.snappy.parquet")
    shutil.copy(file, extra)
    try:
        table = in_batch(query(tmp_path, ended, group_by=None, window=None, columns=[{"column": "battery"}]))
    finally:
        extra.unlink()
    assert table["rows"].to_pylist() == [1800]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"columns": [{"column": "battery", "bins": 5}]}, "battery: rolling estimates are means, totals and variances"),
        ({"columns": [{"column": "battery", "quantiles": [0.5]}]}, "rolling estimates are means, totals and variances"),
        ({"window": {"column": "at", "every": "10 minutes"}}, "window.late must be given"),
        ({"window": None}, "window must be given"),
        ({"checkpoint": None}, "checkpoint must be given"),
        (
            {"window": {"column": "load", "every": "1 hour", "late": "1 hour"}},
            "window.column must be columns that were",
        ),
        (
            {"window": {"column": "country", "every": "1 hour", "late": "1 hour"}},
            "window.column must be a column of ti",
        ),
    ],
)
def test_what_cannot_be_watched(
    spark: SparkSession, ended: Path, tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        rdp.watch(query(tmp_path, ended, **changes), once=True, spark=spark)
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize(
    ("window", "sentence"),
    [
        ({"column": "at", "every": "10"}, "window.every must be a time such as 10 minutes; got '10'"),
        ({"column": "at", "every": "0 minutes"}, "window.every must be a time such as 10 minutes"),
        ({"column": "at", "every": "5 minutes", "slide": "1 hour"}, "window.slide must be at most 5 minutes"),
    ],
)
def test_windows_are_checked(tmp_path: Path, window: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        query(tmp_path, tmp_path, window=window)


def test_the_command_watches(
    spark: SparkSession,
    ended: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the documented example, changed to this stream; it tells of every batch, and writes table and page."""
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "conf/rolling.yaml").read_text(encoding="utf-8")
    text = text.replace("out/stream", str(ended / "out"))
    (tmp_path / "conf.yaml").write_text(text)
    assert main(["estimate", "conf.yaml", "--once"]) == 2
    assert main(["estimate", "conf.yaml", "--watch", "--run", "1"]) == 2
    capsys.readouterr()
    assert main(["estimate", "conf.yaml", "--watch", "--once"]) == 0
    told = capsys.readouterr()
    for words in ("windows have changed", "window_start", "battery mean", "A window is closed", "rows in out/rolling."):
        assert words in told.out, words
    assert "<html" in (tmp_path / "out/rolling.html").read_text()
    assert pq.read_table(tmp_path / "out/rolling/part-00000.snappy.parquet").num_rows > 0


def test_it_goes_on_until_sigterm(ended: Path, tmp_path: Path) -> None:
    """As a process of its own, which ends with exit code 0 when it is told to."""
    conf = tmp_path / "conf.yaml"
    asked = query(tmp_path, ended)
    given = json.loads(json.dumps(asked.describe()))
    given["group_by"] = {"country": ["DE", "FR", "GB"]}
    conf.write_text(json.dumps(given))  # JSON is YAML
    command = [sys.executable, "-m", "spark_rdp", "estimate", str(conf), "--watch", "--log-json"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert any('"batch"' in line for line in process.stderr)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert pq.read_table(tmp_path / "rolling/part-00000.snappy.parquet").equals(in_batch(asked))
