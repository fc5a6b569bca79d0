"""A real data set: orders, customers and revenue per country and month, against an independent pandas computation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as F

from spark_rdp.queries import ReleaseQuery
from spark_rdp.releases import plan_release
from spark_rdp.spark import io
from spark_rdp.spark.aggregate import aggregate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SALT = 20_101_201
MONTHS = [201012, *range(201101, 201113)]
SCHEMA = """InvoiceNo STRING, StockCode STRING, Description STRING, Quantity INT, InvoiceDate TIMESTAMP,
    UnitPrice DOUBLE, CustomerID DOUBLE, Country STRING"""


def make_query(data: Path, keys: Path) -> ReleaseQuery:
    return ReleaseQuery.of(
        {
            "name": "online-retail",
            "source": {
                "format": "csv",
                "path": str(data),
                "options": {"header": True},
                "schema": SCHEMA,
                "derive": {"month": "year(InvoiceDate) * 100 + month(InvoiceDate)", "revenue": "Quantity * UnitPrice"},
            },
            "privacy": {"unit": "CustomerID", "epsilon": 1.0, "max_groups": 3},
            "group_by": {"Country": {"file": str(keys)}, "month": MONTHS},
            "measures": [
                {"name": "lines", "type": "count", "max_per_group": 50},
                {"name": "customers", "type": "count_units"},
                {"name": "turnover", "type": "sum", "column": "revenue", "lower": 0, "upper": 1000},
            ],
        }
    )


def test_the_bounded_statistics_equal_pandas(spark: SparkSession, shared_data: Path, tmp_path: Path) -> None:
    data, keys = shared_data / "online_retail.csv.gz", tmp_path / "countries.csv"
    rows = pd.read_csv(data, dtype={"InvoiceNo": str, "StockCode": str}, parse_dates=["InvoiceDate"])
    countries = sorted({*rows["Country"].unique(), "Atlantis"} - {"Japan"})
    keys.write_text("\n".join(["Country", *countries]))
    query = make_query(data, keys)
    plan = plan_release(query)
    found = aggregate(io.read(spark, query.source), query, plan, SALT).toArrow().to_pandas()

    rows = rows[rows["CustomerID"].notna() & rows["Country"].isin(countries)]
    rows["month"] = rows["InvoiceDate"].dt.year * 100 + rows["InvoiceDate"].dt.month
    group = rows["Country"].map(countries.index) * len(MONTHS) + rows["month"].map(MONTHS.index)
    total = plan.components[2]
    steps = np.rint(rows["Quantity"] * rows["UnitPrice"] * 2.0**-total.exponent).clip(-(2**31), 2**31)
    rows = pd.DataFrame({"unit": rows["CustomerID"], "group": group, "steps": steps.astype("int64")})
    units = rows.groupby(["unit", "group"])["steps"].agg(["size", "sum"]).reset_index()

    # The hash comes from Spark; which groups it keeps is decided here.
    mask = (1 << (len(countries) * len(MONTHS) - 1).bit_length()) - 1
    pairs = spark.createDataFrame(pa.Table.from_pandas(units[["unit", "group"]], preserve_index=False))
    hashed = F.xxhash64(F.lit(SALT.to_bytes(8, "big")), "unit", "group").bitwiseAND(~mask).bitwiseOR(F.col("group"))
    units = units.merge(pairs.withColumn("order", hashed).toArrow().to_pandas(), on=["unit", "group"], validate="1:1")
    units = units[units.groupby("unit")["order"].rank(method="first") <= 3]
    bounded = pd.DataFrame(
        {
            "group": units["group"],
            "c0": units["size"].clip(upper=50),
            "c1": 1,
            "c2": units["sum"].clip(total.lower, total.upper),
        }
    )
    expected = bounded.groupby("group").sum().reindex(range(len(countries) * len(MONTHS)), fill_value=0)

    assert found["Country"].tolist() == [country for country in countries for _ in MONTHS]
    assert found["month"].tolist() == MONTHS * len(countries)
    assert (found[["c0", "c1", "c2"]].to_numpy() == expected.to_numpy()).all()
    assert 4372 < found["c1"].sum() <= 3 * 4372
