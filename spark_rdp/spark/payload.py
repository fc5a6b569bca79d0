"""The records of a streaming source: their fields as columns, and for each record where it is and whether it is whole.

A record that does not fit its schema never stops a job by itself, because an error that depends on one record reveals
that record; it is marked. JSON is parsed here, also that of files, so that there is one way to do it. Avro needs
Spark's own package for it on the class path.
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

#: The column beside those of the records: where a record is, and ``broken`` if it does not fit its schema.
RECORD = "spark_rdp record"
#: Where a record is: the file, or the place in a topic; null is what its source does not have.
POSITION = {"file": "string", "topic": "string", "partition": "int", "offset": "bigint"}
_BROKEN, _TEXT, _PARSED = "spark_rdp broken", "spark_rdp text", "spark_rdp parsed"


def open_stream(spark: SparkSession, source: StreamSource) -> DataFrame:
    """The records of a source as a streaming frame, with the column RECORD. No record is read.

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
    reader = spark.readStream.format("text" if kind == "json" else str(source.format)).options(**options)
    if source.ddl is not None and kind != "json":
        schema = spark.createDataFrame([], source.ddl).schema
        if kind == "csv":
            schema = schema.add(_BROKEN, StringType())
            reader = reader.option("columnNameOfCorruptRecord", _BROKEN)
            if str(given.get("header", "false")).lower() == "true" and "enforceschema" not in given:
                reader = reader.option("enforceSchema", "false")
        reader = reader.schema(schema)
    frame = reader.load(source.path[0]) if source.path is not None else reader.load()
    if kind == "csv":
        # Spark parses the columns that are asked for; here all are, since what is broken must not depend on who asks.
        frame = frame.observe(_BROKEN, F.max(F.xxhash64(*_others(frame, _BROKEN))).alias("any"))
    position = _position(frame, source)
    if kind == "json":
        frame = frame.select(F.col("value").alias(_TEXT), position)
        frame = _parsed(frame, _TEXT, _json(_TEXT, _schema(spark, str(source.ddl)), options))
    elif source.payload is not None:
        item = source.payload
        if item.column not in frame.columns:
            had = f"The source has: {', '.join(frame.columns)}."
            raise invalid("source.payload.column", "a column of the source", item.column, had)
        frame = frame.select("*", position)
        if item.format == "json":
            record = _json(item.column, _schema(spark, item.ddl), options)
        else:
            record = _avro(item.column, item.ddl)
        frame = _parsed(frame, item.column, record)
    else:
        broken = F.col(_BROKEN).isNotNull() if kind == "csv" else F.lit(False)
        frame = frame.select(*_others(frame, _BROKEN), position.withField("broken", broken).alias(RECORD))
    return io.derived(frame, source)


def _schema(spark: SparkSession, ddl: str) -> StructType:
    return spark.createDataFrame([], ddl).schema


def _position(frame: DataFrame, source: StreamSource) -> Column:
    """The struct of POSITION."""
    found = {"file": F.col("_metadata.file_name")} if source.in_files else {}  # folders may be named by values
    if source.payload is not None:
        found |= {name: F.col(name) for name in POSITION if name in frame.columns and name != "file"}
    parts = [found.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in POSITION.items()]
    return F.struct(*parts).alias(RECORD)


def _json(column: str, schema: StructType, options: dict[str, Any]) -> Column:
    """The struct of a JSON record; _BROKEN in it holds one that does not fit."""
    fields = StructType([*schema.fields, StructField(_BROKEN, StringType())])
    parsing = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BROKEN}
    text = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in parsing.items()}
    return F.from_json(F.col(io.quoted(column)).cast("string"), fields, text)


def _avro(column: str, schema: str) -> Column:
    """The struct of an Avro record; all of it is null in one that does not fit."""
    permissive = F.create_map(F.lit("mode"), F.lit("PERMISSIVE"))
    return F.call_function("from_avro", F.col(io.quoted(column)), F.lit(schema), permissive)


def _parsed(frame: DataFrame, column: str, record: Column) -> DataFrame:
    """The other columns of a frame and the fields of the records in one of them."""
    found = frame.select(*_others(frame, column, RECORD), F.col(io.quoted(RECORD)), record.alias(_PARSED))
    kind = found.schema[_PARSED].dataType
    assert isinstance(kind, StructType)
    taken = {name.casefold() for name in frame.columns if name not in (column, RECORD)}
    for field in kind.names:
        if field.casefold() in taken:
            raise invalid("source.payload.schema", "fields unlike the other columns of the source", field, "Rename it.")
    parsed, names = F.col(io.quoted(_PARSED)), [name for name in kind.names if name != _BROKEN]
    values = [parsed.getField(name) for name in names]
    if _BROKEN in kind.names:
        broken = parsed.getField(_BROKEN).isNotNull()
    else:
        broken = reduce(and_, (value.isNull() for value in values))
    return found.select(
        *_others(found, RECORD, _PARSED),
        *(value.alias(name) for value, name in zip(values, names, strict=True)),
        F.col(io.quoted(RECORD)).withField("broken", parsed.isNull() | broken).alias(RECORD),
    )


def _others(frame: DataFrame, *left_out: str) -> list[Column]:
    return [F.col(io.quoted(name)) for name in frame.columns if name not in left_out]
