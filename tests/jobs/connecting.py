"""Every entry point once, with fixed secrets: run by test_connect.py in its own session and, as a script, through
Spark Connect (``SPARK_REMOTE``): ``connecting.py FOLDER``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import spark_rdp as rdp
from spark_rdp.errors import InvalidInput
from spark_rdp.queries import Source
from spark_rdp.spark import io, session
from spark_rdp.spark import release as releasing

SECRET = bytes(range(32))
ROWS = 700
#: Under ANSI rules both would stop the job at the first row they fail on.
DERIVED = {"share": "100 / (id % 7)", "number": "CAST(text AS INT)"}
REFUSED = [
    "rand()",
    "sum(id) OVER (PARTITION BY text)",
    "max(id)",
    "explode(array(1, 2))",
    "(SELECT max(id) FROM range(9))",
]


def make_rows(folder: Path) -> Path:
    """A file of rows, some of which no expression takes, and edges of a graph."""
    ids = range(ROWS)
    texts = ["no number" if n % 11 == 0 else str(n % 50) for n in ids]
    size = [n / 7 for n in ids]
    columns = {"id": pa.array(ids, pa.int64()), "text": texts, "kind": ["abc"[n % 3] for n in ids], "size": size}
    file = folder / "rows.parquet"
    pq.write_table(pa.table(columns), file)
    return file


def everything(spark: SparkSession, file: Path, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Collect, estimate, release, degrees, ranges, naive Bayes, SQL and a stream; the rows of each, sorted."""
    folder.mkdir()
    source = {"format": "parquet", "path": str(file), "derive": DERIVED}
    numbers = [{"column": name, "lower": 0, "upper": 100, "epsilon": 1} for name in ("share", "number")]
    categories = {"column": "kind", "categories": ["a", "b", "c"], "epsilon": 1}
    asked = rdp.CollectQuery(
        name="collected",
        source=source,
        row_key=["id"],
        keep=["id"],
        columns=[*numbers, categories],
        output={"path": str(folder / "collected")},
    )
    collected = rdp.collect(None, asked, secret=SECRET, spark=spark)
    question = rdp.EstimateQuery(name="answers", collection=str(folder / "collected"), accept_unbounded=True)
    estimates = rdp.estimate(question, spark=spark)
    released = rdp.release(
        None,
        rdp.ReleaseQuery(
            name="released",
            source=source,
            privacy={"unit": "id", "epsilon": 2, "delta": 1e-6, "max_groups": 1},
            group_by={"select": ["kind"], "delta": 1e-6},
            measures=[
                {"name": "rows", "type": "count", "max_per_group": 9},
                {"name": "total", "type": "sum", "column": "number", "lower": 0, "upper": 500},
                {"name": "shares", "type": "histogram", "column": "share", "bins": [0, 20, 50, 100]},
                {"name": "typical", "type": "quantile", "column": "number", "level": 0.5, "candidates": [5, 20, 40]},
            ],
            output={"path": str(folder / "released")},
        ),
        spark=spark,
    )
    rows = spark.read.parquet(f"file://{file}")
    return {
        "collected": sorted_rows(collected.df),
        "again, lazily": sorted_rows(rdp.collect(rows, lazy(), secret=SECRET).df),
        "estimates": sorted_rows(estimates.df),
        "released": sorted_rows(released.df),
        **from_frames(spark, rows),
        **streamed(spark, file, folder),
        "refused": [{"expression": text, "said": refusal(spark, file, text)} for text in REFUSED],
    }


def lazy() -> rdp.CollectQuery:
    """A collection that is not written."""
    columns = [{"column": "size", "lower": 0, "upper": 100, "epsilon": 1, "mechanism": "r2dp"}]
    return rdp.CollectQuery(name="lazy", row_key=["id", "kind"], keep=["kind", "text"], columns=columns)


def from_frames(spark: SparkSession, rows: DataFrame) -> dict[str, list[dict[str, Any]]]:
    """What starts from a DataFrame of the caller."""
    edges = rows.selectExpr("id AS a", "id * 7 % 100 AS b")
    degrees = rdp.DegreesQuery(
        name="degrees", edges={"source": "a", "target": "b"}, privacy={"epsilon": 1, "protect": "node"}, max_degree=9
    )
    ranges = rdp.RangesQuery(
        name="ranges",
        privacy={"unit": "row", "epsilon": 1},
        domain={"id": {"range": [0, ROWS - 1]}},
    )
    rdp.register_functions(spark, secret=SECRET)
    rows.createTempView("connecting")
    sql = spark.sql(
        "SELECT id, podium(size, 0, 99, 1.0, id, kind) AS noisy, r2dp_noise(size, 0, 9, 2.0, id) AS b FROM connecting"
    )
    noisy = sorted_rows(sql)
    spark.catalog.dropTempView("connecting")
    people = rows.selectExpr("IF(kind = 'a' OR size < 30, 1, 0) AS label", "kind", "size")
    bayes = rdp.PrivateNaiveBayes(epsilon=10_000.0, categories={"kind": ["a", "b", "c"]}, bounds={"size": [0, 100]})
    return {
        "degrees": sorted_rows(rdp.release(edges, degrees).df),
        "ranges": sorted_rows(rdp.release(rows, ranges).df),
        "sql": noisy,
        "predictions": sorted_rows(bayes.fit(people).transform(people).drop("rawPrediction", "probability")),
    }


def streamed(spark: SparkSession, file: Path, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """A stream of the file; rows without a number lack a part of their key, and are set aside."""
    place = folder.parent / "secret"
    place.write_text(SECRET.hex())
    place.chmod(0o600)
    schema = "id BIGINT, text STRING, kind STRING, size DOUBLE"
    query = rdp.StreamQuery(
        name="streamed",
        source={"format": "parquet", "path": f"{file.parent}/rows*.parquet", "schema": schema, "derive": DERIVED},
        row_key=["id", "number"],
        keep=["id"],
        columns=[{"column": "share", "lower": 0, "upper": 100, "epsilon": 1}],
        secret=f"file:{place}",
        checkpoint=str(folder / "checkpoint"),
        quarantine=str(folder / "quarantine"),
        output={"path": str(folder / "streamed")},
    )
    running = rdp.stream(query, once=True, spark=spark)
    assert running.wait(timeout=120)
    counts = [{"came": each.rows_in, "went": each.published, "lack": each.malformed} for each in running.batches()]
    aside = spark.read.parquet(f"file://{folder}/quarantine").select("file", "reason")
    return {"streamed": sorted_rows(running.df), "set aside": sorted_rows(aside), "counts": counts}


def refusal(spark: SparkSession, file: Path, expression: str) -> str:
    """What is said to an expression that is not of its own row alone."""
    try:
        io.read(spark, Source(format="parquet", path=str(file), derive={"mixed": expression}))
    except InvalidInput as error:
        return str(error)
    return "nothing"


def sorted_rows(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows as plain values."""
    return sorted(frame.toArrow().to_pylist(), key=repr)


def main(folder: Path) -> None:
    """Everything through the session that the environment names; writes what came out."""
    releasing.new_secret = lambda: SECRET  # a release draws its own: here the same each time, to compare
    spark = session.build("connecting")
    found = everything(spark, folder / "rows.parquet", folder / "connect")
    facts = {"session": type(spark).__module__, "ansi": spark.conf.get("spark.sql.ansi.enabled")}
    (folder / "connect.txt").write_text(repr((facts, found)))
    spark.stop()


if __name__ == "__main__":
    assert "SPARK_REMOTE" in os.environ
    main(Path(sys.argv[1]))
