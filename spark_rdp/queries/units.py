"""Whom a local collection protects, and with how many rows: the section ``privacy`` of ``kind: collect``."""

from __future__ import annotations

from pydantic import Field, model_validator

from spark_rdp.queries.base import MaxReports, Refused, Strict, refuse
from spark_rdp.queries.release import ROW, Text


class UnitPrivacy(Strict):
    """The privacy unit of a local collection.

    What one row spends is said by its columns; here is said how many rows one unit has in a run, so that what a unit
    spends in all is known: ``max_reports`` times as much. Rows without a unit are left out, as in a release.

    Args:
        unit: The column that names the person or device; ``row`` when every row is of another one.
        max_reports: The most rows of one unit that a run publishes. A unit with more keeps those that a keyed hash of
            unit and row key chooses, never their values. Left out for ``row``.
    """

    unit: Text = Field(description="Name the column of the privacy unit, or write row if every row is of another one.")
    max_reports: MaxReports | None = None

    @property
    def by_row(self) -> bool:
        """Whether every row is of another unit."""
        return self.unit == ROW

    @property
    def reports(self) -> int:
        """The most rows of one unit in a run."""
        return self.max_reports or 1

    @model_validator(mode="after")
    def _checked(self) -> UnitPrivacy:
        if self.by_row and self.reports != 1:
            raise refuse("max_reports", "left out where every row is another unit", self.max_reports, "Or name a unit.")
        if not self.by_row and self.max_reports is None:
            remedy = f"Without it one {self.unit} could spend any budget; say how many rows of it a run publishes."
            raise Refused("max_reports", f" must be given. {remedy}")
        return self
