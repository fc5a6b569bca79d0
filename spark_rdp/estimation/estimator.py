"""What an estimator of a column offers, whatever its values are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spark_rdp.collection import ColumnPlan
from spark_rdp.estimation.moments import Counts, Sampling
from spark_rdp.queries import EstimatedColumn


@dataclass(frozen=True)
class Options:
    """What holds for all columns of a query.

    Attributes:
        sampling: What intervals are about.
        post: What is done with impossible results.
    """

    sampling: Sampling
    post: tuple[str, ...] = ()


class Estimator(ABC):
    """Turns counts of the reports of a column into answers.

    Attributes:
        asked: What is wanted.
        planned: How the column was published.
    """

    asked: EstimatedColumn
    planned: ColumnPlan

    @property
    @abstractmethod
    def cells(self) -> int:
        """How many cells the outputs are counted in; 1 where sums are enough."""

    @abstractmethod
    def places(self, labels: np.ndarray) -> np.ndarray:
        """The place of each cell among `cells` by what Spark calls it; -1 for what is none."""

    @property
    @abstractmethod
    def values_per_row(self) -> int:
        """How many values a row has."""

    @property
    @abstractmethod
    def distributions(self) -> int:
        """How many distributions are worked out for each group: what takes time on the driver."""

    @abstractmethod
    def answers(self, counts: Counts) -> dict[str, pa.Array]:
        """The published columns, one value for each group."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What the published columns mean, as JSON values."""

    @abstractmethod
    def assumptions(self) -> Sequence[str]:
        """What the answers rest on, in sentences."""
