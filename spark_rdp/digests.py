"""128-bit names of rows: the CBC-MAC (AES-256) of the columns of their key, over whole batches at a time.

A keyed digest: nobody without the secret can make two keys that share one. In a fixed order of columns the encoding of
a key is prefix-free - whole numbers and lengths of texts first, then the texts in blocks - which is what a CBC-MAC
needs to be a pseudo-random function (Bellare, Kilian, Rogaway 2000).

Why keys come to Python as they are, instead of being hashed in the JVM: whoever can choose a row key that shares its
digest with another's learns from the noise whether the two values are equal. Spark's fast hash does not prevent that:
in xxhash64 of 64 bytes, flipping the top bit of the first word and taking 2**30 P1 / P2 from the fifth gives the same
hash under every second seed, so hashing twice under secret seeds fails one time in four. Its cryptographic hashes (md5,
sha2, as hexadecimal texts) take longer than the whole way of the text to Python and back.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from spark_rdp.randomness import DIGEST_BYTES

#: Rows at a time: arrays of this length stay in the cache.
_ROWS = 4096
_PADDING = np.zeros(DIGEST_BYTES, dtype=np.uint8)
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
        columns = [item if pa.types.is_integer(item.type) else item.cast(pa.large_binary()) for item in columns]
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
            for place in range(0, text.longest, DIGEST_BYTES):
                if place < text.shortest:  # all rows: no copies of parts
                    state = self._encrypt(state ^ text.block(place))
                else:
                    rows = np.flatnonzero(text.lengths > place)
                    state[rows] = self._encrypt(state[rows] ^ text.block(place, rows))
        return state

    def _encrypt(self, blocks: np.ndarray) -> np.ndarray:
        output = np.empty(blocks.nbytes + DIGEST_BYTES - 1, dtype=np.uint8)
        self._encryptor.update_into(np.ascontiguousarray(blocks).data.cast("B"), output.data)
        return output[: blocks.nbytes].view(np.uint64).reshape(blocks.shape)


class _Texts:
    """The bytes of a column of texts, block after block.

    Attributes:
        lengths: int64, in bytes.
        shortest, longest: The least and the largest of them.
    """

    def __init__(self, column: pa.Array) -> None:
        _, offsets, data = column.buffers()
        ends = np.frombuffer(offsets, dtype=np.int64)[column.offset : column.offset + len(column) + 1]
        first, last = (int(ends[0]), int(ends[-1])) if len(ends) else (0, 0)
        octets = np.frombuffer(data or b"", dtype=np.uint8)[first:]
        if len(octets) < last - first + DIGEST_BYTES:  # nothing lies behind the last text of a batch
            octets = np.concatenate([octets[: last - first], _PADDING])
        # Sixteen bytes from any place on, as one item.
        self._blocks = np.ndarray(last - first + 1, dtype="V16", buffer=octets, strides=(1,))
        self._starts = ends[:-1] - first
        self.lengths = np.diff(ends)
        self.shortest, self.longest = (int(self.lengths.min()), int(self.lengths.max())) if len(column) else (0, 0)

    def block(self, place: int, rows: np.ndarray | None = None) -> np.ndarray:
        """The sixteen bytes from ``place`` on of some rows, with zeros after the end of the text."""
        if self.shortest == self.longest:  # the texts lie at one distance from each other, and all rows are wanted
            found = self._blocks[place : len(self._blocks) - 1 : self.longest]
        else:
            found = self._blocks[(self._starts if rows is None else self._starts[rows]) + place]
        words = np.ascontiguousarray(found).view(np.uint64).reshape(-1, 2)
        if self.shortest < place + DIGEST_BYTES:  # some texts end here
            left = np.minimum((self.lengths if rows is None else self.lengths[rows]) - place, DIGEST_BYTES)
            words = words & _LEFT.take(left, axis=0)
        return words
