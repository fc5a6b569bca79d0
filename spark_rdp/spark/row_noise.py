"""Noise for a batch of rows: what runs in the executors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_rdp.collection import CollectPlan, ColumnPlan, Share
from spark_rdp.digests import RowDigests
from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.local import BLOCK, Local
from spark_rdp.mechanisms.local_build import build_local
from spark_rdp.queries import CellColumn, CollectQuery
from spark_rdp.randomness import KeyedBits, stream_key
from spark_rdp.spark.cell_noise import CellNoise


@dataclass(frozen=True)
class ColumnNoise:
    """What travels to the executors for one column.

    Attributes:
        where: The column, for messages.
        mechanism, parameters: The noise of one value.
        keys: The key of the stream of each value: one, or one for each element of an array.
        length: How many elements its arrays have; None for single values.
        share: Which of the draws decides what is reported; None where all is.
        first: The place of its first value in that draw.
        unsampled: What stands for a value that is not reported.
        scale: What the distance of a report from ``unsampled`` is multiplied by.
        clamp, accept_missing: What is done with values out of range, and with missing ones.
    """

    where: str
    mechanism: str
    parameters: dict[str, Any]
    keys: tuple[bytes, ...] = field(repr=False)
    length: int | None
    share: int | None
    first: int
    unsampled: float
    scale: float
    clamp: bool
    accept_missing: bool

    @cached_property
    def built(self) -> Local:
        """The mechanism; built where it is first used."""
        return build_local(self.mechanism, self.parameters)

    def noised(self, column: pa.Array, digests: np.ndarray, reported: np.ndarray | None) -> pa.Array:
        """The published column.

        Args:
            column: The values, as doubles or lists of doubles.
            digests: uint8 of shape (n, 16), of the rows.
            reported: bool of shape (values of the column, n), or None if all are reported.
        """
        if self.length is None:
            return pa.array(self._published(0, column.to_numpy(zero_copy_only=False), digests, reported))
        elements = self._elements(column, self.length)
        noisy = np.empty((len(column), self.length))
        for place, values in enumerate(elements):
            noisy[:, place] = self._published(place, values, digests, reported)
        offsets = np.arange(0, noisy.size + 1, self.length, dtype=np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(noisy.ravel()))

    def _published(
        self, place: int, values: np.ndarray, digests: np.ndarray, reported: np.ndarray | None
    ) -> np.ndarray:
        self._check(values)
        if reported is None:
            return keyed_noise(self.built, self.keys[place], values, digests)
        rows = np.flatnonzero(reported[place])
        reports = keyed_noise(self.built, self.keys[place], values[rows], digests[rows])
        published = np.full(len(values), self.unsampled)
        published[rows] += self.scale * (reports - self.unsampled)
        return published

    def _check(self, values: np.ndarray) -> None:
        if not self.accept_missing and np.isnan(values).any():
            raise InvalidInput(f"{self.where} must have no missing values. Use null_policy: midpoint or drop.")
        if not self.clamp and ((values < self.built.lower) | (values > self.built.upper)).any():
            raise InvalidInput(f"{self.where} must lie within lower and upper in every row. Use invalid: clamp.")

    def _elements(self, column: pa.ListArray, length: int) -> np.ndarray:
        """float64 of shape (length, n): the first elements of each array; NaN for those it does not have."""
        counts = pc.list_value_length(column).fill_null(0).to_numpy()
        if not self.clamp and ((counts != length) & column.is_valid().to_numpy(zero_copy_only=False)).any():
            raise InvalidInput(f"{self.where} must hold arrays of {length} elements in every row. Use invalid: clamp.")
        # One more, so that there is something to look at beside arrays that are all empty.
        flat = np.append(column.values.to_numpy(zero_copy_only=False), np.nan)
        places = np.arange(length)[:, None]
        found = column.offsets.to_numpy()[:-1] + places
        return np.where(places < counts, flat[np.minimum(found, len(flat) - 1)], np.nan)


@dataclass(frozen=True)
class Draw:
    """Which values of a share each row reports: ``reported`` of them, every choice as likely as every other."""

    key: bytes = field(repr=False)
    values: int
    reported: int

    def of(self, digests: np.ndarray) -> np.ndarray:
        """bool of shape (values, n): a function of the row keys alone."""
        chosen = np.zeros((len(digests), self.values), dtype=bool)
        for start in range(0, len(digests), BLOCK):
            rows = digests[start : start + BLOCK]
            words = KeyedBits(self.key, rows, np.zeros(len(rows), dtype=np.int64)).words(0, self.values)
            lowest = np.argpartition(words, self.reported - 1, axis=1)[:, : self.reported]
            np.put_along_axis(chosen[start : start + BLOCK], lowest, True, axis=1)
        return chosen.T


@dataclass(frozen=True)
class RowNoise:
    """The noise of all columns of a row; a few KiB that travel to the executors, no secret but keys derived from it.

    Attributes:
        key_name: What messages call the row key.
        key: Of the digests of rows.
        width: How many columns the row key has.
        columns: The noised columns.
        draws: What the shares report that do not report all.
    """

    key_name: str
    key: bytes = field(repr=False)
    width: int
    columns: tuple[ColumnNoise | CellNoise, ...]
    draws: tuple[Draw, ...]

    @classmethod
    def of(cls, query: CollectQuery, plan: CollectPlan, secret: bytes) -> RowNoise:
        """The noise of a collection under a secret."""
        sampled = [share for share in plan.shares if share.reported < share.values]
        draws = tuple(_draw(query, share, secret) for share in sampled)
        columns: list[ColumnNoise | CellNoise] = []
        for place, (item, planned) in enumerate(zip(query.columns, plan.columns.values(), strict=True)):
            if isinstance(item, CellColumn):
                columns.append(CellNoise.of(query, place, item, planned, _keys(query, planned, secret)[0]))
                continue
            shared = planned.share.columns[: planned.share.columns.index(item.column)]
            columns.append(
                ColumnNoise(
                    where=f"columns[{place}] ({item.column})",
                    mechanism=planned.plan.mechanism,
                    parameters=planned.plan.parameters,
                    keys=_keys(query, planned, secret),
                    length=item.length,
                    share=sampled.index(planned.share) if planned.share in sampled else None,
                    first=sum(plan.columns[name].length or 1 for name in shared),
                    unsampled=planned.unsampled or 0.0,
                    scale=planned.share.scale,
                    clamp=query.invalid == "clamp",
                    accept_missing=query.null_policy != "error",
                )
            )
        key = stream_key(secret, query.name, "row key", *query.noise_key)
        name = "row_key" if query.memoize is None else "memoize.by"
        return cls(name, key, len(query.noise_key), tuple(columns), draws)

    def noised(self, digests: RowDigests, batch: Sequence[pa.Array]) -> list[pa.Array]:
        """The published columns of a batch: of its row keys and then its values."""
        if any(part.null_count for part in batch[: self.width]):
            raise InvalidInput(f"{self.key_name} must not be null in any row. Derive a key that is always there.")
        rows = digests.of(batch[: self.width])
        draws = [draw.of(rows) for draw in self.draws]
        published = []
        for column, values in zip(self.columns, batch[self.width :], strict=True):
            reported = None if column.share is None else draws[column.share][column.first :]
            published.append(column.noised(values, rows, reported))
        return published


def _keys(query: CollectQuery, planned: ColumnPlan, secret: bytes) -> tuple[bytes, ...]:
    """A stream for each value of the column. Another noise is another stream: one draw must never serve two scales."""
    labels = query.name, "noise", planned.column, planned.stream
    return tuple(stream_key(secret, *labels, str(place)) for place in range(planned.length or 1))


def _draw(query: CollectQuery, share: Share, secret: bytes) -> Draw:
    numbers = share.values, share.reported
    return Draw(stream_key(secret, query.name, "reported", *share.columns, *map(str, numbers)), *numbers)


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
