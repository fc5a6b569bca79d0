"""The noise stage: streams, re-evaluation, closures, intervals. The exact frames are made by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from scipy import stats

from spark_rdp.outputs import public_values
from spark_rdp.queries import ReleaseQuery
from spark_rdp.randomness import DIGEST_BYTES, SECRET_BYTES, stream_key
from spark_rdp.releases import ReleasePlan, plan_release
from spark_rdp.spark.noise import _Noise, add_noise, noised, public_schema

SECRET = bytes(range(SECRET_BYTES))
COUNT = {"name": "n", "type": "count", "max_per_group": 1}
ALL = [
    COUNT,
    {"name": "units", "type": "count_units"},
    {"name": "total", "type": "sum", "column": "v", "lower": 0, "upper": 500},
    {"name": "average", "type": "mean", "column": "v", "lower": -3, "upper": 7, "max_per_group": 2},
    {"name": "spread", "type": "histogram", "column": "v", "bins": [0, 1, 2, 5]},
    {"name": "one_bin", "type": "histogram", "column": "v", "bins": [0, 5]},
]


def plan_of(*measures: dict[str, Any], keys: int = 1000, epsilon: float = 1.0, **more: Any) -> ReleasePlan:
    given = {
        "privacy": {"unit": "u", "epsilon": epsilon, "max_groups": 1},
        "group_by": {"k": {"range": [0, keys - 1]}},
        **more,
    }
    return plan_release(ReleaseQuery(name="test", measures=list(measures), **given))


def exact(spark: SparkSession, plan: ReleasePlan, keys: int, value: int = 0, partitions: int = 3) -> DataFrame:
    """Every group has the same exact statistics; shuffled, then in one partition and in order, as they really come."""
    frame = spark.range(0, keys, 1, partitions).withColumnRenamed("id", "k").repartition(1).sortWithinPartitions("k")
    for part in plan.components:
        number = F.lit(value).cast("bigint")
        array = part.role == "bins" and part.width > 1
        frame = frame.withColumn(part.column, F.array(*[number] * part.width) if array else number)
    return frame


def noise_of(
    frame: DataFrame, plan: ReleasePlan, column: str = "n", secret: bytes = SECRET, release_id: str = "r"
) -> np.ndarray:
    return np.array(add_noise(frame, plan, secret, release_id).select(column).toArrow()[column].to_pylist())


def digests(count: int, first: int = 0) -> np.ndarray:
    numbers = np.zeros((count, DIGEST_BYTES // 8), dtype=np.uint64)
    numbers[:, 0] = np.arange(first, first + count)
    return numbers.view(np.uint8)


def expected_distinct(plan: ReleasePlan, count: int) -> tuple[float, float]:
    """Mean and a bound on the standard deviation of the number of distinct values in ``count`` independent draws."""
    mechanism = plan.components[0].plan.build()
    reach = mechanism.quantile(1 - 1e-12)
    mass = np.exp(mechanism.log_mass(np.arange(-reach, reach + 1)))
    return float(-np.expm1(count * np.log1p(-mass)).sum()), math.sqrt(count) / 2 + 1


def test_absent_groups_have_noise_of_their_own_with_the_planned_variance(spark: SparkSession) -> None:
    """200,000 empty groups. False alarm below 1e-6; a scale that is 3 % wrong is rejected."""
    keys = 200_000
    plan = plan_of({"name": "n", "type": "sum", "column": "v", "lower": 0, "upper": 1}, keys=keys)
    squares = noise_of(exact(spark, plan, keys), plan) ** 2
    variance = plan.components[0].plan.metric_value ** 2
    # The kurtosis of Laplace-like noise is at most 6.5: five relative deviations of a mean square are 5 sqrt(5.5 / n).
    allowed = 5 * math.sqrt(5.5 / keys)
    assert abs(squares.mean() / variance - 1) <= allowed
    for wrong in (0.97, 1.03):
        assert abs(wrong**2 * squares.mean() / variance - 1) > allowed


def test_1000_declared_absent_keys_have_about_1000_noises(spark: SparkSession) -> None:
    """False alarm below 1e-6 (the number of distinct values stays within six deviations)."""
    plan = plan_of({"name": "n", "type": "sum", "column": "v", "lower": 0, "upper": 1})
    values = noise_of(exact(spark, plan, 1000), plan)
    mean, deviation = expected_distinct(plan, 1000)
    assert mean > 999
    assert len(np.unique(values)) >= mean - 6 * deviation
    assert np.isfinite(values).all()


def test_batches_and_partitions_share_no_stream(spark: SparkSession) -> None:
    """8 partitions x 1,000 equal rows, batches of 10: no repeated noise beyond chance. False alarm below 1e-6."""
    plan = plan_of({"name": "n", "type": "sum", "column": "v", "lower": 0, "upper": 1}, keys=8000)
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    try:
        frame = (
            exact(spark, plan, 8000)
            .repartitionByRange(8, "k")
            .withColumnRenamed("k", "k0")
            .withColumn("digest", F.unhex(F.sha2(F.col("k0").cast("string"), 256)).substr(1, 16))
        )
        stage = frame.mapInArrow(_Noise.of(plan, SECRET, "r"), public_schema(exact(spark, plan, 1), plan))
        noise = np.array(stage.toArrow()["n"].to_pylist())
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(before))
    mean, deviation = expected_distinct(plan, 8000)
    assert len(np.unique(noise)) >= mean - 6 * deviation
    parts = noise.reshape(8, 1000)
    for first, second in itertools.combinations(range(8), 2):
        assert abs(stats.spearmanr(parts[first], parts[second]).statistic) < 6 / math.sqrt(1000)
        for shift in (-1, 0, 1):
            assert (parts[first] == np.roll(parts[second], shift)).sum() <= 2


def test_every_column_and_bin_has_its_own_stream(spark: SparkSession) -> None:
    """Two counts of one query, and the bins of a histogram, agree no more often than independent draws do."""
    same = {**COUNT, "metric": "l1"}
    wide = {"name": "h", "type": "histogram", "column": "v", "bins": list(range(11))}
    plan = plan_of(same, {**same, "name": "m"}, wide, epsilon=0.03)
    rows = add_noise(exact(spark, plan, 1000), plan, SECRET, "r").toArrow()
    columns = [np.array(rows["n"]), np.array(rows["m"]), *np.array(rows["h"].to_pylist()).T]
    for first, second in itertools.combinations(columns, 2):
        assert abs(stats.spearmanr(first, second).statistic) < 6 / math.sqrt(1000)
        assert (first == second).mean() < 0.05
    for column in columns:
        assert abs(stats.spearmanr(column[1:], column[:-1]).statistic) < 6 / math.sqrt(999)


def test_noise_depends_on_the_secret_the_release_the_plan_and_the_value(spark: SparkSession) -> None:
    plan = plan_of({"name": "n", "type": "sum", "column": "v", "lower": 0, "upper": 1})
    frame = exact(spark, plan, 300)
    first = noise_of(frame, plan)
    assert (noise_of(exact(spark, plan, 300, partitions=7), plan) == first).all()
    other = plan_of({"name": "n", "type": "sum", "column": "v", "lower": 0, "upper": 1}, epsilon=1.001)
    step = plan.components[0].plan.granularity
    shifted = noise_of(exact(spark, plan, 300, value=1), plan) - step
    for changed in (
        noise_of(frame, plan, secret=SECRET[::-1]),
        noise_of(frame, plan, release_id="s"),
        noise_of(frame, other),
        shifted,
    ):
        assert (changed == first).mean() < 0.05
        assert abs(stats.spearmanr(changed, first).statistic) < 6 / math.sqrt(300)


def test_every_evaluation_gives_the_same_values(spark: SparkSession) -> None:
    """A filter on a noised column, two uses, a union with itself, an aggregate: the draw is the same."""
    plan = plan_of(*ALL, keys=200)
    frame = add_noise(exact(spark, plan, 200), plan, SECRET, "r")
    rows = {row.k: row for row in frame.collect()}
    assert list(rows) == sorted(rows) == list(range(200))
    positive = frame.filter("n > 0 AND total > 0").collect()
    assert 0 < len(positive) < 200
    assert all(rows[row.k] == row and row.n > 0 and row.total > 0 for row in positive)
    twice = frame.withColumn("n2", F.col("n")).withColumn("double", F.col("n") + F.col("n2"))
    assert all(row.double == 2 * rows[row.k].n for row in twice.collect())
    joined = frame.alias("a").join(frame.alias("b"), "k").select("k", F.expr("a.n - b.n AS d")).collect()
    assert {row.d for row in joined} == {0}
    assert frame.agg(F.sum("n")).first()[0] == sum(row.n for row in rows.values())  # type: ignore[index]


def test_nothing_is_shuffled_or_sorted_after_the_noise(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    plan = plan_of(*ALL, keys=200)
    add_noise(exact(spark, plan, 200), plan, SECRET, "r").explain("extended")
    text = capsys.readouterr().out
    physical = text.partition("== Physical Plan ==")[2]
    above = physical[: physical.index("MapInArrow")]
    assert not any(word in above for word in ("Exchange", "Sort", "Join", "Aggregate"))
    assert SECRET.hex() not in text
    for part in plan.components:
        assert stream_key(SECRET, "r", part.column, part.plan.plan_id).hex() not in text


def test_the_closure_is_small_and_holds_neither_the_secret_nor_a_generator() -> None:
    many = [{**COUNT, "name": f"n{i}", "metric": {"usefulness": 5.0}} for i in range(12)]
    wide = {"name": "h", "type": "histogram", "column": "v", "bins": list(range(5000))}
    pickled = cloudpickle.dumps(_Noise.of(plan_of(*ALL, *many, wide), SECRET, "r"))
    assert len(pickled) < 64 * 1024
    assert SECRET not in pickled
    assert b"andom.Generator" not in pickled
    assert "key" not in repr(_Noise.of(plan_of(*ALL), SECRET, "r"))


def test_every_column_is_typed_and_never_null(spark: SparkSession) -> None:
    plan = plan_of(*ALL, keys=50)
    frame = add_noise(exact(spark, plan, 50), plan, SECRET, "r")
    types = dict(frame.dtypes)
    names = ["k", *(measure["name"] + end for measure in ALL for end in ("", "_low", "_high"))]
    assert frame.columns == names
    bins = "array<bigint>"
    for measure, kind in zip(ALL, ["bigint", "bigint", "double", "double", bins, bins], strict=True):
        assert {types[measure["name"] + end] for end in ("", "_low", "_high")} == {kind}
    rows = frame.collect()
    assert len(rows) == 50
    assert all(value is not None for row in rows for value in row)
    assert all(-3 <= row.average_low <= row.average <= row.average_high <= 7 for row in rows)
    assert {(len(row.spread), len(row.one_bin)) for row in rows} == {(3, 1)}
    granularity = plan.of("total")[0].plan.granularity
    assert all(row.total / granularity == round(row.total / granularity) for row in rows)


def test_no_groups_and_one_overall_row(spark: SparkSession) -> None:
    plan = plan_of(*ALL, keys=50)
    empty = add_noise(exact(spark, plan, 50).filter("k < 0"), plan, SECRET, "r")
    assert empty.collect() == []
    overall = plan_of(*ALL, group_by=None, privacy={"unit": "u", "epsilon": 1.0})
    frame = add_noise(exact(spark, overall, 1).drop("k"), overall, SECRET, "r")
    assert frame.count() == 1
    assert frame.columns[0] == "n"


@pytest.mark.parametrize("name", ["c0", "digest", "a.b", "NOISE", "back`tick", "k0"])
def test_any_key_column_name(spark: SparkSession, name: str) -> None:
    plan = plan_of(COUNT, group_by={name: [0, 1, None]})
    frame = spark.createDataFrame([(0, 5), (None, 7), (1, 6)], "k BIGINT, c BIGINT")
    rows = add_noise(frame.toDF(name, "c0"), plan, SECRET, "r").collect()
    assert [row[0] for row in rows] == [0, None, 1]
    assert rows[0].__fields__[0] == name


def test_keys_that_look_alike_have_different_digests(spark: SparkSession) -> None:
    from spark_rdp.spark.noise import row_digest

    pairs = [(None, None), ("", None), (None, ""), ("null", None), ("a", "b"), ('a","k1":"b', None)]
    frame = spark.createDataFrame(pairs, "k0 STRING, k1 STRING")
    found = frame.select(row_digest(frame.schema.fields, ["k0", "k1"]).alias("d")).toArrow()["d"].to_pylist()
    assert len(set(found)) == 6
    assert {len(digest) for digest in found} == {DIGEST_BYTES}
    for keys, count in (("timestamp_micros(1000000 + id)", 5), ("CAST(unhex(hex(250 + id)) AS STRING)", 5)):
        frame = spark.sql(f"SELECT {keys} AS k0 FROM range(5)")
        assert frame.select(row_digest(frame.schema.fields, ["k0"]).alias("d")).distinct().count() == count


def test_selection_publishes_with_the_planned_probability(spark: SparkSession) -> None:
    """Each share lies in a binomial band of false alarm 1e-7 per number of units. Unselected rows never leave."""
    keys = 20_000
    plan = plan_of(
        COUNT,
        privacy={"unit": "u", "epsilon": 1.0, "max_groups": 1, "delta": 1e-2},
        group_by={"select": ["k"], "delta": 1e-2},
    )
    assert plan.selection is not None
    frame = exact(spark, plan, keys).withColumn("s0", F.col("k") % 12)
    first = add_noise(frame, plan, SECRET, "r")
    published = np.array(first.toArrow()["k"])
    assert published.tolist() == sorted(published.tolist())
    assert first.select("k").toArrow()["k"].to_pylist() == published.tolist()
    for units in range(12):
        probability = float(plan.selection.table.probability(np.array([units]))[0])
        out_of = len(range(units, keys, 12))
        count = int((published % 12 == units).sum())
        low, high = stats.binom.interval(1 - 1e-7, out_of, probability)
        assert low <= count <= high
    assert not (published % 12 == 0).any()


@pytest.mark.parametrize("measure", ALL, ids=lambda measure: str(measure["name"]))
def test_intervals_cover_in_95_percent_of_2000_releases(measure: dict[str, Any]) -> None:
    """2,000 simulated releases lie in the 99.9 % binomial band of 95 %, above it where whole numbers round up.

    Deterministic: the secret is fixed. Counts are whole, so that an interval may cover more often; the exact rate is
    known from the mass function and is what is checked. Means promise at least 95 %.
    """
    plan = plan_of(measure, epsilon=0.5)
    releases = 2000
    truth: dict[str, np.ndarray] = {}
    values: dict[str, np.ndarray] = {}
    for place, part in enumerate(plan.components):
        shape = (releases, part.width) if part.role == "bins" else (releases,)
        truth[part.column] = np.full(shape, {"sum": 3_000_000, "count": 400, "bins": 70}[part.role], dtype=np.int64)
        key = stream_key(SECRET, "coverage", part.column, str(place))
        values[part.column] = noised(part, key, digests(releases), truth[part.column])
    exact_value, _, _ = public_values(measure["name"], plan.components, truth)
    _, low, high = public_values(measure["name"], plan.components, values)
    covered = int(((low <= exact_value) & (exact_value <= high)).sum())
    trials = exact_value.size
    if len(plan.components) == 2:
        assert covered >= stats.binom.ppf(0.0005, trials, 0.95)
        return
    mechanism = plan.components[0].plan.build()
    rate = -math.expm1(mechanism.log_tail(mechanism.quantile(0.95) + 1))
    assert rate >= 0.95
    band_low, band_high = stats.binom.ppf([0.0005, 0.9995], trials, rate)
    assert band_low <= covered <= band_high


def test_wide_histograms_are_noised_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_rdp.spark import noise

    wide = {"name": "h", "type": "histogram", "column": "v", "bins": list(range(1001))}
    plan = plan_of(wide, keys=30)
    array = pa.array(np.zeros((30, 1000), dtype=np.int64).tolist(), type=pa.list_(pa.int64()))
    tags = pa.array([bytes(row) for row in digests(30)], type=pa.binary())
    batch = pa.RecordBatch.from_arrays([pa.array(range(30)), array, tags], names=["k0", "c0", "digest"])
    task = noise._Noise.of(plan, SECRET, "r")
    whole = list(task(iter([batch])))
    monkeypatch.setattr(noise, "NUMBERS_AT_A_TIME", 7000)
    sliced: Iterator[pa.RecordBatch] = task(iter([batch]))
    parts = list(sliced)
    assert [part.num_rows for part in parts] == [7, 7, 7, 7, 2]
    assert pa.Table.from_batches(parts).combine_chunks() == pa.Table.from_batches(whole).combine_chunks()
