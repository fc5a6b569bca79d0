"""Estimates from a local collection: one aggregation to counts in Spark, the mathematics on the driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from spark_rdp.errors import invalid, missing
from spark_rdp.estimation.collected import SINK_LOG, Collected, find_collections
from spark_rdp.estimation.estimates import assumptions, check_size, estimate_id, estimators
from spark_rdp.estimation.estimator import Estimator
from spark_rdp.folders import DATA_FILES, Manifest, output_folder
from spark_rdp.publishing import publish_folder
from spark_rdp.queries import EstimateQuery
from spark_rdp.queries.estimate import WINDOW
from spark_rdp.spark import io
from spark_rdp.spark.counting import TIME, by_window, count_reports, counts_of
from spark_rdp.spark.failures import worded
from spark_rdp.spark.job import Job
from spark_rdp.spark.keys import GROUP, Declared, KeyColumn, keys_of
from spark_rdp.stores import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS, RUN = "rows", "run"
DATA_FILE = "part-00000.snappy.parquet"


@dataclass(frozen=True)
class Estimates:
    """Estimates from a local collection.

    Attributes:
        release_id: The id they are published under.
        manifest: What is written beside them: the query, the collections, and ``assumptions`` in sentences.
        folder: Where they are published; None without ``query.output``.
        already_published: True if an earlier run had published them, and this one read them back.
    """

    release_id: str
    manifest: Manifest
    folder: Path | None
    already_published: bool
    _spark: Callable[[], SparkSession] = field(repr=False)
    _table: pa.Table | None = field(default=None, repr=False)

    @property
    def assumptions(self) -> list[str]:
        """What the estimates rest on."""
        return list(self.manifest["assumptions"])

    @cached_property
    def df(self) -> DataFrame:
        """One row per declared group, sorted by key."""
        with worded():
            if self.folder is None:
                return self._spark().createDataFrame(self.table())
            return io.read_published(self._spark(), self.folder, self.manifest["columns"])

    def table(self) -> pa.Table:
        """The same as an Arrow table; needs no Spark."""
        if self._table is not None:
            return self._table
        assert self.folder is not None
        return pa.concat_tables([pq.ParquetFile(file).read() for file in sorted(self.folder.glob(DATA_FILES))])

    def report(self, path: str | Path | None = None) -> Path:
        """Write the HTML page that explains the estimates.

        Args:
            path: Where to; by default ``report.html`` in the folder of the estimates.
        """
        from spark_rdp.reporting.estimate_page import write_estimate

        if path is None and self.folder is None:
            raise missing("path", "The estimates were not written to a folder, so say where their report goes.")
        target = Path(path) if path is not None else self.folder / "report.html"  # type: ignore[operator]
        return write_estimate(self.manifest, self.table(), target)


def estimate(query: EstimateQuery, *, run: str | None = None, spark: SparkSession | None = None) -> Estimates:
    """Estimate means, totals, variances, histograms and quantiles of what was collected with noise.

    Args:
        query: What to estimate, and of which collection.
        run: Names this run of the query; with the name of the query it is the id.
        spark: The session; by default the running one, or a new one.

    Returns:
        Published estimates. The same id again reads back what was published.

    Raises:
        InvalidInput: The collection cannot answer the query, or its files are not those that were published.
        JobFailed: Spark failed; nothing was published, and the same call can be made again.
    """
    identity = estimate_id(query, run)
    job = _Job(query, run, spark)
    if query.output is None:
        table = job.table
        with worded():
            facts = job.manifest(table.num_rows)
        facts = {**facts, "release_id": identity, "query_digest": query.digest()}
        return Estimates(identity, facts, None, False, job.session, table)
    folder = output_folder(query.output.path, run)
    done = publish_folder(folder, identity, query.digest(), None, job.write)
    return Estimates(identity, done.manifest, folder, done.already_published, job.session)


class _Job(Job):
    """One attempt to work out estimates."""

    def __init__(self, query: EstimateQuery, run: str | None, spark: SparkSession | None) -> None:
        super().__init__(None, None, query.name, spark)
        self._query, self._run = query, run

    @cached_property
    def _collected(self) -> Collected:
        return find_collections(self._query.collection)

    @cached_property
    def _estimators(self) -> list[Estimator]:
        return estimators(self._query, self._collected)

    @cached_property
    def _answers(self) -> tuple[pa.Table, int]:
        """The published rows, and how many rows were collected."""
        query, found = self._query, self._estimators  # what cannot be answered is refused before Spark starts
        spark = self.session()
        with worded():
            frame = read_collected(spark, self._collected)
            rows = frame.count() if self._collected.rows is None else self._collected.rows
            numbered, keys = grouped(frame, query, self._collected)
            check_size(keys.count, found)
            counted = count_reports(numbered, list(self._collected.columns), found, query.window).toArrow()
            return answered(counted, found, query, Groups.of(keys, spark)), rows

    @property
    def table(self) -> pa.Table:
        """One row per declared group, sorted by key."""
        return self._answers[0]

    def _public(self) -> DataFrame:
        return self.session().createDataFrame(self.table)

    def write(self, folder: Path) -> Manifest:
        """Work out the estimates into a new folder."""
        table = self.table
        folder.mkdir()
        pq.write_table(table, folder / DATA_FILE, compression="snappy")
        with worded():
            return self.manifest(table.num_rows)

    def _facts(self) -> Manifest:
        facts = estimate_facts(self._query, self._collected, self._estimators)
        return {**facts, "run": self._run, "rows_collected": self._answers[1]}


def estimate_facts(query: EstimateQuery, collected: Collected, found: Sequence[Estimator]) -> Manifest:
    """What the manifest of estimates says, found without data."""
    return {
        "kind": query.kind,
        "name": query.name,
        "query": query.describe(),
        "collections": collected.sources,
        "plan": {"columns": [item.content() for item in collected.columns.values()]},
        "estimated": [item.describe() for item in found],
        "group_columns": list(query.key_columns),
        "assumptions": assumptions(query, collected, found),
        "epsilon": {"total": 0.0, "covers": "nothing: what was collected is used, nothing else"},
    }


@dataclass(frozen=True)
class Groups:
    """The declared groups, in order: how many there are, and the values of their keys."""

    count: int
    columns: Mapping[str, pa.ChunkedArray]

    @classmethod
    def of(cls, keys: Declared, spark: SparkSession) -> Groups:
        """All of them."""
        labels = keys.named(keys.all(spark)).sort(GROUP).select(*keys.labels)
        names = [column.name for column in keys.columns]
        return cls(keys.count, dict(zip(names, labels.toArrow().columns if names else [], strict=True)))


def answered(counted: pa.Table, found: Sequence[Estimator], query: EstimateQuery, groups: Groups) -> pa.Table:
    """The published rows: every declared group, in every window that was met.

    Args:
        counted: What `count_reports` found.
        found: The estimators.
        query: Says what the windows are.
        groups: The declared groups.

    Raises:
        InvalidInput: There are too many windows, or a value is none that its plan can have published.
    """
    number = groups.count
    columns: dict[str, pa.Array] = dict(groups.columns)
    if query.window is not None:
        starts, counted = by_window(counted, number)
        check_size(number * len(starts), found)
        length = int(query.window.length.total_seconds()) * 1_000_000
        columns = {
            name: pa.array(np.repeat(moments, number), pa.int64()).cast(pa.timestamp("us", "UTC"))
            for name, moments in zip(WINDOW, (starts, starts + length), strict=True)
        }
        again = pa.array(np.tile(np.arange(number), len(starts)))
        columns |= {name: keys.take(again) for name, keys in groups.columns.items()}
        number *= len(starts)
    counts = counts_of(counted, found, number)
    columns[ROWS] = pa.array(counts[0].rows // found[0].values_per_row, pa.int64())
    for estimator, counts_of_column in zip(found, counts, strict=True):
        columns |= estimator.answers(counts_of_column)
    return pa.table(columns)


def grouped(frame: DataFrame, query: EstimateQuery, collected: Collected) -> tuple[DataFrame, Declared]:
    """The collected rows of declared groups, with the number of the group, and the groups.

    Raises:
        InvalidInput: A column is missing, or not of a type that it can be used as.
    """
    window, spark = query.window, frame.sparkSession
    wanted = dict.fromkeys(query.group_columns, "group_by") | dict.fromkeys(collected.columns, "collection")
    if window is not None:
        wanted.setdefault(window.column, "window.column")
    frame = io.columns_of(frame, wanted)
    kinds = {item.name: item.dataType for item in frame.schema}
    columns = {name: KeyColumn(name, f"_{place}", kinds[name]) for place, name in enumerate(frame.columns)}
    keys = keys_of(spark, query, columns)
    assert isinstance(keys, Declared)
    frame = frame.toDF(*(column.column for column in columns.values()))
    noised = [F.col(columns[name].column).alias(f"c{place}") for place, name in enumerate(collected.columns)]
    if window is None:
        return keys.numbered(frame).select(GROUP, *noised), keys
    if not isinstance(kinds[window.column], TimestampType):
        shown = f"{window.column} {kinds[window.column].simpleString()}"
        remedy = "Where it is collected, derive one, for example CAST(at AS TIMESTAMP)."
        raise invalid("window.column", "a column of times (timestamp)", shown, remedy)
    time = columns[window.column].column
    if frame.isStreaming and window.late is not None:  # before groups are chosen: every row tells how late it is
        frame = frame.withWatermark(time, window.late)
    return keys.numbered(frame).select(GROUP, F.col(time).alias(TIME), *noised), keys


def read_collected(spark: SparkSession, collected: Collected) -> DataFrame:
    """The published rows of all collections; those that are runs have a column ``run``."""
    frames = []
    for folder, grows in zip(collected.folders, collected.grow, strict=True):
        if grows:
            frames.append(_published_so_far(spark, folder, collected.schema))
            continue
        reader = spark.read.option("pathGlobFilter", DATA_FILES).schema(collected.schema)
        frame = reader.parquet(folder.for_spark_escaped)
        if collected.by_run and RUN not in (name.casefold() for name in frame.columns):
            frame = frame.withColumn(RUN, F.lit(folder.name.partition("=")[2]))
        frames.append(frame)
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.union(frame)
    return whole


def _published_so_far(spark: SparkSession, folder: Folder, schema: str) -> DataFrame:
    """What a stream has published: the files in the log of Spark's sink; others are of batches that did not end."""
    if not folder.holds(SINK_LOG):
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(folder.for_spark)
