"""Private naive Bayes: an estimator like any other of pyspark.ml, whose every fit is a charged release."""

from __future__ import annotations

import numpy as np
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import StringIndexer
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
from pyspark.sql import functions as F

from spark_rdp.errors import BudgetRefused, InvalidInput
from spark_rdp.ledger import Ledger
from spark_rdp.ml import PrivateNaiveBayes, PrivateNaiveBayesModel

CATEGORIES = {"colour": ["red", "green", "blue"], "size": [1, 2]}


@pytest.fixture(scope="module")
def rows(spark):
    """600 rows: class 1 is mostly red and heavy, class 0 mostly blue and light."""
    made = [
        (
            i % 2,
            ("red" if i % 5 else "green") if i % 2 else ("blue" if i % 7 else "green"),
            1 + i % 3 % 2,
            float(6 + i % 3 if i % 2 else 2 + i % 4),
            i // 3,
        )
        for i in range(600)
    ]
    odd = [(0, "violet", 1, 1.0, 1), (1, None, None, float("nan"), 2), (7, "red", 1, 1.0, 3), (None, "red", 1, 1.0, 4)]
    return spark.createDataFrame(made + odd, "label INT, colour STRING, size LONG, weight DOUBLE, user LONG").cache()


def estimator(**given) -> PrivateNaiveBayes:
    return PrivateNaiveBayes(**{"epsilon": 1000.0, "categories": CATEGORIES, "bounds": {"weight": [0, 10]}, **given})


def test_with_a_large_budget_it_is_ordinary_naive_bayes(rows):
    model = estimator().fit(rows)
    table = rows.where("label IN (0, 1)").toPandas()
    counts = table.groupby("label").size().to_numpy()
    np.testing.assert_allclose(np.exp(model.prior), (counts + 1) / (counts + 1).sum(), rtol=1e-9)
    colour, size, weight = model.features
    for feature in (colour, size):
        for label in (0, 1):
            own = table[table.label == label][feature.column]
            found = np.array([(own == value).sum() for value in feature.values]) + 1
            np.testing.assert_allclose(np.exp(feature.tables[label]), found / found.sum(), rtol=1e-9)
    for label in (0, 1):
        own = table[(table.label == label) & table.weight.notna()].weight
        np.testing.assert_allclose(weight.tables[label], (own.mean(), own.var(ddof=0)), rtol=0.05)
    told = model.transform(rows).where("label IN (0, 1)").toPandas()
    assert (told.prediction == told.label).mean() > 0.95
    assert np.allclose([sum(p.toArray()) for p in told.probability], 1)
    assert [int(p.toArray().argmax()) for p in told.probability] == told.prediction.tolist()


def test_values_nobody_declared_say_nothing(spark, rows):
    model = estimator().fit(rows)
    odd = [("violet", 9, None), (None, None, float("nan"))]
    told = model.transform(spark.createDataFrame(odd, "colour STRING, size LONG, weight DOUBLE")).collect()
    for row in told:
        np.testing.assert_allclose(row.rawPrediction.toArray(), model.prior)


def test_every_fit_is_charged_until_the_budget_is_used_up(rows, tmp_path):
    url = f"sqlite:///{tmp_path}/budget.db"
    Ledger(url, "adult").create(epsilon=2.5)
    paid = estimator(epsilon=1.0, ledgerUrl=url, ledgerDataset="adult")
    first, second = paid.fit(rows), paid.fit(rows)
    assert first.prior != second.prior or first.features != second.features
    with pytest.raises(BudgetRefused):
        paid.fit(rows)
    assert Ledger(url, "adult").balance().remaining_epsilon == 0.5


def test_it_is_tuned_by_cross_validation_saved_and_read_back(rows, tmp_path):
    url = f"sqlite:///{tmp_path}/budget.db"
    Ledger(url, "d").create(epsilon=100.0)
    known = rows.where("label IN (0, 1) AND colour IS NOT NULL").withColumn("kind", F.col("label").cast("string"))
    bayes = estimator(epsilon=10.0, labelCol="index", ledgerUrl=url, ledgerDataset="d", bounds={})
    pipeline = Pipeline(
        stages=[StringIndexer(inputCol="kind", outputCol="index", stringOrderType="alphabetAsc"), bayes]
    )
    grid = ParamGridBuilder().addGrid(bayes.smoothing, [0.5]).build()
    score = MulticlassClassificationEvaluator(labelCol="index", metricName="accuracy")
    tuned = CrossValidator(estimator=pipeline, estimatorParamMaps=grid, evaluator=score, numFolds=2, seed=1).fit(known)
    assert min(tuned.avgMetrics) > 0.8
    assert Ledger(url, "d").balance().remaining_epsilon == 100 - 10 * (2 + 1), "two folds and the whole"
    tuned.bestModel.write().overwrite().save(str(tmp_path / "model"))
    read = PipelineModel.load(str(tmp_path / "model"))
    assert isinstance(read.stages[-1], PrivateNaiveBayesModel)
    before, after = (each.transform(known).select("prediction").collect() for each in (tuned.bestModel, read))
    assert before == after
    bayes.write().overwrite().save(str(tmp_path / "estimator"))
    assert PrivateNaiveBayes.load(str(tmp_path / "estimator")).query() == bayes.query()


def test_one_unit_counts_as_often_as_declared():
    bounded = estimator(unit="user", maxGroups=1, maxPerGroup=3).query()
    assert (bounded.privacy.unit, bounded.privacy.max_groups) == ("user", 1)
    limits = {measure.name: (measure.lower, measure.upper) for measure in bounded.measures if measure.type == "sum"}
    assert limits == {"sum_0": (-15.0, 15.0), "squares_0": (0.0, 75.0)}, "three rows, each at most 5 from the middle"
    assert {m.max_per_group for m in bounded.measures if m.type != "sum"} == {3}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"epsilon": 0.0}, "privacy.epsilon"),
        ({"epsilon": float("nan")}, "privacy.epsilon"),
        ({"categories": {}, "bounds": {}}, "categories"),
        ({"categories": {"colour": []}}, "categories['colour']"),
        ({"categories": {"colour": ["a", "a"]}}, "categories['colour']"),
        ({"categories": {"colour": ["a", 1]}}, "categories['colour']"),
        ({"bounds": {"weight": [1, 1]}}, "bounds['weight']"),
        ({"bounds": {"weight": [float("nan"), 1]}}, "bounds['weight']"),
        ({"bounds": {"colour": [0, 1]}}, "bounds"),
        ({"numClasses": 1}, "numClasses"),
        ({"smoothing": 0.0}, "smoothing"),
        ({"labelCol": "absent"}, "labelCol must be a column of the source"),
        ({"categories": {"absent": ["a"]}}, "categories must be a column of the source"),
    ],
)
def test_bad_parameters_are_refused(rows, given, named):
    with pytest.raises(InvalidInput, match=r".") as refused:
        estimator(**given).fit(rows)
    assert named in str(refused.value)


def test_an_unknown_parameter_is_refused():
    with pytest.raises(InvalidInput, match="epsilom"):
        PrivateNaiveBayes(epsilom=1.0)


def test_an_empty_frame_is_fitted_like_any_other(spark, rows):
    model = estimator(epsilon=1.0).fit(rows.limit(0))
    assert len(model.features) == 3
    assert np.all(np.isfinite(model.prior))
    assert model.transform(rows).where(F.isnan("prediction") | F.col("prediction").isNull()).count() == 0
