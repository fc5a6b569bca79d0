"""What one unit of a local collection spends: exact, as decimal numbers are multiplied, and with its rule in words."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from spark_rdp.collection import CollectPlan, plan_collect
from spark_rdp.queries import CollectQuery
from spark_rdp.unit_budget import UnitBudget


def planned(epsilon: float, **more: Any) -> tuple[CollectQuery, CollectPlan]:
    """Two columns with a budget each."""
    columns = [{"column": name, "lower": 0, "upper": 1, "epsilon": epsilon, "mechanism": "duchi"} for name in "ab"]
    query = CollectQuery(**{"name": "c", "row_key": ["id"], "columns": columns, **more})
    return query, plan_collect(query)


@pytest.mark.parametrize("epsilon", [0.1, 1 / 3, 17])
def test_the_budget_of_a_unit_is_that_of_its_reports_together(epsilon: float) -> None:
    query, plan = planned(epsilon)
    for reports in (1, 3, 24, 2**31 - 1):
        privacy = {"unit": "device", "max_reports": reports}
        budget = UnitBudget.of(CollectQuery(**{**query.describe(), "privacy": privacy}), plan)
        assert budget.epsilon == float(2 * reports * Decimal(repr(epsilon)))  # 3 times 0.2 is 0.6, without a rest
        assert budget.over(7) == pytest.approx(14 * reports * epsilon, rel=1e-12)
        assert (budget.unit, budget.max_reports, budget.unbounded, budget.counted) == ("device", reports, False, True)


@pytest.mark.parametrize(
    ("asked", "content", "words"),
    [
        (
            {"privacy": {"unit": "device", "max_reports": 3}},
            {"unit": "device", "max_reports": 3, "unit_epsilon": 0.6},
            "Budgets add up: 3 times epsilon 0.2 is 0.6, and every further run adds as much.",
        ),
        (
            {"privacy": {"unit": "row"}},
            {"unit": "row", "max_reports": 1, "unit_epsilon": 0.2},
            "Every row is of another unit, which spends epsilon 0.2 with it.",
        ),
        ({}, {"unit": "row", "max_reports": None, "unit_epsilon": None}, "how many it has is not bounded."),
        (
            {"memoize": {"by": ["home", "device"]}},
            {"unit": "home and device", "max_reports": None, "unit_epsilon": None},
            "Each distinct value of one home and device spends epsilon 0.2 once, however often it is reported;",
        ),
    ],
    ids=["device", "row", "none", "memoized"],
)
def test_a_manifest_tells_unit_budget_and_rule(asked: dict[str, Any], content: dict[str, Any], words: str) -> None:
    query, plan = planned(0.1, **asked)
    budget = UnitBudget.of(query, plan)
    told = budget.content()
    assert words in told.pop("composition")
    assert told == content
    unit = "row" if query.memoize is None else list(query.memoize.by)
    manifest = json.loads(json.dumps({"unit": unit, "plan": plan.content(), "privacy": budget.content()}))
    assert UnitBudget.of_manifest(manifest) == budget
    assert budget.unbounded == (not asked)
    if query.privacy is None:  # what an earlier version wrote says the same
        del manifest["privacy"]
        assert UnitBudget.of_manifest(manifest) == budget
        assert budget.over(2) is None
