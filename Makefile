# Every target sets itself up: a virtual environment in .venv, pinned by constraints.txt; on CI by the hashes in
# requirements-ci.txt.
PYTHON ?= python3
BIN := .venv/bin
LEAST_TESTS := $(addprefix tests/test_,candidates.py tables.py formats.py saving.py saving_damage.py training.py classical.py)
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
# by its path: else a program beside this folder would import the folder, which is called mogd too, in place of the package
EDITABLE := --config-settings editable_mode=compat -e

.PHONY: demo test test-all check format docs reproduce bench fuzz coverage mutants lower-bounds dist sbom lock clean

demo: .venv/.user
	$(BIN)/python -m mogd demo --out demo-out

test: .venv/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -q

test-all: .venv/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -q -m ""

check: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/.dev
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs

reproduce: .venv/.dev
	$(BIN)/python -m mogd reproduce

bench: .venv/.dev
	$(INSTALL) $(EDITABLE) ".[bench]" || echo "without higher and torchopt, which cannot be installed here"
	$(BIN)/python -m benchmarks.performance

fuzz: .venv/.dev
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz.py --out results/fuzz.json
	$(BIN)/python tests/reliability.py

# which test runs which line, and the share of branches that some test runs
coverage: .venv/.dev
	rm -f .coverage .coverage.*
	OMP_NUM_THREADS=1 $(BIN)/python -m coverage run -m pytest -n 2 --dist worksteal -q --junitxml .junit.xml
	$(BIN)/python -m coverage combine -q
	$(BIN)/python -m coverage json -q -o .measured.json
	$(BIN)/python tests/reliability.py --coverage .measured.json

# after `make coverage`; what was broken off goes on, and ARGS=--again tries the survivors once more
mutants: .venv/.dev
	OMP_NUM_THREADS=1 $(BIN)/python tests/mutants.py $(ARGS)
	$(BIN)/python tests/reliability.py

# the least versions that pyproject.toml allows, torch apart, in a folder that shadows those of .venv
lower-bounds: .venv/.dev
	$(BIN)/python .ci/least.py
	PYTHONPATH=.least PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q $(LEAST_TESTS)

dist: .venv-dist/.done
	rm -rf dist
	.venv-dist/bin/python -m build --outdir dist
	.venv-dist/bin/python -m twine check --strict dist/*
	.ci/check-dist

sbom: .venv/.user .venv-dist/.done
	mkdir -p dist
	.venv-dist/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o dist/sbom.cdx.json .venv

lock: .venv/.user
	$(BIN)/python .ci/lock.py

clean:
	rm -rf .venv .venv-dist .least demo-out build dist mutants *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f .coverage .coverage.* .junit.xml .measured.json

.venv/.user: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) $(EDITABLE) .
	touch $@

# CI installs by hash; elsewhere the same versions, for whatever kind of machine it is
.venv/.dev: pyproject.toml requirements-ci.txt
	$(PYTHON) -m venv .venv
ifeq ($(CI),true)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-ci.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation $(EDITABLE) .
else
	$(INSTALL) $(EDITABLE) ".[dev]"
endif
	touch $@ .venv/.user

.venv-dist/.done: .ci/requirements-dist.txt
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/pip install --quiet --disable-pip-version-check --no-deps -r .ci/requirements-dist.txt
	touch $@
