"""Random words: keyed, repeatable, independent between lanes, rows, values and keys."""

from __future__ import annotations

import os
from functools import partial

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy.stats import chisquare

from spark_rdp.errors import InvalidInput
from spark_rdp.randomness import Bits, KeyedBits, SystemBits, bernoulli, load_secret, stream_key, uniform_below

KEY = bytes(range(32))


def keyed(n: int, key: bytes = KEY, value: int = 7) -> KeyedBits:
    digests = np.zeros((n, 16), dtype=np.uint8)
    digests[:, :4] = np.arange(n, dtype=np.uint32).view(np.uint8).reshape(n, 4)
    return KeyedBits(key, digests, np.full(n, value))


def test_words_are_the_cbc_mac_of_digest_value_lane_and_block() -> None:
    encryptor = Cipher(algorithms.AES(KEY), modes.ECB()).encryptor()
    digest = bytes(range(16))
    first = encryptor.update(digest)
    message = np.array([-5], dtype=np.int64).tobytes() + (3).to_bytes(4, "little") + (1).to_bytes(4, "little")
    expected = encryptor.update(bytes(a ^ b for a, b in zip(first, message, strict=True)))
    words = KeyedBits(KEY, np.frombuffer(digest, dtype=np.uint8)[None], np.array([-5])).words(3, 4)
    assert words[0, 2:].tobytes() == expected


def test_same_row_same_words_however_asked() -> None:
    bits = keyed(100)
    whole = bits.words(5, 6)
    rows = np.array([3, 99, 0])
    assert np.array_equal(bits.words(5, 6), whole)
    assert np.array_equal(bits.words(5, 2, rows), whole[rows, :2])
    assert np.array_equal(keyed(100).words(5, 6), whole)


def test_pairs_are_the_words_of_the_lane() -> None:
    """However they are asked for: by the fast way of keyed bits, and by the way of all bits."""
    bits = keyed(100)
    whole = bits.words(5, 8)
    rows, places = np.array([3, 99, 0, 3]), np.array([0, 3, 2, 1])
    for pair in (bits.pair, partial(Bits.pair, bits)):
        for place in range(4):
            expected = whole[:, 2 * place : 2 * place + 2]
            assert np.array_equal(pair(5, place), expected)
            assert np.array_equal(pair(5, place, rows), expected[rows])
        chosen = [whole[row, 2 * place : 2 * place + 2] for row, place in zip(rows, places, strict=True)]
        assert np.array_equal(pair(5, places, rows), chosen)
    assert keyed(0).pair(5, 1).shape == (0, 2)


def test_key_row_value_and_lane_each_change_the_words() -> None:
    bits = keyed(1000)
    variants = [
        bits.words(0, 4),
        bits.words(1, 4),
        keyed(1000, value=8).words(0, 4),
        keyed(1000, KEY[::-1]).words(0, 4),
    ]
    everything = np.concatenate([v.ravel() for v in variants])
    assert len(np.unique(everything)) == len(everything)  # a chance repeat has probability below 1e-11


def test_empty_batch() -> None:
    assert keyed(0).words(0, 3).shape == (0, 3)
    assert uniform_below(keyed(0), 0, 10).shape == (0,)


def test_system_bits_never_repeat() -> None:
    assert not np.any(SystemBits(100).words(0, 2) == SystemBits(100).words(0, 2))


def test_stream_keys_depend_on_every_label_and_its_place() -> None:
    keys = {stream_key(KEY, *labels) for labels in [("a", "bc"), ("ab", "c"), ("a", "bc", ""), ("bc", "a"), ()]}
    assert len(keys) == 5
    assert all(len(key) == 32 for key in keys)


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 1000])
def test_uniform_below_is_uniform(bound: int) -> None:
    """Chi-square over all values; false alarms 1e-7 each."""
    draws = uniform_below(SystemBits(200_000), 0, bound)
    assert draws.min() >= 0
    assert draws.max() < bound
    if bound > 1:
        assert chisquare(np.bincount(draws, minlength=bound)).pvalue > 1e-7


def test_uniform_below_refuses_unfair_words() -> None:
    """A bound of 2**62 - 1 leaves words over that must be drawn again; the result stays in range and repeatable."""
    bits = keyed(50_000)
    bound = 2**62 - 1
    draws = uniform_below(bits, 0, bound)
    assert draws.min() >= 0
    assert draws.max() < bound
    assert np.array_equal(draws[:100], uniform_below(bits, 0, bound, np.arange(100)))


def test_bernoulli_rate() -> None:
    """1e6 draws; a rate off by 5.5 standard errors has a chance of 4e-8."""
    draws = bernoulli(SystemBits(1_000_000), 0, round(0.3 * 2**64))
    assert abs(draws.mean() - 0.3) < 5.5 * (0.21 / 1e6) ** 0.5
    assert not bernoulli(SystemBits(1000), 0, 0).any()


def test_load_secret(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("MY_SECRET", "ab" * 32)
    assert load_secret("env:MY_SECRET") == b"\xab" * 32
    path = tmp_path / "secret"
    path.write_text("cd" * 32 + "\n")
    os.chmod(path, 0o600)
    assert load_secret(f"file:{path}") == b"\xcd" * 32


@pytest.mark.parametrize("location", ["env:", "env:NOT_SET", "file:/no/such", "ab" * 32, "env:SHORT", "file:OPEN"])
def test_bad_secrets_are_refused_without_echoing_them(location: str, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SHORT", "abcd1234")
    if location == "file:OPEN":
        path = tmp_path / "secret"
        path.write_text("cd" * 32)
        os.chmod(path, 0o644)
        location = f"file:{path}"
    with pytest.raises(InvalidInput, match=r"^secret must ") as refusal:
        load_secret(location)
    assert "abcd1234" not in str(refusal.value)
    assert "abab" not in str(refusal.value)
