"""The jobs on a real cluster: a standalone master and two workers, one of which is lost in the middle of the work.

Neither driver nor workers have the package installed: it is shipped with ``--py-files``.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jobs import servers
from spark_rdp.ledger import Ledger
from spark_rdp.queries import CollectQuery, ReleaseQuery
from spark_rdp.spark.collect import collect
from spark_rdp.spark.release import release

FILES, ROWS = 12, 2400
SECRET = "0123456789abcdef" * 4
#: The same value, a millisecond later: a worker can be lost while rows are read.
SLOW = "number % 50 + 0 * aggregate(sequence(1, 6000 + CAST(number % 2 AS INT)), 0L, (sum, one) -> sum + one % 7)"
SOURCE = f"""
source:
  format: csv
  path: FOLDER/rows
  options: {{header: true}}
  schema: "number BIGINT, kind STRING, person BIGINT"
  derive: {{value: "{SLOW}"}}
output: {{format: parquet, path: FOLDER/out}}
"""
COLLECTION = f"""
kind: collect
name: noisy
row_key: [number]
columns:
  - {{column: value, lower: 0, upper: 49, epsilon: 1, mechanism: podium}}
  - {{column: person, lower: 0, upper: 99, epsilon: 1}}
keep: [number, kind]
secret: env:SUBMITTED_SECRET
report: page.html
{SOURCE}
"""
#: Noise of epsilon 80 for each measure is 0, but for a chance below 1e-20.
RELEASE = f"""
kind: release
name: totals
privacy: {{unit: person, epsilon: 160, max_groups: 1}}
group_by: {{kind: [a, b, c]}}
measures:
  - {{name: rows, type: count, max_per_group: 1000}}
  - {{name: total, type: sum, column: value, lower: 0, upper: 40000, granularity: 1}}
ledger: {{url: "sqlite:///FOLDER/budget.db", dataset: rows}}
{SOURCE}
"""
#: What a stream and a collection with the same noise have in common.
COMMON = ("name", "row_key", "columns", "keep")
#: Two micro-batches, each of half the files.
STREAM = f"""
kind: stream
name: noisy
row_key: [number]
columns:
  - {{column: value, lower: 0, upper: 49, epsilon: 1, mechanism: podium}}
keep: [number, kind]
secret: env:SUBMITTED_SECRET
checkpoint: FOLDER/checkpoint
quarantine: FOLDER/quarantine
{SOURCE.replace("header: true", f"header: true, maxFilesPerTrigger: {FILES // 2}")}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Cluster]:
    with servers.cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Rows of 100 people in many files, each of which is a task."""
    (tmp_path / "rows").mkdir()
    for file in range(FILES):
        lines = [f"{n},{'ab'[n % 2]},{n % 100}\n" for n in range(file, ROWS, FILES)]
        (tmp_path / "rows" / f"{file}.csv").write_text("number,kind,person\n" + "".join(lines))
    return tmp_path


def submitting(cluster: servers.Cluster, folder: Path, verb: str, query: str, *options: str) -> subprocess.Popen[bytes]:
    (folder / "query.yaml").write_text(query.replace("FOLDER", str(folder)))
    python = servers.bare_python(folder)
    settings = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.2",
        "spark.sql.files.minPartitionNum": str(FILES),
        "spark.executor.memory": "500m",
        "spark.sql.shuffle.partitions": "4",
    }
    command = [servers.HOME / "bin" / "spark-submit", "--master", cluster.url, "--driver-memory", servers.MEMORY]
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    command += ["--py-files", servers.package(folder), servers.ROOT / "jobs" / f"{verb}.py", "query.yaml", *options]
    environment = servers.environment(folder, PYSPARK_PYTHON=str(python), SUBMITTED_SECRET=SECRET)
    with (folder / "submitted.log").open("ab") as log:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)


def submitted(
    cluster: servers.Cluster,
    folder: Path,
    verb: str,
    query: str,
    to_lose: Callable[[], Path | None] | None = None,
    options: Sequence[str] = (),
) -> str:
    """Submit a job, lose the worker that ``to_lose`` names as soon as it names one; what the job and Spark said."""
    cluster.start_workers(2)
    process = submitting(cluster, folder, verb, query, *options)
    log = folder / "submitted.log"
    try:
        lost = None
        while process.poll() is None:
            if to_lose is not None and lost is None:
                lost = to_lose()
                if lost is not None:
                    cluster.lose(lost)
            time.sleep(0.02)
        assert process.returncode == 0, log.read_text()
        assert (lost is None) == (to_lose is None), "no worker was lost in time"
        return log.read_text()
    finally:
        servers.kill(process)


def alive(cluster: servers.Cluster) -> list[Path]:
    return [place for place, process in cluster.workers.items() if process.poll() is None]


def test_the_package_is_there_only_if_it_is_shipped(tmp_path: Path) -> None:
    command = [servers.bare_python(tmp_path), "-c", "import numpy, pyspark, sqlalchemy; import spark_rdp.errors"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    # Installed to be edited, it leaves a folder of this name with a file in it, which is no package.
    assert ran.returncode == 1
    assert "ModuleNotFoundError: No module named 'spark_rdp" in ran.stderr


def test_rows_collected_while_a_worker_is_lost_are_those_of_local_mode(
    cluster: servers.Cluster, folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def to_lose() -> Path | None:
        """Once some tasks are committed and most are not."""
        return alive(cluster)[0] if len(list(folder.glob(".out*/data/_temporary/0/task_*"))) >= 2 else None

    said = submitted(cluster, folder, "collect", COLLECTION, to_lose)
    assert SECRET not in said
    monkeypatch.setenv("SUBMITTED_SECRET", SECRET)
    query = CollectQuery.from_yaml(folder / "query.yaml")
    local = collect(None, query.model_copy(update={"output": None}), spark=spark)
    collected = rows_of(folder / "out")
    assert collected["number"].to_pylist() == list(range(ROWS))
    assert len(set(collected["value"].to_pylist())) > 50  # there is noise
    assert collected.to_pylist() == local.df.toArrow().sort_by("number").to_pylist()
    assert (folder / "page.html").is_file()
    assert not list(folder.glob(".out*")), "nothing is left of the attempt"


def test_a_stream_loses_a_worker_and_publishes_every_event_once(
    cluster: servers.Cluster, folder: Path, spark: SparkSession
) -> None:
    def to_lose() -> Path | None:
        """Once some tasks of a batch have written their files and most have not."""
        return alive(cluster)[0] if len(list((folder / "out").glob("part-*"))) >= 2 else None

    submitted(cluster, folder, "stream", STREAM, to_lose, ["--once"])
    assert len(list((folder / "checkpoint" / "published" / "commits").glob("[0-9]*"))) == 2
    given = yaml.safe_load((folder / "query.yaml").read_text())
    columns = CollectQuery.of({**{name: given[name] for name in COMMON}, "kind": "collect"})
    rows = spark.read.csv(str(folder / "rows"), header=True, schema=given["source"]["schema"])
    expected = collect(
        rows.withColumn("value", F.expr("CAST(number % 50 AS BIGINT)")), columns, secret=bytes.fromhex(SECRET)
    )
    published = spark.read.parquet(str(folder / "out")).toArrow().sort_by("number")  # what Spark's log says is there
    assert published["number"].to_pylist() == list(range(ROWS))
    assert published.to_pylist() == expected.df.toArrow().sort_by("number").to_pylist()
    assert spark.read.parquet(str(folder / "quarantine")).count() == 0


def test_a_release_loses_shuffled_data_with_a_worker_and_is_right_and_charged_once(
    cluster: servers.Cluster, folder: Path
) -> None:
    def to_lose() -> Path | None:
        """Once both workers keep a part of what the next stage needs."""
        kept = [place for place in alive(cluster) if list(place.glob("local/**/shuffle_*.data"))]
        return kept[0] if len(kept) == 2 else None

    ledger = Ledger(f"sqlite:///{folder}/budget.db")
    ledger.create("rows", 1000.0)
    submitted(cluster, folder, "release", RELEASE, to_lose)
    published = rows_of(folder / "out")
    right = {kind: [n % 50 for n in range(ROWS) if "ab"[n % 2] == kind] for kind in "abc"}
    assert published["kind"].to_pylist() == ["a", "b", "c"]
    assert published["rows"].to_pylist() == [len(values) for values in right.values()]
    assert published["total"].to_pylist() == [sum(values) for values in right.values()]
    history = ledger.history("rows")
    assert [entry.event for entry in history] == ["reserved", "prepared", "published"]
    files = {file.name: file.read_bytes() for file in (folder / "out").iterdir()}
    assert release(None, ReleaseQuery.from_yaml(folder / "query.yaml")).already_published
    assert ledger.history("rows") == history
    assert {file.name: file.read_bytes() for file in (folder / "out").iterdir()} == files


def rows_of(folder: Path) -> pa.Table:
    files = sorted(folder.glob("part-*"))
    assert files
    table = pa.concat_tables([pq.ParquetFile(file).read() for file in files])
    return table.sort_by("number") if "number" in table.schema.names else table
