"""``spark-submit jobs/release.py`` is ``spark-rdp release``: same work, same exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from spark_rdp import java

ROOT = Path(__file__).resolve().parents[2]
QUERY = """
kind: release
name: rows
source: {format: csv, path: rows.csv, options: {header: true}, schema: "person BIGINT, kind STRING"}
privacy: {unit: person, epsilon: EPSILON, max_groups: 1}
group_by: {kind: [a, b]}
measures: [{name: rows, type: count, max_per_group: 3}]
output: {format: parquet, path: out}
"""


def submit(folder: Path, epsilon: str) -> subprocess.CompletedProcess[str]:
    (folder / "query.yaml").write_text(QUERY.replace("EPSILON", epsilon))
    launcher = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [launcher, "--master", "local[1]", ROOT / "jobs" / "release.py", "query.yaml"]
    environment = {**os.environ, **java.require().environment(), "PYSPARK_PYTHON": sys.executable}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_query_is_released_by_spark_submit(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("person,kind\n" + "".join(f"{n},{'ab'[n % 2]}\n" for n in range(100)))
    run = submit(tmp_path, "1.0")
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "out" / "manifest.json").is_file()


def test_a_bad_query_ends_spark_submit_with_2_and_one_sentence(tmp_path: Path) -> None:
    run = submit(tmp_path, "-1.0")
    assert run.returncode == 2
    told = run.stdout + run.stderr  # spark-submit sends what the job says on stderr to stdout
    assert "privacy.epsilon must be a number between" in told
    assert "Traceback" not in told
    assert not (tmp_path / "out").exists()
