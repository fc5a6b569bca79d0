"""``spark-submit jobs/VERB.py`` is ``spark-rdp VERB``: same work, same exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pyspark

from spark_rdp import java
from spark_rdp.ledger import Ledger

ROOT = Path(__file__).resolve().parents[2]
QUERY = """
kind: release
name: rows
source: {format: csv, path: rows.csv, options: {header: true}, schema: "person BIGINT, kind STRING"}
privacy: {unit: person, epsilon: EPSILON, max_groups: 1}
group_by: {kind: [a, b]}
measures: [{name: rows, type: count, max_per_group: 3}]
output: {format: parquet, path: out}
ledger: {url: "sqlite:///budget.db", dataset: rows}
"""
COLLECTION = """
kind: collect
name: noisy
source: {format: csv, path: rows.csv, options: {header: true}, schema: "number INT, kind STRING, person BIGINT"}
row_key: [number]
columns: [{column: person, lower: 0, upper: 99, epsilon: 1}]
keep: [kind]
secret: env:SUBMITTED_SECRET
output: {format: parquet, path: out}
"""
SECRET = "0123456789abcdef" * 4


def submit(folder: Path, epsilon: str, *options: str) -> subprocess.CompletedProcess[str]:
    return submitted(folder, "release", QUERY.replace("EPSILON", epsilon), *options)


def submitted(folder: Path, verb: str, query: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "query.yaml").write_text(query)
    launcher = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [launcher, "--master", "local[1]", ROOT / "jobs" / f"{verb}.py", "query.yaml", *options]
    environment = {
        **os.environ,
        **java.require().environment(),
        "PYSPARK_PYTHON": sys.executable,
        "SUBMITTED_SECRET": SECRET,
    }
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_query_is_released_by_spark_submit(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("person,kind\n" + "".join(f"{n},{'ab'[n % 2]}\n" for n in range(100)))
    Ledger(f"sqlite:///{tmp_path}/budget.db").create("rows", 1.5)
    run = submit(tmp_path, "1.0", "--run", "1", "--log-json")
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "out" / "run=1" / "manifest.json").is_file()
    stages = [json.loads(line)["stage"] for line in (run.stdout + run.stderr).splitlines() if line.startswith('{"at"')]
    assert stages == ["planned", "reserved", "computing", "prepared", "published"]
    run = submit(tmp_path, "1.0", "--run", "2")
    assert run.returncode == 3
    assert "epsilon is short by 0.5" in run.stdout + run.stderr


def test_a_bad_query_ends_spark_submit_with_2_and_one_sentence(tmp_path: Path) -> None:
    run = submit(tmp_path, "-1.0")
    assert run.returncode == 2
    told = run.stdout + run.stderr  # spark-submit sends what the job says on stderr to stdout
    assert "privacy.epsilon must be a number between" in told
    assert "Traceback" not in told
    assert not (tmp_path / "out").exists()


def test_rows_are_collected_by_spark_submit(tmp_path: Path) -> None:
    rows = "".join(f"{n},{'ab'[n % 2]},{n % 50}\n" for n in range(100))
    (tmp_path / "rows.csv").write_text("number,kind,person\n" + rows)
    run = submitted(tmp_path, "collect", COLLECTION)
    assert run.returncode == 0, run.stdout + run.stderr
    [file] = (tmp_path / "out").glob("part-*")
    table = pq.read_table(file)
    assert table.schema.names == ["kind", "person"]
    assert table.num_rows == 100
    assert not set(table["person"].to_pylist()) & set(range(50))
    assert SECRET not in run.stdout + run.stderr
