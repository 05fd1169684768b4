# On a new machine with Python 3.11, make and git, start with `make demo` or `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -q

# Keep compiled modules and tests between runs, even if the shell forbids it.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test tests check fast lint types soak test-gpu bench docs clean

demo: $(VENV)/.installed
	$(BIN)/seqloom demo

# Everything that CI runs: all tests but long campaigns, with lint, types and the documentation at the same time.
test: $(VENV)/.developing
	$(MAKE) --no-print-directory --jobs=4 tests lint types docs

tests: $(VENV)/.developing
	$(PYTEST) -n 2 -m "not soak" --durations=15

# For every edit: the fast tests, lint and types at the same time.
check: $(VENV)/.developing
	$(MAKE) --no-print-directory --jobs=3 fast lint types

# Only `make test` runs the examples in the documentation.
fast: $(VENV)/.developing
	SEQLOOM_DRAWS=quick $(PYTEST) -n 2 -m "not soak and not slow" tests src

lint: $(VENV)/.developing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.developing
	$(BIN)/mypy

# All tests with all their cases, and long ones, with new random seeds; a failing seed is printed.
soak: $(VENV)/.soaking
	SEQLOOM_SOAK=1 $(PYTEST) -n 2 tests

# The tests of GPU kernels on a GPU, except variants that take long to compile. `make test` interprets those kernels on
# the CPU, where Triton is to be had.
test-gpu: $(VENV)/.developing
	SEQLOOM_TEST_DEVICE=cuda $(BIN)/python -m pytest -q --maxfail=5 -m "gpu and not soak" tests

# All benchmarks except difficulty.py, which trains for an hour, and embedding.py, which needs a checkpoint.
bench: $(VENV)/.developing
	$(BIN)/python benchmarks/crf.py
	$(BIN)/python benchmarks/layers.py
	$(BIN)/python benchmarks/long_attention.py
	$(BIN)/python benchmarks/long_sequences.py
	$(BIN)/python benchmarks/muon.py
	$(BIN)/python benchmarks/operators.py
	$(BIN)/python benchmarks/tokenization.py
	$(BIN)/python benchmarks/batches.py
	$(BIN)/python benchmarks/data_loading.py
	$(BIN)/python benchmarks/dedupe.py
	$(BIN)/python benchmarks/labeling.py
	$(BIN)/python benchmarks/search.py
	$(BIN)/python benchmarks/serving.py
	$(BIN)/python benchmarks/serving_load.py
	$(BIN)/python benchmarks/stream.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/linear.py
	$(BIN)/python benchmarks/inspection.py
	$(BIN)/python benchmarks/messages.py
	$(BIN)/python benchmarks/word_vectors.py
	$(BIN)/python -m benchmarks.peers

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
