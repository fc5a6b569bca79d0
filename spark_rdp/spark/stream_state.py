"""What a stream remembers between two starts, beside what Spark remembers: its manifest, in output and checkpoint.

The first start writes the manifest into the checkpoint, then into the output, and then reads the first event. So every
later start can tell, before it reads any, that it continues what was begun: with the same query, noise and secret,
and with both folders in place.

The manifest holds a fingerprint of the secret: another key derived from it (HKDF-SHA256), used for nothing else. It
tells that a secret is another one, and, since the secret has 256 random bits, nothing else about it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property

from pyarrow import fs

from spark_rdp.errors import InvalidInput, invalid
from spark_rdp.folders import MANIFEST, Manifest, manifest_text
from spark_rdp.queries.stream import StreamQuery
from spark_rdp.randomness import stream_key

_ANEW = "or begin a new stream: another name, output and checkpoint."


def fingerprint(secret: bytes, name: str) -> str:
    """What tells whether the secret of a stream is still the same; it cannot be turned back into the secret."""
    return stream_key(secret, name, "fingerprint of the secret").hex()[:32]


@dataclass(frozen=True)
class Folder:
    """A folder of a local file system or of a store, as Spark names it.

    Args:
        key: The key of the query that names it.
        path: Local, or with a scheme: file, hdfs, s3a, gs.
    """

    key: str
    path: str

    @cached_property
    def _found(self) -> tuple[fs.FileSystem, str]:
        scheme, colon, rest = self.path.partition("://")
        try:
            if colon and scheme.lower() != "file":
                scheme = {"s3a": "s3", "s3n": "s3"}.get(scheme.lower(), scheme)
                system, path = fs.FileSystem.from_uri(f"{scheme}://{rest}")
                return system, path
        except (OSError, ValueError, ImportError) as error:
            remedy = f"It cannot be opened ({type(error).__name__})."
            raise invalid(self.key, "a folder that can be reached from here", self.path, remedy) from None
        plain = "/" + self.path[5:].lstrip("/") if self.path.lower().startswith("file:") else self.path
        return fs.LocalFileSystem(), plain

    def holds(self, name: str = "") -> bool:
        """Whether there is anything in the folder, or in a folder in it."""
        system, path = self._found
        selector = fs.FileSelector(f"{path}/{name}" if name else path, allow_not_found=True)
        return any(True for _ in system.get_file_info(selector))

    def forget_unfinished(self) -> None:
        """Delete what Spark was writing in this checkpoint of its own when it was killed before its first batch.

        It would refuse the checkpoint for it at every later start. From the first batch on it does not mind.
        """
        system, path = self._found
        for part in ("offsets", "commits"):
            files = system.get_file_info(fs.FileSelector(f"{path}/{part}", allow_not_found=True))
            if all(file.base_name.startswith(".") for file in files):
                for file in files:
                    system.delete_file(file.path)

    def manifest(self) -> Manifest | None:
        """The manifest in the folder; None if there is none."""
        system, path = self._found
        name = f"{path}/{MANIFEST}"
        if system.get_file_info(name).type == fs.FileType.NotFound:
            return None
        try:
            with system.open_input_stream(name) as stream:
                manifest: Manifest = json.loads(stream.readall())
                _ = manifest["query_digest"], manifest["secret_fingerprint"], manifest["plan"]["columns"]
        except (OSError, ValueError, KeyError, TypeError):
            raise InvalidInput(f"{self.key}: {self.path}/{MANIFEST} is of no stream. Choose another folder.") from None
        return manifest

    def write(self, manifest: Manifest) -> None:
        """Write the manifest, in one step where the file system can."""
        system, path = self._found
        try:
            system.create_dir(path, recursive=True)
            with system.open_output_stream(f"{path}/.{MANIFEST}.new") as stream:
                stream.write(manifest_text(manifest).encode())
            system.move(f"{path}/.{MANIFEST}.new", f"{path}/{MANIFEST}")
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise InvalidInput(f"{self.key}: {self.path} cannot be written to ({reason}). Choose another.") from None


def begin_or_continue(query: StreamQuery, manifest: Manifest) -> Manifest:
    """Make sure that this start continues what an earlier one began, or begins where nothing is.

    Args:
        query: The stream.
        manifest: What its manifest is to be.

    Returns:
        The manifest that was written at the first start.

    Raises:
        InvalidInput: Query, noise or secret have changed, or a folder is gone or holds something else.
    """
    checkpoint = Folder("checkpoint", query.checkpoint)
    output = Folder("output.path", query.output.path) if query.output.in_files and query.output.path else None
    begun, published = checkpoint.manifest(), None if output is None else output.manifest()
    if begun is None:
        _check_new(checkpoint, output, published)
        checkpoint.write(manifest)
    else:
        _check_same(begun, manifest)
        if output is not None and published is None and checkpoint.holds("published/commits"):
            raise InvalidInput(
                f"output.path must still hold what the stream has published; there is no {MANIFEST} in {output.path}, "
                f"though {checkpoint.path} has published batches. Put the folder back, {_ANEW}"
            )
        if published is not None and published != begun:
            raise InvalidInput(
                f"output.path must be the folder of the stream in {checkpoint.path}; {query.output.path} holds another "
                f"one. Name the folder that belongs to the checkpoint, {_ANEW}"
            )
    if output is not None and published is None:
        output.write(begun or manifest)
    return begun or manifest


def _check_new(checkpoint: Folder, output: Folder | None, published: Manifest | None) -> None:
    if published is not None:
        raise InvalidInput(
            f"checkpoint must be the one of the stream in output.path; {checkpoint.path} holds none. Put it back; "
            f"without it every event would be published again, {_ANEW}"
        )
    for folder in (checkpoint, *([] if output is None else [output])):
        if folder.holds():
            remedy = "It holds files that are not of this stream."
            raise invalid(folder.key, "a folder that is empty or does not exist", folder.path, remedy)


def _check_same(begun: Manifest, manifest: Manifest) -> None:
    if begun["query_digest"] != manifest["query_digest"]:
        before, now = begun["query"], manifest["query"]
        told = {*before, *now}.difference(StreamQuery._WHERE)
        changed = sorted(key for key in told if before.get(key) != now.get(key)) or ["a password"]
        raise InvalidInput(
            f"The query must be the one that the stream began with; it differs in {', '.join(changed)}. Undo the "
            f"change, {_ANEW}"
        )
    streams = [[item["stream"] for item in one["plan"]["columns"]] for one in (begun, manifest)]
    if streams[0] != streams[1] or begun["columns"] != manifest["columns"]:
        raise InvalidInput(
            "The noise and the types of the columns must be those that the stream began with; this version of the "
            f"package plans others. Go back to version {begun['versions']['spark_rdp']}, {_ANEW}"
        )
    if begun["secret_fingerprint"] != manifest["secret_fingerprint"]:
        raise InvalidInput(
            "secret must be the one that the stream began with; the one that is there now is another, and what comes "
            f"twice would be noised twice. Put the old secret back, {_ANEW}"
        )
