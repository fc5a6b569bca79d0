"""The noise of a local collection, for the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from spark_rdp.collection import CollectPlan
from spark_rdp.reporting.cells_of_map import cells_text, epsilon_text
from spark_rdp.reporting.collected import NoisedColumn
from spark_rdp.reporting.table import printable, simple_table
from spark_rdp.reporting.words import metric_label, metric_value, number, plain


def columns_table(plan: CollectPlan) -> RenderableType:
    """The noise of each column of a local collection."""
    table = simple_table("Noise of one row")
    for heading in ("column", "range", "epsilon", "reported", "mechanism", "metric", "value", "one value"):
        table.add_column(heading, justify="right" if heading in ("range", "epsilon", "value", "one value") else "left")
    for name, planned in plan.columns.items():
        noise, share = planned.plan, planned.share
        cells = planned.cells is not None
        table.add_row(
            Text(printable(name)),
            cells_text(planned) if cells else f"{plain(planned.lower)} to {plain(planned.upper)}",
            epsilon_text(planned) if cells else plain(planned.epsilon),
            "all" if share.reported == share.values else f"{share.reported:,} of {share.values:,} values",
            noise.mechanism,
            metric_label(noise.metric),
            metric_value(noise.metric, noise.metric_value),
            "–" if cells else f"± {number(NoisedColumn(planned, '').variance ** 0.5, 3)}",
        )
    return Group(table, Text("± : root mean square of the noise of one reported value, over the range.", style="dim"))
