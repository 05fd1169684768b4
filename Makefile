# `make demo` and `make test` are all that a fresh machine with Python 3.11, make and git needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -n 2 -q

.PHONY: demo test check lint types soak bench docs clean

demo: $(VENV)/.installed
	$(BIN)/seqloom demo

# Every check that CI runs.
test: $(VENV)/.developing lint types docs
	$(PYTEST) -m "not soak" --durations=15

# The fast part, for every edit; the examples of the pages are run by `make test`.
check: $(VENV)/.developing lint types
	SEQLOOM_DRAWS=quick $(PYTEST) -m "not soak and not slow" tests src

lint: $(VENV)/.developing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.developing
	$(BIN)/mypy

# Long campaigns with fresh seeds; a failing seed is printed.
soak: $(VENV)/.soaking
	SEQLOOM_SOAK=1 $(PYTEST) -m "soak or not slow" tests

# All but benchmarks/difficulty.py, which trains for an hour, and benchmarks/embedding.py, which needs a checkpoint.
bench: $(VENV)/.developing
	$(BIN)/python benchmarks/crf.py
	$(BIN)/python benchmarks/layers.py
	$(BIN)/python benchmarks/long_sequences.py
	$(BIN)/python benchmarks/operators.py
	$(BIN)/python benchmarks/tokenising.py
	$(BIN)/python benchmarks/batches.py
	$(BIN)/python benchmarks/reading.py
	$(BIN)/python benchmarks/dedupe.py
	$(BIN)/python benchmarks/labelling.py
	$(BIN)/python benchmarks/searching.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/linear.py
	$(BIN)/python benchmarks/inspecting.py

docs: $(VENV)/.developing
	$(BIN)/zensical build --clean --strict

clean:
	rm -rf $(VENV) site dist

$(VENV)/.installed: pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable .
	touch $@

$(VENV)/.developing: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable '.[dev]'
	touch $@

$(VENV)/.soaking: $(VENV)/.developing
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable '.[soak]'
	touch $@
