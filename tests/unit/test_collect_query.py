"""Collection queries and their plans: what is accepted, what is refused, and in which words."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spark_rdp.collection import CollectPlan, collect_id, plan_collect
from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.local_build import build_local
from spark_rdp.planning.local import LocalProblem, candidates
from spark_rdp.planning.local_metrics import LocalMetric
from spark_rdp.queries import CollectQuery

EXAMPLE = Path(__file__).parents[2] / "conf" / "telemetry.yaml"
QUERY: dict[str, Any] = {
    "name": "telemetry",
    "row_key": ["device", "event_id"],
    "columns": [
        {"column": "battery", "lower": 0, "upper": 101, "epsilon": 0.7, "mechanism": "podium"},
        {"column": "speed", "lower": -3, "upper": 7, "epsilon": 0.1, "mechanism": "duchi"},
    ],
    "keep": ["country"],
    "secret": "env:SPARK_RDP_SECRET",
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The query with another value at a dotted path such as ``columns.1.lower``."""
    query = copy.deepcopy(QUERY)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place: Any = query
    for part in parents:
        place = place[part]
    place[last] = value
    return query


def refusal(query: dict[str, Any]) -> str:
    """The message of a refused query; a file and keyword arguments say the same."""
    with pytest.raises(InvalidInput) as from_mapping:
        CollectQuery.of(query)
    with pytest.raises(InvalidInput) as from_keywords:
        CollectQuery(**query)
    assert str(from_mapping.value) == str(from_keywords.value)
    assert "\n" not in str(from_mapping.value)
    return str(from_mapping.value)


def test_the_documented_example() -> None:
    query = CollectQuery.from_yaml(EXAMPLE)
    assert query.noise_key == ("device", "event_id")
    assert [item.column for item in query.columns] == ["battery"]
    assert query.output is not None


def test_the_defaults_depend_on_no_data() -> None:
    query = CollectQuery(**QUERY)
    assert (query.invalid, query.null_policy, query.memoize) == ("clamp", "midpoint", None)
    assert (query.columns[0].mechanism, query.columns[0].metric) == ("podium", "average-variance")
    assert query.used_columns == {
        "device": "row_key[0]",
        "event_id": "row_key[1]",
        "battery": "columns[0].column",
        "speed": "columns[1].column",
        "country": "keep[0]",
    }


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, "1", True, None, [1], 1e300], ids=repr)
@pytest.mark.parametrize("key", ["lower", "upper", "epsilon"])
def test_numbers_are_numbers(key: str, bad: Any) -> None:
    expected = "must be given" if key == "epsilon" and bad is None else "must be a number between "
    assert refusal(changed(f"columns.1.{key}", bad)).startswith(f"columns[1].{key} {expected}")


@pytest.mark.parametrize("epsilon", [0, -1, 5e-324, 1e-7, 1e5])
def test_impossible_budgets(epsilon: float) -> None:
    assert refusal(changed("columns.0.epsilon", epsilon)).startswith("columns[0].epsilon must be a number between ")


@pytest.mark.parametrize("epsilon", [1, np.float32(1), np.int64(1), Decimal(1), Fraction(1)], ids=repr)
def test_every_kind_of_number_is_the_same_number(epsilon: Any) -> None:
    assert CollectQuery(**changed("columns.0.epsilon", epsilon)).columns[0].epsilon == 1.0


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("columns.0.lower", 101, "columns[0].lower must be below upper (101.0); got 101.0"),
        ("columns.0.lower", 101 - 1e-9, "columns[0].lower must be further below upper"),
        ("columns.0.mechanism", "median", "columns[0].mechanism must be one of auto, "),
        ("columns.0.metric", "l2", "columns[0].metric must be one of average-variance"),
        ("columns.0.metric", {"usefulness": -1}, "columns[0].metric: gamma must be a number"),
        ("columns.0.metric", {"prior-variance": {"edges": [-9, 4], "weights": [1]}}, "columns[0].metric: prior must"),
        ("columns.0.lowest", 3, "columns[0].lowest is not a known key; did you mean 'lower'?"),
        ("columns", [], "columns must be a list that is not empty"),
        ("columns.1.column", "Battery", "columns[1].column must be different from every other published column"),
        ("keep", ["battery"], "keep[0] must be different from every other published column"),
        ("keep", "country", "keep must be a list"),
        ("row_key", [], "row_key must be given"),
        ("row_key", ["device", "SPEED"], "row_key[1] must be a column that is not noised"),
        ("memoize", {"by": "speed"}, "memoize.by[0] must be a column that is not noised"),
        ("memoize", {}, "memoize.by must be given"),
        ("columns.1.length", 0, "columns[1].length must be a whole number between 1 and 4096"),
        ("columns.1.length", 2.5, "columns[1].length must be a whole number between 1 and 4096"),
        ("columns.1.length", True, "columns[1].length must be a whole number between 1 and 4096"),
        ("columns.1.sample", 1, "columns[1].sample is for arrays that have an epsilon of their own."),
        ("epsilon", 1.0, "epsilon is for columns without an epsilon of their own"),
        ("sample", 1, "sample is for columns without an epsilon of their own"),
        ("privacy", {}, "privacy.unit must be given. Name the column"),
        ("privacy", {"unit": ""}, "privacy.unit must be a text that is not empty"),
        ("privacy", {"unit": "device"}, "privacy.max_reports must be given. Without it one device could spend any"),
        ("privacy", {"unit": "row", "max_reports": 2}, "privacy.max_reports must be left out where every row is anoth"),
        ("privacy", {"unit": "device", "epsilon": 1}, "privacy.epsilon is not a known key"),
        ("privacy", {"unit": "Speed", "max_reports": 2}, "privacy.unit must be a column that is not noised"),
        ("privacy", "device", "privacy must be a mapping of keys to values"),
        ("invalid", "drop", "invalid must be 'clamp' or 'error'"),
        ("null_policy", "zero", "null_policy must be 'midpoint', 'drop' or 'error'"),
        ("name", "a b", "name must be at most 128 letters"),
        ("kind", "release", "kind must be 'collect'"),
    ],
)
def test_what_is_refused_is_named(path: str, value: Any, message: str) -> None:
    assert refusal(changed(path, value)).startswith(message)


@pytest.mark.parametrize("bad", [0, -1, 1.5, math.nan, math.inf, -math.inf, "1", True, [1], 5e-324, 1e308], ids=repr)
def test_impossible_numbers_of_reports(bad: Any) -> None:
    told = refusal({**QUERY, "privacy": {"unit": "device", "max_reports": bad}})
    assert told.startswith("privacy.max_reports must be a whole number between 1 and 2147483647; got ")


def test_reports_and_memoised_values_are_not_bounded_together() -> None:
    for privacy in ({"unit": "row"}, {"unit": "device", "max_reports": 3}):
        told = refusal({**QUERY, "privacy": privacy, "memoize": {"by": "device"}})
        assert told.startswith("privacy must be left out beside memoize. A value that is repeated costs nothing there")


@pytest.mark.parametrize("secret", ["0123456789abcdef" * 4, "env:", b"12", 17])
def test_a_secret_in_the_configuration_is_refused_unseen(secret: Any) -> None:
    told = refusal(changed("secret", secret))
    assert told.startswith("secret must be env:NAME or file:PATH")
    assert "0123456789abcdef" not in told


def test_the_digest_is_of_what_decides_the_values() -> None:
    digest = CollectQuery(**QUERY).digest()
    for path, value in [("secret", "file:/elsewhere"), ("output", {"path": "out"})]:
        assert CollectQuery(**changed(path, value)).digest() == digest
    for path, value in [("columns.0.upper", 100), ("keep", []), ("invalid", "error"), ("memoize", {"by": "device"})]:
        assert CollectQuery(**changed(path, value)).digest() != digest
    units = [{"unit": "row"}, *({"unit": "device", "max_reports": most} for most in (1, 2))]
    assert len({digest, *(CollectQuery(**changed("privacy", unit)).digest() for unit in units)}) == 4


def test_what_was_published_before_units_were_known_is_still_found() -> None:
    """The digest that the version before wrote into its manifests."""
    assert CollectQuery(**QUERY).digest() == "494901ba1ea51fa27a1fc4c2dfe15291b69aeca1c4a44df2f84c3ca2929f8f41"


def test_one_plan_for_each_column() -> None:
    plan = plan_collect(CollectQuery(**QUERY))
    assert list(plan.columns) == ["battery", "speed"]
    assert plan.epsilon == 0.8  # and not 0.7999999999999999, the sum of doubles
    for item in (planned.plan for planned in plan.columns.values()):
        assert item.model == "local"
        assert 0.999 * item.epsilon < item.verified_epsilon <= item.epsilon
        assert build_local(item.mechanism, item.parameters).loss() == item.verified_epsilon
    assert CollectPlan.of_content(json.loads(json.dumps(plan.content()))) == plan


def shared(*columns: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A query whose columns share one budget, unless they have one of their own."""
    ranges = [{"column": f"c{place}", "lower": -1, "upper": 1, **item} for place, item in enumerate(columns)]
    return {"name": "shared", "row_key": ["id"], "epsilon": 1.0, "columns": ranges, **changes}


@pytest.mark.parametrize("sample", [0, -1, 1.5, "all", True, math.nan, [1]], ids=repr)
def test_impossible_samples(sample: Any) -> None:
    assert refusal(shared({}, {}, sample=sample)).startswith("sample must be a whole number between 1 and ")


def test_a_row_cannot_report_more_than_it_has() -> None:
    assert refusal(shared({}, {"length": 3}, sample=5)).startswith("sample must be at most 4; got 5.")
    alone = shared({"epsilon": 2, "length": 3, "sample": 4}, {})
    assert refusal(alone).startswith("columns[0].sample must be at most 3; got 4.")
    assert refusal(shared({}, epsilon=None)).startswith("columns[0].epsilon must be given")


@pytest.mark.parametrize("epsilon", [0.02, 77.7, 100.1])
@pytest.mark.parametrize("number", [1, 3, 7])
def test_the_parts_of_a_budget_never_exceed_it(epsilon: float, number: int) -> None:
    plan = plan_collect(CollectQuery(**shared(*[{"mechanism": "duchi"}] * 7, epsilon=epsilon, sample=number)))
    assert plan.epsilon == epsilon
    [share] = plan.shares
    assert (share.values, share.reported, share.scale) == (7, number, 7 / number)
    for item in plan.columns.values():
        part = Fraction(item.plan.epsilon)
        assert number * part <= Fraction(epsilon) <= number * part * (1 + Fraction(2) ** -50)
        assert item.plan.verified_epsilon <= item.plan.epsilon
        assert (item.unsampled is None) == (number == 7)


@pytest.mark.parametrize(
    ("metric", "epsilon", "expected"),
    [("average-variance", 1.0, 1), ("average-variance", 6.0, 2), ("worst-variance", 99, 9)],
)
def test_the_planner_reports_as_many_as_is_best(metric: str, epsilon: float, expected: int) -> None:
    """Against every number of reports, from the definition of the variance of a published value."""
    columns = [{"mechanism": "podium", "metric": metric}] * 9
    [chosen] = plan_collect(CollectQuery(**shared(*columns, epsilon=epsilon))).shares
    x = np.linspace(-1, 1, 501) if metric == "worst-variance" else np.linspace(-0.999, 0.999, 1000)

    def variance(number: int) -> float:
        """E y^2 - x^2 over the inputs of the metric, in squares of the range; 0 for what is not reported."""
        goal = LocalMetric.of(metric, -1, 1, None)
        mechanism = candidates()["podium"](LocalProblem(epsilon / number, -1, 1, goal))
        spread = 9 / number * (mechanism.variance(x) + x**2) - x**2
        return float(spread.max() if metric == "worst-variance" else spread.mean()) / 4

    every = {number: variance(number) for number in range(1, 10)}
    assert every[chosen.reported] <= 1.02 * min(every.values())
    assert chosen.reported == expected
    assert {1, 9} <= set(chosen.alternatives)
    for number, score in chosen.alternatives.items():
        assert score == pytest.approx(every[number], rel=1e-3)


def test_arrays_share_their_budget_among_their_elements() -> None:
    given = shared({"length": 4, "epsilon": 2, "mechanism": "duchi"}, {"length": 3}, {}, sample=4)
    plan = plan_collect(CollectQuery(**given))
    own, common = plan.shares
    assert (own.columns, own.epsilon, own.values) == (("c0",), 2, 4)
    assert own.reported == 1
    assert set(own.alternatives) == {1, 4}
    assert (common.columns, common.epsilon, common.values, common.reported) == (("c1", "c2"), 1, 4, 4)
    assert plan.epsilon == 3
    assert [item.epsilon for item in plan.columns.values()] == [2, 0.75, 0.25]
    assert CollectPlan.of_content(json.loads(json.dumps(plan.content()))) == plan


@pytest.mark.parametrize("mechanism", ["podium", "duchi", "laplace", "fitted"])
@pytest.mark.parametrize(("lower", "upper"), [(0, 101), (-1e-3, 7), (1e6, 1e6 + 1), (-5e90, 5e99), (17, 18)])
def test_what_stands_for_a_value_that_is_not_reported_is_no_report(mechanism: str, lower: float, upper: float) -> None:
    columns = [{"column": name, "lower": lower, "upper": upper, "mechanism": mechanism} for name in "ab"]
    item = plan_collect(CollectQuery(**shared(*columns, sample=1))).columns["a"]
    built = build_local(item.plan.mechanism, item.plan.parameters)
    assert item.unsampled is not None
    assert abs(item.unsampled - (lower / 2 + upper / 2)) <= item.plan.granularity
    place = Fraction(item.unsampled) / Fraction(item.plan.granularity)
    assert place.denominator == 2 or not built.pmf(lower, np.array([int(place)])).any()


def test_a_stream_is_named_by_what_decides_the_noise() -> None:
    """Words and rivals in a plan may change with a version; what is drawn must not change with them."""
    item = plan_collect(CollectQuery(**QUERY)).columns["battery"]
    reworded = dataclasses.replace(item, plan=dataclasses.replace(item.plan, why="x", alternatives={}, metric_value=0))
    assert reworded.stream == item.stream
    parameters = {**item.plan.parameters, "threshold": item.plan.parameters["threshold"] - 1}
    other = dataclasses.replace(item, plan=dataclasses.replace(item.plan, parameters=parameters))
    assert other.stream != item.stream


def test_a_mechanism_that_cannot_serve_a_column_is_named_with_its_place() -> None:
    columns = [{**QUERY["columns"][0], "mechanism": "fitted", "metric": {"usefulness": 3}}]
    with pytest.raises(InvalidInput, match=r"^columns\[0\]\.mechanism fitted minimises a variance"):
        plan_collect(CollectQuery(**{**QUERY, "columns": columns}))


@pytest.mark.parametrize(
    ("lower", "upper"), [(0, 1e-100), (-1e100, 0), (1e6, 1e6 + 0.002), (1e15, 1e15 + 1e6 + 2), (-5e99, 5e99)]
)
def test_unusual_ranges_have_a_plan(lower: float, upper: float) -> None:
    column = {"column": "v", "lower": lower, "upper": upper, "epsilon": 1, "mechanism": "podium"}
    plan = plan_collect(CollectQuery(name="x", row_key=["id"], columns=[column])).columns["v"].plan
    assert plan.verified_epsilon <= 1


def test_ids() -> None:
    query = CollectQuery(**QUERY)
    assert (collect_id(query), collect_id(query, "7")) == ("telemetry", "telemetry@7")
    with pytest.raises(InvalidInput, match="run must be"):
        collect_id(query, "../7")


def test_what_looks_like_a_password_in_an_expression_counts() -> None:
    sources = [{"format": "parquet", "path": "x", "derive": {"y": f"if(token={n}, 2, 0)"}} for n in (1, 2)]
    assert len({CollectQuery.of(changed("source", source)).digest() for source in sources}) == 2
