"""The HTML page of a release: one file, no outside resources, built from the manifest and the published data only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from markupsafe import Markup

from spark_rdp.errors import InvalidInput
from spark_rdp.planning import additive
from spark_rdp.planning.plan import SELECTION, Plan
from spark_rdp.releases import Component
from spark_rdp.reporting import story
from spark_rdp.reporting.cells import Cell, bin_cells, number_cells
from spark_rdp.reporting.document import fill, identity, write
from spark_rdp.reporting.figures import is_bins
from spark_rdp.reporting.plots import noise_plot
from spark_rdp.reporting.published import Published, of_table, read_published
from spark_rdp.reporting.words import against, budget, metric_label, metric_value, number, plain, ranked


@dataclass(frozen=True)
class Noise:
    """The noise of one part of a measure, beside its rivals."""

    title: str
    mechanism: str
    picture: Markup
    metric: str
    ranking: Sequence[tuple[str, str, str, bool]]
    facts: Sequence[tuple[str, str]]
    why: str


@dataclass(frozen=True)
class Section:
    """One measure."""

    name: str
    text: str
    noises: Sequence[Noise]


class Release(Protocol):
    """What `spark_rdp.release` returns, as far as a page needs it."""

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest."""

    @property
    def folder(self) -> Path | None:
        """Where the data files and the manifest lie; None if the release was handed to the caller only."""

    def table(self) -> Any:
        """The published rows as an Arrow table."""


def write_page(release: Release, target: Path) -> Path:
    """Write the page of a release that was just made or read back.

    Returns:
        The path of the page.

    Raises:
        JobFailed: The page cannot be written.
    """
    if release.folder is not None:
        return write_report(release.folder, target)
    return write(render(of_table(release.manifest, release.table())), target)


def write_report(manifest_path: Path, target: Path) -> Path:
    """Write the page of a published release.

    Args:
        manifest_path: The manifest.json of the release, or its folder.
        target: The page; replaced as a whole when it exists.

    Returns:
        The path of the page.

    Raises:
        InvalidInput: The manifest or the data beside it cannot be used.
        JobFailed: The page cannot be written.
    """
    return write(render(read_published(manifest_path)), target)


def render(published: Published) -> str:
    """The page of a release as text; the same release gives the same page."""
    plan = published.plan
    measures = {measure["name"]: measure for measure in published.query["measures"]}
    columns = [_column(published, name) for name in plan.measures]
    return fill(
        "report.html.j2",
        name=published.query["name"],
        release=published.manifest["release_id"],
        identity=identity(published.manifest),
        unit=story.unit_name(plan),
        asked=[
            ("Data", story.source_text(published.query.get("source"))),
            ("Groups", story.groups_text(published.query.get("group_by"))),
        ],
        described=[(name, story.measure_text(measures[name], plan)) for name in plan.measures],
        promise=story.promise(plan),
        privacy=story.privacy_facts(plan),
        shares=_shares(published),
        keys=plan.group_columns,
        columns=[(name, _column_note(published, name)) for name in plan.measures],
        rows=[(published.keys(row), [column[row] for column in columns]) for row in range(published.rows)],
        shown=published.rows,
        total=published.total_rows,
        largest=[_largest(published, name) for name in published.largest],
        sections=[
            Section(name, story.measure_text(measures[name], plan), _noises(plan.of(name))) for name in plan.measures
        ],
        charge=story.charge_facts(published.manifest),
        limits=story.LIMITS,
    )


def _largest(published: Published, measure: str) -> tuple[str, list[tuple[list[str], Cell]]]:
    """A measure and the rows with its largest values."""
    found = published.largest_of(measure)
    return measure, [(found.keys(row), cell) for row, cell in enumerate(_column(found, measure))]


def _shares(published: Published) -> list[tuple[str, str, str]]:
    """Epsilon of each measure and part: name, asked, verified."""
    plan = published.plan
    shares = []
    for name in plan.measures:
        parts = plan.of(name)
        for part in parts:
            text = story.part_text(part, len(parts))
            label = f"{name}: {text}" if text else name
            shares.append(
                (label, budget(part.plan.epsilon, part.plan.delta), f"{part.plan.verified_epsilon:.9f}".rstrip("0"))
            )
    if plan.selection:
        share = plan.selection.epsilon_millionths / 1e6
        shares.append(("selection of the keys", budget(share, plan.selection.delta), plain(share)))
    return shares


def _column_note(published: Published, measure: str) -> str:
    """The common error bar of a column, or the bins of a histogram."""
    part = published.plan.of(measure)[0]
    edges = part.edges
    if edges is None or part.role != "bins":
        return ""
    return " | ".join(f"{plain(low)}–{plain(high)}" for low, high in pairwise(edges))


def _column(published: Published, measure: str) -> list[Cell]:
    """The cells of one measure."""
    values = [published.value(measure, row) for row in range(published.rows)]
    if values and is_bins(values[0][0]):
        return bin_cells(values)
    return number_cells(values, published.range_of(measure))


def _noises(parts: Sequence[Component]) -> list[Noise]:
    return [_noise(part, len(parts)) for part in parts]


def _noise(part: Component, parts: int) -> Noise:
    plan = part.plan
    if plan.model == SELECTION:
        return _selection(part)
    others = [name for name, value in ranked(plan) if name != plan.mechanism and value is not None]
    mechanism = plan.build()
    rivals = {name: rival.build() for name in others if (rival := _rival(plan, name)) is not None}
    picture = noise_plot((plan.mechanism, mechanism), rivals, plan.granularity, f"{part.column}-{plan.plan_id[:8]}")
    ranking = []
    for name, value in ranked(plan):
        chosen = name == plan.mechanism
        beside = "chosen" if chosen else against(plan.metric, value, plan.metric_value)
        ranking.append((name, metric_value(plan.metric, value), beside, chosen))
    half = mechanism.quantile(0.95) * plan.granularity
    facts = [
        ("95 % of the noise (shaded)", f"within ± {number(half, 3)}"),
        ("One unit changes", _change_text(plan)),
        ("Epsilon", f"{plain(plan.epsilon)}; measured on the noise drawn: {plan.verified_epsilon:.9g}"),
        *([("Delta", plain(plan.delta))] if plan.delta else []),
        ("Lattice", f"whole multiples of {plain(plan.granularity)}"),
        *story.simulated_facts(plan),
        ("How good it is", story.certificate_text(plan)),
        ("Plan", plan.plan_id[:16]),
    ]
    title = story.part_text(part, parts)
    return Noise(title, plan.mechanism, Markup(picture), metric_label(plan.metric), ranking, facts, plan.why)


def _selection(part: Component) -> Noise:
    """The selection of a quantile: no noise is added, so there is none to draw."""
    plan = part.plan
    assert part.candidates is not None
    ranking = [(name, metric_value(plan.metric, value), "", name == plan.mechanism) for name, value in ranked(plan)]
    low, high = (plain(candidate) for candidate in (part.candidates[0], part.candidates[-1]))
    facts = [
        ("Candidates", f"{part.width:,}, from {low} to {high}; each value counts for the nearest one"),
        ("Epsilon", f"{plain(plan.epsilon)}: half for the value, a quarter for each end of the interval"),
        ("How good it is", story.certificate_text(plan)),
        ("Plan", plan.plan_id[:16]),
    ]
    return Noise("", plan.mechanism, Markup(), metric_label(plan.metric), ranking, facts, plan.why)


def _change_text(plan: Plan) -> str:
    values = "1 value" if plan.coordinates == 1 else f"up to {plan.coordinates:,} values, each"
    return f"{values} by at most {plain(plan.sensitivity)}"


def _rival(plan: Plan, name: str) -> Plan | None:
    """The rival's plan, made again from the numbers of the chosen one; None where that is not possible."""
    try:
        return additive.plan(
            epsilon=plan.epsilon,
            sensitivity=plan.sensitivity,
            metric=plan.metric,
            mechanism=name,
            coordinates=plan.coordinates,
            granularity=plan.granularity,
            delta=plan.delta,
        )
    except InvalidInput:  # a loss of one's own is not part of a manifest
        return None
