"""What a local collection asked, protects and does not protect, in plain words. From its manifest only."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from spark_rdp.reporting.collected import Collected, NoisedColumn
from spark_rdp.reporting.story import JOB_LIMITS, factor_text, source_text
from spark_rdp.reporting.words import number, plain

#: How many reports of one unit the page adds up.
REPORTS = (1, 7, 30, 365)
_WHILE = ", as long as secret, name, range and plan of the column stay the same; with others it is drawn and spent anew"
_INVALID = {"clamp": "moved to the nearer end of the range", "error": "none: one would have stopped the job"}
_MISSING = {
    "midpoint": "noised as the middle of the range, so that nobody sees who has none",
    "drop": "a row without one of the values was left out",
    "error": "none: one would have stopped the job",
}


def unit_text(collected: Collected) -> str:
    """The unit whose noise is memoised, as a reader would name it; ``row`` where there is none."""
    return " and ".join(collected.unit) or "row"


def promise(collected: Collected) -> str:
    """The guarantee, in two sentences."""
    factor, epsilon = factor_text(collected.epsilon), plain(collected.epsilon)
    first = (
        "Every noised value was changed at random before anybody could look at it. Whatever is published for one row "
        f"becomes at most {factor} times more or less likely (e to the power {epsilon}) when the values that were "
        "noised are exchanged for any others in their ranges"
    )
    budget = collected.budget
    if budget.counted and budget.epsilon is not None:
        together = f"{factor_text(budget.epsilon)} times (e to the power {plain(budget.epsilon)})"
        return f"{first}; what is published for all rows of one {budget.unit} in a run, at most {together}."
    if not collected.unit:
        return f"{first}."
    unit = unit_text(collected)
    return f"{first}; the same {unit} with the same value always gets the same noise, so repeating it reveals no more."


def asked_facts(collected: Collected) -> list[tuple[str, str]]:
    """Where the rows came from and what was done with them."""
    query = collected.query
    kept = ", ".join(query.get("keep", []))
    facts = [("Data", source_text(query.get("source")))]
    if collected.rows is not None:
        facts.append(("Rows", f"{collected.rows:,}"))
    return [
        *facts,
        ("Noised", ", ".join(item["column"] for item in collected.manifest["plan"]["columns"])),
        ("In clear", f"{kept}: published as they are" if kept else "no other column is published"),
        ("Out of range", _INVALID[query["invalid"]]),
        ("Missing", _MISSING[query["null_policy"]]),
    ]


def privacy_facts(collected: Collected) -> list[tuple[str, str]]:
    """What is hidden, what it costs, and who could undo it."""
    unit = unit_text(collected)
    hidden = "each noised value of a row" if not collected.unit else f"each different value of one {unit} in a column"
    facts = [
        ("Protected", f"{hidden}: every value of the range is hidden among all others (local differential privacy)"),
        ("Epsilon", f"{plain(collected.epsilon)} for one report of all noised columns"),
        ("Budget of a unit", f"{_amount(collected)}: {collected.budget.composition}"),
        ("Delta", "0: pure differential privacy"),
    ]
    if collected.unit:
        facts.append(
            ("Same noise again", f"memoised: same {unit} and same value, same published value, in every run{_WHILE}")
        )
    else:
        key = ", ".join(collected.query.get("row_key", []))
        facts.append(("Same noise again", f"only for the same row ({key}) with the same value"))
    persistent = "kept by whoever runs the collection" if collected.manifest["persistent_secret"] else "drawn for this"
    never = "" if collected.manifest["persistent_secret"] else " collection and never stored"
    return [*facts, ("Secret of the noise", persistent + never)]


def _amount(collected: Collected) -> str:
    """What one unit spends in one run at most."""
    budget = collected.budget
    if budget.epsilon is not None:
        return f"epsilon {plain(budget.epsilon)} in a run"
    return "epsilon once for each distinct value" if budget.memoized else "unbounded"


def spending(collected: Collected) -> tuple[str, str, list[tuple[str, str, str]]]:
    """What reports of one unit add up to: a sentence, a heading, and rows of number, epsilon, factor."""
    if collected.unit:
        unit = unit_text(collected)
        told = (
            f"A {unit} that reports one value a thousand times spends the epsilon of that value once. Each different "
            "value spends again, for every column at most:"
        )
        heading = f"different values of one {unit}"
    elif collected.budget.epsilon is not None:
        unit = collected.budget.unit
        told = (
            f"A run publishes at most {collected.budget.max_reports:,} rows of one {unit}; what it has more is left "
            f"out, and so are rows without a {unit}. "
            if collected.budget.counted
            else "Every row is of another person or device, as whoever asked for the collection says. "
        )
        told += f"What the runs spend on one {unit} adds up:"
        heading = f"runs with one {unit}"
    else:
        told = (
            "Rows are protected one by one. If several rows are about one person or device, what they spend adds up; "
            "these rows are neither counted nor limited here:"
        )
        heading = "rows about one person"
    amounts = [(count, collected.budget.over(count) or round(count * collected.epsilon, 9)) for count in REPORTS]
    return told, heading, [(f"{count:,}", plain(amount), factor_text(amount)) for count, amount in amounts]


def column_text(column: NoisedColumn) -> str:
    """What the values of a column are, in which range, and what they share."""
    planned, kind = column.planned, column.source_type
    low, high = plain(planned.lower), plain(planned.upper)
    values = f"Values from {low} to {high}"
    if "date" in kind:
        values = (
            f"Dates from {_day(planned.lower)} to {_day(planned.upper)}, as days since 1970-01-01 ({low} to {high})"
        )
    elif "timestamp" in kind:
        values = f"Times from {_time(planned.lower)} to {_time(planned.upper)} UTC, as seconds since 1970-01-01"
    if planned.length is not None:
        values = f"Arrays of {planned.length:,} elements, each noised on its own. {values}"
    share = planned.share
    if share.values == 1:
        return f"{values}."
    others = [name for name in share.columns if name != planned.column]
    whose = f"Together with {', '.join(others)}: " if others else ""
    report = "1 report" if share.reported == 1 else f"{share.reported:,} reports"
    if column.sampled:
        told = (
            f"{whose}a row reports {share.reported:,} of {share.values:,} values, chosen by a keyed hash of the row, "
            f"never by its data, at epsilon {plain(planned.plan.epsilon)} each. A value that is not reported is "
            f"published as {planned.unsampled!r}, and the others are scaled so that averages stay right"
        )
    else:
        told = f"{whose}epsilon {plain(share.epsilon)} is split over {report}"
    return f"{values}. {told}."


def axis_text(column: NoisedColumn) -> str:
    """The column as a picture names it, with the unit of dates and times."""
    name, kind = column.planned.column, column.source_type
    unit = "days since 1970" if "date" in kind else "seconds since 1970" if "timestamp" in kind else ""
    return f"{name}, {unit}" if unit else name


def kind_text(column: NoisedColumn) -> str:
    """The type of the source, in a word or two."""
    return column.source_type if column.planned.length is None else f"{column.planned.length:,} × {_element(column)}"


def _element(column: NoisedColumn) -> str:
    return column.source_type.removeprefix("array<").removesuffix(">")


def error_heading(collected: Collected) -> str:
    """What the last column of the table of columns tells."""
    if collected.unit:
        return f"mean over {collected.independent:,} {'/'.join(collected.unit)}s, ± (95 %)"
    rows = "all " if collected.rows else ""
    return f"mean over {rows}{collected.independent:,} rows, ± (95 %)"


def limits(collected: Collected) -> Sequence[str]:
    """What the reader must not expect of noised columns."""
    query, unit = collected.query, unit_text(collected)
    kept = ", ".join(query.get("keep", []))
    clear = f", and the columns {kept} are published as they are" if kept else " are not hidden"
    scattered = (
        "One published value says almost nothing, and many lie far outside the range. They are right on average: "
        "use them in sums, means and estimates, and do not clip or round them first, which would bias all of these."
    )
    moved = (
        "Counts of published cells are not counts of true ones: the noise moves rows from frequent cells to rare ones. "
        "Estimate from them (kind: estimate), which takes that out."
    )
    told = [
        *([scattered] if collected.columns else []),
        *([moved] if collected.cells else []),
        f"Only the noised values are protected. That a row exists and how many there are{clear}.",
        (
            "The errors above are those of the noise. Moving values into their range changes averages too, by an "
            "amount that depends on the data and is not known here."
        ),
    ]
    if query["null_policy"] == "midpoint":
        told.append("A missing value counts as the middle of the range in every average; how many there are is hidden.")
    if query["null_policy"] == "drop":
        told.append("A row that is published had all its values: that much is told about it.")
    if "error" in (query["null_policy"], query["invalid"]):
        told.append(
            "That the job did not stop tells that no value was missing or out of range, as far as that stops it."
        )
    if collected.unit:
        told.append(
            f"Two different published values of one {unit} tell that the true values differ; equal ones, that they "
            f"are most likely the same. Rows of one {unit} are not independent: in an error, its value counts once."
        )
    elif collected.budget.counted:
        told.append(
            f"A value that is reported again in another row gets new noise; averaging the rows of one "
            f"{collected.budget.unit}, of all runs, comes as close to it as their budgets together allow."
        )
    else:
        told.append(
            "A value that is reported again in another row gets new noise, and averaging many such rows reveals it. "
            "Where units report again and again, bound their reports (privacy) or memoise."
        )
    secret = (
        "Whoever has the secret can compute the noise of every row again and take it away: keep it apart from the data."
        if collected.manifest["persistent_secret"]
        else "Whoever read the secret from the memory of the job can take the noise away."
    )
    return [*told, secret, *JOB_LIMITS]


def typical_error(column: NoisedColumn) -> str:
    """The standard deviation of one report, averaged over the range."""
    return number(column.variance**0.5, 3)


def _day(days: float) -> str:
    try:
        return (datetime.date(1970, 1, 1) + datetime.timedelta(days=days)).isoformat()
    except OverflowError:  # beyond the calendar
        return f"day {plain(days)}"


def _time(seconds: float) -> str:
    try:
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
    except OverflowError:
        return f"second {plain(seconds)}"
    return moment.isoformat(sep=" ", timespec="seconds")
