"""Streams in one session: replays, restarts with what has changed, malformed events, and what is counted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jobs.streaming import query, run_once, write_events, write_secret
from pyspark.sql import SparkSession

import spark_rdp as rdp
from spark_rdp.errors import InvalidInput, JobFailed
from spark_rdp.queries import CollectQuery

KAFKA = {"topic": "t", "partition": 3, "offset": 70, "key": b"k"}


def begin(spark: SparkSession, given: dict[str, Any]) -> Any:
    """Publish what is there, and return the stream that has ended."""
    running = rdp.stream(rdp.StreamQuery.of(given), once=True, spark=spark)
    assert running.wait(timeout=120)
    return running


@pytest.fixture(scope="module")
def first(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder in which a stream has published 400 events, in batches of two files."""
    folder = tmp_path_factory.mktemp("stream")
    write_events(folder / "in", 400, 4)
    write_secret(folder)
    given = query(folder)
    given["source"]["options"] = {"maxFilesPerTrigger": 2}
    return folder, begin(spark, given)


def test_counts_are_told_for_the_operator(first: tuple[Path, Any]) -> None:
    """Two batches; batteries lie between -9 and 110 or are missing, as in the files."""
    folder, ended = first
    lines = "".join(file.read_text() for file in sorted((folder / "in").glob("*.json")))
    batteries = [json.loads(line)["battery"] for line in lines.splitlines()]
    told = ended.batches()
    assert [one.rows_in for one in told] == [one.published for one in told] == [200, 200]
    assert sum(one.missing for one in told) == batteries.count(None)
    assert sum(one.clamped for one in told) == sum(one is not None and not 0 <= one <= 100 for one in batteries)
    assert {one.malformed for one in told} == {0}
    assert ended.batches() == []


def test_killed_while_its_first_batch_was_noted(spark: SparkSession, tmp_path: Path) -> None:
    """What Spark leaves of a file it was writing then does not end every later start."""
    (tmp_path / "in").mkdir()
    write_secret(tmp_path)
    given = query(tmp_path)
    begin(spark, given)
    for name in ("published", "quarantine"):
        offsets = Path(given["checkpoint"], name, "offsets")
        assert not list(offsets.iterdir())
        (offsets / ".0.61bec8ae-74e8-4a63-b075-cec86923ba7b.tmp").write_text("v1\n{")
    (tmp_path / "in").rmdir()
    write_events(tmp_path / "in", 40, 2)
    assert run_once(spark, given).event_id.tolist() == list(range(40))


def test_a_batch_is_replayed_after_its_commit_was_lost(
    spark: SparkSession, first: tuple[Path, Any], tmp_path: Path
) -> None:
    """The files are written again, with the same noise, and are not there twice (K15 146)."""
    folder = tmp_path / "copy"
    shutil.copytree(first[0], folder)
    given = query(folder)
    given["source"]["path"] = str(first[0] / "in")
    before = first[1].df.toPandas().sort_values("event_id", ignore_index=True)
    for name in ("0", "1"):
        assert (folder / "out-checkpoint/published/commits" / name).is_file()
    (folder / "out-checkpoint/published/commits/1").unlink()
    (folder / "out-checkpoint/published/commits/.1.crc").unlink()
    # The log of the sink names whole paths; a replay of a batch that it has is not written at all.
    (folder / "out/_spark_metadata/1").unlink()
    (folder / "out/_spark_metadata/.1.crc").unlink()
    (folder / "out/_spark_metadata/0").write_text(
        (folder / "out/_spark_metadata/0").read_text().replace(str(first[0]), str(folder))
    )
    (folder / "out/_spark_metadata/.0.crc").unlink()
    assert spark.read.parquet(str(folder / "out")).count() == 200
    after = run_once(spark, given)
    assert after.equals(before)
    (folder / "out-checkpoint/published/commits/1").unlink()
    (folder / "out-checkpoint/published/commits/.1.crc").unlink()
    assert run_once(spark, given).equals(before)


def test_two_streams_of_one_secret_draw_one_noise(spark: SparkSession, first: tuple[Path, Any]) -> None:
    """Another sink, other batches, other formats of its files: the same rows, also those of a collection (K15 148)."""
    folder, ended = first
    before = ended.df.toPandas().sort_values("event_id", ignore_index=True)
    given = query(folder, "second", trigger={"every": "1 second"})
    given["output"] |= {"format": "json", "options": {"compression": "gzip"}}
    assert run_once(spark, given).equals(before)
    shared = {key: given[key] for key in ("name", "row_key", "columns", "keep")}
    rows = spark.read.schema(given["source"]["schema"]).json(str(folder / "in"))
    collected = rdp.collect(rows, CollectQuery.of(shared), secret=given["secret"]).df.toPandas()
    assert collected.sort_values("event_id", ignore_index=True).equals(before)


def test_what_comes_again_has_the_same_noise(spark: SparkSession, tmp_path: Path) -> None:
    """Over a restart: events that come again; with memoize also other events of one device and value (K15 152)."""
    write_secret(tmp_path)
    (tmp_path / "in").mkdir()
    event = {"device": 1, "battery": 40.0, "load": 7.0}
    lines = [json.dumps({**event, "event_id": number}) for number in range(50)]
    (tmp_path / "in/a.json").write_text("\n".join(lines))
    memoized = query(tmp_path, "memoized", memoize={"by": "device"})
    del memoized["row_key"]
    streams = [query(tmp_path), memoized]
    for given in streams:
        begin(spark, given)
    (tmp_path / "in/b.json").write_text("\n".join(lines))
    plain, same = (run_once(spark, given) for given in streams)
    assert len(plain) == len(same) == 100
    assert len(plain.drop_duplicates()) == plain.battery.nunique() == 50
    assert same.battery.nunique() == same.load.nunique() == 1


def test_malformed_events_are_noted_without_their_values(spark: SparkSession, tmp_path: Path) -> None:
    """Only file and reason; no byte of the notes, nor of the counts, says what was in them."""
    write_secret(tmp_path)
    (tmp_path / "in").mkdir()
    secret_text, whole = "vertraulich", '{"device": 1, "event_id": 2, "battery": 3, "load": 4}'
    broken = [
        f"{secret_text} no json",
        f'{{"device": 1, "event_id": 987650, "battery": "{secret_text}"}}',
        '{"battery": 98765.25, "device": 98765}',
        f'[{{"device": "{secret_text}"}}]',
        f'"{secret_text}"',
    ]
    (tmp_path / "in/events.json").write_text("\n".join([*broken, whole]))
    ended = begin(spark, query(tmp_path))
    assert [row.event_id for row in ended.df.collect()] == [2]
    assert [(one.rows_in, one.published, one.malformed) for one in ended.batches()] == [(6, 1, 5)]
    notes = spark.read.parquet(str(tmp_path / "out-quarantine"))
    assert notes.columns == ["file", "topic", "partition", "offset", "reason"]
    reasons = sorted(row.reason for row in notes.collect())
    assert reasons == ["event_id of its key is missing", *["not a record of the declared schema"] * 4]
    assert {row.file for row in notes.collect()} == {"events.json"}
    for file in (tmp_path / "out-quarantine").rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert not any(value in content for value in (secret_text.encode(), b"98765", b"98765.25"))


def test_lines_of_json_that_are_no_single_event(spark: SparkSession, tmp_path: Path) -> None:
    """An empty line is no event and an array is several; a line is broken in a field that nobody uses too."""
    write_secret(tmp_path)
    (tmp_path / "in").mkdir()
    given = query(tmp_path)
    given["source"]["schema"] += ", more MAP<STRING, INT>, text STRING"
    one = '{{"device": 1, "event_id": {}, "battery": 3, "load": 4, "more": {}}}'
    two = f"[{one.format(2, '{}')}, {one.format(3, 'null')}]"
    lines = [one.format(1, '{"a": 1}'), "", "  ", two, one.format(4, '"x"'), f"[{one.format(5, '{}')}, 6]"]
    (tmp_path / "in/a.json").write_text("\n".join(lines))
    ended = begin(spark, given)
    assert sorted(row.event_id for row in ended.df.collect()) == [1, 2, 3]
    assert ended.batches()[0].malformed == spark.read.parquet(str(tmp_path / "out-quarantine")).count() == 2


def test_a_payload_is_parsed_once_for_each_sink(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_secret(tmp_path)
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"value": [b'{"event_id": 2, "battery": 3, "load": 4}']}), tmp_path / "in/a.parquet")
    given = query(tmp_path, row_key=["event_id"])
    payload = {"column": "value", "schema": "event_id BIGINT, battery DOUBLE, load DOUBLE"}
    given["source"] |= {"format": "parquet", "schema": "value BINARY", "payload": payload}
    for each in begin(spark, given)._running:
        each.explain()
        assert capsys.readouterr().out.count("from_json(") == 1


def test_malformed_events_can_stop_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    """One sentence without values, and nothing of the batch is published."""
    write_secret(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_text('{"device": 1, "event_id": 2, "battery": 3}\n{"device": 987651}')
    given = query(tmp_path, malformed="fail")
    del given["quarantine"]
    running = rdp.stream(rdp.StreamQuery.of(given), once=True, spark=spark)
    with pytest.raises(InvalidInput, match="malformed is fail") as told:
        running.wait(timeout=120)
    assert "987651" not in str(told.value)
    assert running.df.count() == 0


def test_a_value_that_must_not_be_there_stops_the_stream_in_its_words(spark: SparkSession, tmp_path: Path) -> None:
    write_secret(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_text('{"device": 1, "event_id": 2, "battery": 101.5, "load": 1}')
    running = rdp.stream(rdp.StreamQuery.of(query(tmp_path, invalid="error")), once=True, spark=spark)
    with pytest.raises(InvalidInput, match=r"columns\[0\] \(battery\) must lie within lower and upper"):
        running.wait(timeout=120)


def test_a_stream_that_failed_goes_on_after_what_it_published(spark: SparkSession, tmp_path: Path) -> None:
    """A file that cannot be read ends it, in words that are true of a stream; mended, it is published with the next."""
    write_secret(tmp_path)
    (tmp_path / "in").mkdir()
    given = query(tmp_path)
    given["source"] |= {"format": "parquet", "options": {}}

    def write(number: int) -> None:
        columns = {"device": [1], "event_id": [number], "battery": [3.0], "load": [4.0]}
        pq.write_table(pa.table(columns), tmp_path / f"in/{number}.parquet")

    write(0)
    assert run_once(spark, given).event_id.tolist() == [0]
    (tmp_path / "in/1.parquet").write_text("no parquet")
    running = rdp.stream(rdp.StreamQuery.of(given), once=True, spark=spark)
    with pytest.raises(JobFailed) as told:
        running.wait(timeout=120)
    assert str(told.value) == (
        "The stream failed: a file of the source could not be read as declared. What its earlier batches published "
        "stays; the same command goes on after them, with --verbose to see what Spark said."
    )
    assert running.df.count() == 1
    write(1)
    assert run_once(spark, given).event_id.tolist() == [0, 1]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_other_files_and_payloads(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """CSV with a header; and records as in Kafka, named by topic, partition and offset."""
    write_secret(tmp_path)
    (tmp_path / "in").mkdir()
    given = query(tmp_path)
    if kind == "csv":
        (tmp_path / "in/a.csv").write_text("device,event_id,battery,load\n1,2,3,4\n1,3,x,4\n1,4,5,6\n1,,5,6\n")
        given["source"] |= {"format": "csv", "options": {"header": True}}
        places = [("a.csv", None), ("a.csv", None)]
    else:
        values = [b'{"event_id": 2, "battery": 3, "load": 4}', b"\xff\xfe", b'{"event_id": 4, "load": 6}', None]
        rows = [{**KAFKA, "offset": 70 + n, "value": value} for n, value in enumerate(values)]
        kinds = {"topic": "string", "partition": "int32", "offset": "int64", "key": "binary", "value": "binary"}
        table = pa.Table.from_pylist(rows, schema=pa.schema(list(kinds.items())))
        pq.write_table(table, tmp_path / "in/a.parquet")
        schema = "topic STRING, partition INT, offset BIGINT, key BINARY, value BINARY"
        payload = {"column": "value", "schema": "event_id BIGINT, battery DOUBLE, load DOUBLE"}
        given["source"] |= {"format": "parquet", "schema": schema, "payload": payload}
        given["row_key"] = ["topic", "partition", "offset"]
        places = [("a.parquet", 71), ("a.parquet", 73)]
    ended = begin(spark, given)
    assert sorted(row.event_id for row in ended.df.collect()) == [2, 4]
    notes = spark.read.parquet(str(tmp_path / "out-quarantine")).orderBy("offset").collect()
    assert [(row.file, row.offset) for row in notes] == places


def changed_secret(folder: Path, given: dict[str, Any]) -> None:
    write_secret(folder)


def missing_secret(folder: Path, given: dict[str, Any]) -> None:
    (folder / "secret").unlink()


def changed_bounds(folder: Path, given: dict[str, Any]) -> None:
    given["columns"][0]["upper"] = 90


def lost_checkpoint(folder: Path, given: dict[str, Any]) -> None:
    shutil.rmtree(folder / "out-checkpoint")


def lost_output(folder: Path, given: dict[str, Any]) -> None:
    shutil.rmtree(folder / "out")


def other_output(folder: Path, given: dict[str, Any]) -> None:
    (folder / "other").mkdir()
    (folder / "other/notes.txt").write_text("somebody's")
    given["output"]["path"] = str(folder / "other")
    given["checkpoint"] = str(folder / "new")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (changed_secret, "secret must be the one that the stream began with.*Put the old secret back, or begin a new"),
        (missing_secret, "secret must be an existing file"),
        (changed_bounds, r"it differs in columns\. Undo the change, or begin a new stream"),
        (lost_checkpoint, "checkpoint must be the one of the stream in output.path.*Put it back"),
        (lost_output, "output.path must still hold what the stream has published.*Put the folder back"),
        (other_output, "output.path must be a folder that is empty"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_start_that_would_not_continue_is_refused(
    spark: SparkSession, first: tuple[Path, Any], tmp_path: Path, change: Any, told: str
) -> None:
    """In one sentence with the cure, before any batch: nothing in the folders changes."""
    folder = tmp_path / "copy"
    shutil.copytree(first[0], folder)
    given = query(folder)
    given["source"] |= {"path": str(first[0] / "in"), "options": {"maxFilesPerTrigger": 2}}
    change(folder, given)
    before = {file: file.stat().st_mtime_ns for file in folder.rglob("*")}
    with pytest.raises(InvalidInput, match=told) as refused:
        rdp.stream(rdp.StreamQuery.of(given), once=True, spark=spark)
    assert "\n" not in str(refused.value)
    assert {file: file.stat().st_mtime_ns for file in folder.rglob("*")} == before


def test_the_manifest_tells_the_noise_and_no_secret(first: tuple[Path, Any]) -> None:
    folder, ended = first
    text = (folder / "out/manifest.json").read_text()
    assert text == (folder / "out-checkpoint/manifest.json").read_text()
    manifest = json.loads(text)
    assert manifest == json.loads(json.dumps(ended.manifest))
    assert (manifest["kind"], manifest["unit"], manifest["epsilon"]["total"]) == ("stream", "row", 1.7)
    secret = (folder / "secret").read_text()
    assert not any(secret[place : place + 8] in text for place in range(57))
