"""The release of a query: planned, charged, computed, noised and published, once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from spark_rdp.errors import missing
from spark_rdp.folders import DATA_FILES, Manifest, output_folder
from spark_rdp.kinds import AnyPlan, AnyQuery, plan_from_json, plan_query
from spark_rdp.ledger import Ledger
from spark_rdp.ledger.noises import losses_of
from spark_rdp.planning.plan import Plan
from spark_rdp.publishing import charge_of, publish_folder, publish_to_caller
from spark_rdp.queries.degrees import DegreesQuery
from spark_rdp.randomness import new_secret
from spark_rdp.releases import release_id as id_of
from spark_rdp.spark import io
from spark_rdp.spark.failures import worded
from spark_rdp.spark.job import Job
from spark_rdp.spark.kinds import public_frame
from spark_rdp.spark.set_aside import parted
from spark_rdp.stages import reached_stage
from spark_rdp.vectors import NOISED, VectorPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Result:
    """A published release.

    Attributes:
        release_id: The id it is published under.
        plan: What was computed and which noise was added.
        manifest: What is written beside the data.
        folder: Where it is published; None if it was handed to the caller only.
        already_published: True if an earlier run had published it, and this one read it back.
    """

    release_id: str
    plan: AnyPlan
    manifest: Manifest
    folder: Path | None
    already_published: bool
    _spark: Callable[[], SparkSession] = field(repr=False)
    _table: pa.Table | None = field(default=None, repr=False)
    _noised: pa.Table | None = field(default=None, repr=False)

    @property
    def plans(self) -> dict[str, tuple[Plan, ...]]:
        """The noise plans of every measure: one, or two for a mean (of its sum and of its count)."""
        return {name: tuple(part.plan for part in self.plan.of(name)) for name in self.plan.measures}

    @cached_property
    def df(self) -> DataFrame:
        """The published rows, sorted by key. They are read, never computed again."""
        spark = self._spark()
        with worded():
            if self.folder is None:
                assert self._table is not None
                return spark.createDataFrame(self._table)
            return io.read_published(spark, self.folder, self.manifest["columns"])

    def table(self) -> pa.Table:
        """The published rows as an Arrow table; needs no Spark."""
        if self._table is not None:
            return self._table
        assert self.folder is not None
        return pa.concat_tables([pq.ParquetFile(file).read() for file in sorted(self.folder.glob(DATA_FILES))])

    def report(self, path: str | Path | None = None) -> Path:
        """Write the HTML page that explains the release.

        Args:
            path: Where to; by default ``report.html`` in the folder of the release.
        """
        if path is None and self.folder is None:
            raise missing("path", "The release was not written to a folder, so say where its report goes.")
        target = Path(path) if path is not None else self.folder / "report.html"  # type: ignore[operator]
        if isinstance(self.plan, VectorPlan):
            from spark_rdp.reporting.vector_page import write_vector_page
            from spark_rdp.reporting.vectors import VectorPublished

            if self.folder is None:
                return write_vector_page(VectorPublished(self.manifest, self.table(), self._noised), target)
            return write_vector_page(VectorPublished.read(self.folder), target)
        from spark_rdp.reporting.page import write_page

        return write_page(self, target)


def release(
    df: DataFrame | None,
    query: AnyQuery,
    *,
    run: str | None = None,
    ledger: Ledger | None = None,
    spark: SparkSession | None = None,
) -> Result:
    """Release a query once. Running the same release id again reads back what was published and charges nothing.

    Args:
        df: The rows; None to read ``query.source``.
        query: What to release.
        run: Names this run of the query; with the name of the query it is the release id.
        ledger: Pays for the release; by default the one named in the query. Without any, no budget is kept.
        spark: The session; by default that of ``df``, the running one, or a new one.

    Returns:
        The published release. Without ``query.output`` its values exist in the result only, and are never handed out
        a second time if a ledger remembers the release.

    Raises:
        InvalidInput: The query, the source or the output cannot be used; nothing was charged.
        BudgetRefused: The ledger does not cover the charge; no data was read.
        JobFailed: Spark failed; nothing was published, and the same release id can be run again.
    """
    if df is None and query.source is None:
        raise missing("source", "Say where the rows are, or pass a DataFrame.")
    release_id, digest, plan = id_of(query, run), query.digest(), plan_query(query)
    charge = charge_of(query.ledger, ledger, plan.epsilon_millionths, plan.delta, losses_of(plan))
    reached_stage("planned", release_id, query_digest=digest, epsilon=query.privacy.epsilon, delta=plan.delta)
    job = _Job(df, query, plan, release_id, run, spark)
    if query.output is None:
        found: list[pa.Table | None] = []
        job.check()
        manifest = publish_to_caller(release_id, digest, charge, lambda: job.collect(found))
        return Result(release_id, plan, manifest, None, False, job.session, *found)
    folder = output_folder(query.output.path, run)
    done = publish_folder(folder, release_id, digest, charge, job.write, job.check)
    published = plan_from_json(json.dumps(done.manifest["plan"]))
    return Result(release_id, published, done.manifest, folder, done.already_published, job.session)


class _Job(Job):
    """One attempt to compute a release."""

    def __init__(
        self,
        df: DataFrame | None,
        query: AnyQuery,
        plan: AnyPlan,
        release_id: str,
        run: str | None,
        spark: SparkSession | None,
    ) -> None:
        super().__init__(df, query.source, release_id, spark)
        self._query = query
        self._plan = plan
        self._release_id = release_id
        self._run = run

    def _public(self) -> DataFrame:
        """Under a secret that nobody has used before and nobody keeps."""
        return public_frame(self.rows(), self._query, self._plan, new_secret(), self._release_id)

    @property
    def aside(self) -> str | None:
        """The noised degrees, beside the consistent ones."""
        return NOISED if isinstance(self._query, DegreesQuery) else None

    def _facts(self) -> Manifest:
        return _facts(self._query, self._plan, self._run)

    def check(self) -> None:
        """Find out from schemas alone whether the source can be used."""
        _ = self.frame

    def collect(self, result: list[pa.Table | None]) -> tuple[bytes, Manifest]:
        """Compute the release into ``result``, with what is set aside behind it; returns its bytes and manifest."""
        with worded():
            table = self.frame.toArrow()
        result.extend((table, None) if self.aside is None else parted(table, self.aside))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue().to_pybytes(), self.manifest(table.num_rows)


def _facts(query: AnyQuery, plan: AnyPlan, run: str | None) -> Manifest:
    """All of the manifest that is known before the data are read. It never holds data or secrets."""
    by_measure: dict[str, Any] = {
        name: {part.role: part.plan.epsilon for part in plan.of(name)} for name in plan.measures
    }
    deltas: dict[str, Any] = {
        name: {part.role: part.plan.delta for part in plan.of(name)}
        for name in plan.measures
        if any(part.plan.delta for part in plan.of(name))
    }
    if plan.selection is not None:
        by_measure["selection of keys"] = {"units": plan.selection.epsilon_millionths / 1e6}
        deltas["selection of keys"] = {"units": plan.selection.delta}
    return {
        "name": query.name,
        "run": run,
        "query": query.describe(),
        "plan": plan.content(),
        "unit": plan.unit,
        "neighbours": plan.neighbours,
        "epsilon": {"total": query.privacy.epsilon, "by_measure": by_measure},
        "delta": plan.delta,
        "delta_by_measure": deltas,
    }
