"""One draw of noise, however often and on however many executors Spark evaluates a release."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark import losing_an_executor

from spark_rdp.errors import SparkRdpError
from spark_rdp.ledger import Ledger
from spark_rdp.queries import ReleaseQuery
from spark_rdp.spark.collect import collect
from spark_rdp.spark.release import Result, release

ROOT = Path(__file__).resolve().parents[2]


def query_to(folder: Path | None, **changes: Any) -> ReleaseQuery:
    given: dict[str, Any] = {
        "name": "orders",
        "privacy": {"unit": "u", "epsilon": 0.5, "max_groups": 2},
        "group_by": {"k": {"range": [0, 19]}},
        "measures": [
            {"name": "n", "type": "count", "max_per_group": 2},
            {"name": "total", "type": "sum", "column": "v", "lower": 0, "upper": 10},
        ],
    }
    if folder is not None:
        given["output"] = {"path": str(folder)}
    return ReleaseQuery(**{**given, **changes})


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.range(3000).selectExpr("id % 301 AS u", "id % 23 AS k", "CAST(id % 7 AS DOUBLE) AS v")


@pytest.mark.parametrize("published", [True, False])
def test_actions_sinks_and_filters_see_the_same_values(rows: DataFrame, tmp_path: Path, published: bool) -> None:
    result = release(rows, query_to(tmp_path / "out" if published else None))
    first = result.df.collect()
    assert result.df.collect() == first
    assert result.df.count() == len(first) == 20
    for sink in ("a", "b"):
        result.df.write.parquet(str(tmp_path / sink))
    written = [rows.sparkSession.read.parquet(str(tmp_path / sink)).orderBy("k").collect() for sink in ("a", "b")]
    assert written == [first, first]
    positive = result.df.filter(F.col("total") > 0).collect()
    assert positive == [row for row in first if row.total > 0]
    result.df.persist().count()
    result.df.unpersist(blocking=True)
    assert result.df.collect() == first
    assert result.table().to_pylist() == [row.asDict() for row in first]


def test_a_release_runs_once(rows: DataFrame, tmp_path: Path) -> None:
    """An accumulator sees every input row exactly once: nothing is computed twice in an undisturbed release."""
    seen = rows.sparkSession.sparkContext.accumulator(0)

    def count(batches):  # type: ignore[no-untyped-def]
        for batch in batches:
            seen.add(batch.num_rows)
            yield batch

    result = release(rows.mapInArrow(count, rows.schema), query_to(tmp_path / "out"))
    result.df.count()
    result.df.collect()
    assert seen.value == 3000


def test_two_threads_release_at_once(rows: DataFrame, tmp_path: Path) -> None:
    """Different ids: both right. One id: one computes, both end with the same bytes and one charge."""
    ledger = Ledger(f"sqlite:///{tmp_path}/budget.db", "orders")
    ledger.create("orders", 10.0)

    def run(name: str) -> Result:
        return release(rows, query_to(tmp_path / "out"), run=name, ledger=ledger)

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(run, ["a", "b", "same", "same"]))
    assert ledger.balance().spent_epsilon == 1.5
    tables = [result.table() for result in results]
    assert tables[2] == tables[3]
    assert sorted(result.already_published for result in results[2:]) == [False, True]
    assert len({str(table["total"].to_pylist()) for table in tables}) == 3
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["run=a", "run=b", "run=same"]


def test_two_threads_without_output_hand_out_one_result(rows: DataFrame, tmp_path: Path) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path}/budget.db", "orders")
    ledger.create("orders", 10.0)
    both = threading.Barrier(2)

    def run(_: int) -> Result | SparkRdpError:
        both.wait()
        try:
            return release(rows, query_to(None), ledger=ledger)
        except SparkRdpError as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(run, range(2)))
    assert sorted(isinstance(result, Result) for result in results) == [False, True]
    assert ledger.balance().spent_epsilon == 0.5


def test_an_executor_is_lost_and_tasks_are_speculated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two executor processes, speculation on, one killed in the middle: the values of the undisturbed release.

    The same for the other kinds and for a collection: their values are those of another session under the same secret.
    """
    command = [sys.executable, str(ROOT / "tests" / "spark" / "losing_an_executor.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=480, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    killed = [word for kind in losing_an_executor.KINDS for word in (kind, "1")]
    assert done.stdout.split()[1:] == ["calm", "0", "lost", "1", *killed, "collected-lost", "1"]
    calm, lost = (pq.read_table(tmp_path / name / "part-00000.snappy.parquet") for name in ("calm", "lost"))
    assert calm == lost
    assert calm.num_rows == 7
    monkeypatch.setattr("spark_rdp.spark.release.new_secret", lambda: bytes(32))
    for kind in losing_an_executor.KINDS:
        query = losing_an_executor.question(kind, tmp_path / f"{kind}-calm")
        files = release(losing_an_executor.rows(spark), query).folder
        assert files is not None
        names = [file.name for file in sorted(files.glob("*.parquet"))]
        assert len(names) == (2 if kind == "degrees" else 1), "degrees keep their noised numbers as well"
        for name in names:
            assert pq.read_table(files / name) == pq.read_table(tmp_path / f"{kind}-lost" / name)
    undisturbed = collect(losing_an_executor.rows(spark), losing_an_executor.collection(None), secret=bytes(32)).df
    files = (tmp_path / "collected-lost").glob("part-*")
    collected = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert len(collected) == 1600
    assert sorted(collected, key=itemgetter("id")) == [row.asDict() for row in undisturbed.sort("id").collect()]
