"""Noise of rows with one fault each. A named check must catch every one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
from statistical.row_checks import LOWER, UPPER

from spark_rdp.digests import RowDigests
from spark_rdp.mechanisms.local import Local
from spark_rdp.mechanisms.podium import Podium
from spark_rdp.spark.row_noise import ColumnNoise, Draw, RowNoise


def with_columns(noise: RowNoise, kind: type[ColumnNoise]) -> RowNoise:
    """The same noise, its columns of a broken kind."""
    return replace(noise, columns=tuple(kind(**_parts(column)) for column in noise.columns))


def of_kind(noise: RowNoise, kind: type[RowNoise]) -> RowNoise:
    """The same noise, of a broken kind."""
    return kind(**_parts(noise))


def _parts(whole: ColumnNoise | RowNoise) -> dict[str, Any]:
    return {item.name: getattr(whole, item.name) for item in fields(whole)}


class LastRowInClear(ColumnNoise):
    """The last row of a batch gets no noise (known-faults, row 165)."""

    def _published(self, place: int, values: np.ndarray, *others: Any) -> np.ndarray:
        found = super()._published(place, values, *others)
        found[-1:] = values[-1:]
        return found


class StreamOfTheBatch(ColumnNoise):
    """Noise restarts with each batch: rows are told apart by their place in it (known-faults, row 120)."""

    def _published(self, place: int, values: np.ndarray, digests: np.ndarray, *others: Any) -> np.ndarray:
        places = np.zeros((len(values), 2), dtype=np.int64)
        places[:, 0] = np.arange(len(values))
        return super()._published(place, values, places.view(np.uint8), *others)


class OneStreamForAllElements(ColumnNoise):
    """Every element of an array is noised under the key of the first."""

    def _published(self, place: int, *others: Any) -> np.ndarray:
        return super()._published(0, *others)


class ForgottenScale(ColumnNoise):
    """What a row reports does not make up for what it does not report."""

    def _published(self, *given: Any) -> np.ndarray:
        return ColumnNoise(**{**_parts(self), "scale": 1.0})._published(*given)


class ScaleThreePerCentOff(ColumnNoise):
    """The scale is 3 % too large."""

    def _published(self, *given: Any) -> np.ndarray:
        return ColumnNoise(**{**_parts(self), "scale": 1.03 * self.scale})._published(*given)


class _ValueForgotten(Podium):
    def keys(self, values: np.ndarray) -> np.ndarray:
        return np.zeros(len(values), dtype=np.int64)


class ValueNotInTheKey(ColumnNoise):
    """The noise does not depend on the value: two values of one row show their difference."""

    @property
    def built(self) -> Local:  # type: ignore[override]
        return _ValueForgotten(**self.parameters)


class _Unclamped(Podium):
    def keys(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values, dtype=np.float64).view(np.int64)


class KeyBeforeTheClamp(ColumnNoise):
    """Values are clamped after they have keyed the noise: two that are published alike have two draws."""

    @property
    def built(self) -> Local:  # type: ignore[override]
        return _Unclamped(**self.parameters)


class OneStreamForAllColumns(RowNoise):
    """All columns share the key of the first."""

    def noised(self, digests: RowDigests, batch: Sequence[pa.Array]) -> list[pa.Array]:
        first = self.columns[0].keys
        columns = tuple(replace(column, keys=first) for column in self.columns)
        return RowNoise.noised(replace(self, columns=columns), digests, batch)


class OneDigestForAllRows(RowNoise):
    """Row keys are ignored: equal values have equal noise."""

    def noised(self, digests: RowDigests, batch: Sequence[pa.Array]) -> list[pa.Array]:
        return super().noised(digests, [pa.array(np.zeros(len(batch[0]), dtype=np.int64)), *batch[1:]])


class DataDecideWhatIsReported(RowNoise):
    """Rows with small values report other ones than rows with large values."""

    def noised(self, digests: RowDigests, batch: Sequence[pa.Array]) -> list[pa.Array]:
        small = batch[self.width].to_numpy().mean() < LOWER / 2 + UPPER / 2
        draw = replace(self.draws[0], key=bytes([int(small)]) * 32)
        return RowNoise.noised(replace(self, draws=(draw,)), digests, batch)


class _Coins(Draw):
    def of(self, digests: np.ndarray) -> np.ndarray:
        return (digests[:, : self.values] < 256 * self.reported / self.values).T


class ReportsAsManyAsChanceGives(RowNoise):
    """A coin for each value: some rows report more than their budget covers."""

    def noised(self, digests: RowDigests, batch: Sequence[pa.Array]) -> list[pa.Array]:
        draws = tuple(_Coins(draw.key, draw.values, draw.reported) for draw in self.draws)
        return RowNoise.noised(replace(self, draws=draws), digests, batch)
