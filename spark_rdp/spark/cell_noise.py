"""Noise for a batch of cells: what runs in the executors."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from spark_rdp.collection import ColumnPlan
from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.finite.base import Finite
from spark_rdp.mechanisms.finite.build import build_finite
from spark_rdp.mechanisms.local import BLOCK
from spark_rdp.queries import CellColumn, CollectQuery
from spark_rdp.randomness import KeyedBits

#: Stands for a value that is none of the cells.
NO_CELL = -1


@dataclass(frozen=True)
class CellNoise:
    """What travels to the executors for a column of cells; the mechanism is built where it is first used.

    Attributes:
        where: The column, for messages.
        mechanism, parameters: The noise.
        key: Of the stream of the column.
        labels: What the cells are published as; their numbers, if None.
        missing: The cell that stands for a missing value; None if nothing does.
        accept_missing: Whether a missing value may stand for that cell.
    """

    #: Cells have a budget of their own: every row reports its cell.
    share: ClassVar[None] = None
    first: ClassVar[int] = 0

    where: str
    mechanism: str
    parameters: dict[str, Any]
    key: bytes = field(repr=False)
    labels: tuple[str, ...] | None
    missing: int | None
    accept_missing: bool

    @classmethod
    def of(cls, query: CollectQuery, place: int, item: CellColumn, planned: ColumnPlan, key: bytes) -> CellNoise:
        """The noise of a planned column."""
        return cls(
            where=f"columns[{place}] ({item.column})",
            mechanism=planned.plan.mechanism,
            parameters=planned.plan.parameters,
            key=key,
            labels=getattr(item, "labels", None),
            missing=item.missing_cell,
            accept_missing=query.null_policy != "error",
        )

    @cached_property
    def built(self) -> Finite:
        """The mechanism."""
        return build_finite(self.mechanism, self.parameters)

    def noised(self, column: pa.Array, digests: np.ndarray, _reported: np.ndarray | None) -> pa.Array:
        """The published column.

        Args:
            column: The cells as int64, null where a value is missing, NO_CELL where it is none of the cells.
            digests: uint8 of shape (n, 16), of the rows.
        """
        published = keyed_cells(self.built, self.key, self._checked(column), digests)
        if self.labels is None:
            return pa.array(published)
        return pa.DictionaryArray.from_arrays(
            pa.array(published), pa.array(self.labels, pa.string())
        ).dictionary_decode()

    def _checked(self, column: pa.Array) -> np.ndarray:
        if column.null_count:
            if not self.accept_missing:
                raise InvalidInput(f"{self.where} must have no missing values. Use null_policy: midpoint or drop.")
            if self.missing is None:
                raise InvalidInput(f"{self.where} must have no missing values. Declare other, which stands for them.")
            column = column.fill_null(self.missing)
        cells = np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)
        if len(cells) and cells.min() < 0:
            if self.labels is None:
                raise InvalidInput(f"{self.where} must lie in the box in every row. Use invalid: clamp.")
            raise InvalidInput(f"{self.where} must be one of its categories in every row. Declare other for the rest.")
        return cells


def keyed_cells(mechanism: Finite, key: bytes, cells: np.ndarray, digests: np.ndarray) -> np.ndarray:
    """Cells with noise that is a function of the key, the digest of the row and the cell.

    Args:
        mechanism: Which noise.
        key: 32 bytes from `stream_key`.
        cells: int64 of shape (n,).
        digests: uint8 of shape (n, 16).
    """
    result = np.empty(len(cells), dtype=np.int64)
    for start in range(0, len(cells), BLOCK):  # short arrays stay in the cache
        block = cells[start : start + BLOCK]
        bits = KeyedBits(key, digests[start : start + BLOCK], block)
        result[start : start + BLOCK] = mechanism.release(block, bits)
    return result
