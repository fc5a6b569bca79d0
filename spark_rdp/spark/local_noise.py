"""Noise for every row of a frame: one vectorised function over the row keys and the values of a batch.

Values reach the function as doubles: numbers as they are (a whole number above 2**53 is rounded), dates as days and
times as seconds since 1970-01-01 UTC. It is marked non-deterministic, so that Spark neither copies nor moves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegralType,
    LongType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_rdp.collection import CollectPlan
from spark_rdp.digests import RowDigests
from spark_rdp.errors import invalid
from spark_rdp.queries import AnyColumn, CellColumn, CollectQuery, NoisedColumn
from spark_rdp.spark import io
from spark_rdp.spark.batches import Batch, by_long_batches, keep_memory
from spark_rdp.spark.cell_noise import CellNoise
from spark_rdp.spark.cells import cell_of
from spark_rdp.spark.row_noise import ColumnNoise, RowNoise

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class Located:
    """The columns a query uses.

    Attributes:
        rows: They alone, numbered, so that any name can be used.
        columns: Each column the query uses, by its name in the query.
        kinds: Their types.
    """

    rows: DataFrame
    columns: dict[str, Column]
    kinds: dict[str, DataType]


def located(rows: DataFrame, query: CollectQuery) -> Located:
    """Find the columns of a query by the schema alone.

    Raises:
        InvalidInput: A column is missing, or its name is not clear.
    """
    wanted = query.used_columns
    frame = io.columns_of(rows, wanted)
    kinds = {name: item.dataType for name, item in zip(wanted, frame.schema, strict=True)}
    numbers = {name: f"_{place}" for place, name in enumerate(wanted)}
    return Located(frame.toDF(*numbers.values()), {name: F.col(number) for name, number in numbers.items()}, kinds)


def noised(found: Located, query: CollectQuery, plan: CollectPlan, secret: bytes) -> DataFrame:
    """The kept columns as they are, then the noised ones, never null: DOUBLE, arrays of it, or cells.

    Args:
        found: The source.
        query, plan: What is noised, and how.
        secret: 32 bytes; only keys derived from it travel to executors.

    Raises:
        InvalidInput: A column is of a type that holds no numbers.
    """
    used, rows, named, kinds = query.used_columns, found.rows, found.columns, found.kinds
    values = [
        values_of(f"columns[{place}]", item, named[item.column], kinds[item.column])
        if isinstance(item, NoisedColumn)
        else cell_of(f"columns[{place}]", item, named, kinds, query.invalid == "clamp")
        for place, item in enumerate(query.columns)
    ]
    if query.null_policy == "drop":
        for item, value in zip(query.columns, values, strict=True):
            rows = rows.where(_complete(item, value, query.invalid == "clamp"))
    kept = [named[name].alias(f"k{place}") for place, name in enumerate(query.keep)]
    keys = [key_part(used[name], name, named[name], kinds[name]) for name in query.noise_key]
    noise = noise_function(RowNoise.of(query, plan, secret))(*keys, *values).alias("noised")
    published = [F.col(f"k{place}").alias(name) for place, name in enumerate(query.keep)]
    several = len(query.columns) > 1
    for place, item in enumerate(query.columns):
        published.append(F.col(f"noised.v{place}" if several else "noised").alias(item.column))
    return rows.select(*kept, noise).select(*published)


def noise_function(noise: RowNoise) -> Callable[..., Column]:
    """The non-deterministic function from row keys and values to a struct of noised values v0, v1, ...

    One column comes without a struct, which would cost a tenth of the time of a collection.
    """
    names = [f"v{place}" for place in range(len(noise.columns))]
    several = len(names) > 1

    def noised_batches(batches: Iterator[Batch]) -> Iterator[pa.Array]:
        keep_memory()
        digests = RowDigests(noise.key)

        def published(batch: Batch) -> pa.Array:
            columns = noise.noised(digests, batch)
            return pa.StructArray.from_arrays(columns, names=names) if several else columns[0]

        return by_long_batches(published, batches)

    kinds = [_published_kind(column) for column in noise.columns]
    fields = [StructField(name, kind, nullable=False) for name, kind in zip(names, kinds, strict=True)]
    kind = StructType(fields) if several else kinds[0]
    function: Any = arrow_udf(noised_batches, kind)  # type: ignore[call-overload]  # the hints know few types
    marked: Callable[..., Column] = function.asNondeterministic()
    return marked


def _published_kind(column: ColumnNoise | CellNoise) -> DataType:
    if isinstance(column, CellNoise):
        return LongType() if column.labels is None else StringType()
    return ArrayType(DoubleType()) if column.length else DoubleType()


def values_of(where: str, item: NoisedColumn, column: Column, kind: DataType) -> Column:
    """The values of a column as doubles, or lists of doubles; null where there is none."""
    if item.length is None:
        return _as_double(f"{where}.column", item.column, column, kind)
    if not isinstance(kind, ArrayType):
        remedy = "Leave length out, or derive an array."
        raise invalid(f"{where}.column", f"a column of arrays, not of {kind.simpleString()}", item.column, remedy)
    # One more than is declared tells that it is too long; the rest of a very long one need not go to Python.
    column = F.slice(column, 1, item.length + 1)
    if isinstance(kind.elementType, NumericType):
        return column.cast("array<double>")
    return F.transform(column, lambda one: _as_double(f"{where}.column", item.column, one, kind.elementType))


def _complete(item: AnyColumn, value: Column, clamp: bool) -> Column:
    """Whether no value is missing; an array of a wrong length that stops the job is left to do so."""
    if isinstance(item, CellColumn):
        return value.isNotNull()

    def there(one: Column) -> Column:
        return one.isNotNull() & ~F.isnan(one)

    if item.length is None:
        return there(value)
    complete = value.isNotNull() & F.forall(F.slice(value, 1, item.length), there)
    return complete & (F.size(value) >= item.length) if clamp else complete


def _as_double(where: str, name: str, column: Column, kind: DataType) -> Column:
    """The values as doubles; null where there is none."""
    if isinstance(kind, NumericType):
        return column.cast("double")
    if isinstance(kind, DateType):
        return F.unix_date(column).cast("double")
    if isinstance(kind, TimestampType):
        return F.unix_micros(column) / F.lit(1e6)
    remedy = "Cast it with source.derive, for example try_cast(x AS DOUBLE) or CAST(x AS TIMESTAMP)."
    if isinstance(kind, ArrayType):
        remedy = "Say with length how many elements its arrays have."
    raise invalid(where, f"a column of numbers, dates or timestamps, not of {kind.simpleString()}", name, remedy)


def key_part(where: str, name: str, column: Column, kind: DataType) -> Column:
    """A part of the row key as `RowDigests` takes it: different keys stay different, in every session."""
    if isinstance(kind, IntegralType):
        return column.cast("bigint")
    if isinstance(kind, TimestampType):
        return F.unix_micros(column)
    if isinstance(kind, (StringType, BinaryType)):
        return column
    if isinstance(kind, (DateType, TimestampNTZType, DecimalType, BooleanType)):
        return column.cast("string")
    remedy = "Derive a text or a whole number that names the row."
    raise invalid(
        where, f"a column of texts, whole numbers, dates or times, not of {kind.simpleString()}", name, remedy
    )
