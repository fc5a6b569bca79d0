"""Each broken choice of rows is rejected by the check that the real one passes (tests/spark/test_reports.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mutants import reports as broken
from pyspark.sql import SparkSession
from spark import report_checks as checks

MUTANTS: list[tuple[str, Callable[..., Any], Callable[[SparkSession], None]]] = [
    ("first", broken.one_too_many, checks.check_bounded),
    ("first", broken.ties_count_once, checks.check_rows_of_one_key),
    ("first", broken.first_ones, checks.check_place_does_not_choose),
    ("first", broken.largest_values, checks.check_values_do_not_choose),
    ("first", broken.of_all_units, checks.check_others_do_not_choose),
    ("with_unit", broken.with_missing_units, checks.check_bounded),
    ("salted_hash", broken.keyed_by_nothing, checks.check_bounded),
    ("salted_hash", broken.place_by_order, checks.check_place_tells_nothing),
]


@pytest.mark.parametrize(("part", "mutant", "check"), MUTANTS, ids=lambda item: getattr(item, "__name__", item))
def test_a_broken_choice_is_caught(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
    mutant: Callable[..., Any],
    check: Callable[[SparkSession], None],
) -> None:
    monkeypatch.setattr(f"spark_rdp.spark.reports.{part}", mutant)
    with pytest.raises(AssertionError):
        check(spark)
