"""Every command and every line of Python in README.md is run, in a folder with the data it speaks of.

Two lines are represented by what they run: ``make demo`` by ``spark-rdp demo`` (the set-up is done when tests run), and
``make test`` by the run this test is part of.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INSTEAD = {"make demo": "spark-rdp demo", "make test": None}


def blocks() -> list[tuple[str, str]]:
    return BLOCK.findall(README.read_text(encoding="utf-8"))


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder after everything in the README was done in it, in order."""
    folder = tmp_path_factory.mktemp("readme")
    rows = [f"{n % 400},{('FR', 'DE', 'GB', 'IT')[n % 7 % 4]},{n % 60}.5" for n in range(2000)]
    (folder / "orders.csv").write_text("\n".join(["customer,country,amount", *rows]) + "\n")
    shutil.copytree(README.parent / "conf", folder / "conf")
    (folder / "secret").write_text(secrets.token_hex(32))  # as conf/telemetry.yaml says
    (folder / "secret").chmod(0o600)
    python = []
    for language, text in blocks():
        if language == "yaml":
            (folder / text.split("\n")[0].removeprefix("# ")).write_text(text)
        elif language == "python":
            python.append(text)
        else:
            assert language == "bash", language
            for command in text.splitlines():
                shown = INSTEAD.get(command, command)
                if shown is not None:
                    ran = run(shown.split(), folder)
                    assert ran.returncode == 0, f"{command}: {ran.stderr}"
                    assert ran.stderr == "", command
                    assert ran.stdout, command
    (folder / "readme.py").write_text("\n".join(python))  # one process, hence one JVM, for all of it
    ran = run([sys.executable, "readme.py"], folder)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert ran.stdout.count("orders_low") == 2, ran.stdout  # both tables were shown
    return folder


def test_everything_in_the_readme_runs(folder):
    assert (folder / "demo-out/report.html").exists()
    assert list((folder / "demo-out/orders").glob("part-*.parquet"))
    assert (folder / "out/orders/run=2026-11-30/manifest.json").exists()
    assert (folder / "out/report.html").exists()
    assert (folder / "out/python.html").exists()
    assert (folder / "out/again.html").exists()
    assert (folder / "out/telemetry/report.html").exists()
    assert (folder / "out/battery/report.html").exists()
    assert (folder / "sweep.svg").exists()


def test_the_blocks_are_of_the_promised_kinds():
    kinds = [language for language, _ in blocks()]
    assert {"bash", "yaml", "python"} == set(kinds)
    lines = next(text for language, text in blocks() if language == "yaml").splitlines()
    assert len(lines) <= 13, "a first query is short"
    assert README.read_text().count("```") == 2 * len(kinds), "no block escapes this test"


def test_commands_in_the_text_exist(capsys):
    """Commands that the README names in passing."""
    from spark_rdp.cli import main

    text = README.read_text()
    assert "`spark-rdp schema release`" in text
    assert main(["schema", "release"]) == 0
    root = README.parent
    for path in re.findall(r"`((?:conf|jobs)/[\w./-]+)`|spark-submit (jobs/\w+\.py)", text):
        assert (root / "".join(path)).is_file(), path


def test_the_figures_in_the_text_are_those_of_the_planner():
    import spark_rdp as rdp

    text = README.read_text()
    plan = rdp.plan(epsilon=1, sensitivity=1, metric=rdp.Usefulness(0.1))
    assert plan.mechanism == "staircase"
    assert f"the best noise, a staircase: {100 * plan.metric_value:.2f} %" in text
    assert f"Laplace noise: {100 * plan.alternatives['laplace']:.2f} %" in text


def test_python_and_command_line_charge_one_ledger(folder):
    ran = run(["spark-rdp", "ledger", "history", "shop", "--url", "sqlite:///budget.db", "--json"], folder)
    ids = {entry["release_id"] for entry in json.loads(ran.stdout)}
    assert ids == {"orders-by-country@2026-11-30", "orders-from-python@2026-11-30"}
