"""Range counts: which strategy and noise, what they are expected to cost, and what is published.

A unit counts in at most ``max_groups`` cells, at most ``max_per_group`` times in each. A row in a cell changes one
answer of every level of the strategy by one (`Strategy.levels`, crossed over the dimensions), so a unit changes at most
``max_groups * levels`` answers by at most ``max_per_group`` each; cells that share an answer change it by no more than
their sum, and the loss of a shift by a sum is at most the sum of the losses. (A replaced unit counts as one removed and
one added.)

Source: mathematics, section 1.6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spark_rdp.consistency import combined_reach
from spark_rdp.mechanisms.geometric import Geometric
from spark_rdp.metrics import L2
from spark_rdp.outputs import CONFIDENCE
from spark_rdp.planning import additive
from spark_rdp.planning.workload import (
    NAMES,
    Product,
    Strategy,
    all_ranges,
    best_product,
    prefixes,
    range_errors,
    single_cells,
)
from spark_rdp.queries.ranges import COUNT, RangesQuery, number_of_ranges
from spark_rdp.releases import charge, split
from spark_rdp.vectors import VectorPlan

if TYPE_CHECKING:
    import pyarrow as pa

_TRACES = {"ranges": all_ranges, "prefixes": prefixes, "cells": single_cells}
_LIST = "list"


def plan_ranges(query: RangesQuery) -> VectorPlan:
    """Choose what is noised and with which noise, for the smallest expected total squared error of the workload.

    The error of least squares depends on the noise by its variance only, so the noise is planned for l2. Strategies are
    compared with Laplace noise; the expected error in the facts of the plan is that of the noise chosen, exactly.

    Raises:
        InvalidInput: The budget is too small, or the domain too large for the strategy asked for.
    """
    cap, groups = query.max_per_group or 1, query.cells.groups_per_unit
    changed = groups * (2 if query.privacy.neighbours == "replace-one" else 1)
    epsilon = split(query.privacy.epsilon, [1])[0] / 1e6
    names = NAMES if query.strategy == "auto" else (query.strategy,)

    def variance(levels: int) -> float:
        return Geometric(epsilon / (changed * levels * cap)).expectation(L2(), 1.0)

    errors = _Errors.of(query)
    product, totals = best_product(query.shape, errors.of_side, variance, names)
    noise = additive.plan(
        epsilon=epsilon,
        sensitivity=cap,
        metric="l2",
        mechanism=query.mechanism,
        coordinates=changed * product.levels,
        granularity=1,
    )
    unit_error = float(np.prod([errors.of_side(p, part) for p, part in enumerate(product.parts)], axis=0).sum())
    expected = unit_error * noise.metric_value**2
    boxes = query.boxes()
    number = len(boxes) if boxes is not None else number_of_ranges(query.workload, query.shape)
    return VectorPlan(
        kind=query.kind,
        query_digest=query.digest(),
        unit=query.privacy.unit,
        neighbours=query.privacy.neighbours,
        epsilon_millionths=charge(query.privacy.epsilon),
        measure=COUNT,
        role=f"answers of the strategy {product.name}",
        noise=noise,
        facts={
            "columns": list(query.axes),
            "shape": list(query.shape),
            "max_groups": groups,
            "max_per_group": cap,
            "workload": query.workload if boxes is None else _LIST,
            "boxes": boxes and [[list(side) for side in box] for box in boxes],
            "strategy": [[p.name, p.cells, p.branching, p.height, p.top] for p in product.parts],
            "strategy_name": product.name,
            "answers": product.answers,
            "ranges": number,
            "expected_total_squared_error": expected,
            "expected_root_mean_square_error": math.sqrt(expected / number),
            "root_mean_square_error_by_strategy": {
                name: math.sqrt(total / number) for name, total in sorted(totals.items(), key=lambda item: item[1])
            },
        },
    )


@dataclass(frozen=True)
class _Errors:
    """The squared error of a workload for noise of variance 1."""

    workload: str
    boxes: np.ndarray | None

    @classmethod
    def of(cls, query: RangesQuery) -> _Errors:
        boxes = query.boxes()
        return cls(query.workload if boxes is None else _LIST, None if boxes is None else np.array(boxes))

    def of_side(self, place: int, strategy: Strategy) -> np.ndarray:
        """The errors of one dimension: the total of a named workload, or of each range of a list."""
        if self.boxes is not None:
            return range_errors(strategy, self.boxes[:, place, 0], self.boxes[:, place, 1])
        trace = _TRACES[self.workload]
        return np.array([strategy.error([trace(strategy.cells, length) for length in strategy.lengths])])


@dataclass(frozen=True)
class RangesVector:
    """From the exact counts of the cells to the published counts."""

    plan: VectorPlan

    @property
    def product(self) -> Product:
        """What is noised."""
        return Product(tuple(Strategy(*part) for part in self.plan.facts["strategy"]))

    def measured(self, exact: np.ndarray) -> np.ndarray:
        """The answers of the strategy, from the counts of the cells in the order of their keys."""
        return self.product.measure(np.asarray(exact, dtype=np.int64).reshape(self.plan.facts["shape"]))

    def estimate(self, noised: np.ndarray) -> np.ndarray:
        """The cells, with an axis for each column."""
        return self.product.estimate(noised)

    def published(self, noised: np.ndarray, keys: pa.Table) -> pa.Table:
        """The cells, the numbers up to each cell, or the ranges of a list, with the 95 % intervals of their noise."""
        import pyarrow as pa

        facts = self.plan.facts
        cells = self.estimate(noised)
        if facts["workload"] == _LIST:
            return pa.table({**self._ends(keys), **self._numbers(*self._listed(cells))})
        if facts["workload"] == "prefixes":
            counts = cells
            for axis in range(cells.ndim):
                counts = np.cumsum(counts, axis=axis)
            sides = [
                range_errors(part, np.zeros(part.cells, dtype=np.int64), np.arange(part.cells))
                for part in self.product.parts
            ]
        else:
            counts = cells
            sides = [range_errors(part, np.arange(part.cells), np.arange(part.cells)) for part in self.product.parts]
        squares = sides[0]
        for side in sides[1:]:
            squares = np.multiply.outer(squares, side)
        columns = {name: keys.column(name) for name in facts["columns"]}
        return pa.table({**columns, **self._numbers(counts.reshape(-1), squares.reshape(-1))})

    def _listed(self, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The listed ranges and the sums of the squared weights of the noise in them."""
        boxes = np.array(self.plan.facts["boxes"])
        sums = np.pad(cells, [(1, 0)] * cells.ndim)
        for axis in range(cells.ndim):
            sums = np.cumsum(sums, axis=axis)
        counts = np.zeros(len(boxes))
        for corner in range(2**cells.ndim):
            upper = [(corner >> axis) & 1 for axis in range(cells.ndim)]
            place = tuple(boxes[:, axis, 1] + 1 if up else boxes[:, axis, 0] for axis, up in enumerate(upper))
            counts += (-1.0) ** (cells.ndim - sum(upper)) * sums[place]
        errors = [
            range_errors(part, boxes[:, axis, 0], boxes[:, axis, 1]) for axis, part in enumerate(self.product.parts)
        ]
        return counts, np.prod(errors, axis=0)

    def _ends(self, keys: pa.Table) -> dict[str, Any]:
        """The first and the last key of every listed range."""
        facts = self.plan.facts
        boxes = np.array(facts["boxes"])
        columns: dict[str, Any] = {}
        for axis, name in enumerate(facts["columns"]):
            # The keys of one axis: every so many-th row of the crossed keys.
            step = math.prod(facts["shape"][axis + 1 :])
            own = keys.column(name).combine_chunks()[: step * facts["shape"][axis] : step]
            columns[f"{name}_from"] = own.take(_indices(boxes[:, axis, 0]))
            columns[f"{name}_to"] = own.take(_indices(boxes[:, axis, 1]))
        return columns

    def _numbers(self, counts: np.ndarray, squares: np.ndarray) -> dict[str, np.ndarray]:
        reach = combined_reach(self.plan.noise.build(), squares, CONFIDENCE)
        return {COUNT: counts, f"{COUNT}_low": counts - reach, f"{COUNT}_high": counts + reach}


def _indices(places: np.ndarray) -> Any:
    import pyarrow as pa

    return pa.array(places, pa.int64())
