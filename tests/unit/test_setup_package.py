"""The package as a user meets it first: imports, public names, ways to start it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import spark_rdp


def python(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.strip()


def test_importing_the_package_loads_nothing_else() -> None:
    heavy = "{'pyspark', 'numpy', 'scipy', 'pandas', 'pydantic', 'matplotlib', 'sqlalchemy'}"
    assert python(f"import sys, spark_rdp; print(sorted({heavy} & set(sys.modules)))") == "[]"


def test_planning_does_not_load_spark() -> None:
    code = "import sys, spark_rdp; spark_rdp.plan; spark_rdp.ReleaseQuery; print('pyspark' in sys.modules)"
    assert python(code) == "False"


@pytest.mark.parametrize("name", spark_rdp.__all__)
def test_every_public_name_exists(name: str) -> None:
    assert getattr(spark_rdp, name).__name__ == name
    assert name in dir(spark_rdp)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        spark_rdp.nonsense


def test_the_module_starts_like_the_command() -> None:
    run = subprocess.run([sys.executable, "-m", "spark_rdp", "--help"], capture_output=True, text=True, check=False)
    assert run.returncode == 0
    assert "release" in run.stdout
