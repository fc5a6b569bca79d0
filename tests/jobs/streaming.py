"""Streams that are killed: what test_stream.py does with some events, and by hand with two million.

``python tests/jobs/streaming.py EVENTS FILES KILLS`` publishes events by ``spark-rdp stream``, which is killed
at random moments (by SIGKILL, with its JVM and workers) and started again, and compares what is in the sink,
event by event, with what an uninterrupted stream of the same secret publishes.
"""

from __future__ import annotations

import json
import random
import secrets
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import yaml

from spark_rdp.queries.stream import StreamQuery
from spark_rdp.spark.stream import stream

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

SCHEMA = "device BIGINT, event_id BIGINT, battery DOUBLE, load DOUBLE"


def write_events(folder: Path, events: int, files: int) -> None:
    """JSON files; batteries go beyond their range, and some are missing."""
    folder.mkdir(parents=True)
    numbers = np.random.default_rng(5)
    size = events // files
    for file in range(files):
        battery, load = numbers.integers(-10, 111, size), numbers.integers(0, 100, size)
        lines = []
        for event, (one, two) in enumerate(zip(battery.tolist(), load.tolist(), strict=True), file * size):
            text = "null" if one == -10 else one
            lines.append(f'{{"device": {event % 97}, "event_id": {event}, "battery": {text}, "load": {two}}}')
        (folder / f"{file:05d}.json").write_text("\n".join(lines) + "\n")


def write_secret(folder: Path) -> str:
    """A new persistent secret; returns what a query says of it."""
    place = folder / "secret"
    place.write_text(secrets.token_hex(32))
    place.chmod(0o600)
    return f"file:{place}"


def query(folder: Path, name: str = "out", **changes: Any) -> dict[str, Any]:
    """A stream from ``folder/in`` to ``folder/NAME``, as in a query file."""
    return {
        "kind": "stream",
        "name": "telemetry",
        "source": {"format": "json", "path": str(folder / "in"), "schema": SCHEMA},
        "row_key": ["device", "event_id"],
        "columns": [
            {"column": "battery", "lower": 0, "upper": 100, "epsilon": 1, "mechanism": "podium"},
            {"column": "load", "lower": 0, "upper": 100, "epsilon": 0.7, "mechanism": "podium"},
        ],
        "keep": ["event_id"],
        "secret": f"file:{folder}/secret",
        "checkpoint": str(folder / f"{name}-checkpoint"),
        "quarantine": str(folder / f"{name}-quarantine"),
        "output": {"path": str(folder / name)},
        **changes,
    }


def paced(folder: Path, per_batch: int) -> dict[str, Any]:
    """The same, so many files at a time."""
    given = query(folder)
    return {**given, "source": {**given["source"], "options": {"maxFilesPerTrigger": per_batch}}}


def run_once(spark: SparkSession, given: dict[str, Any]) -> pd.DataFrame:
    """Publish what is there now; returns all that is in the sink, by event."""
    running = stream(StreamQuery.of(given), once=True, spark=spark)
    assert running.wait(timeout=180)
    return running.df.toPandas().sort_values("event_id", kind="stable", ignore_index=True)


def start(conf: Path, *more: str) -> subprocess.Popen[str]:
    """``spark-rdp stream`` as a process; its stderr tells the stages."""
    command = [sys.executable, "-m", "spark_rdp", "stream", str(conf), "--log-json", *more]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=pipe, stdin=subprocess.DEVNULL, text=True)


def wait_for(process: subprocess.Popen[str], stage: str) -> dict[str, Any]:
    """What a process tells when it has reached a stage."""
    assert process.stderr is not None
    for line in process.stderr:
        told: dict[str, Any] = json.loads(line)
        assert told["stage"] != "failed", told
        if told["stage"] == stage:
            return told
    raise AssertionError(f"ended before it was {stage}")


def kill(process: subprocess.Popen[str]) -> None:
    """End a process and all below it at once, as when a machine is lost."""
    below = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for each in below:
        with suppress(psutil.Error):
            each.kill()
    psutil.wait_procs(below, timeout=30)
    process.communicate(timeout=30)


def killed_and_started(folder: Path, given: dict[str, Any], kills: int, seed: int, longest: float) -> list[float]:
    """Start a stream again and again; each time it is killed at a random moment. Returns the moments."""
    conf = folder / "stream.yaml"
    conf.write_text(yaml.safe_dump(given))
    moments = []
    for _ in range(kills):
        process = start(conf)
        wait_for(process, "planned")
        moments.append(random.Random(seed + len(moments)).uniform(0.2, longest))
        time.sleep(moments[-1])
        assert process.poll() is None, "it has ended by itself"
        kill(process)
    return moments


def committed(given: dict[str, Any]) -> int:
    """How many batches a stream has committed."""
    return sum(file.name.isdigit() for file in Path(given["checkpoint"], "published", "commits").glob("*"))


def main(events: int, files: int, kills: int) -> None:
    """The experiment, with figures."""
    from spark_rdp.spark import session

    folder = Path(tempfile.mkdtemp(prefix="stream-"))
    write_events(folder / "in", events, files)
    write_secret(folder)
    given = paced(folder, 5)
    for number in range(kills):
        (moment,) = killed_and_started(folder, given, 1, number, 20.0)
        print(f"killed {moment:.1f} s after it was planned: {committed(given)} batches committed", flush=True)
    with session.opened("killed", master="local[2]") as spark:
        seen = run_once(spark, given)
        print(f"{committed(given)} batches, {len(seen)} events", flush=True)
        whole = run_once(spark, query(folder, "whole"))
        print(f"each once: {seen.event_id.tolist() == list(range(events))}; the same rows: {seen.equals(whole)}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
