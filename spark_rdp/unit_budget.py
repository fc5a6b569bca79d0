"""What one unit of a local collection spends with all its reports together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from spark_rdp.collection import CollectPlan
from spark_rdp.queries import ROW, CollectQuery

_UNBOUNDED = (
    "Rows are protected one by one: a unit with several rows spends epsilon {each} with each of them, and how many it "
    "has is not bounded."
)
_MEMOIZED = (
    "Each distinct value of one {unit} spends epsilon {each} once, however often it is reported; how many distinct "
    "values it has is not bounded."
)
_ROW = (
    "Every row is of another unit, which spends epsilon {total} with it. Budgets add up: every further run that "
    "publishes the same row adds as much."
)
_REPORTS = (
    "A run publishes at most {reports} of the rows of one {unit}. Budgets add up: {reports} times epsilon {each} is "
    "{total}, and every further run adds as much."
)


@dataclass(frozen=True)
class UnitBudget:
    """What one unit spends in one run of a local collection, and by which rule.

    Attributes:
        unit: What names the unit: a column, several (memoised by all of them), or ``row``.
        max_reports: The most rows of one unit that a run publishes; None if that is not bounded.
        epsilon: The most one unit spends in one run; None if that is not bounded.
        memoized: Whether a value that is repeated costs nothing.
        composition: The rule, in words.
    """

    unit: str
    max_reports: int | None
    epsilon: float | None
    memoized: bool
    composition: str

    @property
    def unbounded(self) -> bool:
        """Whether a unit that repeats itself spends without end."""
        return self.epsilon is None and not self.memoized

    @property
    def counted(self) -> bool:
        """Whether the rows of a unit are counted, and what is too many is left out."""
        return self.max_reports is not None and self.unit != ROW

    def over(self, runs: int) -> float | None:
        """The most one unit spends in so many runs, as decimal numbers are multiplied; None if not bounded."""
        return None if self.epsilon is None else _times(runs, self.epsilon)

    def content(self) -> dict[str, Any]:
        """The budget as JSON values, for a manifest."""
        named = {"unit": self.unit, "max_reports": self.max_reports}
        return {**named, "unit_epsilon": self.epsilon, "composition": self.composition}

    @classmethod
    def of(cls, query: CollectQuery, plan: CollectPlan) -> UnitBudget:
        """The budget of a unit of a collection."""
        if query.memoize is not None:
            unit = " and ".join(query.memoize.by)
            return cls(unit, None, None, True, _MEMOIZED.format(unit=unit, each=_text(plan.epsilon)))
        if query.privacy is None:
            return cls(ROW, None, None, False, _UNBOUNDED.format(each=_text(plan.epsilon)))
        reports, unit = query.privacy.reports, query.privacy.unit
        total = _times(reports, plan.epsilon)
        words = _ROW if query.privacy.by_row else _REPORTS
        told = words.format(unit=unit, reports=f"{reports:,}", each=_text(plan.epsilon), total=_text(total))
        return cls(unit, reports, total, False, told)

    @classmethod
    def of_manifest(cls, manifest: Mapping[str, Any]) -> UnitBudget:
        """The budget that the manifest of a collection states; one that states none bounds only single rows."""
        memoized = manifest["unit"] != ROW
        if "privacy" in manifest:
            stated = manifest["privacy"]
            facts = (stated["unit"], stated["max_reports"], stated["unit_epsilon"])
            return cls(*facts, memoized, stated["composition"])
        each = _text(CollectPlan.of_content(manifest["plan"]).epsilon)
        unit = " and ".join(manifest["unit"]) if memoized else ROW
        return cls(unit, None, None, memoized, (_MEMOIZED if memoized else _UNBOUNDED).format(unit=unit, each=each))


def _times(number: int, epsilon: float) -> float:
    return float(number * Decimal(repr(epsilon)))


def _text(epsilon: float) -> str:
    return f"{epsilon:.10g}"
