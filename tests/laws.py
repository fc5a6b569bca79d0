"""Second folds to test with: at least one of each family, of rates per lattice unit."""

from __future__ import annotations

import math

from spark_rdp.mechanisms import second_fold as folds

LAWS: list[folds.SecondFold] = [
    folds.Degenerate(0.31),
    folds.TwoPoint(0.02, 1.7, 0.3),
    folds.TwoPoint(0.05, 3.0, 1e-14),
    folds.Gamma(3.0, 0.1),
    folds.Gamma(2.2, 0.5),
    folds.Uniform(0.05, 0.9),
    folds.TruncatedGaussian(0.4, 0.2, 0.1, math.inf),
    folds.Rayleigh(0.3),
    folds.NoncentralChiSquared(6.0, 3.0, 0.05),
    folds.LinearCombination((1.0, 0.5), (folds.Gamma(4.0, 0.05), folds.Uniform(0.1, 0.6))),
]


def of_mean(mean: float) -> list[folds.SecondFold]:
    """The same shapes, all with one mean."""
    return [law.scaled(mean / law.mean) for law in LAWS]
