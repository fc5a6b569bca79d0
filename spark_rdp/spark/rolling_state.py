"""What a watch of a stream remembers beside Spark's own checkpoint: the counts of every window, and the estimates.

Spark hands over, batch by batch, the whole counts of what has changed, never differences. They replace those of before,
so that a batch that comes again after a crash changes nothing. Files are replaced as a whole: a reader sees the
estimates of one batch, or of the next.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_rdp.errors import InvalidInput, invalid
from spark_rdp.folders import MANIFEST, Manifest, check_writable, manifest_text
from spark_rdp.spark.counting import KEY, START

_COUNTS, _BEGUN = "counts.parquet", "watch.json"


@dataclass(frozen=True)
class State:
    """The folders of a watch.

    Attributes:
        checkpoint: What has been counted, by Spark and here.
        output: The estimates, and their manifest.
        data: The name of the file of estimates.
    """

    checkpoint: Path
    output: Path
    data: str

    @property
    def spark(self) -> str:
        """Spark's own checkpoint."""
        return f"file://{self.checkpoint / 'spark'}"

    def begin_or_continue(self, facts: Manifest) -> None:
        """Make sure that this start continues what an earlier one began, or begins where nothing is.

        Args:
            facts: What must be the same at every start.

        Raises:
            InvalidInput: Something else was begun there, or a folder holds other files.
        """
        begun = self.checkpoint / _BEGUN
        if begun.exists():
            if json.loads(begun.read_text(encoding="utf-8")) != json.loads(manifest_text(facts)):
                raise InvalidInput(
                    f"checkpoint must be that of this query and stream; {self.checkpoint} is of others. Undo the "
                    "change, or begin anew with another checkpoint and output."
                )
            return
        for key, folder in (("checkpoint", self.checkpoint), ("output.path", self.output)):
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                remedy = "It holds files that are not of this watch."
                raise invalid(key, "a folder that is empty or does not exist", str(folder), remedy)
            check_writable(folder)
            folder.mkdir(exist_ok=True)
        _replace(begun, manifest_text(facts).encode())

    def counts(self) -> pa.Table | None:
        """The counts of every window; None before the first."""
        file = self.checkpoint / _COUNTS
        return pq.read_table(file) if file.exists() else None

    def count(self, changed: pa.Table) -> pa.Table:
        """Put the counts that have changed in the place of those of before; returns all of them."""
        before, keys = self.counts(), [START, *KEY]
        if before is not None:
            kept = before.join(changed.select(keys), keys, join_type="left anti")
            changed = pa.concat_tables([kept.select(changed.column_names).cast(changed.schema), changed])
        _write(self.checkpoint / _COUNTS, changed)
        return changed

    def estimates(self) -> pa.Table | None:
        """What is published; None where nothing is."""
        file = self.output / self.data
        return pq.read_table(file) if file.exists() else None

    def publish(self, changed: pa.Table, manifest: Manifest) -> pa.Table:
        """Put the estimates of windows in the place of those of before; returns all of them, by window."""
        before, whole, key = self.estimates(), changed, "window_start"
        if before is not None:
            kept = before.filter(pc.invert(pc.is_in(before[key], changed[key].combine_chunks())))
            whole = pa.concat_tables([kept.cast(changed.schema), changed])
            whole = whole.take(pc.sort_indices(whole[key]))  # stable: groups stay in their order
        self.output.mkdir(parents=True, exist_ok=True)
        _write(self.output / self.data, whole)
        _replace(self.output / MANIFEST, manifest_text({**manifest, "rows": whole.num_rows}).encode())
        return whole


def _write(file: Path, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="snappy")
    _replace(file, sink.getvalue().to_pybytes())


def _replace(file: Path, content: bytes) -> None:
    new = file.with_name(f".{file.name}.new")
    with new.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(new, file)
