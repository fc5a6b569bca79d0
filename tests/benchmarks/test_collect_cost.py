"""What noise for every row costs: a collection against a pandas function that returns its column unchanged."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import pandas_udf

from spark_rdp.queries import CollectQuery
from spark_rdp.spark.collect import collect

ROWS, FILES = 3_000_000, 4


@pytest.fixture(scope="module")
def rows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """Doubles with a row key of 36 letters, as long as a UUID."""
    folder = tmp_path_factory.mktemp("collect") / "rows"
    folder.mkdir()
    random = np.random.default_rng(3)
    for file in range(FILES):
        count = ROWS // FILES
        letters = random.integers(97, 123, (count, 36), dtype=np.uint8)
        offsets = np.arange(0, 36 * (count + 1), 36, dtype=np.int32)
        names = pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(letters))
        pq.write_table(pa.table({"id": names, "value": random.uniform(0, 100, count)}), folder / f"part-{file}.parquet")
    return spark.read.parquet(str(folder))


def seconds(run: Callable[[], DataFrame]) -> float:
    start = time.perf_counter()
    run().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start


@pytest.mark.benchmark
def test_podium_for_every_row_costs_little_more_than_python_itself(rows: DataFrame) -> None:
    """Median of 3 runs each, in turn; 3 million rows from parquet to nowhere. Only the private side reads keys."""

    @pandas_udf("double")  # type: ignore[call-overload]
    def unchanged(value: pd.Series) -> pd.Series:
        return value

    column = {"column": "value", "lower": 0, "upper": 100, "epsilon": 1, "mechanism": "podium"}
    private = collect(rows, CollectQuery(name="benchmark", row_key=["id"], columns=[column]), secret=bytes(32)).df
    times: dict[str, list[float]] = {"plain": [], "private": []}
    for _ in range(4):  # in turn, so that a busy machine slows both; the first of each warms up
        times["plain"].append(seconds(lambda: rows.select(unchanged("value"))))
        times["private"].append(seconds(lambda: private))
    plain, noised = (statistics.median(times[side][1:]) for side in ("plain", "private"))
    print(f"identity in pandas {plain:.2f} s, Podium {noised:.2f} s, ratio {noised / plain:.2f}; {times}")
    assert noised <= 1.3 * plain
