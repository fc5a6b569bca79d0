"""A release from query to published folder: layout, replay, refusals, empty data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_rdp.errors import BudgetRefused, InvalidInput, JobFailed
from spark_rdp.folders import content_digest, output_folder
from spark_rdp.ledger import Ledger
from spark_rdp.queries import ReleaseQuery
from spark_rdp.spark.release import release

SCHEMA = "customer BIGINT, country STRING, amount DOUBLE"
MEASURES: list[dict[str, Any]] = [
    {"name": "orders", "type": "count", "max_per_group": 3},
    {"name": "customers", "type": "count_units"},
    {"name": "revenue", "type": "sum", "column": "amount", "lower": 0, "upper": 50},
    {"name": "basket", "type": "mean", "column": "amount", "lower": 0, "upper": 20, "max_per_group": 3},
    {"name": "spread", "type": "histogram", "column": "amount", "bins": [0, 5, 10, 20]},
]
COLUMNS = ["country", *(m["name"] + end for m in MEASURES for end in ("", "_low", "_high"))]
Build = Callable[..., ReleaseQuery]


@pytest.fixture
def orders(spark: SparkSession) -> DataFrame:
    rows = [(n % 40, ["FR", "DE", "IT", None][n % 4], float(n % 17)) for n in range(400)]
    return spark.createDataFrame([*rows, (None, "FR", 1.0), (7, "FR", float("nan")), (8, "DE", float("inf"))], SCHEMA)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(f"sqlite:///{tmp_path}/budget.db", "orders")
    ledger.create("orders", 1.0, 1e-5)
    return ledger


@pytest.fixture
def build(tmp_path: Path, ledger: Ledger) -> Build:
    def make(**changes: Any) -> ReleaseQuery:
        query: dict[str, Any] = {
            "name": "orders",
            "privacy": {"unit": "customer", "epsilon": 0.8, "max_groups": 2},
            "group_by": {"country": ["FR", "DE", "GB"]},
            "measures": MEASURES,
            "output": {"path": str(tmp_path / "out")},
            "ledger": {"url": ledger.url, "dataset": "orders"},
        }
        return ReleaseQuery(**{key: value for key, value in {**query, **changes}.items() if value is not None})

    return make


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return {str(file.relative_to(folder)): (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


def unreadable(df: DataFrame) -> DataFrame:
    """Rows that cannot be read: whoever touches them fails."""
    return df.withColumn("amount", F.expr("CAST(raise_error('touched') AS DOUBLE)"))


def test_a_release_and_its_folder(orders: DataFrame, build: Build, ledger: Ledger, tmp_path: Path) -> None:
    result = release(orders, build(), run="2026-11-30")
    folder = tmp_path / "out" / "run=2026-11-30"
    assert result.folder == folder
    assert not result.already_published
    assert sorted(file.name for file in folder.iterdir()) == ["manifest.json", "part-00000.snappy.parquet"]
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["run=2026-11-30"]
    assert result.df.columns == COLUMNS
    rows = result.df.collect()
    assert [row.country for row in rows] == ["DE", "FR", "GB"]
    assert all(value is not None for row in rows for value in row)
    assert result.table().to_pylist() == [row.asDict() for row in rows]
    text = (folder / "manifest.json").read_text()
    assert json.loads(text) == result.manifest
    assert result.manifest["release_id"] == "orders@2026-11-30"
    assert (result.manifest["rows"], result.manifest["unit"], result.manifest["run"]) == (3, "customer", "2026-11-30")
    assert result.manifest["content_digest"] == content_digest(folder)
    by_measure = result.manifest["epsilon"]["by_measure"]
    assert 0.79999 < sum(sum(parts.values()) for parts in by_measure.values()) <= 0.8
    balance = ledger.balance()
    assert result.manifest["charge"] == {
        "dataset": "orders",
        "fingerprint": "",
        "epsilon_millionths": 800_000,
        "delta": 0.0,
        "accounting": "pure",
        "composition": balance.composition,
        "balance": balance.facts(),
    }
    assert [plan.mechanism for plan in result.plans["basket"]] == [
        part.plan.mechanism for part in result.plan.of("basket")
    ]
    assert [entry.event for entry in ledger.history()] == ["reserved", "prepared", "published"]
    assert ledger.history()[-1].content_digest == result.manifest["content_digest"]
    schema = pq.read_schema(folder / "part-00000.snappy.parquet")
    assert not any(name.startswith("c0") or name == "digest" for name in schema.names)


def test_the_same_id_again_is_read_back(orders: DataFrame, build: Build, ledger: Ledger, tmp_path: Path) -> None:
    first = release(orders, build(), run="1")
    values, before = first.df.collect(), snapshot(tmp_path)
    for again in (release(unreadable(orders), build(), run="1"), release(orders.limit(0), build(), run="1")):
        assert again.already_published
        assert again.manifest == first.manifest
        assert again.plan == first.plan
        assert again.df.collect() == values
    assert snapshot(tmp_path) == before
    assert ledger.balance().spent_epsilon == 0.8


def test_a_replay_needs_neither_the_source_nor_the_budget(
    orders: DataFrame, build: Build, ledger: Ledger, tmp_path: Path
) -> None:
    source = {"format": "csv", "path": str(tmp_path / "in.csv"), "options": {"header": True}, "schema": SCHEMA}
    (tmp_path / "in.csv").write_text("customer,country,amount\n1,FR,2.5\n2,DE,oops\nx,GB,4,5,6\n\n")
    query = build(source=source, privacy={"unit": "customer", "epsilon": 1.0, "max_groups": 2})
    first = release(None, query)
    assert first.manifest["rows"] == 3
    assert ledger.balance().remaining_millionths == 0
    (tmp_path / "in.csv").unlink()
    again = release(None, query)
    assert again.already_published
    assert again._spark.__self__._spark is None  # type: ignore[attr-defined] # no session was asked for
    assert again.table() == first.table()
    with pytest.raises(InvalidInput, match="existing file"):
        release(None, query, run="2")
    with pytest.raises(BudgetRefused, match=r"epsilon is short by 1 .*orders on .*: epsilon 1,"):
        release(unreadable(orders), build(privacy={"unit": "customer", "epsilon": 1.0, "max_groups": 2}), run="2")


def test_another_query_under_the_same_id_is_refused(
    orders: DataFrame, build: Build, ledger: Ledger, tmp_path: Path
) -> None:
    release(orders, build(), run="1")
    other = {"unit": "customer", "epsilon": 0.1, "max_groups": 2}
    with pytest.raises(InvalidInput, match="of another query"):
        release(orders, build(privacy=other), run="1")
    with pytest.raises(InvalidInput, match=r"was charged on .* for another query"):
        release(orders, build(privacy=other, output={"path": str(tmp_path / "elsewhere")}), run="1")
    assert ledger.balance().spent_epsilon == 0.8


def test_refusals_before_the_charge(orders: DataFrame, build: Build, ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.txt").touch()
    for words, df, changes, run in [
        ("already holds files that are no release", orders, {"output": {"path": str(tmp_path / "taken")}}, None),
        ("mounted", orders, {"output": {"path": "s3a://bucket/out"}}, None),
        ("run must be", orders, {}, "a/../b"),
        ("run must be given", orders, {"output": {"path": str(tmp_path / "{run}")}}, None),
        ("must be a column of the source", orders.drop("amount"), {}, None),
        ("must be a column of the source", orders.drop("customer"), {}, None),
        ("source must be given", None, {}, None),
        ("has no budget", orders, {"ledger": {"url": ledger.url, "dataset": "nobody"}}, None),
    ]:
        with pytest.raises(InvalidInput, match=words):
            release(df, build(**changes), run=run)
    assert ledger.history() == []
    assert sorted(file.name for file in tmp_path.iterdir()) == ["budget.db", "taken"]


def test_a_failed_job_is_one_sentence_and_is_continued(
    orders: DataFrame, build: Build, ledger: Ledger, tmp_path: Path
) -> None:
    with pytest.raises(JobFailed) as failure:
        release(unreadable(orders), build(), run="1")
    assert "\n" not in str(failure.value)
    assert "touched" not in str(failure.value)
    assert list((tmp_path / "out").iterdir()) == []
    assert ledger.balance().spent_epsilon == 0.8
    result = release(orders, build(), run="1")
    assert not result.already_published
    assert ledger.balance().spent_epsilon == 0.8
    assert [entry.event for entry in ledger.history()] == ["reserved", "prepared", "published"]


def test_runs_have_noise_of_their_own(orders: DataFrame, build: Build) -> None:
    query = build(ledger=None)
    tables = [release(orders, query, run=run).table() for run in ("1", "2")]
    revenue = [table["revenue"].to_pylist() for table in tables]
    # Each pair is equal by chance with probability below 1e-6, two pairs with one below 1e-11.
    assert sum(first == second for first, second in zip(*revenue, strict=True)) <= 1


def test_paths_with_a_run(tmp_path: Path) -> None:
    assert output_folder(str(tmp_path / "a" / "{run}" / "b"), "7") == tmp_path / "a" / "7" / "b"
    assert output_folder(str(tmp_path), "7") == tmp_path / "run=7"
    assert output_folder(str(tmp_path), None) == tmp_path


def test_a_folder_with_letters_that_mean_something_to_spark(orders: DataFrame, build: Build, tmp_path: Path) -> None:
    folder = tmp_path / "a b[1]{x}?*%20"
    result = release(orders, build(output={"path": str(folder)}, ledger=None))
    assert [row.country for row in result.df.collect()] == ["DE", "FR", "GB"]
    assert folder.is_dir()


def test_without_output_the_values_are_handed_out_once(orders: DataFrame, build: Build, ledger: Ledger) -> None:
    query = build(output=None, ledger=None)
    result = release(orders, query, run="1", ledger=ledger)
    assert result.folder is None
    assert result.df.columns == COLUMNS
    assert result.df.collect() == result.df.collect()
    assert result.table().to_pylist() == [row.asDict() for row in result.df.collect()]
    with pytest.raises(InvalidInput, match="handed out before"):
        release(orders, query, run="1", ledger=ledger)
    with pytest.raises(InvalidInput, match=r"ledger\.dataset must be given"):
        release(orders, query, ledger=Ledger(ledger.url))
    assert ledger.balance().spent_epsilon == 0.8


@pytest.mark.parametrize("rows", ["none", "one", "undeclared", "nulls", "all"])
def test_nothing_but_the_values_depends_on_the_data(orders: DataFrame, build: Build, ledger: Ledger, rows: str) -> None:
    data = {
        "none": orders.limit(0),
        "one": orders.limit(1),
        "undeclared": orders.filter("country = 'IT'"),
        "nulls": orders.select(*(F.lit(None).cast(kind).alias(name) for name, kind in orders.dtypes)),
        "all": orders,
    }[rows]
    result = release(data, build())
    assert result.folder is not None
    assert [file.name for file in sorted(result.folder.iterdir())] == ["manifest.json", "part-00000.snappy.parquet"]
    assert result.df.columns == COLUMNS
    published = result.df.collect()
    assert [row.country for row in published] == ["DE", "FR", "GB"]
    assert all(value is not None for row in published for value in row)
    assert ledger.balance().spent_epsilon == 0.8


def test_one_overall_row_and_row_units(orders: DataFrame, build: Build, tmp_path: Path) -> None:
    measures = [
        {"name": "n", "type": "count"},
        {"name": "total", "type": "sum", "column": "amount", "lower": 0, "upper": 20},
    ]
    whole = build(privacy={"unit": "row", "epsilon": 5.0}, measures=measures, ledger=None).model_copy(
        update={"group_by": None}
    )
    result = release(orders, whole)
    assert result.df.columns == ["n", "n_low", "n_high", "total", "total_low", "total_high"]
    assert result.df.count() == 1
    row = result.df.first()
    assert row is not None
    assert abs(row.n - 403) < 100  # noise of scale 0.4: beyond reach of chance


def test_selected_keys(spark: SparkSession, build: Build) -> None:
    rows = [(unit, key, 1.0) for key, units in (("often", 200), ("rare", 1)) for unit in range(units)]
    query = build(
        privacy={"unit": "customer", "epsilon": 2.0, "delta": 1e-9, "max_groups": 2},
        group_by={"select": ["country"], "delta": 1e-9},
        ledger=None,
    )
    result = release(spark.createDataFrame(rows, SCHEMA), query)
    assert [row.country for row in result.df.collect()] == ["often"]
    empty = release(spark.createDataFrame([], SCHEMA), query, run="empty")
    assert empty.df.count() == 0
    assert empty.df.columns == COLUMNS
    assert empty.folder is not None
    assert len(list(empty.folder.glob("part-*"))) == 1


def test_the_manifest_holds_neither_data_nor_secrets(orders: DataFrame, build: Build, monkeypatch: Any) -> None:
    secret = bytes(range(100, 132))
    monkeypatch.setattr("spark_rdp.spark.release.new_secret", lambda: secret)
    result = release(orders.withColumn("country", F.lit("classified")), build())
    text = json.dumps(result.manifest)
    assert "classified" not in text
    assert secret.hex() not in text
    assert result.folder is not None
    assert all(secret not in file.read_bytes() for file in result.folder.iterdir())
