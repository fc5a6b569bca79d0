"""One ledger under many writers, on SQLite and on a PostgreSQL server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import old_ledger
import pytest

from jobs import postgres, writing
from spark_rdp.errors import BudgetRefused, InvalidInput, JobFailed
from spark_rdp.ledger import Ledger, to_millionths

QUERY = "a" * 64
WRITERS, ATTEMPTS = 16, 200


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of a PostgreSQL server that is started for these tests."""
    programs = postgres.binaries()
    if programs is None:
        pytest.skip("needs a PostgreSQL server: apt-get install postgresql")
    pytest.importorskip("psycopg", reason="needs the driver: pip install 'spark-rdp[postgres]'")
    with postgres.server(programs) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A ledger of either kind; on the server all tests share one data base and use data sets of their own."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/budget.db"
    return str(request.getfixturevalue("server"))


def test_sixteen_processes_never_lose_a_charge_and_never_overspend(url: str, tmp_path: Path) -> None:
    """3,200 attempts at 1,600 release ids: what was accepted is what was charged, and the budget is used to its end."""
    charges = dict(item for pair in range(WRITERS // 2) for item in writing.tasks(pair, ATTEMPTS))
    total = sum(charges.values()) * 3 // 4
    ledger = Ledger(url, writing.DATASET)
    ledger.create(epsilon=total / 1e6)
    command = [sys.executable, str(Path(writing.__file__)), url, str(WRITERS), str(ATTEMPTS)]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=300)
    told = [json.loads((tmp_path / f"writer-{writer}.json").read_text()) for writer in range(WRITERS)]

    assert [each["failed"] + each["unexplained"] for each in told] == [[]] * WRITERS
    accepted = [tuple(item) for each in told for item in each["accepted"]]
    assert sum(len(each["accepted"]) + each["known"] + each["refused"] for each in told) == WRITERS * ATTEMPTS
    assert len({release for release, _ in accepted}) == len(accepted), "no release id is charged twice"
    balance = ledger.balance()
    assert sum(charge for _, charge in accepted) == balance.spent_millionths <= total
    assert balance.remaining_millionths < writing.LARGEST
    assert sorted((entry.release_id, entry.epsilon_millionths) for entry in ledger.history()) == sorted(accepted)


def test_ten_tenths_fit_one_and_the_eleventh_is_refused(url: str) -> None:
    ledger = Ledger(url, "tenths")
    ledger.create(epsilon=1.0, delta=1e-5)
    for number in range(10):
        ledger.reserve(None, f"r{number}", QUERY, to_millionths(0.1, up=True), 1e-6)
    assert (ledger.balance().remaining_millionths, ledger.balance().remaining_delta) == (0, 0)
    with pytest.raises(BudgetRefused, match=r"epsilon is short by 0\.1 "):
        ledger.reserve(None, "r10", QUERY, 100_000)
    assert not ledger.reserve(None, "r9", QUERY, 100_000, 1e-6).new, "what is paid can be replayed at the limit"


def test_the_events_of_a_release(url: str) -> None:
    ledger = Ledger(url, "events")
    ledger.create(epsilon=1.0)
    ledger.reserve(None, "r", QUERY, 400_000, location="/out")
    assert ledger.prepare(None, "r", QUERY, "c" * 64) == "c" * 64
    assert ledger.prepare(None, "r", QUERY, "d" * 64) == "c" * 64, "the first result stays"
    with pytest.raises(InvalidInput, match="already prepared"):
        ledger.abandon(None, "r", QUERY)
    with pytest.raises(InvalidInput, match="another result"):
        ledger.publish(None, "r", QUERY, "d" * 64)
    assert ledger.publish(None, "r", QUERY, "c" * 64)
    ledger.reserve(None, "s", QUERY, 600_000)
    ledger.abandon(None, "s", QUERY)
    events = [(entry.release_id, entry.event) for entry in ledger.history()]
    assert events == [("r", "reserved"), ("r", "prepared"), ("r", "published"), ("s", "reserved"), ("s", "abandoned")]
    assert ledger.balance().spent_epsilon == 0.4


def test_sixteen_writers_under_loss_distributions(url: str) -> None:
    """The composed epsilon decides, also when all decide at once; the sum of the charges is far above the budget."""
    ledger = Ledger(url, "composed")
    ledger.create(epsilon=1.0, delta=1e-6, accounting="pld")

    def spend(number: int) -> int:
        try:
            return int(Ledger(url, "composed").reserve(None, f"r{number}", QUERY, 50_000).new)
        except BudgetRefused:
            return 0

    with ThreadPoolExecutor(16) as pool:
        accepted = sum(pool.map(spend, range(48)))
    balance = ledger.balance()
    assert (balance.releases, balance.summed_millionths) == (accepted, accepted * 50_000)
    assert balance.spent_millionths <= balance.total_millionths < balance.summed_millionths
    assert accepted < 48
    with pytest.raises(BudgetRefused, match="with it, all releases would spend"):
        ledger.reserve(None, "more", QUERY, 50_000)


def test_all_create_the_ledger_at_once(url: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: Ledger(url, "made").create(epsilon=3.0), range(8)))
    assert Ledger(url, "made").balance().total_epsilon == 3.0


@pytest.mark.parametrize("first", [*old_ledger.USES, "all at once"])
def test_a_server_with_a_ledger_of_version_1_is_brought_up_to_date(server: str, first: str) -> None:
    """By whatever uses it first, also by eight at once; each in a data base of its own."""
    import psycopg

    name = f"old_{first.replace(' ', '_')}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = server.replace("/postgres?", f"/{name}?")
    old_ledger.write(url.replace("postgresql:", "postgresql+psycopg:"))
    uses = [*old_ledger.USES] * 2 if first == "all at once" else [first]
    with ThreadPoolExecutor(len(uses)) as pool:
        list(pool.map(lambda use: old_ledger.use(url, use), uses))
    old_ledger.check(url)


def test_a_server_that_is_not_there_is_one_sentence(server: str) -> None:
    for url in (server.replace("/postgres", "/nosuch"), "postgresql://u:hunter2@127.0.0.1:9/x?connect_timeout=2"):
        with pytest.raises(JobFailed, match="could not be used") as failure:
            Ledger(url, "orders").balance()
        assert "hunter2" not in str(failure.value)
    assert Ledger("postgresql://u:hunter2@host/x?password=hunter3").url == "postgresql://host/x"
