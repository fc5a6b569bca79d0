"""A budget ledger for the tests of ledgers."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_rdp.ledger import Ledger


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where `ledger` is."""
    return tmp_path / "budget.db"


@pytest.fixture
def ledger(file: Path) -> Ledger:
    """The data set ``orders`` with epsilon 1 and delta 1e-5."""
    ledger = Ledger(f"sqlite:///{file}", "orders")
    ledger.create("orders", 1.0, 1e-5)
    return ledger
