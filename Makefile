# Every target needs nothing but Python 3.11+ and the package registry: it makes .venv when missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NAMESPACE := $(VENV)/namespace

.PHONY: demo test lint types bench check results results-cpu results-seeds clean

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade "pip>=24" "setuptools>=77" wheel
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[dev]"
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/paretune demo --output demo-results

test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -q

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# mypy finds packages by folder name; links give it the names under which the folders are installed.
types: $(STAMP)
	mkdir -p $(NAMESPACE)/paretune
	for name in harness strategies attention; do ln -sfn ../../../$$name $(NAMESPACE)/paretune/$$name; done
	MYPYPATH=$(NAMESPACE) $(BIN)/mypy -p paretune.harness -p paretune.strategies -p paretune.attention

bench: $(STAMP)
	$(BIN)/python -m paretune.harness bench

check: $(STAMP)
	$(BIN)/paretune check --baseline results/baselines/simulated.jsonl

# Reference results; SECONDS_FOR_RESULTS bounds all ladders together, FRESH=--fresh forgets what an older simulator said.
SECONDS_FOR_RESULTS ?= 3600
CARD ?= rtx-4090
results: $(STAMP)
	$(BIN)/python results/make.py simulated --card $(CARD) --seconds $(SECONDS_FOR_RESULTS) $(FRESH)

# Really measured: wants an otherwise idle machine.
results-cpu: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python results/make.py cpu $(FRESH)

# Every example of diffusers' guides: simulated at full size, then measured at toy size on this CPU.
results-seeds: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python results/seed_scenarios.py $(FRESH)

clean:
	rm -rf $(VENV) build dist *.egg-info
