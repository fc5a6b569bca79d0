"""Figures of a noise that no formula gives, from histograms noised as they will be; the same figures every time."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

from spark_rdp.mechanisms.base import Additive
from spark_rdp.metrics import RelativeEntropy
from spark_rdp.randomness import KeyedBits

#: Draws in all, and the fewest and most histograms.
_DRAWS, _FEWEST, _MOST = 2**18, 4, 2**11
#: A simulation noises a prior, which is public, so that its key can be known to everybody.
_OPEN_KEY = hashlib.sha256(b"spark_rdp: simulated histograms of a prior").digest()


def normalised_divergence(metric: RelativeEntropy, mechanism: Additive, granularity: float) -> dict[str, Any]:
    """The expected divergence between the prior and the noised prior when both are brought to a total of 1.

    Planning uses a divergence that is a sum over cells; an analyst who divides by the total sees this one.

    Returns:
        ``value`` (a mean), its ``standard_error``, and of how many ``histograms``.
    """
    cells = len(metric.given)
    count = min(max(_DRAWS // cells, _FEWEST), _MOST)
    batch = max(_DRAWS // 16 // cells, 1)
    found = []
    for start in range(0, count, batch):
        size = min(batch, count - start)
        digests = np.zeros((size * cells, 2), dtype=np.uint64)
        digests[:, 0] = np.arange(start * cells, (start + size) * cells)
        zeros = np.zeros(size * cells, dtype=np.int64)
        noise = mechanism.release(zeros, KeyedBits(_OPEN_KEY, digests.view(np.uint8), zeros))
        found.append(metric.divergence(metric.given + granularity * noise.reshape(size, cells)))
    values = np.concatenate(found)
    error = float(values.std(ddof=1)) / math.sqrt(count)
    return {"value": float(values.mean()), "standard_error": error, "histograms": count}
