"""One side of the benchmark, in a process of its own: answers every line on stdin with the seconds of one run."""

from __future__ import annotations

import json
import math
import sys
import time
from typing import TYPE_CHECKING

import psutil
from pyspark.sql import functions as F

from spark_rdp.queries import ReleaseQuery
from spark_rdp.spark import session
from spark_rdp.spark.release import release

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COUNTRIES, DAYS, MAX_GROUPS, CAP, TOTAL = 50, 30, 5, 20, 500.0
NAMES = [f"C{number:02d}" for number in range(COUNTRIES)]


def query() -> ReleaseQuery:
    """The query of the benchmark."""
    return ReleaseQuery(
        name="benchmark",
        privacy={"unit": "customer", "epsilon": 1.0, "max_groups": MAX_GROUPS},
        group_by={"country": NAMES, "day": {"range": [0, DAYS - 1]}},
        measures=[
            {"name": "orders", "type": "count", "max_per_group": CAP},
            {"name": "customers", "type": "count_units"},
            {"name": "revenue", "type": "sum", "column": "amount", "lower": 0, "upper": TOTAL},
        ],
    )


def without_privacy(rows: DataFrame) -> DataFrame:
    """The fastest way found, of nine, to write the bounded and clamped query without noise (needs Spark 4.2).

    Groups as one number, one exchange on the customer, added up per customer and group, and the groups with the
    smallest hashes kept by a bounded heap instead of a window.
    """
    number = rows.sparkSession.createDataFrame(list(enumerate(NAMES)), "number BIGINT, country STRING")
    cells = rows.join(F.broadcast(number), "country").where(F.col("day").between(0, DAYS - 1))
    cells = cells.withColumn("cell", F.col("number") * DAYS + F.col("day"))
    mask = (1 << math.ceil(math.log2(COUNTRIES * DAYS))) - 1
    key = F.xxhash64(F.lit(1), "customer", "cell").bitwiseAND(~mask).bitwiseOR(F.col("cell"))
    units = (
        cells.select("customer", key.alias("key"), "amount")
        .repartition("customer")
        .groupBy("customer", "key")
        .agg(F.count("*").alias("orders"), F.sum("amount").alias("revenue"))
        .groupBy("customer")
        .agg(F.min_by(F.struct("key", "orders", "revenue"), "key", MAX_GROUPS).alias("kept"))
        .select(F.inline("kept"))
    )
    return units.groupBy(F.col("key").bitwiseAND(mask).alias("cell")).agg(
        F.sum(F.least("orders", F.lit(CAP))).alias("orders"),
        F.count("*").alias("customers"),
        F.sum(F.greatest(F.lit(0.0), F.least(F.lit(TOTAL), "revenue"))).alias("revenue"),
    )


def main(side: str, path: str) -> None:
    """Serve one side: ``release`` or ``plain``."""
    conf = {"spark.sql.shuffle.partitions": "16", "spark.driver.memory": "2g"}
    spark = session.build("benchmark", master="local[2]", conf=conf)
    own = psutil.Process()
    for _ in sys.stdin:
        rows, start, before = spark.read.parquet(path), time.perf_counter(), own.memory_info().rss
        table = release(rows, query()).table() if side == "release" else without_privacy(rows).toArrow()
        answer = {
            "seconds": time.perf_counter() - start,
            "rows": table.num_rows,
            "customers": sum(table.column("customers").to_pylist()),
            "driver_growth": own.memory_info().rss - before,
        }
        print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
