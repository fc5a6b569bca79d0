"""Local noise for people who live in SQL: ``SELECT podium(battery, 0, 100, 1.0, device, event_id) FROM telemetry``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import DoubleType

from spark_rdp.digests import RowDigests
from spark_rdp.domains import EPSILON, check_bounds
from spark_rdp.errors import InvalidInput, invalid
from spark_rdp.mechanisms.local import Local
from spark_rdp.planning.local import LocalProblem, candidates
from spark_rdp.planning.local_metrics import AVERAGE, LocalMetric
from spark_rdp.randomness import SECRET_BYTES, load_secret, new_secret, stream_key
from spark_rdp.spark.batches import Batch, by_long_batches, keep_memory
from spark_rdp.spark.failures import worded
from spark_rdp.spark.row_noise import keyed_noise

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The functions, each with the mechanism the planner knows.
FUNCTIONS = {
    "podium": "podium",
    "duchi": "duchi",
    "piecewise": "piecewise",
    "hybrid": "hybrid",
    "laplace_noise": "laplace",
    "staircase_noise": "staircase",
    "r2dp_noise": "r2dp",
}
#: value, lower, upper, epsilon; what follows is the row key.
_FIXED = 4


def register_functions(spark: SparkSession, *, secret: bytes | str | None = None) -> tuple[str, ...]:
    """Register temporary SQL functions ``podium(value, lower, upper, epsilon, key...)`` and the like.

    Each returns a DOUBLE, never null: the clamped value with noise of epsilon-local differential privacy, every value
    of [lower, upper] being the neighbour of every other. A missing value is taken for the midpoint. Dates count in
    days, times in seconds, both since 1970-01-01 UTC. The key names the row, so that a row has one noise however often
    it is computed; two rows with one key and one value have the same noise.

    Args:
        spark: The session.
        secret: 32 bytes, ``env:NAME`` or ``file:PATH`` for noise that is the same in other sessions; drawn afresh when
            absent.

    Returns:
        The names: ``podium``, ``duchi``, ``piecewise``, ``hybrid``, ``laplace_noise``, ``staircase_noise`` and
        ``r2dp_noise``.

    Raises:
        InvalidInput: The secret cannot be used.
    """
    used = new_secret() if secret is None else load_secret(secret) if isinstance(secret, str) else secret
    if len(used) != SECRET_BYTES:
        raise invalid("secret", f"{SECRET_BYTES} bytes", f"{len(used)} bytes", "Use secrets.token_bytes(32).")
    with worded():
        for name in FUNCTIONS:
            spark.udf.register(name, _function(name, stream_key(used, "sql", name)))
    return tuple(FUNCTIONS)


def _function(name: str, key: bytes) -> Any:
    def noise(batches: Iterator[Batch]) -> Iterator[pa.Array]:
        keep_memory()
        return by_long_batches(partial(noised_batch, name, key), batches)

    function: Any = arrow_udf(noise, DoubleType())  # type: ignore[call-overload]
    return function.asNondeterministic()


def noised_batch(name: str, key: bytes, batch: Batch) -> pa.Array:
    """The noised values of one batch.

    Args:
        name: The function.
        key: 32 bytes, of this function.
        batch: value, lower, upper, epsilon and the columns of the row key, as Spark passes them.
    """
    if len(batch) <= _FIXED:
        raise InvalidInput(f"{name} must be given a key. Write {name}(value, lower, upper, epsilon, key, ...).")
    value, keys = batch[0], batch[_FIXED:]
    if not len(value):
        return pa.array([], pa.float64())
    if any(part.null_count for part in keys):
        raise InvalidInput(f"key must not be null in any row of {name}. Use columns that are always there.")
    settings = [
        _constant(text, part) for text, part in zip(("lower", "upper", "epsilon"), batch[1:_FIXED], strict=True)
    ]
    mechanism = _mechanism(FUNCTIONS[name], *settings)
    digests = RowDigests(stream_key(key, "row key")).of([_key(part) for part in keys])
    return pa.array(keyed_noise(mechanism, stream_key(key, *map(repr, settings)), _numbers(name, value), digests))


@lru_cache(maxsize=64)
def _mechanism(name: str, lower: float, upper: float, epsilon: float) -> Local:
    low, high = check_bounds(lower, upper)
    budget = EPSILON.check(epsilon)
    problem = LocalProblem(budget, low, high, LocalMetric.of(AVERAGE, low, high, None))
    return candidates()[name](problem)


def _constant(name: str, column: pa.Array) -> float:
    """The one number of a column of equal numbers."""
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise InvalidInput(f"{name} must be a number, not of type {kind}. Write it as a literal.")
    numbers = _as_doubles(column)
    if not (numbers == numbers[0]).all():
        raise InvalidInput(f"{name} must be the same number in every row. Write it as a literal.")
    return float(numbers[0])


def _numbers(name: str, column: pa.Array) -> np.ndarray:
    kind = column.type
    if pa.types.is_date32(kind):
        return _as_doubles(column.cast(pa.int32()))
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return _as_doubles(column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())) / 1e6
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _as_doubles(column)
    raise InvalidInput(f"value must be a number, a date or a timestamp in {name}, not of type {kind}. Cast it.")


def _as_doubles(column: pa.Array) -> np.ndarray:
    """float64; a null is NaN. No value makes the cast fail."""
    numbers: np.ndarray = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers


def _key(column: pa.Array) -> pa.Array:
    """A column of the row key as `RowDigests` takes it."""
    kind = column.type
    if pa.types.is_integer(kind):
        return column.cast(pa.int64())
    if pa.types.is_timestamp(kind):
        return column.cast(pa.int64())
    if pa.types.is_date32(kind):
        return column.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        return column
    raise InvalidInput(f"key must be texts, whole numbers, dates or times, not of type {kind}. Cast it to STRING.")
