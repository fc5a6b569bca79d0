"""Naive Bayes from private counts and moments; predictions are post-processing."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.ml import Estimator, Model
from pyspark.ml.functions import array_to_vector
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import (
    HasFeaturesCol,
    HasLabelCol,
    HasPredictionCol,
    HasProbabilityCol,
    HasRawPredictionCol,
)
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable
from pyspark.sql import functions as F

from spark_rdp.errors import InvalidInput, invalid, missing
from spark_rdp.ledger import Ledger
from spark_rdp.queries import ReleaseQuery
from spark_rdp.queries.base import Refused
from spark_rdp.spark.io import columns_of
from spark_rdp.spark.release import release

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The released measures.
_ROWS, _BINS, _SUM, _SQUARES = "rows", "bins_{}", "sum_{}", "squares_{}"
_CLASS = "spark_rdp_class"


@dataclass(frozen=True)
class Feature:
    """One feature of the model.

    Args:
        column: Its column.
        values: The declared values, for a category.
        lower, upper: The bounds, for a number.
        tables: For every class, the logarithms of the probabilities of the values; or mean and variance.
    """

    column: str
    values: tuple[Any, ...] | None
    lower: float | None
    upper: float | None
    tables: tuple[tuple[float, ...], ...]


class _Settings(HasFeaturesCol, HasLabelCol, HasPredictionCol, HasProbabilityCol, HasRawPredictionCol):
    """What estimator and model share."""

    numClasses: Param[int] = Param(
        Params._dummy(), "numClasses", "labels are 0, 1, ..., numClasses - 1", TypeConverters.toInt
    )


class PrivateNaiveBayes(Estimator["PrivateNaiveBayesModel"], _Settings, DefaultParamsReadable, DefaultParamsWritable):
    """Naive Bayes for categories and bounded numbers, fitted under differential privacy.

    A fit is one release: for each class the number of rows, a histogram of each category over its declared values, and
    for each number its sum and sum of squares about the middle of its bounds. The budget is split evenly over these
    (numbers count twice) and charged to the ledger at every fit, those of a cross-validation included; fits on
    different folds are charged as if they saw the same rows. Values that are not declared, missing values and rows with
    another label do not count. Everything after the release is post-processing.

    Args:
        epsilon: The budget of one fit.
        categories: Column -> its values (texts or whole numbers), declared without looking at the data.
        bounds: Column -> [lower, upper], numbers are clamped to them.
        numClasses: Labels are the numbers 0 to numClasses - 1.
        unit: The column of the privacy unit, or ``row``.
        maxGroups: The most classes one unit counts in (unit a column).
        maxPerGroup: The most rows of one unit that count in a class (unit a column).
        smoothing: Added to every noised count, once negative ones are lifted to 0.
        ledgerUrl, ledgerDataset: The ledger that pays; without one no budget is kept.
        name: Each fit is the release ``name@`` and a random id.

    Raises:
        InvalidInput: At `fit`: a parameter is missing or outside its domain, or a column does not fit.
        BudgetRefused: At `fit`: the ledger does not cover epsilon.
    """

    epsilon: Param[float] = Param(Params._dummy(), "epsilon", "the budget of one fit", TypeConverters.toFloat)
    categories: Param[dict[str, list[Any]]] = Param(Params._dummy(), "categories", "column -> declared values")
    bounds: Param[dict[str, list[float]]] = Param(Params._dummy(), "bounds", "column -> [lower, upper]")
    unit: Param[str] = Param(Params._dummy(), "unit", "column of the privacy unit, or row", TypeConverters.toString)
    maxGroups: Param[int] = Param(Params._dummy(), "maxGroups", "most classes of one unit", TypeConverters.toInt)
    maxPerGroup: Param[int] = Param(
        Params._dummy(), "maxPerGroup", "most rows of one unit in a class", TypeConverters.toInt
    )
    smoothing: Param[float] = Param(Params._dummy(), "smoothing", "added to every count", TypeConverters.toFloat)
    ledgerUrl: Param[str] = Param(Params._dummy(), "ledgerUrl", "address of the ledger", TypeConverters.toString)
    ledgerDataset: Param[str] = Param(Params._dummy(), "ledgerDataset", "whose budget pays", TypeConverters.toString)
    name: Param[str] = Param(Params._dummy(), "name", "each fit is the release name@id", TypeConverters.toString)

    def __init__(self, **given: Any) -> None:
        super().__init__()
        self._setDefault(
            categories={},
            bounds={},
            numClasses=2,
            unit="row",
            maxGroups=1,
            maxPerGroup=1,
            smoothing=1.0,
            name="naive-bayes",
        )
        self.setParams(**given)

    def setParams(self, **given: Any) -> PrivateNaiveBayes:
        """Set parameters by name."""
        for key in given:
            if not self.hasParam(key):
                raise invalid(key, "a parameter of PrivateNaiveBayes", given[key], "See explainParams().")
        return self._set(**given)

    def _value(self, name: str) -> Any:
        return self.getOrDefault(name) if self.isDefined(name) else None

    def query(self) -> ReleaseQuery:
        """The release of one fit."""
        if self._value("epsilon") is None:
            raise missing("epsilon", "Common choices lie between 0.1 and 10.")
        categories, bounds = self._features()
        by_row = self._value("unit") == "row"
        cap = 1 if by_row else self._value("maxPerGroup")
        per_group = {} if by_row else {"max_per_group": cap}
        measures: list[dict[str, Any]] = [{"name": _ROWS, "type": "count", **per_group}]
        for place, values in enumerate(categories.values()):
            bins = list(range(1, len(values) + 2))
            name = _BINS.format(place)
            measures.append({"name": name, "type": "histogram", "column": name, "bins": bins, **per_group})
        for place, (lower, upper) in enumerate(bounds.values()):
            half = (upper - lower) / 2
            limits = {_SUM: (-half * cap, half * cap), _SQUARES: (0.0, half * half * cap)}
            for role, (low, high) in limits.items():
                name = role.format(place)
                measures.append({"name": name, "type": "sum", "column": name, "lower": low, "upper": high})
        privacy = {"unit": self._value("unit"), "epsilon": self._value("epsilon")}
        return ReleaseQuery.of(
            {
                "name": self._value("name"),
                "privacy": privacy if by_row else {**privacy, "max_groups": self._value("maxGroups")},
                "group_by": {_CLASS: {"range": [0, self._value("numClasses") - 1]}},
                "measures": measures,
            }
        )

    def checked(self) -> ReleaseQuery:
        """The release of one fit.

        Raises:
            InvalidInput: A parameter is missing or outside its domain.
        """
        try:
            return self.query()
        except Refused as failure:
            raise InvalidInput(f"PrivateNaiveBayes cannot be fitted: {failure}") from None

    def _features(self) -> tuple[dict[str, list[Any]], dict[str, tuple[float, float]]]:
        """Categories and bounds, checked."""
        categories, bounds = self._value("categories"), self._value("bounds")
        if not isinstance(categories, Mapping) or not isinstance(bounds, Mapping) or not {**categories, **bounds}:
            remedy = 'For example categories={"sex": ["Female", "Male"]}.'
            raise invalid("categories", "with bounds, at least one column", (categories, bounds), remedy)
        categories = {
            column: [value.item() if isinstance(value, np.generic) else value for value in values]
            for column, values in categories.items()
        }
        for column in categories:
            if column in bounds:
                raise invalid("bounds", "of columns that are no categories", column, "Give each column once.")
        for column, values in categories.items():
            kinds = {type(value) for value in values}
            if not values or len(set(values)) < len(values) or len(kinds) > 1 or not kinds <= {str, int}:
                constraint = "different texts, or different whole numbers"
                raise invalid(f"categories[{column!r}]", constraint, values, "Declare each value once.")
        for column, pair in bounds.items():
            if len(pair) != 2 or not float(pair[0]) < float(pair[1]):
                raise invalid(
                    f"bounds[{column!r}]", "[lower, upper], the lower one first", pair, "Never from the data."
                )
        if self._value("numClasses") < 2:
            raise invalid("numClasses", "at least 2", self._value("numClasses"), "Labels are 0 to numClasses - 1.")
        if not 0 < self._value("smoothing") <= 1e6:
            raise invalid("smoothing", "a number above 0, up to 1e6", self._value("smoothing"), "Use 1.")
        return (
            {str(column): list(values) for column, values in categories.items()},
            {str(column): (float(pair[0]), float(pair[1])) for column, pair in bounds.items()},
        )

    def _fit(self, dataset: DataFrame) -> PrivateNaiveBayesModel:
        query = self.checked()
        categories, bounds = self._features()
        columns = {_CLASS: _whole(F.col(_quoted(self.getLabelCol())))}
        columns |= {_BINS.format(p): _code(column, v) for p, (column, v) in enumerate(categories.items())}
        for place, (column, (lower, upper)) in enumerate(bounds.items()):
            away = _clamped(F.col(_quoted(column)).cast("double"), lower, upper) - F.lit((lower + upper) / 2)
            columns |= {_SUM.format(place): away, _SQUARES.format(place): away * away}
        used = {self.getLabelCol(): "labelCol"}
        used |= dict.fromkeys(categories, "categories") | dict.fromkeys(bounds, "bounds")
        unit = [] if query.privacy.by_row else [F.col(_quoted(query.privacy.unit))]
        used |= {} if query.privacy.by_row else {query.privacy.unit: "unit"}
        rows = columns_of(dataset, used).select(*unit, *(made.alias(name) for name, made in columns.items()))
        url, ledger = self._value("ledgerUrl"), None
        if url is not None:
            ledger = Ledger(url, self._value("ledgerDataset"))
        table = release(rows, query, run=uuid.uuid4().hex, ledger=ledger).table().to_pydict()
        prior, features = _model(table, categories, bounds, self._value("smoothing"))
        text = json.dumps({"prior": prior, "features": [asdict(feature) for feature in features]})
        model = PrivateNaiveBayesModel()._set(statistics=text)
        return self._copyValues(model)


class PrivateNaiveBayesModel(Model, _Settings, DefaultParamsReadable["PrivateNaiveBayesModel"], DefaultParamsWritable):
    """A fitted naive Bayes model: released statistics only, so that it may be kept and shown.

    `transform` adds ``rawPrediction`` (the logarithms of prior times likelihood), ``probability`` and ``prediction``
    (the label with the largest one, DOUBLE). A value that was not declared, or is missing, says nothing.
    """

    statistics: Param[str] = Param(Params._dummy(), "statistics", "what was released", TypeConverters.toString)

    def __init__(self) -> None:
        super().__init__()
        self._setDefault(numClasses=2)

    @property
    def prior(self) -> list[float]:
        """The logarithm of the probability of each class."""
        return list(json.loads(self.getOrDefault("statistics"))["prior"])

    @property
    def features(self) -> list[Feature]:
        """What is known about each feature."""
        return [Feature(**item) for item in json.loads(self.getOrDefault("statistics"))["features"]]

    def _transform(self, dataset: DataFrame) -> DataFrame:
        scores = []
        for label, start in enumerate(self.prior):
            score = F.lit(float(start))
            for feature in self.features:
                score = score + _log_likelihood(feature, label)
            scores.append(score)
        raw, probability, prediction = self.getRawPredictionCol(), self.getProbabilityCol(), self.getPredictionCol()
        added = dataset.withColumn(raw, F.array(*scores))
        largest = F.array_max(_quoted(raw))
        weights = F.transform(F.col(_quoted(raw)), lambda score: F.exp(score - largest))
        total = F.aggregate(weights, F.lit(0.0), lambda sum_, weight: sum_ + weight)
        added = added.withColumn(prediction, (F.array_position(_quoted(raw), largest) - 1).cast("double"))
        added = added.withColumn(probability, array_to_vector(F.transform(weights, lambda weight: weight / total)))
        return added.withColumn(raw, array_to_vector(F.col(_quoted(raw))))


def _model(
    table: Mapping[str, list[Any]],
    categories: Mapping[str, Sequence[Any]],
    bounds: Mapping[str, tuple[float, float]],
    smoothing: float,
) -> tuple[list[float], list[Feature]]:
    """Priors and features from released statistics."""
    rows = np.maximum(np.array(table[_ROWS], dtype=np.float64), 0) + smoothing
    prior = np.log(rows / rows.sum())
    features = []
    for place, (column, values) in enumerate(categories.items()):
        counts = np.maximum(np.array(table[_BINS.format(place)], dtype=np.float64), 0) + smoothing
        logs = np.log(counts / counts.sum(axis=1, keepdims=True))
        features.append(Feature(column, tuple(values), None, None, tuple(map(tuple, logs.tolist()))))
    for place, (column, (lower, upper)) in enumerate(bounds.items()):
        half = (upper - lower) / 2
        means = np.clip(np.array(table[_SUM.format(place)]) / rows, -half, half)
        squares = np.array(table[_SQUARES.format(place)]) / rows
        # No variance of numbers in bounds is larger; a smaller one than this is noise.
        variances = np.clip(squares - means**2, (half / 100) ** 2, half**2 - means**2 + (half / 100) ** 2)
        moments = zip((means + (lower + upper) / 2).tolist(), variances.tolist(), strict=True)
        features.append(Feature(column, None, lower, upper, tuple(moments)))
    return prior.tolist(), features


def _log_likelihood(feature: Feature, label: int) -> Column:
    """The logarithm of the likelihood of a row's value; 0 where it is missing or was not declared."""
    table = feature.tables[label]
    if feature.values is not None:
        listed = F.split(F.lit(",".join(map(repr, table))), ",").cast("array<double>")
        code = _code(feature.column, feature.values)
        return F.coalesce(F.when(code.isNotNull(), F.try_element_at(listed, code.cast("int"))), F.lit(0.0))
    assert feature.lower is not None
    assert feature.upper is not None
    mean, variance = table
    away = _clamped(F.col(_quoted(feature.column)).cast("double"), feature.lower, feature.upper) - F.lit(mean)
    density = away * away * F.lit(-0.5 / variance) - F.lit(0.5 * math.log(2 * math.pi * variance))
    return F.coalesce(density, F.lit(0.0))


def _code(column: str, values: Sequence[Any]) -> Column:
    """The place of a value among the declared ones, from 1; null for any other."""
    kind = "string" if isinstance(values[0], str) else "bigint"
    place = F.array_position(F.array(*(F.lit(value) for value in values)).cast(f"array<{kind}>"), _as(column, kind))
    return F.when(place > 0, place)


def _as(column: str, kind: str) -> Column:
    return F.col(_quoted(column)).try_cast(kind)


def _clamped(value: Column, lower: float, upper: float) -> Column:
    """A number within its bounds; null where there is none (NaN is none)."""
    return F.when(value.isNotNull() & ~F.isnan(value), F.greatest(F.lit(lower), F.least(F.lit(upper), value)))


def _whole(label: Column) -> Column:
    """A label as a whole number; null where it is none."""
    number = label.cast("double")
    return F.when(number == F.floor(number), number.try_cast("int"))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
