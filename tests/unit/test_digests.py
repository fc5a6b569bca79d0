"""Names of rows: the CBC-MAC of their key, whatever batch they are in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from spark_rdp.digests import RowDigests

KEY = bytes(range(32))


def reference(message: bytes) -> bytes:
    """The CBC-MAC of whole blocks, by the library's own CBC mode."""
    return Cipher(algorithms.AES(KEY), modes.CBC(bytes(16))).encryptor().update(message)[-16:]


def word(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)


def padded(text: bytes) -> bytes:
    return text + bytes(-len(text) % 16)


def test_it_is_the_mac_of_numbers_lengths_and_texts() -> None:
    texts = [b"x" * length for length in (0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 100)] + ["naïve €".encode()]
    numbers = np.arange(-3, len(texts) - 3)
    found = RowDigests(KEY).of([pa.array(texts), pa.array(numbers), pa.array(texts[::-1])])
    assert found.shape == (len(texts), 16)
    for row, text, number, other in zip(found, texts, numbers.tolist(), texts[::-1], strict=True):
        head = word(number) + word(len(text)) + word(len(other)) + word(0)
        assert bytes(row) == reference(head + padded(text) + padded(other))


def test_a_digest_does_not_depend_on_the_batch() -> None:
    texts = pa.array(["device-" + "0123456789" * (place % 5) + str(place) for place in range(500)])
    numbers = pa.array(np.arange(500) % 7)
    digests = RowDigests(KEY)
    whole = digests.of([texts, numbers])
    for start, size in [(0, 500), (0, 1), (17, 100), (499, 1), (3, 0)]:
        part = digests.of([texts.slice(start, size), numbers.slice(start, size)])
        assert np.array_equal(part, whole[start : start + size])
    large = digests.of([texts.cast(pa.large_string()), numbers])
    assert np.array_equal(large, whole)
    assert len(np.unique(whole, axis=0)) == 500


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("ab", "c"), ("a", "bc")),
        (("", "a"), ("a", "")),
        (("a", ""), ("a\0", "")),
        (("x" * 16, ""), ("x" * 16, "\0")),
        (("x" * 16, "y" * 16), ("x" * 16 + "y" * 16, "")),
    ],
)
def test_keys_that_read_alike_stay_apart(first: tuple[str, str], second: tuple[str, str]) -> None:
    found = RowDigests(KEY).of([pa.array([first[0], second[0]]), pa.array([first[1], second[1]])])
    assert not np.array_equal(found[0], found[1])


def test_another_key_gives_other_digests() -> None:
    texts = pa.array(["a", "b"])
    assert not np.array_equal(RowDigests(KEY).of([texts]), RowDigests(bytes(32)).of([texts]))
