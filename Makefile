# Development tasks. `make test`, `make test-all` and `make demo` include the setup that they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 3
SECONDS_EACH ?= 900
SEED ?= 1
COUNT ?= 6000
MUTANTS ?= 120
LOCKED := --universal --generate-hashes --no-header --no-annotate --quiet

.DEFAULT_GOAL := help
.PHONY: help setup setup-system generate controlplane realnodes image gitea prometheus renderers check test test-all mutants conformance fuzz truth demo docs bench lock install-manifest pictures schemas clean

help: ## list of targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

setup: $(STAMP) ## creates the Python environment .venv from requirements.lock with hashes

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' || { echo "gitops-ds needs Python 3.11 or newer with venv: set PYTHON=/path/to/python3"; exit 3; }
	@git --version >/dev/null || { echo "gitops-ds needs git on the PATH"; exit 3; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup-system: ## installs system programs for tests, such as sshd, with apt-get
	@scripts/setup-system

controlplane: $(STAMP) ## builds API server, etcd, scheduler and kwok from Go modules, into a cache
	@PYTHON=$(abspath $(BIN)/python) scripts/controlplane

realnodes: $(STAMP) ## builds kubelet, containerd and runc for real nodes from Go modules, into a cache
	@PYTHON=$(abspath $(BIN)/python) scripts/realnodes

image: $(STAMP) ## builds the image of the Containerfile with buildah, as root, into a cache, and prints its archive
	@PYTHON=$(abspath $(BIN)/python) scripts/image

gitea: $(STAMP) ## builds Gitea from its Go module, into a cache
	@PYTHON=$(abspath $(BIN)/python) scripts/gitea

prometheus: $(STAMP) ## builds Prometheus from its Go module, into a cache
	@PYTHON=$(abspath $(BIN)/python) scripts/prometheus

generate: $(STAMP) ## writes what follows from the code: reference pages, schema of the settings, expected outputs
	$(BIN)/python scripts/settings-schema
	$(BIN)/python scripts/rules
	$(BIN)/python scripts/reference
	UPDATE_GOLDENS=1 $(BIN)/pytest -q -n $(WORKERS) $$(grep -rl --include='test_*.py' '^from tests.*goldens' tests)

check: $(STAMP) ## format, lint, types, layers, language, workflows: as in pre-commit and in CI
	@scripts/check

renderers: $(STAMP) ## builds helm, kustomize and the health checks of other tools from Go modules, into a cache
	@PYTHON=$(abspath $(BIN)/python) scripts/renderers
	@PYTHON=$(abspath $(BIN)/python) scripts/health
	@PYTHON=$(abspath $(BIN)/python) scripts/crds

test: $(STAMP) ## tests on the simulated cluster and in virtual time, with a share of the slow tables; builds and installs nothing
	PYTHONDONTWRITEBYTECODE= TEST_PROFILE=fast $(BIN)/pytest -n $(WORKERS) -q -m "not slow and not controlplane and not realnodes and not system and not renderers and not forge and not metrics and not browser"
	@echo "Left out: slow tests, most random cases, and tests with a real control plane, real nodes, Git servers, a forge, Prometheus, helm and a browser. All of them: make test-all"

test-all: $(STAMP) ## every check and every test, in stages; builds the programs that they need
	@scripts/test-all

mutants: $(STAMP) ## a sample of mutants of daemonset/, rollouts/, deploy/plan/ and ownership/: each must fail a fast test of its package or be explained (MUTANTS=120 SEED=1)
	@$(BIN)/python -m tests.mutants --count $(MUTANTS) --seed $(SEED)

conformance: $(STAMP) ## Kubernetes' end-to-end tests of DaemonSets, with our controller alone (also in `make test-all`)
	@PYTHON=$(abspath $(BIN)/python) scripts/controlplane --conformance >/dev/null
	$(BIN)/pytest -q tests/conformance

fuzz: $(STAMP) ## fuzzes four targets (SECONDS_EACH=900 for each); a minute of it is in `make test-all`
	@for target in manifest repository answers reports; do $(BIN)/python -m tests.fuzz $$target -max_total_time=$(SECONDS_EACH) -rss_limit_mb=2048 -timeout=30 || exit 1; done

truth: $(STAMP) ## compares the check with a real API server on mutated manifests, and reports every difference (SEED=1 COUNT=6000)
	@PYTHON=$(abspath $(BIN)/python) scripts/controlplane >/dev/null
	$(BIN)/python -m tests.truth --seed $(SEED) --count $(COUNT)

demo: $(STAMP) ## runs the demo on the simulated cluster, about a minute
	@$(BIN)/gitops-ds demo

docs: $(STAMP) ## builds the documentation into site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

bench: $(STAMP) ## benchmarks, as ratios to a peer in the same run
	@PYTHON=$(abspath $(BIN)/python) scripts/controlplane >/dev/null
	$(BIN)/python -m benchmarks

lock: $(STAMP) ## updates requirements.lock, and requirements-runtime.lock, which the image and the action install
	$(BIN)/uv pip compile pyproject.toml --extra dev $(LOCKED) -o requirements.lock
	echo hatchling | $(BIN)/uv pip compile pyproject.toml - --constraint requirements.lock $(LOCKED) -o requirements-runtime.lock

install-manifest: $(STAMP) ## generates deploy/install.yaml and the chart's copies from deploy/
	@PYTHON=$(abspath $(BIN)/python) scripts/install-manifest

pictures: $(STAMP) ## generates docs/images from a demo with 96 nodes in Chromium
	$(BIN)/python -m tests.page.pictures

schemas: $(STAMP) ## generates the schemas of Kubernetes from the OpenAPI files of each version, and that of the settings file
	$(BIN)/python scripts/settings-schema
	$(BIN)/python scripts/schemas
	$(BIN)/python scripts/served
	$(BIN)/python scripts/go-types
	$(BIN)/python scripts/structure
	$(BIN)/ruff format --quiet gitops_ds/kube/apimachinery/builtin_resources.py

clean: ## removes the environment and the caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist build site
