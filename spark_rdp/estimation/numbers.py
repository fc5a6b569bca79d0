"""Answers about a column of numbers, or of arrays of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from spark_rdp.collection import ColumnPlan
from spark_rdp.errors import invalid
from spark_rdp.estimation.estimator import Estimator, Options
from spark_rdp.estimation.histogram import Deconvolution, Distribution
from spark_rdp.estimation.moments import Counts, Estimate, Moments, Square
from spark_rdp.estimation.outputs import Outputs
from spark_rdp.estimation.quantiles import quantiles
from spark_rdp.mechanisms.fitted import Fitted
from spark_rdp.mechanisms.local_build import build_local
from spark_rdp.queries import EstimatedColumn
from spark_rdp.queries.estimate import quantile_name


class NumberEstimator(Estimator):
    """Moments, histogram and quantiles of the values behind a column.

    Args:
        asked: What is wanted.
        planned: How the column was published.
        options: What holds for all columns.
        where: The place of ``asked`` in the query.

    Raises:
        InvalidInput: The column cannot answer what is asked.
    """

    def __init__(self, asked: EstimatedColumn, planned: ColumnPlan, options: Options, where: str) -> None:
        self.asked, self.planned, self.options = asked, planned, options
        self.outputs = Outputs.of(build_local(planned.plan.mechanism, planned.plan.parameters))
        if asked.element is not None and not asked.element < (planned.length or 0):
            constraint = f"below {planned.length}" if planned.length else "left out for a column without arrays"
            raise invalid(f"{where}.element", constraint, asked.element, "Elements are numbered from 0.")
        if "guess" in asked.statistics:
            remedy = "Only places and categories are guessed."
            raise invalid(f"{where}.statistics", "mean, total or variance for numbers", asked.statistics, remedy)
        self._means_only = Square.of(self.outputs) is None
        if self._means_only and (self._histogram or asked.quantiles or "variance" in asked.statistics):
            constraint = "mean and total only"
            remedy = (
                f"The mechanism {planned.plan.mechanism} tells nothing but means; collect with podium for the rest."
            )
            raise invalid(f"{where}.statistics", constraint, asked.parts, remedy)
        if asked.edges is not None and not planned.lower <= asked.edges[0] < asked.edges[-1] <= planned.upper:
            constraint = f"within the range of the column, {planned.lower:g} to {planned.upper:g}"
            raise invalid(
                f"{where}.edges", constraint, [asked.edges[0], asked.edges[-1]], "Nothing lies outside of it."
            )
        if options.sampling.population and self.values_per_row > 1:
            remedy = "Elements of one row are not drawn independently of each other; name one with element."
            raise invalid("intervals", "rows for arrays", "population", remedy)

    @property
    def cells(self) -> int:
        needed = self.distributions or "variance" in self.asked.statistics or isinstance(self.outputs.mechanism, Fitted)
        return self.outputs.count if needed else 1

    def places(self, labels: np.ndarray) -> np.ndarray:
        if self.outputs.levels is None:
            return np.where((labels >= 0) & (labels < self.outputs.count), labels, -1)
        levels = np.array(self.outputs.levels)
        found = np.minimum(np.searchsorted(levels, labels), len(levels) - 1)
        return np.where(levels[found] == labels, found, -1)

    @property
    def values_per_row(self) -> int:
        return self.planned.length if self.planned.length and self.asked.element is None else 1

    @property
    def distributions(self) -> int:
        return int(self._histogram or bool(self.asked.quantiles))

    @property
    def _histogram(self) -> bool:
        return self.asked.bins is not None or self.asked.edges is not None

    @cached_property
    def edges(self) -> np.ndarray:
        """The edges of the bins of the histogram."""
        if self.asked.edges is not None:
            return np.array(self.asked.edges)
        return np.linspace(self.planned.lower, self.planned.upper, (self.asked.bins or 1) + 1)

    def answers(self, counts: Counts) -> dict[str, pa.Array]:
        label, asked = self.asked.label, self.asked
        moments = Moments(self.outputs, counts, self.options.sampling)
        found: dict[str, pa.Array] = {}
        if self.planned.unsampled is not None:
            found[f"{label}_reported"] = pa.array(counts.reported, pa.int64())
        for statistic in asked.statistics:
            estimate = self._posted(statistic, getattr(moments, statistic)(), counts)
            found |= _published(f"{label}_{statistic}", estimate)
        if "variance" in asked.statistics:
            found[f"{label}_noise_share"] = _numbers(moments.noise_share())
        if self.distributions:
            found |= self._distributions(counts)
        return found

    def _posted(self, statistic: str, estimate: Estimate, counts: Counts) -> Estimate:
        """Results moved to where they are possible, if that was asked for."""
        lower, upper = self.planned.lower, self.planned.upper
        count = counts.rows.astype(np.float64) if statistic == "total" else np.ones(len(counts.rows))
        low, high = -np.inf * np.maximum(count, 1), np.inf * np.maximum(count, 1)
        if "range" in self.options.post:
            low, high = count * lower, count * upper
            if statistic == "variance":
                low, high = 0 * count, count * (upper - lower) ** 2 / 4
        if "nonnegative" in self.options.post:
            low, high = np.maximum(low, 0.0), np.maximum(high, 0.0)
        return Estimate(*(np.clip(part, low, high) for part in (estimate.value, estimate.low, estimate.high)))

    def _distributions(self, counts: Counts) -> dict[str, pa.Array]:
        """The histogram and the quantiles of every group."""
        assert counts.cells is not None
        asked, confidence = self.asked, self.options.sampling.confidence
        deconvolution = Deconvolution(self.outputs)
        histograms: list[Estimate] = []
        levels: list[Estimate] = []
        for rows, reported, cells in zip(counts.rows, counts.reported, counts.cells, strict=True):
            found = deconvolution.of(cells, self.options.sampling.repeats) if reported else None
            if self._histogram:
                histograms.append(self._bins(found, int(rows), confidence))
            if asked.quantiles:
                levels.append(self._quantiles(found, confidence))
        published: dict[str, pa.Array] = {}
        if self._histogram:
            published |= _published_lists(f"{asked.label}_histogram", histograms)
        for place, level in enumerate(asked.quantiles):
            parts = [[getattr(each, part)[place] for each in levels] for part in ("value", "low", "high")]
            name = f"{asked.label}_{quantile_name(level)}"
            published |= _published(name, Estimate(*(np.array(part, dtype=np.float64) for part in parts)))
        return published

    def _bins(self, found: Distribution | None, rows: int, confidence: float) -> Estimate:
        """How many values lie in each bin; anything is possible where nothing was reported."""
        if found is None:
            bins = len(self.edges) - 1
            unknown = np.zeros(bins) if rows == 0 else np.full(bins, np.nan)
            return Estimate(unknown, np.zeros(bins), np.full(bins, float(rows)))
        share = found.bins(self.edges, confidence)
        return Estimate(rows * share.value, rows * share.low, rows * share.high)

    def _quantiles(self, found: Distribution | None, confidence: float) -> Estimate:
        levels = np.array(self.asked.quantiles)
        if found is None:
            ends = (np.full(len(levels), end) for end in (np.nan, self.planned.lower, self.planned.upper))
            return Estimate(*ends)
        return quantiles(found, levels, confidence)

    def describe(self) -> dict[str, Any]:
        asked, planned = self.asked, self.planned
        return {
            "name": asked.label,
            "column": asked.column,
            "kind": planned.kind,
            "element": asked.element,
            "values_per_row": self.values_per_row,
            "lower": planned.lower,
            "upper": planned.upper,
            "parts": list(asked.parts),
            "edges": self.edges.tolist() if self._histogram else None,
            "quantiles": list(asked.quantiles),
            "noise_share": f"{asked.label}_noise_share" if "variance" in asked.statistics else None,
            "reported": f"{asked.label}_reported" if planned.unsampled is not None else None,
        }

    def assumptions(self) -> Sequence[str]:
        label, planned = self.asked.label, self.planned
        told = [f"{label}: values count as moved into {planned.lower:g} to {planned.upper:g}."]
        if self.values_per_row > 1:
            told.append(f"{label}: all {planned.length} elements of an array are values alike.")
        if planned.unsampled is not None:
            share = planned.share
            told.append(
                f"{label}: a row reports {share.reported} of {share.values} values, chosen without looking at them; "
                "those reported stand for all."
            )
        if self._means_only:
            told.append(
                f"{label}: the reports tell nothing but means, so the noise counts as what it would be if all values "
                "were alike, which is the most it can be."
            )
        if "variance" in self.asked.statistics:
            told.append(
                f"{label}: the interval of the variance covers the chance of drawing the rows as well. _noise_share is "
                "the part of the variance of the mean of rows drawn from a population that is noise."
            )
        if self.distributions:
            told.append(
                f"{label}: histogram and quantiles take the distribution to be smooth between the ends of the range, "
                "at which many values may lie. Their intervals cover noise, the chance of drawing the rows, and "
                "smoothing to the degree the reports speak for it; a spike inside the range is spread out, and with "
                "few reports they are rough."
            )
        return told


def _numbers(values: np.ndarray) -> pa.Array:
    """Doubles, null where nothing is known."""
    return pa.array(values, pa.float64(), mask=np.isnan(values))


def _published(name: str, estimate: Estimate) -> dict[str, pa.Array]:
    ends = {"": estimate.value, "_low": estimate.low, "_high": estimate.high}
    return {f"{name}{end}": _numbers(values) for end, values in ends.items()}


def _published_lists(name: str, estimates: Sequence[Estimate]) -> dict[str, pa.Array]:
    kind = pa.list_(pa.float64())
    lists = {
        "": [None if np.isnan(each.value).any() else each.value for each in estimates],
        "_low": [each.low for each in estimates],
        "_high": [each.high for each in estimates],
    }
    return {f"{name}{end}": pa.array(values, kind) for end, values in lists.items()}
