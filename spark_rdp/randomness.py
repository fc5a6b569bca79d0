"""Random bits for noise: cryptographic, keyed by the row, and the same at every re-evaluation.

A row's bits are AES-256 over (digest of the row key, value being noised, lane, block): the CBC-MAC of two blocks,
a pseudo-random function for messages of one fixed length. The same row and value give the same noise however
often Spark computes them; another value gives unrelated noise, so that a changed input never reveals a difference.
"""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from spark_rdp.errors import InvalidInput, invalid

SECRET_BYTES = 32
DIGEST_BYTES = 16
#: Lanes below this number may be used by mechanisms; the bits above it count the attempts of a rejection.
LANES = 2**16


class Bits(ABC):
    """Independent uniform 64-bit words for each of ``size`` rows, arranged in lanes.

    The same row and lane give the same words at every call; different lanes are independent.
    """

    size: int

    @abstractmethod
    def words(self, lane: int, count: int, rows: np.ndarray | None = None) -> np.ndarray:
        """Return uint64 words of shape (number of rows, ``count``).

        Args:
            lane: Which stream of the row, 0 <= lane < 2**32.
            count: How many words a row.
            rows: Positions of the rows wanted; all rows when absent.
        """

    def pair(self, lane: int, place: int | np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """Words ``2 * place`` and ``2 * place + 1`` of a lane, of shape (number of rows, 2), one row behind the other.

        Wide lanes are read pair by pair: short arrays stay in the cache.

        Args:
            lane, rows: As for `words`.
            place: Which pair, below 2**31; one number, or int64 with one for each row.
        """
        words = self.words(lane, 2 * int(np.max(place, initial=0)) + 2, rows)
        columns = 2 * np.reshape(place, (-1, 1)) + np.arange(2)
        return np.take_along_axis(words, np.broadcast_to(columns, (len(words), 2)), axis=1)


class KeyedBits(Bits):
    """Bits keyed by a stream key, a 128-bit row digest and the 64-bit value being noised.

    Args:
        key: 32 bytes from `stream_key`.
        digests: uint8 of shape (n, 16), digests of the row keys.
        values: int64 of shape (n,), the values that will be noised with these bits.
    """

    def __init__(self, key: bytes, digests: np.ndarray, values: np.ndarray) -> None:
        blocks = np.ascontiguousarray(digests, dtype=np.uint8)
        numbers = np.ascontiguousarray(values, dtype=np.int64)
        if len(key) != SECRET_BYTES or blocks.shape != (len(numbers), DIGEST_BYTES):
            raise ValueError("KeyedBits needs a 32-byte key, digests of shape (n, 16) and values of shape (n,)")
        self.size = len(numbers)
        self._encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
        self._base = self._encrypt(blocks.view(np.uint64))
        self._base[:, 0] ^= numbers.view(np.uint64)

    def _encrypt(self, blocks: np.ndarray) -> np.ndarray:
        """Encrypt contiguous uint64 pairs; the shape is kept."""
        if blocks.size == 0:
            return np.empty(blocks.shape, dtype=np.uint64)
        output = np.empty(blocks.nbytes + DIGEST_BYTES - 1, dtype=np.uint8)
        self._encryptor.update_into(blocks.data.cast("B"), output.data)
        return output[: blocks.nbytes].view(np.uint64).reshape(blocks.shape)

    def words(self, lane: int, count: int, rows: np.ndarray | None = None) -> np.ndarray:
        pairs = (count + 1) // 2
        if pairs == 1:
            return self.pair(lane, 0, rows)[:, :count]
        base = self._base if rows is None else self._base.take(rows, axis=0)
        blocks = np.empty((len(base), pairs, 2), dtype=np.uint64)
        for pair in range(pairs):  # long inner loops: NumPy is slow over short last axes
            blocks[:, pair, 0] = base[:, 0]
            np.bitwise_xor(base[:, 1], np.uint64(pair << 32 | lane), out=blocks[:, pair, 1])
        return self._encrypt(blocks).reshape(len(base), 2 * pairs)[:, :count]

    def pair(self, lane: int, place: int | np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        blocks = self._base.copy() if rows is None else self._base.take(rows, axis=0)
        blocks[:, 1] ^= np.asarray(place << 32 | lane).view(np.uint64)
        return self._encrypt(blocks)


class SystemBits(KeyedBits):
    """Bits from the operating system: a fresh random key, rows told apart by their position."""

    def __init__(self, size: int) -> None:
        digests = np.zeros((size, 2), dtype=np.uint64)
        digests[:, 0] = np.arange(size)
        super().__init__(new_secret(), digests.view(np.uint8), np.zeros(size, dtype=np.int64))


def new_secret() -> bytes:
    """Draw 256 bits from the operating system."""
    return os.urandom(SECRET_BYTES)


def load_secret(location: str) -> bytes:
    """Read a persistent secret of 64 hexadecimal digits.

    Args:
        location: ``env:NAME`` for an environment variable, or ``file:PATH`` for a file that only its owner can read.
    """
    cure = "Make one with: python3 -c 'import secrets; print(secrets.token_hex(32))'."
    kind, _, place = location.partition(":")
    if kind == "env" and place:
        text = os.environ.get(place)
        if text is None:
            raise InvalidInput(f"secret must name a set environment variable; {place} is not set. {cure}")
    elif kind == "file" and place:
        path = Path(place)
        if not path.is_file():
            raise invalid("secret", "an existing file", location, cure)
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise invalid("secret", "a file only its owner can read", location, f"Run: chmod 600 {place}")
        text = path.read_text(encoding="utf-8")
    else:
        raise InvalidInput(
            "secret must be env:NAME or file:PATH; the secret itself never belongs into a configuration."
        )
    try:
        secret = bytes.fromhex(text.strip())
    except ValueError:
        secret = b""
    if len(secret) != SECRET_BYTES:
        raise InvalidInput(f"secret must be 64 hexadecimal digits in {location}; what is there is not. {cure}")
    return secret


def stream_key(secret: bytes, *labels: str) -> bytes:
    """Derive the key of one stream (HKDF-SHA256).

    Args:
        secret: 32 bytes.
        labels: What the stream is for: release id, column, plan id. Another plan is another stream: one draw must
            never serve two scales.
    """
    encoded = [label.encode("utf-8") for label in labels]
    info = b"spark_rdp stream" + b"".join(len(label).to_bytes(8, "big") + label for label in encoded)
    return HKDF(algorithm=hashes.SHA256(), length=SECRET_BYTES, salt=None, info=info).derive(secret)


def bernoulli(bits: Bits, lane: int, threshold: np.ndarray | int, rows: np.ndarray | None = None) -> np.ndarray:
    """True with probability ``threshold / 2**64``, for each row."""
    return bits.words(lane, 1, rows)[:, 0] < np.asarray(threshold, dtype=np.uint64)


def uniform_below(bits: Bits, lane: int, bound: int, rows: np.ndarray | None = None) -> np.ndarray:
    """Uniform integers in [0, bound), exactly, as int64; ``1 <= bound <= 2**62``, ``lane < LANES``."""
    positions = np.arange(bits.size) if rows is None else np.asarray(rows)
    result = np.empty(len(positions), dtype=np.int64)
    last_fair = np.uint64(2**64 // bound * bound - 1)
    waiting = np.arange(len(positions))
    attempt = 0
    while len(waiting):
        words = bits.words(lane + attempt * LANES, 1, positions[waiting])[:, 0]
        fair = words <= last_fair
        result[waiting[fair]] = (words[fair] % np.uint64(bound)).astype(np.int64)
        waiting = waiting[~fair]
        attempt += 1
    return result
