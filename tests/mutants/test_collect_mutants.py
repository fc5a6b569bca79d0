"""Each broken noise of rows is rejected by the check that the real one passes (tests/unit/test_row_noise.py).

Mutants of the mechanisms themselves - moving support, unclamped input, a threshold rounded up - are caught in
tests/privacy/test_local.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from mutants import collect as broken
from statistical import row_checks as checks

from spark_rdp.queries import CollectQuery
from spark_rdp.spark.row_noise import ColumnNoise, RowNoise

COLUMNS: list[tuple[type[ColumnNoise], CollectQuery, Callable[..., None]]] = [
    (broken.LastRowInClear, checks.APART, checks.check_batches),
    (broken.LastRowInClear, checks.ARRAY, checks.check_batches),
    (broken.StreamOfTheBatch, checks.APART, checks.check_batches),
    (broken.OneStreamForAllElements, checks.ARRAY, checks.check_columns_apart),
    (broken.ForgottenScale, checks.SAMPLED, checks.check_moments),
    (broken.ScaleThreePerCentOff, checks.SAMPLED, checks.check_moments),
    (broken.ValueNotInTheKey, checks.APART, checks.check_values_are_keyed),
    (broken.KeyBeforeTheClamp, checks.APART, checks.check_clamped),
]
ROWS: list[tuple[type[RowNoise], CollectQuery, Callable[..., None]]] = [
    (broken.OneStreamForAllColumns, checks.APART, checks.check_columns_apart),
    (broken.OneDigestForAllRows, checks.APART, checks.check_rows_apart),
    (broken.DataDecideWhatIsReported, checks.SAMPLED, checks.check_reports),
    (broken.ReportsAsManyAsChanceGives, checks.SAMPLED, checks.check_reports),
]


def caught(query: CollectQuery, mutate: Callable[[RowNoise], RowNoise], check: Callable[..., None]) -> None:
    """The right noise passes the check, the broken one does not."""
    plan, noise = checks.noise_of(query)
    more = (plan,) if check in (checks.check_moments, checks.check_reports) else ()
    check(noise, *more)
    with pytest.raises(AssertionError):
        check(mutate(noise), *more)


@pytest.mark.parametrize(("mutant", "query", "check"), COLUMNS, ids=lambda item: getattr(item, "__name__", ""))
def test_a_broken_column_is_caught(mutant: type[ColumnNoise], query: CollectQuery, check: Callable[..., None]) -> None:
    caught(query, lambda noise: broken.with_columns(noise, mutant), check)


@pytest.mark.parametrize(("mutant", "query", "check"), ROWS, ids=lambda item: getattr(item, "__name__", ""))
def test_broken_rows_are_caught(mutant: type[RowNoise], query: CollectQuery, check: Callable[..., None]) -> None:
    caught(query, lambda noise: broken.of_kind(noise, mutant), check)
