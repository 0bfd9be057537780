# Everything runs from .venv, which is made on first use. Another interpreter: make PYTHON=python3.12 toy
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help toy test lint format mutants mistakes bench docs dist clean

help: ## show this list
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 10

# Made again whenever the dependencies change.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "cissl needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	touch $@

.venv: .venv/installed

toy: .venv/installed ## the paper's toy study: Table 1 and Figure 1
	$(BIN)/cissl run toy

test: .venv/installed ## run the tests
	$(BIN)/pytest -n 2

lint: .venv/installed ## check style, names and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: .venv/installed ## put the code into the style that lint checks
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

mutants: .venv/installed ## break the core in more than a thousand ways and see which ones no test notices
	$(BIN)/mutmut run --max-children 2
	$(BIN)/mutmut results

mistakes: .venv/installed ## put the mistakes of published code in, one at a time, and see which test fails
	$(BIN)/python tests/mistakes.py

bench: .venv/installed ## run every benchmark; each prints what it measured
	@set -e; for file in benchmarks/*.py; do echo "$$file"; $(BIN)/python "$$file"; done

docs: .venv/installed ## build the documentation: site/index.html opens from the disk
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

dist: .venv/installed ## build wheel and sdist, and try the wheel in an environment of its own
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	set -e; fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	$(PYTHON) -m venv "$$fresh"; \
	"$$fresh/bin/pip" install -q -c constraints.txt dist/*.whl; \
	cd "$$fresh"; bin/cissl --version; bin/cissl list

clean: ## remove .venv and everything that was built; runs/ stays
	rm -rf .venv dist build site .pytest_cache .hypothesis .mypy_cache .ruff_cache mutants
	find src tests examples benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
