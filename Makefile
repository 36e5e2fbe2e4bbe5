# driftline: `make demo` shows it, `make test` proves it; both set up what they need.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PEERS_READY := benchmarks/.peers/.ready
DOCS_READY := .docs/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo check gate test test-rest test-all bytes bytes-slow rewritten test-sparks faults coverage bench bench-full references docs pictures release lock clean recipes

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with locked dependencies (other targets do it by themselves)

$(READY): requirements/bootstrap.lock requirements/dev.lock pyproject.toml scripts/setup_environment.py
	@$(PYTHON) scripts/setup_environment.py
	@touch $@

demo: $(READY) ## compare two versions of an example table
	@$(BIN)/python examples/demo.py

check: $(READY) ## lint, formatting, types, import direction, generated docs
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@for script in cli_reference packages equality options errors; do $(BIN)/python scripts/write_$$script.py --check || exit 1; done

gate: $(READY) ## counts, contracts, frozen bytes and the time of make test, in one table
	@$(BIN)/python scripts/gate.py

# Which tests a set has is decided by their kind, in tests/support/kinds.py. PACKAGE=payloads takes those of one package.
WORKERS ?= 3
TESTS = $(if $(PACKAGE),tests/$(PACKAGE) $(wildcard tests/engines$(if $(filter spark,$(PACKAGE)),,/test_$(PACKAGE).py)))
PYTEST = env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -q -n $(if $(PACKAGE),2,$(WORKERS)) --dist loadgroup --no-loadscope-reorder

test: $(READY) ## the checks and the quick set of tests (PACKAGE=payloads: of one package)
	@begun=$$(date +%s); $(MAKE) --no-print-directory -j 2 $(if $(PACKAGE),,check) rewritten && $(PYTEST) --set=quick $(TESTS); \
	  code=$$?; echo "make test: $$(($$(date +%s) - begun)) s, set-up not counted"; exit $$code

test-rest: $(READY) ## the tests that the quick set leaves out: clusters, kills, databases, browsers, properties
	@$(PYTEST) --set=rest $(TESTS)

test-all: ## the quick set and the rest
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test-rest

# Asserts are rewritten once, beside the checks, instead of once in each test process.
rewritten: $(READY)
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -q --collect-only $(TESTS) >/dev/null || true # the run itself tells what cannot be collected

bytes: $(READY) ## no output byte of the commands changed (tests/bytes/hashes.json)
	@$(BIN)/python scripts/bytes.py

bytes-slow: $(READY) ## the same, and the commands that run on Spark (minutes)
	@$(BIN)/python scripts/bytes.py --slow

SPARKS := 35 40 41 42
test-sparks: $(READY) ## one smoke file on other Sparks than the locked one (3.5 to 4.2), each in an environment of its own
	@for spark in $(SPARKS); do \
	  test -f .spark$$spark/.ready -a .spark$$spark/.ready -nt requirements/spark$$spark.lock || { \
	    $(PYTHON) -m venv --clear .spark$$spark && $(BIN)/python -m uv pip install --quiet --python .spark$$spark/bin/python \
	      --require-hashes -r requirements/spark$$spark.lock && touch .spark$$spark/.ready; } || exit 1; \
	  echo "Spark $$spark"; .spark$$spark/bin/python -m pytest -q tests/spark/smoke.py || exit 1; \
	done

# A failing example is written to tests/cases, as the decorator that repeats it.
faults: SEED := $(or $(SEED),$(strip $(shell od -An -N4 -tu4 /dev/urandom)))
faults: $(READY) ## kills, full disks, slow clients, mutated files, properties with random examples (minutes; SEED=…)
	@echo "make faults SEED=$(SEED)"
	@HYPOTHESIS_PROFILE=search $(BIN)/pytest -q --set=faults --hypothesis-seed=$(SEED)
	@$(BIN)/python -m faults --seed $(SEED)
	@$(MAKE) --no-print-directory test-sparks

coverage: $(READY) ## what the tests run of the source, line by line (slower than make test)
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -q -n 2 --dist loadgroup --set=$(or $(SET),all) $(TESTS)
	@$(BIN)/coverage combine --quiet && $(BIN)/coverage report

bench: $(PEERS_READY) ## benchmarks against the peers, quick set
	@$(BIN)/python -m benchmarks quick

bench-full: $(PEERS_READY) ## benchmarks against the peers, large set
	@$(BIN)/python -m benchmarks full

$(PEERS_READY): $(READY) requirements/peers.lock
	@$(PYTHON) -m venv --clear benchmarks/.peers
	@$(BIN)/python -m uv pip install --quiet --python benchmarks/.peers/bin/python --require-hashes -r requirements/peers.lock
	@touch $@

references: $(READY) ## write what docs have from the code: commands, options, error codes, packages, equality, licences
	@for script in cli_reference packages equality options errors licences; do $(BIN)/python scripts/write_$$script.py || exit 1; done

docs: references $(DOCS_READY) ## build the documentation site into out/site
	@$(BIN)/python scripts/build_site.py

$(DOCS_READY): requirements/docs.lock $(READY)
	@$(PYTHON) -m venv --clear .docs
	@$(BIN)/python -m uv pip install --quiet --python .docs/bin/python --require-hashes -r requirements/docs.lock
	@touch $@

pictures: $(READY) ## make the pictures of README and docs from real runs
	@$(BIN)/python scripts/write_pictures.py

RECIPES_READY := out/recipes/.ready

recipes: $(RECIPES_READY) ## try the recipes for cron, Airflow, OpenLineage and dbt with the real tools (minutes)
	@$(BIN)/python scripts/try_recipes.py

$(RECIPES_READY): $(READY) requirements/recipes.lock requirements/dbt.lock
	@$(PYTHON) -m venv --clear out/recipes
	@$(BIN)/python -m uv pip install --quiet --python out/recipes/bin/python --require-hashes -r requirements/recipes.lock
	@$(PYTHON) -m venv --clear out/dbt
	@$(BIN)/python -m uv pip install --quiet --python out/dbt/bin/python --require-hashes -r requirements/dbt.lock
	@touch $@

release: $(READY) ## check version, changelog and tag, then build the wheel and the sdist
	@$(BIN)/python scripts/check_release.py

lock: $(READY) ## renew the locks from pyproject.toml and requirements/*.in
	@for name in bootstrap peers docs dbt; do \
	  $(BIN)/python -m uv pip compile --quiet --universal --upgrade --no-annotate --python-version 3.11 --generate-hashes \
	    --custom-compile-command "make lock" requirements/$$name.in -o requirements/$$name.lock; done
	@$(BIN)/python -m uv pip compile --quiet --universal --upgrade --no-annotate --python-version 3.11 --generate-hashes \
	  --custom-compile-command "make lock" pyproject.toml --extra dev -o requirements/dev.lock
	@$(BIN)/python -m uv pip compile --quiet --universal --upgrade --no-annotate --python-version 3.11 --generate-hashes \
	  --custom-compile-command "make lock" pyproject.toml --extra serve --extra lake --extra sqlite -o requirements/image.lock
	@for spark in $(SPARKS); do \
	  $(BIN)/python -m uv pip compile --quiet --universal --upgrade --no-annotate --python-version 3.11 --generate-hashes \
	    --custom-compile-command "make lock" pyproject.toml requirements/spark$$spark.in -o requirements/spark$$spark.lock; \
	done

clean: ## remove everything that was made
	rm -rf .venv .docs .spark[0-9]* out build dist benchmarks/.peers benchmarks/data benchmarks/results .mypy_cache .ruff_cache .pytest_cache
