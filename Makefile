# Every target sets up what it needs. `make` alone lists them.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
SETTINGS := pyproject.toml constraints.txt
WORKERS ?= 2
# A worker does files from top to bottom, so that fixtures are made once; who is done takes some of
# another's.
SIDE_BY_SIDE := -n $(WORKERS) --dist worksteal
KERNELS := tests/unit/frontier tests/unit/exact/test_minkowski.py tests/unit/envs/test_kernels.py

.PHONY: help demo test test-unit check lint types tests compiled uncompiled measured coverage test-slow fuzz docs \
	wheel dist lowest bench clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# A stamp is newer than the settings it was installed from, so nothing is installed twice.
$(VENV)/installed: $(SETTINGS) | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/installed-dev: $(SETTINGS) | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/installed

demo: $(VENV)/installed  ## learn a dial for corridors, two minutes, and write the page out/demo/report/index.html
	$(BIN)/bmdp fit corridors --episodes 2000 --minutes 2 --out out/demo --force
	$(BIN)/bmdp report out/demo

# Kernels come first: what numba has compiled is kept, and would else be compiled by every worker.
test: $(VENV)/installed-dev  ## all that must pass: lint, types, tests
	@$(MAKE) --no-print-directory --output-sync -j 2 compiled types lint
	$(BIN)/pytest -q $(SIDE_BY_SIDE) -m 'not slow' $(KERNELS:%=--ignore=%)

check: lint types  ## lint and types alone

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed-dev
	$(BIN)/mypy

# Coverage sees inside the kernels only where numba does not compile them.
uncompiled: $(VENV)/installed-dev
	NUMBA_DISABLE_JIT=1 $(BIN)/coverage run -m pytest -q $(KERNELS)

# Not under coverage, which would follow the compiler.
compiled: $(VENV)/installed-dev
	$(BIN)/pytest -q -n $(WORKERS) --dist loadfile $(KERNELS)

# All but those of the kernels, under coverage.
tests: $(VENV)/installed-dev
	$(BIN)/coverage run -m pytest -q $(SIDE_BY_SIDE) -m 'not slow' $(KERNELS:%=--ignore=%)

coverage: $(VENV)/installed-dev  ## lines and branches: all of the geometry and the exact solvers, 95 % of the rest
	$(BIN)/coverage erase
	@$(MAKE) --no-print-directory compiled uncompiled tests measured

measured:
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --include='src/bmdp/frontier/*,src/bmdp/exact/*' -m --fail-under=100
	$(BIN)/coverage report --skip-covered --show-missing --fail-under=95

test-unit: $(VENV)/installed-dev  ## tests without training, a minute
	$(BIN)/pytest -q $(SIDE_BY_SIDE) tests/unit

test-slow: $(VENV)/installed-dev  ## the checks that take longer
	$(BIN)/pytest -q $(SIDE_BY_SIDE) -m slow

NAME ?= files
SECONDS ?= 60
fuzz: $(VENV)/installed-dev  ## try a promise of docs/reliability.md at random: NAME=files SECONDS=60
	cd tests && ../$(BIN)/python -m fuzz $(NAME) --seconds $(SECONDS)

# A link that leads nowhere, and a page that is not in the list of pages, are errors.
docs: $(VENV)/installed-dev  ## the pages of docs/ as a site, build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir build/site

# Modules that are gone would still be in build/lib, and get into the wheel.
wheel: | $(BIN)/python  ## what pip installs, build/dist/bmdp-*.whl
	rm -rf build/lib build/dist
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/dist .

dist: | $(BIN)/python  ## wheel and source distribution, checked, build/dist/
	rm -rf build/lib build/dist
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt build twine
	$(BIN)/python -m build --outdir build/dist .
	$(BIN)/twine check --strict build/dist/*

# In an environment of its own, without the tools that pages and types are checked by.
lowest:  ## tests without training, with the lowest versions of dependencies
	$(PYTHON) -m venv build/lowest
	build/lowest/bin/pip install --quiet --disable-pip-version-check -c constraints-min.txt \
		-e '.[data,driving,onnx,ray,serve,tensorboard]' httpx hypothesis pandas polars pytest pytest-xdist
	build/lowest/bin/pytest -q $(SIDE_BY_SIDE) -m 'not slow' -W ignore::DeprecationWarning tests/unit

bench: $(VENV)/installed-dev  ## measure speed, into benchmarks/results/ and docs/paper/performance.md
	$(BIN)/python benchmarks/frontier.py --out benchmarks/results/frontier.json
	$(BIN)/python benchmarks/exact.py --out benchmarks/results/exact.json
	$(BIN)/python benchmarks/finite.py --out benchmarks/results/finite.json
	$(BIN)/python benchmarks/envs.py --out benchmarks/results/envs.json
	$(BIN)/python benchmarks/driving.py --out benchmarks/results/driving.json
	$(BIN)/python benchmarks/learning.py --out benchmarks/results/learning.json
	$(BIN)/python benchmarks/workers.py --out benchmarks/results/workers.json
	$(BIN)/python benchmarks/install.py --out benchmarks/results/install.json
	$(BIN)/python benchmarks/tables.py

clean:  ## remove what the targets made
	rm -rf $(VENV) out build .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
