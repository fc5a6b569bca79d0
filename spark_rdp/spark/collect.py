"""A local collection: every row noised in an executor before it lands anywhere.

The noise of a value is a function of a secret, the column, the row's key (or the device, when memoised) and the exact
value (see :mod:`spark_rdp.randomness`): retries, speculation, two actions and any partitioning give a row one noise.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from spark_rdp.collection import CollectPlan, collect_id, plan_collect
from spark_rdp.errors import InvalidInput, invalid, missing
from spark_rdp.folders import MANIFEST, Manifest, output_folder
from spark_rdp.planning.plan import Plan
from spark_rdp.publishing import publish_folder
from spark_rdp.queries import CollectQuery
from spark_rdp.randomness import SECRET_BYTES, load_secret, new_secret
from spark_rdp.spark import io
from spark_rdp.spark.failures import worded
from spark_rdp.spark.job import Job
from spark_rdp.spark.local_noise import Located, located, noised
from spark_rdp.spark.reports import keep_reports
from spark_rdp.stages import reached_stage
from spark_rdp.unit_budget import UnitBudget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


EVERY_ROW = "each row; a person with several rows spends it with each of them"
EVERY_VALUE = (
    "each distinct value of one unit, however often it is reported: its column's epsilon, under one secret, name and "
    "stream (plan.columns.stream). Another stream, as after a change of the column or of the planner, draws and "
    "spends anew"
)


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
        """The noise of one report of every noised column."""
        return {name: item.plan for name, item in self.plan.columns.items()}

    @cached_property
    def df(self) -> DataFrame:
        """The kept columns and then the noised ones, in the order of the query: DOUBLE or arrays of it, never null.

        Read from what was published. Without ``query.output`` it is as lazy as the source: every action computes the
        same noise for the same row and value again.
        """
        with worded():
            return self._frame()

    def report(self, path: str | Path | None = None) -> Path:
        """Write the HTML page that explains the collection; it holds no published value.

        Args:
            path: Where to; by default ``report.html`` in the folder of the collection.
        """
        from spark_rdp.reporting.collection_page import write_collection

        if path is None and self.folder is None:
            raise missing("path", "The collection was not written to a folder, so say where its report goes.")
        target = Path(path) if path is not None else self.folder / "report.html"  # type: ignore[operator]
        return write_collection(self.manifest, target)


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
    reached_stage("planned", identity, query_digest=plan.query_digest, epsilon_per_report=plan.epsilon)
    job = CollectJob(df, query, plan, run, secret, spark)
    if query.output is None:
        facts = {**job.manifest(), "release_id": identity, "query_digest": plan.query_digest}
        return Collection(identity, plan, facts, None, False, lambda: job.frame)
    folder = output_folder(query.output.path, run)

    def check() -> None:
        if query.memoize is not None:
            _check_memoized(folder, query.name, plan)
        job.manifest()

    done = publish_folder(folder, identity, plan.query_digest, None, job.write, check)
    published = CollectPlan.of_content(done.manifest["plan"])

    def read_back() -> DataFrame:
        return io.read_published(job.session(), folder, done.manifest["columns"])

    return Collection(identity, published, done.manifest, folder, done.already_published, read_back)


def _check_memoized(folder: Path, name: str, plan: CollectPlan) -> None:
    """Refuse to draw memoised noise anew beside an earlier run: both together would tell more than either.

    Raises:
        InvalidInput: A column has another stream than in a run of this name in the same folder.
    """
    for file in sorted(folder.parent.glob(f"*/{MANIFEST}")):
        try:
            earlier = json.loads(file.read_text(encoding="utf-8"))
            memoized = (earlier["kind"], earlier["name"]) == ("collect", name) and earlier["unit"] != "row"
            streams = {item["column"]: item["stream"] for item in earlier["plan"]["columns"]} if memoized else {}
        except (OSError, ValueError, KeyError, TypeError):
            continue  # no collection
        for column, stream in streams.items():
            if column in plan.columns and plan.columns[column].stream != stream:
                raise InvalidInput(
                    f"The noise of {column} must stay that of {file.parent.name}, because it is memoised; its plan has "
                    "changed, so it would be drawn anew. Restore settings and version, or collect under another name, "
                    "which spends the budget of every value again."
                )


class CollectJob(Job):
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
        super().__init__(df, query.source, query.name, spark)
        self._query = query
        self._plan = plan
        self._run = run
        self._secret = secret

    @cached_property
    def _source(self) -> Located:
        with worded():
            return located(self.rows(), self._query)

    def _public(self) -> DataFrame:
        place = self._query.secret if self._secret is None else self._secret
        secret = new_secret() if place is None else place if isinstance(place, bytes) else load_secret(place)
        return noised(keep_reports(self._source, self._query, secret), self._query, self._plan, secret)

    def _facts(self) -> Manifest:
        """All that an estimate needs."""
        query, plan = self._query, self._plan
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
                "covers": EVERY_ROW if query.memoize is None else EVERY_VALUE,
            },
            "privacy": UnitBudget.of(query, plan).content(),
            "policies": {"invalid": query.invalid, "null_policy": query.null_policy},
            "source_types": {
                item.column: self._source.kinds[next(iter(item.sources))].simpleString() for item in query.columns
            },
            "persistent_secret": self._secret is not None or query.secret is not None,
        }
