"""Run as a script by test_exactly_once.py: the same release undisturbed, and with an executor killed in the middle.

``losing_an_executor.py FOLDER`` starts two executors in processes of their own (local-cluster) with speculation on,
writes ``FOLDER/calm``, ``FOLDER/lost``, a release of each other kind (``FOLDER/degrees-lost`` and so on) and the
collection ``FOLDER/collected-lost`` under one fixed secret, and prints how many executors were killed.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyspark
from pyspark.sql import DataFrame, SparkSession

from spark_rdp.kinds import QUERIES, AnyQuery
from spark_rdp.queries import CollectQuery, ReleaseQuery
from spark_rdp.spark import release as releasing
from spark_rdp.spark import session
from spark_rdp.spark.collect import collect

EXECUTOR = "CoarseGrainedExecutorBackend"


def executors() -> list[psutil.Process]:
    """The executor processes below this one."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if any(EXECUTOR in part for part in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def slowly(df: DataFrame, marker: Path) -> DataFrame:
    """The same rows, slowly enough for an executor to be lost while they are read; the marker says that it began."""

    def pause(batches):  # type: ignore[no-untyped-def]
        import time

        for batch in batches:
            marker.touch()
            time.sleep(0.25)
            yield batch

    return df.mapInArrow(pause, df.schema)


def rows(spark: SparkSession) -> DataFrame:
    """What is released and collected."""
    return spark.range(0, 1600, 1, 8).selectExpr("id", "id % 97 AS u", "id % 5 AS k", "CAST(id % 11 AS DOUBLE) AS v")


def collection(folder: Path | None) -> CollectQuery:
    """Every row, noised twice."""
    columns = [{"column": name, "lower": 0, "upper": 20, "epsilon": 20, "mechanism": "podium"} for name in ("v", "u")]
    output = None if folder is None else {"path": str(folder)}
    return CollectQuery(name="rows", row_key=["id"], keep=["id"], columns=columns, output=output)


KINDS = ("degrees", "ranges")


def question(kind: str, folder: Path | None) -> AnyQuery:
    """A release of another kind; the projection of the graph and the choice of groups hang on the secret."""
    bounded = {"unit": "u", "epsilon": 1.0, "max_groups": 3}
    axis = {"k": {"range": [0, 6]}}
    asked: dict[str, dict[str, Any]] = {
        "degrees": {
            "edges": {"source": "u", "target": "id"},
            "privacy": {"epsilon": 1.0, "protect": "node"},
            "max_degree": 5,
            "nodes": 1600,
        },
        "ranges": {"privacy": bounded, "domain": axis, "max_per_group": 9},
    }
    output = {} if folder is None else {"output": {"path": str(folder)}}
    return QUERIES[kind].of({"name": kind, **asked[kind], **output})


def main(folder: Path) -> None:
    """Release and collect, and print the number of executors killed."""
    conf = {
        "spark.sql.shuffle.partitions": "4",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
        "spark.executorEnv.PYTHONPATH": ":".join(sys.path),
        "spark.executor.memory": "512m",
    }
    releasing.new_secret = lambda: bytes(32)  # the same noise both times, so that values can be compared
    with session.opened("losing an executor", master="local-cluster[2,1,512]", conf=conf) as spark:
        df = rows(spark)
        for name in ("calm", "lost"):
            query = ReleaseQuery(
                name="orders",
                privacy={"unit": "u", "epsilon": 1.0, "max_groups": 3},
                group_by={"k": {"range": [0, 6]}},
                measures=[
                    {"name": "n", "type": "count", "max_per_group": 9},
                    {"name": "total", "type": "sum", "column": "v", "lower": 0, "upper": 20},
                ],
                output={"path": str(folder / name)},
            )
            with killing(folder / name) as (marker, killed):
                releasing.release(slowly(df, marker), query)
            print(name, len(killed), flush=True)
        for kind in KINDS:
            with killing(folder / f"{kind}-lost") as (marker, killed):
                releasing.release(slowly(df, marker), question(kind, folder / f"{kind}-lost"))
            print(kind, len(killed), flush=True)
        with killing(folder / "collected-lost") as (marker, killed):
            collect(slowly(df, marker), collection(folder / "collected-lost"), secret=bytes(32))
        print("collected-lost", len(killed), flush=True)


@contextmanager
def killing(folder: Path) -> Iterator[tuple[Path, list[int]]]:
    """Kill one executor once the marker is there, if the folder is called lost; gives the marker and who was killed."""
    marker, killed = folder.with_suffix(".started"), []

    def kill() -> None:
        while not marker.exists():
            time.sleep(0.05)
        for process in executors()[:1] if folder.name.endswith("lost") else []:
            process.kill()
            killed.append(process.pid)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    yield marker, killed
    killer.join()


if __name__ == "__main__":
    print(pyspark.__version__, flush=True)
    main(Path(sys.argv[1]))
