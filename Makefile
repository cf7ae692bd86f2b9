# What a developer does, one word each. `make test` and `make demo` do all the set-up they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 3
FAST_WORKERS ?= 3
SECONDS_EACH ?= 900
SEED ?= 1
COUNT ?= 6000
MUTANTS ?= 120
LOCKED := --universal --generate-hashes --no-header --no-annotate --quiet

.DEFAULT_GOAL := help
.PHONY: help setup setup-system controlplane gitea prometheus renderers check test test-fast mutants conformance fuzz truth demo docs bench lock install-manifest pictures schemas clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

setup: $(STAMP) ## the Python environment in .venv, from requirements.lock, hashes checked

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' || { echo "gitops-ds needs Python 3.11 or newer with venv: set PYTHON=/path/to/python3"; exit 3; }
	@git --version >/dev/null || { echo "gitops-ds needs git on the PATH"; exit 3; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup-system: ## programs that tests need from the system (sshd and the like), by apt-get
	@scripts/setup-system

controlplane: $(STAMP) ## a real API server, etcd, scheduler and kwok from Go modules, into a cache
	@PYTHON=$(abspath $(BIN)/python) scripts/controlplane

gitea: $(STAMP) ## a real forge from its Go module, into a cache
	@PYTHON=$(abspath $(BIN)/python) scripts/gitea

prometheus: $(STAMP) ## a real source of metrics from its Go module, into a cache
	@PYTHON=$(abspath $(BIN)/python) scripts/prometheus

check: $(STAMP) ## format, lint, types, layers, language, workflows: as in pre-commit and in CI
	@scripts/check

renderers: $(STAMP) ## helm, kustomize and the health checks of other tools from Go modules, into a cache
	@PYTHON=$(abspath $(BIN)/python) scripts/renderers
	@PYTHON=$(abspath $(BIN)/python) scripts/health
	@PYTHON=$(abspath $(BIN)/python) scripts/crds

# an empty PYTHONDONTWRITEBYTECODE: pytest keeps the compiled tests, instead of each worker compiling all of them in each run
test: $(STAMP) check ## everything, against a real API server and real git servers as well
	@if [ "$$(id -u)" = 0 ]; then scripts/setup-system; fi
	@scripts/setup-system --check
	@PYTHON=$(abspath $(BIN)/python) scripts/controlplane --conformance >/dev/null
	@PYTHON=$(abspath $(BIN)/python) scripts/gitea >/dev/null
	@PYTHON=$(abspath $(BIN)/python) scripts/prometheus >/dev/null
	@PYTHON=$(abspath $(BIN)/python) scripts/renderers >/dev/null
	@PYTHON=$(abspath $(BIN)/python) scripts/health >/dev/null
	@PYTHON=$(abspath $(BIN)/python) scripts/crds >/dev/null
	PYTHONDONTWRITEBYTECODE= TEST_PROFILE=ci $(BIN)/pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder --durations=40

test-fast: $(STAMP) ## what needs no control plane, no forge, no renderers and no programs of the system, with the profile fast
	PYTHONDONTWRITEBYTECODE= TEST_PROFILE=fast $(BIN)/pytest -n $(FAST_WORKERS) -q -m "not slow and not controlplane and not system and not renderers and not forge and not metrics and not browser"

mutants: $(STAMP) ## a sample of mutants of daemonset/, rollouts/ and plan/: each fails one of their own fast tests or is explained (MUTANTS=120 SEED=1)
	@$(BIN)/python -m tests.mutants --count $(MUTANTS) --seed $(SEED)

conformance: $(STAMP) ## Kubernetes' own end-to-end tests of DaemonSets against ours as the only controller (also in `make test`)
	@PYTHON=$(abspath $(BIN)/python) scripts/controlplane --conformance >/dev/null
	$(BIN)/pytest -q tests/conformance

fuzz: $(STAMP) ## an hour of bytes that nobody meant (SECONDS_EACH=900 for each of four targets); a minute of it is in `make test`
	@for target in manifest repository answers reports; do $(BIN)/python -m tests.fuzz $$target -max_total_time=$(SECONDS_EACH) -rss_limit_mb=2048 -timeout=30 || exit 1; done

truth: $(STAMP) ## mutated manifests: our verdict against a real API server's, every difference told (SEED=1 COUNT=6000)
	@PYTHON=$(abspath $(BIN)/python) scripts/controlplane >/dev/null
	$(BIN)/python -m tests.truth --seed $(SEED) --count $(COUNT)

demo: $(STAMP) ## a commit, a bad commit and its revert on the embedded cluster, in about a minute
	@$(BIN)/gitops-ds demo

docs: $(STAMP) ## the site of the documentation into site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

bench: $(STAMP) ## figures as ratios against a peer measured in the same run
	@PYTHON=$(abspath $(BIN)/python) scripts/controlplane >/dev/null
	$(BIN)/python -m benchmarks

lock: $(STAMP) ## requirements.lock anew, and requirements-runtime.lock, which the image and the action install
	$(BIN)/uv pip compile pyproject.toml --extra dev $(LOCKED) -o requirements.lock
	echo hatchling | $(BIN)/uv pip compile pyproject.toml - --constraint requirements.lock $(LOCKED) -o requirements-runtime.lock

install-manifest: $(STAMP) ## deploy/install.yaml and the chart's copies anew, from deploy/
	@PYTHON=$(abspath $(BIN)/python) scripts/install-manifest

pictures: $(STAMP) ## docs/images, from a demo with 96 nodes in Chromium
	$(BIN)/python -m tests.page.pictures

schemas: $(STAMP) ## the schemas of Kubernetes, from the OpenAPI files of each version, and of the settings file
	$(BIN)/python scripts/settings-schema
	$(BIN)/python scripts/schemas
	$(BIN)/python scripts/served
	$(BIN)/python scripts/go-types
	$(BIN)/python scripts/structure
	$(BIN)/ruff format --quiet gitops_ds/apimachinery/builtin_resources.py

clean: ## the environment and caches of the tree away
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist build site
