"""Private naive Bayes on Adult: the accuracy of the paper's experiment, from the statistics a fit releases."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from spark_rdp.ml.naive_bayes import PrivateNaiveBayes, _model
from spark_rdp.randomness import SystemBits
from spark_rdp.releases import plan_release

COLUMNS = {
    "workclass": 1, "education": 3, "marital": 5, "occupation": 6, "relationship": 7, "race": 8, "sex": 9, "country": 13
}  # fmt: skip
#: What `shared/data/README.md` says of naive Bayes without noise.
EXACT = 0.80087


def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The categories of every row, and whether the income is above 50K."""
    with gzip.open(path, "rt") as lines:
        rows = [row for row in csv.reader(lines, skipinitialspace=True) if len(row) == 15]
    return np.array([[row[place] for place in COLUMNS.values()] for row in rows]), np.array(
        [row[-1].startswith(">50K") for row in rows]
    ).astype(int)


def accuracy(folder: Path, epsilon: float, runs: int) -> np.ndarray:
    """The share of the test file that is told right, for noise drawn anew in every run; epsilon 0 is without noise."""
    (train, label), (test, truth) = read(folder / "adult.data.gz"), read(folder / "adult.test.gz")
    values = {name: sorted(set(train[:, place])) for place, name in enumerate(COLUMNS)}
    codes = [np.searchsorted(own, train[:, place]) for place, own in enumerate(values.values())]
    exact = {"rows": np.bincount(label, minlength=2)}
    for place, own in enumerate(values.values()):
        exact[f"bins_{place}"] = np.bincount(label * len(own) + codes[place], minlength=2 * len(own)).reshape(2, -1)
    plan = plan_release(PrivateNaiveBayes(epsilon=epsilon or 1.0, categories=values).query())
    noises = {name: plan.of(name)[0].plan.build() for name in plan.measures}
    found = []
    for _ in range(runs):
        table = {
            name: counts
            if epsilon == 0
            else noises[name].release(counts.reshape(-1), SystemBits(counts.size)).reshape(counts.shape)
            for name, counts in exact.items()
        }
        prior, features = _model(table, values, {}, 1.0)
        scores = np.tile(prior, (len(test), 1))
        for place, (own, feature) in enumerate(zip(values.values(), features, strict=True)):
            known = np.isin(test[:, place], own)
            codes_here = np.searchsorted(own, test[known, place])
            scores[known] += np.array(feature.tables)[:, codes_here].T
        found.append(np.mean(scores.argmax(axis=1) == truth))
    return np.array(found)


def test_without_noise_it_is_the_baseline(shared_data):
    """0.80087 with add-one smoothing of all probabilities but the prior; the prior is smoothed as well here."""
    assert accuracy(shared_data, 0, 1)[0] == pytest.approx(EXACT, abs=1e-4)


def test_at_epsilon_one_it_is_within_one_point(shared_data):
    """The mean of 10 fits; single ones lie within 0.2 points of it, so that a false alarm needs 10 standard errors."""
    found = accuracy(shared_data, 1.0, 10)
    assert abs(found.mean() - EXACT) < 0.01
    assert found.std() < 0.004
    assert accuracy(shared_data, 0.1, 10).mean() > 0.76377 + 0.01, "and at 0.1 better than the larger class"
