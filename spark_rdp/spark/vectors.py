"""The one task of a vector release: exact numbers in, public rows out.

Everything that is noised together has to meet, so that it can be made consistent: the exact rows are in one partition,
in their final order, before noise is added, and nothing shuffles afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_rdp.mechanisms.base import Additive
from spark_rdp.randomness import DIGEST_BYTES, KeyedBits, stream_key
from spark_rdp.vectors import Vector, VectorPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

#: The column of the exact numbers.
EXACT = "exact"
#: So many numbers are noised at a time.
_AT_A_TIME = 2**16


def add_noise(
    frame: DataFrame, plan: VectorPlan, vector: Vector, schema: StructType, secret: bytes, release_id: str
) -> DataFrame:
    """The public rows of a vector release.

    Args:
        frame: The exact numbers in the BIGINT column `EXACT`, behind the declared keys: one partition, in order.
        plan: The plan of the release.
        vector: What is made of the numbers.
        schema: The public columns.
        secret: 32 random bytes; only a key derived from it travels to the executor.
        release_id: Separates the noise of releases that share a secret.

    Returns:
        As lazy as ``frame``.
    """
    key = stream_key(secret, release_id, plan.kind, plan.noise.plan_id)
    return frame.mapInArrow(_Task(plan.noise.build(), vector, key, tuple(schema.names)), schema)


def noised(mechanism: Additive, key: bytes, values: np.ndarray) -> np.ndarray:
    """Noise for each number: a function of the key, the place of the number and the number itself."""
    parts = [np.empty(0, dtype=np.int64)]
    for start in range(0, len(values), _AT_A_TIME):
        numbers = np.ascontiguousarray(values[start : start + _AT_A_TIME], dtype=np.int64)
        digests = np.zeros((len(numbers), 2), dtype=np.uint64)
        digests[:, 0] = np.arange(start, start + len(numbers))
        bits = KeyedBits(key, digests.view(np.uint8).reshape(-1, DIGEST_BYTES), numbers)
        parts.append(mechanism.release(numbers, bits))
    return np.concatenate(parts)


@dataclass(frozen=True)
class _Task:
    """What travels to the executor."""

    mechanism: Additive
    vector: Vector
    key: bytes
    columns: tuple[str, ...]

    def __repr__(self) -> str:
        return f"noise for {', '.join(self.columns)}"  # never the key

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        received = list(batches)
        if not received:  # an empty partition beside the one that holds the rows
            return
        table = pa.Table.from_batches(received)
        exact = table.column(EXACT).to_numpy().astype(np.int64, copy=False)
        numbers = noised(self.mechanism, self.key, self.vector.measured(exact))
        public = self.vector.published(numbers, table.drop_columns([EXACT])).select(list(self.columns))
        yield from public.combine_chunks().to_batches(max_chunksize=_AT_A_TIME)
