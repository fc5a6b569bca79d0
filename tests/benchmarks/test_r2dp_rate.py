"""How fast R2DP noise is drawn, beside NumPy's own Laplace generator in the same run."""

from __future__ import annotations

import time

import numpy as np
import pytest
from benchmarks.timing import fastest
from statistical import goodness

from spark_rdp.mechanisms.r2dp import R2DP
from spark_rdp.mechanisms.second_fold import Gamma, TwoPoint

ROWS = 500_000
STEPS = 2**20


#: Times NumPy's generator: three times what was measured, so that only a change of kind fails.
LIMITS = {"two-point": 25, "gamma": 50}


@pytest.mark.benchmark
def test_draws_per_second() -> None:
    """Expected of a quiet core: 5 million a second for a two-point law and 2.5 million for a gamma law.

    NumPy's floating-point generator draws about 40 million a second there. Processor time is compared.
    """
    generator = np.random.default_rng(1)
    bits = goodness.seeded_bits(ROWS, 90)
    two_point, gamma = R2DP(TwoPoint(2.6 / STEPS, 11.1 / STEPS, 0.2986)), R2DP(Gamma(3.0, 0.3 / STEPS))
    sides = {
        "numpy": lambda: generator.laplace(size=ROWS),
        "two-point": lambda: two_point.noise(bits),
        "gamma": lambda: gamma.noise(bits),
    }
    best = fastest(sides, LIMITS, "numpy", clock=time.process_time, rounds=5)
    for name, limit in LIMITS.items():
        assert best[name] < limit * best["numpy"], name
