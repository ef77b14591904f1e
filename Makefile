# make demo    set up .venv and run the demonstration (about 4 minutes on two cores)
# make test    lint, types and tests
# make sims    MuJoCo and the system libraries it draws with; then: make test-sims
#              (make sims SIMS=robosuite: also robosuite and robomimic)
# make bench   measure speed; writes benchmarks/results (make bench BENCH='--quick --only windows')
# make docs    build the guide into site/
#
# For a new .venv:
# PYTHON=...       interpreter, otherwise the newest of 3.13, 3.12, 3.11 that works
# TORCH_INDEX=...  package index of the wanted build of torch, for torch only

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types pytest sims test-sims bench docs clean

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest

export PYTHON TORCH_INDEX SIMS
export SDL_VIDEODRIVER := dummy
export PYGAME_HIDE_SUPPORT_PROMPT := 1
export HF_HUB_OFFLINE := 1
export OMP_WAIT_POLICY := PASSIVE

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

setup:
	@sh requirements/setup.sh

demo: setup
	$(BIN)/worldplan demo

test: lint types pytest

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

pytest test-sims: export OMP_NUM_THREADS := 1

pytest: setup
	$(PYTEST) -m "not slow and not sims and not peer and not gpu" -n 2 --timeout 60

sims: setup
	@sh requirements/system.sh
	@sh requirements/sims.sh

test-sims: setup
	$(PYTEST) -m "(sims or render or browser) and not slow and not peer and not gpu" -n 2 --timeout 120

bench: setup
	$(BIN)/python -m benchmarks $(BENCH)

docs: setup
	$(BIN)/mkdocs build --strict

clean:
	rm -rf .venv site dist build .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
