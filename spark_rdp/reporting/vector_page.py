"""The HTML page of a release of degrees, ranges or averages: one file, built from what was published only."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from spark_rdp.reporting import vectors
from spark_rdp.reporting.document import fill, identity, write
from spark_rdp.reporting.story import LIMITS, certificate_text, charge_facts
from spark_rdp.reporting.vector_plots import picture
from spark_rdp.reporting.vectors import VectorPublished
from spark_rdp.reporting.words import metric_label

#: What a page shows of a large release.
MOST_ROWS = 200


def write_vector_page(published: VectorPublished, target: Path) -> Path:
    """Write the page of a release.

    Returns:
        The path of the page.

    Raises:
        JobFailed: The page cannot be written.
    """
    return write(render(published), target)


def render(published: VectorPublished) -> str:
    """The page of a release as text; the same release gives the same page."""
    plan = published.plan
    drawn, told = picture(published)
    rows = published.rows(MOST_ROWS)
    return fill(
        "vector.html.j2",
        name=published.query["name"],
        release=published.manifest["release_id"],
        promise=vectors.promise(plan),
        asked=vectors.asked(published),
        privacy=vectors.privacy(plan),
        picture=Markup(drawn),
        told=told,
        keys=published.keys,
        columns=published.values,
        rows=rows,
        shown=len(rows),
        total=published.table.num_rows,
        why=plan.noise.why,
        metric=metric_label(plan.noise.metric),
        ranking=vectors.ranking(plan),
        expectations=[*vectors.expectations(plan), ("How good the noise is", certificate_text(plan.noise))],
        charge=charge_facts(published.manifest),
        limits=LIMITS,
        identity=identity(published.manifest),
    )
