"""A stream as a process: killed at random moments, told to stop, started with what has changed."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import yaml
from jobs.streaming import committed, killed_and_started, paced, query, run_once, start, wait_for, write_events
from jobs.streaming import write_secret as secret
from pyspark.sql import SparkSession

EVENTS, FILES, KILLS = 200_000, 20, 3
#: So that a fast machine is not done before it is killed or told to stop.
SLOWLY = {"trigger": {"every": "2 seconds"}}


def test_killed_at_random_moments(spark: SparkSession, tmp_path: Path) -> None:
    """Every event is once in the sink, with the noise that an uninterrupted stream draws."""
    write_events(tmp_path / "in", EVENTS, FILES)
    secret(tmp_path)
    given = paced(tmp_path, 2) | SLOWLY
    killed_and_started(tmp_path, given, KILLS, seed=1, longest=6.0)
    before = committed(given)
    assert before < FILES // 2  # it was killed, not done
    seen = run_once(spark, given)
    # Files whose batch was not noted when it was killed become part of the next one.
    assert before < committed(given) <= FILES // 2
    assert seen.event_id.tolist() == list(range(EVENTS))
    assert seen.equals(run_once(spark, query(tmp_path, "whole")))


def test_told_to_stop_and_started_again(tmp_path: Path) -> None:
    """SIGTERM ends it with 0 in the middle; what it told of each batch adds up over both starts."""
    write_events(tmp_path / "in", 10_000, 10)
    secret(tmp_path)
    conf = tmp_path / "stream.yaml"
    conf.write_text(yaml.safe_dump(paced(tmp_path, 1) | SLOWLY))
    process = start(conf)
    first = wait_for(process, "batch")
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    told = [first, *map(json.loads, process.stderr)]
    assert process.wait(timeout=60) == 0
    assert told[-1]["stage"] == "stopped"
    assert committed(paced(tmp_path, 1)) < 10
    assert {one["for_release"] for one in told if one["stage"] == "batch"} == {False}
    process = start(conf, "--once")
    assert process.stderr is not None
    told += map(json.loads, process.stderr)
    assert process.wait(timeout=60) == 0
    batches = [one for one in told if one["stage"] == "batch"]
    assert [one["batch"] for one in batches] == list(range(len(batches)))
    assert sum(one["rows_in"] for one in batches) == 10_000
