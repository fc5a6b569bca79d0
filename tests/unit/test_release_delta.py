"""Delta in a release: who needs it, how it is shared, what is charged, and Gaussian sensitivities."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_rdp.errors import InvalidInput
from spark_rdp.queries import ReleaseQuery
from spark_rdp.releases import ReleasePlan, plan_release, split_delta
from spark_rdp.reporting import story

SUM = {"type": "sum", "column": "v", "lower": -8, "upper": 8, "granularity": 1.0, "mechanism": "gaussian"}
COUNT = {"type": "count", "max_per_group": 3}
SELECT = {"select": ["k"], "delta": 1e-6}


def query(*measures: dict[str, Any], group_by: Any = None, **privacy: Any) -> ReleaseQuery:
    groups = {"k": list("abcd")} if group_by is None else group_by
    asked = {"unit": "u", "epsilon": 1.0, "max_groups": 2 if groups else None, **privacy}
    named = [{"name": f"m{place}", **each} for place, each in enumerate(measures)]
    return ReleaseQuery(name="q", privacy=asked, group_by=groups or None, measures=named)


def deltas(plan: ReleasePlan) -> list[float]:
    return [component.plan.delta for component in plan.components]


def test_only_gaussian_measures_share_delta_by_weight() -> None:
    mean = {**SUM, "type": "mean", "weight": 2}
    plan = plan_release(query({**SUM, "weight": 1}, COUNT, mean, delta=3e-6))
    assert [c.plan.mechanism == "gaussian" for c in plan.components] == [True, False, True, True]
    assert deltas(plan) == pytest.approx([1e-6, 0, 1e-6, 1e-6], rel=1e-15)
    assert plan.components[1].plan.alternatives.keys() == {"laplace", "staircase", "r2dp"}, "auto stays pure"
    assert sum(map(Fraction, deltas(plan))) <= Fraction("3e-6")
    assert plan.delta == 3e-6
    assert ReleasePlan.from_json(plan.to_json()) == plan
    for component in plan.components:
        assert component.plan.verified_epsilon <= component.plan.epsilon
        if component.plan.delta:
            mechanism, noise = component.plan.build(), component.plan
            assert mechanism.delta(noise.epsilon, noise.integer_sensitivity, noise.coordinates) <= noise.delta


def test_a_selection_of_keys_keeps_its_own_delta() -> None:
    plan = plan_release(query(SUM, SUM, COUNT, group_by=SELECT, delta=3e-6))
    assert plan.selection is not None
    assert plan.selection.delta == 1e-6
    assert deltas(plan) == pytest.approx([1e-6, 1e-6, 0], rel=1e-15)
    assert plan.delta == 3e-6
    plan = plan_release(query(COUNT, group_by=SELECT, delta=3e-6))
    assert plan.delta == 1e-6, "what nobody uses is not charged"


@settings(max_examples=200, deadline=None)
@given(delta=st.floats(1e-20, 0.5), weights=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=9))
def test_shares_of_delta_never_exceed_it(delta: float, weights: list[float]) -> None:
    exact = Fraction(repr(delta))
    shares = split_delta(exact, weights)
    assert exact * (1 - Fraction(1, 2**50)) < sum(map(Fraction, shares)) <= exact


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: query(COUNT, delta=1e-6), r"^privacy\.delta must be 0, because nothing in this query uses it"),
        (lambda: query(COUNT, SUM), r"^privacy\.delta must be above 0, because measures\[1\]\.mechanism is Gaussian"),
        (
            lambda: query(SUM, group_by=SELECT, delta=1e-6),
            r"^privacy\.delta must be above group_by\.delta \(1e-06\), because measures\[0\]\.mechanism is Gaussian",
        ),
        (lambda: query(SUM, group_by=SELECT, delta=1e-7), r"^privacy\.delta must be at least group_by\.delta"),
        (
            lambda: query(
                {"type": "histogram", "column": "v", "bins": [0, 1], "max_per_group": 2, "mechanism": "gaussian"},
                delta=1e-6,
            ),
            r"^measures\[0\]\.max_per_group must be 1 for gaussian noise",
        ),
        (
            lambda: plan_release(query({**SUM, "mechanism": "r2dp-gaussian"}, delta=1e-6)),
            r"^measures\[0\] cannot be planned with its shares of privacy\.epsilon and privacy\.delta: coordinates",
        ),
        (
            lambda: plan_release(query(SUM, delta=1e-6, epsilon=200)),
            r"^measures\[0\] cannot be planned with its shares .*: epsilon must be at most 100 for Gaussian noise",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(make: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as refused:
        make()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("measure", "privacy", "group_by", "expected"),
    [
        (SUM, {}, None, (2, 8)),
        (SUM, {"neighbours": "replace-one"}, None, (4, 16)),
        ({**SUM, "lower": 0}, {"neighbours": "replace-one"}, None, (4, 8)),
        ({**SUM, "lower": 5}, {"neighbours": "replace-one"}, None, (4, 8)),
        (SUM, {"neighbours": "replace-one"}, {}, (1, 16)),
        ({**COUNT, "mechanism": "gaussian"}, {"neighbours": "replace-one"}, None, (4, 3)),
        (
            {"type": "histogram", "column": "v", "bins": [0, 1, 2], "mechanism": "gaussian"},
            {"neighbours": "replace-one"},
            {},
            (2, 1),
        ),
    ],
)
def test_gaussian_profiles_cover_what_a_replacement_does(
    measure: dict[str, Any], privacy: dict[str, Any], group_by: Any, expected: tuple[int, int]
) -> None:
    """Each profile dominates every change, number by number: two changes of d are less than one of 2d."""
    plan = plan_release(query(measure, group_by=group_by, delta=1e-6, **privacy)).components[0].plan
    assert (plan.coordinates, plan.integer_sensitivity) == expected


def test_random_scales_serve_single_numbers() -> None:
    made = query({**SUM, "mechanism": "r2dp-gaussian"}, group_by={}, delta=1e-6)
    assert plan_release(made).components[0].plan.mechanism == "r2dp-gaussian"


def test_the_guarantee_names_delta_and_who_spends_it() -> None:
    plan = plan_release(query(SUM, COUNT, group_by=SELECT, delta=3e-6))
    assert "up to an added probability of at most 3e-06 (delta)" in story.promise(plan)
    facts = dict(story.privacy_facts(plan))
    assert facts["Delta"] == "3e-06, spent by m0, the selection of the keys"
    pure = plan_release(query(COUNT))
    assert "delta" not in story.promise(pure)
    assert dict(story.privacy_facts(pure))["Delta"] == "0: pure differential privacy"
    assert math.isclose(plan.components[0].plan.delta, 2e-6)
