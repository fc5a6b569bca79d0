"""Metrics: what configuration may write, what is reported, and expectations under geometric noise."""

from __future__ import annotations

import json
import math
import pickle
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from spark_rdp.errors import InvalidInput
from spark_rdp.metrics import L1, L2, CustomLoss, Lp, Mallows, Metric, Usefulness

SPECS: list[Any] = ["l1", "l2", {"lp": 3}, {"usefulness": 5}, {"mallows": 1}]


def huber(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < 0.7, x * x / 2, 0.7 * (np.abs(x) - 0.35))


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_specs_read_back(spec: Any) -> None:
    metric = Metric.from_spec(spec)
    assert metric.spec() == spec
    assert Metric.from_spec(json.loads(json.dumps(metric.spec()))) == metric
    assert Metric.from_spec(metric) is metric
    assert pickle.loads(pickle.dumps(metric)) == metric
    assert metric.key() == (spec if isinstance(spec, str) else next(iter(spec)))


UNKNOWN = ["l3", "", "usefulness", {"usefulness": 5, "lp": 2}, {}, {"l1": 1}, 1, None, ["l1"], {"custom": "f"}, {1: 2}]


@pytest.mark.parametrize("spec", UNKNOWN, ids=str)
def test_unknown_metrics_are_refused(spec: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^metric must be one of l1, l2"):
        Metric.from_spec(spec)


BAD = [0, -1, math.nan, math.inf, -math.inf, "1", True, None, 5e-324, 1e308, [1], 1j]


@pytest.mark.parametrize("value", BAD, ids=str)
@pytest.mark.parametrize("name", ["lp", "mallows", "usefulness"])
def test_parameters_know_their_range(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match="must be a number between"):
        Metric.from_spec({name: value})


@pytest.mark.parametrize("value", [2, np.float32(2), np.int64(2), Decimal(2), Fraction(2)], ids=type)
def test_every_kind_of_number_is_the_same_number(value: Any) -> None:
    assert Lp(value) == Lp(2.0)
    assert Usefulness(value) == Usefulness(2.0)


def test_reported_values() -> None:
    assert L1().report(3.0) == 3.0
    assert L2().report(9.0) == 3.0
    assert Lp(3).report(27.0) == pytest.approx(3.0)
    assert Mallows(2).report(9.0) == 3.0
    assert Usefulness(1).report(0.25) == 0.75


def test_usefulness_counts_its_own_border() -> None:
    assert Usefulness(5).loss(np.array([-6, -5, 0, 5, 5.5])).tolist() == [1, 0, 0, 0, 1]
    assert Usefulness(5).steps(1.0) == 5
    assert Usefulness(0.1).steps(0.25) == 0
    assert Usefulness(0.1).steps(2.0**-20) == 104_857


METRICS = [
    *(L1(), L2(), Lp(3), Lp(1.5), Mallows(1), Usefulness(0.4)),
    *(CustomLoss(huber), CustomLoss(lambda x: np.maximum(x, 0.0) ** 2)),
]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.key())
@pytest.mark.parametrize("rate", [0.003, 0.4, 2.0, 20.0])
def test_expectations_equal_sums_term_by_term(metric: Metric, rate: float) -> None:
    unit = 0.25
    k = np.arange(1, int(60 / rate) + 60, dtype=np.float64)
    losses = metric.loss(unit * k) + metric.loss(-unit * k)
    centre = float(metric.loss(np.zeros(1))[0])
    total = math.tanh(rate / 2) * (math.fsum(np.exp(-rate * k) * losses) + centre)
    assert metric.expect_geometric(rate, unit) == pytest.approx(total, rel=1e-11)


@pytest.mark.parametrize("rate", [1e-12, 1e-6, 708.0, 745.0, 1e4])
def test_closed_forms_hold_at_the_ends(rate: float) -> None:
    """Small rates are the continuous Laplace law; large ones leave no noise and no overflow (known-faults, row 51)."""
    if rate < 1:
        assert L1().expect_geometric(rate, 1.0) == pytest.approx(1 / rate, rel=1e-6)
        assert L2().expect_geometric(rate, 1.0) == pytest.approx(2 / rate**2, rel=1e-6)
        assert Lp(2.0).expect_geometric(rate, 1.0) == pytest.approx(2 / rate**2, rel=1e-6)
        assert Lp(3.0).expect_geometric(rate, 1.0) == pytest.approx(6 / rate**3, rel=1e-6)
    else:
        for metric in (L1(), L2(), Lp(3), Usefulness(1)):
            assert 0 <= metric.expect_geometric(rate, 1.0) <= 1e-300


def test_a_custom_loss_is_held_to_its_word() -> None:
    with pytest.raises(InvalidInput, match="function must be"):
        CustomLoss(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="same shape"):
        CustomLoss(lambda x: 1.0).expect_geometric(1.0, 1.0)  # type: ignore[arg-type,return-value]
    with pytest.raises(InvalidInput, match="finite loss"):
        CustomLoss(lambda x: np.where(np.abs(x) > 3, np.nan, 0.0)).expect_geometric(1.0, 1.0)


def test_a_custom_loss_equals_the_named_one() -> None:
    named, custom = Lp(1.5), CustomLoss(lambda x: np.abs(x) ** 1.5)
    assert custom.expect_geometric(1e-5, 1e-6) == pytest.approx(named.expect_geometric(1e-5, 1e-6), rel=1e-11)
