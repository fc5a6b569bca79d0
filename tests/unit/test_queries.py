"""Release queries: what is accepted, what is refused, and in which words."""

from __future__ import annotations

import copy
import datetime
import json
import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spark_rdp.errors import InvalidInput
from spark_rdp.metrics import L2, Usefulness
from spark_rdp.queries import Count, KeyRange, Mean, Privacy, ReleaseQuery, Selected, Sum
from spark_rdp.queries.reading import read_yaml

EXAMPLE = Path(__file__).parents[2] / "conf" / "orders.yaml"
ABSENT = object()


def example() -> dict[str, Any]:
    return copy.deepcopy(dict(read_yaml(EXAMPLE)))


def changed(*changes: tuple[str, Any]) -> dict[str, Any]:
    """The example with other values at dotted paths such as ``measures.2.lower``."""
    query = example()
    for path, value in changes:
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        place: Any = query
        for part in parents:
            place = place[part]
        if value is ABSENT:
            del place[last]
        else:
            place[last] = value
    return query


def refusal(query: dict[str, Any]) -> str:
    """The message of a refused query; reading a file and keyword arguments say the same."""
    with pytest.raises(InvalidInput) as from_mapping:
        ReleaseQuery.of(query)
    with pytest.raises(InvalidInput) as from_keywords:
        ReleaseQuery(**query)
    assert str(from_mapping.value) == str(from_keywords.value)
    assert "\n" not in str(from_mapping.value)
    assert from_mapping.value.exit_code == 2
    return str(from_mapping.value)


def written(path: str) -> str:
    """A dotted path as messages write it: ``measures[2].lower``."""
    parts = path.split(".")
    return "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in parts).removeprefix(".")


def test_the_documented_example() -> None:
    query = ReleaseQuery.from_yaml(EXAMPLE)
    assert query.group_columns == ("country", "day")
    assert query.declared_size == 90
    assert query.groups_per_unit == 5
    assert [measure.name for measure in query.measures] == ["orders", "customers", "revenue", "basket", "spread"]
    assert query.measures[0].metric == Usefulness(5)
    assert query.measures[1].metric == L2()
    assert query.source is not None
    assert query.source.path == ("data/orders.csv",)


#: Every number a query has, and those of the usual suspects it may be.
NUMBERS: dict[str, list[Any]] = {
    "privacy.epsilon": [],
    "privacy.delta": [0],
    "privacy.max_groups": [],
    "measures.0.max_per_group": [],
    "measures.0.weight": [],
    "measures.2.weight": [],
    "measures.2.granularity": [None],
    "measures.2.lower": [0, -1, 5e-324],
    "measures.2.upper": [],
    "measures.3.lower": [0, -1, 5e-324],
    "measures.3.upper": [],
    "measures.3.max_per_group": [],
    "measures.4.max_per_group": [],
    "measures.4.bins.0": [0, -1, 5e-324],
    "measures.4.bins.4": [],
    "group_by.day.range.0": [0, -1],
}
SUSPECTS = [0, -1, math.nan, math.inf, -math.inf, "1", True, None, 5e-324, 1e308, np.float64("nan"), Decimal("NaN")]


@pytest.mark.parametrize("path", NUMBERS)
def test_impossible_numbers_are_refused_by_name_and_value(path: str) -> None:
    for value in SUSPECTS:
        query = changed((path, value))
        if any(type(value) is type(allowed) and value == allowed for allowed in NUMBERS[path]):
            ReleaseQuery.of(query)
            continue
        message = refusal(query)
        start = written(path)
        if path.endswith("upper") and "below upper" in message:  # bounds that cross are reported by the lower one
            start = start.replace("upper", "lower")
        elif path == "measures.4.bins.0" and "before it" in message:  # edges that fall, by the second one
            start = start.replace("0", "1")
        assert message.startswith(f"{start} must be "), message
        assert repr(value) in message or repr(float(value)) in message, message


@pytest.mark.parametrize("value", [1, 1.0, np.float32(1), np.int64(1), Decimal(1), Fraction(1)])
def test_all_kinds_of_numbers_mean_the_same(value: Any) -> None:
    query = ReleaseQuery.of(changed(("privacy.epsilon", value)))
    assert type(query.privacy.epsilon) is float
    assert query.digest() == ReleaseQuery.from_yaml(EXAMPLE).digest()


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("measures.0.colum", "x", "measures[0].colum is not a known key; did you mean 'column'?"),
        ("privacy.epsilonn", 1, "privacy.epsilonn is not a known key; did you mean 'epsilon'?"),
        ("measure", [], "measure is not a known key; did you mean 'measures'?"),
        ("group_by.day.x", 1, "group_by.day.x is not a known key; the known keys are range."),
        ("measures.2.lower", ABSENT, "measures[2].lower must be given. Bounds are never read from the data"),
        ("measures.3.upper", ABSENT, "measures[3].upper must be given. Bounds are never read from the data"),
        ("measures.2.lower", None, "measures[2].lower must be a number"),
        ("measures.4.bins", ABSENT, "measures[4].bins must be given."),
        ("measures.2.lower", 500, "measures[2].lower must be below upper (500.0); got 500.0."),
        ("measures.2.upper", 0, "measures[2].lower must be below upper (0.0); got 0.0."),
        ("measures.2.upper", 1e-200, "measures[2].upper must be 1e-90 or more"),
        ("measures.3.upper", 1e100, "measures[3].upper must be closer to lower (0.0)"),
        ("measures.3.upper", 1e-90, "measures[3].lower must be further below upper (1e-90)"),
        ("measures.2.upper", 1e308, "measures[2].upper must be a number between -1e+100 and 1e+100; got 1e+308."),
        ("measures.2.granularity", 3.0, "measures[2].granularity must be a power of two; got 3.0."),
        ("measures.0.granularity", 2.0, "measures[0].granularity must be 1 for whole numbers; got 2.0."),
        ("measures.3.metric", {"usefulness": 1}, "measures[3].metric must be l1, l2, lp or mallows for a mean"),
        ("measures.0.metric", "usefulnes", "measures[0].metric must be one of"),
        ("measures.0.metric", {"usefulness": math.nan}, "measures[0].metric"),
        ("measures.0.mechanism", "gauss", "measures[0].mechanism must be one of auto, laplace, "),
        ("measures.1.type", "counts", "measures[1].type must be one of 'count', "),
        ("measures.1.type", ABSENT, "measures[1].type must be given"),
        ("measures.1", 7, "measures[1] must be a mapping of keys to values; got 7."),
        ("measures", [], "measures must be a list with at least one measure; got []."),
        ("measures.1.name", "Orders", "measures[1].name must be different from measures[0].name (orders)"),
        ("measures.1.name", "orders_LOW", "measures[1].name must be different from measures[0].name (orders)"),
        ("measures.1.name", "COUNTRY", "measures[1].name must be different from the group column country"),
        ("measures.1.name", "a.b", "measures[1].name must be at most 100 letters"),
        ("measures.4.bins", [0, 1, 1], "measures[4].bins[2] must be above the edge before it (1.0); got 1.0."),
        ("measures.4.bins", [0], "measures[4].bins must be a list of 2 to 100001 edges; got [0]."),
        ("privacy.unit", ABSENT, "privacy.unit must be given."),
        ("privacy.unit", "", "privacy.unit must be a text that is not empty; got ''."),
        ("privacy.max_groups", ABSENT, "privacy.max_groups must be given when the unit is a column"),
        ("measures.0.max_per_group", ABSENT, "measures[0].max_per_group must be given when the unit is a column"),
        ("privacy.delta", 1e-6, "privacy.delta must be 0, because nothing in this query uses it; got 1e-06."),
        ("privacy.neighbours", "swap", "privacy.neighbours must be 'add-remove' or 'replace-one'; got 'swap'."),
        ("group_by.country", ["a", "a"], "group_by.country must be a list without repetitions; got 'a'."),
        ("group_by.country", ["a", 1], "group_by.country must be a list of keys of one type"),
        (
            "group_by.country",
            [0.5],
            "group_by.country[0] must be a text, a whole number, true/false, a date or null; got 0.5.",
        ),
        ("group_by.country", [2**63], "group_by.country[0] must be a whole number of at most 64 bits"),
        ("group_by.country", [[1]], "group_by.country[0] must be a text"),
        ("group_by.country", "FR", "group_by.country must be a list of keys, {file: ...}"),
        ("group_by.country", {"rang": [0, 1]}, "group_by.country must be a list of keys, {file: ...}"),
        (
            "group_by.country",
            {"range": [3, 1]},
            "group_by.country.range must be a pair with the lower end first; got [3, 1].",
        ),
        ("group_by.country", {"range": [1, datetime.date(2020, 1, 1)]}, "group_by.country.range must be a pair of"),
        (
            "group_by.country",
            {"bins": [1, 0]},
            "group_by.country.bins[1] must be above the edge before it (1.0); got 0.0.",
        ),
        (
            "group_by.country",
            {"range": [1, 10**6]},
            "group_by must be a product of at most 1048576 keys; got 30000000.",
        ),
        ("group_by.DAY", [1], "group_by must be columns that differ by more than case; got 'DAY'."),
        ("group_by", {}, "group_by must be a mapping of columns to their keys; got {}."),
        ("group_by", {"select": ["country"]}, "group_by.delta must be given."),
        ("group_by", {"select": [], "delta": 1e-6}, "group_by.select must be a list that is not empty; got []."),
        ("group_by", {"select": ["country"], "delta": 0}, "group_by.delta must be above 0; got 0.0."),
        (
            "group_by",
            {"select": ["country"], "delta": 1e-6},
            "privacy.delta must be at least group_by.delta (1e-06); got 0.0.",
        ),
        ("source.schema", ABSENT, "source.schema must be given for csv"),
        ("source.path", ABSENT, "source.path must be given"),
        ("source.table", "orders", "source.path must be left out beside table"),
        ("kind", "collect", "kind must be 'release'; got 'collect'."),
        ("name", "a/b", "name must be at most 128 letters"),
        ("output", "out", "output must be a mapping of keys to values; got 'out'."),
    ],
)
def test_refusals(path: str, value: Any, message: str) -> None:
    assert refusal(changed((path, value))).startswith(message)


def test_long_values_are_cut() -> None:
    assert len(refusal(changed(("group_by.country", "x" * 10_000)))) < 400


def test_rows_as_units_need_no_caps() -> None:
    rows = changed(("privacy.unit", "row"), ("privacy.max_groups", ABSENT), ("measures.0.max_per_group", ABSENT))
    query = ReleaseQuery.of(rows)
    assert query.privacy.by_row
    assert query.groups_per_unit == 1
    assert "every row is its own unit" in refusal(changed(("privacy.unit", "row"), ("privacy.max_groups", ABSENT)))
    assert "every row lies in one group" in refusal(changed(("privacy.unit", "row")))


def test_without_groups_there_is_one_row() -> None:
    query = ReleaseQuery.of(changed(("group_by", ABSENT), ("privacy.max_groups", ABSENT)))
    assert (query.group_columns, query.declared_size, query.groups_per_unit) == ((), 1, 1)


def test_a_unit_cannot_be_in_more_groups_than_there_are() -> None:
    query = ReleaseQuery.of(changed(("privacy.max_groups", 1000)))
    assert query.groups_per_unit == 90
    from_file = ReleaseQuery.of(changed(("privacy.max_groups", 1000), ("group_by.country", {"file": "keys.csv"})))
    assert from_file.groups_per_unit == 1000


def test_private_selection() -> None:
    query = ReleaseQuery.of(
        changed(("group_by", {"select": ["country"], "delta": 1e-6}), ("privacy.delta", Decimal("0.000001")))
    )
    assert query.selects == Selected(select=("country",), delta=1e-6)
    assert query.declared_size is None


def test_kinds_of_keys() -> None:
    day = datetime.date(2026, 2, 27)
    query = ReleaseQuery.of(
        changed(
            ("group_by.country", ["FR", None]),
            ("group_by.day", {"range": [day, day + datetime.timedelta(2)]}),
            ("group_by.shop", [1, np.int64(2)]),
            ("group_by.vip", [True, False, None]),
            ("group_by.price", {"bins": [0, 10, 100]}),
        )
    )
    assert query.declared_size == 2 * 3 * 2 * 3 * 2
    assert query.group_by["shop"].values == (1, 2)  # type: ignore[index, union-attr]
    assert ReleaseQuery.of(changed(("group_by.country", []))).declared_size == 0


def test_queries_in_python() -> None:
    query = ReleaseQuery(
        name="orders",
        privacy=Privacy(unit="customer", epsilon=1, max_groups=2),
        group_by={"day": KeyRange(range=(0, 29))},
        measures=[
            Count(name="orders", max_per_group=3, metric=Usefulness(2)),
            {"type": "sum", "name": "revenue", "column": "amount", "lower": 0, "upper": 10},
        ],
    )
    assert isinstance(query.measures[1], Sum)
    with pytest.raises(InvalidInput, match=r"^lower must be given\."):
        Mean(name="basket", column="amount", upper=1)  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match=r"^upper must be a number .* got nan"):
        Sum(name="revenue", column="amount", lower=0, upper=math.nan)
    with pytest.raises(Exception, match="frozen"):
        query.name = "other"  # type: ignore[misc]


def test_digest_is_stable() -> None:
    query = ReleaseQuery.from_yaml(EXAMPLE)
    assert (
        query.digest()
        == ReleaseQuery.of(changed(("output", ABSENT), ("report", "x.html"), ("ledger.url", "y"))).digest()
    )
    assert query.digest() == ReleaseQuery.of(changed(("measures.3.max_per_group", 1))).digest(), "a default written out"
    small = ReleaseQuery(name="n", privacy={"unit": "row", "epsilon": 1}, measures=[{"name": "rows", "type": "count"}])
    assert small.digest() == "1a33519ab070487c38477c5fc331a61a56290aa3465ea2fa1b305fd7f9461f5e", (
        "published releases would no longer be recognised"
    )


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("name", "other"),
        ("source.path", "other.csv"),
        ("source.derive", {"x": "day + 1"}),
        ("privacy.epsilon", 1.000001),
        ("privacy.max_groups", 6),
        ("privacy.neighbours", "replace-one"),
        ("group_by.country", ["FR", "GB", "DE"]),
        ("group_by.country", ["FR", "DE", "GB", None]),
        ("measures.0.metric", {"usefulness": 6}),
        ("measures.0.weight", 2),
        ("measures.2.upper", 501),
        ("measures.4.bins", [0, 10, 20, 50, 101]),
    ],
)
def test_digest_sees_what_matters(path: str, value: Any) -> None:
    assert ReleaseQuery.of(changed((path, value))).digest() != ReleaseQuery.from_yaml(EXAMPLE).digest()


def test_digest_sees_the_order_of_columns_only() -> None:
    query, first = example(), ReleaseQuery.from_yaml(EXAMPLE)
    assert ReleaseQuery.of(dict(reversed(query.items()))).digest() == first.digest()
    query["group_by"] = dict(reversed(query["group_by"].items()))
    assert ReleaseQuery.of(query).digest() != first.digest()


def test_a_date_is_not_its_text() -> None:
    dates = ReleaseQuery.of(changed(("group_by.country", [datetime.date(2026, 1, 2)])))
    texts = ReleaseQuery.of(changed(("group_by.country", ["2026-01-02"])))
    assert dates.digest() != texts.digest()


def test_descriptions_hold_no_passwords() -> None:
    query = ReleaseQuery.of(
        changed(
            (
                "source",
                {
                    "format": "jdbc",
                    "options": {"url": "jdbc:x://h/db?user=me&password=Tops3cret", "password": "Tops3cret"},
                },
            ),
            ("ledger.url", "postgresql://me:Tops3cret@host/ledger"),
        )
    )
    text = json.dumps(query.describe())
    assert "Tops3cret" not in text
    assert "postgresql://me:***@host/ledger" in text
    other = query.model_copy(update={"ledger": None})
    assert other.digest() == query.digest()


def test_json_schema() -> None:
    schema = ReleaseQuery.schema()
    assert schema["additionalProperties"] is False
    assert {"name", "privacy", "measures"} <= set(schema["required"])
    assert set(schema["$defs"]["Source"]["properties"]) == {"format", "path", "options", "schema", "derive", "table"}
    assert schema["$defs"]["Privacy"]["properties"]["epsilon"]["maximum"] == 1e4
    json.dumps(schema)


def test_what_looks_like_a_password_in_an_expression_or_a_key_counts() -> None:
    def digest(expression: str, key: str) -> str:
        return ReleaseQuery(
            name="q",
            source={"format": "parquet", "path": "x", "derive": {"y": expression}},
            privacy={"unit": "row", "epsilon": 1},
            group_by={"g": [key]},
            measures=[{"name": "n", "type": "count"}],
        ).digest()

    asked = [
        ("if(token=1, 2, 0)", "http://u:1@a"),
        ("if(token=2, 2, 0)", "http://u:1@a"),
        ("if(token=1, 2, 0)", "http://u:2@a"),
    ]
    assert len({digest(*one) for one in asked}) == 3


def test_a_key_of_half_a_character_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"group_by.* must be a text of whole Unicode characters"):
        ReleaseQuery(
            name="q",
            privacy={"unit": "row", "epsilon": 1},
            group_by={"g": ["\ud800"]},
            measures=[{"name": "n", "type": "count"}],
        )
