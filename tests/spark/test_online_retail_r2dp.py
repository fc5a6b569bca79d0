"""Revenue of a real shop per country, with R2DP noise and with the best noise, beside Laplace."""

from __future__ import annotations

import math
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession
from scipy import stats

from spark_rdp.outputs import public_values
from spark_rdp.queries import ReleaseQuery
from spark_rdp.randomness import SECRET_BYTES, stream_key
from spark_rdp.releases import plan_release
from spark_rdp.reporting.story import certificate_text
from spark_rdp.spark import io
from spark_rdp.spark.aggregate import aggregate
from spark_rdp.spark.noise import noised
from spark_rdp.spark.release import release

COUNTRIES = ["United Kingdom", "Germany", "France", "EIRE", "Spain", "Netherlands", "Belgium", "Switzerland"]
COUNTRIES += ["Portugal", "Australia", "Norway", "Italy", "Channel Islands", "Finland", "Cyprus", "Sweden"]
SCHEMA = (
    "InvoiceNo STRING, StockCode STRING, Description STRING, Quantity INT, InvoiceDate STRING, "
    "UnitPrice DOUBLE, CustomerID DOUBLE, Country STRING"
)
BOUND, GAMMA, RELEASES = 2000.0, 200.0, 500
MECHANISMS = {"revenue_r2dp": "r2dp", "revenue_auto": "auto"}
#: Both tails together: the chance of a false alarm of one comparison.
FALSE_ALARM = 1e-7


class _Text(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


@pytest.fixture
def query(shared_data: Path, tmp_path: Path) -> ReleaseQuery:
    measures = [
        {"name": name, "type": "sum", "column": "revenue", "lower": 0, "upper": BOUND, "mechanism": mechanism}
        for name, mechanism in MECHANISMS.items()
    ]
    return ReleaseQuery.of(
        {
            "name": "retail",
            "source": {
                "format": "csv",
                "path": str(shared_data / "online_retail.csv.gz"),
                "options": {"header": True},
                "schema": SCHEMA,
                "derive": {"revenue": "Quantity * UnitPrice"},
            },
            "privacy": {"unit": "CustomerID", "epsilon": 10.0, "max_groups": 1},  # 5 for each of the two
            "group_by": {"Country": COUNTRIES},
            "measures": [{**measure, "metric": {"usefulness": GAMMA}} for measure in measures],
            "output": {"path": str(tmp_path / "out")},
        }
    )


def test_revenue_with_r2dp_and_the_best_noise(spark: SparkSession, query: ReleaseQuery, tmp_path: Path) -> None:
    """The report compares; 500 releases are as often within 200 of the exact sums as planned.

    Each of the four comparisons gives a false alarm with probability 1e-7 (binomial; 8,000 values each). A usefulness
    that is wrong by 0.05 is seen; that the scale of the noise itself is right to 3 % is tested in tests/statistical.
    """
    result = release(None, query, spark=spark)
    plans = {name: plans[0] for name, plans in result.plans.items()}
    r2dp, best = plans["revenue_r2dp"], plans["revenue_auto"]
    assert r2dp.mechanism == "r2dp"
    assert best.mechanism == "staircase"
    assert all(plan.epsilon == 5.0 and 4.995 < plan.verified_epsilon <= 5.0 for plan in plans.values())
    # Certified usefulness for an error of a tenth of the sensitivity (mathematics, 1.1), and Laplace beside it.
    laplace = r2dp.alternatives["laplace"]
    assert laplace == pytest.approx(0.393469, abs=1e-5)
    assert r2dp.metric_value == pytest.approx(0.660051, abs=1e-5)
    assert r2dp.certificate["relative_gap"] <= 1e-6
    assert best.metric_value > r2dp.metric_value > laplace
    assert best.alternatives["r2dp"] == r2dp.metric_value

    text = " ".join(" ".join(_Text(result.report(tmp_path / "page.html").read_text()).parts).split())
    for name, plan in plans.items():
        assert name in text
        assert certificate_text(plan) in text
        assert plan.why in text
    for value in (laplace, r2dp.metric_value, best.metric_value):
        assert f"{value:.4f}" in text
    published = result.table()
    assert published["Country"].to_pylist() == sorted(COUNTRIES)

    plan = plan_release(query)
    assert query.source is not None
    exact = aggregate(io.read(spark, query.source), query, plan, salt=1).toArrow()
    sums = {part.column: np.array(exact[part.column].to_pylist(), dtype=np.int64) for part in plan.components}
    groups = np.arange(2 * len(COUNTRIES), dtype=np.uint64).view(np.uint8).reshape(len(COUNTRIES), 16)
    for name in MECHANISMS:
        (part,) = plan.of(name)
        truth, _, _ = public_values(name, plan.components, sums)
        assert truth.max() == truth[sorted(COUNTRIES).index("United Kingdom")] > 1e6
        useful, covered = 0, 0
        for number in range(RELEASES):
            secret = number.to_bytes(SECRET_BYTES, "big")
            values = noised(part, stream_key(secret, f"retail@{number}", part.column), groups, sums[part.column])
            value, low, high = public_values(name, plan.components, {part.column: values})
            useful += int((np.abs(value - truth) <= GAMMA).sum())
            covered += int(((low <= truth) & (truth <= high)).sum())
        trials = RELEASES * len(COUNTRIES)
        mechanism = part.plan.build()
        inside = -math.expm1(mechanism.log_tail(mechanism.quantile(0.95) + 1))
        for measured, planned in ((useful, part.plan.metric_value), (covered, inside)):
            band = stats.binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], trials, planned)
            assert band[0] <= measured <= band[1]
            assert band[1] - band[0] < 0.08 * trials
