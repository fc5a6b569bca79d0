"""What releases and collections have in common: one attempt to compute a public frame, and to write it."""

from __future__ import annotations

import platform
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from spark_rdp import __version__
from spark_rdp.folders import DATA_FILES, Manifest
from spark_rdp.spark import io, session
from spark_rdp.spark.failures import worded
from spark_rdp.spark.set_aside import set_aside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_rdp.queries import Source


class Job(ABC):
    """One attempt to compute what a query publishes.

    Args:
        df: The rows; None to read the source.
        source: Where the rows are; needed without ``df``.
        name: What the cluster calls the session, should one be built.
        spark: The session; by default that of ``df``, or a new one.
    """

    def __init__(self, df: DataFrame | None, source: Source | None, name: str, spark: SparkSession | None) -> None:
        self._df = df
        self._from = source
        self._name = name
        self._spark = spark

    def session(self) -> SparkSession:
        """The session; built only when something needs Spark."""
        if self._spark is None:
            self._spark = self._df.sparkSession if self._df is not None else session.build(f"spark-rdp {self._name}")
        return self._spark

    def rows(self) -> DataFrame:
        """What is published about."""
        if self._df is not None:
            return self._df
        assert self._from is not None
        return io.read(self.session(), self._from)

    @cached_property
    def frame(self) -> DataFrame:
        """The public frame, found from schemas alone. No row is read yet."""
        with worded():
            return self._public()

    @property
    def aside(self) -> str | None:
        """A column of the frame that is kept beside the published rows, in a file of its own."""
        return None

    @abstractmethod
    def _public(self) -> DataFrame:
        """The public frame; called once."""

    @abstractmethod
    def _facts(self) -> Manifest:
        """What the manifest says beside types, rows and versions."""

    def write(self, folder: Path) -> Manifest:
        """Compute the public frame into a new folder; returns its manifest."""
        with worded():
            io.write(self.frame, folder)
        if self.aside is not None:
            set_aside(folder, self.aside)
        return self.manifest(sum(pq.read_metadata(file).num_rows for file in folder.glob(DATA_FILES)))

    def manifest(self, rows: int | None = None) -> Manifest:
        """What is said beside the data; it never holds data or secrets. Without ``rows``, of what is not written."""
        kept = (item for item in self.frame.schema if item.name != self.aside)
        columns = ", ".join(f"{io.quoted(item.name)} {item.dataType.simpleString()}" for item in kept)
        counted = {} if rows is None else {"rows": rows}
        return {**self._facts(), "columns": columns, **counted, "versions": versions()}


def versions() -> dict[str, str]:
    """The versions that a result was made with."""
    return {
        "spark_rdp": __version__,
        "pyspark": pyspark.__version__,
        "numpy": np.__version__,
        "pyarrow": pa.__version__,
        "python": platform.python_version(),
    }
