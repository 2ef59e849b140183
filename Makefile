# Everything runs in .venv (or in the environment that VENV names), made on first use.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
READY := $(VENV)/.fedorch-ready

.PHONY: run test test-slow lint format bench clean

run: $(READY)
	$(BIN)/fedorch run

test: $(READY)
	$(BIN)/pytest

test-slow: $(READY)
	$(BIN)/pytest -m slow --timeout 3600

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy orchestrator algorithms rl sweeps

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	$(BIN)/python -m benchmarks

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
