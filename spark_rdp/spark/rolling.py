"""Rolling estimates: a second streaming query, which counts what a stream has published, window by window.

Spark counts, with a watermark, in a checkpoint of its own. What has changed in a batch, some counts for each window and
group, comes to the driver, which works out the estimates of those windows as for a batch: the same counts, the same
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

from spark_rdp.errors import InvalidInput, invalid, missing
from spark_rdp.estimation.collected import Collected, find_collections
from spark_rdp.estimation.estimates import MOST_COUNTS, assumptions, check_size, estimators
from spark_rdp.estimation.estimator import Estimator
from spark_rdp.folders import Manifest, local_folder
from spark_rdp.queries import EstimateQuery
from spark_rdp.spark import io, session
from spark_rdp.spark.counting import START, count_reports
from spark_rdp.spark.estimate import DATA_FILE, Groups, answered, estimate_facts, grouped
from spark_rdp.spark.failures import stream_error, worded
from spark_rdp.spark.job import versions
from spark_rdp.spark.rolling_state import State
from spark_rdp.spark.stream import wait_for
from spark_rdp.spark.stream_state import forget_unfinished
from spark_rdp.stores import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: How often the folder is looked at for new files.
_EVERY = "2 seconds"
#: Partitions of the counts, which are few: each has files of its own for every batch.
_PARTITIONS = "spark.sql.shuffle.partitions"
_MOST_PARTITIONS = 4


@dataclass(frozen=True)
class Changed:
    """What one batch has changed.

    Attributes:
        batch: Its number.
        table: The estimates of the windows that have changed.
        windows: How many of them there are.
    """

    batch: int
    table: pa.Table
    windows: int


class Watch:
    """Running rolling estimates.

    Attributes:
        query: What is estimated.
        folder: Where the estimates are.
        manifest: What explains them.
    """

    query: EstimateQuery
    folder: Path
    manifest: Manifest
    _running: StreamingQuery

    def __init__(self, query: EstimateQuery, collected: Collected, spark: SparkSession, once: bool) -> None:
        self.query, self._found = query, estimators(query, collected)
        _check(query, collected, self._found)
        assert query.output is not None
        assert query.checkpoint is not None
        self.folder = local_folder(query.output.path)
        self._state = State(local_folder(query.checkpoint), self.folder, DATA_FILE)
        self._failure: Exception | None = None
        self._changed: list[Changed] = []
        with worded():
            source = spark.readStream.schema(collected.schema).parquet(collected.folders[0].for_spark)
            frame, keys = grouped(source, query, collected)
            check_size(keys.count, self._found)
            self._groups = Groups.of(keys, spark)
            counted = count_reports(frame, list(collected.columns), self._found, query.window)
            self.manifest = self._facts(collected, spark)
            self._state.begin_or_continue({"query_digest": query.digest(), "collections": collected.sources})
            writer = counted.writeStream.outputMode("update").queryName(query.name).foreachBatch(self._batch)
            writer = writer.option("checkpointLocation", self._state.spark)
            writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=_EVERY)
            forget_unfinished(Folder("checkpoint", self._state.spark))
            few = min(int(spark.conf.get(_PARTITIONS) or _MOST_PARTITIONS), _MOST_PARTITIONS)
            with session.settings(spark, {_PARTITIONS: str(few)}):
                self._running = writer.start()

    def _facts(self, collected: Collected, spark: SparkSession) -> Manifest:
        query = self.query
        assert query.window is not None
        late = (
            f"A window is closed in the batch after a row has come that is more than {query.window.late} later than "
            "its end; rows for closed windows are left out, all others count, as the number of rows of a window says."
        )
        schema = spark.createDataFrame(self._answers(_no_counts())).schema
        columns = ", ".join(f"{io.quoted(item.name)} {item.dataType.simpleString()}" for item in schema)
        facts = estimate_facts(query, collected, self._found)
        facts["assumptions"] = [*assumptions(query, collected, self._found), late]
        identity = {"release_id": query.name, "query_digest": query.digest(), "run": None, "watched": True}
        return {**facts, **identity, "columns": columns, "versions": versions()}

    def _answers(self, counts: pa.Table) -> pa.Table:
        """The estimates of all windows with counts, some windows at a time."""
        starts = np.unique(counts[START].to_numpy())
        each = max(1, MOST_COUNTS // (self._groups.count * sum(item.cells for item in self._found)))
        parts = [starts[place : place + each] for place in range(0, max(len(starts), 1), each)]
        chosen = [counts.filter(pc.is_in(counts[START], pa.array(part, pa.int64()))) for part in parts]
        return pa.concat_tables([answered(some, self._found, self.query, self._groups) for some in chosen])

    def _batch(self, frame: DataFrame, number: int) -> None:
        """Publish the windows that a batch has changed. A batch that comes again publishes the same."""
        try:
            changed = frame.toArrow()
            if changed.num_rows:
                self._publish(changed, number)
        except Exception as failure:
            self._failure = failure
            raise

    def _publish(self, changed: pa.Table, number: int) -> None:
        counts = self._state.count(changed)
        if self._state.estimates() is not None:
            counts = counts.filter(pc.is_in(counts[START], changed[START].combine_chunks()))
        table = self._answers(counts)
        self._state.publish(table, self.manifest)
        windows = pc.count_distinct(changed[START]).as_py()
        self._changed.append(Changed(number, table, windows))

    def batches(self) -> list[Changed]:
        """What the batches that have ended since the last call have changed."""
        found = self._changed[:]
        del self._changed[: len(found)]  # a batch may end meanwhile: the next call tells of it
        return found

    def table(self) -> pa.Table:
        """The estimates so far: one row per window and declared group, sorted."""
        published = self._state.estimates()
        return self._answers(_no_counts()) if published is None else published

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended.

        Args:
            timeout: Seconds at most; without it, until it ends.

        Returns:
            Whether it has ended.

        Raises:
            SparkRdpError: It has failed; one sentence, without data.
        """
        if not wait_for([self._running], timeout):
            return False
        failed = self._running.exception()
        if failed is not None:
            with worded():
                raise self._failure or stream_error(failed)
        return True

    def stop(self) -> None:
        """Stop: a batch that is not done is given up, and is counted by the next start."""
        with worded():
            self._running.stop()

    def report(self, path: str | Path) -> Path:
        """Write the HTML page that explains the estimates so far."""
        from spark_rdp.reporting.estimate_page import write_estimate

        table = self.table()
        return write_estimate({**self.manifest, "rows": table.num_rows}, table, Path(path))


def watch(query: EstimateQuery, *, once: bool = False, spark: SparkSession | None = None) -> Watch:
    """Start rolling estimates of what a stream publishes, or continue them where they were stopped or killed.

    Args:
        query: What is estimated: means, totals and variances of numbers; with ``window``, ``checkpoint``, ``output``.
        once: Count what is there now, and end.
        spark: The session; by default the running one, or a new one.

    Raises:
        InvalidInput: The query or the stream cannot be used, or the checkpoint is of others.
    """
    for key, given in (("window", query.window), ("checkpoint", query.checkpoint), ("output", query.output)):
        if given is None:
            raise missing(key, "Rolling estimates need window, checkpoint and output.")
    collected = find_collections(query.collection)
    _check(query, collected, estimators(query, collected))
    spark = session.build(f"spark-rdp {query.name}") if spark is None else spark
    if not isinstance(spark.range(1), ClassicFrame):
        raise InvalidInput("Rolling estimates need a session with the driver in this process, not Spark Connect.")
    return Watch(query, collected, spark, once)


def _check(query: EstimateQuery, collected: Collected, found: Sequence[Estimator]) -> None:
    """Refuse what cannot be watched."""
    assert query.window is not None
    assert query.output is not None
    if query.window.late is None:
        raise missing("window.late", 'Say how long a window waits for late rows, for example "20 minutes".')
    if len(collected.folders) > 1 or collected.by_run:
        remedy = "Runs of a collection do not grow; estimate them without --watch."
        raise invalid("collection", "one folder, of a stream", list(query.collection), remedy)
    if "{run}" in query.output.path:
        raise invalid("output.path", "without {run}", query.output.path, "Rolling estimates go on; they have no runs.")
    folders = {"output.path": query.output.path, "checkpoint": str(query.checkpoint), "collection": query.collection[0]}
    named = {key: Folder(key, path) for key, path in folders.items()}
    for key, path in named.items():
        for other, its in named.items():
            if key != other and f"{path}/".startswith(f"{its}/"):
                raise invalid(key, f"a folder outside of {other}", str(path), "Each keeps files of its own.")
    for item in found:
        beyond = [part for part in item.asked.parts if part not in ("mean", "total", "variance")]
        if item.planned.kind != "number" or beyond:
            raise InvalidInput(
                f"{item.asked.label}: rolling estimates are means, totals and variances of numbers. For histograms, "
                "quantiles, places and categories estimate the same folder without --watch."
            )


def _no_counts() -> pa.Table:
    """Counts of nothing, as of `count_reports`."""
    whole = {name: pa.array([], pa.int64()) for name in (START, "group", "slot", "cell", "values", "reported", "wrong")}
    sums: dict[str, Any] = {name: pa.array([], pa.decimal128(30, 0)) for name in ("first", "second")}
    return pa.table(whole | sums)
