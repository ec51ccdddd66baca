# Two commands on a fresh machine: `make demo` shows the product, `make test` proves it.
PYTHON ?= python3
BIN := .venv/bin
export PYTHONDONTWRITEBYTECODE =  # what is compiled is kept, and not compiled by every process again
PIP := $(BIN)/pip --disable-pip-version-check --quiet

.PHONY: setup demo test test-slow coverage check docs clean

setup: .venv/dev.stamp            ## everything a developer needs

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/user.stamp: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) install -c constraints.txt -e '.[cli,plot]'
	touch $@

.venv/dev.stamp: .venv/user.stamp
	$(PIP) install -c constraints.txt -e '.[dev]'
	touch $@

demo: .venv/user.stamp            ## train, forget, compare on the embedded graph
	$(BIN)/unweave demo

test: .venv/dev.stamp             ## the test suite, a file at a time on every core
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

test-slow: .venv/dev.stamp        ## the tests that take minutes
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -m slow

coverage: .venv/dev.stamp         ## which lines the suite runs
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder --cov=unweave --cov-report=term:skip-covered

check: .venv/dev.stamp            ## style, types and layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/dev.stamp             ## the documentation site, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis demo results-quick site
