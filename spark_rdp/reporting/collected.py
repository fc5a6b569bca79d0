"""What a local collection published, from its manifest alone: neither rows nor Spark are needed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from spark_rdp.collection import CollectPlan, ColumnPlan
from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.local import Local
from spark_rdp.mechanisms.local_build import build_local
from spark_rdp.unit_budget import UnitBudget

#: Inputs an average over the range is taken over.
_INPUTS = 256
#: How many standard errors an interval of 95 % reaches.
_Z95 = 1.959963984540054
#: The kind of column whose noise has a variance.
NUMBER = "number"
#: For how many reports an error is told where the manifest does not count independent ones.
EXAMPLE = 10_000


@dataclass(frozen=True)
class NoisedColumn:
    """One column and its noise.

    Attributes:
        planned: As in the manifest.
        source_type: The type in the source, as Spark writes it.
    """

    planned: ColumnPlan
    source_type: str

    @cached_property
    def mechanism(self) -> Local:
        """What noises a value."""
        return build_local(self.planned.plan.mechanism, self.planned.plan.parameters)

    @property
    def sampled(self) -> bool:
        """Whether a row reports only some of the values that share the budget."""
        return self.planned.share.reported < self.planned.share.values

    @cached_property
    def variance(self) -> float:
        """Variance of one report, averaged over the range."""
        low, width = self.mechanism.lower, self.mechanism.upper - self.mechanism.lower
        inputs = low + width * (np.arange(_INPUTS) + 0.5) / _INPUTS
        return float(self.mechanism.variance(inputs).mean())

    def error_of_mean(self, rows: int) -> float:
        """How far the noise moves the mean of the reports among so many rows at most, 95 % of the time."""
        return _Z95 * math.sqrt(self.variance * self.planned.share.scale / rows)


@dataclass(frozen=True)
class Collected:
    """A local collection.

    Attributes:
        manifest: As written beside the data.
        columns: The noised ones that hold numbers, in the order of publication.
        cells: The noised ones that hold places or categories.
        epsilon: What one report of all columns spends.
        budget: What one unit spends with all its reports.
    """

    manifest: dict[str, Any]
    columns: tuple[NoisedColumn, ...]
    cells: tuple[ColumnPlan, ...]
    epsilon: float
    budget: UnitBudget

    @classmethod
    def of(cls, manifest: dict[str, Any]) -> Collected:
        """Read a manifest.

        Raises:
            InvalidInput: It is not the manifest of a collection of this version.
        """
        try:
            plan, types = CollectPlan.of_content(manifest["plan"]), manifest["source_types"]
            numbers = {name: item for name, item in plan.columns.items() if item.kind == NUMBER}
            columns = tuple(NoisedColumn(item, types[name]) for name, item in numbers.items())
            cells = tuple(item for item in plan.columns.values() if item.cells is not None)
            if len(numbers) + len(cells) < len(plan.columns):
                raise ValueError("a column of a kind that no page explains")
            for column in columns:
                _ = column.mechanism
            budget = UnitBudget.of_manifest(manifest)
        except (KeyError, TypeError, ValueError):
            raise InvalidInput(
                "The manifest must be that of a collection of this version. Give the manifest.json beside its data."
            ) from None
        return cls(manifest, columns, cells, plan.epsilon, budget)

    @property
    def query(self) -> dict[str, Any]:
        """What was asked, as configuration writes it."""
        return dict(self.manifest["query"])

    @property
    def unit(self) -> tuple[str, ...]:
        """The columns that name the unit whose noise is memoised; empty where every row has noise of its own."""
        unit = self.manifest["unit"]
        return () if unit == "row" else tuple(unit)

    @property
    def rows(self) -> int | None:
        """How many rows were published; None where nothing was written."""
        return self.manifest.get("rows")

    @property
    def independent(self) -> int:
        """How many independent rows an error is told for: all of them, or an example where they are not counted."""
        return EXAMPLE if self.unit or not self.rows else self.rows
