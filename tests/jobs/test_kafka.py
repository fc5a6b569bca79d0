"""From a real Kafka broker through ``spark-rdp stream`` to estimates, with the broker killed in the middle.

Where the jars of broker and connector cannot be had the test is skipped, and says which and why.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from jobs import kafka, servers
from spark_rdp.queries import CollectQuery, EstimateQuery
from spark_rdp.spark.collect import collect
from spark_rdp.spark.estimate import estimate

EVENTS = 300
SECRET = "0123456789abcdef" * 4
QUERY = """
kind: stream
name: telemetry
source:
  format: kafka
  options: {kafka.bootstrap.servers: ADDRESS, subscribe: telemetry, startingOffsets: earliest}
  payload: {column: value, schema: "number BIGINT, battery DOUBLE"}
row_key: [topic, partition, offset]
columns: [{column: battery, lower: 0, upper: 100, epsilon: 2, mechanism: podium}]
keep: [topic, partition, offset, number]
secret: env:SUBMITTED_SECRET
output: {path: FOLDER/out}
checkpoint: FOLDER/checkpoint
quarantine: FOLDER/quarantine
"""


@pytest.fixture(scope="module")
def jars() -> Path:
    try:
        return kafka.jars()
    except kafka.NotToBeHadError as error:
        pytest.skip(f"needs a Kafka broker and Spark's connector: {error}")


def battery(number: int) -> float:
    return float(number * 7 % 101)


def records(start: int, stop: int) -> list[str]:
    return [json.dumps({"number": number, "battery": battery(number)}) for number in range(start, stop)]


@contextmanager
def streaming(folder: Path, jars: Path) -> Iterator[subprocess.Popen[bytes]]:
    """``spark-rdp stream`` on the query in ``folder``; what it says goes to ``stream.log``."""
    connector = ",".join(str(jar) for jar in sorted((jars / "connector").glob("*.jar")))
    environment = servers.environment(
        folder, PYSPARK_SUBMIT_ARGS=f"--master local[2] --jars {connector} pyspark-shell", SUBMITTED_SECRET=SECRET
    )
    command = [sys.executable, servers.ROOT / "jobs" / "stream.py", "query.yaml", "--log-json"]
    environment["PYTHONPATH"] = os.pathsep.join([str(servers.ROOT), os.environ.get("PYTHONPATH", "")])
    with (folder / "stream.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        servers.kill(process)


def published(folder: Path) -> int:
    """How many events the stream says it has published."""
    lines = [json.loads(line) for line in (folder / "stream.log").read_text().splitlines() if line.startswith('{"at"')]
    return sum(line["published"] for line in lines if line["stage"] == "batch")


def wait(process: subprocess.Popen[bytes], folder: Path, events: int) -> None:
    began = time.monotonic()
    while published(folder) < events:
        if process.poll() is not None or time.monotonic() - began > 120:
            raise AssertionError((folder / "stream.log").read_text()[-4000:])
        time.sleep(0.2)


def test_events_of_a_broker_that_is_killed_are_published_once_and_estimated(
    spark: SparkSession, tmp_path: Path, jars: Path
) -> None:
    """The interval of the mean is of 99.9999 %: a false alarm has a chance of 1e-6."""
    with kafka.broker(tmp_path, jars) as broker:
        text = QUERY.replace("ADDRESS", broker.address).replace("FOLDER", str(tmp_path))
        (tmp_path / "query.yaml").write_text(text)
        broker.produce("telemetry", records(0, EVENTS // 2))
        with streaming(tmp_path, jars) as process:
            wait(process, tmp_path, EVENTS // 2)
            broker.kill()
            broker.start()
            broker.produce("telemetry", ['{"number": 7, "battery": "SECRET-PAYLOAD"}', *records(EVENTS // 2, EVENTS)])
            wait(process, tmp_path, EVENTS)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0
    log = (tmp_path / "stream.log").read_text()
    assert "SECRET-PAYLOAD" not in log
    assert SECRET not in log

    rows = spark.read.parquet(f"file://{tmp_path}/out").collect()
    assert sorted(row.number for row in rows) == list(range(EVENTS))
    assert len({(row.topic, row.partition, row.offset) for row in rows}) == EVENTS
    assert {row.partition for row in rows} == {0, 1}
    [note] = spark.read.parquet(f"file://{tmp_path}/quarantine").collect()
    assert (note.topic, note.partition in (0, 1), note.offset >= 0) == ("telemetry", True, True)
    assert "SECRET-PAYLOAD" not in repr(note)

    at_rest = collected(spark, rows, tmp_path / "at-rest")
    assert {row.number: row.battery for row in at_rest} == {row.number: row.battery for row in rows}
    question = EstimateQuery(
        name="answers", collection=str(tmp_path / "out"), confidence=0.999999, accept_unbounded=True
    )
    [answer] = estimate(question, spark=spark).table().to_pylist()
    truth = sum(map(battery, range(EVENTS))) / EVENTS
    assert answer["rows"] == EVENTS
    assert answer["battery_mean_low"] <= truth <= answer["battery_mean_high"]


def collected(spark: SparkSession, rows: list[Row], folder: Path) -> list[Row]:
    """What a collection at rest publishes of the same events under the same secret."""
    events = [(row.topic, row.partition, row.offset, row.number, battery(row.number)) for row in rows]
    frame = spark.createDataFrame(events, "topic STRING, partition INT, offset BIGINT, number BIGINT, battery DOUBLE")
    query = CollectQuery(
        name="telemetry",
        row_key=["topic", "partition", "offset"],
        keep=["number"],
        columns=[{"column": "battery", "lower": 0, "upper": 100, "epsilon": 2, "mechanism": "podium"}],
        output={"path": str(folder)},
    )
    return collect(frame, query, secret=bytes.fromhex(SECRET)).df.collect()
