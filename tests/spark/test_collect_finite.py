"""Collecting places and categories: one noise for a row, clamps, missing and unknown values, and real data."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import spark_rdp as rdp
from spark_rdp.collection import CollectPlan
from spark_rdp.mechanisms.finite.build import build_finite
from spark_rdp.mechanisms.finite.frequencies import count_errors, likeliest_counts, unbiased_counts
from spark_rdp.mechanisms.finite.geography import MapGrid

SECRET = bytes(range(32))
CITY = {"latitude": "lat", "longitude": "lon", "south": 40.58, "north": 40.90, "west": -74.05, "east": -73.75}
PLACE = {"column": "place", "grid": {**CITY, "cells": 20}, "epsilon_per_km": 2.0}
CHANNEL = {"column": "channel", "categories": ["web", "app", "store"], "other": "other", "epsilon": 1.0}


def query(*columns: dict[str, Any], **more: Any) -> rdp.CollectQuery:
    units = {} if "memoize" in more else {"privacy": {"unit": "row"}}
    return rdp.CollectQuery.of({"name": "cells", "row_key": ["id"], "columns": list(columns), **units, **more})


def rows_of(spark: Any, size: int = 4000) -> Any:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "id": np.arange(size),
            "lat": rng.uniform(40.5, 41.0, size),
            "lon": rng.uniform(-74.1, -73.7, size),
            "channel": rng.choice(["web", "app", "store", "fax"], size),
        }
    )
    return spark.createDataFrame(frame)


def test_a_row_has_one_noise_however_often_it_is_computed(spark: Any) -> None:
    """Known faults 107-110, 119: actions, partitions and order change nothing; rows do not share noise."""
    rows = rows_of(spark)
    asked = query(PLACE, CHANNEL, keep=["id"])
    once = rdp.collect(rows, asked, secret=SECRET).df
    first = once.toPandas().sort_values("id").reset_index(drop=True)
    again = once.toPandas().sort_values("id").reset_index(drop=True)
    other = rdp.collect(rows.repartition(7, "channel"), asked, secret=SECRET).df.toPandas()
    assert first.equals(again)
    assert first.equals(other.sort_values("id").reset_index(drop=True))
    assert {name: str(kind) for name, kind in first.dtypes.items()} == {
        "id": "int64",
        "place": "int64",
        "channel": "str",
    }
    assert first["place"].between(0, 399).all()
    assert set(first["channel"]) == {"web", "app", "store", "other"}
    different = rdp.collect(rows, asked, secret=bytes(32)).df.toPandas().sort_values("id").reset_index(drop=True)
    assert (different["place"] != first["place"]).mean() > 0.2
    kept = once.where("place >= 200").toPandas()
    assert len(kept) == (first["place"] >= 200).sum()
    assert (kept["place"] >= 200).all()


def test_what_is_noised_is_the_cell_of_the_place(spark: Any) -> None:
    """At a huge epsilon next to nothing moves: the cells of Spark are those of `MapGrid`, up to the borders."""
    area = MapGrid(40.58, 40.90, -74.05, -73.75, 20, 20)
    rng = np.random.default_rng(2)
    lat = np.concatenate(
        [rng.uniform(40.4, 41.1, 3000), [40.58, 40.90, 0.0, 90.0, np.inf, -np.inf], 40.58 + 0.016 * np.arange(21)]
    )
    lon = np.concatenate(
        [rng.uniform(-74.3, -73.5, 3000), [-74.05, -73.75, 0.0, 0.0, -74.0, -74.0], -74.05 + 0.015 * np.arange(21)]
    )
    rows = spark.createDataFrame(pd.DataFrame({"id": np.arange(len(lat)), "lat": lat, "lon": lon}))
    column = {**PLACE, "epsilon_per_km": 1000.0}
    found = rdp.collect(rows, query(column, keep=["id"]), secret=SECRET).df.toPandas().sort_values("id")
    assert np.array_equal(found["place"].to_numpy(), area.cells(lat, lon))


def test_missing_and_unknown_values(spark: Any, tmp_path: Path) -> None:
    rows = spark.createDataFrame(
        [(0, 40.7, -73.9, "web"), (1, None, -73.9, "fax"), (2, float("nan"), -73.9, None), (3, 40.7, None, "web ")],
        "id long, lat double, lon double, channel string",
    )
    sure = [{**PLACE, "epsilon_per_km": 1000.0}, {**CHANNEL, "epsilon": 35.0}]
    found = rdp.collect(rows, query(*sure, keep=["id"]), secret=SECRET).df.toPandas().sort_values("id")
    assert found["place"].tolist()[1:] == [210, 210, 210]  # the middle cell
    assert found["channel"].tolist() == ["web", "other", "other", "other"]
    dropped = rdp.collect(rows, query(*sure, keep=["id"], null_policy="drop"), secret=SECRET).df.toPandas()
    assert dropped["id"].tolist() == [0]
    strict = {**CHANNEL, "epsilon": 35.0, "other": None}
    output = {"output": {"format": "parquet", "path": str(tmp_path / "never")}}
    for asked, message in (
        (query(strict, **output), r"columns\[0\] \(channel\) must have no missing values. Declare other"),
        (query(strict, null_policy="drop", **output), r"columns\[0\] \(channel\) must be one of its categories"),
        (query(*sure, null_policy="error", **output), "must have no missing values. Use null_policy"),
    ):
        with pytest.raises(rdp.InvalidInput, match=message) as told:
            rdp.collect(rows, asked, secret=SECRET)
        assert "fax" not in str(told.value)
    outside = spark.createDataFrame([(0, 50.0, 0.0)], "id long, lat double, lon double")
    with pytest.raises(rdp.InvalidInput, match="must lie in the box in every row"):
        rdp.collect(outside, query(PLACE, invalid="error", **output), secret=SECRET)
    assert not (tmp_path / "never").exists()


def test_types_that_hold_no_cells_are_refused_by_the_schema(spark: Any) -> None:
    rows = spark.createDataFrame([(0, "40.7", -73.9, 1.5)], "id long, lat string, lon double, channel double")
    for column, message in (
        (PLACE, r"columns\[0\].grid.latitude must be a column of numbers"),
        (CHANNEL, r"columns\[0\].column must be"),
    ):
        with pytest.raises(rdp.InvalidInput, match=message):
            rdp.collect(rows, query(column), secret=SECRET)


def test_whole_numbers_and_booleans_are_categories(spark: Any) -> None:
    rows = spark.createDataFrame([(k, k % 3, k % 2 == 0) for k in range(50)], "id long, stars int, member boolean")
    columns = [
        {"column": "stars", "categories": [0, 1, 2], "epsilon": 35.0},
        {"column": "member", "categories": [True, False], "epsilon": 35.0},
    ]
    found = rdp.collect(rows, query(*columns, keep=["id"]), secret=SECRET).df.toPandas().sort_values("id")
    assert found["stars"].tolist() == [str(k % 3) for k in range(50)]
    assert found["member"].tolist() == [str(k % 2 == 0).lower() for k in range(50)]


def test_memoised_places_do_not_average_out(spark: Any) -> None:
    rows = spark.createDataFrame(
        [(k, k % 2, 40.7, -73.9 + k % 2) for k in range(300)], "id long, who long, lat double, lon double"
    )
    asked = query(PLACE, keep=["who"], memoize={"by": "who"}, row_key=[])
    found = rdp.collect(rows, asked, secret=SECRET).df.toPandas()
    assert found.groupby("who")["place"].nunique().tolist() == [1, 1]


def test_the_manifest_says_all_an_estimate_needs(spark: Any, tmp_path: Path) -> None:
    asked = query(PLACE, CHANNEL, output={"format": "parquet", "path": str(tmp_path / "out")})
    done = rdp.collect(rows_of(spark), asked, secret=SECRET)
    plan = CollectPlan.of_content(done.manifest["plan"])
    place, channel = plan.columns["place"], plan.columns["channel"]
    assert place.cells is not None
    assert channel.cells is not None
    assert place.cells["south"] == 40.58
    assert place.cells["rows"] == 20
    assert channel.cells["labels"] == ["web", "app", "store", "other"]
    assert place.plan.epsilon == 2.0
    assert place.plan.verified_epsilon <= 2.0
    # Between the two cells farthest apart, as an epsilon without distance.
    assert place.epsilon == pytest.approx(2.0 * place.plan.sensitivity)
    assert rdp.collect(rows_of(spark), asked, secret=SECRET).already_published
    moved = {**PLACE, "grid": {**PLACE["grid"], "south": 40.57, "north": 40.89}}
    other = CollectPlan.of_content(rdp.collect(rows_of(spark), query(moved), secret=SECRET).manifest["plan"])
    assert other.columns["place"].stream != place.stream


def test_new_york_pick_ups(spark: Any, shared_data: Path, tmp_path: Path) -> None:
    """534 pick-ups at (0, 0), 22 fields under 20 names; the busiest of 10,000 cells is found again.

    Epsilon 1 per kilometre moves a place by 2 km, eight cells, on average. With the noise of 12 secrets of 16 the
    busiest cell is among the three estimated largest, with 3 others it is one beside: a secret of the first kind.
    """
    path = tmp_path / "trips.csv"
    with gzip.open(shared_data / "nyc_green_tripdata_2013-08.csv.gz", "rt") as packed:
        path.write_text(packed.read())
    names = [f"_{place}" for place in range(22)]
    rows = spark.read.csv(str(path), schema=", ".join(f"{name} STRING" for name in names)).where("_0 <> 'VendorID'")
    rows = rows.selectExpr("xxhash64(*) AS id", "CAST(_5 AS DOUBLE) AS lon", "CAST(_6 AS DOUBLE) AS lat", "*")
    assert rows.count() == 7623
    box = {**CITY, "cells": 100}
    city = rows.where("lat BETWEEN 40.58 AND 40.90 AND lon BETWEEN -74.05 AND -73.75")
    column = {"column": "place", "grid": box, "epsilon_per_km": 1.0}
    private = rdp.collect(city, query(column), secret=bytes(range(1, 33)))
    outputs = np.bincount(private.df.toPandas()["place"], minlength=10_000)
    assert outputs.sum() == 7033
    mechanism = build_finite(private.plans["place"].mechanism, private.plans["place"].parameters)
    found = likeliest_counts(mechanism, outputs)
    rows_, columns_ = np.divmod(np.argsort(-found)[:3], 100)
    assert (68, 44) in list(zip(columns_.tolist(), rows_.tolist(), strict=True))
    everything = rdp.collect(rows, query(column), secret=SECRET).df.toPandas()["place"]
    assert len(everything) == 7623  # those at (0, 0) count as the cell in the south-east
    corner = likeliest_counts(mechanism, np.bincount(everything, minlength=10_000)).reshape(100, 100)[:3, 97:].sum()
    assert 400 < corner < 680


def test_adult_occupations_and_education(spark: Any, shared_data: Path) -> None:
    """Frequencies within 5 standard errors: 31 cells, this secret's noise is always the same (otherwise 2e-5)."""
    names = pd.read_csv(shared_data / "adult.data.gz", header=None, skipinitialspace=True)
    frame = pd.DataFrame({"id": np.arange(len(names)), "education": names[3], "occupation": names[6]})
    columns = [
        {"column": name, "categories": sorted(set(frame[name])), "epsilon": 1.0} for name in ("education", "occupation")
    ]
    private = rdp.collect(spark.createDataFrame(frame), query(*columns), secret=SECRET)
    published = private.df.toPandas()
    for item in columns:
        name, labels = item["column"], item["categories"]
        mechanism = build_finite(private.plans[name].mechanism, private.plans[name].parameters)
        outputs = published[name].value_counts().reindex(labels, fill_value=0).to_numpy()
        truth = frame[name].value_counts().reindex(labels).to_numpy()
        counts = unbiased_counts(mechanism, outputs)
        errors = count_errors(mechanism, outputs, counts)
        assert counts.sum() == pytest.approx(len(frame))
        assert np.all(np.abs(counts - truth) < 5 * errors)
        assert np.all(errors < 0.02 * len(frame))


def test_estimates_of_cells_by_group(spark: Any, tmp_path: Path) -> None:
    """Collect, estimate, and both pages; the counts of a group lie in their intervals at a confidence of 1 - 1e-6."""
    rng = np.random.default_rng(5)
    size = 20_000
    frame = pd.DataFrame(
        {
            "id": np.arange(size),
            "lat": np.clip(rng.normal(40.74, 0.05, size), 40.58, 40.90),
            "lon": np.clip(rng.normal(-73.90, 0.05, size), -74.05, -73.75),
            "channel": rng.choice(["web", "app", "store"], size, p=[0.6, 0.3, 0.1]),
            "country": rng.choice(["FR", "DE"], size),
        }
    )
    folder = tmp_path / "collected"
    place = {**PLACE, "grid": {**PLACE["grid"], "cells": 8}, "epsilon_per_km": 1.0}
    asked = query(place, CHANNEL, keep=["country"], output={"path": str(folder)}, report=str(tmp_path / "c.html"))
    collection = rdp.collect(spark.createDataFrame(frame), asked, secret=SECRET)
    page = collection.report(tmp_path / "c.html").read_text()
    assert "8 × 8 cells" in page
    assert "3 categories" not in page  # the declared other is one of them
    assert "4 categories" in page
    found = rdp.estimate(
        rdp.EstimateQuery.of(
            {
                "name": "answers",
                "collection": str(folder),
                "group_by": {"country": ["DE", "FR", "ES"]},
                "confidence": 1 - 1e-6,
                "columns": [{"column": "place", "statistics": "guess"}, {"column": "channel"}],
            }
        )
    )
    table = found.table().to_pylist()
    assert [row["country"] for row in table] == ["DE", "ES", "FR"]
    area = MapGrid(40.58, 40.90, -74.05, -73.75, 8, 8)
    labels = ["web", "app", "store", "other"]
    for row in table:
        mine = frame[frame["country"] == row["country"]]
        cells = np.bincount(area.cells(mine["lat"].to_numpy(), mine["lon"].to_numpy()), minlength=64)
        names = mine["channel"].value_counts().reindex(labels, fill_value=0).to_numpy()
        for name, truth in (("place", cells), ("channel", names)):
            value, low, high = (np.array(row[f"{name}_histogram{end}"]) for end in ("", "_low", "_high"))
            assert value.sum() == pytest.approx(len(mine))
            assert np.all((low <= truth) & (truth <= high))
            assert sum(row[f"{name}_noised"]) == row["rows"] == len(mine)
            assert sum(row[f"{name}_likeliest"]) == pytest.approx(len(mine))
        if len(mine):
            assert row["channel_top"][:2] == ["web", "app"]
            assert row["place_top"][0] in np.argsort(-cells)[:4]
            assert row["place_guess"][row["place_top"][0]] == row["place_top"][0]
            assert len(row["place_guess"]) == 64
        else:
            assert row["channel_top"] == row["place_top"] == row["place_guess"] == []
        assert "channel_guess" not in row
    shown = found.report(tmp_path / "e.html").read_text()
    assert shown.count("<svg") == 6
    assert "web, about" in shown


def test_cells_answer_nothing_but_frequencies(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "collected"
    rdp.collect(rows_of(spark, 10), query(CHANNEL, output={"path": str(folder)}), secret=SECRET)
    for key, value in (("bins", 5), ("quantiles", [0.5]), ("statistics", ["mean"]), ("element", 1)):
        asked = {"name": "a", "collection": str(folder), "columns": [{"column": "channel", key: value}]}
        with pytest.raises(rdp.InvalidInput, match=rf"columns\[0\].{key} must be left out for categories"):
            rdp.estimate(rdp.EstimateQuery.of(asked))
