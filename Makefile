# Everything that is done with this repository has a line here; `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test stack bench check fmt clean prerequisites build

# One profile everywhere, so that dependencies are compiled once.
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
STACK := $(TARGET)/release/stack
ARGS ?=

help: ## List what can be done
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: build ## Show it: charges, lost answers, kills, and the ledger (ARGS=--check: end with 0 or 1)
	@exec $(STACK) demo $(ARGS)

test: ## Format, lints and every test, against real PostgreSQL and real Apache Kafka
	@deploy/local/prerequisites.sh test
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets --locked -- -D warnings
	$(CARGO) build --release --workspace --locked
	$(STACK) exec -- $(CARGO) test --release --workspace --locked --no-fail-fast $(ARGS)
	env -u DATABASE_URL $(STACK) exec --no-kafka -- tests/contract/run.sh

stack: build ## Run all of it for trying by hand (ARGS="--apis 2 --relays 2 --consumers 2 --brokers 1")
	@exec $(STACK) up $(ARGS)

bench: build ## Measure, beside what it is compared with (ARGS="p1 p2 --quick --json")
	@exec $(TARGET)/release/bench $(ARGS)

check: prerequisites ## Format and lints alone
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets --locked -- -D warnings

fmt: ## Format the code
	$(CARGO) fmt --all

clean: ## Remove what was built and fetched, and the logs of earlier runs
	$(CARGO) clean
	rm -rf .local .stack

prerequisites:
	@deploy/local/prerequisites.sh

build: prerequisites
	$(CARGO) build --release --workspace --locked
