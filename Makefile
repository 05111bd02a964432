# Every target works on a fresh machine. It first installs what it needs; the second run finds everything installed.
#   make test ARGS="tests/architecture -x"     passes ARGS to pytest (likewise check, soak, run)

SHELL := /bin/bash
.DEFAULT_GOAL := help
ARGS ?=

.PHONY: help setup setup-dev setup-bench test-services run test test-under-load check format coverage soak bench bench-compare lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 24

setup: ## create .venv, compile the core, find Java
	@scripts/setup .venv requirements.lock
	@scripts/build-core .venv
	@scripts/ensure-java

setup-dev: ## the same, with the packages of the tests and checks
	@scripts/setup .venv requirements-dev.lock
	@scripts/ensure-wheels .venv
	@scripts/build-core .venv
	@scripts/ensure-java

setup-bench:
	@scripts/setup .venv-bench requirements-bench.lock
	@scripts/build-core .venv-bench
	@scripts/ensure-benchmark-peers

test-services: setup-dev
	@scripts/ensure-test-services

run: setup ## start a server with demo data
	.venv/bin/vedette serve --demo --data demo-data $(ARGS)

test: test-services ## run the tests
	.venv/bin/pytest -n 2 --dist loadfile $(ARGS)

test-under-load: test-services ## run the tests ROUNDS times (3) beside four busy processes
	scripts/under-load .venv/bin/pytest -n 2 --dist loadfile $(ARGS)

check: setup-dev ## check lint rules, format, types, import order, source tree and scripts
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/pytest -q -p no:cacheprovider tests/architecture
	.venv/bin/shellcheck $(filter-out %.py,$(wildcard scripts/*)) .ci/run

format: setup-dev ## format the code and fix what ruff can fix
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

coverage: test-services ## run the tests and report lines that no test executes
	VEDETTE_COMPILED=0 .venv/bin/pytest --cov --cov-report=term $(ARGS)

soak: test-services ## run the tests with many more crashes and longer random runs
	VEDETTE_SOAK=1 .venv/bin/pytest --timeout=3600 $(ARGS)

bench: setup-bench ## run the benchmarks, also of comparable systems
	.venv-bench/bin/python -m benchmarks $(ARGS)

bench-compare: ## compare two commits: BASE=<commit> ARGS="--quick --only CASE ..."
	@test -n "$(BASE)" || { echo 'usage: make bench-compare BASE=<commit> [ARGS="--quick --only CASE ..."]' >&2; exit 2; }
	@scripts/setup .venv requirements.lock
	.venv/bin/python -m benchmarks.compare $(BASE) $(ARGS)

lock: ## rebuild the lock files; ARGS=--upgrade updates the versions
	scripts/lock $(ARGS)

clean: ## remove everything that the other targets created
	rm -rf .venv .venv-bench benchmarks/node/node_modules .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache \
		.ruff_cache build dist src/vedette/_compiled
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
