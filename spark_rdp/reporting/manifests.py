"""Reading the manifest beside what was published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_rdp.errors import InvalidInput, invalid

if TYPE_CHECKING:
    import pyarrow as pa


def manifest_file(place: Path) -> Path:
    """The manifest.json of a folder; a file stays as it is."""
    return place / "manifest.json" if place.is_dir() else place


def read_manifest(place: Path) -> dict[str, Any]:
    """Read a manifest.

    Args:
        place: The file, or its folder.

    Raises:
        InvalidInput: It cannot be read, or is no manifest.
    """
    path = manifest_file(place)
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except OSError as failure:
        raise invalid("The manifest", "a readable file", str(path), f"The reason is: {failure.strerror}.") from None
    except ValueError:
        manifest = None
    if not isinstance(manifest, dict) or "query" not in manifest:
        raise invalid("The manifest", "the manifest.json of something published", str(path), "It lies beside the data.")
    return manifest


def read_table(place: Path) -> pa.Table:
    """Read all rows beside a manifest.

    Raises:
        InvalidInput: There are none, or they cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = manifest_file(place).parent
    try:
        return pa.concat_tables([pq.ParquetFile(file).read() for file in sorted(folder.glob("part-*.parquet"))])
    except (pa.ArrowException, OSError):
        raise InvalidInput(f"The data files in {folder} cannot be read. Restore the folder.") from None
