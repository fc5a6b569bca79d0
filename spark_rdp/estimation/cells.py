"""Answers about a column of places or categories: how many rows each cell had before the noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from spark_rdp.collection import ColumnPlan
from spark_rdp.errors import JobFailed, invalid
from spark_rdp.estimation.estimator import Estimator, Options
from spark_rdp.estimation.intervals import FEW, chebyshev, critical
from spark_rdp.estimation.moments import Counts
from spark_rdp.mechanisms.finite.build import build_finite
from spark_rdp.mechanisms.finite.frequencies import count_errors, likeliest_counts, unbiased_counts
from spark_rdp.mechanisms.finite.remap import remap
from spark_rdp.queries import EstimatedColumn

#: How many of the largest cells are named.
TOP = 10
#: Cells that take as long as one distribution of numbers.
_AT_A_TIME = 500
#: The most cells that are guessed: each is weighed against each, which takes some seconds for so many.
MOST_GUESSED = 2**14


class CellEstimator(Estimator):
    """Frequencies of the cells behind a column and, when asked for, the best guess of each published cell.

    Args:
        asked: What is wanted; cells have frequencies, and ``guess`` is the only other statistic.
        planned: How the column was published.
        options: What holds for all columns.
        where: The place of ``asked`` in the query.

    Raises:
        InvalidInput: The column cannot answer what is asked.
    """

    def __init__(self, asked: EstimatedColumn, planned: ColumnPlan, options: Options, where: str) -> None:
        self.asked, self.planned, self.options = asked, planned, options
        self.mechanism = build_finite(planned.plan.mechanism, planned.plan.parameters)
        assert planned.cells is not None
        labels = planned.cells.get("labels")
        self.labels: tuple[str, ...] | None = None if labels is None else tuple(labels)
        self.guessed = asked.statistics == ("guess",)
        for key in ("element", "statistics", "bins", "edges", "quantiles"):
            if key in asked.model_fields_set and not (key == "statistics" and self.guessed):
                constraint = f"left out for {planned.kind}{', or guess' if key == 'statistics' else ''}"
                remedy = "Cells have frequencies, which are always estimated."
                raise invalid(f"{where}.{key}", constraint, getattr(asked, key), remedy)
        if self.guessed and self.cells > MOST_GUESSED:
            constraint = f"left out for more than {MOST_GUESSED} cells"
            raise invalid(f"{where}.statistics", constraint, asked.statistics, f"The column has {self.cells}.")

    @property
    def cells(self) -> int:
        return self.mechanism.domain.size

    def places(self, labels: np.ndarray) -> np.ndarray:
        return np.where((labels >= 0) & (labels < self.cells), labels, -1)

    @property
    def values_per_row(self) -> int:
        return 1

    @property
    def distributions(self) -> int:
        return (1 + self.cells // _AT_A_TIME) * (2 if self.guessed else 1)

    def answers(self, counts: Counts) -> dict[str, pa.Array]:
        assert counts.cells is not None
        label = self.asked.label
        lists: dict[str, list[np.ndarray]] = {name: [] for name in ("noised", "histogram", "low", "high", "likeliest")}
        named: dict[str, list[list[Any]]] = {"top": [], **({"guess": []} if self.guessed else {})}
        for outputs in counts.cells:
            value, low, high = self._unbiased(outputs)
            likeliest = likeliest_counts(self.mechanism, outputs)
            for name, numbers in zip(lists, (outputs, value, low, high, likeliest), strict=True):
                lists[name].append(numbers)
            for name, chosen in named.items():
                chosen.append(self._named(name, likeliest) if outputs.any() else [])
        kind = pa.list_(pa.float64())
        ends = {"histogram": "_histogram", "low": "_histogram_low", "high": "_histogram_high"}
        found = {f"{label}{ends.get(name, f'_{name}')}": pa.array(values, kind) for name, values in lists.items()}
        names = pa.list_(pa.int64() if self.labels is None else pa.string())
        return {**found, **{f"{label}_{name}": pa.array(chosen, names) for name, chosen in named.items()}}

    def _named(self, name: str, likeliest: np.ndarray) -> list[Any]:
        """The largest cells, or for each published cell the best guess of the true one, by number or by label."""
        top = name == "top"
        cells = np.argsort(-likeliest, kind="stable")[:TOP] if top else remap(self.mechanism, likeliest)
        return [cell if self.labels is None else self.labels[cell] for cell in cells.tolist()]

    def _unbiased(self, outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Unbiased counts and their intervals; all is possible where there are too few reports to tell."""
        rows = float(outputs.sum())
        nothing = np.zeros(len(outputs))
        if not rows:
            return nothing, nothing, nothing
        try:
            value = unbiased_counts(self.mechanism, outputs)
        except JobFailed:
            return np.full(len(outputs), np.nan), nothing, nothing + rows
        sampling = self.options.sampling
        errors = count_errors(self.mechanism, outputs, value, sampling.population) * np.sqrt(sampling.repeats)
        half = (critical if rows >= FEW else chebyshev)(sampling.confidence) * errors
        low, high = np.clip(value - half, 0, rows), np.clip(value + half, 0, rows)
        if self.options.post:
            value = np.clip(value, 0.0, rows if "range" in self.options.post else np.inf)
        return value, low, high

    def describe(self) -> dict[str, Any]:
        asked, planned = self.asked, self.planned
        parts = ["noised", "histogram", "likeliest", "top", *(["guess"] if self.guessed else [])]
        content = {"name": asked.label, "column": asked.column, "kind": planned.kind, "values_per_row": 1}
        return {**content, "parts": [], "lists": parts, "element": None, "cells": dict(planned.cells or {})}

    def assumptions(self) -> Sequence[str]:
        label = self.asked.label
        told = [
            f"{label}: _noised is how often each cell was published.",
            f"{label}: _histogram are unbiased counts before the noise; they scatter, and some are negative.",
            f"{label}: _likeliest are counts that make what was published likely, none of them negative.",
            f"{label}: these are smoother and biased, without intervals. _top are the cells where they are largest.",
        ]
        if self.guessed:
            told.append(
                f"{label}: _guess is, for each cell in order, the true cell that is likeliest where it was published, "
                "if true cells are as frequent as _likeliest says. It is then right most often, and favours frequent "
                "cells: count with _histogram, not with guesses."
            )
        if self.labels is None:
            told.append(f"{label}: a cell is row * columns + column, counted from the south-west.")
            told.append(f"{label}: places outside the box count as the nearest cell of its border.")
        return told
