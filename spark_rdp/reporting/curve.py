"""How well a private model predicts, by epsilon: a table, and a page with a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup

from spark_rdp.reporting.document import fill, write
from spark_rdp.reporting.picture import CHOSEN, RIVALS, canvas, ticks
from spark_rdp.reporting.words import number, plain

MEASURES = ("accuracy", "precision", "recall")


@dataclass(frozen=True)
class CurvePoint:
    """One fit.

    Args:
        epsilon: What it was charged.
        accuracy: The share of the rows that are told right.
        precision: The share of those told to be positive that are; NaN if none is told to be.
        recall: The share of the positive ones that are told to be; NaN if there are none.
    """

    epsilon: float
    accuracy: float
    precision: float
    recall: float

    @classmethod
    def of(cls, epsilon: float, told: Mapping[tuple[float, float], int], positive: float) -> CurvePoint:
        """From the number of rows by label and prediction."""
        right = {label: count for (label, prediction), count in told.items() if label == prediction}.get(positive, 0)
        named = sum(count for (_, prediction), count in told.items() if prediction == positive)
        there = sum(count for (label, _), count in told.items() if label == positive)
        agreed = sum(count for (label, prediction), count in told.items() if label == prediction)
        shares = ((agreed, sum(told.values())), (right, named), (right, there))
        return cls(epsilon, *(part / whole if whole else math.nan for part, whole in shares))


@dataclass(frozen=True)
class PrivacyCurve:
    """What more budget buys.

    Args:
        name: Of the estimator.
        points: One for each fit, by epsilon.
        positive: The label that precision and recall are about.
        rows: How many rows it was tested on.
        features: The columns it was learnt from.
    """

    name: str
    points: Sequence[CurvePoint]
    positive: int
    rows: int
    features: Sequence[str]

    @property
    def spent(self) -> float:
        """What all fits together were charged."""
        return math.fsum(point.epsilon for point in self.points)

    def table(self) -> list[dict[str, float]]:
        """One row for each epsilon: the fits, and mean and standard deviation of each measure over them."""
        found = []
        for epsilon in sorted({point.epsilon for point in self.points}):
            fits = [asdict(point) for point in self.points if point.epsilon == epsilon]
            row: dict[str, float] = {"epsilon": epsilon, "fits": len(fits)}
            for measure in MEASURES:
                values = np.array([fit[measure] for fit in fits])
                values = values[~np.isnan(values)]
                row[measure] = float(values.mean()) if len(values) else math.nan
                row[f"{measure}_deviation"] = float(values.std()) if len(values) else math.nan
            found.append(row)
        return found

    def report(self, path: str | Path) -> Path:
        """Write the page.

        Raises:
            JobFailed: It cannot be written.
        """
        rows = self.table()
        cells = [[plain(row["epsilon"]), plain(row["fits"]), *(_share(row, name) for name in MEASURES)] for row in rows]
        page = fill(
            "curve.html.j2",
            name=self.name,
            picture=Markup(self._picture(rows)),
            measures=MEASURES,
            rows=cells,
            facts=[
                ("Learnt from", ", ".join(self.features)),
                ("Tested on", f"{self.rows:,} rows with a label"),
                ("Precision and recall", f"of the label {self.positive}"),
                ("Spent by all fits together", f"epsilon {plain(self.spent)}"),
            ],
        )
        return write(page, Path(path))

    def _picture(self, rows: Sequence[Mapping[str, float]]) -> str:
        """The three measures against epsilon, with one standard deviation of the fits on either side."""
        epsilons = [row["epsilon"] for row in rows]
        styles = [(CHOSEN, "solid"), *RIVALS]
        with canvas((7.2, 3.6), "privacy-curve", "Accuracy, precision and recall against epsilon") as drawing:
            (axes,) = drawing.axes()
            for measure, (colour, dashes) in zip(MEASURES, styles, strict=False):
                value, away = (np.array([row[key] for row in rows]) for key in (measure, f"{measure}_deviation"))
                axes.plot(epsilons, value, color=colour, linestyle=dashes, marker="o", markersize=3, label=measure)
                axes.fill_between(epsilons, value - away, value + away, color=colour, alpha=0.15, linewidth=0)
            axes.set_xscale("log")
            ticks(axes.xaxis, 6, logarithmic=True)
            axes.set_ylim(0, 1.02)
            axes.set_xlabel("epsilon of one fit")
            axes.set_ylabel("share of rows")
            axes.legend(frameon=False, loc="lower right")
        return drawing.svg


def _share(row: Mapping[str, float], measure: str) -> str:
    value, away = row[measure], row[f"{measure}_deviation"]
    return number(value) if math.isnan(value) or row["fits"] == 1 else f"{number(value)} ± {number(away, 2)}"
