# Two commands on a fresh machine: `make demo` and `make test`. Both set up all they need in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
COMPILED := $(shell find src -name '*.pxd')
EXTRAS := verify tflm onnx trace plot images sweep
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup system demo test test-all frameworks lint format replay fuzz mutate bench clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## Make .venv with the package, its test tools and the reference runtimes

$(READY): pyproject.toml setup.py $(COMPILED) $(COMPILED:.pxd=.py)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Python 3.10 or newer is needed: make PYTHON=python3.12 …"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -e '.[dev]'
	@$(BIN)/python -c 'from diagmem.planning.place.fit import IS_COMPILED as c; c or print("no C compiler with Python.h: loops run as plain Python, the same plans ten times slower")'
	@for extra in $(EXTRAS); do DIAGMEM_PLAIN=1 $(BIN)/pip install --quiet -e ".[$$extra]" || \
		echo "skipped: the extra '$$extra' cannot be installed here; tests that need it will be skipped"; done
	@touch $(READY)

demo: $(READY)  ## Plan a built-in model: from 96 KB to 48 KB, so that it fits an STM32F103xF
	$(BIN)/diagmem plan zoo:mobilenet_v1_0.25_128_int8 --schedule best --no-overlap --target STM32F103xF || true
	@echo
	$(BIN)/diagmem plan zoo:mobilenet_v1_0.25_128_int8 --target STM32F103xF

system:  # Compilers, emulator, tracer and browser for the tests, from Debian where that is possible
	@tools/install-system-packages

# Tests start hundreds of Pythons: keep bytecode, even where the environment (as in many container images) says not to.
test test-all: export PYTHONDONTWRITEBYTECODE :=

test: $(READY) system  ## Run every test that is quick, and a share of those that are not
	$(BIN)/pytest -n auto --dist worksteal --quick

test-all: $(READY) system  ## Run all tests
	$(BIN)/pytest -n auto --dist worksteal

frameworks: $(READY)  ## Plan and quantise what PyTorch and Keras make; installs both, gigabytes of them
	$(BIN)/pip install --quiet torch keras onnxscript onnxruntime sympy tensorflow ai-edge-quantizer
	KERAS_BACKEND=torch $(BIN)/pytest tests/frontends/test_exporters.py
	$(BIN)/pytest tests/docs/test_quantise.py

lint: $(READY)  ## Check formatting, style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)  ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

replay: $(READY)  ## Show what a change does to plans and emitted C; REPLAY=--write takes it over
	$(BIN)/python tools/replay $(REPLAY)

fuzz: $(READY)  ## Random models and plans, sound and spoiled, for MINUTES=10
	$(BIN)/python tools/fuzz --minutes $(or $(MINUTES),10)

mutate: $(READY)  ## Would the tests notice? MUTATE='--sample 40' tries some mutants of the code, nothing all of them
	$(BIN)/python tools/mutate $(MUTATE)

bench: $(READY)  ## Measure: figures for people, never a test
	@for script in benchmarks/bench_*.py; do $(BIN)/python $$script || exit 1; done

clean:  ## Remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
