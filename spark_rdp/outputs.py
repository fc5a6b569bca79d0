"""From noised integers to published values with their 95 % intervals. Post-processing: no data, no budget.

The intervals are those of the noise. What clamping and caps took away is not in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from spark_rdp.lattice import Lattice
from spark_rdp.releases import Component

#: How often an interval covers the exact bounded statistic, at least.
CONFIDENCE = 0.95

Published: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]


def public_values(measure: str, components: Sequence[Component], noised: Mapping[str, np.ndarray]) -> Published:
    """The published column of one measure and the ends of its intervals.

    Args:
        measure: The name of the measure.
        components: The components of the release, or of this measure.
        noised: The noised integers (int64) by component column; bins have the shape (groups, bins), quantiles the
            shape (groups, 3): which candidates were selected as value and ends.

    Returns:
        Values, lower ends and upper ends: int64 for counts and bins, float64 for the others; never null or NaN.
        A mean lies between its bounds, and is their middle where the noised count is not positive.
    """
    own = {component.role: component for component in components if component.measure == measure}
    if len(own) == 2:
        total, count = own["sum"], own["count"]
        return _mean(total, noised[total.column], count, noised[count.column])
    (component,) = own.values()
    values = np.asarray(noised[component.column], dtype=np.int64)
    if component.role == "quantile":
        assert component.candidates is not None
        value, low, high = np.array(component.candidates)[values].T
        return value, low, high
    reach = component.plan.build().quantile(CONFIDENCE)
    low, high = values - reach, values + reach
    if component.role == "count" and component.value_upper is not None:
        most = int(component.value_upper)
        values, low, high = (np.clip(part, 0, most) for part in (values, low, high))
    if component.role != "sum":
        return values, low, high
    lattice = Lattice(component.exponent)
    return lattice.to_values(values), lattice.to_values(low), lattice.to_values(high)


def _mean(total: Component, sums: np.ndarray, count: Component, counts: np.ndarray) -> Published:
    """centre + sum / count, clamped; both parts lie in their 97.5 % intervals at once with probability 0.95 or more."""
    assert total.value_lower is not None
    assert total.value_upper is not None
    assert total.centre is not None
    lattice, level = Lattice(total.exponent), (1 + CONFIDENCE) / 2
    reach = total.plan.build().quantile(level)
    spread = count.plan.build().quantile(level)
    fewest = np.maximum(counts - spread, 1).astype(np.float64)
    most = np.maximum(counts + spread, 1).astype(np.float64)
    low_sum, high_sum = lattice.to_values(sums - reach), lattice.to_values(sums + reach)

    def published(sum_part: np.ndarray, count_part: np.ndarray) -> np.ndarray:
        return np.clip(total.centre + sum_part / count_part, total.value_lower, total.value_upper)

    # A negative sum is lowest over few rows, a positive one over many.
    low = published(low_sum, np.where(low_sum < 0, fewest, most))
    high = published(high_sum, np.where(high_sum < 0, most, fewest))
    values = published(lattice.to_values(sums), np.maximum(counts, 1).astype(np.float64))
    unknown = counts <= 0
    hopeless = counts + spread < 1  # even the upper end of the count leaves no row: nothing is known
    values = np.where(unknown, total.centre, values)
    low = np.where(hopeless, total.value_lower, np.minimum(low, values))
    high = np.where(hopeless, total.value_upper, np.maximum(high, values))
    return values, low, high
