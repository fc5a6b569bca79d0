"""Charges of the budget ledger: exact arithmetic, replay, refusals, and what can never be charged."""

from __future__ import annotations

import math
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from spark_rdp.errors import BudgetRefused, InvalidInput
from spark_rdp.ledger import PUBLISHED, RESERVED, Ledger, to_millionths

QUERY = "a" * 64
OTHER = "b" * 64
CONTENT = "c" * 64


def test_ten_spends_of_a_tenth_fit_exactly_and_the_eleventh_is_refused(ledger: Ledger) -> None:
    for number in range(10):
        ledger.reserve("orders", f"r{number}", QUERY, to_millionths(0.1, up=True), 1e-6)
    balance = ledger.balance()
    assert (balance.remaining_millionths, balance.remaining_delta, balance.releases) == (0, 0.0, 10)
    with pytest.raises(BudgetRefused, match=r"epsilon is short by 0\.1 "):
        ledger.reserve("orders", "r10", QUERY, 100_000, 0.0)


def test_the_balance_does_not_depend_on_the_order_of_spends(tmp_path: Path) -> None:
    charges = [(to_millionths(epsilon, up=True), delta) for epsilon, delta in [(0.1, 1e-7), (0.2, 3e-7), (0.3, 2e-6)]]
    seen = set()
    for number, order in enumerate([charges, charges[::-1], [charges[1], charges[2], charges[0]]]):
        ledger = Ledger(f"sqlite:///{tmp_path / str(number)}.db", "orders")
        ledger.create("orders", 0.6, 2.4e-6)
        for place, (epsilon, delta) in enumerate(order):
            ledger.reserve("orders", f"r{place}", QUERY, epsilon, delta)
        seen.add(ledger.balance())
    assert len(seen) == 1
    assert seen.pop().remaining_millionths == 0


def test_charges_round_up_and_totals_round_down() -> None:
    assert to_millionths(0.1, up=True) == to_millionths(0.1, up=False) == 100_000
    assert to_millionths(1 / 3, up=True) == 333_334
    assert to_millionths(1 / 3, up=False) == 333_333
    assert to_millionths(1e-6, up=True) == 1


def test_the_same_id_is_charged_once(ledger: Ledger) -> None:
    first = ledger.reserve("orders", "r", QUERY, 400_000, location="/out")
    again = ledger.reserve("orders", "r", QUERY, 400_000, location="/out")
    assert (first.new, again.new, again.state) == (True, False, RESERVED)
    assert ledger.publish("orders", "r", QUERY, CONTENT)
    assert not ledger.publish("orders", "r", QUERY, CONTENT)
    known = ledger.reserve("orders", "r", QUERY, 400_000, location="/moved")
    assert (known.state, known.content_digest, known.location, known.new) == (PUBLISHED, CONTENT, "/out", False)
    assert ledger.balance().spent_epsilon == 0.4
    assert [entry.event for entry in ledger.history()] == ["reserved", "published"]


def test_a_replay_on_an_exhausted_ledger_returns_what_is_known(ledger: Ledger) -> None:
    ledger.reserve("orders", "all", QUERY, 1_000_000)
    assert ledger.reserve("orders", "all", QUERY, 1_000_000).state == RESERVED
    ledger.publish("orders", "all", QUERY, CONTENT)
    assert ledger.reserve("orders", "all", QUERY, 1_000_000).state == PUBLISHED
    with pytest.raises(BudgetRefused):
        ledger.reserve("orders", "more", QUERY, 1)


def test_another_query_or_place_under_the_same_id_is_refused(ledger: Ledger) -> None:
    ledger.reserve("orders", "r", QUERY, 100_000, location="/out")
    for call in (
        lambda: ledger.reserve("orders", "r", OTHER, 100_000, location="/out"),
        lambda: ledger.reserve("orders", "r", QUERY, 100_000, location="/elsewhere"),
        lambda: ledger.publish("orders", "r", OTHER, CONTENT),
        lambda: ledger.publish("orders", "never", QUERY, CONTENT),
    ):
        with pytest.raises(InvalidInput):
            call()
    ledger.publish("orders", "r", QUERY, CONTENT)
    with pytest.raises(InvalidInput, match="another result"):
        ledger.publish("orders", "r", QUERY, OTHER)
    assert ledger.balance().spent_millionths == 100_000


@pytest.mark.parametrize(
    "charge",
    [0, -1, -10.0, -math.inf, math.inf, math.nan, 5e-324, 1e-17, 0.5, 1e308, True, None, "1", np.nan, Decimal("NaN")],
)
def test_an_impossible_charge_is_an_error_and_changes_no_byte(ledger: Ledger, file: Path, charge: object) -> None:
    before = file.read_bytes()
    for call in (ledger.reserve, ledger.quote):
        with pytest.raises(InvalidInput, match="epsilon_millionths must be"):
            call("orders", "r", QUERY, charge)  # type: ignore[arg-type]
    assert file.read_bytes() == before


@pytest.mark.parametrize("delta", [-1e-9, -math.inf, math.inf, math.nan, 5e-324, 1e-40, 1.0, 1e308, True, None, "0"])
def test_an_impossible_delta_is_an_error_and_changes_no_byte(ledger: Ledger, file: Path, delta: object) -> None:
    before = file.read_bytes()
    for call in (ledger.reserve, ledger.quote):
        with pytest.raises(InvalidInput, match="delta must be"):
            call("orders", "r", QUERY, 1, delta)  # type: ignore[arg-type]
    assert file.read_bytes() == before


@pytest.mark.parametrize("bad", [0, -1, -math.inf, math.inf, math.nan, 5e-324, 1e-17, 1e308, True, None, "1"])
def test_an_impossible_epsilon_becomes_no_charge_and_no_total(bad: Any) -> None:
    """Neither rounded up to the smallest charge nor down to none: it is refused."""
    for up in (True, False):
        with pytest.raises(InvalidInput, match="epsilon must be"):
            to_millionths(bad, up=up)


def test_a_total_of_no_delta_admits_none(file: Path) -> None:
    ledger = Ledger(f"sqlite:///{file}", "pure")
    ledger.create(epsilon=1.0, delta=0.0)
    with pytest.raises(BudgetRefused, match=r"delta is short by 1e-30 \(asked 1e-30, left 0 of 0"):
        ledger.reserve(None, "r", QUERY, 1, 1e-30)
    assert (ledger.balance().spent_millionths, ledger.balance().releases) == (0, 0)
    assert ledger.reserve(None, "r", QUERY, 1, 0.0).new


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, "1", True, None, 5e-324, 1e308])
def test_a_budget_is_a_checked_number(tmp_path: Path, bad: object) -> None:
    file = tmp_path / "new.db"
    with pytest.raises(InvalidInput):
        Ledger(f"sqlite:///{file}").create("orders", bad)  # type: ignore[arg-type]
    if bad != 0:
        with pytest.raises(InvalidInput):
            Ledger(f"sqlite:///{file}").create("orders", 1.0, bad)  # type: ignore[arg-type]
    assert not file.exists()


def test_a_refused_charge_leaves_the_balance_and_the_bytes(ledger: Ledger, file: Path) -> None:
    ledger.reserve("orders", "r", QUERY, 900_000)
    before, bytes_before = ledger.balance(), file.read_bytes()
    for charge in (100_001, 10**10):
        with pytest.raises(BudgetRefused):
            ledger.reserve("orders", "big", QUERY, charge)
    assert ledger.balance() == before
    assert file.read_bytes() == bytes_before


def test_no_charge_is_absorbed(file: Path) -> None:
    ledger = Ledger(f"sqlite:///{file}", "orders")
    ledger.create("orders", 1e4)
    ledger.reserve("orders", "large", QUERY, 10**10 - 1)
    ledger.reserve("orders", "tiny", QUERY, 1)
    with pytest.raises(BudgetRefused):
        ledger.reserve("orders", "tiny2", QUERY, 1)


def test_a_refusal_names_the_largest_spends_and_what_is_short(file: Path) -> None:
    moment = [datetime(2026, 11, 1, 8, 0, tzinfo=timezone(timedelta(hours=2)))]
    ledger = Ledger(f"sqlite:///{file}", "orders", clock=lambda: moment[0])
    ledger.create("orders", 1.0, 1e-6)
    for day, charge in enumerate([50_000, 300_000, 100_000, 200_000]):
        ledger.reserve("orders", f"daily@{day}", QUERY, charge, 2e-7)
        moment[0] += timedelta(days=1)
    with pytest.raises(BudgetRefused) as refusal:
        ledger.reserve("orders", "daily@4", QUERY, 500_000, 1e-7)
    text = str(refusal.value)
    assert "epsilon is short by 0.15 (asked 0.5, left 0.35 of 1)" in text
    assert "delta is short" not in text
    assert (
        text.index("daily@1 on 2026-11-02T06:00:00+00:00: epsilon 0.3") < text.index("daily@3") < text.index("daily@2")
    )
    assert "daily@0" not in text
    with pytest.raises(
        BudgetRefused, match=re.escape("delta is short by 1e-07 (asked 3e-07, left 2e-07 of 1e-06)")
    ) as refusal:
        ledger.reserve("orders", "daily@4", QUERY, 1, 3e-7)
    assert "epsilon is short" not in str(refusal.value)


def test_an_abandoned_charge_comes_back_and_its_events_stay(ledger: Ledger) -> None:
    ledger.reserve("orders", "r", QUERY, 1_000_000, 1e-5)
    ledger.abandon("orders", "r", QUERY)
    assert ledger.balance().remaining_millionths == 1_000_000
    assert ledger.reserve("orders", "r", OTHER, 600_000).new
    with pytest.raises(BudgetRefused, match=r"r on .*: epsilon 0\.6") as refusal:
        ledger.reserve("orders", "s", QUERY, 600_000)
    assert "epsilon 1," not in str(refusal.value)
    ledger.publish("orders", "r", OTHER, CONTENT)
    with pytest.raises(InvalidInput, match="already published"):
        ledger.abandon("orders", "r", OTHER)
    with pytest.raises(InvalidInput, match="never reserved"):
        ledger.abandon("orders", "unknown", OTHER)
    assert [entry.event for entry in ledger.history()] == ["reserved", "abandoned", "reserved", "published"]


def test_no_row_is_ever_changed(ledger: Ledger) -> None:
    before: list[object] = []
    for step in range(12):
        ledger.reserve("orders", f"r{step // 3}", QUERY, 10_000, location="/out")
        if step % 3 == 1:
            ledger.publish("orders", f"r{step // 3}", QUERY, CONTENT)
        history: list[object] = list(ledger.history())
        assert history[: len(before)] == before
        before = history


def test_the_data_base_itself_refuses_a_second_charge_and_a_negative_one(ledger: Ledger, file: Path) -> None:
    ledger.reserve("orders", "r", QUERY, 10_000)
    engine = sa.create_engine(f"sqlite:///{file}")
    copy = "INSERT INTO ledger_entries (dataset_id, release_id, attempt, event, query_digest, epsilon_millionths, delta, location, content_digest, at) SELECT dataset_id, {}, attempt, event, query_digest, {}, delta, location, content_digest, at FROM ledger_entries"  # noqa: E501
    for values in (("release_id", "epsilon_millionths"), ("'s'", "-1")):
        with engine.connect() as connection, pytest.raises(sa.exc.IntegrityError):
            connection.exec_driver_sql(copy.format(*values))
    engine.dispose()


def test_two_writers_of_one_id_are_charged_once(ledger: Ledger) -> None:
    with ThreadPoolExecutor(8) as pool:
        states = list(pool.map(lambda _: ledger.reserve("orders", "r", QUERY, 100_000).new, range(8)))
    assert sum(states) == 1
    assert ledger.balance().spent_millionths == 100_000
