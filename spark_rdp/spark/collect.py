"""A local collection: every row noised in an executor before it lands anywhere.

The noise of a value is a function of a secret, the column, the row's key (or the device, when memoised) and the exact
value (see :mod:`spark_rdp.randomness`): retries, speculation, two actions and any partitioning give a row one noise.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from spark_rdp import __version__
from spark_rdp.collection import CollectPlan, collect_id, plan_collect
from spark_rdp.errors import invalid, missing
from spark_rdp.planning.plan import Plan
from spark_rdp.publishing import DATA_FILES, Manifest, publish_folder
from spark_rdp.queries import CollectQuery
from spark_rdp.randomness import SECRET_BYTES, load_secret, new_secret
from spark_rdp.spark import io, session
from spark_rdp.spark.failures import worded
from spark_rdp.spark.local_noise import noised
from spark_rdp.spark.release import output_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Collection:
    """A local collection.

    Attributes:
        release_id: The id it is published under.
        plan: The noise of every column.
        manifest: What is written beside the data.
        folder: Where it is published; None without ``query.output``.
        already_published: True if an earlier run had published it, and this one read it back.
    """

    release_id: str
    plan: CollectPlan
    manifest: Manifest
    folder: Path | None
    already_published: bool
    _frame: Callable[[], DataFrame] = field(repr=False)

    @property
    def plans(self) -> dict[str, Plan]:
        """The noise plan of every noised column."""
        return dict(self.plan.columns)

    @cached_property
    def df(self) -> DataFrame:
        """The kept columns and the noised ones (DOUBLE, never null), in the order of the source.

        Read from what was published. Without ``query.output`` it is as lazy as the source: every action computes the
        same noise for the same row and value again.
        """
        with worded():
            return self._frame()


def collect(
    df: DataFrame | None,
    query: CollectQuery,
    *,
    secret: bytes | str | None = None,
    run: str | None = None,
    spark: SparkSession | None = None,
) -> Collection:
    """Publish every row with noise of its own. The same id again reads back what was published.

    Args:
        df: The rows; None to read ``query.source``.
        query: What to publish.
        secret: 32 bytes, or ``env:NAME`` or ``file:PATH``; by default the one named in the query. Without any, noise
            is drawn anew at every call.
        run: Names this run of the query; with the name of the query it is the id.
        spark: The session; by default that of ``df``, the running one, or a new one.

    Raises:
        InvalidInput: The query, the source, the secret or the output cannot be used, or, where the query asks for
            it, the data hold a missing value or one out of range. Nothing was published.
        JobFailed: Spark failed; nothing was published, and the same call can be made again.
    """
    if df is None and query.source is None:
        raise missing("source", "Say where the rows are, or pass a DataFrame.")
    if secret is None and query.secret is None and query.memoize is not None:
        raise missing("secret", "Without a persistent secret nothing can be the same for ever; see env: and file:.")
    if isinstance(secret, bytes) and len(secret) != SECRET_BYTES:
        raise invalid("secret", f"{SECRET_BYTES} bytes", f"{len(secret)} bytes", "Use secrets.token_bytes(32).")
    identity, plan = collect_id(query, run), plan_collect(query)
    job = _Job(df, query, plan, run, secret, spark)
    if query.output is None:
        facts = {**job.manifest(), "release_id": identity, "query_digest": plan.query_digest}
        return Collection(identity, plan, facts, None, False, lambda: job.frame)
    folder = output_folder(query.output.path, run)
    done = publish_folder(folder, identity, plan.query_digest, None, job.write, job.manifest)
    published = CollectPlan.of_content(done.manifest["plan"])

    def read_back() -> DataFrame:
        return io.read_published(job.session(), folder, done.manifest["columns"])

    return Collection(identity, published, done.manifest, folder, done.already_published, read_back)


class _Job:
    """One attempt to compute a collection."""

    def __init__(
        self,
        df: DataFrame | None,
        query: CollectQuery,
        plan: CollectPlan,
        run: str | None,
        secret: bytes | str | None,
        spark: SparkSession | None,
    ) -> None:
        self._df = df
        self._query = query
        self._plan = plan
        self._run = run
        self._secret = secret
        self._spark = spark

    def session(self) -> SparkSession:
        """The session; built only when something needs Spark."""
        if self._spark is None:
            self._spark = (
                self._df.sparkSession if self._df is not None else session.build(f"spark-rdp {self._query.name}")
            )
        return self._spark

    @cached_property
    def frame(self) -> DataFrame:
        """The noised frame. No row is read yet."""
        place = self._query.secret if self._secret is None else self._secret
        secret = new_secret() if place is None else place if isinstance(place, bytes) else load_secret(place)
        with worded():
            rows = self._df
            if rows is None:
                assert self._query.source is not None
                rows = io.read(self.session(), self._query.source)
            return noised(rows, self._query, self._plan, secret)

    def write(self, folder: Path) -> Manifest:
        """Compute the collection into a new folder."""
        with worded():
            io.write(self.frame, folder)
        rows = sum(pq.read_metadata(file).num_rows for file in folder.glob(DATA_FILES))
        return {**self.manifest(), "rows": rows}

    def manifest(self) -> Manifest:
        """All that an estimate needs, from schemas alone. It never holds data or secrets."""
        query, plan = self._query, self._plan
        columns = ", ".join(f"{io.quoted(item.name)} {item.dataType.simpleString()}" for item in self.frame.schema)
        return {
            "kind": query.kind,
            "name": query.name,
            "run": self._run,
            "query": query.describe(),
            "plan": plan.content(),
            "model": "local",
            "unit": "row" if query.memoize is None else list(query.memoize.by),
            "epsilon": {
                "total": plan.epsilon,
                "by_column": {name: item.epsilon for name, item in plan.columns.items()},
                "covers": "each row"
                if query.memoize is None
                else "each distinct value of one unit: its column's epsilon, however often it is reported",
            },
            "persistent_secret": self._secret is not None or query.secret is not None,
            "columns": columns,
            "versions": {
                "spark_rdp": __version__,
                "pyspark": pyspark.__version__,
                "numpy": np.__version__,
                "pyarrow": pa.__version__,
                "python": platform.python_version(),
            },
        }
