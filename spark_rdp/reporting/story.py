"""What a release asked, protects and does not protect, in plain words. From its manifest only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from spark_rdp.planning.plan import Plan
from spark_rdp.releases import Component, ReleasePlan
from spark_rdp.reporting.words import metric_value, number, plain

#: What is not protected while a job runs.
JOB_LIMITS = (
    "How long the job ran, what it used of the cluster, and what the cluster itself logs are not protected.",
    "Expressions and functions of the user that run on single rows are trusted: a hostile one can reveal anything.",
)
#: What differential privacy does not do for the reader of a release.
LIMITS = (
    (
        "The error bars cover the noise only. Clamping values to their bounds and capping what one unit contributes "
        "change the results too; by how much depends on the data and is not published."
    ),
    (
        "Values are published as they came out, negative counts too: cutting them off would bias sums and averages "
        "of them."
    ),
    "The budgets of all releases of the same data add up. The ledger keeps that sum, for the releases that name it.",
    *JOB_LIMITS,
    (
        "The noise came from a secret that was drawn for this release and never stored. Whoever read it from the "
        "memory of the job can remove the noise."
    ),
)


def unit_name(plan: ReleasePlan) -> str:
    """One privacy unit as a reader would name it."""
    return "row" if plan.unit == "row" else plan.unit


def source_text(source: Mapping[str, Any] | None) -> str:
    """Where the rows came from."""
    if source is None:
        return "a DataFrame handed over in Python"
    if source.get("table"):
        return f"table {source['table']}"
    path = source.get("path")
    paths = path if isinstance(path, (list, tuple)) else [path]
    return f"{source.get('format')} {', '.join(str(each) for each in paths if each)}".strip()


def groups_text(group_by: Mapping[str, Any] | None) -> str:
    """How the groups were chosen."""
    if not group_by:
        return "one row over all data"
    if "select" in group_by:
        columns = ", ".join(group_by["select"])
        return f"{columns}: keys met in the data, selected privately (delta {plain(group_by['delta'])})"
    return "; ".join(f"{column}: {_domain_text(domain)}" for column, domain in group_by.items())


def _domain_text(domain: Any) -> str:
    if isinstance(domain, Mapping):
        if "values" in domain:
            return _domain_text(domain["values"])
        if "range" in domain:
            low, high = domain["range"]
            return f"{low} to {high}"
        if "bins" in domain:
            return f"bins with edges {', '.join(plain(edge) for edge in domain['bins'])}"
        return f"the keys in {domain.get('file')}"
    listed = [str(key.get("date") if isinstance(key, Mapping) else key) for key in domain]
    return ", ".join(listed) if len(listed) <= 12 else f"{', '.join(listed[:10])} and {len(listed) - 10:,} more"


def measure_text(measure: Mapping[str, Any], plan: ReleasePlan) -> str:
    """What a measure is, with the bounds that were applied."""
    unit, kind, column = unit_name(plan), measure["type"], measure.get("column")
    cap = measure.get("max_per_group") or 1
    rows = f"{cap:,} row{'' if cap == 1 else 's'}"
    capped = "" if plan.unit == "row" else f"; at most {rows} of one {unit} count in a group"
    if kind == "count":
        return f"Number of rows{f' with a {column}' if column else ''}{capped}."
    if kind == "count_units":
        return "Number of rows." if plan.unit == "row" else f"Number of different {unit}s."
    between = f"{plain(measure['lower'])} to {plain(measure['upper'])}" if "lower" in measure else ""
    if kind == "sum":
        whose = "each value" if plan.unit == "row" else f"the total of one {unit} in a group"
        return f"Sum of {column}; {whose} is clamped to {between}."
    if kind == "mean":
        averaged = "" if plan.unit == "row" else f"; one {unit} weighs as much as {rows} at most, at its own average"
        return f"Mean of {column}; each value is clamped to {between}{averaged}."
    if kind == "quantile":
        part = plan.of(measure["name"])[0]
        assert part.candidates is not None
        ends = f"{plain(part.candidates[0])} to {plain(part.candidates[-1])}"
        what = "Median" if measure["level"] == 0.5 else f"Quantile {plain(measure['level'])}"
        return f"{what} of {column}, to the nearest of {part.width:,} candidates from {ends}{capped}."
    edges = measure["bins"]
    return (
        f"Rows by {column}, in {len(edges) - 1} bins from {plain(edges[0])} to {plain(edges[-1])}; "
        f"values outside count in the outer bins{capped}."
    )


def part_text(component: Component, parts: int) -> str:
    """What a component is to its measure."""
    return (
        {"count": "count", "sum": "sum", "bins": "each bin", "quantile": ""}[component.role]
        if parts > 1 or component.role == "bins"
        else ""
    )


def factor_text(epsilon: float) -> str:
    """How many times more likely something becomes at most: e to the power epsilon."""
    return number(math.exp(epsilon), 3) if epsilon <= 14 else f"e^{plain(epsilon)}"


def promise(plan: ReleasePlan) -> str:
    """The guarantee, in one sentence."""
    factor = factor_text(plan.epsilon_millionths / 1e6)
    unit = unit_name(plan)
    change = (
        f"one {unit} is added or removed" if plan.neighbours == "add-remove" else f"one {unit} is replaced by another"
    )
    whole = "" if plan.unit == "row" else ", with all its rows"
    slack = f", up to an added probability of at most {plain(plan.delta)} (delta)" if plan.delta else ""
    return (
        f"Whatever is published here becomes at most {factor} times more or less likely (e to the power epsilon) "
        f"when {change}{whole}{slack}."
    )


def privacy_facts(plan: ReleasePlan) -> list[tuple[str, str]]:
    """Unit, neighbours, budget, and what was bounded or dropped."""
    unit = unit_name(plan)
    by_row = plan.unit == "row"
    who = (
        "every single row by itself; a person with several rows is not protected as a whole"
        if by_row
        else f"each {unit}: all rows with the same {unit} together"
    )
    neighbours = {
        "add-remove": f"two data sets that differ by adding or removing one {unit}",
        "replace-one": f"two data sets that differ by replacing one {unit} by another",
    }
    facts = [("Protected", who), ("Neighbours", neighbours[plan.neighbours])]
    facts.append(("Epsilon, in total", plain(plan.epsilon_millionths / 1e6)))
    facts.append(("Delta", _delta_text(plan)))
    if not by_row and plan.group_columns:
        times = "one group" if plan.max_groups == 1 else f"{plan.max_groups:,} groups"
        facts.append(("Contribution", f"one {unit} counts in at most {times}; which ones is decided by a keyed hash"))
    dropped = [] if by_row else [f"rows without a {unit}"]
    if plan.group_columns and plan.selection is None:
        dropped.append("rows of groups that were not declared")
    if dropped:
        facts.append(("Dropped", " and ".join(dropped)))
    return facts


def _delta_text(plan: ReleasePlan) -> str:
    """Delta, and what spends it."""
    if not plan.delta:
        return "0: pure differential privacy"
    spenders = [name for name in plan.measures if any(part.plan.delta for part in plan.of(name))]
    if plan.selection:
        spenders.append("the selection of the keys")
    return f"{plain(plan.delta)}, spent by {', '.join(spenders)}"


def certificate_text(plan: Plan) -> str:
    """How far the noise can be from the best possible, in words."""
    certificate = plan.certificate
    if certificate.get("bound") is None:
        return str(certificate.get("reason") or "no optimum is known")
    gap = certificate["relative_gap"]
    if gap is None or gap > 1:
        distance = f"this noise has {metric_value(plan.metric, plan.metric_value)}"
    else:
        distance = "this noise reaches it" if gap <= 1e-6 else f"this noise comes within {gap:.2%} of it"
    bound = metric_value(plan.metric, certificate["bound"])
    return f"The best possible value is {bound}; {distance}. {certificate['reason']}"


def simulated_facts(plan: Plan) -> list[tuple[str, str]]:
    """Figures of a plan that were found by simulation."""
    found = plan.facts.get("normalised_divergence")
    if found is None:
        return []
    figures = f"{found['value']:.3g} ± {found['standard_error']:.1g}"
    histograms = f"standard error; {found['histograms']:,} simulated histograms"
    return [("Divergence after normalising", f"{figures} ({histograms})")]


def charge_facts(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was charged where, how charges are put together, and what was left; says so when nothing was charged."""
    charge = manifest.get("charge")
    if not charge:
        return [("Charge", "none: no ledger was named, so nobody adds up what is spent on these data")]
    epsilon = plain(charge["epsilon_millionths"] / 1e6)
    delta = f" and delta {plain(charge['delta'])}" if charge.get("delta") else ""
    named = f" ({charge['fingerprint']})" if charge.get("fingerprint") else ""
    facts = [
        ("Charge", f"epsilon {epsilon}{delta}, once for this release id"),
        ("Data set", f"{charge['dataset']}{named}"),
    ]
    if "composition" in charge:
        facts.append(("Composition", charge["composition"]))
    if "balance" in charge:
        facts.append(("Balance", _balance_text(charge["balance"])))
    return facts


def _balance_text(balance: Mapping[str, Any]) -> str:
    """What was spent and left when a release was charged."""
    told = [
        f"{name} {plain(balance[f'spent_{name}'])} of {plain(balance[f'total_{name}'])} spent, "
        f"{plain(balance[f'remaining_{name}'])} left"
        for name in ("epsilon", "delta")
        if balance[f"total_{name}"]
    ]
    count = balance["releases"]
    return f"{'; '.join(told)}, with this release and {count - 1:,} before it"
