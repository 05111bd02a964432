# Everything here works on a fresh machine: each target first sets up what it needs, and is quick the second time.
#   make test ARGS="tests/architecture -x"     passes ARGS to pytest (likewise check, soak, run)

SHELL := /bin/bash
.DEFAULT_GOAL := help
ARGS ?=

.PHONY: help setup setup-dev setup-bench run test test-under-load check format coverage soak bench bench-compare lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: ## make .venv and find Java, nothing else
	@scripts/setup .venv requirements.lock
	@scripts/ensure-compiled .venv
	@scripts/ensure-java

setup-dev: ## the same with what tests and checks need
	@scripts/setup .venv requirements-dev.lock
	@scripts/ensure-wheels .venv
	@scripts/ensure-compiled .venv
	@scripts/ensure-java

setup-bench:
	@scripts/setup .venv-bench requirements-bench.lock
	@scripts/ensure-compiled .venv-bench
	@scripts/ensure-node
	@scripts/ensure-queue-servers
	@scripts/ensure-push-servers

run: setup ## start Vedette with a demo
	.venv/bin/vedette serve --demo --data demo-data $(ARGS)

test: setup-dev ## run the test suite
	@scripts/ensure-postgres
	@scripts/ensure-mongodb
	@scripts/ensure-chromium
	.venv/bin/pytest -n 2 --dist loadfile $(ARGS)

test-under-load: setup-dev ## run the test suite ROUNDS times (3) beside four busy processes
	@scripts/ensure-postgres
	@scripts/ensure-mongodb
	@scripts/ensure-chromium
	scripts/under-load .venv/bin/pytest -n 2 --dist loadfile $(ARGS)

check: setup-dev ## lint, format, types, layers, rules of the source tree
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/pytest -q -p no:cacheprovider tests/architecture
	.venv/bin/shellcheck $(filter-out %.py,$(wildcard scripts/*)) .ci/run

format: setup-dev ## format the code and fix what ruff can fix
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

coverage: setup-dev ## the test suite, and what it did not reach
	@scripts/ensure-postgres
	@scripts/ensure-mongodb
	@scripts/ensure-chromium
	VEDETTE_COMPILED=0 .venv/bin/pytest --cov --cov-report=term $(ARGS)

soak: setup-dev ## the long form of the tests: many kills, long oracles
	@scripts/ensure-postgres
	@scripts/ensure-mongodb
	@scripts/ensure-chromium
	VEDETTE_SOAK=1 .venv/bin/pytest --timeout=3600 $(ARGS)

bench: setup-bench ## measure, beside peers
	.venv-bench/bin/python -m benchmarks $(ARGS)

bench-compare: ## compare two commits: BASE=<commit> ARGS="--quick --only CASE ..."
	@test -n "$(BASE)" || { echo 'usage: make bench-compare BASE=<commit> [ARGS="--quick --only CASE ..."]' >&2; exit 2; }
	@scripts/setup .venv requirements.lock
	.venv/bin/python -m benchmarks.compare $(BASE) $(ARGS)

lock: ## write the lock files; ARGS=--upgrade moves the versions
	scripts/lock $(ARGS)

clean: ## remove everything that the targets created
	rm -rf .venv .venv-bench benchmarks/node/node_modules .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache \
		.ruff_cache build dist src/vedette/_compiled
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
