"""The rows with the largest published values of each measure, found in one pass over any number of rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

#: Types of the measures whose largest values mean something; a mean over few rows is mostly noise.
RANKED = frozenset({"count", "count_units", "sum"})
MOST_LARGEST = 10

Columns = dict[str, list[Any]]


class Largest:
    """Collects the largest values of some measures batch by batch; of equal values the first rows are kept.

    Args:
        measures: Their columns hold numbers.
        names: The columns that are kept of a row.
        most: How many rows are kept of each measure.
    """

    def __init__(self, measures: Iterable[str], names: Sequence[str], most: int = MOST_LARGEST) -> None:
        self._names, self._most = list(names), most
        self._rows: dict[str, list[tuple[Any, ...]]] = {measure: [] for measure in measures}
        self._values: dict[str, np.ndarray] = {measure: np.empty(0) for measure in measures}

    def add(self, batch: Any) -> None:
        """Look at an Arrow record batch."""
        for measure, known in self._values.items():
            values = np.concatenate([known, batch.column(measure).to_numpy(zero_copy_only=False).astype(np.float64)])
            kept = np.argsort(-values, kind="stable")[: self._most]
            rows, fresh = self._rows[measure], kept[kept >= len(known)] - len(known)
            parts = [batch.column(name).take(fresh).to_pylist() for name in self._names]
            new = dict(zip((fresh + len(known)).tolist(), zip(*parts, strict=True), strict=True))
            self._rows[measure] = [new[place] if place in new else rows[place] for place in kept.tolist()]
            self._values[measure] = values[kept]

    def columns(self) -> dict[str, Columns]:
        """For each measure its rows, the largest value first, as columns."""
        found = {}
        for measure, rows in self._rows.items():
            found[measure] = {name: [row[place] for row in rows] for place, name in enumerate(self._names)}
        return found
