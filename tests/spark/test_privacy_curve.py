"""Accuracy, precision and recall by epsilon: counted right, charged for each fit, drawn, better with more budget."""

from __future__ import annotations

import math

import pytest
from html_page import Page
from pyspark.sql import functions as F

from spark_rdp.errors import BudgetRefused, InvalidInput
from spark_rdp.ledger import Ledger
from spark_rdp.ml import PrivateNaiveBayes, privacy_curve
from spark_rdp.reporting.curve import CurvePoint, PrivacyCurve

#: Place of each column in the file, to its name here.
COLUMNS = {3: "education", 5: "marital", 6: "occupation", 7: "relationship"}


def test_precision_and_recall_are_those_of_the_positive_label():
    told = {(1.0, 1.0): 6, (1.0, 0.0): 2, (0.0, 1.0): 3, (0.0, 0.0): 9}
    assert CurvePoint.of(0.5, told, 1.0) == CurvePoint(0.5, 15 / 20, 6 / 9, 6 / 8)
    assert CurvePoint.of(0.5, told, 0.0) == CurvePoint(0.5, 15 / 20, 9 / 11, 9 / 12)
    nobody = CurvePoint.of(0.5, {(1.0, 0.0): 2, (0.0, 0.0): 6}, 1.0)
    assert (nobody.accuracy, nobody.recall) == (0.75, 0.0)
    assert math.isnan(nobody.precision), "none is told to be positive"


def test_the_table_averages_over_fits_and_the_page_shows_it(tmp_path):
    points = [CurvePoint(1.0, 0.8, 0.5, 0.25), CurvePoint(1.0, 0.6, math.nan, 0.75), CurvePoint(0.25, 0.5, 0.5, 0.5)]
    curve = PrivacyCurve("<b>bayes</b>", points, 1, 1234, ["sex", "age"])
    low, high = curve.table()
    assert (low["epsilon"], low["fits"], low["accuracy"]) == (0.25, 1, 0.5)
    assert (high["epsilon"], high["fits"], high["precision"], high["recall"]) == (1.0, 2, 0.5, 0.5)
    assert high["accuracy"] == pytest.approx(0.7)
    assert high["accuracy_deviation"] == pytest.approx(0.1)
    assert curve.spent == 2.25
    page = Page(curve.report(tmp_path / "page.html").read_text())
    assert page.text == Page(curve.report(tmp_path / "again.html").read_text()).text
    for shown in ("<b>bayes</b>", "0.7000 ± 0.10", "1,234 rows", "epsilon 2.25", "without noise"):
        assert shown in page.text, shown
    assert not {"script", "image", "b"} & {tag for tag, _ in page.tags}


def test_adult_by_epsilon(spark, shared_data, tmp_path):
    """Four columns of Adult: charged for every fit until the budget is used up, and better than the larger class."""
    names = [COLUMNS.get(place, f"_{place}") for place in range(14)]
    schema = ", ".join(f"{name} STRING" for name in [*names, "income"])

    def rows(file):
        read = spark.read.csv(str(shared_data / file), schema=schema, ignoreLeadingWhiteSpace=True)
        known = read.where(F.col("income").isNotNull())
        return known.select(*COLUMNS.values(), F.startswith("income", F.lit(">50K")).cast("int").alias("label")).cache()

    train, test = rows("adult.data.gz"), rows("adult.test.gz")
    # For this experiment the codes in the training file are taken as known.
    values = {name: sorted(row[0] for row in train.select(name).distinct().collect()) for name in COLUMNS.values()}
    ledger = Ledger(f"sqlite:///{tmp_path}/budget.db", "adult")
    ledger.create(epsilon=8.5)
    estimator = PrivateNaiveBayes(
        categories=values, name="income", ledgerUrl=f"sqlite:///{tmp_path}/budget.db", ledgerDataset="adult"
    )
    curve = privacy_curve(estimator, train, test, [8.0, 0.001])
    assert ledger.balance().spent_epsilon == pytest.approx(curve.spent) == pytest.approx(8.001)
    little, much = curve.points
    assert (little.epsilon, much.epsilon, curve.rows) == (0.001, 8.0, 16281)
    assert much.accuracy > 0.76377 + 0.02, "the larger class alone is 0.76377; without noise it is 0.802"
    assert min(much.precision, much.recall) > 0.5
    assert much.accuracy > little.accuracy
    page = Page(curve.report(tmp_path / "page.html").read_text())
    assert "16,281 rows" in page.text
    with pytest.raises(BudgetRefused):
        privacy_curve(estimator, train, test, [1.0])
    train.unpersist()
    test.unpersist()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"epsilons": []}, "epsilons"),
        ({"epsilons": [1, 1]}, "epsilons"),
        ({"epsilons": [1.0, 0.0]}, "privacy.epsilon"),
        ({"runs": 0}, "runs"),
        ({"positive": 2}, "positive"),
        ({"test": "colour STRING"}, "labelCol"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_charged(spark, tmp_path, given, named):
    url = f"sqlite:///{tmp_path}/budget.db"
    Ledger(url, "d").create(epsilon=5.0)
    bayes = PrivateNaiveBayes(categories={"colour": ["red", "blue"]}, ledgerUrl=url, ledgerDataset="d")
    frame = spark.createDataFrame([], "label INT, colour STRING")
    test = spark.createDataFrame([], given["test"]) if "test" in given else frame
    more = {name: value for name, value in given.items() if name in ("runs", "positive")}
    with pytest.raises(InvalidInput) as refused:
        privacy_curve(bayes, frame, test, given.get("epsilons", [0.5]), **more)
    assert named in str(refused.value)
    assert Ledger(url, "d").balance().spent_epsilon == 0
