# Everything runs in a virtual environment of its own; nothing else needs to be installed by hand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Real data sets for the tests that can use them, where they are at hand.
export SILODP_DATA ?= $(wildcard $(CURDIR)/../shared/data)

.PHONY: demo test test-slow browser lint format docs bench results suite suite-part clean

demo: $(VENV)/core
	$(BIN)/silodp demo --out runs/demo

# Each process takes tests that follow each other, so that it can use again what they share. Most
# tests are over before optimised code would pay: theirs is compiled as fast as it can be, which
# saves two fifths of their time. Those that hold what XLA makes for users (marked as_shipped: sums
# to the last bit) and those that train thousands of runs come first, without these flags; only
# files that name the mark are read for it (conftest.py sees to it that no other file has one).
# What lint finds is shown before the others begin: its one core would leave the second idle.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal
SOON := --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true \
  --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1
SHIPPED = $$(grep -rl --include='test_*.py' as_shipped tests)
# By a name of its own, so that `make -n test` does not begin to run it.
LINTED := $(MAKE) --no-print-directory lint
test: $(VENV)/dev browser
	@failed=0; \
	$(LINTED) >$(VENV)/lint.txt 2>&1 & lint=$$!; \
	$(PYTEST) -m "not slow and as_shipped" $(SHIPPED) || failed=$$?; \
	wait $$lint || failed=$$?; cat $(VENV)/lint.txt; \
	XLA_FLAGS="$(SOON)" $(PYTEST) -m "not slow and not as_shipped" || failed=$$?; \
	exit $$failed

# Tests look at pages with Debian's Chromium, installed here where that may be done; where there is
# none, they are skipped and say so.
browser:
	@command -v chromium >/dev/null || { \
	  command -v apt-get >/dev/null && test "$$(id -u)" = 0 \
	  && apt-get -qq update && apt-get -qq install --yes --no-install-recommends chromium fonts-dejavu-core >/dev/null; \
	} || echo 'Chromium is missing, so tests of pages are skipped: install the package chromium.'

test-slow: $(VENV)/dev
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-logo --no-cache

format: $(VENV)/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The pages of docs/ as a site that needs no network: open site/index.html. Whatever the builder
# warns about (a link to nowhere, a name that is gone) is an error.
docs: $(VENV)/dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

bench: $(VENV)/bench
	$(BIN)/python -m benchmarks.throughput --json runs/bench.json
	$(BIN)/python -m benchmarks.privacy
	$(BIN)/python -m benchmarks.release
	$(BIN)/python -m benchmarks.loading
	$(BIN)/python -m benchmarks.methods
	$(BIN)/python -m benchmarks.tuning
	$(BIN)/python -m benchmarks.ebmtl
	$(BIN)/python -m benchmarks.fewround
	$(BIN)/python -m benchmarks.encoding
	$(BIN)/python -m benchmarks.sites
	$(BIN)/python -m benchmarks.sweeps
	$(BIN)/python -m benchmarks.report

# Everything in docs/results, anew; some three hours on two cores. Goes on where it was interrupted.
results: $(VENV)/core
	$(BIN)/silodp figure all --scale hour --out runs/results
	$(BIN)/python -m benchmarks.results --take runs/results

# Every method on every federation of the suite, anew (hours), and the part that takes minutes. Both
# go on where they were interrupted.
suite: $(VENV)/core
	$(BIN)/silodp bench suite --page docs/suite.md

suite-part: $(VENV)/core
	$(BIN)/silodp bench suite --part --out runs/suite-part

clean:
	rm -rf $(VENV)

# Each stamp file says that the environment holds what its name promises.
$(VENV)/core: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "silodp needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/dev: $(VENV)/core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

$(VENV)/bench: $(VENV)/dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	touch $@
