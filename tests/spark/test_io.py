"""Opening sources: nothing inferred, nothing revealed by errors, nothing but row-by-row expressions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_rdp.errors import InvalidInput
from spark_rdp.queries import ReleaseQuery, Source
from spark_rdp.spark import io

SCHEMA = "id BIGINT, country STRING, amount DOUBLE"


@pytest.fixture
def source(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "in.csv").write_text("id,country,amount\n1,FR,3.5\nx,DE,oops\n3,,4,5,6\n\n5\n")
    return {"format": "csv", "path": str(tmp_path / "in.csv"), "options": {"header": True}, "schema": SCHEMA}


def query(**changes: Any) -> ReleaseQuery:
    given: dict[str, Any] = {
        "name": "q",
        "privacy": {"unit": "id", "epsilon": 1, "max_groups": 1},
        "group_by": {"country": ["FR"]},
        "measures": [{"name": "s", "type": "sum", "column": "amount", "lower": 0, "upper": 1}],
    }
    return ReleaseQuery(**{**given, **changes})


def test_malformed_records_become_nulls_and_no_type_is_inferred(spark: SparkSession, source: dict[str, Any]) -> None:
    frame = io.read(spark, Source.of(source))
    assert frame.dtypes == [("id", "bigint"), ("country", "string"), ("amount", "double")]
    assert [tuple(row) for row in frame.collect()] == [
        (1, "FR", 3.5),
        (None, "DE", None),
        (3, None, 4.0),
        (5, None, None),
    ]
    inferred = {**source, "options": {"header": True, "inferSchema": True, "mode": "permissive"}}
    assert io.read(spark, Source.of(inferred)).dtypes == frame.dtypes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema": "id BIGINT, amount DOUBLE, country STRING"}, "column 2 is not; got 'amount'"),
        ({"schema": "id BIGINT, country STRING"}, "all 3 columns of the csv header"),
        ({"schema": f"{SCHEMA}, x INT"}, "column 4 is not; got 'x'"),
        ({"schema": "id BIGNT"}, "Spark SQL types"),
        ({"path": "/nowhere/x.csv"}, "existing file"),
        ({"options": {"header": True, "mode": "FAILFAST"}}, "PERMISSIVE"),
        ({"options": {"mode": "dropmalformed"}}, "PERMISSIVE"),
        ({"format": "nosuch"}, "cannot be opened"),
        ({"derive": {"Amount": "1"}}, "must be a new column"),
        ({"derive": {"z": "nosuch + 1"}}, "no column `nosuch`"),
        ({"derive": {"z": "nosuch(1)"}}, "no function `nosuch`"),
        ({"derive": {"z": "1 +"}}, "not Spark SQL"),
    ],
)
def test_what_cannot_be_used_is_told_before_any_row_is_read(
    spark: SparkSession, source: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidInput, match=words) as refusal:
        io.read(spark, Source.of({**source, **changes}))
    assert "\n" not in str(refusal.value)
    with pytest.raises(InvalidInput, match="known table"):
        io.read(spark, Source(table="nosuch"))


@pytest.mark.parametrize(
    "expression",
    [
        "row_number() OVER (ORDER BY id)",
        "count(*) OVER ()",
        "max(amount) OVER (PARTITION BY country)",
        "sum(amount)",
        "count(*)",
        "(SELECT max(x) FROM VALUES (1) AS t(x))",
        "EXISTS (SELECT 1 FROM everybody)",
        "id IN (SELECT id FROM everybody)",
        "id IN (FROM everybody)",
        "explode(array(1, 2))",
        "rand()",
        "id + randn()",
        "uuid()",
        "shuffle(array(1, 2))[0]",
        "monotonically_increasing_id()",
        "spark_partition_id()",
        "input_file_name()",
    ],
)
def test_only_functions_of_the_own_row_are_derived(
    spark: SparkSession, source: dict[str, Any], expression: str
) -> None:
    spark.range(3).createOrReplaceTempView("everybody")
    with pytest.raises(InvalidInput, match="function of the columns of its own row"):
        io.read(spark, Source.of({**source, "derive": {"z": expression}}))


def test_derived_columns_give_null_where_they_fail(spark: SparkSession, source: dict[str, Any]) -> None:
    derive = {
        "double": "amount * 2",
        "more": "double + 1",
        "day": "to_date(country)",
        "number": "CAST(country AS INT)",
        "ratio": "1 / (id - 1)",
        "element": "array(1)[id]",
    }
    before = spark.conf.get("spark.sql.ansi.enabled")
    frame = io.read(spark, Source.of({**source, "derive": derive}))
    assert spark.conf.get("spark.sql.ansi.enabled") == before
    assert frame.columns == ["id", "country", "amount", *derive]
    first = frame.first()
    assert first is not None
    assert tuple(first)[3:] == (7.0, 8.0, None, None, None, None)
    assert frame.filter("number IS NULL").count() == 4


def test_tables_and_parquet_keep_their_types(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT CAST(1.5 AS DECIMAL(10,2)) AS d, DATE'2026-11-30' AS day, 1 AS id")
    frame.write.parquet(str(tmp_path / "in.parquet"))
    assert io.read(spark, Source(format="parquet", path=str(tmp_path / "in.parquet"))).dtypes == frame.dtypes
    frame.createOrReplaceTempView("typed")
    assert io.read(spark, Source(table="typed", derive={"z": "id + 1"})).columns == ["d", "day", "id", "z"]


def test_needed_columns_are_found_whatever_their_names_are(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "FR", 2.0, 3, 4)], ["a.b", "Country", "back`tick", "Count", "count"])
    found = io.needed(
        frame,
        query(
            privacy={"unit": "a.b", "epsilon": 1, "max_groups": 1},
            group_by={"country": ["FR"]},
            measures=[
                {"name": "s", "type": "sum", "column": "back`tick", "lower": 0, "upper": 1},
                {"name": "t", "type": "sum", "column": "count", "lower": 0, "upper": 1},
            ],
        ),
    )
    assert found.columns == ["a.b", "country", "back`tick", "count"]
    assert [tuple(row) for row in found.collect()] == [(1, "FR", 2.0, 4)]
    for wrong, words in (("COUNT", "there once"), ("nosuch", "column of the source")):
        measures = [{"name": "s", "type": "sum", "column": wrong, "lower": 0, "upper": 1}]
        with pytest.raises(InvalidInput, match=words):
            io.needed(
                frame, query(privacy={"unit": "row", "epsilon": 1}, group_by={"Country": ["FR"]}, measures=measures)
            )
    by_row = query(privacy={"unit": "row", "epsilon": 1})
    assert io.needed(frame.toDF("id", "country", "amount", "x", "y"), by_row).columns == ["country", "amount"]
