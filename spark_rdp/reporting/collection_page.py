"""The HTML page of a local collection: one file, no outside resources, built from the manifest only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from spark_rdp.reporting import collection_story as story
from spark_rdp.reporting.cells_of_map import noise_facts
from spark_rdp.reporting.collected import Collected, NoisedColumn
from spark_rdp.reporting.document import fill, identity, write
from spark_rdp.reporting.local_noise import TRIED, beta_inputs, limit_of, rivals_of, trial
from spark_rdp.reporting.local_plots import density_plot, trial_plot, variance_plot
from spark_rdp.reporting.words import against, metric_label, metric_value, number, plain, ranked

#: Columns with pictures; more of them would make the page heavy.
MOST_DRAWN = 12


@dataclass(frozen=True)
class Line:
    """One row of the table of columns."""

    name: str
    kind: str
    range: str
    epsilon: str
    mechanism: str
    metric: str
    value: str
    one: str
    mean: str


@dataclass(frozen=True)
class Section:
    """One column: its noise, its rivals, and pictures."""

    name: str
    text: str
    why: str
    mechanism: str
    density: Markup
    variance: Markup
    trial: Markup
    limited: bool
    metric: str
    ranking: Sequence[tuple[str, str, str, bool]]
    facts: Sequence[tuple[str, str]]


def write_collection(manifest: Mapping[str, Any], target: Path) -> Path:
    """Write the page of a collection.

    Args:
        manifest: What `spark_rdp.collect` wrote beside the data, or returned.
        target: The page; replaced as a whole when it exists.

    Returns:
        The path of the page.

    Raises:
        InvalidInput: It is not the manifest of a collection of this version.
        JobFailed: The page cannot be written.
    """
    return write(render(Collected.of(dict(manifest))), target)


def render(collected: Collected, most_drawn: int = MOST_DRAWN) -> str:
    """The page of a collection as text, with pictures of so many columns; the same manifest gives the same page."""
    told, reports_heading, spending = story.spending(collected)
    drawn = collected.columns[:most_drawn]
    return fill(
        "collection.html.j2",
        name=collected.query["name"],
        release=collected.manifest["release_id"],
        promise=story.promise(collected),
        asked=story.asked_facts(collected),
        privacy=story.privacy_facts(collected),
        spending_text=told,
        reports_heading=reports_heading,
        spending=spending,
        error_heading=story.error_heading(collected),
        lines=[_line(column, collected.independent) for column in collected.columns],
        sections=[_section(column, place) for place, column in enumerate(drawn)],
        undrawn=len(collected.columns) - len(drawn),
        cells=[(item.column, item.plan.why, noise_facts(item)) for item in collected.cells],
        limits=story.limits(collected),
        identity=identity(collected.manifest),
    )


def _line(column: NoisedColumn, rows: int) -> Line:
    plan = column.planned.plan
    return Line(
        name=column.planned.column,
        kind=story.kind_text(column),
        range=f"{plain(column.planned.lower)} to {plain(column.planned.upper)}",
        epsilon=plain(column.planned.epsilon),
        mechanism=plan.mechanism,
        metric=metric_label(plan.metric),
        value=metric_value(plan.metric, plan.metric_value),
        one=story.typical_error(column),
        mean=number(column.error_of_mean(rows), 3),
    )


def _section(column: NoisedColumn, place: int) -> Section:
    plan, mechanism, name = column.planned.plan, column.mechanism, column.planned.column
    rivals, limit, axis = rivals_of(plan, mechanism), limit_of(plan, mechanism), story.axis_text(column)
    mark = f"{place}-{plan.plan_id[:8]}"
    inputs = beta_inputs(mechanism.lower, mechanism.upper)
    tried = {plan.mechanism: mechanism, **{key: rivals[key] for key in TRIED if key in rivals}}
    noised = {key: trial(each, inputs) for key, each in tried.items()}
    ranking = []
    for key, value in ranked(plan):
        chosen = key == plan.mechanism
        if value is not None:
            beside = "chosen" if chosen else against(plan.metric, value, plan.metric_value)
            ranking.append((key, metric_value(plan.metric, value), beside, chosen))
    width = mechanism.upper - mechanism.lower
    best = "no limit is known for this metric and epsilon"
    if limit is not None:
        gap = plan.metric_value / (limit.lower * width**2) - 1
        best = (
            f"no unbiased mechanism has less than {number(limit.lower * width**2)} (linear programme over "
            f"{len(limit.variances)} inputs, drawn as “limit”); this one is {max(gap, 0):.2%} above"
        )
    facts = [
        ("One report", f"± {story.typical_error(column)}: root of the variance, averaged over the range"),
        ("Epsilon", f"{plain(plan.epsilon)} for one report; measured on the noise drawn: {plan.verified_epsilon:.9g}"),
        ("Lattice", f"whole multiples of {plain(plan.granularity)}"),
        ("Best possible", best),
        ("Plan", plan.plan_id[:16]),
    ]
    return Section(
        name=name,
        text=story.column_text(column),
        why=f"{plan.why.partition(':')[0]}.",
        mechanism=plan.mechanism,
        density=Markup(density_plot(plan.mechanism, mechanism, axis, f"d{mark}")),
        variance=Markup(variance_plot((plan.mechanism, mechanism), rivals, limit, axis, f"v{mark}")),
        trial=Markup(trial_plot(inputs, noised, axis, f"t{mark}")),
        limited=limit is not None,
        metric=metric_label(plan.metric),
        ranking=ranking,
        facts=facts,
    )
