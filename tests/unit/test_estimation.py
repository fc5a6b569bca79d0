"""Estimation without Spark: what is refused, and answers where they can be worked out by hand."""

from __future__ import annotations

import json
import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_rdp.collection import plan_collect
from spark_rdp.errors import InvalidInput
from spark_rdp.estimation.collected import find_collections
from spark_rdp.estimation.estimates import assumptions, check_size, estimators
from spark_rdp.estimation.histogram import Deconvolution
from spark_rdp.estimation.moments import Counts, Moments, Sampling
from spark_rdp.estimation.outputs import Outputs
from spark_rdp.estimation.quantiles import quantiles
from spark_rdp.mechanisms.finite.build import build_finite
from spark_rdp.planning.local import LocalProblem, candidates
from spark_rdp.planning.local_metrics import AVERAGE, LocalMetric
from spark_rdp.publishing import MANIFEST
from spark_rdp.queries import CollectQuery, EstimateQuery
from spark_rdp.unit_budget import UnitBudget

PLACES = Path(__file__).parents[2] / "conf" / "places.yaml"
NAN, INF = math.nan, math.inf
MECHANISMS = ["duchi", "podium", "piecewise", "hybrid", "fitted", "laplace", "staircase", "r2dp"]


@cache
def outputs_of(name: str, epsilon: float = 1.0, lower: float = -3.0, upper: float = 100.0) -> Outputs:
    problem = LocalProblem(epsilon, lower, upper, LocalMetric.of(AVERAGE, lower, upper, None))
    return Outputs.of(candidates()[name](problem))


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("epsilon", [1.0, 5.0])
def test_cumulative_probabilities_are_sums_of_the_mass_function(name: str, epsilon: float) -> None:
    outputs = outputs_of(name, epsilon)
    mechanism, x = outputs.mechanism, np.array([-3.0, 20.3, 100.0])
    for middle in (outputs.centre, outputs.first):
        integers = np.arange(middle - 300, middle + 301)
        steps = np.diff(mechanism.cumulative(x, np.append(integers[0] - 1, integers)), axis=1)
        masses = np.array([mechanism.pmf(value, integers) for value in x])
        assert steps == pytest.approx(masses, abs=1e-12)
    assert mechanism.cumulative(x, np.array(mechanism.support))[:, 1] == pytest.approx(1.0)


@pytest.mark.parametrize("name", MECHANISMS)
def test_cells_of_outputs_are_few_and_hold_everything(name: str) -> None:
    for epsilon in (1.0, 40.0):
        if name == "fitted" and epsilon > 10:
            continue  # not offered
        outputs = outputs_of(name, epsilon)
        assert 2 <= outputs.count <= 520
        chances = outputs.chances(np.linspace(-3, 100, 11))
        assert chances.shape == (11, outputs.count)
        assert chances.sum(axis=1) == pytest.approx(np.ones(11))
        assert chances.min() >= 0


def counts(outputs: Outputs, integers: list[int], rows: int | None = None) -> Counts:
    about = [number - outputs.centre for number in integers]
    cells = np.zeros((1, outputs.count))
    sums = np.zeros((1, outputs.count))
    for number in integers:
        cell = min(max((number - outputs.first) // outputs.width, 0), outputs.count - 1)
        cells[0, cell] += 1
        sums[0, cell] += number - outputs.centre
    first, second = (np.array([total], dtype=object) for total in (sum(about), sum(number**2 for number in about)))
    size = len(integers)
    return Counts(np.array([size if rows is None else rows]), np.array([size]), first, second, cells, sums)


def test_moments_of_two_reports_by_hand() -> None:
    """For additive noise of variance v the mean square of the values is that of the reports less v."""
    outputs = outputs_of("laplace", lower=0, upper=64)
    unit, noise = outputs.mechanism.lattice.granularity, float(outputs.mechanism.variance(np.array([0.0]))[0])
    reports = np.array([-500.0, 900.0])
    moments = Moments(outputs, counts(outputs, [int(value / unit) for value in reports]), Sampling())
    assert moments.mean().value[0] == reports.mean()
    assert moments.total().value[0] == reports.sum()
    assert moments.noise[0] == pytest.approx(noise)
    # E[x^2] - E[x]^2, with the square of the mean less its own variance.
    expected = (reports**2).mean() - noise - (reports.mean() ** 2 - noise / 2)
    assert moments.variance().value[0] == pytest.approx(expected)


@pytest.mark.parametrize("name", MECHANISMS)
def test_groups_without_reports_are_answered(name: str) -> None:
    outputs = outputs_of(name)
    moments = Moments(outputs, counts(outputs, []), Sampling())
    mean, total = moments.mean(), moments.total()
    assert [math.isnan(mean.value[0]), mean.low[0], mean.high[0]] == [True, -3, 100]
    assert [total.value[0], total.low[0], total.high[0]] == [0, 0, 0]  # no rows have no total
    unreported = Moments(outputs, counts(outputs, [], rows=7), Sampling())
    total = unreported.total()
    assert [math.isnan(total.value[0]), total.low[0], total.high[0]] == [True, -21, 700]
    if name != "duchi":
        variance = moments.variance()
        assert [math.isnan(variance.value[0]), variance.low[0], variance.high[0]] == [True, 0, 103**2 / 4]


@pytest.mark.parametrize("name", ["podium", "fitted", "laplace"])
@pytest.mark.parametrize("place", [0, 1])
def test_values_that_are_all_at_one_end_are_found_there(name: str, place: int) -> None:
    """The ends of the range are atoms: nothing is smeared into the range. Counts are their expectations."""
    outputs = outputs_of(name)
    end = [-3.0, 100.0][place]
    found = Deconvolution(outputs).of(np.rint(1e6 * outputs.chances(np.array([end]))[0]))
    assert found.shares[[0, -1][place]] > 0.95
    at_end = quantiles(found, np.array([0.2, 0.5, 0.8]), 0.95)
    assert at_end.value == pytest.approx([end] * 3, abs=0.5)


def test_a_single_report_has_a_distribution_that_is_mostly_unknown() -> None:
    outputs = outputs_of("podium")
    one = np.zeros(outputs.count)
    one[outputs.count // 2] = 1
    found = Deconvolution(outputs).of(one)
    bins = found.bins(np.array([-3.0, 50.0, 100.0]), 0.95)
    assert bins.value.sum() == pytest.approx(1)
    assert np.all(bins.high - bins.low > 0.5)
    level = quantiles(found, np.array([0.5]), 0.95)
    assert level.high[0] - level.low[0] > 50


def test_quantiles_do_not_cross_and_lie_in_their_intervals() -> None:
    outputs = outputs_of("fitted")
    x = np.random.default_rng(1).normal(40, 15, 3000).clip(-3, 100)
    noised = np.random.default_rng(2).multinomial(3000, outputs.chances(x).mean(axis=0))
    found = quantiles(Deconvolution(outputs).of(noised), np.arange(0.01, 1, 0.01), 0.9)
    assert np.all(np.diff(found.value) >= 0)
    assert np.all((found.low <= found.value) & (found.value <= found.high))
    assert found.low.min() >= -3
    assert found.high.max() <= 100


# --- queries and collections -----------------------------------------------------------------------------------------


def collection(folder: Path, rows: int = 3, **changes: Any) -> Path:
    """A folder with what a collection has for those who look at everything but its values."""
    asked: dict[str, Any] = {
        "name": "telemetry",
        "row_key": ["device"],
        "columns": [
            {"column": "battery", "lower": 0, "upper": 100, "epsilon": 1, "mechanism": "podium"},
            {"column": "two", "lower": 0, "upper": 1, "epsilon": 0.5, "mechanism": "duchi"},
            {"column": "hours", "lower": 0, "upper": 1, "epsilon": 5, "mechanism": "podium", "length": 24, "sample": 3},
        ],
        "keep": ["country"],
    }
    units = {} if "memoize" in changes else {"privacy": {"unit": "row"}}
    query = CollectQuery(**{**asked, **units, **changes})
    plan = plan_collect(query)
    manifest = {
        "kind": "collect",
        "release_id": f"telemetry@{folder.name}",
        "query_digest": query.digest(),
        "content_digest": "0" * 64,
        "plan": plan.content(),
        "privacy": UnitBudget.of(query, plan).content(),
        "columns": "country STRING, battery DOUBLE, two DOUBLE, hours ARRAY<DOUBLE>",
        "unit": "row" if query.memoize is None else list(query.memoize.by),
        "policies": {"invalid": query.invalid, "null_policy": query.null_policy},
        "source_types": {"battery": "double", "two": "double", "hours": "array<double>"},
        "rows": rows,
    }
    folder.mkdir(parents=True)
    (folder / MANIFEST).write_text(json.dumps(manifest))
    pq.write_table(pa.table({"country": ["FR"] * rows}), folder / "part-00000.parquet")
    return folder


def query(folder: Path | str, **changes: Any) -> EstimateQuery:
    return EstimateQuery(**{"name": "answers", "collection": str(folder), **changes})


def refused(folder: Path, **changes: Any) -> str:
    collected = find_collections([str(folder)])
    with pytest.raises(InvalidInput) as failure:
        estimators(query(folder, **changes), collected)
    return str(failure.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"columns": [{"column": "charge"}]}, "columns[0].column must be a noised column of the collection; got 'cha"),
        ({"columns": [{"column": "country"}]}, "columns[0].column must be a noised column of the collection; got 'co"),
        ({"columns": [{"column": "two", "bins": 4}]}, "columns[0].statistics must be mean and total only"),
        ({"columns": [{"column": "two", "quantiles": 0.5}]}, "columns[0].statistics must be mean and total only"),
        ({"columns": [{"column": "two", "statistics": "variance"}]}, "columns[0].statistics must be mean and total on"),
        ({"columns": [{"column": "battery", "edges": [-1, 50]}]}, "columns[0].edges must be within the range of the c"),
        ({"columns": [{"column": "battery", "edges": [5, 5]}]}, "columns[0].edges[1] must be above the edge before"),
        ({"columns": [{"column": "battery", "bins": 5, "edges": [0, 5]}]}, "columns[0].bins must be left out beside"),
        ({"columns": [{"column": "battery", "element": 0}]}, "columns[0].element must be left out for a column withou"),
        ({"columns": [{"column": "hours", "element": 24}]}, "columns[0].element must be below 24; got 24."),
        ({"columns": [{"column": "battery"}] * 2}, "columns[1].name must be different from columns[0] (battery)"),
        ({"columns": [{"column": "battery", "statistics": ["median"]}]}, "columns[0].statistics[0] must be "),
        (
            {"columns": [{"column": "hours", "statistics": "guess"}]},
            "columns[0].statistics must be mean, total or vari",
        ),
        ({"intervals": "population"}, "intervals must be rows for arrays; got 'population'."),
        ({"rows_per_unit": 5}, "rows_per_unit must be left out; got 5."),
        (
            {"group_by": {"battery": {"bins": [0, 1]}}},
            "group_by must be columns that were kept in clear; got 'battery'",
        ),
        ({"group_by": {"select": ["country"], "delta": 1e-6}}, "group_by must be declared keys"),
        ({"group_by": {"Rows": ["a"]}}, "group_by must be columns that differ by more than case, none of them called"),
        ({"post": "round"}, "post[0] must be 'nonnegative' or 'range'; got 'round'."),
        ({"colour": 1}, "colour is not a known key"),
    ],
)
def test_a_query_that_cannot_be_answered_is_one_sentence(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    told = refused(collection(tmp_path / "c"), **changes)
    assert told.startswith(sentence), told
    assert "\n" not in told


@pytest.mark.parametrize("value", [0, -1, NAN, INF, -INF, "0.9", True, None, 5e-324, 1e308, 1])
@pytest.mark.parametrize("key", ["confidence", "rows_per_unit", "bins", "quantiles"])
def test_numbers_are_checked(key: str, value: Any) -> None:
    """Every number a user can enter (known-faults, K5)."""
    if value is not True and key in ("rows_per_unit", "bins") and value in (None, 1):
        return  # left out, or a good number
    column: dict[str, Any] = {"column": "battery"}
    changes: dict[str, Any] = {key: value}
    if key in ("bins", "quantiles"):
        column[key] = [value] if key == "quantiles" else value
        changes = {}
    with pytest.raises(InvalidInput, match=re.escape(key)):
        query("c", columns=[column], **changes)


def test_memoised_units_need_to_be_bounded(tmp_path: Path) -> None:
    folder = collection(tmp_path / "c", memoize={"by": "device"}, row_key=[])
    assert refused(folder).startswith("rows_per_unit must be given. Rows of one device repeat its noise")
    told = refused(folder, rows_per_unit=2, intervals="population", columns=[{"column": "battery"}])
    assert told.startswith("intervals must be rows where a unit has several")
    asked = query(folder, rows_per_unit=9)
    collected = find_collections(asked.collection)
    told = " ".join(assumptions(asked, collected, estimators(asked, collected)))
    assert "with at most 9 rows of one device in a group" in told


def test_a_budget_without_bound_has_to_be_accepted(tmp_path: Path) -> None:
    """As after a collection that says neither unit nor memoize, and one of a version that knew neither."""
    folders = [tmp_path / "silent", tmp_path / "old"]
    for folder in folders:
        collection(folder, privacy=None)
    manifest = json.loads((folders[1] / MANIFEST).read_text())
    assert manifest.pop("privacy")["unit_epsilon"] is None
    (folders[1] / MANIFEST).write_text(json.dumps(manifest))
    for folder in folders:
        for answer in (None, False):
            told = refused(folder, accept_unbounded=answer)
            assert told.startswith("collection must bound the budget of a unit; that of ")
            assert told.endswith(
                "is unbounded: add `privacy` to the collection, or `accept_unbounded: true` to this query to proceed."
            )
        asked = query(folder, accept_unbounded=True)
        found = find_collections(asked.collection)
        told = " ".join(assumptions(asked, found, estimators(asked, found)))
        assert "The budget of a unit is unbounded, which was accepted. Rows are protected one by one: " in told
        assert "spends epsilon 6.5 with each of them, and how many it has is not bounded." in told
    for wrong in ("true", 1, 0.0, [True]):
        with pytest.raises(InvalidInput, match=r"^accept_unbounded must be a valid boolean"):
            query(folder, accept_unbounded=wrong)


@pytest.mark.parametrize(
    ("privacy", "name", "words"),
    [
        ({"unit": "row"}, "row", "Every row is of another unit, which spends epsilon 6.5 with it."),
        (
            {"unit": "device", "max_reports": 24},
            "device",
            "A run publishes at most 24 of the rows of one device. Budgets add up: 24 times epsilon 6.5 is 156,",
        ),
    ],
)
def test_budgets_of_runs_add_up(tmp_path: Path, privacy: dict[str, Any], name: str, words: str) -> None:
    for run in range(3):
        collection(tmp_path / "c" / f"run={run}", privacy=privacy)
    asked = query(tmp_path / "c")
    collected = find_collections(asked.collection)
    told = " ".join(assumptions(asked, collected, estimators(asked, collected)))
    total = 3 * 6.5 * privacy.get("max_reports", 1)
    assert f"Budget of a unit: a {name} that is in all 3 runs has spent at most epsilon {total:g}. In the" in told
    assert words in told
    assert ("Rows beyond the most of a unit were not published" in told) == (name != "row")
    collection(tmp_path / "c" / "run=3", privacy=None)  # one without a bound, and the sum has none
    with pytest.raises(InvalidInput, match=r"that of .*run=3 is unbounded"):
        estimators(asked, find_collections(asked.collection))


def test_what_estimates_assume_is_said(tmp_path: Path) -> None:
    columns = [{"column": "battery", "statistics": ["variance"], "bins": 5}, {"column": "two"}, {"column": "hours"}]
    asked = query(collection(tmp_path / "c"), columns=columns, post="range", group_by={"country": ["FR"]})
    collected = find_collections(asked.collection)
    told = " ".join(assumptions(asked, collected, estimators(asked, collected)))
    for words in (
        "95 % of the time, what is true of the very rows",
        "Missing values count as the middle of the range.",
        "groups that were not declared are left out",
        "moved to where they are possible (range), which biases them",
        "battery: values count as moved into 0 to 100.",
        "take the distribution to be smooth",
        "two: the reports tell nothing but means",
        "hours: a row reports 3 of 24 values",
    ):
        assert words in told, words
    population = query(tmp_path / "c", columns=columns[:2], intervals="population", confidence=0.99)
    told = assumptions(population, collected, estimators(population, collected))[0]
    assert told.startswith("Intervals hold, 99 % of the time, what is true of a large population")


def test_too_many_groups_are_refused_before_anything_is_counted(tmp_path: Path) -> None:
    asked = query(collection(tmp_path / "c"), columns=[{"column": "battery", "quantiles": [0.5]}])
    found = estimators(asked, find_collections(asked.collection))
    check_size(5000, found)
    with pytest.raises(InvalidInput, match="so few groups that there are at most 5000 distributions; got 5001"):
        check_size(5001, found)
    with pytest.raises(InvalidInput, match="so few groups that there are at most 4000000 counts"):
        check_size(10_000, found)
    plain = query(tmp_path / "c", columns=[{"column": "battery"}, {"column": "two"}])
    check_size(1_000_000, estimators(plain, find_collections(plain.collection)))


def test_runs_are_found_and_must_agree(tmp_path: Path) -> None:
    for run, rows in (("run=1", 3), ("run=2", 4)):
        collection(tmp_path / "c" / run, rows)
    found = find_collections([str(tmp_path / "c")])
    assert found.rows == 7
    assert found.by_run
    assert [source["release_id"] for source in found.sources] == ["telemetry@run=1", "telemetry@run=2"]
    assert find_collections([str(tmp_path / "c"), str(tmp_path / "c" / "run=1")]).rows == 7  # none counts twice
    collection(tmp_path / "c" / "run=3", null_policy="drop")
    with pytest.raises(InvalidInput, match=r"the same columns, plans and policies in all folders; .*run=3 differs"):
        find_collections([str(tmp_path / "c")])


def test_folders_that_are_no_collections_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInput, match=r"collection must be the folder of a published collection.*no manifest.json"
    ):
        find_collections([str(tmp_path / "nowhere")])
    folder = collection(tmp_path / "c")
    (folder / MANIFEST).write_text('{"kind": "release"}')
    with pytest.raises(InvalidInput, match="collection must be one that this version published"):
        find_collections([str(folder)])
    folder = collection(tmp_path / "d")
    pq.write_table(pa.table({"country": ["FR"]}), folder / "part-00000.parquet")
    with pytest.raises(InvalidInput, match="are not those that were published"):
        find_collections([str(folder)])


def test_the_digest_of_a_query_is_that_of_its_answers() -> None:
    plain = query("c", columns=[{"column": "battery"}])
    assert plain.digest() == query("c", columns=[{"column": "battery"}], output={"path": "elsewhere"}).digest()
    others = [
        query("d", columns=[{"column": "battery"}]),
        query("c", columns=[{"column": "battery"}], confidence=0.9),
        query("c", columns=[{"column": "battery", "bins": 3}]),
        query("c", columns=[{"column": "battery"}], group_by={"a": ["1"]}),
        query("c", columns=[{"column": "battery"}], group_by={"a": [1]}),
    ]
    assert len({other.digest() for other in [plain, *others]}) == 6


@pytest.mark.parametrize("column", ["place", "payment"])
def test_a_guess_is_the_likeliest_true_cell_behind_a_published_one(tmp_path: Path, column: str) -> None:
    """Of the example: the largest of prior times probability, and right more often than what was published."""
    folder = collection(tmp_path / "c", **CollectQuery.from_yaml(PLACES).describe())
    collected = find_collections([str(folder)])
    (estimator,) = estimators(query(folder, columns=[{"column": column, "statistics": "guess"}]), collected)
    planned = collected.columns[column]
    chances = build_finite(planned.plan.mechanism, planned.plan.parameters).matrix()
    size = len(chances)
    truth = np.full(size, 2.0)
    truth[[1, size - 2]] = 40.0 * size, 20.0 * size
    outputs = np.stack([np.round(truth @ chances), np.zeros(size)])
    rows = outputs.sum(axis=1)
    found = estimator.answers(Counts(rows, rows, np.zeros(2), np.zeros(2), outputs))
    given, none = found[f"{column}_guess"].to_pylist()
    labels = list(range(size)) if column == "place" else ["cash", "card", "dispute", "other"]
    guess = np.array([labels.index(name) for name in given])
    joint = np.array(found[f"{column}_likeliest"][0].as_py())[:, None] * chances
    assert joint[guess, np.arange(size)] == pytest.approx(joint.max(axis=0), rel=1e-9)
    right = truth[:, None] * chances
    assert right[guess, np.arange(size)].sum() > 1.2 * np.trace(right)
    assert found[f"{column}_noised"][0].as_py() == outputs[0].tolist()
    assert none == []
    assert "guess" in estimator.describe()["lists"]


def test_a_guess_is_asked_for_alone_and_of_cells_that_can_be_gone_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = collection(tmp_path / "c", **CollectQuery.from_yaml(PLACES).describe())
    told = refused(folder, columns=[{"column": "place", "statistics": ["guess", "mean"]}])
    assert told.startswith("columns[0].statistics must be left out for grid, or guess; got"), told
    monkeypatch.setattr("spark_rdp.estimation.cells.MOST_GUESSED", 399)
    told = refused(folder, columns=[{"column": "place", "statistics": "guess"}])
    assert told.startswith("columns[0].statistics must be left out for more than 399 cells; got"), told
