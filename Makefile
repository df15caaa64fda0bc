# Everything a person or CI runs. Each target sets up what it needs, on a machine with nothing but Python.

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
JOBS ?= 2
CODE := src tests bench examples tools docs/tutorials

# Tests start many processes: each reads compiled code instead of compiling the library again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test lint types unit slow ray gpu peers bench bench-all growth docs notebooks release torch-range proto format clean
.DELETE_ON_ERROR:

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

demo: .venv/.core  ## see it work, in under a minute
	$(BIN)/python -m syft.demo

test: lint types unit  ## all that must be green: lint, types, unit

lint: .venv/.dev  ## ruff (rules and format) and the order of the rooms
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/lint-imports

types: .venv/.dev  ## mypy
	$(BIN)/mypy

unit: .venv/.dev  ## the tests; ARGS='-k pointer' passes arguments on
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

slow: .venv/.dev  ## the tests that take too long for every change
	$(BIN)/python -m pytest -n $(JOBS) -m slow $(ARGS)

ray: .venv/.ray  ## the tests of the Ray engine, which needs 240 MB more than the others
	$(BIN)/python -m pytest -m 'slow or not slow' tests/federated/test_engine_ray.py $(ARGS)

gpu: .venv/.dev  ## the tests that need a CUDA device and Triton
	$(BIN)/python -m pytest -m gpu tests/mpc/test_device.py tests/mpc/test_network_device.py $(ARGS)

peers: | .venv/bin/python  ## what the benchmarks compare with, each in an environment of its own below .peers
	$(BIN)/python bench/peers/install.py .peers

bench: .venv/.dev  ## measure the targets beside the peers, in a few minutes; ARGS='network --busy'
	$(BIN)/python -m bench --quick $(ARGS)

bench-all: .venv/.dev  ## measure everything, with more turns
	$(BIN)/python -m bench $(ARGS)

growth: .venv/.dev  ## how cost grows: charts to docs/plots
	$(BIN)/python -m bench.growth $(ARGS)

docs: .venv/.docs  ## build the documentation to site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site

release: .venv/.dev  ## check the version, build, look into what was built; ARGS=--tag tags the commit
	$(PIP) build
	$(BIN)/python tools/release.py $(ARGS)

torch-range: .venv/.dev  ## the tests closest to torch, with every release in the range; downloads them
	$(BIN)/python tools/torch_range.py $(ARGS)

notebooks: .venv/.notebooks  ## run the tutorials and write their notebooks; ARGS='03 11' chooses some
	$(BIN)/python tools/notebooks.py $(ARGS)

proto: .venv/.dev  ## make the Python code of plan.proto anew
	$(BIN)/python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src src/syft/execution/protobuf/plan.proto

format: .venv/.dev  ## rewrite the code in the house's format
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

clean:  ## remove what the other targets made
	rm -rf .venv site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# -- set-up: one .venv, with more in it the more is asked for ------------------------------------------

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed and was not found. Name it: make PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is older than Python 3.11. Name a newer one: make PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.core: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --editable .
	@touch $@

.venv/.dev: .venv/.core
	$(PIP) --editable '.[dev]'
	@touch $@

.venv/.ray: .venv/.dev
	$(PIP) --editable '.[ray]'
	@touch $@

.venv/.notebooks: .venv/.dev
	$(PIP) --editable '.[notebooks]'
	@touch $@

.venv/.docs: .venv/.core
	$(PIP) --editable '.[docs]'
	@touch $@
