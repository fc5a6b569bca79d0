"""The records of a streaming source: their fields as columns, and for each record where it is and whether it is whole.

A record that does not fit its schema never stops a job by itself, because an error that depends on one record reveals
that record; it is marked. Avro needs Spark's own package for it on the class path.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from spark_rdp.errors import invalid
from spark_rdp.queries.stream import StreamSource
from spark_rdp.spark import io

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: The columns beside those of the records: whether a record does not fit its schema, and, if asked for, where it is.
BROKEN, POSITION = "spark_rdp broken", "spark_rdp position"
#: The parts of a position: the file, or the place in a topic; null is what its source does not have.
PLACE = {"file": "string", "topic": "string", "partition": "int", "offset": "bigint"}
_UNREAD, _PARSED = "spark_rdp unread", "spark_rdp parsed"
#: Files whose reader says which records do not fit, in a column of its own.
_TEXTS = ("csv", "json")


def open_stream(spark: SparkSession, source: StreamSource, *, with_position: bool = False) -> DataFrame:
    """The records of a source as a streaming frame, with the column BROKEN. No record is read.

    Args:
        spark: The session.
        source: Where they come from.
        with_position: Whether the column POSITION is there too; in files of text, naming the file of each costs time.

    Raises:
        InvalidInput: A path, an option, a type or an expression cannot be used.
    """
    options: dict[str, Any] = dict(source.options)
    given = {name.lower(): value for name, value in options.items()}
    if str(given.get("mode", "PERMISSIVE")).upper() != "PERMISSIVE":
        raise invalid("source.options.mode", "PERMISSIVE", given["mode"], "Say with `malformed` what is done.")
    if str(given.get("multiline", "false")).lower() == "true":
        raise invalid("source.options.multiLine", "false", True, "A record of a stream is one line.")
    kind = (source.format or "").lower()
    reader = spark.readStream.format(str(source.format)).options(**options)
    if source.ddl is not None:
        schema = _schema(spark, source.ddl)
        if kind in _TEXTS:
            schema = schema.add(_UNREAD, StringType())
            reader = reader.option("columnNameOfCorruptRecord", _UNREAD)
        if kind == "csv" and str(given.get("header", "false")).lower() == "true" and "enforceschema" not in given:
            reader = reader.option("enforceSchema", "false")
        reader = reader.schema(schema)
    frame = reader.load(source.path[0]) if source.path is not None else reader.load()
    parsed = _others(frame, _UNREAD)
    if with_position:
        frame = frame.select("*", _position(frame, source))
    if kind in _TEXTS:
        # Spark parses the columns that are asked for; here all are, since what is broken must not depend on who asks.
        missing = [column.isNull() for column in parsed]
        frame = frame.observe(_UNREAD, F.max(F.xxhash64(*missing)).alias("any"))
    if source.payload is not None:
        item = source.payload
        if item.column not in frame.columns:
            had = f"The source has: {', '.join(frame.columns)}."
            raise invalid("source.payload.column", "a column of the source", item.column, had)
        if item.format == "json":
            record = _json(item.column, _schema(spark, item.ddl), options)
        else:
            record = _avro(item.column, item.ddl)
        frame = _parsed(frame, item.column, record)
    else:
        broken = F.col(io.quoted(_UNREAD)).isNotNull() if kind in _TEXTS else F.lit(False)
        frame = frame.select(*_others(frame, _UNREAD), broken.alias(BROKEN))
    return io.derived(frame, source)


def _schema(spark: SparkSession, ddl: str) -> StructType:
    return spark.createDataFrame([], ddl).schema


def _position(frame: DataFrame, source: StreamSource) -> Column:
    """The struct of PLACE."""
    found = {"file": F.col("_metadata.file_name")} if source.in_files else {}  # folders may be named by values
    if source.payload is not None:
        found |= {name: F.col(name) for name in PLACE if name in frame.columns and name != "file"}
    parts = [found.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in PLACE.items()]
    return F.struct(*parts).alias(POSITION)


def _json(column: str, schema: StructType, options: dict[str, Any]) -> Column:
    """The struct of a JSON record; _UNREAD in it holds one that does not fit."""
    fields = StructType([*schema.fields, StructField(_UNREAD, StringType())])
    parsing = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _UNREAD}
    text = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in parsing.items()}
    return F.from_json(F.col(io.quoted(column)).cast("string"), fields, text)


def _avro(column: str, schema: str) -> Column:
    """The struct of an Avro record; all of it is null in one that does not fit."""
    permissive = F.create_map(F.lit("mode"), F.lit("PERMISSIVE"))
    return F.call_function("from_avro", F.col(io.quoted(column)), F.lit(schema), permissive)


def _parsed(frame: DataFrame, column: str, record: Column) -> DataFrame:
    """The other columns of a frame and the fields of the records in one of them."""
    found = frame.select(*_others(frame, column), record.alias(_PARSED))
    kind = found.schema[_PARSED].dataType
    assert isinstance(kind, StructType)
    parsed, names = F.col(io.quoted(_PARSED)), [name for name in kind.names if name != _UNREAD]
    taken = {name.casefold() for name in frame.columns if name != column}
    for name in names:
        if name.casefold() in taken:
            raise invalid("source.payload.schema", "fields unlike the other columns of the source", name, "Rename it.")
    values = [parsed.getField(name) for name in names]
    if _UNREAD in kind.names:
        broken = parsed.getField(_UNREAD).isNotNull()
    else:
        broken = reduce(and_, (value.isNull() for value in values))
    return found.select(
        *_others(found, _PARSED),
        *(value.alias(name) for value, name in zip(values, names, strict=True)),
        (parsed.isNull() | broken).alias(BROKEN),
    )


def _others(frame: DataFrame, *left_out: str) -> list[Column]:
    return [F.col(io.quoted(name)) for name in frame.columns if name not in left_out]
