# Every target installs what it needs into .venv: a machine with Python is enough.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

CODE   := src tests benchmarks docs
# One thread a process: two test processes with two threads each wait for each other on two cores.
TESTS  := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

.PHONY: demo test test-slow check coverage fuzz kills soak sbom release bench docs report setup clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup
	$(BIN)/dsrd demo

test: setup
	$(TESTS)

test-slow: setup
	$(BIN)/python -m pytest -m slow || [ $$? -eq 5 ]  # 5: no test is marked slow

check: setup
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(TESTS)

coverage: setup
	$(TESTS) --cov --cov-report=term:skip-covered

# Attacks readers, run folders, settings, the command line, archives and caches; see docs/explanation/security.md.
MINUTES ?= 2
fuzz: setup
	PYTHONPATH=tests $(BIN)/python -m fuzz --minutes $(MINUTES) --keep --out results/fuzz.jsonl

# Kills training and updates at fifty moments; see docs/explanation/damage.md.
kills: setup
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m hardening --out results/kills.jsonl

# The program goes into an environment of its own: it is no part of what it lists.
sbom: setup
	$(PYTHON) -m venv build/cyclonedx && build/cyclonedx/bin/pip install --quiet cyclonedx-bom || true
	PATH="$$PWD/build/cyclonedx/bin:$$PATH" $(BIN)/python docs/dependencies.py --sbom build/sbom.json

release: setup
	.ci/release $(BIN)/python

bench: setup
	$(BIN)/python benchmarks/building_blocks.py

MINUTES ?= 60
soak: setup
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/soak.py --minutes $(MINUTES) --save results/soak.jsonl

report: setup
	$(BIN)/dsrd report results --out build/report

docs: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/generate_reference.py
	$(BIN)/python docs/pictures.py
	$(BIN)/python docs/figures.py
	$(BIN)/python -m zensical build --strict --clean

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .coverage dist site build .cache
