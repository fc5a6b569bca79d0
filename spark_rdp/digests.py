"""128-bit names of rows: the CBC-MAC (AES-256) of the columns of their key, over whole batches at a time.

A keyed digest: nobody without the secret can make two keys that share one. In a fixed order of columns the encoding of
a key is prefix-free - whole numbers and lengths of texts first, then the texts in blocks - which is what a CBC-MAC
needs to be a pseudo-random function (Bellare, Kilian, Rogaway 2000).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from spark_rdp.randomness import DIGEST_BYTES

#: Rows at a time: arrays of this length stay in the cache.
_ROWS = 4096
#: Which bits of a block's two words belong to a text that has 0, 1, ..., 16 bytes left.
_LEFT = np.array(
    [[(1 << 8 * min(max(left - word * 8, 0), 8)) - 1 for word in (0, 1)] for left in range(DIGEST_BYTES + 1)],
    dtype=np.uint64,
)


class RowDigests:
    """Digests under one key.

    Args:
        key: 32 bytes from `stream_key`.
    """

    def __init__(self, key: bytes) -> None:
        self._encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()

    def of(self, columns: Sequence[pa.Array]) -> np.ndarray:
        """The digests of the rows of a batch; they do not depend on which rows share a batch.

        Args:
            columns: The columns of the key, without nulls: int64, or text or bytes.

        Returns:
            uint8 of shape (n, 16).
        """
        digests = np.empty((len(columns[0]), DIGEST_BYTES), dtype=np.uint8)
        for start in range(0, len(digests), _ROWS):
            part = [column.slice(start, _ROWS) for column in columns]
            digests[start : start + _ROWS] = self._of(part).view(np.uint8)
        return digests

    def _of(self, columns: Sequence[pa.Array]) -> np.ndarray:
        """The digests of some rows, as two words each."""
        texts = [_Texts(column) for column in columns if not pa.types.is_integer(column.type)]
        numbers = [column.to_numpy() for column in columns if pa.types.is_integer(column.type)]
        heads = [*numbers, *(text.lengths for text in texts)]
        state = np.zeros((len(columns[0]), 2), dtype=np.uint64)
        for place in range(0, len(heads), 2):
            for word, head in enumerate(heads[place : place + 2]):
                state[:, word] ^= head.view(np.uint64)
            state = self._encrypt(state)
        for text in texts:
            while len(text.rows) == len(state) > 0:  # all rows: no copies of parts
                state = self._encrypt(state ^ text.block())
            while len(text.rows):
                rows = text.rows
                state[rows] = self._encrypt(state[rows] ^ text.block())
        return state

    def _encrypt(self, blocks: np.ndarray) -> np.ndarray:
        output = np.empty(blocks.nbytes + DIGEST_BYTES - 1, dtype=np.uint8)
        self._encryptor.update_into(np.ascontiguousarray(blocks).data.cast("B"), output.data)
        return output[: blocks.nbytes].view(np.uint64).reshape(blocks.shape)


class _Texts:
    """The bytes of a column of texts, block after block.

    Attributes:
        lengths: int64, in bytes.
        rows: The rows that have a next block.
    """

    def __init__(self, column: pa.Array) -> None:
        column = column.cast(pa.large_binary())
        _, offsets, data = column.buffers()
        ends = np.frombuffer(offsets, dtype=np.int64)[column.offset : column.offset + len(column) + 1]
        first, last = (int(ends[0]), int(ends[-1])) if len(ends) else (0, 0)
        padded = np.zeros(last - first + DIGEST_BYTES, dtype=np.uint8)
        if last > first:
            padded[: last - first] = np.frombuffer(data, dtype=np.uint8)[first:last]
        # Sixteen bytes from any place on, as one item.
        self._blocks = np.ndarray(last - first + 1, dtype="V16", buffer=padded, strides=(1,))
        self.lengths = np.diff(ends)
        self.rows = np.flatnonzero(self.lengths)
        self._starts = (ends[:-1] - first)[self.rows]
        self._left = self.lengths[self.rows]

    def block(self) -> np.ndarray:
        """The next sixteen bytes of `rows`, with zeros after the end of the text."""
        words = self._blocks[self._starts].view(np.uint64).reshape(-1, 2)
        if self._left.min() <= DIGEST_BYTES:  # some texts end here
            words &= _LEFT.take(np.minimum(self._left, DIGEST_BYTES), axis=0)
            more = np.flatnonzero(self._left > DIGEST_BYTES)
            self.rows, self._starts, self._left = self.rows[more], self._starts[more], self._left[more]
        self._starts = self._starts + DIGEST_BYTES
        self._left = self._left - DIGEST_BYTES
        return words
