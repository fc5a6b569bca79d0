"""Files of keys: parquet, or comma-separated text with or without a header. What they hold is declared, not data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from py4j.protocol import Py4JNetworkError
from pyspark.sql import functions as F

from spark_rdp.errors import SparkRdpError, invalid
from spark_rdp.spark.failures import worded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WHOLE = "whole_row"


@contextmanager
def reading_keys(where: str, path: str) -> Iterator[None]:
    """Tell whatever Spark cannot do with a file of keys as a mistake in the query: no data were read yet.

    Args:
        where: The key of the query that names the file.
        path: The file.

    Raises:
        InvalidInput: The block failed, for any reason but a Spark that stopped.
    """
    try:
        with worded():
            yield
    except SparkRdpError as error:
        stopped = isinstance(error.__cause__, (ConnectionError, Py4JNetworkError))
        if stopped or str(error).startswith(where):
            raise
        remedy = "Check its path and format: parquet (named .parquet), or comma-separated text in UTF-8."
        raise invalid(where, "an existing file of keys that Spark can read", path, remedy) from error


def key_file(spark: SparkSession, path: str, name: str, where: str) -> DataFrame:
    """The keys of a file as one column of texts, ``key``. Short jobs read the file.

    Args:
        spark: The session.
        path: The file; parquet by its name, else comma-separated text. It has one column, or one named ``name``.
        name: What the header of the keys says, if there is a header: a first row that holds exactly this name.
        where: The key of the query that names the file.

    Raises:
        InvalidInput: It is not clear what the keys are: no such column, a header in another spelling, or a row with
            more or fewer cells than the first one.
    """
    if PurePosixPath(path).suffix.lower() == ".parquet":
        frame = spark.read.parquet(path)
        names = frame.columns
        frame = frame.toDF(*_places(len(names)))
    else:
        names, frame = _text(spark, path, name, where)
    if names.count(name) == 1:
        place = names.index(name)
    elif len(names) == 1:
        place = 0
    else:
        raise invalid(
            where, f"a file with one column, or with one named {name}", path, "Name the columns in its first row."
        )
    return frame.select(F.col(f"_{place}").cast("string").alias("key"))


def _text(spark: SparkSession, path: str, name: str, where: str) -> tuple[list[str], DataFrame]:
    """The cells of the first row, and the columns ``_0, _1, ...`` without it if it is a header."""
    # A quote within quotes is doubled, as spreadsheets write it.
    reader = spark.read.options(encoding="UTF-8", mode="PERMISSIVE", escape='"')
    # A tuple, because a Row would look among its field names.
    first = [str(cell) for cell in tuple(reader.csv(path, header=False).first() or ())]
    header = name in first
    if not header and name.casefold() in (cell.strip().casefold() for cell in first):
        remedy = f"Its first row differs by case or spaces only. If that is a key, put the row {name} above it."
        raise invalid(where, f"a file whose header is spelled like the column, {name}", path, remedy)
    places = _places(len(first))
    schema = ", ".join(f"{column} STRING" for column in (*places, _WHOLE))
    # Without pruning every cell is parsed, and Spark keeps the whole of a row that has too many or too few.
    reader = reader.options(header=header, columnNameOfCorruptRecord=_WHOLE, columnPruning=False)
    frame = reader.schema(schema).csv(path)
    odd = frame.agg(F.count_if(F.col(_WHOLE).isNotNull()), *map(F.count, places)).first() if first else None
    if odd is not None and odd[0]:
        constraint = f"a file whose rows have as many cells as its first row ({len(places)})"
        remedy = 'Put texts that hold a comma in quotes ("a, b").'
        raise invalid(where, constraint, f"{odd[0]} other rows in {path}", remedy)
    return first, frame.select(*places)


def _places(count: int) -> list[str]:
    return [f"_{place}" for place in range(count)]
