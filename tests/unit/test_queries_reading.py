"""Query files: the traps of YAML, environment variables, and files that are none."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from spark_rdp.errors import InvalidInput
from spark_rdp.queries import ReleaseQuery
from spark_rdp.queries.reading import read_yaml


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def reader(text: str) -> Any:
        path = tmp_path / "query.yaml"
        path.write_text(text, encoding="utf-8")
        return read_yaml(path)

    return reader


def test_scalars_are_what_they_look_like(read: Any) -> None:
    content = read(
        "a: [NO, yes, on, true, 12:30, 007, 1e-6, 1.0e-6, -3, 0x10, 1_000, ~, 2026-11-30, .5, '5', 1., +2]\nb:\n"
    )
    assert content["a"] == [
        "NO", "yes", "on", True, "12:30", "007", 1e-6, 1e-6, -3, "0x10", "1_000", None,
        datetime.date(2026, 11, 30), 0.5, "5", 1.0, 2,
    ]  # fmt: skip
    assert content["b"] is None


def test_environment_variables(read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA", "/srv/a: b")
    monkeypatch.setenv("EPS", "0.5")
    content = read("path: ${DATA}/x.csv\nepsilon: ${EPS}\nquoted: '${EPS}'\nlist: ['${DATA}', '$EPS']\n")
    assert content == {"path": "/srv/a: b/x.csv", "epsilon": 0.5, "quoted": "0.5", "list": ["/srv/a: b", "$EPS"]}


def test_a_missing_variable_is_named(read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOWHERE", raising=False)
    with pytest.raises(InvalidInput, match="environment variable NOWHERE must be set"):
        read("path: ${NOWHERE}/x.csv")


def test_repeated_keys_are_refused(read: Any) -> None:
    with pytest.raises(InvalidInput, match=r"epsilon must be given once; .* line 2"):
        read("privacy: {unit: x, epsilon: 1,\n  epsilon: 2}")


@pytest.mark.parametrize(
    "text", ["", "- a", "text", "a: [", "a: b: c", "a: !!python/object/apply:os.system [ls]", "? [a]\n: b"]
)
def test_what_is_no_query_is_refused_in_one_sentence(read: Any, text: str) -> None:
    with pytest.raises(InvalidInput, match="The query file") as refused:
        read(text)
    assert "\n" not in str(refused.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "absent.yaml", tmp_path, tmp_path / "binary"):
        with pytest.raises(InvalidInput, match="The query file must be a readable text file"):
            ReleaseQuery.from_yaml(path)


def test_keys_that_are_no_names(tmp_path: Path) -> None:
    (tmp_path / "query.yaml").write_text("1: 2\n")
    with pytest.raises(InvalidInput, match=r"^1 is not a known key"):
        ReleaseQuery.from_yaml(tmp_path / "query.yaml")


def test_control_characters_are_told_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "q.yaml"
    path.write_bytes(b"kind: \x00\x01release\n")
    with pytest.raises(InvalidInput, match="must be valid YAML") as caught:
        read_yaml(path)
    assert "\n" not in str(caught.value)
