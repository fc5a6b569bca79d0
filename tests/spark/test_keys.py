"""Declared keys: which rows count, which rows are published, and what is refused before any job runs."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_rdp.errors import InvalidInput
from spark_rdp.queries import ReleaseQuery
from spark_rdp.releases import plan_release
from spark_rdp.spark.aggregate import aggregate
from spark_rdp.spark.keys import bin_labels

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UNITS: list[dict[str, Any]] = [{"name": "units", "type": "count_units"}]


def make_query(group_by: dict[str, Any], max_groups: int = 5, **changes: Any) -> ReleaseQuery:
    privacy = {"unit": "unit", "epsilon": 1.0, "max_groups": max_groups}
    return ReleaseQuery(**{"name": "keys", "privacy": privacy, "group_by": group_by, "measures": UNITS, **changes})


def exact(frame: DataFrame, query: ReleaseQuery) -> DataFrame:
    return aggregate(frame, query, plan_release(query), 1)


def rows_of(frame: DataFrame, query: ReleaseQuery) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in exact(frame, query).collect()]


@pytest.fixture
def visits(spark: SparkSession) -> DataFrame:
    """Units 1 to 3 in the shops a, null and (not declared) z."""
    return spark.createDataFrame([(1, "a"), (2, "a"), (2, None), (3, "z"), (3, None)], "unit BIGINT, shop STRING")


@contextmanager
def no_job(spark: SparkSession, group: str) -> Iterator[None]:
    spark.sparkContext.setJobGroup(group, group)
    yield
    assert not spark.sparkContext.statusTracker().getJobIdsForGroup(group)
    spark.sparkContext.setJobGroup("tests", "tests")


def test_labels_of_bins() -> None:
    assert bin_labels((0.0, 10.0, 50.5)) == ["[0, 10)", "[10, 50.5]"]
    assert bin_labels((-1e300, 1e-9)) == ["[-1e+300, 1e-09]"]


def test_every_declared_key_is_there_in_sorted_order(visits: DataFrame) -> None:
    assert rows_of(visits, make_query({"shop": ["c", "a", "b"]})) == [("a", 2), ("b", 0), ("c", 0)]


def test_null_counts_only_where_it_is_declared(visits: DataFrame) -> None:
    assert rows_of(visits, make_query({"shop": ["b", None]})) == [(None, 2), ("b", 0)]
    assert rows_of(visits, make_query({"shop": ["b"]})) == [("b", 0)]


def test_no_keys_give_an_empty_frame_of_the_right_schema(visits: DataFrame) -> None:
    empty = exact(visits, make_query({"shop": []}))
    assert empty.collect() == []
    assert empty.dtypes == [("shop", "string"), ("c0", "bigint")]


def test_undeclared_groups_do_not_use_up_the_cap_of_a_unit(spark: SparkSession) -> None:
    visits = spark.createDataFrame([(1, f"s{n}") for n in range(200)], "unit BIGINT, shop STRING")
    assert rows_of(visits, make_query({"shop": ["s77", "other"]}, max_groups=1)) == [("other", 0), ("s77", 1)]


@pytest.mark.parametrize(
    ("kind", "group_by", "expected"),
    [
        ("TINYINT", {"range": [1, 3]}, [(1, 1), (2, 0), (3, 1)]),
        ("BIGINT", {"range": [2, 4]}, [(2, 0), (3, 1), (4, 0)]),
        ("SMALLINT", [3, None, 127], [(None, 1), (3, 1), (127, 1)]),
        ("INT", {"bins": [0, 3, 127]}, [("[0, 3)", 1), ("[3, 127]", 2)]),
        ("DECIMAL(20,3)", {"bins": [0, 3, 126.5]}, [("[0, 3)", 1), ("[3, 126.5]", 1)]),
        ("FLOAT", {"bins": [1, 3]}, [("[1, 3]", 2)]),
    ],
)
def test_keys_of_numbers(spark: SparkSession, kind: str, group_by: Any, expected: list[tuple[Any, ...]]) -> None:
    numbers = spark.createDataFrame([(1, 1), (2, 3), (3, 127), (4, None), (5, -128)], "unit BIGINT, x INT")
    frame = numbers.selectExpr("unit", f"CAST(x AS {kind}) AS x")
    result = exact(frame, make_query({"x": group_by}))
    assert [tuple(row) for row in result.collect()] == expected
    if not isinstance(group_by, dict) or "bins" not in group_by:
        assert result.dtypes[0] == frame.dtypes[1]


def test_extreme_numbers_outside_a_range(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, -(2**63)), (2, 2**63 - 1), (3, 7)], "unit BIGINT, x BIGINT")
    assert rows_of(frame, make_query({"x": {"range": [6, 7]}})) == [(6, 0), (7, 1)]


def test_keys_of_dates_and_truth_values(spark: SparkSession) -> None:
    leap = datetime.date(2024, 2, 29)
    frame = spark.createDataFrame([(1, leap, True), (2, None, None)], "unit BIGINT, day DATE, new BOOLEAN")
    assert rows_of(frame, make_query({"day": [leap, None], "new": [True, False, None]})) == [
        (None, None, 1),
        (None, False, 0),
        (None, True, 0),
        (leap, None, 0),
        (leap, False, 0),
        (leap, True, 1),
    ]


def test_texts_are_told_apart_byte_by_byte(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "a"), (2, "A"), (3, "a ")], "unit BIGINT, x STRING").selectExpr(
        "unit", "x COLLATE UTF8_LCASE AS x"
    )
    assert rows_of(frame, make_query({"x": ["a", "A"]})) == [("A", 1), ("a", 1)]


def test_columns_with_difficult_names(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "x", 5, 2.0)], ["Count", "a.b", "count", "back`tick NOISE"])
    measures = [{"name": "NOISE", "type": "sum", "column": "back`tick NOISE", "lower": 0, "upper": 4}]
    privacy = {"unit": "count", "epsilon": 1.0, "max_groups": 1}
    query = make_query({"a.b": ["x", "y"], "Count": [1]}, privacy=privacy, measures=measures)
    result = exact(frame, query)
    assert result.columns == ["a.b", "Count", "c0"]
    assert [(row[0], row[1], row[2] > 0) for row in result.collect()] == [("x", 1, True), ("y", 1, False)]


def test_a_million_keys_without_collecting_them(visits: DataFrame) -> None:
    frame = visits.selectExpr("unit", "unit * 333000 AS x")
    result = exact(frame, make_query({"x": {"range": [0, 999_999]}}))
    rows, keys, units = result.selectExpr("count(*)", "sum(x)", "sum(c0)").collect()[0]
    assert (rows, keys, units) == (1_000_000, 499_999_500_000, 3)


def test_files_of_keys(visits: DataFrame, tmp_path: Path) -> None:
    plain, header, typed = tmp_path / "plain.csv", tmp_path / "header.csv", tmp_path / "keys.parquet"
    plain.write_text("b\na\n\nb\n")
    header.write_text("id,shop\n1,a\n2,\n")
    pq.write_table(pa.table({"shop": ["a", "b", "a"]}), typed)
    assert rows_of(visits, make_query({"shop": {"file": str(plain)}})) == [("a", 2), ("b", 0)]
    assert rows_of(visits, make_query({"shop": {"file": str(header)}})) == [(None, 2), ("a", 2)]
    assert rows_of(visits, make_query({"shop": {"file": str(typed)}})) == [("a", 2), ("b", 0)]
    crossed = make_query({"unit": [2, 3], "shop": {"file": str(plain)}}, max_groups=9)
    assert rows_of(visits, crossed) == [(2, "a", 1), (2, "b", 0), (3, "a", 0), (3, "b", 0)]


def test_files_that_cannot_be_used(visits: DataFrame, tmp_path: Path) -> None:
    two, numbers, empty = tmp_path / "two.csv", tmp_path / "numbers.csv", tmp_path / "empty.csv"
    two.write_text("a,b\n")
    numbers.write_text("1\n1.5\nx\n")
    empty.write_text("")
    (tmp_path / "text.parquet").write_text("shop\na\n")
    for file, column, why in [
        (two, "shop", "a file with one column"),
        (numbers, "unit", "a file of bigint keys.*2 other rows"),
        (empty, "shop", "a file with one column"),
        (tmp_path / "absent.csv", "shop", "an existing file of keys"),
        (tmp_path / "text.parquet", "shop", "an existing file of keys"),
        (Path("unknown://host/keys.csv"), "shop", "an existing file of keys"),
    ]:
        with pytest.raises(InvalidInput, match=f"^group_by.{column}.file must be {why}"):
            exact(visits, make_query({column: {"file": str(file)}}, max_groups=9))


@pytest.mark.parametrize(
    ("text", "rows"),
    [("shop,name\na,x\nb,y,z\n", 1), ("shop\na\nb,c\nd,e,f\n", 2), ("a\nb, c\n", 1), ("name,shop\nx,a\ny\n", 1)],
)
def test_rows_with_other_cells_than_the_header_are_refused(
    visits: DataFrame, tmp_path: Path, text: str, rows: int
) -> None:
    """What a row has beyond the first row's cells would be lost, what it lacks would become a null key."""
    file = tmp_path / "ragged.csv"
    file.write_text(text)
    why = rf"must be a file whose rows have as many cells as its first row.*{rows} other rows"
    with pytest.raises(InvalidInput, match=rf"^group_by\.shop\.file {why}"):
        exact(visits, make_query({"shop": {"file": str(file)}}))


@pytest.mark.parametrize("header", ["Shop", " shop", "SHOP,name", '"shop "'])
def test_a_header_in_another_spelling_is_no_key(visits: DataFrame, tmp_path: Path, header: str) -> None:
    file = tmp_path / "spelled.csv"
    file.write_text(f"{header}\na{',' * header.count(',')}\n")
    with pytest.raises(InvalidInput, match=r"^group_by\.shop\.file must be a file whose header is spelled like"):
        exact(visits, make_query({"shop": {"file": str(file)}}))
    file.write_text("shop\nShop\na\n")  # below a header it is a key
    assert rows_of(visits, make_query({"shop": {"file": str(file)}})) == [("Shop", 0), ("a", 2)]


def test_commas_in_quotes_and_a_byte_order_mark(visits: DataFrame, tmp_path: Path) -> None:
    file = tmp_path / "keys.csv"
    file.write_bytes(b'\xef\xbb\xbfshop,name\r\n"a",x\r\n"d, e","a ""b"", c"\r\n')
    assert rows_of(visits, make_query({"shop": {"file": str(file)}})) == [("a", 2), ("d, e", 0)]


@pytest.mark.parametrize(
    ("group_by", "start"),
    [
        ({"shop": [1, 2]}, "group_by.shop must be keys of the type of the column"),
        ({"unit": ["1"]}, "group_by.unit must be keys of the type of the column"),
        ({"tiny": [200]}, "group_by.tiny must be keys of the type of the column"),
        ({"tiny": {"range": [0, 128]}}, "group_by.tiny.range must be"),
        ({"day": ["2026-01-01"]}, "group_by.day must be"),
        ({"shop": {"bins": [0, 1]}}, "group_by.shop.bins must be a column of numbers"),
        ({"amount": [1]}, "group_by.amount must be a column of texts"),
        ({"time": {"file": "never-read.csv"}}, "group_by.time must be a column of texts"),
        ({"shops": ["a"]}, "group_by must be a column of the source"),
        ({"select": ["amount"], "delta": 1e-6}, "group_by.select must be a column of"),
    ],
)
def test_what_does_not_fit_is_told_from_the_schema(spark: SparkSession, group_by: dict[str, Any], start: str) -> None:
    schema = "unit BIGINT, shop STRING, tiny TINYINT, day DATE, amount DOUBLE, time TIMESTAMP"
    frame = spark.createDataFrame([], schema)
    privacy = {"unit": "unit", "epsilon": 1.0, "max_groups": 5, "delta": 1e-6 if "select" in group_by else 0.0}
    query = make_query(group_by, privacy=privacy)
    with no_job(spark, start), pytest.raises(InvalidInput) as refused:
        exact(frame, query)
    assert str(refused.value).startswith(start)


def test_measures_and_units_that_do_not_fit(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], "unit BIGINT, shop STRING, many ARRAY<INT>")
    total = [{"name": "total", "type": "sum", "column": "shop", "lower": 0, "upper": 1}]
    with no_job(spark, "measures"):
        with pytest.raises(InvalidInput, match=r"^measures\[0\].column must be a column of numbers"):
            exact(frame, make_query({"shop": ["a"]}, measures=total))
        with pytest.raises(InvalidInput, match=r"^privacy.unit must be a column of texts"):
            exact(frame, make_query({"shop": ["a"]}, privacy={"unit": "many", "epsilon": 1.0, "max_groups": 1}))
