"""What the noise of whole rows must satisfy, as checks that raise AssertionError; for the real one and the mutants.

Correlations are held against 6 standard errors: a false alarm has probability 2e-9 for each.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa

from spark_rdp.collection import CollectPlan, plan_collect
from spark_rdp.digests import RowDigests
from spark_rdp.mechanisms.local_build import build_local
from spark_rdp.queries import CollectQuery
from spark_rdp.spark.row_noise import RowNoise

SECRET = bytes(range(32))
ROWS, MOMENT_ROWS = 20_000, 80_000
LOWER, UPPER = 0.0, 101.0


def asked(*columns: dict[str, Any], **changes: Any) -> CollectQuery:
    """A query for columns c0, c1, ... with one budget of epsilon 1, unless they have their own."""
    plain = {"lower": LOWER, "upper": UPPER, "mechanism": "podium"}
    items = [{"column": f"c{place}", **plain, **item} for place, item in enumerate(columns)]
    shared = {} if all("epsilon" in item for item in items) else {"epsilon": 1.0}
    return CollectQuery(**{"name": "rows", "row_key": ["id"], "columns": items, **shared, **changes})


#: Two columns of which a row reports one, two that are always reported, and an array.
SAMPLED = asked({}, {}, {}, sample=1)
APART = asked({"epsilon": 1.0}, {"epsilon": 1.0})
ARRAY = asked({"epsilon": 3.0, "length": 3, "sample": 3})


def noise_of(query: CollectQuery) -> tuple[CollectPlan, RowNoise]:
    """The plan and the noise of a query."""
    plan = plan_collect(query)
    return plan, RowNoise.of(query, plan, SECRET)


def published(noise: RowNoise, values: list[np.ndarray], first: int = 0) -> list[np.ndarray]:
    """The published columns of rows ``first``, ``first + 1``, ...; float64 of shape (n,) or (n, length)."""
    keys = pa.array(np.arange(first, first + len(values[0])))
    columns = [pa.array(list(column) if column.ndim > 1 else column) for column in values]
    found = noise.noised(RowDigests(noise.key), [keys, *columns])
    lists = [pa.types.is_list(column.type) for column in found]
    flat = [column.flatten() if nested else column for column, nested in zip(found, lists, strict=True)]
    return [part.to_numpy().reshape(np.shape(given)) for part, given in zip(flat, values, strict=True)]


def constant(noise: RowNoise, value: float, rows: int = ROWS) -> list[np.ndarray]:
    """The published columns when all values are the same."""
    shapes = [(rows,) if column.length is None else (rows, column.length) for column in noise.columns]
    return published(noise, [np.full(shape, value) for shape in shapes])


def check_apart(first: np.ndarray, second: np.ndarray) -> None:
    """Two columns of noise have nothing to do with each other."""
    assert np.mean(first == second) < 0.01, "noise is repeated"
    assert abs(np.corrcoef(first, second)[0, 1]) < 6 / math.sqrt(len(first)), "noise is correlated"


def check_batches(noise: RowNoise) -> None:
    """A row is published the same, whichever batch it is in and wherever (known-faults, rows 120 and 165)."""
    whole = constant(noise, 42.0, rows=60)
    shapes = [column.shape[1:] for column in whole]
    for size in (1, 7):
        for start in range(0, 60, size):
            rows = min(size, 60 - start)
            parts = published(noise, [np.full((rows, *shape), 42.0) for shape in shapes], start)
            for part, column in zip(parts, whole, strict=True):
                assert np.array_equal(part, column[start : start + rows]), "a batch decides the noise of its rows"


def check_rows_apart(noise: RowNoise) -> None:
    """Equal rows have different noise; none is the noise of the row before (known-faults, rows 119 and 122)."""
    for column in constant(noise, 42.0):
        drawn = column.reshape(len(column), -1)[:, 0]
        for lag in (1, 2, 4096):
            check_apart(drawn[lag:], drawn[:-lag])


def check_columns_apart(noise: RowNoise) -> None:
    """Every two columns and every two elements of a row have different noise, values and plans being equal."""
    drawn = np.column_stack([column.reshape(len(column), -1) for column in constant(noise, 42.0)]).T
    for place, first in enumerate(drawn):
        for second in drawn[:place]:
            check_apart(first, second)


def check_values_are_keyed(noise: RowNoise) -> None:
    """Another value has unrelated noise, so that a changed input never shows the difference."""
    for first, second in zip(constant(noise, 42.0), constant(noise, 42.0 + 2**-20), strict=True):
        check_apart(first.ravel(), second.ravel())


def check_clamped(noise: RowNoise) -> None:
    """A value out of range is published as the nearest one of the range."""
    for value, nearest in ((-5.0, LOWER), (1e300, UPPER), (math.inf, UPPER), (-0.0, 0.0)):
        for first, second in zip(constant(noise, value, 100), constant(noise, nearest, 100), strict=True):
            assert np.array_equal(first, second), "a value out of range is told from the end of the range"


def check_reports(noise: RowNoise, plan: CollectPlan) -> None:
    """Each row reports exactly as many values as planned, every value as often, whatever the values are."""
    [share] = plan.shares
    unsampled = [item.unsampled for item in plan.columns.values()]
    assert None not in unsampled

    def reported(value: float) -> np.ndarray:
        columns = [column.reshape(len(column), -1) for column in constant(noise, value)]
        return np.column_stack([column != u for column, u in zip(columns, unsampled, strict=True)])

    low, high = reported(LOWER), reported(UPPER)
    assert np.array_equal(low, high), "what is reported depends on the values"
    assert (low.sum(axis=1) == share.reported).all(), "a row reports more or less than planned"
    rate = share.reported / share.values
    assert (abs(low.mean(axis=0) - rate) < 6 * math.sqrt(rate * (1 - rate) / ROWS)).all(), (
        "some are reported more often"
    )


def check_moments(noise: RowNoise, plan: CollectPlan) -> None:
    """Mean and variance of what is published, within 6 standard errors at three inputs (false alarms 1e-8 each).

    A scale that is 3 % wrong is 6 % off in variance, several times the tolerance.
    """
    for value in (LOWER, 30.0, UPPER):
        for column, item in zip(constant(noise, value, MOMENT_ROWS), plan.columns.values(), strict=True):
            drawn = column.ravel()
            variance = float(build_local(item.plan.mechanism, item.plan.parameters).variance(np.array([value]))[0])
            if item.unsampled is not None:
                away = (value - item.unsampled) ** 2
                variance = item.share.scale * (variance + away) - away
            assert abs(drawn.mean() - value) < 6 * math.sqrt(variance / len(drawn)), "the mean is biased"
            squares = (drawn - value) ** 2
            assert abs(squares.mean() - variance) < 6 * squares.std() / math.sqrt(len(drawn)), "the variance is wrong"
