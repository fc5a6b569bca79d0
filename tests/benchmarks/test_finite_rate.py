"""Noise on the cells of a map beside a pandas function that returns its column unchanged."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pytest
from benchmarks.timing import fastest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.functions import pandas_udf

from spark_rdp.mechanisms.finite.grids import Grid
from spark_rdp.mechanisms.finite.tight_constraints import tight
from spark_rdp.queries import CollectQuery
from spark_rdp.randomness import KeyedBits
from spark_rdp.spark.cell_noise import keyed_cells
from spark_rdp.spark.collect import collect

ROWS = 400_000


@pytest.mark.benchmark
def test_a_noised_cell_costs_a_few_random_words() -> None:
    """Processor time on one core: about 3 million cells a second, 12 times the random words of a cell.

    The words are drawn ten times, so that both sides take as long: shorter times are not measured well.
    """
    rng = np.random.default_rng(0)
    digests, cells = rng.integers(0, 256, size=(300_000, 16), dtype=np.uint8), rng.integers(10_000, size=300_000)
    mechanism = tight(Grid((100, 100), (1.0, 1.0)), 1.0)

    sides = {
        "words": lambda: [KeyedBits(bytes(32), digests, cells).words(0, 2) for _ in range(10)],
        "noise": lambda: keyed_cells(mechanism, bytes(32), cells, digests),
    }
    best = fastest(sides, {"noise": 4}, "words", clock=time.process_time)
    assert best["noise"] < 4 * best["words"]


@pytest.mark.benchmark
def test_collecting_places_costs_about_as_much_as_python_itself(spark: SparkSession) -> None:
    """About twice the time on two quiet cores; the limit leaves room for a busy machine."""

    @pandas_udf("double")  # type: ignore[call-overload]
    def unchanged(value: pd.Series) -> pd.Series:
        return value

    rows = spark.range(0, ROWS, 1, 4).select(
        "id",
        (F.lit(40.2) + (F.col("id") * 7919 % ROWS) / ROWS * 0.9).alias("lat"),
        (F.lit(-74.6) + (F.col("id") * 104729 % ROWS) / ROWS * 1.2).alias("lon"),
    )
    box = {"latitude": "lat", "longitude": "lon", "south": 40.2, "north": 41.1, "west": -74.6, "east": -73.4}
    column = {"column": "place", "grid": {**box, "cells": 100}, "epsilon_per_km": 1.0}
    private = collect(rows, CollectQuery(name="benchmark", row_key=["id"], columns=[column]), secret=bytes(32))
    assert private.plans["place"].mechanism == "tight-constraints"
    frames = {"plain": rows.select(unchanged("lat"), unchanged("lon")), "noised": private.df}
    sides = {
        name: frame.write.format("noop").mode("overwrite").save  # evaluated anew at every call
        for name, frame in frames.items()
    }
    best = fastest(sides, {"noised": 6}, "plain")
    assert best["noised"] < 6 * best["plain"]
