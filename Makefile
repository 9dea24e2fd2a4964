# Everything from a bare checkout: each target makes its own virtual environment in
# .venv and installs what it needs, again only when pyproject.toml has changed.
#
#   make demo    the program on a small example; needs nothing but Python
#   make test    all tests; obtains Kafka, Redis and PostgreSQL first (scripts/servers)
#   make check   what CI does: format, lint, types, import direction, then the tests
#   make bench   the benchmarks, against real servers; writes docs/benchmarks.md (20 minutes)
#   make bench-large   the same of a log of ten million events (half an hour)
#   make soak    chaos runs for an hour, over all backends: SOAK_ARGS="--hours 8"
#   make clean   removes what the others made
#
# PYTEST_ARGS goes to pytest: make test PYTEST_ARGS="tests/unit -k layout"
# Tests wait for servers most of their time, so WORKERS files of them run at once, each worker with
# servers of its own: make test WORKERS=0 runs one after the other.

SHELL := /bin/bash
.DEFAULT_GOAL := check
.PHONY: demo test check lint bench bench-large soak clean servers

BIN := .venv/bin
PYTEST_ARGS ?=
WORKERS ?= 3
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist loadfile
SOAK_ARGS ?= --hours 1

demo: .venv/core.stamp
	$(BIN)/belog demo

test: .venv/dev.stamp servers
	$(PYTEST) $(PYTEST_ARGS)

# One recipe, so that the tests come last and their closing line closes the output.
check: .venv/dev.stamp servers
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	PYTHON=$(BIN)/python scripts/protobuf --check
	$(PYTEST) $(PYTEST_ARGS)

bench: .venv/dev.stamp servers
	$(BIN)/python -m benchmarks --page

bench-large: .venv/dev.stamp servers
	$(BIN)/python -m benchmarks --page large

soak: .venv/dev.stamp servers
	$(BIN)/python -m tests.chaos soak $(SOAK_ARGS)

servers:
	scripts/servers

clean:
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist

.venv/core.stamp: pyproject.toml scripts/venv
	scripts/venv .
	touch $@

.venv/dev.stamp: pyproject.toml scripts/venv
	scripts/venv '.[dev]'
	touch $@ .venv/core.stamp
