"""What a stream remembers between two starts, beside what Spark remembers: its manifest, in output and checkpoint.

The first start writes the manifest into the checkpoint, then into the output, and then reads the first event. So every
later start can tell, before it reads any, that it continues what was begun: with the same query, noise and secret,
and with both folders in place.

The manifest holds a fingerprint of the secret: another key derived from it (HKDF-SHA256), used for nothing else. It
tells that a secret is another one, and, since the secret has 256 random bits, nothing else about it.
"""

from __future__ import annotations

import json

from spark_rdp.errors import InvalidInput, invalid
from spark_rdp.folders import MANIFEST, Manifest, manifest_text
from spark_rdp.queries.stream import StreamQuery
from spark_rdp.randomness import stream_key
from spark_rdp.stores import Folder

_ANEW = "or begin a new stream: another name, output and checkpoint."


def fingerprint(secret: bytes, name: str) -> str:
    """What tells whether the secret of a stream is still the same; it cannot be turned back into the secret."""
    return stream_key(secret, name, "fingerprint of the secret").hex()[:32]


def forget_unfinished(checkpoint: Folder) -> None:
    """Delete what Spark was writing in this checkpoint of its own when it was killed before its first batch.

    It would refuse the checkpoint for it at every later start. From the first batch on it does not mind.
    """
    for part in ("offsets", "commits"):
        names = checkpoint.names(part)
        if all(name.startswith(".") for name in names):
            for name in names:
                checkpoint.delete(f"{part}/{name}")


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
    begun, published = _manifest(checkpoint), None if output is None else _manifest(output)
    if begun is None:
        _check_new(checkpoint, output, published)
        checkpoint.write(MANIFEST, manifest_text(manifest))
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
        output.write(MANIFEST, manifest_text(begun or manifest))
    return begun or manifest


def _manifest(folder: Folder) -> Manifest | None:
    found = folder.read(MANIFEST)
    if found is None:
        return None
    try:
        manifest: Manifest = json.loads(found)
        _ = manifest["query_digest"], manifest["secret_fingerprint"], manifest["plan"]["columns"]
    except (ValueError, KeyError, TypeError):
        raise InvalidInput(f"{folder.key}: {folder}/{MANIFEST} is of no stream. Choose another folder.") from None
    return manifest


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
