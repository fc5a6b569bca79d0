"""A quantile and Gaussian noise, from rows to published columns and the charge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from reference import statistics

from spark_rdp.ledger import Ledger
from spark_rdp.queries import ReleaseQuery
from spark_rdp.releases import plan_release
from spark_rdp.spark.aggregate import aggregate
from spark_rdp.spark.release import release

SCHEMA = "customer BIGINT, country STRING, amount DOUBLE"
MEDIAN: dict[str, Any] = {"name": "typical", "type": "quantile", "column": "amount", "lower": 0, "upper": 20, "step": 2}
TOTAL = {"name": "total", "type": "sum", "column": "amount", "lower": 0, "upper": 60, "mechanism": "gaussian"}


def orders(spark: SparkSession) -> tuple[DataFrame, list[dict[str, Any]]]:
    rows: list[tuple[Any, ...]] = [(n, ["FR", "DE"][n % 2], float(n % 23) - 1.5) for n in range(3000)]
    rows += [(5000, "FR", None), (5001, "DE", float("nan")), (5002, "DE", float("inf")), (None, "FR", 3.0)]
    return spark.createDataFrame(rows, SCHEMA), [dict(zip(("customer", "country", "amount"), r)) for r in rows]  # noqa: B905


def query(tmp_path: Path, ledger: Ledger) -> ReleaseQuery:
    return ReleaseQuery.of(
        {
            "name": "orders",
            "privacy": {"unit": "customer", "epsilon": 2.0, "delta": 1e-6, "max_groups": 1},
            "group_by": {"country": ["FR", "DE", "GB"]},
            "measures": [MEDIAN, TOTAL],
            "output": {"path": str(tmp_path / "out")},
            "ledger": {"url": ledger.url, "dataset": "orders"},
        }
    )


def test_counts_near_candidates_and_a_release(spark: SparkSession, tmp_path: Path) -> None:
    """The exact stage agrees with a slow computation; what is published is honest, and delta is charged once."""
    ledger = Ledger(f"sqlite:///{tmp_path}/budget.db", "orders")
    ledger.create("orders", 4.0, 1e-5)
    frame, rows = orders(spark)
    asked = query(tmp_path, ledger)
    plan = plan_release(asked)
    exact = {row.country: [row.c0, row.c1] for row in aggregate(frame, asked, plan, salt=1).collect()}
    expected = statistics(plan, rows, ["FR", "DE", "GB"], lambda row: row["country"])
    assert exact == {group: numbers[:2] for group, numbers in expected.items()}
    assert sum(exact["DE"][0]) == 1501

    for again in (False, True):
        result = release(frame, asked, run="1", ledger=ledger)
        assert result.already_published == again
    kinds = dict(result.df.dtypes)
    assert [kinds[f"typical{end}"] for end in ("", "_low", "_high")] == ["double"] * 3
    for row in result.df.collect():
        assert row.typical_low <= row.typical <= row.typical_high
        assert {row.typical_low, row.typical, row.typical_high} <= set(range(0, 21, 2))
        if row.country != "GB":  # 1,500 values, nearly uniform: within 100 ranks, but for a chance below 1e-6
            assert 6 <= row.typical <= 14
    assert result.manifest["charge"]["delta"] == result.manifest["delta"] == 1e-6
    assert result.manifest["delta_by_measure"] == {"total": {"sum": 1e-6}}
    assert result.manifest["epsilon"]["by_measure"]["typical"] == {"quantile": 1.0}
    assert ledger.balance().spent_delta == 1e-6
    assert "spent by total" in result.report().read_text()
