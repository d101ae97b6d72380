# Every target does its own set-up: on a fresh machine `make demo` or `make test` is enough.

SHELL := /bin/bash
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# The tests and the demo share the machine with other work; one thread per product is also
# what makes their figures repeatable.
export OMP_NUM_THREADS ?= 1

# Where it is set, every process compiles what it imports: torch, timm, Ray and scikit-learn took 35 s
# of a slow core instead of 14, and a test of Ray starts five such processes.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help first-hour install install-hashed system test check lint types contracts audit sbom format demo bench evaluate secrets clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP)  ## Make .venv with everything for development (quick when nothing changed)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "conclad needs Python 3.11 or newer; say which with: make install PYTHON=python3.12" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV): about 7 GB, a few minutes on a fast line"
	@# Of nineteen thousand modules few are ever imported; those are compiled when they are.
	@# A line a package, so that somebody who waits sees that it goes on.
	@set -o pipefail; $(BIN)/python -m pip install --disable-pip-version-check --no-compile \
	  --progress-bar off --constraint constraints.txt \
	  --editable '.[dev,geo,oidc,openvino,postgres,video]' \
	  | sed -u -n -E '/^(Collecting|  Downloading|Installing|Successfully|ERROR)/{s/^(.{110}).*/\1/;p}'
	@touch $@
	@echo "done: call $(BIN)/conclad, or activate it with: . $(BIN)/activate"

install-hashed:  ## Like install, but every file must have its hash of requirements-hashed.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --no-compile --progress-bar off \
	  --no-deps --require-hashes --requirement requirements-hashed.txt
	@# Built with the setuptools that was just checked; in isolation pip would fetch another one.
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation \
	  --editable .
	@touch $(STAMP)

system:  ## Install the Debian packages that some tests need, or say which are missing
	@scripts/system-packages

# As many processes as cores, but no more than four: each has its own PostgreSQL, browser and torch.
WORKERS ?= auto --maxprocesses 4

test: install system check  ## Everything that must hold before a change is merged
	$(BIN)/pytest -n $(WORKERS) --dist loadfile

check: lint types contracts audit  ## The quick part of `make test`: lint, types, contracts, advisories

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

contracts: install
	$(BIN)/lint-imports

audit: install  ## Known holes of the pinned set, where the package index tells of them
	$(BIN)/python scripts/audit.py

sbom: install  ## What the installation holds, as CycloneDX: dist/conclad.cdx.json
	@mkdir -p dist
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --mc-type application \
	  --output-reproducible --of JSON --output-file dist/conclad.cdx.json $(BIN)/python
	@echo "dist/conclad.cdx.json"

format: install  ## Let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: install  ## Watch a feed in which new classes appear; DEMO='--data file.parquet' takes your own images
	@scripts/demo $(DEMO)

first-hour: install  ## A new user's first hour, from JPEGs to a learnt class, below out/first-hour
	@rm -rf out/first-hour && mkdir -p out/first-hour
	$(BIN)/python scripts/first_hour.py out/first-hour

# The datasets of the evaluation; name others with DATA='a.parquet b.parquet'. Where there are none,
# scenes of our own are drawn: good for trying it out, too easy for figures.
SCENES := out/scenes.parquet
DATA ?= $(or $(wildcard ../shared/data/*.parquet),$(SCENES))
PLAN ?= quick

$(SCENES): | install
	@echo "no labelled images here: drawing scenes; name yours with DATA=file.parquet" >&2
	$(BIN)/python -m bench.drawn $@

evaluate: install $(filter $(SCENES),$(DATA))  ## Compare all methods on DATA (labelled Parquet), with the named PLAN
	@for file in $(DATA); do test -f "$$file" || \
	  { echo "no file $$file; say which labelled images: make evaluate DATA=file.parquet" >&2; exit 1; }; done
	$(BIN)/conclad evaluate $(foreach file,$(DATA),--data $(file)) --plan $(PLAN) \
	  --initial 4 --increment 2 --out out/evaluate

# What takes minutes; BENCH=chaos, soak, quality, drill, bombs or fuzz_feed runs one of the long ones.
BENCH ?= scoring inner_loop rare_class small_classes engine score listing store metrics desk \
  latency throughput scale

bench: install  ## Measure side by side, as ratios in one run; BENCH=soak runs that one
	@for name in $(BENCH); do echo "== $$name"; $(BIN)/python -m bench.$$name || exit 1; done

secrets:  ## Make the passwords of deploy/compose.yaml that are not there yet
	@deploy/make-secrets

clean:  ## Remove .venv and every cache
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
