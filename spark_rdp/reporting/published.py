"""What was published: the manifest and the data files beside it. Needs no Spark."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from spark_rdp.errors import InvalidInput, invalid
from spark_rdp.releases import ReleasePlan

#: What a page or a terminal shows of a large release.
MOST_ROWS = 200


@dataclass(frozen=True)
class Published:
    """A published release.

    Attributes:
        manifest: As written beside the data.
        columns: Column name -> the first values.
        total_rows: How many rows were published.
    """

    manifest: dict[str, Any]
    columns: dict[str, list[Any]]
    total_rows: int

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
    return Published(manifest, table.slice(0, most_rows).to_pydict(), table.num_rows)


def read_published(manifest_path: Path, most_rows: int = MOST_ROWS) -> Published:
    """Read a manifest and the first rows of the data files beside it.

    Raises:
        InvalidInput: The file is not the manifest of a release of this version, or its data files are gone.
    """
    path = manifest_path / "manifest.json" if manifest_path.is_dir() else manifest_path
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        measures, keys = (
            [measure["name"] for measure in manifest["query"]["measures"]],
            manifest["plan"]["group_columns"],
        )
    except OSError as failure:
        raise invalid("The manifest", "a readable file", str(path), f"The reason is: {failure.strerror}.") from None
    except (ValueError, KeyError, TypeError):
        raise invalid(
            "The manifest", "the manifest.json of a release of this version", str(path), "It lies beside the data."
        ) from None
    names = [*keys, *(name + end for name in measures for end in ("", "_low", "_high"))]
    columns, total = _read_columns(sorted(path.parent.glob("part-*.parquet")), names, most_rows, path)
    return Published(manifest, columns, total)


def _read_columns(
    files: Sequence[Path], names: Sequence[str], most: int, manifest: Path
) -> tuple[dict[str, list[Any]], int]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not files:
        raise InvalidInput(
            f"There are no data files beside {manifest}. Give the manifest.json in the folder of the release."
        )
    columns: dict[str, list[Any]] = {name: [] for name in names}
    total = 0
    try:
        for file in files:
            with pq.ParquetFile(file) as opened:
                total += opened.metadata.num_rows
                for batch in opened.iter_batches(batch_size=most, columns=list(names)):
                    missing = most - len(columns[names[0]])
                    if missing <= 0:
                        break
                    for name in names:
                        columns[name].extend(batch.column(name)[:missing].to_pylist())
    except (pa.ArrowException, KeyError, OSError):
        raise InvalidInput(
            f"The data files beside {manifest} are not those of its release. Restore the folder."
        ) from None
    return columns, total
