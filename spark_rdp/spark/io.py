"""Opening a source without looking at its data, and writing a result.

Types are declared (csv, json) or stored with the files (parquet, orc, tables), never inferred; a record that does not
fit its type becomes nulls instead of an error, because an error that depends on one record reveals that record.
"""

from __future__ import annotations

import contextlib
import io
import re
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

from spark_rdp.errors import InvalidInput, JobFailed, invalid
from spark_rdp.spark import session
from spark_rdp.spark.failures import as_error, worded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_rdp.queries import ReleaseQuery, Source

_RESOLVING = threading.Lock()
_PARSED = ("csv", "json", "xml")
#: What the analysed plan of row-by-row expressions over an empty frame consists of.
_ROW_BY_ROW = re.compile(r"Project|LocalRelation|LogicalRDD")


def read(spark: SparkSession, source: Source) -> DataFrame:
    """The rows of a source. Nothing but schemas (a csv header, the footers of parquet files) is read.

    Args:
        spark: The session.
        source: Where the rows are; ``derive`` adds columns, in order, each from the same row.

    Returns:
        A lazy DataFrame.

    Raises:
        InvalidInput: A path, table, type or expression cannot be used.
    """
    with _opening():
        return derived(spark.table(source.table) if source.table is not None else _files(spark, source), source)


def derived(frame: DataFrame, source: Source) -> DataFrame:
    """A frame with the columns that its source derives, in order, each from the same row.

    Raises:
        InvalidInput: An expression cannot be used.
    """
    spark = frame.sparkSession
    with _opening():
        for column, expression in source.derive.items():
            if column.casefold() in (name.casefold() for name in frame.columns):
                remedy = "The source has a column of this name."
                raise invalid(f"source.derive.{column}", "a new column", column, remedy)
            with _nulls_for_errors(spark):
                _check_expression(spark, frame.schema, column, expression)
                frame = _resolved(frame.withColumn(column, F.expr(expression)))
    return frame


def needed(frame: DataFrame, query: ReleaseQuery) -> DataFrame:
    """Only the columns a query uses, named as the query spells them.

    Raises:
        InvalidInput: A column is missing, or its name is not clear.
    """
    wanted = {} if query.privacy.by_row else {query.privacy.unit: "privacy.unit"}
    wanted |= dict.fromkeys(query.group_columns, "group_by")
    for place, measure in enumerate(query.measures):
        column = getattr(measure, "column", None)
        if column is not None:
            wanted.setdefault(column, f"measures[{place}].column")
    return columns_of(frame, wanted)


def columns_of(frame: DataFrame, wanted: Mapping[str, str]) -> DataFrame:
    """Some columns, named as they are asked for.

    Columns are found by position, so that any name can be used: with dots, with spaces, or differing from another one
    by case only. A name that is not there as it is spelled may differ by case.

    Args:
        frame: Any frame.
        wanted: Each column, and the key of the query that names it.

    Raises:
        InvalidInput: A column is missing, or its name is not clear.
    """
    with _opening():
        places = {name: _place(frame.columns, name, where) for name, where in wanted.items()}
        numbered = frame.toDF(*(f"_{place}" for place in range(len(frame.columns))))
        return numbered.select(*(F.col(f"_{place}").alias(name) for name, place in places.items()))


def write(frame: DataFrame, folder: Path) -> None:
    """Write parquet files into a new local folder; one file per partition of the frame."""
    frame.write.mode("error").option("compression", "snappy").parquet(f"file://{folder}")


def read_published(spark: SparkSession, folder: Path, schema: StructType | str) -> DataFrame:
    """The published rows of a release, in their order."""
    escaped = re.sub(r"([{}\[\]*?\\])", r"\\\1", str(folder))
    return spark.read.schema(schema).option("pathGlobFilter", "part-*").parquet(f"file://{escaped}")


def quoted(name: str) -> str:
    """A column name as Spark SQL reads it, whatever letters it has."""
    return "`" + name.replace("`", "``") + "`"


def _files(spark: SparkSession, source: Source) -> DataFrame:
    assert source.format is not None  # a query says table or format
    kind = source.format.lower()
    options: dict[str, Any] = dict(source.options)
    given = {name.lower(): value for name, value in options.items()}
    reader = spark.read.format(source.format)
    if kind in _PARSED:
        if str(given.get("mode", "PERMISSIVE")).upper() != "PERMISSIVE":
            raise invalid(
                "source.options.mode", "PERMISSIVE", given["mode"], "Other modes reveal single records; remove it."
            )
        if kind == "csv" and str(given.get("header", "false")).lower() == "true":
            _check_header(spark, source)
            options.setdefault("enforceSchema", "false")  # every further file is held to its header too
    if source.ddl is not None:
        reader = reader.schema(source.ddl)
    reader = reader.options(**options)
    return reader.load(list(source.path)) if source.path is not None else reader.load()


def _check_header(spark: SparkSession, source: Source) -> None:
    """Columns of a csv file are taken by position: refuse a schema that names them otherwise than the header does."""
    assert source.ddl is not None
    assert source.path is not None
    declared = spark.createDataFrame([], source.ddl).columns
    options = {**source.options, "inferSchema": "false"}
    header = spark.read.format("csv").options(**options).load(list(source.path)).columns
    remedy = "List all columns of the file, in its order."
    for place, name in enumerate(declared):
        # What the header says is not echoed: a file without a header has data there.
        if place >= len(header) or header[place].strip().casefold() != name.casefold():
            raise invalid("source.schema", f"the columns of the csv header; column {place + 1} is not", name, remedy)
    if len(header) > len(declared):
        raise invalid(
            "source.schema", f"all {len(header)} columns of the csv header", f"{len(declared)} columns", remedy
        )


def _check_expression(spark: SparkSession, schema: StructType, column: str, expression: str) -> None:
    """Refuse an expression whose value is not a function of its own row.

    A window, an aggregate or a subquery would mix the rows of several units into one, ``explode`` would multiply rows,
    and ``rand()`` would differ at every evaluation: the bounds of the release would not hold.
    """
    name = f"source.derive.{column}"
    remedy = (
        "Windows, aggregates, subqueries, explode and random functions are not possible here; prepare a table instead."
    )
    refusal = invalid(name, "a function of the columns of its own row", expression, remedy)
    empty = spark.createDataFrame([], schema)
    shown = io.StringIO()
    # Spark accepts neither windows, aggregates, generators nor anything random in the condition of a join.
    other = spark.createDataFrame([], "spark_rdp_other INT")
    try:
        _ = empty.select(F.expr(expression)).schema
    except PySparkException as error:
        told = as_error(error)  # an expression that cannot be resolved is told as such
        raise told if isinstance(told, InvalidInput) else refusal from None
    try:
        joined = empty.join(other, F.expr(f"({expression}) IS NOT NULL"), "left_semi")
        with contextlib.redirect_stdout(shown):
            empty.select(F.expr(expression).alias(column)).explain("extended")
        _ = joined.schema
    except PySparkException:
        raise refusal from None
    analysed = shown.getvalue().partition("== Analyzed Logical Plan ==")[2].partition("== Optimized Logical Plan ==")[0]
    nodes = [line.lstrip(" :+-") for line in analysed.strip().splitlines()[1:]]
    if not nodes or not all(_ROW_BY_ROW.match(node) for node in nodes):
        raise refusal


def _resolved(frame: DataFrame) -> DataFrame:
    """The same rows, with expressions resolved now, and in a view: outside of it Connect does so at every action."""
    _ = frame.schema
    if isinstance(frame, ClassicFrame):
        return frame
    view = f"spark_rdp_{uuid.uuid4().hex}"
    frame.createTempView(view)
    return frame.sparkSession.table(view)


def _place(columns: Sequence[str], name: str, where: str) -> int:
    exact = [place for place, column in enumerate(columns) if column == name]
    similar = exact or [place for place, column in enumerate(columns) if column.casefold() == name.casefold()]
    if len(similar) == 1:
        return similar[0]
    if similar:
        raise invalid(where, "a column whose name is there once", name, "Rename the others, or derive a new column.")
    raise invalid(where, "a column of the source", name, f"The source has: {', '.join(columns)}.")


@contextlib.contextmanager
def _opening() -> Iterator[None]:
    """What is found before any row was read is a matter of the configuration."""
    try:
        with worded():
            yield
    except JobFailed as error:
        condition = getattr(error.__cause__, "getCondition", lambda: None)() or type(error.__cause__).__name__
        remedy = "Check format, path, options, schema and derive."
        raise InvalidInput(f"The source cannot be opened ({condition}). {remedy}") from error


@contextlib.contextmanager
def _nulls_for_errors(spark: SparkSession) -> Iterator[None]:
    """Resolve expressions so that a row they fail on gives null; a job that fails reveals that row.

    Spark decides this when an expression is resolved, by the ANSI setting of that moment.
    """
    with _RESOLVING, session.settings(spark, {"spark.sql.ansi.enabled": "false"}):
        yield
