"""The release of a query: planned, charged, computed, noised and published, once."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from spark_rdp import __version__
from spark_rdp.errors import InvalidInput, missing
from spark_rdp.ledger import Ledger
from spark_rdp.planning.plan import Plan
from spark_rdp.publishing import DATA_FILES, Charge, Manifest, local_folder, publish_folder, publish_to_caller
from spark_rdp.queries import ReleaseQuery
from spark_rdp.randomness import new_secret, stream_key
from spark_rdp.releases import ReleasePlan, plan_release
from spark_rdp.releases import release_id as id_of
from spark_rdp.spark import io, session
from spark_rdp.spark.aggregate import aggregate
from spark_rdp.spark.failures import worded
from spark_rdp.spark.noise import add_noise

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
    plan: ReleasePlan
    manifest: Manifest
    folder: Path | None
    already_published: bool
    _spark: Callable[[], SparkSession] = field(repr=False)
    _table: pa.Table | None = field(default=None, repr=False)

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
        from spark_rdp.reporting.page import write_page

        if path is None and self.folder is None:
            raise missing("path", "The release was not written to a folder, so say where its report goes.")
        return write_page(self, Path(path) if path is not None else self.folder / "report.html")  # type: ignore[operator]


def release(
    df: DataFrame | None,
    query: ReleaseQuery,
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
    release_id, digest, plan = id_of(query, run), query.digest(), plan_release(query)
    charge = _charge(query, plan, ledger)
    job = _Job(df, query, plan, release_id, _facts(query, plan, run, charge), spark)
    if query.output is None:
        found: list[pa.Table] = []
        job.check()
        manifest = publish_to_caller(release_id, digest, charge, lambda: job.collect(found))
        return Result(release_id, plan, manifest, None, False, job.session, found[0])
    folder = output_folder(query.output.path, run)
    done = publish_folder(folder, release_id, digest, charge, job.write, job.check)
    published = ReleasePlan.from_json(json.dumps(done.manifest["plan"]))
    return Result(release_id, published, done.manifest, folder, done.already_published, job.session)


def output_folder(path: str, run: str | None) -> Path:
    """The folder of one run: ``{run}`` in the path is the run, otherwise a run has a folder ``run=...`` of its own."""
    if "{run}" in path:
        if run is None:
            raise InvalidInput(
                "run must be given, because output.path contains {run}. Use for example --run 2026-11-30."
            )
        return local_folder(path.replace("{run}", run))
    return local_folder(path) if run is None else local_folder(path) / f"run={run}"


class _Job:
    """One attempt to compute a release."""

    def __init__(
        self,
        df: DataFrame | None,
        query: ReleaseQuery,
        plan: ReleasePlan,
        release_id: str,
        facts: Manifest,
        spark: SparkSession | None,
    ) -> None:
        self._df = df
        self._query = query
        self._plan = plan
        self._release_id = release_id
        self._facts = facts
        self._spark = spark

    def session(self) -> SparkSession:
        """The session; built only when something needs Spark."""
        if self._spark is None:
            self._spark = (
                self._df.sparkSession if self._df is not None else session.build(f"spark-rdp {self._release_id}")
            )
        return self._spark

    @cached_property
    def _frame(self) -> DataFrame:
        """The public frame, under a secret that nobody has used before and nobody keeps. No row is read yet."""
        secret = new_secret()
        salt = int.from_bytes(stream_key(secret, self._release_id, "bounding")[:8], "big", signed=True)
        source = self._query.source
        with worded():
            rows = self._df
            if rows is None:
                assert source is not None
                rows = io.read(self.session(), source)
            exact = aggregate(rows, self._query, self._plan, salt)
            return add_noise(exact, self._plan, secret, self._release_id)

    def check(self) -> None:
        """Find out from schemas alone whether the source can be used."""
        _ = self._frame

    def write(self, folder: Path) -> Manifest:
        """Compute the release into a new folder."""
        with worded():
            io.write(self._frame, folder)
        rows = sum(pq.read_metadata(file).num_rows for file in folder.glob(DATA_FILES))
        return self._manifest(rows)

    def collect(self, result: list[pa.Table]) -> tuple[bytes, Manifest]:
        """Compute the release into ``result``; returns its bytes and manifest."""
        with worded():
            table = self._frame.toArrow()
        result.append(table)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue().to_pybytes(), self._manifest(table.num_rows)

    def _manifest(self, rows: int) -> Manifest:
        columns = ", ".join(f"{io.quoted(item.name)} {item.dataType.simpleString()}" for item in self._frame.schema)
        return {**self._facts, "columns": columns, "rows": rows}


def _charge(query: ReleaseQuery, plan: ReleasePlan, ledger: Ledger | None) -> Charge | None:
    if ledger is None:
        if query.ledger is None:
            return None
        ledger = Ledger(query.ledger.url, query.ledger.dataset)
    dataset = query.ledger.dataset if query.ledger is not None else ledger.dataset
    if dataset is None:
        raise missing("ledger.dataset", "Name the data set whose budget is spent.")
    return Charge(ledger, dataset, plan.epsilon_millionths, plan.delta)


def _facts(query: ReleaseQuery, plan: ReleasePlan, run: str | None, charge: Charge | None) -> Manifest:
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
        "charge": None
        if charge is None
        else {
            "dataset": charge.dataset,
            "epsilon_millionths": charge.epsilon_millionths,
            "delta": charge.delta,
            "accounting": "sum",
        },
        "versions": {
            "spark_rdp": __version__,
            "pyspark": pyspark.__version__,
            "numpy": np.__version__,
            "pyarrow": pa.__version__,
            "python": platform.python_version(),
        },
    }
