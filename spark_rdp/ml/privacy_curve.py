"""How well private models predict, by epsilon: an experiment whose every fit is charged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from spark_rdp.errors import invalid
from spark_rdp.ml.naive_bayes import PrivateNaiveBayes
from spark_rdp.reporting.curve import CurvePoint, PrivacyCurve
from spark_rdp.spark.io import columns_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LABEL = "label"


def privacy_curve(
    estimator: PrivateNaiveBayes,
    train: DataFrame,
    test: DataFrame,
    epsilons: Sequence[float],
    *,
    runs: int = 1,
    positive: int = 1,
) -> PrivacyCurve:
    """Fit for each epsilon, and look how well the models predict rows they were not fitted to.

    Every fit is a release of its own and is charged to the ledger of the estimator: the sum of the epsilons, times
    ``runs``. The models are private, the result is not: it counts rows of ``test`` without noise. Test on rows whose
    owners agreed to it, and do not choose an epsilon for data by the data themselves.

    Args:
        estimator: All but its epsilon is used.
        train: The rows to fit.
        test: The rows to tell; those without a label do not count.
        epsilons: Different budgets of one fit.
        runs: Fits for each epsilon.
        positive: The label that precision and recall are about.

    Returns:
        The points, with a `PrivacyCurve.table` and a `PrivacyCurve.report`.

    Raises:
        InvalidInput: An argument is outside its domain, or a parameter of the estimator is.
        BudgetRefused: The ledger does not cover the next fit; those before it stay charged.
    """
    if not epsilons or len(set(epsilons)) < len(epsilons):
        raise invalid("epsilons", "different numbers, at least one", list(epsilons), "For example [0.1, 1, 10].")
    if runs < 1:
        raise invalid("runs", "at least 1", runs, "Use 1.")
    classes = estimator.getOrDefault("numClasses")
    if positive not in range(classes):
        raise invalid("positive", f"a label from 0 to {classes - 1}", positive, "Name the label that is looked for.")
    fits = [estimator.copy({estimator.epsilon: float(epsilon)}) for epsilon in sorted(epsilons)]
    for fit in fits:
        fit.checked()  # refused before anything is charged
    columns_of(test, {estimator.getLabelCol(): "labelCol"})
    points, rows = [], 0
    for fit in fits:
        for _ in range(runs):
            told = fit.fit(train).transform(test)
            label = columns_of(told, {estimator.getLabelCol(): "labelCol", estimator.getPredictionCol(): "prediction"})
            pairs = label.toDF(_LABEL, "prediction").select(F.col(_LABEL).cast("double"), "prediction")
            counts = pairs.where(F.col(_LABEL).isNotNull()).groupBy(_LABEL, "prediction").count().collect()
            confusion = {(row[0], row[1]): row[2] for row in counts}
            rows = sum(confusion.values())
            points.append(CurvePoint.of(fit.getOrDefault("epsilon"), confusion, float(positive)))
    features = [*estimator.getOrDefault("categories"), *estimator.getOrDefault("bounds")]
    return PrivacyCurve(estimator.getOrDefault("name"), points, positive, rows, features)
