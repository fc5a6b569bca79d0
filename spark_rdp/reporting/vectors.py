"""What was published by a release of degrees, ranges or averages: read back, told in words, and as tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from spark_rdp.errors import InvalidInput
from spark_rdp.folders import NOISED_FILE
from spark_rdp.reporting.figures import Figure, figure
from spark_rdp.reporting.manifests import manifest_file, read_manifest
from spark_rdp.reporting.story import factor_text, groups_text, measure_text, source_text
from spark_rdp.reporting.table import TERMINAL_ROWS, printable, simple_table
from spark_rdp.reporting.words import against, budget, metric_label, metric_value, number, plain, ranked
from spark_rdp.vectors import VectorPlan

if TYPE_CHECKING:
    import pyarrow as pa

_ENDS = ("_low", "_high")


def is_vector(manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest is of such a release."""
    return "noise" in manifest.get("plan", {})


@dataclass(frozen=True)
class VectorPublished:
    """A published release.

    Attributes:
        manifest: As written beside the data.
        table: The published rows (an Arrow table).
        noised: The noised numbers they were made from, where those are kept.
    """

    manifest: Mapping[str, Any]
    table: pa.Table
    noised: pa.Table | None = None

    @classmethod
    def read(cls, place: Path) -> VectorPublished:
        """The release with this manifest, or in this folder.

        Raises:
            InvalidInput: It is no release, or its data files are gone or are not its own.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        manifest, folder = read_manifest(place), manifest_file(place).parent
        files, beside = sorted(folder.glob("part-*.parquet")), folder / NOISED_FILE
        try:
            noised = pq.ParquetFile(beside).read() if beside.exists() else None
            return cls(manifest, pa.concat_tables([pq.ParquetFile(file).read() for file in files]), noised)
        except (pa.ArrowException, OSError):
            raise InvalidInput(
                f"The data files in {folder} are not those of its release. Restore the folder."
            ) from None

    @cached_property
    def plan(self) -> VectorPlan:
        """The plan of the release."""
        return VectorPlan.from_json(json.dumps(self.manifest["plan"]))

    @property
    def query(self) -> dict[str, Any]:
        """What was asked, as configuration writes it."""
        return dict(self.manifest["query"])

    @property
    def values(self) -> list[str]:
        """The columns with a value and its interval."""
        names = self.table.column_names
        return [name for name in names if all(name + end in names for end in _ENDS)]

    @property
    def keys(self) -> list[str]:
        """The columns in front of them."""
        taken = {name + end for name in self.values for end in ("", *_ENDS)}
        return [name for name in self.table.column_names if name not in taken]

    def rows(self, most: int) -> list[tuple[list[str], list[Figure]]]:
        """The keys and the values of the first rows."""
        columns = self.table.slice(0, most).to_pydict()
        return [
            (
                [self.key(name, columns[name][row]) for name in self.keys],
                [figure(*(columns[name + end][row] for end in ("", *_ENDS))) for name in self.values],
            )
            for row in range(min(most, self.table.num_rows))
        ]

    def key(self, column: str, value: Any) -> str:
        """A key as text; the last degree of a histogram stands for all larger ones."""
        facts = self.plan.facts
        more = column == "degree" and facts.get("overflow") and value == facts.get("highest")
        return f"{value} or more" if more else str(value)


def noun(plan: VectorPlan) -> str:
    """One privacy unit, as a reader would name it."""
    return {"node": "node with all its edges"}.get(plan.unit, plan.unit)


def promise(plan: VectorPlan) -> str:
    """The guarantee, in one sentence."""
    change = {
        "edge": "one edge is added or removed",
        "node": "all the edges of one node are added or removed",
    }.get(plan.unit)
    if change is None:
        whole = "" if plan.unit == "row" else ", with all its rows"
        verb = "is added or removed" if plan.neighbours == "add-remove" else "is replaced by another"
        change = f"one {plan.unit} {verb}{whole}"
    factor = factor_text(plan.epsilon_millionths / 1e6)
    return (
        f"Whatever is published here becomes at most {factor} times more or less likely (e to the power epsilon) "
        f"when {change}."
    )


def asked(published: VectorPublished) -> list[tuple[str, str]]:
    """The question, in words."""
    query, facts, plan = published.query, published.plan.facts, published.plan
    told = [("Data", source_text(query.get("source")))]
    if plan.kind == "degrees":
        ends = query["edges"]
        more = (
            ", larger ones together" if facts["overflow"] else f"; a node keeps at most {facts['max_degree']:,} edges"
        )
        told += [
            ("Graph", f"edges between {ends['source']} and {ends['target']}, without direction, each counted once"),
            ("Published", f"the {query['publish']} of degrees from 0 to {facts['max_degree']:,}{more}"),
            ("Nodes", _nodes_text(query.get("nodes"))),
        ]
    elif plan.kind == "ranges":
        told += [
            ("Domain", groups_text({name: query["domain"][name] for name in facts["columns"]})),
            ("Workload", f"{facts['workload']}: {facts['ranges']:,} sums of cells"),
        ]
    else:
        groups = query.get("group_by")
        told += [
            ("Periods", groups_text(query["time"])),
            *([("Groups", groups_text({name: groups[name] for name in facts["groups"]}))] if groups else []),
            ("Averaged", measure_text(query["measure"], plan)),  # type: ignore[arg-type]
            ("Window", f"{facts['window']:,} periods, moving by {facts['stride']:,}"),
        ]
    return told


def _nodes_text(nodes: Any) -> str:
    if nodes is None:
        return "only those with an edge; how many there are is not public"
    return f"those in {nodes['file']}" if isinstance(nodes, Mapping) else f"{nodes:,}, a public number"


def privacy(plan: VectorPlan) -> list[tuple[str, str]]:
    """Unit, budget, and what was bounded."""
    noise, facts = plan.noise, plan.facts
    values = "1 number" if noise.coordinates == 1 else f"at most {noise.coordinates:,} numbers, each"
    told = [
        ("Protected", f"each {noun(plan)}"),
        ("Epsilon", f"{plain(plan.epsilon_millionths / 1e6)}; on the noise drawn: {noise.verified_epsilon:.9g}"),
        ("Noise is added to", plan.role),
        ("One unit changes", f"{values} by at most {plain(noise.sensitivity)}"),
    ]
    if plan.unit not in ("row", "edge", "node"):
        told.append(("Contribution", f"one {plan.unit} counts in at most {facts['max_groups']:,} cells"))
    return told


def expectations(plan: VectorPlan) -> list[tuple[str, str]]:
    """How large the errors are expected to be, and what the alternatives would give."""
    facts = plan.facts
    told = []
    if "expected_root_mean_square_error" in facts:
        told.append(("Expected error (root mean square)", number(facts["expected_root_mean_square_error"])))
    for key in ("root_mean_square_error_by_strategy", "root_mean_square_error_by_method"):
        if key in facts:
            told.append(("By what is noised", _figures(facts[key])))
    if facts.get("expected_distance"):
        told.append(("Distance expected, at most", _figures(facts["expected_distance"])))
    return told


def _figures(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {number(value)}" for name, value in sorted(values.items(), key=lambda item: item[1]))


def rows_table(published: VectorPublished, most: int = TERMINAL_ROWS) -> RenderableType:
    """The first rows for the terminal."""
    table = simple_table(published.manifest["release_id"])
    for key in published.keys:
        table.add_column(Text(key), justify="right")
    for name in published.values:
        table.add_column(Text(name), justify="right")
    for keys, figures in published.rows(most):
        cells = [Text.assemble(f"{'≈ ' if f.drowned else ''}{f.text}", (f" {f.error}", "dim")) for f in figures]
        table.add_row(*(Text(printable(key)) for key in keys), *cells)
    total = published.table.num_rows
    notes = ["± : at least 95 % of the noise; ≈ : the noise is as large as the value."]
    if total > most:
        notes.insert(0, f"The first {most:,} of {total:,} rows.")
    return Group(table, *(Text(note, style="dim") for note in notes))


def plan_lines(plan: VectorPlan) -> RenderableType:
    """The noise, its rivals and the expected errors for the terminal."""
    noise = plan.noise
    table = simple_table("Noise")
    for heading in ("noised", "mechanism", "epsilon", "numbers a unit changes", "metric", "value", "runner-up"):
        table.add_column(heading)
    others = [(name, value) for name, value in ranked(noise) if name != noise.mechanism and value is not None]
    rival = f"{others[0][0]}: {against(noise.metric, others[0][1], noise.metric_value)}" if others else "–"
    metric = (metric_label(noise.metric), metric_value(noise.metric, noise.metric_value))
    table.add_row(plan.role, noise.mechanism, budget(noise.epsilon, 0.0), f"{noise.coordinates:,}", *metric, rival)
    return Group(table, *(Text(f"{label}: {text}") for label, text in expectations(plan)))


def ranking(plan: VectorPlan) -> Sequence[tuple[str, str, str, bool]]:
    """Each mechanism with its metric value, beside the one chosen."""
    noise = plan.noise
    return [
        (
            name,
            metric_value(noise.metric, value),
            "chosen" if name == noise.mechanism else against(noise.metric, value, noise.metric_value),
            name == noise.mechanism,
        )
        for name, value in ranked(noise)
    ]
