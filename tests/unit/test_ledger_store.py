"""Where a ledger is kept: names and places that cannot be used, old files, long histories."""

from __future__ import annotations

import time
from fractions import Fraction
from pathlib import Path

import old_ledger
import pytest
import sqlalchemy as sa

from spark_rdp.cli import main
from spark_rdp.errors import BudgetRefused, InvalidInput
from spark_rdp.ledger import Ledger

QUERY = "a" * 64
OTHER = "b" * 64
CONTENT = "c" * 64


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


def test_a_long_history_is_answered_quickly(ledger: Ledger, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    assert main(["ledger", "show", "orders", "--url", ledger.url]) == 0  # what is imported is imported
    start = time.process_time()
    assert main(["ledger", "show", "long", "--url", ledger.url]) == 0
    assert time.process_time() - start < 1
    assert "100001 releases charged" in capsys.readouterr().out
    start = time.process_time()
    with pytest.raises(BudgetRefused, match="Largest earlier spends: r6 on"):
        ledger.reserve("long", "too much", QUERY, 10**9)
    assert time.process_time() - start < 1


@pytest.mark.parametrize("first", old_ledger.USES)
def test_a_file_of_version_1_is_brought_up_to_date(file: Path, first: str) -> None:
    """By whatever uses it first."""
    url = f"sqlite:///{file}"
    old_ledger.write(url)
    old_ledger.use(url, first)
    old_ledger.check(url)


def test_a_file_that_was_removed_can_be_made_again(ledger: Ledger, file: Path) -> None:
    file.unlink()
    with pytest.raises(InvalidInput, match="There is no ledger"):
        ledger.balance()
    assert ledger.create("orders", 2.0).total_epsilon == 2.0
    assert ledger.reserve("orders", "r", QUERY, 1).new
