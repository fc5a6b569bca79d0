"""Run as a script by test_exactly_once.py: the same release undisturbed, and with an executor killed in the middle.

``losing_an_executor.py FOLDER`` starts two executors in processes of their own (local-cluster) with speculation on,
writes ``FOLDER/calm`` and ``FOLDER/lost`` under one fixed secret, and prints how many executors were killed.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import psutil
import pyspark
from pyspark.sql import DataFrame

from spark_rdp.queries import ReleaseQuery
from spark_rdp.spark import release as releasing
from spark_rdp.spark import session

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


def main(folder: Path) -> None:
    """Release twice and print the number of executors killed."""
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
        df = spark.range(0, 1600, 1, 8).selectExpr("id % 97 AS u", "id % 5 AS k", "CAST(id % 11 AS DOUBLE) AS v")
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
            killed: list[int] = []
            marker = folder / f"{name}.started"

            def kill(marker: Path = marker, killed: list[int] = killed) -> None:
                while not marker.exists():
                    time.sleep(0.05)
                for process in executors()[:1] if marker.stem == "lost" else []:
                    process.kill()
                    killed.append(process.pid)

            killer = threading.Thread(target=kill, daemon=True)
            killer.start()
            releasing.release(slowly(df, marker), query)
            killer.join()
            print(name, len(killed), flush=True)


if __name__ == "__main__":
    print(pyspark.__version__, flush=True)
    main(Path(sys.argv[1]))
