"""The data of the demo: seeded, skewed, and fitting its query."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_rdp import demo
from spark_rdp.queries import ReleaseQuery


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


def test_the_same_bytes_at_every_call(folder: Path) -> None:
    for form in ("parquet", "csv"):
        first = demo.write_demo_data(folder / "a", format=form)
        second = demo.write_demo_data(folder / "b", format=form)
        assert sorted(first) == ["orders", "telemetry"]
        for name, path in first.items():
            assert path.read_bytes() == second[name].read_bytes()


def test_orders_are_many_and_skewed() -> None:
    orders = demo.orders().to_pandas()
    assert list(orders.columns) == ["customer", "country", "day", "amount"]
    assert len(orders) == 200_000
    assert orders.customer.nunique() == 20_000
    assert set(orders.country) == set(demo.COUNTRIES)
    assert (orders.day.min(), orders.day.max()) == (0, 29)
    per_customer = orders.groupby("customer").size().sort_values()
    assert per_customer.iloc[-200:].sum() > 0.2 * len(orders)  # one customer in a hundred: a fifth of all orders
    per_country = orders.groupby("country").size()
    assert per_country.max() > 5 * per_country.min()
    assert 0.001 < (orders.amount > 500).mean() < 0.02
    assert orders.notna().all(axis=None)


def test_a_row_of_the_telemetry_has_a_name_of_its_own() -> None:
    telemetry = demo.telemetry().to_pandas()
    assert not telemetry.duplicated(["device", "event_id"]).any()
    assert telemetry.battery.between(0, 100).all()
    assert telemetry.battery.nunique() > 500


def test_the_query_of_the_demo_fits_its_data(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMO_OUT", str(folder))
    query = ReleaseQuery.from_yaml(demo.query_file())
    paths = demo.write_demo_data(folder / "data")
    assert query.source is not None
    assert query.source.path == (str(paths["orders"]),)
    declared = query.group_by["country"].values  # type: ignore[index, union-attr]
    assert sorted(declared) == sorted(demo.COUNTRIES)
