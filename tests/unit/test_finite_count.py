"""Counts with a declared maximum: truncated geometric noise, as an option of count measures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.finite.grids import line
from spark_rdp.mechanisms.finite.tight_constraints import tight
from spark_rdp.mechanisms.geometric import Geometric
from spark_rdp.outputs import public_values
from spark_rdp.queries import ReleaseQuery
from spark_rdp.releases import plan_release


def planned(**measure: Any) -> Any:
    query = ReleaseQuery.of(
        {
            "name": "r",
            "source": {"format": "csv", "path": "x.csv", "schema": "user BIGINT"},
            "privacy": {"unit": "row", "epsilon": 0.5},
            "measures": [{"name": "n", "type": "count", **measure}],
        }
    )
    return plan_release(query)


def test_published_counts_stay_within_their_range() -> None:
    plan = planned(mechanism="truncated-geometric", maximum=20)
    (component,) = plan.components
    noised = np.array([-5, 0, 7, 20, 33])
    values, low, high = public_values("n", plan.components, {component.column: noised})
    assert values.tolist() == [0, 0, 7, 20, 20]
    assert values.dtype == low.dtype == high.dtype == np.int64
    assert low.min() == 0
    assert high.max() == 20
    assert np.all((low <= values) & (values <= high))


def test_it_is_the_tight_constraints_mechanism_of_a_line() -> None:
    """Geometric noise moved into 0..20 has the very matrix ``exp(-epsilon abs(i - j)) z[j]``."""
    (component,) = planned(mechanism="truncated-geometric", maximum=20).components
    noise = component.plan.build()
    assert isinstance(noise, Geometric)
    matrix = tight(line(21), noise.rate).matrix()
    for count in (0, 3, 20):
        offsets = np.arange(21) - count
        masses = np.exp(noise.log_mass(offsets))
        beyond = np.exp(noise.log_mass(np.arange(400)))
        masses[0], masses[-1] = beyond[count:].sum(), beyond[20 - count :].sum()
        assert matrix[count] == pytest.approx(masses, rel=1e-9)


def test_a_maximum_goes_with_any_mechanism_and_changes_no_noise() -> None:
    (bare,), (bounded,) = (
        planned(mechanism="staircase").components,
        planned(mechanism="staircase", maximum=5).components,
    )
    assert bounded.plan == bare.plan
    assert (bare.value_upper, bounded.value_upper) == (None, 5)


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        ({"mechanism": "truncated-geometric"}, r"measures\[0\].maximum must be given"),
        ({"maximum": 0}, r"measures\[0\].maximum must be"),
        ({"maximum": float("nan")}, r"measures\[0\].maximum must be"),
        ({"maximum": True}, r"measures\[0\].maximum must be"),
        ({"type": "histogram", "column": "x", "bins": [0, 1], "mechanism": "truncated-geometric"}, "mechanism must be"),
    ],
)
def test_what_makes_no_sense_is_refused(measure: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        planned(**measure)
