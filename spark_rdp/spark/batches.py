"""The Arrow batches that a function is given in the executors, made fit for NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from spark_rdp.mechanisms.local import BLOCK

#: The columns a function is given, for some rows.
Batch = tuple[pa.Array, ...]
#: Rows may be long: batches are not joined beyond the one that reaches this size.
_BYTES = 2**24


def by_long_batches(function: Callable[[Batch], pa.Array], batches: Iterator[Batch]) -> Iterator[pa.Array]:
    """What a function of each row makes of batches, computed for at least `BLOCK` rows together if there are as many.

    Spark hands on the batches of a columnar reader as they are, for Parquet 4096 rows each, whatever
    ``spark.sql.execution.arrow.maxRecordsPerBatch`` says: too few, because calling NumPy takes as long as their noise.

    Args:
        function: From the columns of some rows to one value for each row, which depends on nothing but the row.
        batches: As Spark hands them over.

    Yields:
        The values of each batch: of just those rows, because Spark puts a batch of a columnar source and its values
        together without counting rows.
    """
    waiting: list[Batch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += len(batch[0])
        size += sum(column.nbytes for column in batch)
        if rows >= BLOCK or size >= _BYTES:
            yield from _together(function, waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield from _together(function, waiting)


def _together(function: Callable[[Batch], pa.Array], batches: list[Batch]) -> Iterator[pa.Array]:
    if len(batches) == 1:
        yield function(batches[0])
        return
    made = function(tuple(map(pa.concat_arrays, zip(*batches, strict=True))))
    start = 0
    for batch in batches:
        yield made.slice(start, len(batch[0]))
        start += len(batch[0])


def keep_memory() -> None:
    """Let the C library keep freed blocks of up to 16 MB, for the next batch of a task.

    Else it may hand those above 128 KiB back at once, and the arrays of every batch are made of new pages: a third of
    the time of noise. glibc keeps what is no larger than the largest block that was ever freed (mallopt(3),
    M_MMAP_THRESHOLD); elsewhere this does nothing.
    """
    np.empty(2**24, dtype=np.uint8)
