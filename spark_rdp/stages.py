"""What a job is doing, for whoever watches it: the stages of a release, on a logger of their own.

Names, digests, budgets and counts of rows are told; values of data and secrets never are. Nothing is shown unless a
handler asks for it, as ``--log-json`` does.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any, TextIO

LOGGER = logging.getLogger("spark_rdp.stages")
LOGGER.addHandler(logging.NullHandler())


def reached_stage(stage: str, release_id: str | None = None, **facts: Any) -> None:
    """Tell that a release has reached a stage.

    Args:
        stage: planned, waiting, reserved, computing, prepared, published, read-back or failed; of a stream, batch
            and stopped.
        release_id: Whose stage it is; None before that is known.
        facts: More to tell; JSON values that are no data.
    """
    told = {"stage": stage, **({} if release_id is None else {"release_id": release_id}), **facts}
    LOGGER.info(stage, extra={"facts": told})


class JsonLine(logging.Formatter):
    """One JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        return json.dumps({"at": at, **getattr(record, "facts", {})}, ensure_ascii=False, allow_nan=False)


@contextmanager
def json_lines(stream: TextIO) -> Iterator[None]:
    """Write every stage to a stream, as one JSON line each, while the block runs."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLine())
    level, propagate = LOGGER.level, LOGGER.propagate
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)
        LOGGER.propagate = propagate
