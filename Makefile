# Everything runs in a virtual environment of its own; nothing else needs to be installed by hand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Real data sets for the tests that can use them, where they are at hand.
export SILODP_DATA ?= $(wildcard $(CURDIR)/../shared/data)

.PHONY: demo test test-slow browser lint format docs bench results clean

demo: $(VENV)/core
	$(BIN)/silodp demo --out runs/demo

# Each process takes tests that follow each other, so that it can use again what they share.
test: $(VENV)/dev browser lint
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

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
	$(BIN)/python -m benchmarks.sites
	$(BIN)/python -m benchmarks.sweeps
	$(BIN)/python -m benchmarks.report

# Everything in docs/results, anew; some three hours on two cores. Goes on where it was interrupted.
results: $(VENV)/core
	$(BIN)/silodp figure all --scale hour --out runs/results
	$(BIN)/python -m benchmarks.results --take runs/results

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
