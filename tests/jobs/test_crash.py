"""SIGKILL at every enumerated moment and at random ones, then the same release id again."""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs import crashing
from spark_rdp import folders, publishing
from spark_rdp.errors import InvalidInput
from spark_rdp.ledger import Ledger
from spark_rdp.spark import release

MOMENTS = re.findall(r"^``([a-z-]+)``  ", publishing.__doc__ or "", re.MULTILINE)


EVENTS = ["reserved", "prepared", "published"]


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def check_one_publication(folder: Path, visible: dict[str, bytes]) -> None:
    """After a crash: the same id ends in one publication and one charge, and nothing visible ever changed."""
    ledger = Ledger(f"sqlite:///{folder}/budget.db", "orders")
    charged = ledger.balance().releases
    crashing.publish(folder, "second")
    out = folder / "out"
    after = snapshot(out)
    if visible:
        assert after == visible
    assert [file.name for file in out.iterdir()] == ["run=1"]
    manifest = json.loads(after["run=1/manifest.json"])
    assert manifest["content_digest"] == folders.content_digest(out / "run=1")
    assert (charged <= 1, ledger.balance().releases, ledger.balance().spent_epsilon) == (True, 1, 0.4)
    assert [entry.event for entry in ledger.history()] == EVENTS
    crashing.publish(folder, "third")
    assert snapshot(out) == after


def visible(folder: Path) -> dict[str, bytes]:
    """What somebody could have seen: everything in the output folder that is not hidden."""
    files = snapshot(folder / "out") if (folder / "out").exists() else {}
    return {name: content for name, content in files.items() if not name.startswith(".")}


def start(folder: Path, moment: str, *more: str) -> subprocess.Popen[str]:
    Ledger(f"sqlite:///{folder}/budget.db").create("orders", 1.0)
    command = [sys.executable, str(Path(crashing.__file__)), moment, str(folder), "first", *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_the_moments_are_the_eight_of_the_table() -> None:
    assert len(MOMENTS) == 8


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at_a_named_moment(tmp_path: Path, moment: str) -> None:
    process = start(tmp_path, moment)
    assert process.wait(timeout=60) == -signal.SIGKILL
    seen = visible(tmp_path)
    assert bool(seen) == moment.startswith("published")
    check_one_publication(tmp_path, seen)
    fixed = MOMENTS.index(moment) >= MOMENTS.index("prepared")
    values = (tmp_path / "out/run=1/part-00000.snappy.parquet").read_text()
    assert ("first" in values, "second" in values) == (fixed, not fixed)


@pytest.mark.parametrize("moment", ["prepared", "published-folder"])
def test_killed_and_then_moved_away(tmp_path: Path, moment: str) -> None:
    """What somebody could have seen is not drawn a second time; put back, it is the release."""
    assert start(tmp_path, moment).wait(timeout=60) == -signal.SIGKILL
    out = tmp_path / "out"
    out.rename(tmp_path / "moved")
    with pytest.raises(InvalidInput, match="not drawn again"):
        crashing.publish(tmp_path, "second")
    shutil.rmtree(out)
    (tmp_path / "moved").rename(out)
    check_one_publication(tmp_path, visible(tmp_path))
    assert "first" in (out / "run=1/part-00000.snappy.parquet").read_text()


def test_two_schedulers_at_once(tmp_path: Path) -> None:
    """One computes, the other waits for it; both end with the same bytes, one publication and one charge."""
    processes = [start(tmp_path, "never") for _ in range(2)]
    told = [process.communicate(timeout=60)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert told[0][1] == told[1][1]
    assert sorted(words[2] for words in told) == ["computed", "read-back"]
    check_one_publication(tmp_path, visible(tmp_path))


@pytest.mark.parametrize("number", range(10))
def test_killed_at_a_random_moment(tmp_path: Path, number: int) -> None:
    process = start(tmp_path, "never")
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(random.Random(number).uniform(0, 0.08))
    process.kill()
    process.wait(timeout=60)
    check_one_publication(tmp_path, visible(tmp_path))


def write_rows(folder: Path) -> None:
    (folder / "in.csv").write_text("".join(f"{n % 50},{'abcd'[n % 4]},{n % 9}\n" for n in range(400)))


def test_real_releases_are_killed_and_continued(tmp_path: Path, spark: SparkSession) -> None:
    """Releases on Spark, killed at two named moments and two others; then every id again, and again."""
    kills = ["written", "published-folder", 0.8, 2.0]
    running: list[subprocess.Popen[str]] = []
    for number, kill in enumerate(kills):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_rows(folder)
        process = start(folder, kill if isinstance(kill, str) else "never", "release")
        running.append(process)
        if isinstance(kill, float):
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(kill)
            process.kill()
    ended = [process.wait(timeout=240) for process in running]
    assert ended[:-1] == [-signal.SIGKILL] * (len(kills) - 1)
    seen = [visible(tmp_path / str(number)) for number in range(len(kills))]
    assert (bool(seen[0]), bool(seen[1])) == (False, True)
    for number, before in enumerate(seen):
        folder = tmp_path / str(number)
        result = release.release(None, crashing.query(folder), run="1", spark=spark)
        after = snapshot(folder / "out")
        assert after == before or not before
        assert result.already_published == bool(before)
        assert [file.name for file in (folder / "out").iterdir()] == ["run=1"]
        assert release.release(None, crashing.query(folder), run="1", spark=spark).df.collect() == result.df.collect()
        assert snapshot(folder / "out") == after
        ledger = Ledger(f"sqlite:///{folder}/budget.db", "orders")
        assert (ledger.balance().releases, ledger.balance().spent_epsilon) == (1, 0.4)
        assert [entry.event for entry in ledger.history()] == EVENTS


def test_other_kinds_are_killed_and_continued(tmp_path: Path, spark: SparkSession) -> None:
    """Degrees, ranges and averages, each killed between two steps: one publication, one charge, what was fixed stays.

    What the ledger knew (``prepared``) or somebody could see is published to the byte, noised numbers included.
    """
    kills = {"degrees": "prepared", "ranges": "written", "averages": "published-folder"}
    processes = []
    for kind, moment in kills.items():
        (tmp_path / kind).mkdir()
        write_rows(tmp_path / kind)
        processes.append(start(tmp_path / kind, moment, kind))
    assert [process.wait(timeout=240) for process in processes] == [-signal.SIGKILL] * len(kills)
    for kind in kills:
        folder = tmp_path / kind
        seen = visible(folder)
        assert bool(seen) == (kind == "averages")
        files = snapshot(folder / "out").items()
        left = {Path(name).name: content for name, content in files if not name.endswith(".lock")}
        assert (folders.NOISED_FILE in left) == (kind == "degrees")
        result = release.release(None, crashing.query(folder, kind), run="1", spark=spark)
        after = snapshot(folder / "out")
        assert {Path(name).parent.name for name in after} == {"run=1"}
        if kind == "ranges":  # nobody had seen it, and the ledger knew nothing of it: drawn anew
            assert after["run=1/part-00000.snappy.parquet"] not in left.values()
        else:
            assert {Path(name).name: content for name, content in after.items()} == left
        assert after == seen or not seen
        assert result.already_published == (kind != "ranges")
        again = release.release(None, crashing.query(folder, kind), run="1", spark=spark)
        assert again.df.collect() == result.df.collect()
        assert snapshot(folder / "out") == after
        ledger = Ledger(f"sqlite:///{folder}/budget.db", "orders")
        assert (ledger.balance().releases, ledger.balance().spent_epsilon) == (1, 0.4)
        assert [entry.event for entry in ledger.history()] == EVENTS
