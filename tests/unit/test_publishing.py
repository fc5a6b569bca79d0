"""Staging and atomic publication, without Spark."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_rdp import folders, publishing
from spark_rdp.errors import BudgetRefused, InvalidInput, JobFailed
from spark_rdp.folders import content_digest, local_folder
from spark_rdp.ledger import Ledger
from spark_rdp.publishing import Charge, publish_folder, publish_to_caller

QUERY, OTHER = "a" * 64, "b" * 64


@pytest.fixture
def charge(tmp_path: Path) -> Charge:
    ledger = Ledger(f"sqlite:///{tmp_path}/budget.db", "orders")
    ledger.create("orders", 1.0)
    return Charge(ledger, "orders", 400_000, 0.0)


def writing(text: str, before: Callable[[], object] = lambda: None) -> Callable[[Path], dict[str, Any]]:
    def compute(data: Path) -> dict[str, Any]:
        before()
        data.mkdir()
        (data / "part-00000-8d3f-c000.snappy.parquet").write_text(text)
        (data / "_SUCCESS").touch()
        (data / "._SUCCESS.crc").touch()
        return {"rows": 1, "query": {"b": 1, "a": 2}}

    return compute


def forbidden(data: Path) -> dict[str, Any]:
    raise AssertionError("computed a second time")


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def test_the_folder_holds_the_data_and_the_manifest_and_nothing_else(tmp_path: Path, charge: Charge) -> None:
    target = tmp_path / "out" / "run=1"
    publication = publish_folder(target, "r", QUERY, charge, writing("one"))
    assert sorted(file.name for file in target.iterdir()) == ["manifest.json", "part-00000.snappy.parquet"]
    assert [file.name for file in target.parent.iterdir()] == ["run=1"]
    text = (target / "manifest.json").read_text()
    assert json.loads(text) == publication.manifest
    assert list(json.loads(text)) == sorted(publication.manifest)
    assert publication.manifest["content_digest"] == content_digest(target)
    assert not publication.already_published


@pytest.mark.parametrize("paid", [True, False])
def test_the_same_id_again_reads_back_and_changes_no_byte(tmp_path: Path, charge: Charge, paid: bool) -> None:
    target, payer = tmp_path / "out", charge if paid else None
    first = publish_folder(target, "r", QUERY, payer, writing("one"))
    before = snapshot(tmp_path)
    again = publish_folder(target, "r", QUERY, payer, forbidden)
    assert again.already_published
    assert again.manifest == first.manifest
    assert snapshot(tmp_path) == before
    assert charge.ledger.balance().spent_epsilon == (0.4 if paid else 0)


def test_a_taken_place_is_refused_before_anything_is_charged(tmp_path: Path, charge: Charge) -> None:
    publish_folder(tmp_path / "published", "r", QUERY, None, writing("one"))
    (tmp_path / "file").write_text("text")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "notes.txt").touch()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "manifest.json").write_text('{"release_id": "r"')
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name, release, query, words in [
        ("published", "s", QUERY, "already holds the release r"),
        ("published", "r", OTHER, "of another query"),
        ("file", "r", QUERY, "is not a folder"),
        ("foreign", "r", QUERY, "no release"),
        ("broken", "r", QUERY, "no release"),
        ("dangling", "r", QUERY, "is not a folder"),
        ("file/below", "r", QUERY, "cannot be made"),
    ]:
        with pytest.raises(InvalidInput, match=words):
            publish_folder(tmp_path / name, release, query, charge, forbidden)
    assert charge.ledger.history() == []


def test_a_changed_publication_is_noticed(tmp_path: Path, charge: Charge) -> None:
    target = tmp_path / "out"
    publish_folder(target, "r", QUERY, charge, writing("one"))
    next(target.glob("part-*")).write_text("two")
    with pytest.raises(InvalidInput, match="not those that were published"):
        publish_folder(target, "r", QUERY, charge, forbidden)
    target.rename(tmp_path / "moved")
    with pytest.raises(InvalidInput, match="was published before"):
        publish_folder(target, "r", QUERY, charge, forbidden)
    publish_folder(target, "r", QUERY, None, writing("another result"))
    with pytest.raises(InvalidInput, match="another result of release r"):
        publish_folder(target, "r", QUERY, charge, forbidden)


def test_a_moved_publication_is_read_from_its_new_place(tmp_path: Path, charge: Charge) -> None:
    first = publish_folder(tmp_path / "out", "r", QUERY, charge, writing("one"))
    (tmp_path / "out").rename(tmp_path / "moved")
    assert publish_folder(tmp_path / "moved", "r", QUERY, charge, forbidden).manifest == first.manifest


def test_a_failed_computation_is_continued_without_a_second_charge(tmp_path: Path, charge: Charge) -> None:
    target = tmp_path / "out"

    def failing(data: Path) -> dict[str, Any]:
        writing("half")(data)
        raise JobFailed("the cluster is gone")

    with pytest.raises(JobFailed, match="cluster"):
        publish_folder(target, "r", QUERY, charge, failing)
    assert [file.name for file in tmp_path.iterdir() if "out" in file.name] == []
    with pytest.raises(InvalidInput, match="was started with output"):
        publish_folder(tmp_path / "elsewhere", "r", QUERY, charge, forbidden)
    assert not publish_folder(target, "r", QUERY, charge, writing("whole")).already_published
    assert charge.ledger.balance().spent_epsilon == 0.4


def test_a_disk_error_is_one_sentence(tmp_path: Path, charge: Charge) -> None:
    def failing(data: Path) -> dict[str, Any]:
        raise OSError(28, "No space left on device")

    with pytest.raises(JobFailed, match="No space left on device"):
        publish_folder(tmp_path / "out", "r", QUERY, charge, failing)


def test_a_budget_that_is_short_computes_nothing(tmp_path: Path, charge: Charge) -> None:
    with pytest.raises(BudgetRefused):
        publish_folder(tmp_path / "out", "r", QUERY, Charge(charge.ledger, "orders", 1_000_001, 0.0), forbidden)
    assert not (tmp_path / "out").exists()


def test_staging_is_private_and_dead_attempts_are_removed(tmp_path: Path, charge: Charge) -> None:
    dead = tmp_path / ".out.staging-dead"
    (dead / "data").mkdir(parents=True)
    other = tmp_path / ".other.staging-dead"
    other.mkdir()

    def check() -> None:
        folders = list(tmp_path.glob(".out.staging-*"))
        assert len(folders) == 1
        assert folders[0] != dead
        assert stat.S_IMODE(folders[0].stat().st_mode) == 0o700

    publish_folder(tmp_path / "out", "r", QUERY, charge, writing("one", check))
    assert other.exists()
    assert not list(tmp_path.glob(".out.staging-*"))
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) & 0o500 == 0o500


def two_at_once(tmp_path: Path, charge: Charge, before: Callable[[], object]) -> None:
    """Two runs of one release end with the bytes of one and one charge, and leave nothing else behind."""
    results: list[publishing.Publication] = []

    def attempt(text: str) -> None:
        results.append(publish_folder(tmp_path / "out", "r", QUERY, charge, writing(text, before)))

    threads = [threading.Thread(target=attempt, args=(text,)) for text in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result.already_published for result in results) == [False, True]
    assert results[0].manifest == results[1].manifest
    assert results[0].manifest["content_digest"] == content_digest(tmp_path / "out")
    assert [entry.event for entry in charge.ledger.history()] == ["reserved", "prepared", "published"]
    assert not list(tmp_path.glob(".out.staging-*"))


def test_the_second_of_two_at_once_waits_and_reads_back(tmp_path: Path, charge: Charge) -> None:
    computed: list[int] = []
    two_at_once(tmp_path, charge, lambda: (computed.append(1), time.sleep(0.3)))
    assert computed == [1]
    assert not list(tmp_path.glob(".out.*"))


def test_two_at_once_without_locks_end_with_the_bytes_of_one(
    tmp_path: Path, charge: Charge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some network file systems have no locks: both compute, and the ledger takes one of the results only."""

    def no_locks(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    both = threading.Barrier(2)
    two_at_once(tmp_path, charge, both.wait)


def test_who_waits_too_long_is_told_to_come_again(
    tmp_path: Path, charge: Charge, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(folders, "PATIENCE_SECONDS", 0.1)
    caplog.set_level("INFO", "spark_rdp.stages")

    def second() -> None:
        with pytest.raises(JobFailed, match="being computed by another process") as failure:
            publish_folder(tmp_path / "out", "r", QUERY, charge, forbidden)
        assert failure.value.exit_code == 4

    publish_folder(tmp_path / "out", "r", QUERY, charge, writing("one", second))
    stages = ["reserved", "computing", "waiting", "prepared", "published"]
    assert [record.message for record in caplog.records] == stages


def test_a_result_that_may_have_been_seen_is_never_drawn_again(
    tmp_path: Path, charge: Charge, monkeypatch: Any
) -> None:
    """The folder is moved away after it appeared and before the ledger was told that it is published."""
    target = tmp_path / "out"

    def unplugged(*_: Any, **__: Any) -> None:
        raise JobFailed("the ledger does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "publish", unplugged)
        with pytest.raises(JobFailed, match="is published in"):
            publish_folder(target, "r", QUERY, charge, writing("one"))
    seen = snapshot(target)
    target.rename(tmp_path / "moved")
    with pytest.raises(InvalidInput, match=r"may have seen it.*Put its folder back to /.*/out") as refusal:
        publish_folder(target, "r", QUERY, charge, forbidden)
    assert refusal.value.exit_code == 2
    with pytest.raises(InvalidInput, match="no charge to give back"):
        charge.ledger.abandon("orders", "r", QUERY)
    with pytest.raises(InvalidInput, match="may have seen it"):
        publish_to_caller("r", QUERY, charge, lambda: pytest.fail("computed a second time"))
    assert publish_folder(tmp_path / "moved", "r", QUERY, charge, forbidden).already_published
    assert snapshot(tmp_path / "moved") == seen
    assert [entry.event for entry in charge.ledger.history()] == ["reserved", "prepared", "published"]


@pytest.mark.parametrize("broken", ["rename", "prepare"])
def test_a_failure_after_the_digest_is_fixed_keeps_the_files(
    tmp_path: Path, charge: Charge, monkeypatch: Any, broken: str
) -> None:
    """The next run publishes the files that were staged, although it could compute others."""
    prepare = Ledger.prepare

    def answer_is_lost(*arguments: Any) -> str:
        prepare(*arguments)
        raise JobFailed("the ledger does not answer")

    def disk_error(*_: Any) -> bool:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        if broken == "rename":
            patch.setattr(folders, "rename", disk_error)
        else:
            patch.setattr(Ledger, "prepare", answer_is_lost)
        with pytest.raises(JobFailed):
            publish_folder(tmp_path / "out", "r", QUERY, charge, writing("one"))
    assert not (tmp_path / "out").exists()
    publish_folder(tmp_path / "out", "r", QUERY, charge, forbidden)
    assert next((tmp_path / "out").glob("part-*")).read_text() == "one"
    assert not list(tmp_path.glob(".out.*"))
    assert [entry.event for entry in charge.ledger.history()] == ["reserved", "prepared", "published"]


def test_the_manifest_tells_charge_balance_and_rule(tmp_path: Path, charge: Charge) -> None:
    paid = publish_folder(tmp_path / "out", "r", QUERY, charge, writing("one")).manifest["charge"]
    assert (paid["dataset"], paid["epsilon_millionths"], paid["accounting"]) == ("orders", 400_000, "pure")
    assert paid["composition"] == "The epsilons of all releases add up, and so do their deltas."
    assert (paid["balance"]["spent_epsilon"], paid["balance"]["remaining_epsilon"]) == (0.4, 0.6)
    assert publish_folder(tmp_path / "free", "s", QUERY, None, writing("one")).manifest["charge"] is None


def test_a_release_to_the_caller_is_handed_out_once(charge: Charge) -> None:
    manifest = publish_to_caller("r", QUERY, charge, lambda: (b"values", {"rows": 1}))
    assert manifest["release_id"] == "r"
    with pytest.raises(InvalidInput, match=r"handed out before .* Give output\.path"):
        publish_to_caller("r", QUERY, charge, lambda: (b"other", {"rows": 1}))
    assert charge.ledger.balance().spent_epsilon == 0.4


def test_the_second_of_two_handed_out_at_once_gets_no_values(charge: Charge) -> None:
    def slow() -> tuple[bytes, dict[str, Any]]:
        publish_to_caller("r", QUERY, charge, lambda: (b"fast", {}))
        return b"slow", {}

    with pytest.raises(InvalidInput, match="another result"):
        publish_to_caller("r", QUERY, charge, slow)


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("/a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("/a/../b/", "/b"),
        ("/a/run=1:2", "/a/run=1:2"),
    ],
)
def test_local_paths(path: str, folder: str) -> None:
    assert str(local_folder(path)) == folder


@pytest.mark.parametrize("path", ["s3a://bucket/x", "hdfs://host/x", "gs://x"])
def test_a_place_without_atomic_rename_is_refused(path: str) -> None:
    with pytest.raises(InvalidInput, match="file system that is mounted"):
        local_folder(path)


def test_a_folder_that_is_not_writable_is_refused_before_the_charge(
    tmp_path: Path, charge: Charge, monkeypatch: Any
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # the tests may run as root
    with pytest.raises(InvalidInput, match="not writable"):
        publish_folder(tmp_path / "out", "r", QUERY, charge, forbidden)
    assert charge.ledger.history() == []
