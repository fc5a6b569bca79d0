"""A release that is killed: run as a script by test_crash.py.

``crashing.py MOMENT FOLDER SEED`` publishes a small made-up result without Spark and kills itself at MOMENT, a name of
the table in spark_rdp/publishing.py, or runs to the end if MOMENT is ``never``. SEED changes the values: a second
computation is always a different one. With a kind of query as a fourth argument it is a real release on Spark.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_rdp import publishing
from spark_rdp.ledger import Ledger

if TYPE_CHECKING:
    from spark_rdp.kinds import AnyQuery

QUERY = "a" * 64
RELEASE = "orders@2026-11-30"


def kill_at(moment: str) -> None:
    """Make the process die by SIGKILL when the release reaches ``moment``."""

    def reached(now: str) -> None:
        if now == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    publishing.reached = reached


def publish(folder: Path, seed: str) -> publishing.Publication:
    """Publish, slowly enough to be killed in between; the values differ with the seed."""

    def compute(data: Path) -> dict[str, Any]:
        data.mkdir()
        for part in range(4):
            with (data / f"part-{part:05d}-{seed}-c000.snappy.parquet").open("w") as file:
                for line in range(50):
                    file.write(f"{part} {line} {seed}\n")
                    file.flush()
                    time.sleep(5e-5)
        (data / "_SUCCESS").touch()
        (data / ".part.crc").touch()
        return {"rows": 200}

    charge = publishing.Charge(Ledger(f"sqlite:///{folder}/budget.db"), "orders", 400_000, 0.0)
    return publishing.publish_folder(folder / "out" / "run=1", RELEASE, QUERY, charge, compute)


def query(folder: Path, kind: str = "release") -> AnyQuery:
    """A small release on Spark."""
    from spark_rdp.kinds import QUERIES

    measures: list[dict[str, Any]] = [
        {"name": "n", "type": "count", "max_per_group": 2},
        {"name": "total", "type": "sum", "column": "v", "lower": 0, "upper": 9},
    ]
    bounded = {"unit": "u", "epsilon": 0.4, "max_groups": 2}
    by_node = {"epsilon": 0.4, "protect": "node"}
    axis = {"v": {"range": [0, 8]}}
    asked: dict[str, dict[str, Any]] = {
        "release": {"privacy": bounded, "group_by": {"k": ["a", "b", "c"]}, "measures": measures},
        "degrees": {"privacy": by_node, "edges": {"source": "u", "target": "v"}, "max_degree": 5, "nodes": 60},
        "ranges": {"privacy": bounded, "domain": axis, "max_per_group": 2},
        "averages": {"privacy": bounded, "time": axis, "measure": measures[0], "window": 3},
    }
    return QUERIES[kind].of(
        {
            "name": "orders",
            "source": {"format": "csv", "path": str(folder / "in.csv"), "schema": "u BIGINT, k STRING, v BIGINT"},
            "output": {"path": str(folder / "out")},
            "ledger": {"url": f"sqlite:///{folder}/budget.db", "dataset": "orders"},
            **asked[kind],
        }
    )


def main(moment: str, folder: Path, seed: str, kind: str = "") -> None:
    """Publish once, and die at the moment."""
    kill_at(moment)
    if not kind:
        print("started", flush=True)
        done = publish(folder, seed)
        print(done.manifest["content_digest"], "read-back" if done.already_published else "computed")
        return
    from spark_rdp.spark import release, session

    with session.opened("crashing", master="local[2]", conf={"spark.sql.shuffle.partitions": "4"}) as spark:
        print("started", flush=True)
        release.release(None, query(folder, kind), run="1", spark=spark)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
