"""Noise, added once to the small exact frame.

The frame is in its final order *before* noise is added, and nothing shuffles, sorts or joins afterwards. The noise of a
number is a function of a secret, its place (group, column, bin) and its exact value (see :mod:`spark_rdp.randomness`),
so that retries, speculation and a second evaluation of the plan give the same result, batches and partitions share no
stream, and no generator state exists that could be copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, LongType, StringType, StructField, StructType

from spark_rdp.outputs import public_values
from spark_rdp.planning.selection import build_quantile
from spark_rdp.randomness import DIGEST_BYTES, KeyedBits, bernoulli, stream_key
from spark_rdp.releases import Component, ReleasePlan, Selection

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: At most this many numbers are noised at a time, so that wide histograms do not need more memory than narrow ones.
NUMBERS_AT_A_TIME = 500_000
_DIGEST = "digest"
_ENDS = ("", "_low", "_high")


def add_noise(frame: DataFrame, plan: ReleasePlan, secret: bytes, release_id: str) -> DataFrame:
    """The public columns of a release: the keys, then NAME, NAME_low and NAME_high of every measure.

    Args:
        frame: The exact statistics as `aggregate` returns them: one row per group, in one partition, in the order of
            publication. Columns in this order: the group columns of the plan, one BIGINT (ARRAY<BIGINT> for bins) per
            component and, for a private selection, the exact number of units (BIGINT).
        plan: The plan of the release.
        secret: 32 random bytes; only keys derived from it travel to executors.
        release_id: Separates the noise of releases that share a secret.

    Returns:
        As lazy as ``frame`` and in its order. Groups that were not selected are not in it.
    """
    keys = [f"k{place}" for place in range(len(plan.group_columns))]
    numbers = [component.column for component in plan.components]
    numbers += [plan.selection.column] if plan.selection else []
    schema = public_schema(frame, plan)
    exact = frame.toDF(*keys, *numbers).withColumn(_DIGEST, row_digest(frame.schema.fields[: len(keys)], keys))
    return exact.mapInArrow(_Noise.of(plan, secret, release_id), schema)


def public_schema(frame: DataFrame, plan: ReleasePlan) -> StructType:
    """The types of the published columns; they depend on the query only."""
    keys = frame.schema.fields[: len(plan.group_columns)]
    fields = [StructField(name, key.dataType) for name, key in zip(plan.group_columns, keys, strict=True)]
    for measure in plan.measures:
        kind = _public_type(plan.of(measure))
        fields += [StructField(measure + end, kind, nullable=False) for end in _ENDS]
    return StructType(fields)


def row_digest(kinds: Sequence[StructField], key_columns: Sequence[str]) -> Column:
    """128 bits that name a group, made in the JVM: different keys, different digests (but for a chance of 2**-128).

    Args:
        kinds: The types of the keys.
        key_columns: Their columns.
    """
    if not key_columns:
        return F.unhex(F.lit("00" * DIGEST_BYTES))
    # Every null is written, and times keep their microseconds and offset: no two different keys have the same text.
    options = {
        "ignoreNullFields": "false",
        "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
        "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    }
    # Texts by their bytes: JSON writes all bytes that are no UTF-8 alike.
    parts = [
        F.hex(F.col(column).cast("binary")).alias(column) if isinstance(kind.dataType, StringType) else F.col(column)
        for kind, column in zip(kinds, key_columns, strict=True)
    ]
    text = F.to_json(F.struct(*parts), options)
    return F.unhex(F.substring(F.sha2(text, 256), 1, 2 * DIGEST_BYTES))


def noised(component: Component, key: bytes, digests: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Noised integers of one component.

    Args:
        component: What is noised, with its plan.
        key: The key of the component's stream.
        digests: uint8 of shape (n, 16), one per group.
        values: int64 of shape (n,) or, for bins, (n, width).

    Returns:
        int64 of the shape of ``values``; for a quantile (n, 3), the candidates selected as value and ends.
    """
    if component.role == "quantile":
        return build_quantile(component.plan).release(values, key, digests)
    mechanism = component.plan.build()
    if values.ndim == 1:
        return mechanism.release(values, KeyedBits(key, digests, values))
    # Every bin is a row of its own: the number of the bin is part of its digest.
    rows, width = values.shape
    spread = np.repeat(np.ascontiguousarray(digests).view(np.uint64), width, axis=0)
    spread[:, 1] ^= np.tile(np.arange(width, dtype=np.uint64), rows)
    flat = values.reshape(-1)
    return mechanism.release(flat, KeyedBits(key, spread.view(np.uint8), flat)).reshape(rows, width)


@dataclass(frozen=True)
class _Noise:
    """What travels to the executors: parameters of mechanisms and keys of streams, a few KiB."""

    group_columns: tuple[str, ...]
    measures: tuple[tuple[str, tuple[tuple[Component, bytes], ...]], ...]
    selection: tuple[Selection, bytes] | None

    @classmethod
    def of(cls, plan: ReleasePlan, secret: bytes, release_id: str) -> _Noise:
        def keyed(component: Component) -> tuple[Component, bytes]:
            key = stream_key(secret, release_id, component.column, component.plan.plan_id)
            bare = replace(component.plan, alternatives={}, certificate={}, why="")  # words are of no use to executors
            return replace(component, plan=bare, edges=None), key

        measures = tuple((name, tuple(map(keyed, plan.of(name)))) for name in plan.measures)
        chosen = plan.selection
        selection = None if chosen is None else (chosen, stream_key(secret, release_id, chosen.column, "selection"))
        return cls(plan.group_columns, measures, selection)

    def __repr__(self) -> str:
        return f"noise for {', '.join(name for name, _ in self.measures)}"  # never the keys

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = self.selection[0].table if self.selection else None
        widest = max(component.width for _, parts in self.measures for component, _ in parts)
        rows = max(1, NUMBERS_AT_A_TIME // widest)
        for whole in batches:
            for start in range(0, whole.num_rows, rows):
                batch = whole.slice(start, rows)
                digests = _digests(batch.column(_DIGEST))
                if self.selection is not None and table is not None:
                    selection, key = self.selection
                    units = _integers(batch.column(selection.column))
                    thresholds, always = table.keep(units)
                    keep = always | bernoulli(KeyedBits(key, digests, units), 0, thresholds)
                    batch, digests = batch.filter(pa.array(keep)), digests[keep]
                yield self._published(batch, digests)

    def _published(self, batch: pa.RecordBatch, digests: np.ndarray) -> pa.RecordBatch:
        names = list(self.group_columns)
        columns = [batch.column(f"k{place}") for place in range(len(names))]
        for name, parts in self.measures:
            values = {
                component.column: noised(component, key, digests, _numbers(batch.column(component.column), component))
                for component, key in parts
            }
            published = public_values(name, [component for component, _ in parts], values)
            names += [name + end for end in _ENDS]
            columns += [_arrow(numbers) for numbers in published]
        return pa.RecordBatch.from_arrays(columns, names=names)


def _public_type(parts: Sequence[Component]) -> DataType:
    if parts[0].role == "bins":
        return ArrayType(LongType(), containsNull=False)
    return LongType() if len(parts) == 1 and parts[0].role == "count" else DoubleType()


def _digests(column: pa.Array) -> np.ndarray:
    rows = b"".join(column.to_pylist())
    return np.frombuffer(rows, dtype=np.uint8).reshape(len(column), DIGEST_BYTES)


def _integers(column: pa.Array) -> np.ndarray:
    return column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)


def _numbers(column: pa.Array, component: Component) -> np.ndarray:
    if component.kind != "bins":
        return _integers(column)
    inner = column.flatten() if pa.types.is_list(column.type) else column
    return _integers(inner).reshape(len(column), component.width)


def _arrow(numbers: np.ndarray) -> pa.Array:
    if numbers.ndim == 1:
        return pa.array(numbers)
    rows, width = numbers.shape
    offsets = pa.array(np.arange(0, (rows + 1) * width, width, dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array(numbers.reshape(-1)))
