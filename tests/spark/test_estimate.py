"""Estimates from real collections: the true means lie in their intervals, groups are answered, the sums are exact."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_rdp.errors import InvalidInput
from spark_rdp.queries import CollectQuery, EstimateQuery
from spark_rdp.spark.collect import Collection, collect
from spark_rdp.spark.estimate import Estimates, estimate

SECRET = bytes(range(32))


def collected(frame: DataFrame, folder: Path, run: str | None = None, **query: Any) -> Collection:
    """A collection of rows that are all of other units, unless it is memoised."""
    units = {} if "memoize" in query else {"privacy": {"unit": "row"}}
    asked = CollectQuery(**{"name": "c", "row_key": ["id"], "output": {"path": str(folder)}, **units, **query})
    return collect(frame, asked, secret=SECRET, run=run)


def estimated(folder: Path, **query: Any) -> Estimates:
    return estimate(EstimateQuery(**{"name": "answers", "collection": str(folder), **query}))


def rows(found: Estimates) -> list[dict[str, Any]]:
    return found.table().to_pylist()


# --- real data: true means of the README of the data, intervals of 99.9 % -------------------------------------------
# The secret is fixed, so that these tests pass always or never. A right estimator would fail one of the five means for
# one secret in 200.


def check_truth(row: dict[str, Any], name: str, truth: float, half: float) -> None:
    """The truth lies in an interval that is no wider than it has to be."""
    assert row[f"{name}_mean_low"] <= truth <= row[f"{name}_mean_high"]
    assert row[f"{name}_mean_high"] - row[f"{name}_mean_low"] < 2 * half
    assert row[f"{name}_total_low"] <= truth * row["rows"] <= row[f"{name}_total_high"]


def test_occupancy(spark: SparkSession, shared_data: Path, tmp_path: Path) -> None:
    """The header has one name fewer than the fields. Each row reports one of two columns, at the whole epsilon."""
    names = "id STRING, date STRING, Temperature DOUBLE, Humidity DOUBLE, Light DOUBLE, CO2 DOUBLE, Ratio DOUBLE, o INT"
    path = str(shared_data / "occupancy_datatraining.txt.gz")
    frame = spark.read.csv(path, schema=names, header=True, enforceSchema=True)
    columns = [{"column": "CO2", "lower": 400, "upper": 2100}, {"column": "Temperature", "lower": 15, "upper": 25}]
    collected(frame, tmp_path / "c", columns=columns, epsilon=1, sample=1)
    (row,) = rows(estimated(tmp_path / "c", confidence=0.999))
    assert row["rows"] == 8143
    assert row["CO2_reported"] + row["Temperature_reported"] == 8143
    check_truth(row, "Temperature", 20.619084, 0.55)
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        co2 = [float(line[5]) for line in list(csv.reader(lines))[1:]]
    check_truth(row, "CO2", float(np.mean(co2)), 95)


def test_water(spark: SparkSession, shared_data: Path, tmp_path: Path) -> None:
    """93.6 % zeros, at the lower end of the range: the median and most of the histogram are there."""
    path = str(shared_data / "ampds2_water_minutely_part1.csv.gz")
    frame = spark.read.csv(path, schema="id BIGINT, counter DOUBLE, rate DOUBLE, inst DOUBLE", header=True)
    collected(frame, tmp_path / "c", columns=[{"column": "rate", "lower": 0, "upper": 16, "epsilon": 1}])
    asked = {"column": "rate", "statistics": ["mean", "total", "variance"], "bins": 8, "quantiles": [0.5]}
    (row,) = rows(estimated(tmp_path / "c", confidence=0.999, columns=[asked]))
    assert row["rows"] == 99_999
    check_truth(row, "rate", 0.27600497, 0.2)
    assert row["rate_q50"] == 0
    shares = np.array(row["rate_histogram"]) / row["rows"]
    assert shares[0] > 0.85
    assert row["rate_histogram_low"][0] <= 0.936 * row["rows"] <= row["rate_histogram_high"][0]
    assert row["rate_variance_low"] <= 1.2 <= row["rate_variance_high"]
    assert 0.95 < row["rate_noise_share"] < 1


def test_adult(spark: SparkSession, shared_data: Path, tmp_path: Path) -> None:
    people: list[tuple[int, int, str]] = []
    for name in ("adult.data.gz", "adult.test.gz"):
        with gzip.open(shared_data / name, "rt", encoding="utf-8") as lines:
            fields = (line.strip().split(", ") for line in lines)
            people += [(int(f[0]), int(f[12]), f[9]) for f in fields if len(f) == 15]
    age, hours, sex = zip(*people, strict=True)
    frame = spark.createDataFrame(pa.table({"id": range(len(people)), "age": age, "hours": hours, "sex": sex}))
    columns = [{"column": name, "lower": 0, "upper": 100, "epsilon": 1} for name in ("age", "hours")]
    collected(frame, tmp_path / "c", columns=columns, keep=["sex"])
    (row,) = rows(estimated(tmp_path / "c", confidence=0.999))
    assert row["rows"] == 48_842
    check_truth(row, "age", 38.64358543876172, 1.6)
    check_truth(row, "hours", (1_316_684 + 657_626) / 48_842, 1.6)
    grouped = rows(
        estimated(
            tmp_path / "c",
            confidence=0.999,
            group_by={"sex": ["Male", "Female"]},
            columns=[{"column": "age", "quantiles": [0.25, 0.5, 0.75], "bins": 10}],
        )
    )
    assert [(row["sex"], row["rows"]) for row in grouped] == [("Female", 16_192), ("Male", 32_650)]
    for row in grouped:
        truth = np.array([a for a, s in zip(age, sex, strict=True) if s == row["sex"]])
        check_truth(row, "age", truth.mean(), 2.8)
        for level, exact in zip((25, 50, 75), np.quantile(truth, [0.25, 0.5, 0.75]), strict=True):
            assert row[f"age_q{level}_low"] <= exact <= row[f"age_q{level}_high"]
            assert abs(row[f"age_q{level}"] - exact) < 4
        found, exact = np.array(row["age_histogram"]), np.histogram(truth, np.linspace(0, 100, 11))[0]
        assert np.abs(found - exact).sum() < 0.25 * row["rows"]
        assert found.sum() == pytest.approx(row["rows"])


# --- a small collection of everything -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of 300 rows: numbers, few outputs, arrays of which some elements are reported, a time."""
    folder = tmp_path_factory.mktemp("mixed") / "c"
    groups = F.element_at(F.array(*map(F.lit, ["a", "b", None])), (F.col("id") % 3 + 1).cast("int"))
    frame = spark.range(0, 300, 1, 3).select(
        "id",
        groups.alias("group"),
        (F.col("id") % 10).alias("number"),
        (F.col("id") / 300).alias("few"),
        F.transform(F.sequence(F.lit(0), F.lit(3)), lambda place: place * 10.0).alias("list"),
        F.timestamp_seconds(F.col("id") + 1_000_000).alias("at"),
    )
    columns = [
        {"column": "number", "lower": 0, "upper": 10, "epsilon": 1, "mechanism": "podium"},
        {"column": "few", "lower": 0, "upper": 1, "epsilon": 3, "mechanism": "fitted"},
        {"column": "list", "lower": 0, "upper": 40, "epsilon": 9, "length": 4, "sample": 2, "mechanism": "laplace"},
        {"column": "at", "lower": 1_000_000, "upper": 1_000_300, "epsilon": 3, "mechanism": "duchi"},
    ]
    for run in ("2026-01-01", "007"):
        collected(frame, folder, run, columns=columns, keep=["group"], name=f"mixed-{run}")
    return folder


def published(folder: Path) -> list[dict[str, Any]]:
    return [row for file in sorted(folder.glob("run=*/part-*")) for row in pq.ParquetFile(file).read().to_pylist()]


ALL = [
    {"column": "number", "statistics": ["mean", "total", "variance"], "edges": [0, 5, 10], "quantiles": [0.5]},
    {"column": "few", "statistics": ["mean", "variance"]},
    {"column": "list", "name": "pooled"},
    {"column": "list", "name": "third", "element": 2},
    {"column": "at"},
]


def test_means_are_those_of_the_published_values(spark: SparkSession, mixed: Path) -> None:
    """Noised values average to the estimates, whatever else is estimated beside them."""
    keys = {"group": ["b", "a", None, "never"], "run": ["007"]}
    found = estimated(mixed, group_by=keys, columns=ALL)
    table = rows(found)
    assert [(row["group"], row["run"], row["rows"]) for row in table] == [
        (None, "007", 100),
        ("a", "007", 100),
        ("b", "007", 100),
        ("never", "007", 0),
    ]
    values = [
        row | {"number": row["number"], "list": np.array(row["list"])}
        for row in published(mixed)[:300]  # run=007 comes first
    ]
    unsampled = found.manifest["plan"]["columns"][2]["unsampled"]
    for row in table[:3]:
        own = [value for value in values if value["group"] == row["group"]]
        assert row["number_mean"] == pytest.approx(np.mean([value["number"] for value in own]), abs=1e-9)
        assert row["number_total"] == pytest.approx(np.sum([value["number"] for value in own]), abs=1e-6)
        assert row["few_mean"] == pytest.approx(np.mean([value["few"] for value in own]), abs=1e-9)
        assert row["at_mean"] == pytest.approx(np.mean([value["at"] for value in own]), abs=1e-6)
        lists = np.array([value["list"] for value in own])
        for name, part in (("pooled", lists.ravel()), ("third", lists[:, 2])):
            reported = part[part != unsampled]
            assert row[f"{name}_reported"] == len(reported)
            assert row[f"{name}_mean"] == pytest.approx(unsampled + (reported - unsampled).mean() / 2, abs=1e-9)
            factor = 400 if name == "pooled" else 100
            assert row[f"{name}_total"] == pytest.approx(factor * row[f"{name}_mean"])
        assert row["third_mean_low"] <= 20 <= row["third_mean_high"]
        assert row["number_variance_low"] <= 8.25 <= row["number_variance_high"]
        assert sum(row["number_histogram"]) == pytest.approx(100)
    empty = table[3]
    assert [empty[f"number_{part}"] for part in ("mean", "mean_low", "mean_high")] == [None, 0, 10]
    assert [empty[f"number_total{end}"] for end in ("", "_low", "_high")] == [0, 0, 0]
    assert [empty[f"number_variance{end}"] for end in ("", "_low", "_high")] == [None, 0, 25]
    assert [empty[f"number_q50{end}"] for end in ("", "_low", "_high")] == [None, 0, 10]
    assert [empty[f"number_histogram{end}"] for end in ("", "_low", "_high")] == [[0, 0]] * 3
    assert found.df.columns == list(found.table().column_names)


def test_the_same_answers_in_every_order_and_published_once(spark: SparkSession, mixed: Path, tmp_path: Path) -> None:
    """Sums are sums of whole numbers: another number of partitions changes no bit of any answer."""
    plain = estimated(mixed, columns=ALL)
    assert rows(plain)[0]["rows"] == 600
    spark.conf.set("spark.sql.files.maxPartitionBytes", "2000")
    try:
        output = {"path": str(tmp_path / "out")}
        first = estimated(mixed, columns=ALL, output=output)
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert first.table().equals(plain.table())
    assert not first.already_published
    assert first.folder is not None
    manifest = json.loads((first.folder / "manifest.json").read_text())
    assert manifest["collections"][0]["release_id"] == "mixed-007@007"
    assert manifest["assumptions"] == plain.assumptions
    again = estimated(mixed, columns=ALL, output=output)
    assert again.already_published
    assert again.table().equals(first.table())
    assert again.df.schema.simpleString() == first.df.schema.simpleString()
    assert [row.asDict() for row in again.df.collect()] == rows(plain)
    with pytest.raises(InvalidInput, match="of another query"):
        estimated(mixed, columns=ALL[:1], output=output)


def test_impossible_results_are_moved_only_when_asked(spark: SparkSession, mixed: Path) -> None:
    columns = [{"column": "number", "statistics": ["mean", "total", "variance"]}]
    keys = {"group": ["a"], "run": ["007"]}
    (plain,) = rows(estimated(mixed, group_by=keys, columns=columns, confidence=1 - 1e-9))
    (moved,) = rows(estimated(mixed, group_by=keys, columns=columns, confidence=1 - 1e-9, post=["range"]))
    assert plain["number_mean"] == moved["number_mean"]
    assert plain["number_variance_low"] < 0 == moved["number_variance_low"]
    assert moved["number_variance_high"] == 25
    (positive,) = rows(estimated(mixed, group_by=keys, columns=columns, confidence=1 - 1e-9, post="nonnegative"))
    assert positive["number_variance_low"] == 0
    assert positive["number_variance_high"] == plain["number_variance_high"] > 25


def test_values_that_no_plan_publishes_are_refused(spark: SparkSession, mixed: Path, tmp_path: Path) -> None:
    """Neither a value off the lattice nor one beyond the support nor a missing one is taken for a report."""
    folder = tmp_path / "c"
    shutil.copytree(mixed / "run=007", folder)
    whole = pa.concat_tables([pq.ParquetFile(file).read() for file in sorted(folder.glob("part-*"))])
    for file in folder.glob("part-*"):
        file.unlink()
    values = whole["number"].to_pylist()
    for wrong in (values[0] + 1e-7, 1e9, None, float("nan")):
        changed = whole.set_column(1, "number", pa.array([wrong, *values[1:]], pa.float64()))
        pq.write_table(changed, folder / "part-00000.parquet")
        with pytest.raises(InvalidInput, match="hold values that its plans cannot have published"):
            estimated(folder, columns=[{"column": "number"}])
    pq.write_table(whole, folder / "part-00000.parquet")
    (row,) = rows(estimated(folder, columns=[{"column": "number"}]))
    assert row["rows"] == 300


def test_a_memoised_collection(spark: SparkSession, tmp_path: Path) -> None:
    """10 devices say one thing 50 times each: the interval knows that there are 10 reports, not 500."""
    frame = spark.range(500).select((F.col("id") % 10).alias("device"), (F.col("id") % 10 * 10.0).alias("x"))
    column = {"column": "x", "lower": 0, "upper": 100, "epsilon": 1, "mechanism": "podium"}
    collected(frame, tmp_path / "c", columns=[column], row_key=[], memoize={"by": "device"})
    with pytest.raises(InvalidInput, match="rows_per_unit must be given"):
        estimated(tmp_path / "c")
    (row,) = rows(estimated(tmp_path / "c", rows_per_unit=50))
    assert row["x_mean_low"] <= 45 <= row["x_mean_high"]
    # Ten reports with a standard deviation of 96 to 113: 60 to 70 to each side.
    assert 115 < row["x_mean_high"] - row["x_mean_low"] < 145
