"""Noise in SQL: one noise per row, the arguments, and the registered names."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_rdp.errors import InvalidInput
from spark_rdp.spark.failures import as_error
from spark_rdp.spark.functions import FUNCTIONS, noised_batch, register_functions

KEY = bytes(range(32))


@pytest.fixture(scope="module")
def sql(spark: SparkSession) -> Iterator[SparkSession]:
    register_functions(spark, secret=KEY)
    spark.range(0, 2000, 1, 2).selectExpr(
        "id AS device", "CAST(id AS STRING) AS event", "42 AS battery"
    ).createTempView("telemetry")
    yield spark
    spark.catalog.dropTempView("telemetry")


def test_a_row_has_one_noise_in_sql(sql: SparkSession) -> None:
    query = "SELECT device, podium(battery, 0, 101, 1.0, device, event) AS noisy FROM telemetry"
    first = {row.device: row.noisy for row in sql.sql(query).collect()}
    assert len(set(first.values())) > 1990
    assert 42.0 not in first.values()
    again = sql.sql(f"SELECT * FROM ({query}) WHERE noisy > 42 ORDER BY noisy").collect()
    assert {row.device: row.noisy for row in again} == {device: value for device, value in first.items() if value > 42}
    register_functions(sql)  # a fresh secret: of 2,000 rows on millions of cells, three the same by chance: below 1e-9
    assert sum(first[row.device] == row.noisy for row in sql.sql(query).collect()) <= 2
    register_functions(sql, secret=KEY)
    assert {row.device: row.noisy for row in sql.sql(query).collect()} == first


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ("podium(battery, 0, 101, 1.0)", "podium must be given a key."),
        ("duchi(battery, 0, 0, 1.0, device)", "lower must be below upper (0.0)"),
        ("hybrid(battery, 0, device, 1.0, device)", "upper must be the same number in every row."),
        ("r2dp_noise(event, 0, 101, 1.0, device)", "value must be a number, a date or a timestamp in r2dp_noise"),
    ],
)
def test_a_refused_call_is_one_sentence(sql: SparkSession, call: str, sentence: str) -> None:
    with pytest.raises(PySparkException) as failure:
        sql.sql(f"SELECT {call} FROM telemetry").collect()
    told = as_error(failure.value)
    assert isinstance(told, InvalidInput)
    assert str(told).startswith(sentence)


def batch(values: pa.Array, *keys: pa.Array, epsilon: float = 2.0) -> tuple[pa.Array, ...]:
    numbers = [pa.array([number] * len(values)) for number in (0, 101, epsilon)]
    return (values, *numbers, *(keys or [pa.array(np.arange(len(values)))]))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_is_unbiased_and_depends_on_its_arguments(name: str) -> None:
    """30,000 rows: the mean is within 6 of its own standard errors (false alarm 1e-8)."""
    values = pa.array(np.full(30_000, 30.0))
    noisy = noised_batch(name, KEY, batch(values)).to_numpy()
    assert abs(noisy.mean() - 30) < 6 * noisy.std() / math.sqrt(len(noisy))
    assert np.array_equal(noised_batch(name, KEY, batch(values)).to_numpy(), noisy)
    for other in (noised_batch(name, bytes(32), batch(values)), noised_batch(name, KEY, batch(values, epsilon=2.5))):
        same = np.mean(other.to_numpy() == noisy)
        assert same < 0.9  # two outputs that happen to agree are nothing special for two points


ODD = [math.nan, math.inf, -math.inf, None, True, "1", 1e308]


@pytest.mark.parametrize("bad", [*ODD, 0.0, -1.0, 5e-324], ids=repr)
def test_an_impossible_epsilon_is_refused(bad: Any) -> None:
    given = list(batch(pa.array([1.0, 2.0])))
    given[3] = pa.array([bad, bad])
    with pytest.raises(InvalidInput, match=r"^epsilon must be "):
        noised_batch("podium", KEY, tuple(given))


@pytest.mark.parametrize("bad", ODD, ids=repr)
@pytest.mark.parametrize("name", ["lower", "upper"])
def test_impossible_bounds_are_refused(name: str, bad: Any) -> None:
    given = list(batch(pa.array([1.0, 2.0])))
    given[1 if name == "lower" else 2] = pa.array([bad, bad])
    with pytest.raises(InvalidInput, match=f"^{name} must be "):
        noised_batch("podium", KEY, tuple(given))


def test_missing_values_and_types() -> None:
    keys = pa.array(["a", "a", "a"])
    values = noised_batch("podium", KEY, batch(pa.array([None, math.nan, 50.5]), keys)).to_pylist()
    assert values[0] == values[1] == values[2]
    wide = noised_batch("podium", KEY, batch(pa.array([math.inf, 101.0, 1e300]), keys)).to_pylist()
    assert wide[0] == wide[1] == wide[2]
    day = pa.array([datetime.date(1970, 2, 1)])
    moment = pa.array(
        [datetime.datetime(1970, 1, 1, 0, 0, 31, tzinfo=datetime.timezone.utc)], pa.timestamp("us", "UTC")
    )
    drawn = {noised_batch("podium", KEY, batch(one, keys[:1])).to_pylist()[0] for one in (day, moment, pa.array([31]))}
    assert len(drawn) == 1
    assert len(noised_batch("podium", KEY, batch(pa.array([], pa.float64())))) == 0
    with pytest.raises(InvalidInput, match="key must not be null in any row of podium"):
        noised_batch("podium", KEY, batch(pa.array([1.0]), pa.array([None], pa.string())))
    with pytest.raises(InvalidInput, match="key must be texts, whole numbers, dates or times"):
        noised_batch("podium", KEY, batch(pa.array([1.0]), pa.array([1.0])))
