"""Folders that are read and written here as well as by Spark: local ones, and those of stores, through Arrow."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow.parquet as pq
from pyarrow import ArrowException, fs

from spark_rdp.errors import InvalidInput, invalid

_OTHER_NAMES = {"s3a": "s3", "s3n": "s3"}
#: So much of what a store says is told.
_SHOWN = 200
_CURE = (
    "This process opens it through Arrow, apart from Spark, and needs access of its own: in S3 AWS_ACCESS_KEY_ID, "
    "AWS_SECRET_ACCESS_KEY and, for another store than Amazon's, AWS_ENDPOINT_URL; in HDFS libhdfs."
)


@dataclass(frozen=True)
class Folder:
    """A folder of a local file system or of a store, as Spark names it. Two of the same path are equal.

    Args:
        key: The key of the query that names it.
        path: Local, or with a scheme: file, hdfs, s3a, gs.

    Raises:
        InvalidInput: A scheme without a host; from all methods, the folder cannot be reached. It names the key.
    """

    key: str = field(compare=False)
    path: str

    def __post_init__(self) -> None:
        scheme, colon, rest = self.path.partition(":")
        if colon and scheme.lower() == "file":
            object.__setattr__(self, "path", os.path.abspath("/" + rest.lstrip("/")))
        elif colon and rest.startswith("//"):
            object.__setattr__(self, "path", self.path.rstrip("/"))
        elif colon and rest.startswith("/") and scheme.isalnum():
            remedy = f"Write {scheme}://HOST{rest}."
            raise invalid(self.key, "a local path, or a scheme, :// and a host or bucket", self.path, remedy)
        else:
            object.__setattr__(self, "path", os.path.abspath(self.path))

    def __str__(self) -> str:
        return self.path

    @property
    def is_local(self) -> bool:
        """Whether it is in a file system of this machine."""
        return self.path.startswith("/")

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def for_spark(self) -> str:
        """The path with its scheme, which Spark reads whatever its own default is."""
        return f"file://{self.path}" if self.is_local else self.path

    @property
    def for_spark_escaped(self) -> str:
        """The same where Spark takes wildcards."""
        return re.sub(r"([{}\[\]*?\\])", r"\\\1", self.for_spark)

    def child(self, name: str) -> Folder:
        """A folder in it."""
        return Folder(self.key, f"{self.path}/{name}")

    def holds(self, name: str = "") -> bool:
        """Whether there is anything in the folder, or in a folder in it."""
        return bool(self._listed(name))

    def names(self, name: str = "") -> list[str]:
        """The files and folders in it, or in a folder in it, in order."""
        return sorted(str(info.base_name) for info in self._listed(name))

    def rows(self, names: list[str]) -> int:
        """How many rows some parquet files have together; -1 if one of them is none."""
        with self._reached() as (system, path):
            try:
                return sum(pq.read_metadata(f"{path}/{name}", filesystem=system).num_rows for name in names)
            except (FileNotFoundError, ArrowException):
                return -1

    def read(self, name: str) -> bytes | None:
        """What is in a file, or None if there is none."""
        with self._reached() as (system, path):
            if system.get_file_info(f"{path}/{name}").type != fs.FileType.File:
                return None
            with system.open_input_stream(f"{path}/{name}") as stream:
                return bytes(stream.readall())

    def write(self, name: str, text: str) -> None:
        """Write a file, in one step where the file system can."""
        with self._reached() as (system, path):
            system.create_dir(path, recursive=True)
            with system.open_output_stream(f"{path}/.{name}.new") as stream:
                stream.write(text.encode())
            system.move(f"{path}/.{name}.new", f"{path}/{name}")

    def delete(self, name: str) -> None:
        """Delete a file."""
        with self._reached() as (system, path):
            system.delete_file(f"{path}/{name}")

    @cached_property
    def _found(self) -> tuple[fs.FileSystem, str]:
        if self.is_local:
            return fs.LocalFileSystem(), self.path
        scheme, _, rest = self.path.partition("://")
        system, path = fs.FileSystem.from_uri(f"{_OTHER_NAMES.get(scheme.lower(), scheme)}://{rest}")
        return system, str(path)

    def _listed(self, name: str) -> list[fs.FileInfo]:
        with self._reached() as (system, path):
            selector = fs.FileSelector(f"{path}/{name}" if name else path, allow_not_found=True)
            return list(system.get_file_info(selector))

    @contextmanager
    def _reached(self) -> Iterator[tuple[fs.FileSystem, str]]:
        try:
            yield self._found
        except (OSError, ValueError, ImportError) as error:
            reason = getattr(error, "strerror", None) or str(error)[:_SHOWN] or type(error).__name__
            remedy = "Choose another." if self.is_local else _CURE
            raise InvalidInput(f"{self.key}: {self.path} cannot be reached ({reason}). {remedy}") from None
