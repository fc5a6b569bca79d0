"""The groups of a release inside Spark: rows of undeclared groups are dropped, declared groups become numbers.

A declared group is the whole number of its place among all declared groups in sorted order, so that the heavy stages
carry one BIGINT instead of the key columns. Lists and files are looked up with a join, ranges and bins are computed.
"""

from __future__ import annotations

import datetime
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.window import Window

from spark_rdp.errors import invalid
from spark_rdp.queries import EstimateQuery, KeyBins, KeyDomain, KeyFile, KeyRange, KeyValue, Listed, ReleaseQuery
from spark_rdp.queries.keys import MOST_KEYS
from spark_rdp.spark.bounding import salted_hash
from spark_rdp.spark.key_files import key_file, reading_keys
from spark_rdp.spark.values import bin_number, check_numeric

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The number of a declared group.
GROUP = "group"
_SCATTER = "scatter"
#: Lists up to this length are always sent to every executor; beyond it Spark decides by size.
_BROADCAST = 100_000
_INTEGERS: dict[type[T.DataType], int] = {T.ByteType: 8, T.ShortType: 16, T.IntegerType: 32, T.LongType: 64}
_PLAIN = "UTF8_BINARY"


@dataclass(frozen=True)
class KeyColumn:
    """A group column of the source: its public name, its name in the frame at hand, its type."""

    name: str
    column: str
    kind: T.DataType


class Keys(ABC):
    """The groups of one release.

    Args:
        columns: The key columns.
        group: What a group is called in the frame between ``numbered`` and ``named``: one or several columns.
        count: How many groups there are; None when the data decide.
    """

    columns: tuple[KeyColumn, ...]
    group: tuple[str, ...]
    count: int | None

    @abstractmethod
    def numbered(self, frame: DataFrame) -> DataFrame:
        """Add the group columns; rows of undeclared groups are gone."""

    @abstractmethod
    def scattered(self, frame: DataFrame, unit: str, salt: int) -> tuple[DataFrame, tuple[str, ...]]:
        """Order the groups of every unit at random, by a hash of salt, unit and group and nothing else.

        Returns:
            The frame, and the columns that name a group and sort the groups of a unit in that order.
        """

    @abstractmethod
    def gathered(self, frame: DataFrame) -> DataFrame:
        """Undo ``scattered``."""

    @abstractmethod
    def named(self, frame: DataFrame) -> DataFrame:
        """Add the key columns under the names ``k0, k1, ...``."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the key columns in a frame made by ``named``."""
        return tuple(f"k{place}" for place in range(len(self.columns)))


class _Domain(ABC):
    """The declared keys of one column, numbered from 0 in sorted order."""

    size: int

    @abstractmethod
    def add_number(self, frame: DataFrame, column: str, number: str) -> DataFrame:
        """Add the number of each row's key; rows of keys that are not declared are gone."""

    @abstractmethod
    def add_key(self, frame: DataFrame, number: str, label: str) -> DataFrame:
        """Add the key that belongs to a number."""


@dataclass(frozen=True)
class _Range(_Domain):
    low: int | datetime.date
    size: int
    kind: T.DataType

    def add_number(self, frame: DataFrame, column: str, number: str) -> DataFrame:
        key = F.col(column)
        if isinstance(self.low, datetime.date):
            high: object = self.low + datetime.timedelta(days=self.size - 1)
            distance = F.datediff(key, F.lit(self.low)).cast("bigint")
        else:
            high = self.low + self.size - 1
            distance = F.try_subtract(key.cast("bigint"), F.lit(self.low).cast("bigint"))
        # A comparison of its own, which Spark can hand on to the files.
        return frame.where(key.between(F.lit(self.low), F.lit(high))).withColumn(number, distance)

    def add_key(self, frame: DataFrame, number: str, label: str) -> DataFrame:
        if isinstance(self.low, datetime.date):
            return frame.withColumn(label, F.date_add(F.lit(self.low), F.col(number).cast("int")))
        return frame.withColumn(label, (F.lit(self.low).cast("bigint") + F.col(number)).cast(self.kind))


@dataclass(frozen=True)
class _Bins(_Domain):
    edges: tuple[float, ...]
    kind: T.DataType

    @property
    def size(self) -> int:  # type: ignore[override]
        return len(self.edges) - 1

    def add_number(self, frame: DataFrame, column: str, number: str) -> DataFrame:
        place = bin_number(F.col(column), self.kind, self.edges, outside=False)
        return frame.withColumn(number, place.cast("bigint")).where(F.col(number).isNotNull())

    def add_key(self, frame: DataFrame, number: str, label: str) -> DataFrame:
        listed = F.split(F.lit("|".join(bin_labels(self.edges))), r"\|")
        return frame.withColumn(label, F.element_at(listed, (F.col(number) + 1).cast("int")))


@dataclass(frozen=True)
class _Lookup(_Domain):
    """Keys in a frame of two columns, ``key`` and ``number``."""

    entries: DataFrame
    size: int
    with_null: bool

    def _side(self, key: str, number: str) -> DataFrame:
        side = self.entries.select(F.col("key").alias(key), F.col("number").alias(number))
        return F.broadcast(side) if self.size <= _BROADCAST else side

    def add_number(self, frame: DataFrame, column: str, number: str) -> DataFrame:
        side, declared = self._side(f"{number}_key", number), F.col(f"{number}_key")
        same = F.col(column).eqNullSafe(declared) if self.with_null else F.col(column) == declared
        return frame.join(side, same, "inner").drop(f"{number}_key")

    def add_key(self, frame: DataFrame, number: str, label: str) -> DataFrame:
        side = self._side(label, f"{number}_of")
        return frame.join(side, F.col(number) == F.col(f"{number}_of"), "inner").drop(f"{number}_of")


@dataclass(frozen=True)
class Declared(Keys):
    """Keys declared without looking at the data, crossed over the columns."""

    columns: tuple[KeyColumn, ...]
    domains: tuple[_Domain, ...]
    group: tuple[str, ...] = (GROUP,)

    @property
    def count(self) -> int:  # type: ignore[override]
        """How many groups are declared."""
        return math.prod(domain.size for domain in self.domains)

    @property
    def _mask(self) -> int:
        return (1 << max(self.count - 1, 0).bit_length()) - 1

    def numbered(self, frame: DataFrame) -> DataFrame:
        """Add the number of the group; rows of undeclared groups are gone."""
        numbers = [f"n{place}" for place in range(len(self.domains))]
        pairs = list(zip(self.domains, self.columns, numbers, strict=True))
        # What is computed filters before what is joined.
        for domain, column, number in sorted(pairs, key=lambda pair: isinstance(pair[0], _Lookup)):
            frame = domain.add_number(_plain(frame, column), column.column, number)
        group = F.lit(0).cast("bigint")
        for domain, number in zip(self.domains, numbers, strict=True):
            group = group * F.lit(domain.size).cast("bigint") + F.col(number)
        return frame.withColumn(GROUP, group)

    def scattered(self, frame: DataFrame, unit: str, salt: int) -> tuple[DataFrame, tuple[str, ...]]:
        """The low bits stay the number of the group, so that two groups never tie; the others become the hash."""
        high = salted_hash(salt, unit, GROUP).bitwiseAND(F.lit(~self._mask).cast("bigint"))
        return frame.withColumn(GROUP, high.bitwiseOR(F.col(GROUP))), (GROUP,)

    def gathered(self, frame: DataFrame) -> DataFrame:
        """The number of the group again."""
        return frame.withColumn(GROUP, F.col(GROUP).bitwiseAND(F.lit(self._mask).cast("bigint")))

    def named(self, frame: DataFrame) -> DataFrame:
        """Add the key columns ``k0, k1, ...``."""
        numbers, stride = {}, 1
        for place, domain in reversed(list(enumerate(self.domains))):
            numbers[f"n{place}"] = F.expr(f"`{GROUP}` DIV {stride}L % {max(domain.size, 1)}L")
            stride *= max(domain.size, 1)
        if numbers:  # Spark Connect takes no empty list
            frame = frame.withColumns(numbers)
        for place, domain in enumerate(self.domains):
            frame = domain.add_key(frame, f"n{place}", f"k{place}")
        return frame

    def all(self, spark: SparkSession) -> DataFrame:
        """One row per declared group, with its number; made on the executors."""
        return spark.range(0, self.count).select(F.col("id").alias(GROUP))


@dataclass(frozen=True)
class FromData(Keys):
    """Keys that are selected privately: the keys of the data, to be tested before any is published."""

    columns: tuple[KeyColumn, ...]

    @property
    def group(self) -> tuple[str, ...]:  # type: ignore[override]
        """The key columns themselves."""
        return self.labels

    @property
    def count(self) -> None:  # type: ignore[override]
        """Not known."""

    def numbered(self, frame: DataFrame) -> DataFrame:
        """Add the key columns; every row belongs to a group, null is a key like any other."""
        for column in self.columns:
            frame = _plain(frame, column)
        return frame.select(
            "*", *(F.col(c.column).alias(label) for c, label in zip(self.columns, self.labels, strict=True))
        )

    def scattered(self, frame: DataFrame, unit: str, salt: int) -> tuple[DataFrame, tuple[str, ...]]:
        """The hash, and the keys behind it, so that two groups never tie."""
        return frame.withColumn(_SCATTER, salted_hash(salt, unit, *self.labels)), (_SCATTER, *self.labels)

    def gathered(self, frame: DataFrame) -> DataFrame:
        """The keys alone."""
        return frame.drop(_SCATTER)

    def named(self, frame: DataFrame) -> DataFrame:
        """The key columns are there already."""
        return frame


def keys_of(spark: SparkSession, query: ReleaseQuery | EstimateQuery, columns: Mapping[str, KeyColumn]) -> Keys:
    """The groups of a query. Types are compared from the schema alone; only a file of keys is read.

    Args:
        spark: The session.
        query: The query.
        columns: The source columns by name.

    Raises:
        InvalidInput: Declared keys do not fit the type of their column, or a file of keys cannot be used.
    """
    chosen = tuple(columns[name] for name in query.group_columns)
    if query.selects is not None:
        for column in chosen:
            _check_selectable(column)
        return FromData(chosen)
    assert query.group_by is None or isinstance(query.group_by, dict)
    given = [(query.group_by[column.name], column) for column in chosen] if query.group_by else []
    for domain, column in given:  # everything the schema tells, before a file is read
        _check_kind(domain, column)
    declared = Declared(chosen, tuple(_domain(spark, domain, column) for domain, column in given))
    if declared.count > MOST_KEYS:
        constraint = f"a product of at most {MOST_KEYS} keys"
        raise invalid("group_by", constraint, declared.count, "Publish fewer groups, or coarser bins.")
    return declared


def bin_labels(edges: Sequence[float]) -> list[str]:
    """What the bins are called: ``[0, 10)``, the last one ``[50, 100]``."""
    texts = [str(int(edge)) if edge == int(edge) and abs(edge) < 1e15 else repr(edge) for edge in edges]
    labels = [f"[{low}, {high})" for low, high in itertools.pairwise(texts)]
    labels[-1] = f"{labels[-1][:-1]}]"
    return labels


def _plain(frame: DataFrame, column: KeyColumn) -> DataFrame:
    """Texts are compared byte by byte, whatever the collation of the column: a group has one spelling."""
    if isinstance(column.kind, T.StringType) and getattr(column.kind, "collation", _PLAIN) != _PLAIN:
        return frame.withColumn(column.column, F.collate(F.col(column.column), _PLAIN))
    return frame


def _check_selectable(column: KeyColumn) -> None:
    good = (T.StringType, T.BooleanType, T.DateType, T.TimestampType, T.TimestampNTZType, T.DecimalType, *_INTEGERS)
    if not isinstance(column.kind, good):
        constraint = (
            f"a column of texts, whole numbers, true/false, dates or times, not of {column.kind.simpleString()}"
        )
        raise invalid("group_by.select", constraint, column.name, "Declare bins, or derive a column of another type.")


def _check_kind(domain: KeyDomain, column: KeyColumn) -> None:
    where, kind = f"group_by.{column.name}", column.kind
    shown = f"{column.name} {kind.simpleString()}"
    if isinstance(domain, KeyBins):
        check_numeric(f"{where}.bins", column.name, kind)
        return
    if not isinstance(kind, (T.StringType, T.BooleanType, T.DateType, *_INTEGERS)):
        remedy = "Use {bins: [...]} for fractions; for times derive a date or a text with source.derive."
        raise invalid(where, "a column of texts, whole numbers, true/false or dates", shown, remedy)
    if isinstance(domain, KeyFile):
        return
    where += ".range" if isinstance(domain, KeyRange) else ""
    for value in domain.range if isinstance(domain, KeyRange) else domain.values:
        if value is not None and not _fits(value, kind):
            accepted = f"keys of the type of the column ({kind.simpleString()})"
            raise invalid(
                where, accepted, value, "Quote texts; write whole numbers and dates (2026-11-30) without quotes."
            )


def _fits(value: KeyValue, kind: T.DataType) -> bool:
    if isinstance(value, bool):
        return isinstance(kind, T.BooleanType)
    if isinstance(value, int):
        bits = _INTEGERS.get(type(kind))
        return bits is not None and -(1 << bits - 1) <= value < 1 << bits - 1
    if isinstance(value, datetime.date):
        return isinstance(kind, T.DateType)
    return isinstance(kind, T.StringType)


def _domain(spark: SparkSession, domain: KeyDomain, column: KeyColumn) -> _Domain:
    if isinstance(domain, KeyBins):
        return _Bins(domain.bins, column.kind)
    if isinstance(domain, KeyRange):
        return _Range(domain.range[0], domain.size, column.kind)
    if isinstance(domain, KeyFile):
        return _from_file(spark, domain.file, column)
    return _from_list(spark, domain, column)


def _from_list(spark: SparkSession, listed: Listed, column: KeyColumn) -> _Lookup:
    values = sorted(value for value in listed.values if value is not None)
    with_null = None in listed.values
    ordered = [None, *values] if with_null else list(values)
    plain = {T.StringType: pa.string(), T.BooleanType: pa.bool_(), T.DateType: pa.date32()}
    # An Arrow table becomes part of the plan; no job is needed to read it.
    table = pa.table(
        {
            "key": pa.array(ordered, plain.get(type(column.kind), pa.int64())),
            "number": pa.array(range(len(ordered)), pa.int64()),
        }
    )
    kind = T.StringType() if isinstance(column.kind, T.StringType) else column.kind
    entries = spark.createDataFrame(table).select(F.col("key").cast(kind).alias("key"), "number")
    return _Lookup(entries, len(ordered), with_null)


def _from_file(spark: SparkSession, path: str, column: KeyColumn) -> _Lookup:
    where = f"group_by.{column.name}.file"
    kind = T.StringType() if isinstance(column.kind, T.StringType) else column.kind
    with reading_keys(where, path):
        found = key_file(spark, path, column.name, where)
        typed = found.select(F.col("key").try_cast(kind).alias("key"), F.col("key").alias("given"))
        wrong = F.col("key").isNull() & F.col("given").isNotNull()
        summary = typed.agg(
            F.count_if(wrong).alias("wrong"),
            F.count_if(F.col("given").isNull()).alias("nulls"),
            F.count_distinct("key").alias("different"),
        ).first()
    assert summary is not None
    if summary["wrong"]:
        constraint = f"a file of {kind.simpleString()} keys, one per row"
        raise invalid(
            where,
            constraint,
            f"{summary['wrong']} other rows in {path}",
            "Correct the file, or derive a column of the type of its keys.",
        )
    size = summary["different"] + bool(summary["nulls"])
    if size > MOST_KEYS:
        raise invalid(where, f"a file of at most {MOST_KEYS} keys", size, "Publish fewer groups, or bins.")
    ordered = typed.select("key").distinct()
    entries = ordered.select("key", (F.row_number().over(Window.orderBy("key")) - 1).cast("bigint").alias("number"))
    return _Lookup(entries, size, bool(summary["nulls"]))
