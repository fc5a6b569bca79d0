"""Folders of a local file system and of a store: a real server of the S3 protocol on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer
from unit.test_estimation import collection

from spark_rdp.errors import InvalidInput
from spark_rdp.estimation.collected import find_collections
from spark_rdp.stores import Folder

BUCKET, REGION = "telemetry", "eu-west-1"


def access_to(server: str) -> dict[str, str]:
    """The environment of a process that can reach the store."""
    given = {"ENDPOINT_URL": server, "ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret", "DEFAULT_REGION": REGION}
    return {f"AWS_{name}": value for name, value in given.items()}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a store with an empty bucket."""
    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in access_to(f"http://{host}:{port}").items():
            patch.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def access(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in access_to(server).items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=["local", "s3a"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path)
    request.getfixturevalue("access")
    return f"s3a://{BUCKET}"


def test_what_was_written_is_there(root: str) -> None:
    folder = Folder("checkpoint", f"{root}/a/b/")
    assert (folder.name, folder.holds(), folder.names(), folder.read("x")) == ("b", False, [], None)
    folder.write("x", "one")
    folder.write("x", "two")
    folder.child("c").write("y", "")
    assert folder.read("x") == b"two"
    assert folder.names() == ["c", "x"]
    assert folder.holds("c")
    folder.delete("x")
    assert folder.names() == ["c"]
    assert folder == Folder("output.path", f"{root}/a/b")
    assert folder.for_spark.endswith("/a/b")
    assert folder.for_spark.startswith(("file:///", "s3a://"))


def test_rows_of_what_is_no_parquet(root: str) -> None:
    folder = Folder("collection", f"{root}/rows")
    folder.write("bad", "text")
    assert folder.rows([]) == 0
    assert folder.rows(["bad"]) == folder.rows(["gone"]) == -1


def test_collections_of_a_store_are_found(root: str, tmp_path: Path) -> None:
    """A collection that was copied there, in runs; files that are not all there are noticed."""
    for run, rows in (("run=1", 3), ("run=2", 4)):
        made = collection(tmp_path / "c" / run, rows)
        if root.startswith("s3a"):
            for file in made.iterdir():
                boto3.client("s3").upload_file(str(file), BUCKET, f"c/{run}/{file.name}")
    found = find_collections([f"{root}/c"])
    assert (found.rows, found.by_run, [folder.name for folder in found.folders]) == (7, True, ["run=1", "run=2"])
    Folder("", f"{root}/c/run=2").delete("part-00000.parquet")
    with pytest.raises(InvalidInput, match=r"The files in .*/c/run=2 are not those that were published"):
        find_collections([f"{root}/c"])
    with pytest.raises(InvalidInput, match=r"got '.*nowhere'. There is no manifest.json in it"):
        find_collections([f"{root}/nowhere"])


def test_a_store_that_cannot_be_reached_is_one_sentence_with_the_cure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match=r"^checkpoint: /.*/file/x cannot be reached \(.*\)\. Choose another\.$"):
        Folder("checkpoint", str(tmp_path / "file/x")).write("a", "b")
    for name, value in {**access_to("http://127.0.0.1:9"), "AWS_MAX_ATTEMPTS": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidInput, match=r"^checkpoint: s3a://telemetry/x cannot be reached \(.*AWS_ACCESS_KEY_ID"):
        Folder("checkpoint", "s3a://telemetry/x").names()
    with pytest.raises(InvalidInput, match=r"^collection: nostore://a/b cannot be reached \(.*nostore"):
        find_collections(["nostore://a/b"])


def test_a_scheme_with_one_slash_is_no_local_folder() -> None:
    assert Folder("checkpoint", "file:/a/b").path == "/a/b"
    with pytest.raises(
        InvalidInput, match=r"^checkpoint must be a local path, .*; got 'hdfs:/a'. Write hdfs://HOST/a\.$"
    ):
        Folder("checkpoint", "hdfs:/a")
