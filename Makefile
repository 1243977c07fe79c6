# Everything runs on one virtual environment, .venv, which the first target that needs it makes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2

.PHONY: demo test lint fmt gpu bench fuzz deep peers docs clean

$(VENV)/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed (PYTHON=$(PYTHON)); Debian: apt-get install python3 python3-venv"; exit 1; }
	@$(PYTHON) -m venv --help >/dev/null 2>&1 || { echo "Python's venv is needed; Debian: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[amd,test,dev]'
	@command -v ptxas >/dev/null 2>&1 || $(BIN)/pip install --quiet --disable-pip-version-check '.[nvidia]'
	@touch $@

demo: $(VENV)/ready            ## a matrix product in the language, compiled to PTX, checked in the simulators
	$(BIN)/mimw demo

test: $(VENV)/ready            ## all tests that need no GPU (gpu tests run too where there is one)
	$(BIN)/python -m pytest -n $(JOBS) -m "not deep and not peers"

lint: $(VENV)/ready            ## ruff, pyright (strict), import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

fmt: $(VENV)/ready             ## rewrite the code in the house's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

gpu: $(VENV)/ready             ## tests on a CUDA device; a skip is a failure there
	$(BIN)/python -m pytest -m gpu -rs

bench: $(VENV)/ready           ## the figures that this machine can measure (gemm_peers, hang_cost: by name)
	$(BIN)/python -m benchmarks

fuzz: $(VENV)/ready            ## random search, without end in sight
	MIMW_HYPOTHESIS=fuzz $(BIN)/python -m pytest -n $(JOBS) -m "not gpu and not peers"

deep: $(VENV)/ready            ## long checks
	$(BIN)/python -m pytest -n $(JOBS) -m "deep"

peers: $(VENV)/ready           ## tests on texts that other compilers make (installs the extra `peers`)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[peers]'
	$(BIN)/python -m pytest -n $(JOBS) -m "peers"

docs: $(VENV)/ready            ## regenerate the reference and the list of errors
	$(BIN)/python -m mimw.tools.reference

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
