"""Batches of the executors: what is computed together, and that no row is lost, doubled or moved."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from spark_rdp.mechanisms.local import BLOCK
from spark_rdp.spark import batches
from spark_rdp.spark.batches import Batch, by_long_batches


def cut(batch: Batch, lengths: list[int]) -> Iterator[Batch]:
    start = 0
    for length in lengths:
        yield tuple(column.slice(start, length) for column in batch)
        start += length


def rows(count: int) -> Batch:
    """A number, a text that is sometimes null, and a list of zero to two numbers, in each row."""
    return (
        pa.array(range(count), pa.int64()),
        pa.array([None if row % 7 == 0 else f"row {row}" for row in range(count)], pa.string()),
        pa.array([[float(row)] * (row % 3) for row in range(count)], pa.list_(pa.float64())),
    )


class Seen:
    """A function of rows: all columns in a struct; it notes how many rows came together."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def __call__(self, batch: Batch) -> pa.Array:
        self.lengths.append(len(batch[0]))
        return pa.StructArray.from_arrays(list(batch), names=["number", "text", "list"])


@pytest.mark.parametrize(
    ("lengths", "together"),
    [
        ([], []),
        ([0], [0]),
        ([1], [1]),
        ([4096] * 9, [BLOCK, BLOCK, 4096]),
        ([10_000] * 3, [20_000, 10_000]),
        ([BLOCK, 1, BLOCK, 100_000, 3], [BLOCK, BLOCK + 1, 100_000, 3]),
        ([5, 0, 0, 7], [12]),
    ],
)
def test_short_batches_are_computed_together_and_come_back_as_they_were(
    lengths: list[int], together: list[int]
) -> None:
    whole, function = rows(sum(lengths)), Seen()
    made = list(by_long_batches(function, cut(whole, lengths)))
    assert function.lengths == together
    assert [len(part) for part in made] == lengths
    expected = Seen()(whole)
    assert pa.chunked_array(made, expected.type).to_pylist() == expected.to_pylist()


def test_batches_of_long_rows_are_joined_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_BYTES", 1000)
    lengths: list[int] = []

    def function(batch: Batch) -> pa.Array:
        lengths.append(len(batch[0]))
        return batch[0]

    texts = (pa.array([f"{row:0400}" for row in range(10)], pa.string()),)
    made = list(by_long_batches(function, cut(texts, [1] * 10)))
    assert lengths == [3, 3, 3, 1]
    assert pa.chunked_array(made).to_pylist() == texts[0].to_pylist()


def test_nothing_is_read_ahead_of_what_is_computed() -> None:
    """A partition is not held whole, and a batch that cannot be made does not take those before it with it."""

    def source() -> Iterator[Batch]:
        yield from cut(rows(BLOCK), [BLOCK // 2] * 2)
        raise AssertionError("read ahead")

    made = by_long_batches(Seen(), source())
    assert len(next(made)) + len(next(made)) == BLOCK
