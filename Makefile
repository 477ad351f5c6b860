# Every target creates the environment it needs; `make help` lists them.
#   make PYTHON=python3.12 env      another Python than python3
#   make LOCK_FLAGS=--upgrade lock  newer versions of everything

PYTHON ?= python3
LOCK_FLAGS ?=
PYTEST_FLAGS ?=
# The versions of Spark that `make spark-versions` tests, in addition to that in requirements.lock.
SPARK_VERSIONS ?= 4.0.1 4.1.1 4.2.0
# The number of schedules that `make simulate` plays, and their first seed.
SCHEDULES ?= 20000
FIRST_SEED ?= 1000
# Duration of the faults of `make chaos`; `make fuzz` runs for 5 minutes by default, `make soak` for
# an hour.
MINUTES ?= 12
# The tables that `make chaos` writes: sqlite, delta, postgres, iceberg, between commas.
SINKS ?= sqlite
# The number of brokers of `make chaos`: 1, or 3 with faults of their own.
BROKERS ?= 1
# Further faults of `make chaos`, between commas: network, disk, clock, retention, resets, cluster.
FAULTS ?=
# Further options of `make chaos`; `python -m workshop.chaos.run --help` lists them.
CHAOS_FLAGS ?=
# RECORD=1 notes a run of `make chaos` in docs/benchmarks/chaos.csv, and one of `make elastic` in
# docs/benchmarks/elastic.md; PAGE=FILE draws the timeline of chaos.
RECORD ?=
PAGE ?=
# The seed of chaos, fuzz and conformance-hunt; empty: a new seed in each run.
SEED ?=
# Flags for `make release-check`; --built checks the files in dist/, --tag v0.1.0 also the tag.
RELEASE_FLAGS ?=
# Flags for `make audit`; --allow-unreachable: no failure where no vulnerability database answers.
AUDIT_FLAGS ?=
# Tests wait for brokers more than they compute: three workers keep two cores busy.
WORKERS ?= 3

VENV := .venv
PY := $(VENV)/bin/python
UV := $(VENV)/bin/uv
FOR_DEMO := $(VENV)/.demo-installed
PACKAGES := $(VENV)/.packages-installed
PROJECT := $(VENV)/.project-installed
# PySpark is published as source only. Its wheel is unpacked right after the build: to compress it
# first would take 20 s of processor time.
INSTALL := $(UV) pip install --config-settings-package 'pyspark:--build-option=--compression=stored'
# For another environment, which follows; uv reuses its cache of earlier installations.
INSTALL_INTO := $(INSTALL) --quiet --python
PYTEST = $(PY) -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder

step = @printf '\n==> %s\n' '$(1)'

# Images for Python may set it. But Spark starts one Python process after another for each query, and
# without bytecode each compiles all that it imports: that is a third of all tests' processor time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help help-all env classes prerequisites prerequisites-of-tests demo test ci-tests long unit slow simulate chaos versions schedulers spark-versions reference docs docs-serve notebooks lint types format wheel release-check lock audit clean

##@ Start here

help: ## List the targets
	@$(call list,Makefile)

help-all: ## List the targets of lab/ and workshop/ as well
	@$(call list,$(MAKEFILE_LIST))

list = awk 'BEGIN {FS = ":.*\#\# "; print "make TARGET"} \
	  /^\#\#@ / {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*\#\# / {printf "  %-16s %s\n", $$1, $$2}' $(1)

# A complete environment has all that the demo needs.
demo: prerequisites $(if $(wildcard $(PACKAGES)),env,$(FOR_DEMO)) ## Show a hand-over between two Spark applications, and check its result
	$(call step,the demo: one consumer group$(comma) two Spark applications$(comma) a minute and a half)
	$(PY) -m demo.run

test: prerequisites-of-tests classes lint types ## Check style and types, and test on a real Kafka and a real Spark
	$(call step,pytest: every test that is neither long nor slow)
	$(PYTEST) -m "not long and not slow" $(PYTEST_FLAGS)

env: $(PROJECT) ## Create the environment in .venv, from requirements.lock

##@ While working

unit: env ## Run the tests that need neither broker nor Spark
	$(call step,pytest: no broker$(comma) no Spark)
	$(PY) -m pytest -m "not slow and not broker and not spark" $(PYTEST_FLAGS)

long: prerequisites classes ## Run the long tests: incidents, other versions of Kafka, secured clusters
	$(call step,pytest: every test that is long)
	$(PYTEST) -m "long and not slow" $(PYTEST_FLAGS)

slow: prerequisites classes ## Run the slow tests, which CI leaves out
	$(call step,pytest: every test that is slow)
	$(PYTEST) -m "slow" $(PYTEST_FLAGS)

simulate: env ## Search for schedules that break a promise, on all cores; SCHEDULES=50000 sets their number
	$(call step,groups of clients on the model of the coordinator: $(SCHEDULES) schedules)
	$(VENV)/bin/spark-groups simulate --schedules $(SCHEDULES) --seed $(FIRST_SEED)

chaos: prerequisites env ## Kill and stop members of a real group; MINUTES=2 SEED=7 SINKS=delta,postgres BROKERS=3 FAULTS=network,resets RECORD=1
	$(call step,members of a group on a real Kafka: $(MINUTES) minutes of faults)
	$(PY) -m workshop.chaos.run --minutes $(MINUTES) --sinks $(SINKS) --brokers $(BROKERS) $(if $(FAULTS),--faults $(FAULTS)) $(if $(SEED),--seed $(SEED)) $(if $(RECORD),--record) $(if $(PAGE),--page $(PAGE)) $(CHAOS_FLAGS)

versions: prerequisites classes ## Compare the model, and each scenario, with the oldest Kafka and the newest
	$(call step,pytest: long tests of lab/tests/scenarios and lab/tests/conformance)
	$(PYTEST) -m "versions and not slow" lab/tests/scenarios lab/tests/conformance $(PYTEST_FLAGS)

# Tests of versions mostly wait for timeouts of brokers: beside others they cost little time.
ci-tests: prerequisites-of-tests classes ## Run the tests of make test, make workshop and make versions at once, as CI does
	$(call step,pytest: every test that is neither long nor slow$(comma) and those of versions)
	$(PYTEST) -m "not slow and (not long or versions)" tests lab/tests workshop/tests $(PYTEST_FLAGS)

schedulers: prerequisites env .venvs/airflow/.installed .venvs/dagster/.installed ## Test the examples for Airflow and Dagster
	$(call step,pytest: the examples of docs/how-to/schedule.md)
	$(PY) -m pytest tests/jobs/test_schedulers.py $(PYTEST_FLAGS)

spark-versions: prerequisites $(SPARK_VERSIONS:%=spark-%) ## Test the source on other versions of Spark

reference: env ## Generate the parts of docs/ that come from the code: options, commands, errors, events, jobs
	$(PY) -m workshop.tools.docs_reference

docs: env ## Build the docs site into build/site; a broken link or anchor is an error
	$(call step,mkdocs: build/site)
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

docs-serve: env ## Serve the docs site on this machine, and rebuild it when a page changes
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs serve

notebooks: prerequisites env ## Run the notebooks, and store their output in them
	$(foreach notebook,$(wildcard notebooks/*.ipynb),$(PY) -m tests.notebook_cells $(notebook) --store &&) true

lint: env ## Check style, formatting and the direction of imports
	$(call step,ruff check: style)
	$(VENV)/bin/ruff check
	$(call step,ruff format: formatting)
	$(VENV)/bin/ruff format --check
	$(call step,lint-imports: the direction of imports)
	$(VENV)/bin/lint-imports --no-logo

types: env ## Check types
	$(call step,mypy: types)
	$(VENV)/bin/mypy

format: env ## Format the code, and apply automatic fixes
	$(VENV)/bin/ruff check --fix-only
	$(VENV)/bin/ruff format

##@ Packages

wheel: env ## Build the wheels into dist/
	$(PY) -m hatchling build --target wheel
	cd lab && $(CURDIR)/$(PY) -m hatchling build --target wheel -d $(CURDIR)/dist

release-check: prerequisites env ## Do all of a release but the upload: build, check, install for each Python here, run
	$(PY) -m workshop.tools.release_check $(RELEASE_FLAGS)

lock: env ## Update requirements.lock, and workshop/tools/audit.lock
	$(UV) pip compile pyproject.toml --group dev --universal --python-version 3.10 \
	  --no-header --no-emit-index-url --generate-hashes $(LOCK_FLAGS) -o requirements.lock
	$(UV) pip compile --group audit --universal --python-version 3.10 \
	  --no-header --no-emit-index-url --generate-hashes $(LOCK_FLAGS) -o workshop/tools/audit.lock

audit: .venvs/audit/.installed ## Write the bill of materials, and audit requirements.lock, into build/audit
	$(call step,cyclonedx-py and pip-audit: what requirements.lock pins)
	.venvs/audit/bin/python -m workshop.tools.audit $(AUDIT_FLAGS)

clean: ## Remove the environment and all build results
	rm -rf $(VENV) .venvs dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache \
	  .hypothesis spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A comma cannot be written in an argument of `call`.
comma := ,

prerequisites:
	@sh workshop/tools/check_prerequisites.sh $(PYTHON)

prerequisites-of-tests:
	@sh workshop/tools/check_prerequisites.sh $(PYTHON) tests

# The environment, with nothing but uv, as pinned in requirements.lock. A Python may have no pip;
# one of the environment's own takes longer to make than all else here.
UV_LOCK := $(VENV)/uv.txt
WITH_PIP := -m pip --disable-pip-version-check
INSTALL_UV := install --quiet --require-hashes -r $(UV_LOCK)
$(UV):
	@sh workshop/tools/check_prerequisites.sh $(PYTHON)
	$(call step,environment: $(VENV)$(comma) and uv$(comma) which installs packages faster than pip)
	@test -x $(PY) || $(PYTHON) -m venv --without-pip $(VENV)
	@awk '/^uv==/ {found = 1} found {print} found && !/\\$$/ {exit}' requirements.lock >$(UV_LOCK)
	@$(PYTHON) $(WITH_PIP) --python $(PY) $(INSTALL_UV) 2>/dev/null \
	  || { $(PYTHON) -m venv $(VENV) && $(PY) $(WITH_PIP) $(INSTALL_UV); }

# Its dependencies are a part of those in requirements.lock: that gives their versions and hashes.
$(FOR_DEMO): requirements.lock pyproject.toml | $(UV)
	$(call step,packages of the demo: spark-groups and PySpark$(comma) 550 MB to download once)
	$(INSTALL) --python $(PY) --constraints requirements.lock --build-constraints requirements.lock \
	  --group demo --editable '.[spark]'
	@touch $@

$(PACKAGES): requirements.lock | $(UV)
	$(call step,packages of requirements.lock: PySpark$(comma) and all that tests$(comma) docs and checks need)
	$(INSTALL) --python $(PY) --require-hashes -r requirements.lock
	@touch $@

# With these archives, JVMs of tests start in a third to a half of the processor time.
classes: env
	$(call step,archives of classes of Kafka and Spark$(comma) and compiled decoders: a minute$(comma) once)
	$(PY) -m workshop.tools.class_archives

# The packages of requirements.lock, with another version of Spark.
.venvs/spark-%/.installed: $(PACKAGES) pyproject.toml
	$(call step,environment: .venvs/spark-$*)
	test -x $(@D)/bin/python || $(UV) venv --quiet --python $(PY) $(@D)
	awk '/^pyspark==/ {skip = 1} !skip {print} skip && !/\\$$/ {skip = 0}' requirements.lock \
	  >$(@D)/requirements.txt
	$(INSTALL_INTO) $(@D) --require-hashes -r $(@D)/requirements.txt
	$(INSTALL_INTO) $(@D) pyspark==$*
	$(INSTALL_INTO) $(@D) --no-deps --no-build-isolation --editable . --editable lab
	@touch $@

# Each has an environment of its own: Airflow and Dagster want other versions than requirements.lock.
.venvs/airflow/.installed: SCHEDULER := apache-airflow==3.3.2
.venvs/dagster/.installed: SCHEDULER := dagster==1.13.28
.venvs/airflow/.installed .venvs/dagster/.installed: | $(PACKAGES)
	$(call step,environment: $(@D))
	test -x $(@D)/bin/python || $(UV) venv --quiet --python $(PY) $(@D)
	$(INSTALL_INTO) $(@D) $(SCHEDULER)
	@touch $@

.venvs/audit/.installed: workshop/tools/audit.lock | $(PACKAGES)
	$(call step,environment: .venvs/audit)
	test -x $(@D)/bin/python || $(UV) venv --quiet --python $(PY) $(@D)
	$(INSTALL_INTO) $(@D) --require-hashes -r workshop/tools/audit.lock
	@touch $@

# Clients of Spark Connect have no listener, so that they need 4.2 for AvailableNow.
spark-4.2.%: CONNECT_TESTS = $(wildcard tests/spark/test_connect*.py) -m 'not slow'
spark-%: .venvs/spark-%/.installed
	$(call step,pytest: the source on Spark $*)
	PYSPARK_PYTHON=$(CURDIR)/.venvs/spark-$*/bin/python .venvs/spark-$*/bin/python -m pytest \
	  tests/spark/source/test_source.py tests/spark/control/test_listener.py \
	  tests/spark/tables/test_contract.py tests/spark/tables/test_delta_partitions.py \
	  $(CONNECT_TESTS) $(PYTEST_FLAGS)

.PRECIOUS: .venvs/spark-%/.installed

# Without isolation, the hatchling of the lock builds the project.
$(PROJECT): $(PACKAGES) pyproject.toml lab/pyproject.toml
	$(call step,spark-groups and kafka-group-lab: editable)
	$(INSTALL_INTO) $(PY) --no-deps --no-build-isolation --editable . --editable lab
	@touch $@

include lab/targets.mk workshop/targets.mk
