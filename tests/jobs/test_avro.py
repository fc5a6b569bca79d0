"""Avro in streams: as the records in a column, and as files. Spark reads it with a package of its own.

Where its jar cannot be had the test is skipped, and says so. ``test_avro.py FOLDER`` is the process that has the jar.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jobs.streaming import query, run_once, write_secret
from pyspark.sql import SparkSession

from jobs import kafka
from spark_rdp.errors import InvalidInput
from spark_rdp.queries.stream import StreamQuery
from spark_rdp.spark import session
from spark_rdp.spark.stream import stream

FIELDS = [("device", "long"), ("event_id", "long"), ("battery", "double"), ("load", "double")]
SCHEMA = {"type": "record", "name": "event", "fields": [{"name": name, "type": kind} for name, kind in FIELDS]}
EVENTS = [(number % 7, number, float(number), float(2 * number)) for number in range(40)]
#: No bytes, a record that ends in the middle, and none at all.
BROKEN = [b"", b"\x02\x04\x00", None]


def encoded(device: int, event: int, battery: float, load: float) -> bytes:
    """The Avro of an event; whole numbers below 64 are one byte, zigzag."""
    return bytes([2 * device, 2 * event]) + struct.pack("<dd", battery, load)


def in_column(folder: Path, schema: str = json.dumps(SCHEMA)) -> dict[str, Any]:
    """A stream of Avro records in a column of parquet files."""
    record = {"column": "value", "format": "avro", "schema": schema}
    source = {"format": "parquet", "path": str(folder / "column"), "schema": "value BINARY", "payload": record}
    return query(folder, "first", source=source, output={"format": "avro", "path": str(folder / "first")})


def main(folder: Path) -> None:
    """Publish records in a column as Avro files; then those files, as parquet."""
    with session.opened("avro", master="local[2]") as spark:
        run_once(spark, in_column(folder)).to_parquet(folder / "first.parquet")
        fields = "event_id BIGINT, battery DOUBLE, load DOUBLE"
        files = {"format": "avro", "path": str(folder / "first"), "schema": fields}
        columns = [{"column": "battery", "lower": -50, "upper": 150, "epsilon": 1, "mechanism": "podium"}]
        run_once(spark, query(folder, "second", source=files, row_key=["event_id"], columns=columns))


def test_records_in_a_column_and_files(spark: SparkSession, tmp_path: Path) -> None:
    """Each event once, with the noise it has as JSON; what is broken is set aside; files can be read as well."""
    try:
        jars = kafka.jars() / "connector"
    except kafka.NotToBeHadError as error:
        pytest.skip(f"needs Spark's package for Avro: {error}")
    write_secret(tmp_path)
    (tmp_path / "column").mkdir()
    (tmp_path / "in").mkdir()
    values = [*(encoded(*event) for event in EVENTS), *BROKEN]
    pq.write_table(pa.table({"value": pa.array(values, pa.binary())}), tmp_path / "column" / "0.parquet")
    names = [name for name, _ in FIELDS]
    lines = [json.dumps(dict(zip(names, event, strict=True))) for event in EVENTS]
    (tmp_path / "in" / "0.json").write_text("\n".join(lines) + "\n")
    [jar] = jars.glob("spark-avro*.jar")
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": f"--jars {jar} pyspark-shell"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, __file__, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    first, same = pd.read_parquet(tmp_path / "first.parquet"), run_once(spark, query(tmp_path, "json"))
    assert first.equals(same)
    aside = spark.read.parquet(str(tmp_path / "first-quarantine"))
    assert aside.count() == len(BROKEN)
    second = spark.read.parquet(str(tmp_path / "second")).orderBy("event_id").toPandas()
    assert second.event_id.tolist() == same.event_id.tolist() == list(range(len(EVENTS)))


@pytest.mark.parametrize("schema", ["event_id BIGINT", '{"type": "long"}', "[]"])
def test_the_schema_is_that_of_a_record(tmp_path: Path, schema: str) -> None:
    with pytest.raises(InvalidInput, match=r"payload\.schema"):
        StreamQuery.of(in_column(tmp_path, schema))


def test_without_the_package_it_is_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    write_secret(tmp_path)
    (tmp_path / "column").mkdir()
    pq.write_table(pa.table({"value": [b""]}), tmp_path / "column" / "0.parquet")
    files = {"format": "avro", "path": str(tmp_path / "column"), "schema": "event_id BIGINT, battery DOUBLE"}
    for given in (in_column(tmp_path), query(tmp_path, "files", source=files)):
        with pytest.raises(InvalidInput, match="spark-avro"):
            stream(StreamQuery.of(given), once=True, spark=spark)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
