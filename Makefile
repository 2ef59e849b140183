# Everything runs in .venv (or in the environment that VENV names), made on first use.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
READY := $(VENV)/.fedorch-ready

# One worker for the Ray session, one for clusters (which mostly wait), one for all other tests.
SIDE_BY_SIDE := -n 3 --dist loadgroup --no-loadscope-reorder

.PHONY: run test test-long test-all test-slow fuzz lint format bench audit clean

run: $(READY)
	$(BIN)/fedorch quickstart

test: $(READY)
	$(BIN)/pytest $(SIDE_BY_SIDE)

test-long: $(READY)
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "long and not slow"

test-all: test test-long

test-slow: $(READY)
	$(BIN)/pytest -m slow --timeout 3600

fuzz: $(READY)
	$(BIN)/python -m tests.fuzz --minutes 120 --seed 0

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy fedorch orchestrator algorithms rl sweeps

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	$(BIN)/python -m benchmarks

# Known vulnerabilities of the pinned versions: asks an advisory database, so not a part of CI.
audit: $(READY)
	$(BIN)/python -m pip install --quiet pip-audit
	$(BIN)/pip-audit --requirement constraints.txt --disable-pip --no-deps --strict

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
