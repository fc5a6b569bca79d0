"""Noise for every row: one vectorised function over the row keys and the values of a batch.

Values reach the function as doubles: numbers as they are (a whole number above 2**53 is rounded), dates as days and
times as seconds since 1970-01-01 UTC. It is marked non-deterministic, so that Spark neither copies nor moves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegralType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_rdp.collection import CollectPlan
from spark_rdp.digests import RowDigests
from spark_rdp.errors import InvalidInput, invalid
from spark_rdp.mechanisms.local import BLOCK, Local
from spark_rdp.mechanisms.local_build import build_local
from spark_rdp.queries import CollectQuery
from spark_rdp.randomness import KeyedBits, stream_key
from spark_rdp.spark import io

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: What the noise function is given, batch by batch: the columns of the row key, then the values.
Batches = Iterator[tuple[pa.Array, ...]]


def noised(rows: DataFrame, query: CollectQuery, plan: CollectPlan, secret: bytes) -> DataFrame:
    """The kept columns as they are, then the noised ones (DOUBLE, never null).

    Args:
        rows: The source.
        query, plan: What is noised, and how.
        secret: 32 bytes; only keys derived from it travel to executors.

    Raises:
        InvalidInput: A column is missing or of a type that holds no numbers, by the schema alone.
    """
    used = query.used_columns
    with io._opening():
        places = {name: io._place(rows.columns, name, where) for name, where in used.items()}
        kinds = {name: rows.schema[place].dataType for name, place in places.items()}
        found = rows.toDF(*(f"_{place}" for place in range(len(rows.columns))))
    named = {name: F.col(f"_{place}") for name, place in places.items()}
    values = [
        _as_double(f"columns[{place}].column", item.column, named[item.column], kinds[item.column])
        for place, item in enumerate(query.columns)
    ]
    if query.null_policy == "drop":
        for value in values:
            found = found.where(value.isNotNull() & ~F.isnan(value))
    kept = [named[name].alias(f"k{place}") for place, name in enumerate(query.keep)]
    keys = [_key(used[name], name, named[name], kinds[name]) for name in query.noise_key]
    noise = noise_function(query, plan, secret)(*keys, *values)
    published = [F.col(f"k{place}").alias(name) for place, name in enumerate(query.keep)]
    published += [F.col(f"noised.v{place}").alias(item.column) for place, item in enumerate(query.columns)]
    return found.select(*kept, noise.alias("noised")).select(*published)


def noise_function(query: CollectQuery, plan: CollectPlan, secret: bytes) -> Callable[..., Column]:
    """The non-deterministic function from row keys and values to a struct of noised values v0, v1, ..."""
    key = stream_key(secret, query.name, "row key", *query.noise_key)
    width = len(query.noise_key)
    columns = [_Column.of(query, plan, place, secret) for place in range(len(query.columns))]
    key_name = "row_key" if query.memoize is None else "memoize.by"

    def noise(batches: Batches) -> Iterator[pa.Array]:
        mechanisms = [column.build() for column in columns]
        names = [f"v{place}" for place in range(len(columns))]
        rows = RowDigests(key)
        for batch in batches:
            if any(part.null_count for part in batch[:width]):
                raise InvalidInput(f"{key_name} must not be null in any row. Derive a key that is always there.")
            digests = rows.of(batch[:width])
            parts = [
                column.noised(mechanism, numbers, digests)
                for column, mechanism, numbers in zip(columns, mechanisms, batch[width:], strict=True)
            ]
            yield pa.StructArray.from_arrays(parts, names=names)

    fields = [StructField(f"v{place}", DoubleType(), nullable=False) for place in range(len(columns))]
    function: Any = arrow_udf(noise, StructType(fields))  # type: ignore[call-overload]  # the hints know no struct
    marked: Callable[..., Column] = function.asNondeterministic()
    return marked


@dataclass(frozen=True)
class _Column:
    """What travels to the executors for one column: the parameters of a mechanism and the key of its stream."""

    where: str
    mechanism: str
    parameters: dict[str, Any]
    key: bytes
    clamp: bool
    accept_missing: bool

    @classmethod
    def of(cls, query: CollectQuery, plan: CollectPlan, place: int, secret: bytes) -> _Column:
        name = query.columns[place].column
        chosen = plan.columns[name]
        key = stream_key(secret, query.name, name, chosen.plan_id)
        where = f"columns[{place}] ({name})"
        policies = query.invalid == "clamp", query.null_policy != "error"
        return cls(where, chosen.mechanism, chosen.parameters, key, *policies)

    def __repr__(self) -> str:
        return f"noise for {self.where}"  # never the key

    def build(self) -> Local:
        return build_local(self.mechanism, self.parameters)

    def noised(self, mechanism: Local, values: pa.Array, digests: np.ndarray) -> pa.Array:
        numbers = values.to_numpy(zero_copy_only=False)  # a null becomes NaN
        if not self.accept_missing and np.isnan(numbers).any():
            raise InvalidInput(f"{self.where} must have no missing values. Use null_policy: midpoint or drop.")
        if not self.clamp and ((numbers < mechanism.lower) | (numbers > mechanism.upper)).any():
            raise InvalidInput(f"{self.where} must lie within lower and upper in every row. Use invalid: clamp.")
        return pa.array(keyed_noise(mechanism, self.key, numbers, digests))


def keyed_noise(mechanism: Local, key: bytes, values: np.ndarray, digests: np.ndarray) -> np.ndarray:
    """Values with noise that is a function of the key, the digest of the row and the clamped value.

    Args:
        mechanism: Which noise.
        key: 32 bytes from `stream_key`.
        values: float64 of shape (n,); NaN stands for the midpoint of the range.
        digests: uint8 of shape (n, 16).

    Returns:
        float64 of shape (n,).
    """
    result = np.empty(len(values))
    for start in range(0, len(values), BLOCK):  # short arrays stay in the cache
        block = values[start : start + BLOCK]
        bits = KeyedBits(key, digests[start : start + BLOCK], mechanism.keys(block))
        result[start : start + BLOCK] = mechanism.lattice.to_values(mechanism.release(block, bits))
    return result


def _as_double(where: str, name: str, column: Column, kind: DataType) -> Column:
    """The values as doubles; null where there is none."""
    if isinstance(kind, NumericType):
        return column.cast("double")
    if isinstance(kind, DateType):
        return F.unix_date(column).cast("double")
    if isinstance(kind, TimestampType):
        return F.unix_micros(column) / F.lit(1e6)
    remedy = "Cast it with source.derive, for example try_cast(x AS DOUBLE) or CAST(x AS TIMESTAMP)."
    raise invalid(where, f"a column of numbers, dates or timestamps, not of {kind.simpleString()}", name, remedy)


def _key(where: str, name: str, column: Column, kind: DataType) -> Column:
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
