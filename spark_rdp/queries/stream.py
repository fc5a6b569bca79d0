"""What a user asks of a collection that never stops: ``kind: stream``, from YAML or from keyword arguments."""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from spark_rdp.queries.base import Refused, Strict, refuse
from spark_rdp.queries.collect import CollectQuery, SecretPlace
from spark_rdp.queries.estimate import Span
from spark_rdp.queries.measures import Column
from spark_rdp.queries.release import Option, Source, Text

#: Formats that are read from files; all others say themselves what a record is.
FILES = ("avro", "csv", "json", "orc", "parquet")
#: Options of a source that say how fast or through which door it is read, not what is read.
_PACE = re.compile(r"max\w+PerTrigger|kafka\..+|minPartitions|maxOffsetsPerTrigger|latestFirst", re.IGNORECASE)
_FIELDS = 'For example "device BIGINT, event_id BIGINT, battery DOUBLE".'


class Payload(Strict):
    """A column of texts or bytes that holds the record, as in Kafka; its fields become columns.

    Args:
        column: The column.
        format: How it is written: JSON, one object for each record; or Avro, the bytes of one record without header.
        ddl: The fields and their types, written ``schema`` in a file; of Avro, the Avro schema it was written with.
    """

    column: Column = Field(description="Name the column of the record, in Kafka: value.")
    format: Literal["json", "avro"] = "json"
    ddl: Text = Field(alias="schema", description=_FIELDS)

    @model_validator(mode="after")
    def _of_a_record(self) -> Payload:
        if self.format == "avro":
            try:
                kind = json.loads(self.ddl)
            except ValueError:
                kind = None
            if not isinstance(kind, dict) or kind.get("type") != "record":
                remedy = 'For example {"type": "record", "name": "event", "fields": [{"name": "id", "type": "long"}]}.'
                raise refuse("schema", "the Avro schema of a record, as JSON", self.ddl, remedy)
        return self


class StreamSource(Source):
    """Where events come from: any format that Spark reads as a stream.

    Args:
        format: avro, csv, json, parquet, orc (files that appear in a folder), kafka, rate, or another streaming source.
        path: The folder of the files.
        ddl: Columns and types, written ``schema`` in a file; needed for files, because it is never inferred.
        payload: The column that holds the records, for sources such as Kafka.
    """

    payload: Payload | None = None

    @model_validator(mode="after")
    def _streaming(self) -> StreamSource:
        if self.table is not None:
            raise refuse("table", "left out of a stream", self.table, "Read the files of the table, or Kafka.")
        assert self.format is not None
        if self.path is not None and len(self.path) > 1:
            remedy = "One stream reads one folder; it may hold * and {a,b}."
            raise refuse("path", "a single path", list(self.path), remedy)
        if self.in_files:
            if self.path is None:
                raise refuse("path", "given", None, "Name the folder in which the files appear.")
            if self.ddl is None:
                raise refuse("schema", f"given for a stream of {self.format}", None, _FIELDS)
            if self.payload is not None and self.format == "json":
                raise Refused("payload", " must be left out for json files. Their `schema` says what a record is.")
        elif self.payload is None and self.format.lower() == "kafka":
            raise Refused("payload", " must be given for kafka. For example {column: value, schema: ...}.")
        return self

    @property
    def in_files(self) -> bool:
        """Whether the events come in files."""
        return self.format is not None and self.format.lower() in FILES


class StreamOutput(Strict):
    """Where a stream is published.

    Args:
        format: parquet, another format of files, or the name of any sink of Spark. Files hold every event exactly
            once; another sink promises what its maker does, and an event it repeats has the same noise again.
        path: The folder, for files.
        options: Handed to the writer.
    """

    format: Text = "parquet"
    path: Text | None = None
    options: dict[str, Option] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _checked(self) -> StreamOutput:
        if self.path is None and self.in_files:
            raise refuse("path", "given", None, "Name the folder of the publication.")
        return self

    @property
    def in_files(self) -> bool:
        """Whether Spark writes files, with a log that says which of them count."""
        return self.format.lower() in (*FILES, "text")


class Trigger(Strict):
    """When a batch begins.

    Args:
        every: So long after the one before began, for example ``10 seconds``; without it as soon as that has ended.
    """

    every: Span | None = None


class StreamQuery(CollectQuery):
    """A local collection that never stops: every event is published with noise of its own, once, batch by batch.

    Columns, budgets, policies and keys are those of `CollectQuery`. The noise is a function of the secret and the
    event, so that an event that comes again, or a batch that is computed again after a crash, has the same noise.

    Args:
        source: Where the events come from.
        checkpoint: The folder in which Spark keeps what has been published; it belongs to this stream alone, and is
            kept as long as the output.
        trigger: When a batch begins.
        malformed: What is done with a record that cannot be read as declared, or lacks a column of its key:
            ``quarantine`` notes its position and the reason, never its values; ``fail`` stops the stream.
        quarantine: The folder of those notes.
        secret: Where the persistent secret is, ``env:NAME`` or ``file:PATH``.
        output: Where the events are published.

    Raises:
        InvalidInput: One sentence that names the full path of the first key that cannot be used.
    """

    _WHERE: ClassVar[tuple[str, ...]] = (
        *CollectQuery._WHERE,
        *("checkpoint", "trigger", "malformed", "quarantine"),
    )

    kind: Literal["stream"] = "stream"  # type: ignore[assignment]
    source: StreamSource = Field(description="Say where the events come from.")
    checkpoint: Text = Field(description="Name a folder that is kept as long as the output.")
    trigger: Trigger = Field(default_factory=Trigger)
    malformed: Literal["quarantine", "fail"] = "quarantine"
    quarantine: Text | None = None
    secret: SecretPlace = Field(
        description="A stream needs a persistent secret, env:NAME or file:PATH, so that a restart draws no noise anew."
    )
    output: StreamOutput = Field(  # type: ignore[assignment]
        description="Say where the events are published, for example {format: parquet, path: out}."
    )

    @model_validator(mode="after")
    def _stream(self) -> StreamQuery:
        if self.malformed == "quarantine" and self.quarantine is None:
            remedy = "Name the folder in which malformed events are noted, or use malformed: fail."
            raise Refused("quarantine", f" must be given. {remedy}")
        if self.malformed == "fail" and self.quarantine is not None:
            raise Refused("quarantine", " must be left out beside malformed: fail. Nothing is noted then.")
        if self.unit_column is not None:
            raise Refused(
                "privacy",
                " cannot bound the reports of a unit in a stream, which would have to remember every unit for ever. "
                "Use memoize, where a value that is repeated costs nothing, or bound the reports before the stream.",
            )
        if self.report is not None:
            raise Refused("report", " must be left out of a stream. Estimates of what it published have reports.")
        folders = {"output.path": self.output.path, "checkpoint": self.checkpoint, "quarantine": self.quarantine}
        named = {key: path.rstrip("/") for key, path in folders.items() if path is not None}
        for key, path in named.items():
            for other, its in named.items():
                if key != other and (path == its or path.startswith(its + "/")):
                    raise refuse(key, f"a folder outside of {other}", path, "Each keeps files of its own.")
        return self

    def _identity(self) -> dict[str, Any]:
        content = super()._identity()
        options = content["source"].get("options", {})
        content["source"]["options"] = {name: item for name, item in options.items() if not _PACE.fullmatch(name)}
        return content
