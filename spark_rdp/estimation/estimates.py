"""From a query and the manifests of collections to estimators, and what they assume. Nothing here looks at data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

from spark_rdp.collection import ColumnPlan
from spark_rdp.errors import InvalidInput, invalid, missing
from spark_rdp.estimation.cells import CellEstimator
from spark_rdp.estimation.collected import Collected
from spark_rdp.estimation.estimator import Estimator, Options
from spark_rdp.estimation.intervals import FEW
from spark_rdp.estimation.moments import Sampling
from spark_rdp.estimation.numbers import NumberEstimator
from spark_rdp.queries import EstimatedColumn, EstimateQuery, check_id

#: How each kind of column is estimated.
ESTIMATORS: dict[str, Callable[[EstimatedColumn, ColumnPlan, Options, str], Estimator]] = {
    "number": NumberEstimator,
    "grid": CellEstimator,
    "categories": CellEstimator,
}
#: Counts the driver holds at most, and distributions it works out at most (some ten a second).
MOST_COUNTS, MOST_DISTRIBUTIONS = 4_000_000, 5_000


def estimators(query: EstimateQuery, collected: Collected) -> list[Estimator]:
    """An estimator for every column of a query.

    Raises:
        InvalidInput: The collections cannot answer the query.
    """
    _check_budget(query, collected)
    _check_unit(query, collected)
    noised = {name.casefold() for name in collected.columns}
    times = [] if query.window is None else [("window.column", query.window.column)]
    for where, column in [*(("group_by", column) for column in query.group_columns), *times]:
        if column.casefold() in noised:
            remedy = "Noised values name no groups; ask for a histogram instead."
            raise invalid(where, "columns that were kept in clear", column, remedy)
    sampling = Sampling(query.confidence, query.intervals == "population", query.rows_per_unit or 1)
    options = Options(sampling, query.post)
    asked = query.columns or tuple(EstimatedColumn(column=name) for name in collected.columns)
    found: list[Estimator] = []
    for place, item in enumerate(asked):
        where = f"columns[{place}]"
        if item.column not in collected.columns:
            remedy = f"It noised: {', '.join(collected.columns)}."
            raise invalid(f"{where}.column", "a noised column of the collection", item.column, remedy)
        planned = collected.columns[item.column]
        if planned.kind not in ESTIMATORS:
            raise invalid(
                f"{where}.column", f"of the kind {' or '.join(ESTIMATORS)}", planned.kind, "Name another one."
            )
        found.append(ESTIMATORS[planned.kind](item, planned, options, where))
    return found


def check_size(groups: int, found: Sequence[Estimator]) -> None:
    """Refuse more than the driver can work out.

    Raises:
        InvalidInput: There are too many groups.
    """
    counts = groups * sum(estimator.cells for estimator in found)
    if counts > MOST_COUNTS:
        remedy = "Declare fewer groups, or ask for mean and total of columns with podium only."
        raise invalid("group_by", f"so few groups that there are at most {MOST_COUNTS} counts", counts, remedy)
    distributions = groups * sum(estimator.distributions for estimator in found)
    if distributions > MOST_DISTRIBUTIONS:
        remedy = "Declare fewer groups, or leave out histograms and quantiles."
        constraint = f"so few groups that there are at most {MOST_DISTRIBUTIONS} distributions"
        raise invalid("group_by", constraint, distributions, remedy)


def assumptions(query: EstimateQuery, collected: Collected, found: Sequence[Estimator]) -> list[str]:
    """What the estimates rest on, in sentences."""
    held, missed = f"{100 * query.confidence:.10g} %", f"{100 * (1 - query.confidence):.4g} %"
    about = {
        "rows": "what is true of the very rows that were collected: only their noise stands between, and its variance "
        "is estimated from the noised values, without bias",
        "population": "what is true of a large population the rows were drawn from independently: noise and the chance "
        "of drawing them stand between (totals are those of the very rows)",
    }[query.intervals]
    few = (
        f"They take sums of noise to be about normal. With fewer than {FEW} reports they rest on Chebyshev's "
        "inequality and the largest variance the noise can have, which holds for any number; without any they are all "
        "that is possible."
    )
    missing_values = {
        "midpoint": "Missing values count as the middle of the range.",
        "drop": "Rows with a missing value are not in the collection.",
        "error": "There were no missing values.",
    }[collected.null_policy]
    told = [
        f"Intervals hold, {held} of the time, {about}.",
        few,
        f"Each interval misses on its own: among many, about {missed} do. Numbers of rows are exact and public.",
        missing_values,
    ]
    if collected.unit:
        unit = ", ".join(collected.unit)
        told.append(
            f"Noise is the same for the same value of one {unit}. Variances count with at most {query.rows_per_unit} "
            f"rows of one {unit} in a group, as rows_per_unit says; more would make intervals too narrow."
        )
    else:
        told.append("No two rows share their key, so that each has noise of its own.")
    told.append(_budget_text(collected))
    if any(budget.counted for budget in collected.budgets):
        told.append("Rows beyond the most of a unit were not published: estimates are of those that were.")
    if query.group_by is not None:
        told.append("Rows of groups that were not declared are left out.")
    if query.window is not None:
        told.append(
            f"Windows are those in which rows were collected, by {query.window.column}, which is in clear: they need "
            "not be declared. Rows without a time are in none."
        )
    if query.post:
        told.append(f"Results were moved to where they are possible ({', '.join(query.post)}), which biases them.")
    for estimator in found:
        told += estimator.assumptions()
    return told


def estimate_id(query: EstimateQuery, run: str | None = None) -> str:
    """The id under which estimates are published and found again: ``name``, or ``name@run``.

    Raises:
        InvalidInput: The run is not made of letters, digits, dots, dashes and underscores.
    """
    return query.name if run is None else f"{query.name}@{check_id(run, 'run')}"


def _check_budget(query: EstimateQuery, collected: Collected) -> None:
    """What units have spent is what the estimates are made of; who estimates is told where that has no bound."""
    if query.accept_unbounded:
        return
    for folder, budget in zip(collected.folders, collected.budgets, strict=True):
        if budget.unbounded:
            raise InvalidInput(
                f"collection must bound the budget of a unit; that of {folder} is unbounded: add `privacy` to the "
                "collection, or `accept_unbounded: true` to this query to proceed."
            )


def _budget_text(collected: Collected) -> str:
    """What one unit has spent in the collections together."""
    budgets, runs = collected.budgets, len(collected.budgets)
    if any(budget.unbounded for budget in budgets):
        rule = next(budget.composition for budget in budgets if budget.unbounded)
        return f"The budget of a unit is unbounded, which was accepted. {rule}"
    if runs == 1 or any(budget.epsilon is None for budget in budgets):
        return f"Budget of a unit: {budgets[0].composition}"
    total = sum(Decimal(repr(budget.epsilon)) for budget in budgets)
    unit = budgets[0].unit if len({budget.unit for budget in budgets}) == 1 else "unit"
    return (
        f"Budget of a unit: a {unit} that is in all {runs} runs has spent at most epsilon {float(total):.10g}. In the "
        f"first of them: {budgets[0].composition}"
    )


def _check_unit(query: EstimateQuery, collected: Collected) -> None:
    repeats = query.rows_per_unit
    if not collected.unit:
        if repeats is not None:
            remedy = "Every row of this collection has noise of its own."
            raise invalid("rows_per_unit", "left out", repeats, remedy)
        return
    unit = ", ".join(collected.unit)
    if repeats is None:
        raise missing("rows_per_unit", f"Rows of one {unit} repeat its noise; say how many a group has at most.")
    if query.intervals == "population" and repeats > 1:
        remedy = f"Rows of one {unit} are not drawn independently of each other."
        raise InvalidInput(f"intervals must be rows where a unit has several; got 'population'. {remedy}")
