"""``kind: stream``: what a query file may say, and what is refused in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_rdp.errors import InvalidInput
from spark_rdp.queries.stream import StreamQuery

CONF = Path(__file__).resolve().parents[2] / "conf/stream.yaml"


def given(**changes: Any) -> dict[str, Any]:
    whole = {
        "kind": "stream",
        "name": "s",
        "source": {"format": "json", "path": "in", "schema": "id BIGINT, x DOUBLE"},
        "row_key": ["id"],
        "columns": [{"column": "x", "lower": 0, "upper": 1, "epsilon": 1}],
        "secret": "env:SECRET",
        "checkpoint": "checkpoint",
        "quarantine": "quarantine",
        "output": {"path": "out"},
        **changes,
    }
    return {key: value for key, value in whole.items() if value is not None}


def test_the_example_is_a_query() -> None:
    assert StreamQuery.from_yaml(CONF).trigger.every == "10 seconds"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"secret": None}, "secret must be given. A stream needs a persistent secret"),
        ({"secret": "0123"}, "secret must be env:NAME or file:PATH"),
        ({"checkpoint": None}, "checkpoint must be given"),
        ({"output": None}, "output must be given"),
        ({"output": {"format": "parquet"}}, "output.path must be given"),
        ({"quarantine": None}, "quarantine must be given. Name the folder"),
        ({"malformed": "fail"}, "quarantine must be left out beside malformed: fail"),
        ({"malformed": "ignore"}, "malformed must be 'quarantine' or 'fail'"),
        ({"trigger": {"every": "10"}}, "trigger.every must be a time such as 10 minutes"),
        ({"trigger": {"every": "0 seconds"}}, "trigger.every must be a time such as 10 minutes"),
        ({"report": "r.html"}, "report must be left out of a stream"),
        ({"privacy": {"unit": "id", "max_reports": 3}}, "privacy cannot bound the reports of a unit in a stream"),
        ({"row_key": []}, "row_key must be given"),
        ({"source": None}, "source must be given"),
        ({"source": {"table": "t"}}, "source.table must be left out of a stream"),
        ({"source": {"format": "parquet", "path": "in"}}, "source.schema must be given for a stream of parquet"),
        ({"source": {"format": "kafka"}}, "source.payload must be given for kafka"),
        ({"source": {"format": "parquet", "schema": "a INT", "path": ["a", "b"]}}, "source.path must be a single path"),
        ({"checkpoint": "out/c"}, "checkpoint must be a folder outside of output.path"),
        ({"quarantine": "out"}, "output.path must be a folder outside of quarantine"),
        ({"outptu": {}}, "outptu is not a known key; did you mean 'output'"),
    ],
)
def test_what_cannot_be_used_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        StreamQuery.of(given(**changes))
    assert told in str(refused.value)


def test_every_row_as_its_own_unit_is_accepted() -> None:
    assert StreamQuery.of(given(privacy={"unit": "row"})).unit_column is None


def test_pace_and_place_do_not_make_another_stream() -> None:
    """What may change at a restart leaves the digest as it is; what is published does not."""
    digest = StreamQuery.of(given()).digest()
    source = given()["source"]
    for changes in (
        {"trigger": {"every": "1 minute"}},
        {"checkpoint": "moved"},
        {"source": {**source, "options": {"maxFilesPerTrigger": 7, "kafka.bootstrap.servers": "b"}}},
    ):
        assert StreamQuery.of(given(**changes)).digest() == digest
    for changes in (
        {"name": "t"},
        {"null_policy": "drop"},
        {"source": {**source, "options": {"timestampFormat": "y"}}},
        {"source": {**source, "path": "elsewhere"}},
    ):
        assert StreamQuery.of(given(**changes)).digest() != digest
