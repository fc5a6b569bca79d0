"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spark_rdp.planning.plan import CENTRAL, FINITE, SELECTION
from spark_rdp.reporting.existence import existence_facts
from spark_rdp.reporting.figures import bins, figure, is_bins
from spark_rdp.reporting.story import certificate_text, charge_facts, part_text, simulated_facts
from spark_rdp.reporting.words import against, budget, metric_label, metric_value, number, plain, ranked

if TYPE_CHECKING:
    from spark_rdp.ledger import Balance, Entry
    from spark_rdp.planning.plan import Plan
    from spark_rdp.releases import ReleasePlan
    from spark_rdp.reporting.published import Published

#: What the terminal shows of a large release.
TERMINAL_ROWS = 24


def simple_table(title: str | None = None) -> Table:
    """An empty table in the style of all of them."""
    return Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)


def plan_table(plan: Plan) -> RenderableType:
    """A plan beside its rivals, best first, and one sentence of why."""
    rivals = simple_table()
    rivals.add_column("mechanism")
    rivals.add_column(metric_label(plan.metric), justify="right")
    rivals.add_column(f"against {plan.mechanism}", justify="right")
    for name, value in ranked(plan):
        chosen = name == plan.mechanism
        beside = "chosen" if chosen else against(plan.metric, value, plan.metric_value)
        rivals.add_row(name, metric_value(plan.metric, value), beside, style="bold" if chosen else "")
    facts = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    facts.add_row("verified epsilon", f"{plan.verified_epsilon:.9g}")
    if plan.delta:
        facts.add_row("delta", plain(plan.delta))
    if plan.model == SELECTION:
        facts.add_row("groups one unit can change", f"{plan.coordinates:,}")
    elif plan.model == CENTRAL:
        any_number = "any number, by the L1 norm together"
        facts.add_row("values one unit can change", any_number if _norm(plan) else f"{plan.coordinates:,}")
        facts.add_row("95 % of the noise within", f"± {number(reach_of(plan))}")
    if plan.model == FINITE:
        for name, text in existence_facts(plan):
            facts.add_row(name, text)
    elif plan.model != SELECTION:
        facts.add_row("granularity", f"{plan.granularity:.6g}")
    for name, text in simulated_facts(plan):
        facts.add_row(name.lower(), text)
    certificate = plan.certificate["reason"] if plan.certificate["bound"] is None else certificate_text(plan)
    facts.add_row("certificate", str(certificate))
    facts.add_row("plan", plan.plan_id[:16])
    return Group(Text(_title(plan), style="bold"), rivals, facts, Text(), Text(plan.why))


def _title(plan: Plan) -> str:
    epsilon = f"epsilon {plain(plan.epsilon)}"
    if _norm(plan):
        return f"Noise for {epsilon}, a vector that changes by {plain(_norm(plan))} in the L1 norm"
    if plan.model == CENTRAL:
        return f"Noise for {epsilon}, sensitivity {plain(plan.sensitivity)}"
    if plan.model == SELECTION:
        return f"Selection of a quantile for {epsilon}"
    if plan.model == FINITE:
        return f"One of {plan.integer_sensitivity + 1:,} cells, {epsilon} per unit of distance"
    return f"Noise for {epsilon}, one value in a range of length {plain(plan.sensitivity)}"


def _norm(plan: Plan) -> float:
    """The L1 norm of the change a plan covers; 0 where it was made for a profile."""
    return float(plan.facts.get("l1_norm", 0.0))


def release_table(published: Published, most: int = TERMINAL_ROWS) -> RenderableType:
    """The first rows of a release: each value with its error bar; marked ≈ where the noise is as large as the value."""
    plan = published.plan
    table = simple_table(published.manifest["release_id"])
    for key in plan.group_columns:
        table.add_column(Text(key))
    for name in plan.measures:
        table.add_column(Text(name), justify="right")
    shown = min(most, published.rows)
    for row in range(shown):
        keys = [Text(printable(key)) for key in published.keys(row)]
        table.add_row(*keys, *(_cell(published, name, row) for name in plan.measures))
    notes = ["± : 95 % of the noise; ≈ : the noise is as large as the value."]
    if shown < published.total_rows:
        hidden = published.total_rows - shown
        notes.insert(0, f"The first {shown:,} of {published.total_rows:,} rows; {hidden:,} are not shown here.")
    return Group(table, *(Text(note, style="dim") for note in notes))


def _cell(published: Published, measure: str, row: int) -> Text:
    value, low, high = published.value(measure, row)
    if is_bins(value):
        figures, error = bins(value, low, high)
        return Text.assemble(" | ".join(each.text for each in figures), (f" {error}", "dim"))
    shown = figure(value, low, high, published.range_of(measure))
    text = f"≈ {shown.text}" if shown.drowned else shown.text
    return Text.assemble((text, "dim" if shown.drowned else ""), (f" {shown.error}", "dim"))


def printable(text: str) -> str:
    """A text without control characters, which could drive the terminal."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def noise_table(plan: ReleasePlan) -> RenderableType:
    """The noise of each measure: mechanism, share of the budget, how far 95 % of it reaches, and the next best."""
    table = simple_table("Noise")
    for heading in ("measure", "mechanism", "epsilon", "95 % within", "metric", "value", "runner-up"):
        table.add_column(heading, justify="right" if heading in ("epsilon", "95 % within", "value") else "left")
    for component in plan.components:
        noise = component.plan
        part = part_text(component, len(plan.of(component.measure)))
        reach = f"± {number(reach_of(noise), 3)}{' ranks' if noise.model == SELECTION else ''}"
        others = [(name, value) for name, value in ranked(noise) if name != noise.mechanism and value is not None]
        rival = f"{others[0][0]}: {against(noise.metric, others[0][1], noise.metric_value)}" if others else "–"
        label = f"{component.measure}: {part}" if part else component.measure
        metric = (metric_label(noise.metric), metric_value(noise.metric, noise.metric_value))
        table.add_row(label, noise.mechanism, budget(noise.epsilon, noise.delta), reach, *metric, rival)
    if plan.selection:
        share = budget(plan.selection.epsilon_millionths / 1e6, plan.selection.delta)
        table.add_row("selection of the keys", "truncated geometric", share, *["–"] * 4)
    return table


def reach_of(noise: Plan) -> float:
    """How far 95 % of the noise reaches, in the unit of the value; for a selection, in ranks."""
    if noise.model == SELECTION:
        return noise.metric_value
    return noise.build().quantile(0.95) * noise.granularity


def charge_table(manifest: Mapping[str, Any]) -> RenderableType:
    """What a release was charged, by which rule charges are put together, and what was left then."""
    table = Table(title="Charge", title_justify="left", title_style="bold", box=None, show_header=False, pad_edge=False)
    for name, text in charge_facts(manifest):
        table.add_row(name.lower(), Text(printable(text)))
    return table


def balance_table(balance: Balance) -> RenderableType:
    """The budget of a data set: total, spent, left."""
    table = simple_table(f"Budget of {balance.dataset}")
    table.add_column("")
    for heading in ("total", "spent", "left"):
        table.add_column(heading, justify="right")
    amounts = (balance.total_epsilon, balance.spent_epsilon, balance.remaining_epsilon)
    table.add_row("epsilon", *(f"{amount:.6f}" for amount in amounts))
    table.add_row(
        "delta", *(f"{delta:g}" for delta in (balance.total_delta, balance.spent_delta, balance.remaining_delta))
    )
    releases = f"{balance.releases} release{'' if balance.releases == 1 else 's'} charged"
    return Group(table, Text(releases))


def history_table(dataset: str, entries: Sequence[Entry]) -> RenderableType:
    """Every event of a data set, oldest first."""
    if not entries:
        return Text(f"Nothing was charged to {dataset} yet.")
    table = simple_table(f"History of {dataset}")
    for heading in ("when", "release", "event", "epsilon", "delta", "query", "location"):
        table.add_column(heading, justify="right" if heading in ("epsilon", "delta") else "left", overflow="fold")
    for entry in entries:
        charge = (f"{entry.epsilon:.6f}", f"{entry.delta:g}")
        table.add_row(entry.at, entry.release_id, entry.event, *charge, entry.query_digest[:12], entry.location)
    return table
