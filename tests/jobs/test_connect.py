"""Every entry point through a real Spark Connect server, and under both kinds of SQL rules: the same rows."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from jobs import connecting, servers

Found = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("connect")


@pytest.fixture(scope="module")
def file(folder: Path) -> Path:
    return connecting.make_rows(folder)


@pytest.fixture(scope="module", autouse=True)
def _one_secret() -> Iterator[None]:
    """A release draws a secret of its own: here the same each time, to compare."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_rdp.spark.release.new_secret", lambda: connecting.SECRET)
        yield


@pytest.fixture(scope="module")
def classic(spark: SparkSession, folder: Path, file: Path) -> Found:
    """What comes out without Connect."""
    return connecting.everything(spark, file, folder / "classic")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    pytest.importorskip("grpc", reason="needs the client of Spark Connect: pip install 'pyspark[connect]'")
    with servers.connect_server(folder) as url:
        yield url


def test_spark_connect_gives_the_same_rows(classic: Found, folder: Path, server: str) -> None:
    """Under ANSI rules, by which expressions fail on some of the rows."""
    path = os.pathsep.join([str(servers.ROOT), str(servers.ROOT / "tests")])
    environment = {**os.environ, "SPARK_REMOTE": server, "PYTHONPATH": path}
    command = [sys.executable, connecting.__file__, str(folder)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr[-6000:]
    assert ran.stderr == "", "nothing is said that nobody can use"
    facts, found = ast.literal_eval((folder / "connect.txt").read_text())
    assert facts == {"session": "pyspark.sql.connect.session", "ansi": "true"}
    assert found.keys() == classic.keys()
    for name, rows in classic.items():
        assert rows, name
        assert found[name] == rows, name


def test_the_other_sql_rules_give_the_same_rows(
    spark: SparkSession, classic: Found, file: Path, tmp_path: Path
) -> None:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "false" if before == "true" else "true")
    try:
        assert connecting.everything(spark, file, tmp_path / "other") == classic
    finally:
        spark.conf.set("spark.sql.ansi.enabled", str(before))


def test_what_mixes_rows_is_refused(classic: Found) -> None:
    assert all("a function of the columns of its own row" in each["said"] for each in classic["refused"])


def test_a_server_that_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    """Without the token that the URL may hold."""
    columns = "columns: [{column: size, lower: 0, upper: 100, epsilon: 1}]"
    source = "source: {format: parquet, path: rows.parquet}"
    (tmp_path / "query.yaml").write_text(f"name: c\n{source}\nrow_key: [id]\n{columns}\noutput: {{path: out}}\n")
    command = [sys.executable, servers.ROOT / "jobs" / "collect.py", "query.yaml"]
    environment = {**os.environ, "SPARK_REMOTE": "https://host/;token=abcdef"}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 4
    assert ran.stderr.startswith("spark-rdp: The Spark Connect server cannot be used. Check SPARK_REMOTE")
    assert ran.stderr.count("\n") == 1
    assert "abcdef" not in ran.stderr + ran.stdout
