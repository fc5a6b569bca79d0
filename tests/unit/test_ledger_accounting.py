"""What charges amount to: quotes, windows, sources, and composition by privacy loss distributions."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from spark_rdp.errors import BudgetRefused, InvalidInput
from spark_rdp.ledger import RESERVED, Ledger
from spark_rdp.planning.additive import plan
from spark_rdp.privacy.accounting import Noise, composed_epsilon

QUERY = "a" * 64
OTHER = "b" * 64
CONTENT = "c" * 64


def test_a_quote_is_what_a_reservation_would_do_and_changes_no_byte(ledger: Ledger, file: Path) -> None:
    ledger.reserve("orders", "r", QUERY, 700_000, 4e-6)
    before = file.read_bytes()
    quote = ledger.quote(None, "s", QUERY, 300_000, 6e-6)
    assert (quote.state, quote.refusal, quote.before.spent_epsilon, quote.after.spent_epsilon) == ("", "", 0.7, 1.0)
    assert (quote.after.remaining_epsilon, quote.after.remaining_delta) == (0, 0)
    refused = ledger.quote(None, "s", QUERY, 300_001, 0.0)
    with pytest.raises(BudgetRefused, match=re.escape(refused.refusal)):
        ledger.reserve(None, "s", QUERY, 300_001)
    known = ledger.quote(None, "r", QUERY, 700_000, 4e-6)
    assert (known.state, known.refusal, known.before) == (RESERVED, "", known.after)
    with pytest.raises(InvalidInput, match="for another query"):
        ledger.quote(None, "r", OTHER, 1)
    assert file.read_bytes() == before


def test_a_window_never_hides_the_life_time(file: Path) -> None:
    """Thirty daily releases: a week of them, a month of them, and all that was ever spent."""
    moment = [datetime(2026, 11, 1, 23, 0, tzinfo=timezone(timedelta(hours=-5)))]
    ledger = Ledger(f"sqlite:///{file}", "orders", clock=lambda: moment[0])
    ledger.create(epsilon=3.0, delta=1e-5)
    for day in range(30):
        ledger.reserve(None, f"daily@{day}", QUERY, 100_000, 1e-7)
        moment[0] += timedelta(days=1)
    week = ledger.window(None, moment[0] - timedelta(days=7))
    assert (week.spent_epsilon, week.spent_delta, week.releases) == (0.7, 7e-7, 7)
    assert week.since == "2026-11-25T04:00:00+00:00"
    assert ledger.window(None, datetime(2000, 1, 1, tzinfo=timezone.utc)).releases == 30
    assert ledger.balance().spent_epsilon == 3.0
    assert [entry.release_id for entry in ledger.history(since=moment[0] - timedelta(days=2))] == [
        "daily@28",
        "daily@29",
    ]
    with pytest.raises(BudgetRefused):
        ledger.reserve(None, "daily@30", QUERY, 1)


def test_a_charge_that_was_given_back_is_in_no_window(ledger: Ledger) -> None:
    past = datetime(2020, 1, 1, tzinfo=timezone.utc)
    ledger.reserve("orders", "r", QUERY, 400_000)
    ledger.abandon("orders", "r")
    assert ledger.window(None, past).releases == 0
    ledger.reserve("orders", "r", OTHER, 300_000)
    assert ledger.window(None, past).spent_epsilon == 0.3


def test_a_budget_can_be_tied_to_its_source(ledger: Ledger) -> None:
    ledger.create("sales", 1.0, fingerprint="warehouse.sales@v42")
    ledger.reserve("sales", "r", QUERY, 1, fingerprint="warehouse.sales@v42")
    for other in ("", "warehouse.sales@v43"):
        with pytest.raises(InvalidInput, match=r"ledger\.fingerprint must be 'warehouse\.sales@v42'"):
            ledger.reserve("sales", "s", QUERY, 1, fingerprint=other)
        with pytest.raises(InvalidInput, match=r"ledger\.fingerprint"):
            ledger.quote("sales", "s", QUERY, 1, fingerprint=other)
    with pytest.raises(InvalidInput, match=r"ledger\.fingerprint must be left out"):
        ledger.reserve("orders", "r", QUERY, 1, fingerprint="something")
    with pytest.raises(InvalidInput, match=r"fingerprint 'warehouse\.sales@v42'"):
        ledger.create("sales", 1.0)
    assert ledger.balance("sales").fingerprint == "warehouse.sales@v42"


@pytest.mark.parametrize(("accounting", "delta"), [("sum", 1e-6), ("", 0), (None, 0), ("pld", 0), ("pld", 1e-11)])
def test_an_accounting_that_cannot_be(tmp_path: Path, accounting: Any, delta: float) -> None:
    file = tmp_path / "new.db"
    with pytest.raises(InvalidInput, match=r"accounting must be pure or pld|delta must be"):
        Ledger(f"sqlite:///{file}").create("orders", 1.0, delta, accounting=accounting)
    assert not file.exists()


def test_loss_distributions_allow_more_small_releases(file: Path) -> None:
    """Laplace noise at 0.05: twenty fit by adding up, more than twice as many by composition; and no more."""
    noise = plan(epsilon=0.05, sensitivity=1, metric="l1", mechanism="laplace")
    losses = (Noise(noise.mechanism, json.dumps(noise.parameters), noise.integer_sensitivity, 1),)
    pure, composed = Ledger(f"sqlite:///{file}", "pure"), Ledger(f"sqlite:///{file}", "composed")
    pure.create(epsilon=1.0, delta=1e-6)
    assert composed.create(epsilon=1.0, delta=1e-6, accounting="pld").spent_epsilon == 0

    def fill(ledger: Ledger) -> int:
        for number in range(100):
            try:
                made = ledger.reserve(None, f"r{number}", QUERY, 50_000, losses=losses)
            except BudgetRefused:
                assert made.balance == ledger.balance()
                return number
        return 100

    assert fill(pure) == 20
    number = fill(composed)
    balance = composed.balance()
    exact = [composed_epsilon([(losses[0], times)], 1e-6, 1.0) for times in (number, number + 1)]
    assert balance.spent_epsilon == pytest.approx(exact[0], abs=1e-6)
    assert exact[0] <= 1 < exact[1]
    assert number > 20
    assert (balance.spent_delta, balance.remaining_delta, balance.summed_millionths) == (1e-6, 0, 50_000 * number)
    assert "privacy loss distributions" in balance.composition
    assert not composed.reserve(None, "r0", QUERY, 50_000, losses=losses).new, "replay at the limit"


def test_composition_never_charges_more_than_the_sum(file: Path) -> None:
    ledger = Ledger(f"sqlite:///{file}", "orders")
    ledger.create(epsilon=1.0, delta=1e-6, accounting="pld")
    ledger.reserve(None, "r", QUERY, 400_000, 0.0)
    assert ledger.balance().spent_millionths == 400_000
    with pytest.raises(BudgetRefused, match=r"delta is short \(all releases together need more than 1e-06\)"):
        ledger.reserve(None, "s", QUERY, 1, 1e-5)
    ledger.reserve(None, "s", QUERY, 600_000, 1e-6)
    assert ledger.balance().spent_millionths == 1_000_000
