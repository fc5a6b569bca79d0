"""The noise of batches of rows: shares of a budget, arrays, streams. No Spark."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from statistical import row_checks as checks

from spark_rdp.digests import RowDigests
from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.local_build import build_local
from spark_rdp.spark.row_noise import RowNoise

NAN = math.nan
QUERIES = {"sampled": checks.SAMPLED, "apart": checks.APART, "array": checks.ARRAY}


@pytest.mark.parametrize("name", QUERIES)
def test_every_row_column_element_and_value_has_noise_of_its_own(name: str) -> None:
    _, noise = checks.noise_of(QUERIES[name])
    checks.check_batches(noise)
    checks.check_clamped(noise)
    if name != "sampled":  # its columns are mostly one constant
        checks.check_rows_apart(noise)
        checks.check_columns_apart(noise)
        checks.check_values_are_keyed(noise)


@pytest.mark.parametrize("name", QUERIES)
def test_what_is_published_has_the_planned_moments(name: str) -> None:
    plan, noise = checks.noise_of(QUERIES[name])
    checks.check_moments(noise, plan)


@pytest.mark.parametrize("reported", [1, 2, 4])
def test_a_row_reports_some_of_its_values(reported: int) -> None:
    columns = [{"length": 3, "mechanism": "duchi"}, {"mechanism": "duchi"}, {"mechanism": "duchi"}]
    plan, noise = checks.noise_of(checks.asked(*columns, sample=reported, epsilon=44.0))
    checks.check_reports(noise, plan)


def test_a_report_can_be_read_from_what_is_published() -> None:
    """On the lattice, within the support, after undoing the documented scale."""
    plan, noise = checks.noise_of(checks.SAMPLED)
    for column, item in zip(checks.constant(noise, 99.0), plan.columns.values(), strict=True):
        assert item.unsampled is not None
        mechanism = build_local(item.plan.mechanism, item.plan.parameters)
        reports = item.unsampled + (column[column != item.unsampled] - item.unsampled) / item.share.scale
        steps = reports / mechanism.lattice.granularity
        assert np.abs(steps - np.rint(steps)).max() < 1e-3
        low, high = mechanism.support
        assert low <= np.rint(steps).min() <= np.rint(steps).max() <= high


def arrays(column: Any, **changes: Any) -> list[Any]:
    """What a column of arrays is published as; duchi on 3 elements, epsilon 20 each."""
    given = {"length": 3, "epsilon": 60.0, "sample": 3, "mechanism": "duchi"}
    _, noise = checks.noise_of(checks.asked(given, **changes))
    keys = pa.array(np.zeros(len(column), dtype=np.int64))  # one key: rows differ in their values only
    found = noise.noised(RowDigests(noise.key), [keys, column])[0]
    assert found.type == pa.list_(pa.float64())
    return found.to_pylist()


def test_arrays_have_the_declared_length_whatever_comes_in() -> None:
    """Cut, or filled up with missing values, which are noised as the midpoint (known-faults, rows 165 and 166)."""
    kind = pa.list_(pa.float64())
    middle = 50.5
    given = [[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0], [1.0], [1.0, None, NAN], [], None, [1.0, middle, middle]]
    found = arrays(pa.array(given, kind))
    assert all(len(row) == 3 and None not in row for row in found)
    assert found[0] == found[1]
    assert found[2] == found[3] == found[6]
    assert found[4] == found[5] == arrays(pa.array([[middle] * 3], kind))[0]
    assert arrays(pa.array(given, kind).slice(2, 4)) == found[2:6]
    assert arrays(pa.array([], kind)) == []
    assert len(arrays(pa.array([None, []], kind))) == 2


def test_the_policies_of_arrays() -> None:
    kind = pa.list_(pa.float64())
    for wrong in ([1.0, 2.0], [1.0, 2.0, 3.0, 4.0], []):
        with pytest.raises(InvalidInput, match=r"^columns\[0\] \(c0\) must hold arrays of 3 elements in every row"):
            arrays(pa.array([[1.0, 2.0, 3.0], wrong], kind), invalid="error")
    with pytest.raises(InvalidInput, match="must lie within lower and upper"):
        arrays(pa.array([[1.0, 2.0, 101.5]], kind), invalid="error")
    for wrong in (None, [1.0, None, 2.0], [1.0, 2.0, NAN], [1.0, 2.0]):
        with pytest.raises(InvalidInput, match=r"^columns\[0\] \(c0\) must have no missing values"):
            arrays(pa.array([wrong], kind), null_policy="error")


def test_other_secrets_and_names_have_other_noise_and_other_draws() -> None:
    plan, noise = checks.noise_of(checks.SAMPLED)
    renamed = checks.asked({}, {}, {}, sample=1, name="other")
    others = [RowNoise.of(checks.SAMPLED, plan, bytes(32)), checks.noise_of(renamed)[1]]
    first = np.array(checks.constant(noise, 42.0))
    for other in others:
        second = np.array(checks.constant(other, 42.0))
        drawn = [np.array([row != row[0] for row in part.T]) for part in (first, second)]
        assert not np.array_equal(*drawn)
        both = (first != first[:, :1]) & (second != second[:, :1])
        assert np.mean(first[both] == second[both]) < 0.01


def test_what_travels_to_the_executors_is_small_and_shows_no_keys() -> None:
    _, noise = checks.noise_of(checks.ARRAY)
    sent = pickle.dumps(noise)
    assert pickle.loads(sent) == noise
    assert len(sent) < 4096
    assert checks.SECRET not in sent
    keys = [noise.key, *noise.columns[0].keys]
    assert all(repr(key) not in repr(noise) for key in keys)
