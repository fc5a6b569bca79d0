"""A collection: one noise for each row whatever Spark does, missing and impossible values, and the published folder."""

from __future__ import annotations

import datetime
import json
import math
import operator
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_rdp.collection import plan_collect
from spark_rdp.digests import RowDigests
from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.local_build import build_local
from spark_rdp.queries import CollectQuery
from spark_rdp.spark.collect import EVERY_ROW, Collection, collect
from spark_rdp.spark.row_noise import RowNoise

SECRET = bytes(range(32))
SCHEMA = "device BIGINT, event STRING, battery DOUBLE"
NAN, INF = math.nan, math.inf
Build = Callable[..., CollectQuery]


def query(**changes: Any) -> CollectQuery:
    column = {"column": "battery", "lower": 0, "upper": 101, "epsilon": 0.7, "mechanism": "podium"}
    column |= changes.pop("column", {})
    return CollectQuery(**{"name": "telemetry", "row_key": ["device", "event"], "columns": [column], **changes})


def support(collection: Collection, column: str = "battery") -> tuple[float, float]:
    plan = collection.plans[column]
    mechanism = build_local(plan.mechanism, plan.parameters)
    low, high = mechanism.lattice.to_values(np.array(mechanism.support))
    return float(low), float(high)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    """3,001 rows in four partitions, over a batch boundary; the last one differs from the others in nothing."""
    made = spark.range(0, 3001, 1, 4).withColumnRenamed("id", "device")
    return made.select("device", F.format_string("event-%d", "device").alias("event"), F.lit(42.0).alias("battery"))


def by_device(frame: DataFrame) -> dict[int, float]:
    return {row.device: row.battery for row in frame.collect()}


def test_every_row_has_one_noise_whatever_spark_does(spark: SparkSession, rows: DataFrame) -> None:
    collection = collect(rows, query(keep=["device"]), secret=SECRET)
    assert collection.df.columns == ["device", "battery"]
    first = by_device(collection.df)
    assert len(first) == 3001
    assert len(set(first.values())) > 2990  # neither a constant nor a stream that repeats
    assert 42.0 not in first.values()  # no row in clear, the last one included
    assert by_device(collection.df) == first
    assert by_device(collection.df.repartition(7).sort("battery")) == first
    low = {device: value for device, value in first.items() if value < 42}
    assert by_device(collection.df.where("battery < 42")) == low
    twice = collection.df.select("battery", (F.col("battery") + 0).alias("again")).where("battery <> again")
    assert twice.count() == 0
    assert by_device(collect(rows.coalesce(1), query(keep=["device"]), secret=SECRET).df) == first
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    try:
        assert by_device(collect(rows.repartition(3), query(keep=["device"]), secret=SECRET).df) == first
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def test_the_batches_of_a_parquet_reader_get_the_noise_of_any_other(spark: SparkSession, tmp_path: Path) -> None:
    """They come 4096 rows long, several are noised together, and Spark puts the values back to the rows."""
    made = spark.range(0, 40_000, 1, 1).withColumnRenamed("id", "device")
    made = made.select("device", F.format_string("event-%d", "device").alias("event"), F.lit(42.0).alias("battery"))
    made.write.parquet(str(tmp_path / "rows"))
    read = by_device(collect(spark.read.parquet(str(tmp_path / "rows")), query(keep=["device"]), secret=SECRET).df)
    assert len(set(read.values())) > 39_000
    assert read == by_device(collect(made.repartition(3), query(keep=["device"]), secret=SECRET).df)


def test_spark_is_told_that_the_noise_is_not_deterministic(rows: DataFrame) -> None:
    columns = [
        {"column": name, "lower": 0, "upper": 101, "epsilon": 1, "mechanism": "podium"} for name in ("battery", "x")
    ]
    frame = collect(rows.withColumn("x", F.lit(1.0)), query(columns=columns), secret=SECRET).df
    execution = frame._jdf.queryExecution()
    analysed = execution.analyzed().toJSON()
    assert '"udfDeterministic":false' in analysed
    assert '"udfDeterministic":true' not in analysed
    text = execution.toString()
    assert text.count("ArrowEvalPython") == 2  # one call for both columns, in the optimised and the physical plan
    assert SECRET.hex() not in text


def test_other_secrets_columns_names_and_values_have_other_noise(rows: DataFrame) -> None:
    small = rows.limit(200)
    noise = [
        collect(small, query(), secret=SECRET),
        collect(small, query(), secret=bytes(32)),
        collect(small, query(name="other"), secret=SECRET),
        collect(small.withColumnRenamed("battery", "charge"), query(column={"column": "charge"}), secret=SECRET),
        collect(small.withColumn("battery", F.lit(42.5)), query(), secret=SECRET),
        collect(small, query()),
        collect(small, query()),
    ]
    drawn = [{row[0] for row in collection.df.collect()} for collection in noise]
    assert all(len(first & second) < 5 for place, first in enumerate(drawn) for second in drawn[:place])


def test_a_memoised_device_always_says_the_same(spark: SparkSession) -> None:
    reports = spark.range(1000).select((F.col("id") % 2).alias("device"), F.lit(17.0).alias("battery"))
    asked = query(row_key=[], memoize={"by": "device"}, keep=["device"])
    answers = {tuple(row) for row in collect(reports, asked, secret=SECRET).df.collect()}
    assert len(answers) == 2  # one for each device
    again = {tuple(row) for row in collect(reports.limit(700).repartition(3), asked, secret=SECRET).df.collect()}
    assert again == answers
    other = {tuple(row) for row in collect(reports, asked, secret=bytes(32)).df.collect()}
    assert len(other) == 2
    assert not other & answers
    with pytest.raises(InvalidInput, match="secret must be given"):
        collect(reports, asked)


def test_memoized_noise_is_never_drawn_anew_unnoticed(rows: DataFrame, tmp_path: Path) -> None:
    """As after a change of the planner: the manifest of an earlier run names another stream."""
    asked = query(row_key=[], memoize={"by": "device"}, output={"path": str(tmp_path)})
    stream = plan_collect(asked).columns["battery"].stream
    manifest = tmp_path / "run=1" / "manifest.json"
    manifest.parent.mkdir()
    for kind, unit, name, found, refused in [
        ("collect", ["device"], "telemetry", "f" * 64, True),
        ("collect", ["device"], "telemetry", stream, False),
        ("collect", ["device"], "other", "f" * 64, False),
        ("collect", "row", "telemetry", "f" * 64, False),
        ("release", ["device"], "telemetry", "f" * 64, False),
    ]:
        plan = {"columns": [{"column": "battery", "stream": found}]}
        manifest.write_text(json.dumps({"kind": kind, "unit": unit, "name": name, "plan": plan}))
        with pytest.raises(InvalidInput) as failure:  # the other ones fail later, for want of the secret
            collect(rows, asked, secret="env:NOWHERE_TO_BE_FOUND", run="2")
        sentence = "The noise of battery must stay that of run=1, because it is memoised"
        assert str(failure.value).startswith(sentence) == refused


def test_missing_and_impossible_values(spark: SparkSession) -> None:
    """Everything is clamped or taken for the midpoint, so that it is hidden among all values of the range."""
    values = [None, NAN, INF, -INF, 1e308, -1e308, -0.0, 5e-324, 101.0, 50.5]
    frame = spark.createDataFrame([(n, "e", value) for n, value in enumerate(values)], SCHEMA)
    collection = collect(frame, query(keep=["device"]), secret=SECRET)
    low, high = support(collection)
    noisy = by_device(collection.df)
    assert all(low <= value <= high for value in noisy.values())
    stand_in = [50.5, 50.5, 101.0, 0.0, 101.0, 0.0, 0.0, 5e-324, 101.0, 50.5]
    clean = spark.createDataFrame([(n, "e", value) for n, value in enumerate(stand_in)], SCHEMA)
    assert by_device(collect(clean, query(keep=["device"]), secret=SECRET).df) == noisy
    kept = by_device(collect(frame, query(keep=["device"], null_policy="drop"), secret=SECRET).df)
    assert kept == {device: value for device, value in noisy.items() if device > 1}


@pytest.mark.parametrize(
    ("changes", "value", "sentence"),
    [
        ({"null_policy": "error"}, None, "columns[0] (battery) must have no missing values"),
        ({"null_policy": "error"}, NAN, "columns[0] (battery) must have no missing values"),
        ({"invalid": "error"}, 101.25, "columns[0] (battery) must lie within lower and upper"),
        ({"invalid": "error"}, -INF, "columns[0] (battery) must lie within lower and upper"),
    ],
)
def test_policies_that_stop_the_job_name_no_value(
    spark: SparkSession, tmp_path: Path, changes: dict[str, Any], value: Any, sentence: str
) -> None:
    frame = spark.createDataFrame([(1, "e", 5.0), (2, "e", value)], SCHEMA)
    with pytest.raises(InvalidInput) as failure:
        collect(frame, query(**changes, output={"path": str(tmp_path / "out")}))
    assert str(failure.value).startswith(sentence)
    assert "101.25" not in str(failure.value)
    assert list(tmp_path.iterdir()) == []


def test_a_row_without_a_key_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(1, "e", 5.0), (2, None, 5.0)], SCHEMA)
    with pytest.raises(InvalidInput, match="row_key must not be null in any row"):
        collect(frame, query(output={"path": str(tmp_path / "out")}))


@pytest.mark.parametrize("kind", ["none", "one", "nulls"])
def test_little_data_is_answered_like_any_other(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    data: list[tuple[Any, ...]] = {"none": [], "one": [(1, "e", 5.0)], "nulls": [(1, "e", None), (2, "e", None)]}[kind]
    result = collect(spark.createDataFrame(data, SCHEMA), query(output={"path": str(tmp_path / "out")}))
    published = result.df.collect()
    assert len(published) == result.manifest["rows"] == len(data)
    assert all(row.battery is not None for row in published)
    assert result.df.dtypes == [("battery", "double")]


def test_special_values_of_every_type(spark: SparkSession) -> None:
    """The published doubles are those of the clamped values computed without Spark: ANSI on and off, in any zone.

    Known-faults, rows 21, 128, 131 and 132. Dates and times are as far away as their types reach.
    """
    single, most = float(np.finfo(np.float32).max), Decimal("99999999999999999999.999999999999999999")
    values: dict[str, list[Any]] = {
        "d DOUBLE": [None, NAN, INF, -INF, -0.0, 1e308, 5e-324],
        "f FLOAT": [None, NAN, INF, -INF, -0.0, single, 2.0**-149],
        "n DECIMAL(38,18)": [None, most, most.copy_negate(), *map(Decimal, ("1e-18", "0.5", "-7.25", "8"))],
        "l BIGINT": [None, 2**63 - 1, -(2**63), 2**53 + 1, 0, -1, 2_500_000],
        "i INT": [None, 2**31 - 1, -(2**31), 0, -1, 1, 7],
    }
    plain = {name.split()[0]: [NAN if one is None else float(one) for one in column] for name, column in values.items()}
    plain |= {"day": plain["i"], "at": [one / 1e6 for one in plain["l"]]}
    schema = ", ".join(["id INT", *values])
    frame = spark.createDataFrame(list(zip(range(7), *values.values(), strict=True)), schema)
    frame = frame.selectExpr("*", "date_from_unix_date(i) AS day", "timestamp_micros(l) AS at")
    ranged = {"lower": -3, "upper": 8, "epsilon": 0.7, "mechanism": "podium"}
    asked = CollectQuery(name="odd", row_key=["id"], columns=[{"column": name, **ranged} for name in plain])
    noise = RowNoise.of(asked, plan_collect(asked), SECRET)
    batch = [pa.array(np.arange(7)), *(pa.array(column) for column in plain.values())]
    expected = [column.to_pylist() for column in noise.noised(RowDigests(noise.key), batch)]
    for ansi, zone in (("true", "UTC"), ("false", "Asia/Kathmandu")):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        spark.conf.set("spark.sql.session.timeZone", zone)
        try:
            table = collect(frame.coalesce(1), asked, secret=SECRET).df.toArrow()
        finally:
            spark.conf.unset("spark.sql.ansi.enabled")
            spark.conf.set("spark.sql.session.timeZone", "UTC")
        assert [column.to_pylist() for column in table.columns] == expected


def test_every_type_lands_as_a_double(spark: SparkSession, tmp_path: Path) -> None:
    """Numbers as they are, dates in days, times in seconds; arrays element by element. In parquet, without nulls."""
    day, moment = datetime.date(2026, 11, 30), "2026-11-30 12:00:00.25"
    frame = spark.sql(
        f"SELECT 1 AS id, 7 AS i, 7L AS l, 7.5F AS f, 7.25BD AS d, DATE'{day}' AS day, "
        f"TIMESTAMP'{moment} UTC' AS at, 7S AS s, TRUE AS b, TIMESTAMP_NTZ'{moment}' AS wall, "
        f"array(1, 2, 3) AS whole, array(DATE'{day}') AS days, array(NULL, TIMESTAMP'{moment} UTC') AS times, "
        "array('1') AS texts"
    )
    days = (day - datetime.date(1970, 1, 1)).days
    seconds = days * 86400 + 43200.25
    exact: dict[str, Any] = {"i": 7, "l": 7, "f": 7.5, "d": 7.25, "day": days, "at": seconds, "s": 7}
    # With a budget this large the noise is far below one unit: what remains is the documented number.
    common = {"epsilon": 60, "mechanism": "podium"}
    columns = [{"column": name, "lower": value - 10, "upper": value + 10, **common} for name, value in exact.items()]
    ranges = {"whole": (0, 10), "days": (days - 5, days + 15), "times": (seconds - 5, seconds + 15)}
    lists = {
        "whole": [1, 2],
        "days": [days, days + 5],
        "times": [seconds + 5, seconds],
    }  # the midpoint for missing ones
    array = {"length": 2, "sample": 2, "epsilon": 120, "mechanism": "podium"}
    columns += [{"column": name, "lower": low, "upper": high, **array} for name, (low, high) in ranges.items()]
    asked = CollectQuery(name="types", row_key=["id"], columns=columns, output={"path": str(tmp_path / "out")})
    result = collect(frame, asked)
    [file] = (tmp_path / "out").glob("part-*")
    table = pq.read_table(file)
    assert [str(kind) for kind in table.schema.types] == ["double"] * 7 + ["list<element: double>"] * 3
    assert table.schema.names == [*exact, *lists]
    [row] = table.to_pylist()
    for name, value in {**exact, **lists}.items():
        assert row[name] == pytest.approx(value, abs=2e-3, rel=0), name
    assert result.df.first().asDict() == row  # type: ignore[union-attr]
    kinds = ["int", "bigint", "float", "decimal(3,2)", "date", "timestamp", "smallint"]
    kinds += ["array<int>", "array<date>", "array<timestamp>"]
    assert result.manifest["source_types"] == dict(zip([*exact, *lists], kinds, strict=True))
    for name, kind in (("b", "boolean"), ("wall", "timestamp_ntz"), ("whole", "array<int>"), ("texts", "string")):
        length = {"length": 1, "sample": 1} if name == "texts" else {}
        column = {"column": name, "lower": 0, "upper": 1, "epsilon": 1, "mechanism": "duchi", **length}
        with pytest.raises(InvalidInput, match=rf"^columns\[0\]\.column must be a column of numbers.* not of {kind}"):
            collect(frame, CollectQuery(name="types", row_key=["id"], columns=[column]))
    column |= {"column": "i"}
    with pytest.raises(InvalidInput, match=r"^columns\[0\]\.column must be a column of arrays, not of int"):
        collect(frame, CollectQuery(name="types", row_key=["id"], columns=[column]))
    with pytest.raises(InvalidInput, match=r"^keep\[0\] must be a column of the source"):
        collect(frame, CollectQuery(name="types", row_key=["id"], columns=columns, keep=["nowhere"]))


def test_columns_share_a_budget(spark: SparkSession, tmp_path: Path) -> None:
    """Each row reports two of four values, in every partitioning and batch the same; a memoised device always."""
    columns = [{"column": "battery", "lower": 0, "upper": 101}, {"column": "v", "lower": 0, "upper": 9, "length": 3}]
    columns = [{**column, "mechanism": "duchi"} for column in columns]
    rows = spark.range(0, 400, 1, 3).selectExpr(
        "id AS device", "id % 7 AS sort", "12 AS battery", "array(1, 2, 8) AS v"
    )
    given = {"name": "shared", "epsilon": 30, "sample": 2, "columns": columns, "keep": ["device"]}
    asked = CollectQuery(row_key=["device"], **given, output={"path": str(tmp_path / "out")})
    result = collect(rows, asked, secret=SECRET)
    table = {row.device: (row.battery, *row.v) for row in result.df.collect()}
    plans = result.plan.columns
    unsampled = [plans["battery"].unsampled, *[plans["v"].unsampled] * 3]
    reports = {device: sum(map(operator.ne, values, unsampled)) for device, values in table.items()}
    assert set(reports.values()) == {2}
    share = result.manifest["plan"]["columns"][1]["share"]
    assert share == {
        "columns": ["battery", "v"],
        "epsilon": 30,
        "values": 4,
        "reported": 2,
        "scale": 2,
        "alternatives": {},
    }
    assert result.manifest["epsilon"]["total"] == 30
    assert result.manifest["epsilon"]["by_column"] == {"battery": 15, "v": 30}
    lazy = CollectQuery(row_key=["device"], **given)
    again = collect(rows.repartition(2).sort("sort"), lazy, secret=SECRET).df.collect()
    assert {row.device: (row.battery, *row.v) for row in again} == table
    by_device = CollectQuery(memoize={"by": "sort"}, **{**given, "keep": ["sort"]})
    assert collect(rows, by_device, secret=SECRET).df.distinct().count() == 7  # one answer for each of the seven


def test_rows_without_a_value_are_dropped_where_that_is_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    arrays = [None, [1.0], [1.0, None], [1.0, NAN], [1.0, 2.0], [1.0, 2.0, None]]
    frame = spark.createDataFrame(list(enumerate(arrays)), "device BIGINT, v ARRAY<DOUBLE>")
    column = {"column": "v", "lower": 0, "upper": 9, "epsilon": 30, "length": 2, "sample": 2, "mechanism": "duchi"}
    given = {"name": "dropped", "row_key": ["device"], "columns": [column], "keep": ["device"], "null_policy": "drop"}
    kept = collect(frame, CollectQuery(**given)).df.collect()
    assert sorted(row.device for row in kept) == [4, 5]
    assert all(len(row.v) == 2 and None not in row.v for row in kept)
    with pytest.raises(InvalidInput, match="must hold arrays of 2 elements"):
        collect(frame, CollectQuery(**given, invalid="error", output={"path": str(tmp_path / "out")}))


@pytest.mark.parametrize("odd", [None, INF])
def test_one_value_changes_nothing_but_its_own_row(rows: DataFrame, tmp_path: Path, odd: float | None) -> None:
    """Neighbouring inputs: the same schema, files, number and order of rows, and the same noise for all other rows."""
    small = rows.where("device < 40")
    changed = small.withColumn("battery", F.when(F.col("device") == 39, F.lit(odd)).otherwise(F.col("battery")))
    folders = []
    for name, frame in (("calm", small), ("odd", changed)):
        asked = query(keep=["device"], output={"path": str(tmp_path / name)})
        folders.append(collect(frame, asked, secret=SECRET).folder)
    files = [sorted(folder.glob("part-*")) for folder in folders if folder]
    assert [file.name for file in files[0]] == [file.name for file in files[1]]
    differing = []
    for first, second in zip(*files, strict=True):
        calm, strange = pq.read_table(first), pq.read_table(second)
        assert calm.schema == strange.schema
        assert calm["device"] == strange["device"]
        differing += [row for row, other in zip(calm.to_pylist(), strange.to_pylist(), strict=True) if row != other]
    assert [row["device"] for row in differing] == [39]


def test_the_mean_is_not_biased_and_the_support_is_one(spark: SparkSession) -> None:
    """200,000 rows, three inputs: means within 5.5 standard errors (false alarm 1e-7), the same ends for all inputs.

    A scale that is 3 % wrong makes the variance 6 % wrong, which is more than twice the tolerance.
    """
    inputs = {0: 0.0, 1: 30.0, 2: 101.0}
    value = F.element_at(F.array(*map(F.lit, inputs.values())), (F.col("id") % 3 + 1).cast("int"))
    frame = spark.range(200_000).select(F.col("id").alias("device"), F.lit("e").alias("event"), value.alias("battery"))
    collection = collect(frame.withColumn("input", F.col("device") % 3), query(keep=["input"]))
    table = collection.df.toArrow()
    inputs_drawn, drawn = (table[name].to_numpy() for name in ("input", "battery"))
    low, high = support(collection)
    plan = collection.plans["battery"]
    mechanism = build_local(plan.mechanism, plan.parameters)
    for number, truth in inputs.items():
        noisy = drawn[inputs_drawn == number]
        variance = float(mechanism.variance(np.array([truth]))[0])
        assert abs(noisy.mean() - truth) < 5.5 * math.sqrt(variance / len(noisy))
        spread = np.var((noisy - truth) ** 2)
        tolerance = 5.5 * math.sqrt(spread / len(noisy))
        assert abs(np.mean((noisy - truth) ** 2) - variance) < tolerance < 0.03 * variance
        assert low <= noisy.min() < low + 0.01 * (high - low)
        assert high >= noisy.max() > high - 0.01 * (high - low)


def test_a_collection_and_its_folder(rows: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLECT_TEST_SECRET", SECRET.hex())
    asked = query(keep=["device"], secret="env:COLLECT_TEST_SECRET", output={"path": str(tmp_path / "out")})
    result = collect(rows, asked, run="1")
    folder = tmp_path / "out" / "run=1"
    assert result.folder == folder
    assert not result.already_published
    names = sorted(file.name for file in folder.iterdir())
    assert names == ["manifest.json", *(f"part-{place:05d}.snappy.parquet" for place in range(4))]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest == result.manifest
    assert (manifest["release_id"], manifest["rows"], manifest["unit"]) == ("telemetry@1", 3001, "row")
    assert manifest["epsilon"] == {"total": 0.7, "by_column": {"battery": 0.7}, "covers": EVERY_ROW}
    for secret in (SECRET, SECRET.hex().encode()):
        assert all(secret not in file.read_bytes() for file in folder.iterdir())
    values = by_device(result.df)
    assert values == by_device(collect(rows, query(keep=["device"]), secret=SECRET).df)  # the same secret, another run
    monkeypatch.delenv("COLLECT_TEST_SECRET")  # reading back needs neither the secret nor the rows
    again = collect(rows.limit(0), asked, run="1")
    assert again.already_published
    assert again.plan == result.plan
    assert by_device(again.df) == values
    with pytest.raises(InvalidInput, match="another query"):
        collect(rows, query(output={"path": str(tmp_path / "out")}), run="1")
    with pytest.raises(InvalidInput, match="COLLECT_TEST_SECRET is not set"):
        collect(rows, asked, run="2")
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["run=1"]


def test_rows_that_are_far_too_wide_are_cut_before_python(spark: SparkSession) -> None:
    """A thousand arrays of a hundred thousand elements, of which two are asked for (K16 160)."""
    column = {"column": "v", "lower": 0, "upper": 9, "epsilon": 30, "length": 2, "mechanism": "duchi"}
    asked = query(row_key=["device"], keep=["device"], columns=[column])
    device = F.col("id").alias("device")
    wide, narrow = (
        spark.range(1000).select(device, F.transform(F.sequence(F.lit(0), F.lit(last)), lambda n: n % 10).alias("v"))
        for last in (99_999, 1)
    )
    frame = collect(wide, asked, secret=SECRET).df
    sent = frame._jdf.queryExecution().optimizedPlan().toString()
    assert "slice(" in sent
    assert frame.collect() == collect(narrow, asked, secret=SECRET).df.collect()
