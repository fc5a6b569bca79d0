"""A column that is kept beside the published rows: written by the same task, from the same draw of noise."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from spark_rdp.folders import DATA_FILES, NOISED_FILE


def parted(rows: pa.Table, column: str) -> tuple[pa.Table, pa.Table]:
    """The rows without the column; and the column behind the first one, which names the rows."""
    return rows.drop_columns([column]), rows.select([rows.column_names[0], column])


def set_aside(folder: Path, column: str) -> None:
    """Move a column of the data files that Spark has written into `NOISED_FILE`, beside them.

    Both come from the one evaluation that wrote the files. A second frame would be a second evaluation, and if the
    source has changed in between, the same noise on other numbers.
    """
    files = sorted(folder.glob(DATA_FILES))
    beside: pq.ParquetWriter | None = None
    for file in files:
        rest = folder / f".{file.name}.rest"
        with pq.ParquetFile(file) as opened:
            # What Spark says about the schema in there would bring the column back, empty.
            rows, kept = (part.schema for part in parted(opened.schema_arrow.remove_metadata().empty_table(), column))
            beside = beside or pq.ParquetWriter(folder / NOISED_FILE, kept, compression="snappy")
            with pq.ParquetWriter(rest, rows, compression="snappy") as writer:
                for batch in opened.iter_batches():
                    public, noised = parted(pa.Table.from_batches([batch]).replace_schema_metadata(None), column)
                    writer.write_table(public)
                    beside.write_table(noised)
        rest.replace(file)
    if beside is not None:
        beside.close()
