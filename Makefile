# Every target sets up what it needs: a fresh machine with Python is enough.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test test-slow check bench docs setup clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup
	$(BIN)/dsrd demo

test: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

test-slow: setup
	$(BIN)/python -m pytest -m slow || [ $$? -eq 5 ]  # 5: there are none at present

check: setup
	$(BIN)/ruff format --check src tests benchmarks docs
	$(BIN)/ruff check src tests benchmarks docs
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

bench: setup
	$(BIN)/python benchmarks/ground.py

docs: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/generate_reference.py
	$(BIN)/python docs/pictures.py
	$(BIN)/python -m zensical build --strict --clean

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
