"""Moving averages: noise in the periods or in the averages, whichever leaves the smaller error.

A unit counts in at most P periods (of all groups together), in each by at most D.

*Noise in the periods*: P changes of D. An average of w periods is post-processing; its noise is the mean of w
independent noises, of standard deviation ``sigma(epsilon / P) / sqrt(w)``.

*Noise in the averages*: with a stride of s a period lies in at most ceil(w/s) windows, so that P ceil(w/s) changes of D
happen to the sums over windows; several in one sum change it by no more than their sum, and the loss of a shift by a
sum is at most the sum of the losses. The noise of an average has the standard deviation
``sigma(epsilon / (P ceil(w/s))) / w``. There are only so many windows: where P periods lie in all J windows of the one
group, J changes of at most min(P, w) D are the other bound, and the smaller loss counts.

For noise whose deviation grows like 1/epsilon, periods are better when the stride is below sqrt(w), averages when it is
above. (A replaced unit counts as one removed and one added.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spark_rdp.consistency import combined_reach
from spark_rdp.errors import InvalidInput
from spark_rdp.outputs import CONFIDENCE
from spark_rdp.planning import additive
from spark_rdp.planning.plan import Plan
from spark_rdp.queries.averages import AveragesQuery
from spark_rdp.releases import charge, plan_release, split
from spark_rdp.vectors import VectorPlan

if TYPE_CHECKING:
    import pyarrow as pa

_PERIODS, _WINDOWS = "periods", "windows"


def plan_averages(query: AveragesQuery) -> VectorPlan:
    """Plan the noise of moving averages.

    Raises:
        InvalidInput: The budget is too small, or a granularity does not fit the bounds.
    """
    (component,) = plan_release(query.cells).components  # what is added up, on which lattice
    steps = 1 if component.kind == "bins" else max(abs(component.lower), abs(component.upper))
    granularity = math.ldexp(1.0, component.exponent)
    periods = query.cells.groups_per_unit * (2 if query.privacy.neighbours == "replace-one" else 1)
    changes = {_PERIODS: (periods, steps), _WINDOWS: (periods * -(-query.window // query.stride), steps)}
    if query.group_by is None and query.windows < changes[_WINDOWS][0]:
        longest = min(query.cells.groups_per_unit, query.window) * steps
        if query.privacy.neighbours == "add-remove" and query.windows * longest < changes[_WINDOWS][0] * steps:
            changes[_WINDOWS] = query.windows, longest
    epsilon = split(query.privacy.epsilon, [1])[0] / 1e6
    plans: dict[str, Plan] = {}
    for method, (coordinates, change) in changes.items():
        try:
            plans[method] = additive.plan(
                epsilon=epsilon,
                sensitivity=change * granularity,
                metric="l2",
                mechanism=query.measure.mechanism,
                coordinates=coordinates,
                granularity=granularity,
            )
        except InvalidInput:
            if method in (query.method, _PERIODS):
                raise
    divisors = {_PERIODS: math.sqrt(query.window), _WINDOWS: float(query.window)}
    errors = {method: plan.metric_value / divisors[method] for method, plan in plans.items()}
    method = min(errors, key=errors.__getitem__) if query.method == "auto" else query.method
    return VectorPlan(
        kind=query.kind,
        query_digest=query.digest(),
        unit=query.privacy.unit,
        neighbours=query.privacy.neighbours,
        epsilon_millionths=charge(query.privacy.epsilon),
        measure=query.measure.name,
        role="each period" if method == _PERIODS else f"the sum of each window of {query.window} periods",
        noise=plans[method],
        facts={
            "method": method,
            "root_mean_square_error_by_method": errors,
            "expected_root_mean_square_error": errors[method],
            "time": query.time_column,
            "groups": [name for name in query.cells.group_columns if name != query.time_column],
            "periods": query.periods,
            "window": query.window,
            "stride": query.stride,
            "max_groups": query.cells.groups_per_unit,
            "granularity": granularity,
        },
    )


@dataclass(frozen=True)
class AveragesVector:
    """From the exact periods to the published averages."""

    plan: VectorPlan

    def measured(self, exact: np.ndarray) -> np.ndarray:
        """The periods of all groups, or the sums over their windows, flat."""
        if self.plan.facts["method"] == _PERIODS:
            return exact
        return self._windows(exact.reshape(-1, self.plan.facts["periods"])).reshape(-1)

    def published(self, noised: np.ndarray, keys: pa.Table) -> pa.Table:
        """One row per group and window: its first and last period, the average, and the 95 % interval of its noise."""
        import pyarrow as pa

        facts = self.plan.facts
        periods, window, stride = facts["periods"], facts["window"], facts["stride"]
        by_period = facts["method"] == _PERIODS
        sums = self._windows(noised.reshape(-1, periods)).reshape(-1) if by_period else noised
        scale = facts["granularity"] / window
        reach = scale * combined_reach(self.plan.noise.build(), np.array(window if by_period else 1), CONFIDENCE)
        first = np.arange(0, periods - window + 1, stride)
        rows = (np.arange(keys.num_rows // periods)[:, None] * periods + first).reshape(-1)
        groups = {name: keys.column(name).take(pa.array(rows)) for name in facts["groups"]}
        time = keys.column(facts["time"])
        ends = {f"{facts['time']}_from": rows, f"{facts['time']}_to": rows + window - 1}
        averages = sums.astype(np.float64) * scale
        name = self.plan.measure
        return pa.table(
            {
                **groups,
                **{column: time.take(pa.array(places)) for column, places in ends.items()},
                name: averages,
                f"{name}_low": averages - reach,
                f"{name}_high": averages + reach,
            }
        )

    def _windows(self, series: np.ndarray) -> np.ndarray:
        """Sums over windows along the last axis; exact in whole numbers."""
        sums = np.cumsum(np.pad(series, ((0, 0), (1, 0))), axis=-1)
        window, stride = self.plan.facts["window"], self.plan.facts["stride"]
        return (sums[:, window:] - sums[:, :-window])[:, ::stride]
