"""A private quantile with an interval: three selections among the same candidates."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from spark_rdp.mechanisms.exponential import SELECTORS, Selector
from spark_rdp.randomness import DIGEST_BYTES, KeyedBits

#: What is selected: the quantile, and the ends of its interval.
TARGETS = 3


@dataclass(frozen=True)
class QuantileSelector:
    """Selects a candidate near the quantile, and one safely at or below and one safely at or above it.

    Values are counted at the candidate nearest to them, so that each candidate takes a range of ranks. The score of a
    candidate is minus the distance of a target rank from that range, times ``denominator``: 0 for the exact quantile.
    The ends aim ``shift / denominator`` ranks lower and higher. For the lower end the range of the first candidate has
    no lower end (nor that of the last one an upper end for the upper end): a target before the first value is met by
    the first candidate. So some candidate always scores 0, while every candidate on the wrong side of the exact
    quantile scores ``-shift`` or less; how large ``shift`` is decides how unlikely one is.

    One privacy unit changes each of below and up-to by so little that every score changes by at most
    ``quantile_sensitivity(numerator, denominator, cap)``: constants and maxima do not add to that.

    Args:
        value, ends: Selectors of the value and of each end; the losses of value and both ends add up.
        numerator, denominator: The level.
        shift: How far the ends aim from the level, in ranks times ``denominator``.
    """

    value: Selector
    ends: Selector
    numerator: int
    denominator: int
    shift: int

    @classmethod
    def of(cls, name: str, parameters: dict[str, Any]) -> QuantileSelector:
        """The selector that a plan describes."""
        value, ends = (SELECTORS[name](**parameters[part]) for part in ("value", "ends"))
        return cls(value, ends, parameters["numerator"], parameters["denominator"], parameters["shift"])

    def parameters(self) -> dict[str, Any]:
        """What, with the name of the selectors, rebuilds this one."""
        return {
            "value": self.value.parameters(),
            "ends": self.ends.parameters(),
            "numerator": self.numerator,
            "denominator": self.denominator,
            "shift": self.shift,
        }

    @property
    def loss(self) -> float:
        """The privacy loss of one group."""
        return self.value.loss + 2 * self.ends.loss

    def scores(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Scores of the candidates as value, as lower and as upper end.

        Args:
            counts: int64 of shape (n, m): the bounded values nearest to each candidate; totals below 2**50.
        """
        table = np.asarray(counts, dtype=np.int64)
        up_to = np.cumsum(table, axis=1)
        goal = self.numerator * up_to[:, -1:]
        # How far the range of ranks of a candidate begins above the target, and how far it ends below it.
        late, early = self.denominator * (up_to - table) - goal, goal - self.denominator * up_to
        late_low, early_low = late + self.shift, early - self.shift
        late_high, early_high = late - self.shift, early + self.shift
        late_low[:, 0] = np.minimum(late_low[:, 0], 0)
        early_high[:, -1] = np.minimum(early_high[:, -1], 0)
        pairs = ((late, early), (late_low, early_low), (late_high, early_high))
        value, low, high = (-np.maximum(np.maximum(a, b), 0) for a, b in pairs)
        return value, low, high

    def release(self, counts: np.ndarray, key: bytes, digests: np.ndarray) -> np.ndarray:
        """Select in each group.

        Args:
            counts: As for `scores`.
            key: The key of the stream.
            digests: uint8 of shape (n, 16), one per group.

        Returns:
            int64 of shape (n, 3): positions of value, lower and upper end. The ends are moved out to the value where
            they lie on the wrong side of it.
        """
        chosen = np.empty((len(counts), TARGETS), dtype=np.int64)
        zeros = np.zeros(len(counts), dtype=np.int64)
        for target, scores in enumerate(self.scores(counts)):
            # The bits depend on the group, on what is selected and on all of the exact counts.
            own = _digests(digests, counts, target)
            selector = self.ends if target else self.value
            chosen[:, target] = selector.release(scores, KeyedBits(key, own, zeros))
        value = chosen[:, 0]
        chosen[:, 1] = np.minimum(chosen[:, 1], value)
        chosen[:, 2] = np.maximum(chosen[:, 2], value)
        return chosen


def _digests(digests: np.ndarray, counts: np.ndarray, target: int) -> np.ndarray:
    table = np.ascontiguousarray(counts, dtype="<i8")
    parts = [
        hashlib.blake2b(digest.tobytes() + row.tobytes(), digest_size=DIGEST_BYTES, salt=bytes([target])).digest()
        for digest, row in zip(digests, table, strict=True)
    ]
    return np.frombuffer(b"".join(parts), dtype=np.uint8).reshape(len(counts), DIGEST_BYTES)
