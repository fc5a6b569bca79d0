"""What was published: the manifest and the data files beside it. Needs no Spark."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from spark_rdp.errors import InvalidInput, invalid
from spark_rdp.releases import ReleasePlan
from spark_rdp.reporting.largest import RANKED, Columns, Largest
from spark_rdp.reporting.manifests import manifest_file, read_manifest

#: What a page or a terminal shows of a large release.
MOST_ROWS = 200


@dataclass(frozen=True)
class Published:
    """A published release.

    Attributes:
        manifest: As written beside the data.
        columns: Column name -> the first values.
        total_rows: How many rows were published.
        largest: Where not all rows were read, for each count and sum the rows with its largest values, as columns.
    """

    manifest: dict[str, Any]
    columns: Columns
    total_rows: int
    largest: dict[str, Columns] = field(default_factory=dict)

    @cached_property
    def plan(self) -> ReleasePlan:
        """The plan of the release, with the noise of every measure."""
        return ReleasePlan.from_json(json.dumps(self.manifest["plan"]))

    @property
    def query(self) -> dict[str, Any]:
        """What was asked, as configuration writes it."""
        return dict(self.manifest["query"])

    @property
    def rows(self) -> int:
        """How many rows were read."""
        return len(next(iter(self.columns.values()), []))

    def largest_of(self, measure: str) -> Published:
        """The rows with the largest values of a measure, as a release of their own."""
        return replace(self, columns=self.largest[measure], largest={})

    def keys(self, row: int) -> list[str]:
        """The group key of a row, as text."""
        return [key_text(self.columns[column][row]) for column in self.plan.group_columns]

    def value(self, measure: str, row: int) -> tuple[Any, Any, Any]:
        """A published value (a list, for bins) and the ends of its interval."""
        value, low, high = (self.columns[measure + end][row] for end in ("", "_low", "_high"))
        return value, low, high

    def range_of(self, measure: str) -> tuple[float, float] | None:
        """The range the values of a measure are known to lie in (means, quantiles); None where there is none."""
        parts = self.plan.of(measure)
        if (
            (len(parts) == 1 and parts[0].role != "quantile")
            or parts[0].value_lower is None
            or parts[0].value_upper is None
        ):
            return None
        return parts[0].value_lower, parts[0].value_upper


def key_text(value: Any) -> str:
    """One value of a group key as text; a missing key is told from an empty text."""
    if value is None:
        return "(missing)"
    if isinstance(value, str):
        return value if value.strip() else f"“{value}”"
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ")
    return str(value)


def of_table(manifest: dict[str, Any], table: Any, most_rows: int = MOST_ROWS) -> Published:
    """A release that is held in memory, as an Arrow table."""
    reader = _Reader(manifest, most_rows)
    for batch in table.to_batches():
        reader.add(batch)
    return reader.published()


def read_published(manifest_path: Path, most_rows: int = MOST_ROWS) -> Published:
    """Read a manifest, and the data files beside it: their first rows and those with the largest values.

    Raises:
        InvalidInput: The file is not the manifest of a release of this version, or its data files are gone.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, manifest = manifest_file(manifest_path), read_manifest(manifest_path)
    try:
        reader = _Reader(manifest, most_rows)
    except (KeyError, TypeError):
        raise invalid(
            "The manifest", "the manifest.json of a release of this version", str(path), "It lies beside the data."
        ) from None
    files = sorted(path.parent.glob("part-*.parquet"))
    if not files:
        raise InvalidInput(
            f"There are no data files beside {path}. Give the manifest.json in the folder of the release."
        )
    try:
        for file in files:
            with pq.ParquetFile(file) as opened:
                for batch in opened.iter_batches(columns=reader.names):
                    reader.add(batch)
    except (pa.ArrowException, KeyError, OSError):
        raise InvalidInput(f"The data files beside {path} are not those of its release. Restore the folder.") from None
    return reader.published()


class _Reader:
    """Keeps of any number of rows what a page shows."""

    def __init__(self, manifest: dict[str, Any], most_rows: int) -> None:
        kinds = {measure["name"]: measure["type"] for measure in manifest["query"]["measures"]}
        keys = manifest["plan"]["group_columns"]
        self.names = [*keys, *(name + end for name in kinds for end in ("", "_low", "_high"))]
        self._manifest, self._most, self._total = manifest, most_rows, 0
        self._columns: Columns = {name: [] for name in self.names}
        self._largest = Largest([name for name, kind in kinds.items() if kind in RANKED], self.names)

    def add(self, batch: Any) -> None:
        """Look at an Arrow record batch."""
        room = self._most - min(self._total, self._most)
        if room:
            for name in self.names:
                self._columns[name].extend(batch.column(name)[:room].to_pylist())
        self._largest.add(batch)
        self._total += batch.num_rows

    def published(self) -> Published:
        """What was read."""
        largest = self._largest.columns() if self._total > self._most else {}
        return Published(self._manifest, self._columns, self._total, largest)
