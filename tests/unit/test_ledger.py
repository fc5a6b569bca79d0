"""The budget ledger: exact arithmetic, replay, refusals, concurrent writers."""

from __future__ import annotations

import hashlib
import json
import math
import re
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from spark_rdp.errors import BudgetRefused, InvalidInput
from spark_rdp.ledger import PUBLISHED, RESERVED, Ledger, to_millionths
from spark_rdp.planning.additive import plan
from spark_rdp.privacy.accounting import Noise, composed_epsilon

QUERY = "a" * 64
OTHER = "b" * 64
CONTENT = "c" * 64


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "budget.db"


@pytest.fixture
def ledger(file: Path) -> Ledger:
    ledger = Ledger(f"sqlite:///{file}", "orders")
    ledger.create("orders", 1.0, 1e-5)
    return ledger


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
        ledger.publish("orders", "r", QUERY, digest("other"))
    assert ledger.balance().spent_millionths == 100_000


@pytest.mark.parametrize(
    "charge",
    [0, -1, -10.0, -math.inf, math.inf, math.nan, 5e-324, 1e-17, 0.5, 1e308, True, None, "1", np.nan, Decimal("NaN")],
)
def test_an_impossible_charge_is_an_error_and_changes_no_byte(ledger: Ledger, file: Path, charge: object) -> None:
    before = file.read_bytes()
    with pytest.raises(InvalidInput, match="epsilon_millionths must be"):
        ledger.reserve("orders", "r", QUERY, charge)  # type: ignore[arg-type]
    assert file.read_bytes() == before


@pytest.mark.parametrize("delta", [-1e-9, -math.inf, math.inf, math.nan, 5e-324, 1e-40, 1.0, 1e308, True, None, "0"])
def test_an_impossible_delta_is_an_error_and_changes_no_byte(ledger: Ledger, file: Path, delta: object) -> None:
    before = file.read_bytes()
    with pytest.raises(InvalidInput, match="delta must be"):
        ledger.reserve("orders", "r", QUERY, 1, delta)  # type: ignore[arg-type]
    assert file.read_bytes() == before


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


def test_a_data_set_that_was_not_created_is_refused_with_the_cure(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="spark-rdp ledger create customers"):
        ledger.reserve("customers", "r", QUERY, 1)
    missing = tmp_path / "missing.db"
    for call in (
        lambda each: each.balance("orders"),
        lambda each: each.reserve("orders", "r", QUERY, 1),
        Ledger.datasets,
    ):
        with pytest.raises(InvalidInput, match="spark-rdp ledger create"):
            call(Ledger(f"sqlite:///{missing}"))
    assert not missing.exists()
    with pytest.raises(InvalidInput, match=r"ledger\.dataset"):
        Ledger(ledger.url).balance()


def test_creating_twice_is_harmless_and_another_budget_is_refused(ledger: Ledger) -> None:
    ledger.reserve("orders", "r", QUERY, 250_000)
    assert ledger.create("orders", 1.0, 1e-5).spent_epsilon == 0.25
    with pytest.raises(InvalidInput, match="already has a budget"):
        ledger.create("orders", 2.0, 1e-5)
    ledger.create("other", 3)
    assert ledger.datasets() == ["orders", "other"]
    assert ledger.balance("other").spent_millionths == 0


@pytest.mark.parametrize(
    "url",
    [
        "",
        "budget.db",
        "sqlite://",
        "sqlite:///:memory:",
        "nosuch:///x",
        "postgresql+nosuch://user:hunter2@host/x",
        None,
        3,
    ],
)
def test_an_unusable_url_is_refused_without_echoing_a_password(url: object) -> None:
    with pytest.raises(InvalidInput, match=r"ledger\.url") as refusal:
        Ledger(url)  # type: ignore[arg-type]
    assert "hunter2" not in str(refusal.value)


def test_a_file_that_is_no_ledger(tmp_path: Path, ledger: Ledger, file: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a data base " * 100)
    with pytest.raises(InvalidInput, match="is not a ledger"):
        Ledger(f"sqlite:///{text}").balance("orders")
    with pytest.raises(InvalidInput, match="does not exist"):
        Ledger(f"sqlite:///{tmp_path / 'missing' / 'budget.db'}").create("orders", 1.0)
    engine = sa.create_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE ledger_schema SET version = 99")
    engine.dispose()
    with pytest.raises(InvalidInput, match="schema version"):
        ledger.balance()


@pytest.mark.parametrize("bad", ["", "a\nb", "x" * 201, None, 3])
def test_names_are_printable(ledger: Ledger, bad: object) -> None:
    with pytest.raises(InvalidInput, match="release_id must be"):
        ledger.reserve("orders", bad, QUERY, 1)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="query_digest must be"):
        ledger.reserve("orders", "r", str(bad), 1)


def test_two_writers_of_one_id_are_charged_once(ledger: Ledger) -> None:
    with ThreadPoolExecutor(8) as pool:
        states = list(pool.map(lambda _: ledger.reserve("orders", "r", QUERY, 100_000).new, range(8)))
    assert sum(states) == 1
    assert ledger.balance().spent_millionths == 100_000


def test_a_long_history_is_answered_quickly(ledger: Ledger, file: Path) -> None:
    """100,000 entries in less than a second of this process's time, whatever else the machine does."""
    ledger.create("long", 1000.0, 0.1)
    engine = sa.create_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO ledger_entries (dataset_id, release_id, attempt, event, query_digest, epsilon_millionths, "
            "delta, location, content_digest, at) WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM "
            "numbers WHERE n < 99999) SELECT 2, 'r' || n, 0, 'reserved', '', 100 + n % 7, '1e-08', '', '', 'now' "
            "FROM numbers"
        )
    engine.dispose()
    expected = sum(100 + n % 7 for n in range(100_000))
    for call in (lambda: ledger.balance("long"), lambda: ledger.reserve("long", "more", QUERY, 1).balance):
        start = time.process_time()
        balance = call()
        assert time.process_time() - start < 1
        assert balance.spent_millionths - expected in (0, 1)
        assert Fraction(str(balance.spent_delta)) == Fraction(1, 1000)
    start = time.process_time()
    with pytest.raises(BudgetRefused, match="Largest earlier spends: r6 on"):
        ledger.reserve("long", "too much", QUERY, 10**9)
    assert time.process_time() - start < 1


VERSION_1 = """
CREATE TABLE ledger_schema (version INTEGER NOT NULL, PRIMARY KEY (version));
CREATE TABLE ledger_datasets (id INTEGER NOT NULL, name VARCHAR(200) NOT NULL, epsilon_millionths BIGINT NOT NULL,
 delta VARCHAR(40) NOT NULL, accounting VARCHAR(20) NOT NULL, created VARCHAR(40) NOT NULL, PRIMARY KEY (id),
 UNIQUE (name));
CREATE TABLE ledger_entries (id INTEGER NOT NULL, dataset_id INTEGER NOT NULL, release_id VARCHAR(200) NOT NULL,
 attempt INTEGER NOT NULL, event VARCHAR(10) NOT NULL, query_digest VARCHAR(64) NOT NULL,
 epsilon_millionths BIGINT NOT NULL, delta VARCHAR(40) NOT NULL, location VARCHAR(4000) NOT NULL,
 content_digest VARCHAR(64) NOT NULL, at VARCHAR(40) NOT NULL, PRIMARY KEY (id),
 CONSTRAINT one_event_per_attempt UNIQUE (dataset_id, release_id, attempt, event),
 CONSTRAINT charge_is_positive CHECK (epsilon_millionths > 0),
 CONSTRAINT known_event CHECK (event IN ('reserved', 'published', 'abandoned')),
 FOREIGN KEY(dataset_id) REFERENCES ledger_datasets (id));
INSERT INTO ledger_schema VALUES (1);
INSERT INTO ledger_datasets VALUES (1, 'orders', 1000000, '1e-05', 'sum', '2026-01-01T00:00:00+00:00');
INSERT INTO ledger_entries VALUES
 (1, 1, 'a', 0, 'reserved', 'QUERY', 300000, '1e-06', '/out', '', '2026-01-02T00:00:00+00:00'),
 (2, 1, 'a', 0, 'published', 'QUERY', 300000, '1e-06', '/out', 'CONTENT', '2026-01-02T00:01:00+00:00'),
 (3, 1, 'b', 0, 'reserved', 'QUERY', 200000, '0.0', '/b', '', '2026-01-03T00:00:00+00:00'),
 (4, 1, 'b', 0, 'abandoned', 'QUERY', 200000, '0.0', '/b', '', '2026-01-03T00:01:00+00:00'),
 (5, 1, 'c', 0, 'reserved', 'QUERY', 100000, '0.0', '/c', '', '2026-01-04T00:00:00+00:00');
"""


@pytest.mark.parametrize("first", ["balance", "history", "reserve", "create"])
def test_a_file_of_version_1_is_brought_up_to_date(tmp_path: Path, first: str) -> None:
    """By whatever uses it first; its history, its promises and its replays are what they were."""
    file = tmp_path / "old.db"
    with sqlite3.connect(file) as connection:
        connection.executescript(VERSION_1.replace("QUERY", QUERY).replace("CONTENT", CONTENT))
    connection.close()
    ledger = Ledger(f"sqlite:///{file}", "orders")
    calls: dict[str, Callable[[], object]] = {
        "balance": ledger.balance,
        "history": ledger.history,
        "reserve": lambda: ledger.reserve(None, "a", QUERY, 300_000),
        "create": lambda: ledger.create("orders", 1.0, 1e-5),
    }
    calls[first]()
    told = [(entry.release_id, entry.event, entry.at[:10]) for entry in ledger.history()]
    days = ["2026-01-02", "2026-01-02", "2026-01-03", "2026-01-03", "2026-01-04"]
    events = ["reserved", "published", "reserved", "abandoned", "reserved"]
    assert told == list(zip("aabbc", events, days, strict=True))
    assert (ledger.balance().spent_epsilon, ledger.balance().spent_delta, ledger.balance().accounting) == (
        0.4,
        1e-6,
        "pure",
    )
    assert ledger.reserve(None, "a", QUERY, 300_000).content_digest == CONTENT
    assert ledger.prepare(None, "c", QUERY, CONTENT) == CONTENT
    assert ledger.publish(None, "c", QUERY, CONTENT)
    assert ledger.reserve(None, "b", OTHER, 600_000).new
    with pytest.raises(BudgetRefused):
        ledger.reserve(None, "d", QUERY, 1)


def test_a_file_that_was_removed_can_be_made_again(ledger: Ledger, file: Path) -> None:
    file.unlink()
    with pytest.raises(InvalidInput, match="There is no ledger"):
        ledger.balance()
    assert ledger.create("orders", 2.0).total_epsilon == 2.0
    assert ledger.reserve("orders", "r", QUERY, 1).new


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
