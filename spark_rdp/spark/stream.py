"""A local collection that never stops: Structured Streaming from any source of Spark into any of its sinks.

Exactly once, by two things together. The noise of an event is a function of the secret, its key and its value, so that
a batch that is computed again is the same, bit by bit. And Spark's sink of files keeps a log (``_spark_metadata``) of
the batches whose files count, so that a batch that is written again is not there twice. Read the output with Spark, or
any reader of that log: files of batches that were killed half-way lie beside the others. They hold the same noise.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from spark_rdp.collection import CollectPlan, plan_collect
from spark_rdp.errors import InvalidInput
from spark_rdp.folders import Manifest
from spark_rdp.planning.plan import Plan
from spark_rdp.queries.stream import StreamQuery
from spark_rdp.randomness import load_secret
from spark_rdp.spark import io, session
from spark_rdp.spark.collect import CollectJob
from spark_rdp.spark.failures import MALFORMED, stream_error, worded
from spark_rdp.spark.payload import BROKEN, PLACE, POSITION, open_stream
from spark_rdp.spark.stream_metrics import CAME, WENT, Batch, came, new_batches, went
from spark_rdp.spark.stream_state import begin_or_continue, fingerprint, forget_unfinished
from spark_rdp.stages import reached_stage
from spark_rdp.stores import Folder

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_UNFIT = "not a record of the declared schema"
_LOOK_SECONDS = 0.25


@dataclass
class Stream:
    """A running stream.

    Attributes:
        query: What is published.
        plan: The noise of every column.
        manifest: What is written beside the data.
    """

    query: StreamQuery
    plan: CollectPlan
    manifest: Manifest
    _spark: SparkSession = field(repr=False)
    _running: tuple[StreamingQuery, ...] = field(repr=False)
    _last: int = field(default=-1, repr=False)

    @property
    def plans(self) -> dict[str, Plan]:
        """The noise of one report of every noised column."""
        return {name: item.plan for name, item in self.plan.columns.items()}

    @property
    def df(self) -> DataFrame:
        """What has been published so far, from files; each event once."""
        if not self.query.output.in_files:
            remedy = f"{self.query.output.format} is no format of files; read it with what reads such a sink."
            raise InvalidInput(f"df can be read from files only. {remedy}")
        with worded():
            reader = self._spark.read.format(self.query.output.format).schema(self.manifest["columns"])
            return reader.load(Folder("output.path", str(self.query.output.path)).for_spark)

    def batches(self) -> list[Batch]:
        """The counts of the batches that have ended since the last call, for the operator; not for release."""
        found = new_batches(self._running[0], self._last)
        self._last = found[-1].batch if found else self._last
        return found

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the stream has ended.

        Args:
            timeout: Seconds at most; without it, until it ends.

        Returns:
            Whether it has ended.

        Raises:
            SparkRdpError: It has failed; one sentence, without data.
        """
        ended = wait_for(self._running, timeout)
        failures = [each.exception() for each in self._running if not each.isActive]
        failed = next((failure for failure in failures if failure is not None), None)
        if failed is not None:
            self.stop()
            raise stream_error(failed)
        return ended

    def stop(self) -> None:
        """Stop: a batch that is not done is given up, and is published by the next start."""
        with worded():
            for each in self._running:
                each.stop()


def wait_for(running: Sequence[StreamingQuery], timeout: float | None) -> bool:
    """Wait, so many seconds at most, until all queries have ended or one has failed; returns whether that is so."""
    began = time.monotonic()
    while any(each.isActive for each in running):
        if any(not each.isActive and each.exception() is not None for each in running):
            return True
        left = _LOOK_SECONDS if timeout is None else min(_LOOK_SECONDS, timeout - (time.monotonic() - began))
        if left <= 0:
            return False
        time.sleep(left)
    return True


def stream(query: StreamQuery, *, once: bool = False, spark: SparkSession | None = None) -> Stream:
    """Start a stream, or continue it where it was stopped or killed.

    Args:
        query: What is published.
        once: Publish what is there now, and end.
        spark: The session; by default the running one, or a new one.

    Raises:
        InvalidInput: The query, the source or the secret cannot be used, or are not those the stream began with. No
            event was read.
    """
    plan, secret = plan_collect(query), load_secret(query.secret)
    spark = session.build(f"spark-rdp {query.name}") if spark is None else spark
    with worded():
        events = _Events.of(open_stream(spark, query.source), query)
        job = CollectJob(events.whole(), query, plan, None, secret, spark)
        facts = {**job.manifest(), "release_id": query.name, "query_digest": plan.query_digest}
    manifest = begin_or_continue(query, {**facts, "secret_fingerprint": fingerprint(secret, query.name)})
    reached_stage("planned", query.name, query_digest=plan.query_digest, epsilon_per_report=plan.epsilon)
    with worded():
        published = job.frame.observe(WENT, went()) if query.null_policy == "drop" else job.frame
        running = [_start(_sink(published, query), query, "published", once)]
        try:
            if query.malformed == "quarantine":
                notes = _Events.of(open_stream(spark, query.source, with_position=True), query).notes()
                writer = notes.writeStream.format("parquet").option(
                    "path", Folder("quarantine", str(query.quarantine)).for_spark
                )
                running.append(_start(writer, query, "quarantine", once))
        except BaseException:
            running[0].stop()
            raise
    return Stream(query, plan, manifest, spark, tuple(running))


def _sink(frame: DataFrame, query: StreamQuery) -> DataStreamWriter:
    output = query.output
    if output.format.lower() == "kafka":
        frame = frame.select(F.to_json(F.struct("*")).alias("value"))
    writer = frame.writeStream.format(output.format).options(**output.options)
    if output.path is None:
        return writer
    return writer.option("path", Folder("output.path", output.path).for_spark if output.in_files else output.path)


def _start(writer: DataStreamWriter, query: StreamQuery, name: str, once: bool) -> StreamingQuery:
    writer = writer.outputMode("append").queryName(query.name if name == "published" else f"{query.name} {name}")
    checkpoint = Folder("checkpoint", query.checkpoint).child(name)
    forget_unfinished(checkpoint)
    writer = writer.option("checkpointLocation", checkpoint.for_spark)
    if once:
        writer = writer.trigger(availableNow=True)
    elif query.trigger.every is not None:
        writer = writer.trigger(processingTime=query.trigger.every)
    return writer.start()


@dataclass(frozen=True)
class _Events:
    """The columns of a source that a query uses, and those beside them, numbered, so that any name can be used."""

    rows: DataFrame
    query: StreamQuery
    columns: Mapping[str, Column]
    kinds: Mapping[str, DataType]

    @classmethod
    def of(cls, frame: DataFrame, query: StreamQuery) -> _Events:
        wanted = {**query.used_columns, **{name: name for name in (BROKEN, POSITION) if name in frame.columns}}
        found = io.columns_of(frame, wanted)
        numbers = {name: f"_{place}" for place, name in enumerate(wanted)}
        kinds = {name: item.dataType for name, item in zip(wanted, found.schema, strict=True)}
        return cls(found.toDF(*numbers.values()), query, {name: F.col(to) for name, to in numbers.items()}, kinds)

    @property
    def reason(self) -> Column:
        """Why an event is malformed; null if it is not."""
        reason = F.when(self.columns[BROKEN], F.lit(_UNFIT))
        for name in self.query.noise_key:
            reason = reason.when(self.columns[name].isNull(), F.lit(f"{name} of its key is missing"))
        return reason

    @property
    def malformed(self) -> Column:
        """Whether there is a reason."""
        malformed = self.columns[BROKEN]
        for name in self.query.noise_key:
            malformed = malformed | self.columns[name].isNull()
        return malformed

    def whole(self) -> DataFrame:
        """The events that are published, counted; the columns as the query names them."""
        counted = self.rows.observe(CAME, *came(self.query, self.columns, self.kinds, self.malformed))
        whole = ~self.malformed
        if self.query.malformed == "fail":
            whole = F.when(whole, F.lit(True)).otherwise(F.raise_error(F.lit(MALFORMED)).cast("boolean"))
        names = [name for name in self.columns if name not in (BROKEN, POSITION)]
        return counted.where(whole).select(*(self.columns[name] for name in names)).toDF(*names)

    def notes(self) -> DataFrame:
        """Where the malformed events are, and why they are; nothing of what they hold."""
        places: list[Any] = [self.columns[POSITION].getField(name).alias(name) for name in PLACE]
        # Spark would parse a record once for every use of it below; what is observed, it keeps.
        rows = self.rows.observe("malformed", F.count_if(self.malformed).alias("rows"))
        return rows.where(self.malformed).select(*places, self.reason.alias("reason"))
