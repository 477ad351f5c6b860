# Every target creates the environment it needs; `make help` lists them.
#   make PYTHON=python3.12 env      another Python than python3
#   make LOCK_FLAGS=--upgrade lock  newer versions of everything

PYTHON ?= python3
LOCK_FLAGS ?=
PYTEST_FLAGS ?=
# Flags for `make elastic`, `make bench-tables` and every program of `make bench`; the programs of
# `make bench` take a third of the time with --repeats 1.
BENCH_FLAGS ?=
# Turns off bounds checks in Arrow for Java: a tuning, measured in addition to Spark's defaults.
UNCHECKED := -Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false
# The versions of Spark that `make spark-versions` tests, in addition to that in requirements.lock.
SPARK_VERSIONS ?= 4.0.1 4.1.1 4.3.0
# The number of schedules that `make simulate` plays, and their first seed.
SCHEDULES ?= 20000
FIRST_SEED ?= 1000
# Duration of the faults of `make chaos`; `make fuzz` runs for 5 minutes by default, `make soak` for
# an hour.
MINUTES ?= 12
# The number of requests that `make conformance-hunt` compares on each version of Kafka.
REQUESTS ?= 10000
# The tables that `make chaos` writes: sqlite, delta, postgres, iceberg, between commas.
SINKS ?= sqlite
# The number of brokers of `make chaos`: 1, or 3 with faults of their own.
BROKERS ?= 1
# Further faults of `make chaos`, between commas: network, disk, clock, retention, resets, cluster.
FAULTS ?=
# Further options of `make chaos`; `python -m chaos.run --help` lists them.
CHAOS_FLAGS ?=
# RECORD=1 notes a run of `make chaos` in docs/benchmarks/chaos.csv, and one of `make elastic` in
# docs/benchmarks/elastic.md; PAGE=FILE draws the timeline of chaos.
RECORD ?=
PAGE ?=
# The seed of chaos, fuzz and conformance-hunt; empty: a new seed in each run.
SEED ?=
FUZZ_MINUTES := $(if $(filter command line environment,$(origin MINUTES)),$(MINUTES),5)
SOAK_MINUTES := $(if $(filter command line environment,$(origin MINUTES)),$(MINUTES),60)
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

# Release candidates count as well.
NUMBA_NEXT = $(INSTALL_INTO) .venvs/numba-next

step = @printf '\n==> %s\n' '$(1)'

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help env prerequisites prerequisites-of-tests demo test long unit slow simulate reach plants chaos load soak fuzz versions conformance conformance-hunt schedulers numba-next spark-versions bench elastic bench-handover bench-tables bench-columnar bench-assignors reference docs docs-serve notebooks lint types format wheel release-check lock audit clean

##@ Start here

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "; print "make TARGET"} \
	  /^##@ / {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# A complete environment has all that the demo needs.
demo: prerequisites $(if $(wildcard $(PACKAGES)),env,$(FOR_DEMO)) ## Show a hand-over between two Spark applications, and check its result
	$(call step,the demo: one consumer group$(comma) two Spark applications$(comma) about a minute)
	$(PY) -m demo.run

test: prerequisites-of-tests env lint types ## Check style and types, and test on a real Kafka and a real Spark
	$(call step,pytest: every test that is neither long nor slow)
	$(PYTEST) -m "not long and not slow" $(PYTEST_FLAGS)

env: $(PROJECT) ## Create the environment in .venv, from requirements.lock

##@ While working

unit: env ## Run the tests that need neither broker nor Spark
	$(call step,pytest: no broker$(comma) no Spark)
	$(PY) -m pytest -m "not slow and not broker and not spark" $(PYTEST_FLAGS)

long: prerequisites env ## Run the long tests: incidents, other versions of Kafka, secured clusters
	$(call step,pytest: every test that is long)
	$(PYTEST) -m "long and not slow" $(PYTEST_FLAGS)

slow: prerequisites env ## Run the slow tests, which CI leaves out
	$(call step,pytest: every test that is slow)
	$(PYTEST) -m "slow" $(PYTEST_FLAGS)

simulate: env ## Search for schedules that break a promise, on all cores; SCHEDULES=50000 sets their number
	$(call step,groups of clients on the model of the coordinator: $(SCHEDULES) schedules)
	$(VENV)/bin/spark-groups simulate --schedules $(SCHEDULES) --seed $(FIRST_SEED)

reach: env ## Play so many schedules with fresh seeds, and note them in docs/benchmarks/reach.csv; SCHEDULES=50000
	$(call step,schedules that no run has played: $(SCHEDULES))
	$(PY) -m benchmarks.reach --schedules $(SCHEDULES)

plants: prerequisites env ## Plant bugs that chaos and the simulation must find, into docs/benchmarks/reliability.md; about 20 minutes
	$(call step,every planted bug: until a check finds it)
	$(PY) -m benchmarks.plants

chaos: prerequisites env ## Kill and stop members of a real group; MINUTES=2 SEED=7 SINKS=delta,postgres BROKERS=3 FAULTS=network,resets RECORD=1
	$(call step,members of a group on a real Kafka: $(MINUTES) minutes of faults)
	$(PY) -m chaos.run --minutes $(MINUTES) --sinks $(SINKS) --brokers $(BROKERS) $(if $(FAULTS),--faults $(FAULTS)) $(if $(SEED),--seed $(SEED)) $(if $(RECORD),--record) $(if $(PAGE),--page $(PAGE)) $(CHAOS_FLAGS)

load: prerequisites env ## Measure 1,000 members, 10,000 partitions and 200 groups; BENCH_FLAGS="--parts page"
	$(call step,large groups on a real Kafka)
	$(PY) -m benchmarks.load $(BENCH_FLAGS)

soak: prerequisites env ## Run one query for an hour, and fail if memory, threads or descriptors grow; MINUTES=10
	$(call step,one query under load: $(SOAK_MINUTES) minutes)
	$(PY) -m benchmarks.soak --minutes $(SOAK_MINUTES)

elastic: prerequisites env ## Add and remove applications by lag, from 3,000 to 30,000 records a second; RECORD=1; about 10 minutes
	$(call step,applications that follow the lag of their group)
	$(PY) -m benchmarks.elastic $(if $(RECORD),--record) $(BENCH_FLAGS)

fuzz: env ## Feed hostile input to every parser of external data; MINUTES=5 SEED=7 repeats a seed
	$(call step,hostile input: $(FUZZ_MINUTES) minutes)
	$(PY) -m fuzz.run --minutes $(FUZZ_MINUTES) $(if $(SEED),--seed $(SEED))

versions: prerequisites env ## Compare the model, and each scenario, with the oldest Kafka and the newest
	$(call step,pytest: long tests of tests/scenarios and tests/conformance)
	$(PYTEST) -m "long and not slow" tests/scenarios tests/conformance $(PYTEST_FLAGS)

conformance: prerequisites env ## Play scenarios and compare the model with Kafka 4.0 to 4.4; REWRITE=1 records scenarios
	$(call step,pytest: tests/scenarios and tests/conformance on every version of Kafka)
	$(PYTEST) tests/scenarios tests/conformance $(PYTEST_FLAGS)

conformance-hunt: prerequisites env ## Compare the model with Kafka on random requests; REQUESTS=20000 SEED=7 repeats a hunt
	$(call step,pytest: $(REQUESTS) requests on each of three versions of Kafka)
	CONFORMANCE_REQUESTS=$(REQUESTS) CONFORMANCE_SEED=$(or $(SEED),$(shell date +%s)) \
	  $(PYTEST) -v -v tests/conformance/test_conformance.py $(PYTEST_FLAGS)

bench-handover: prerequisites env ## Compare hand-overs with confluent-kafka; about 20 minutes; BENCH_FLAGS="--rounds 1" plays one round of three
	$(PY) -m benchmarks.handover $(BENCH_FLAGS)

bench-tables: prerequisites-of-tests env ## Compare write_table with delta-spark and with COPY; about 30 minutes
	$(PY) -m benchmarks.tables $(BENCH_FLAGS)

bench-columnar: prerequisites env ## Measure what columnar reads of Python sources would give; about 5 minutes
	$(PY) -m benchmarks.throughput --columnar --topics 100,1000 --json build/columnar.json $(BENCH_FLAGS)

bench-assignors: prerequisites env ## Measure every assignor with 10,000 members and 100,000 partitions; about 1 minute
	$(PY) -m benchmarks.assignors $(BENCH_FLAGS)
	$(PY) -m benchmarks.assignors --mixed $(BENCH_FLAGS)

bench: prerequisites env ## Compare with Spark's own source, into docs/benchmarks/throughput.md; about 20 minutes
	$(PY) -m benchmarks.throughput $(BENCH_FLAGS)
	$(PY) -m benchmarks.throughput --jvm-options="$(UNCHECKED)" --topics 100 \
	  --readers "JVM source, tuned;fast reader;bound: from nowhere" \
	  --json build/throughput_unchecked.json $(BENCH_FLAGS)
	$(PY) -m benchmarks.triggers $(BENCH_FLAGS)
	$(PY) -m benchmarks.latency --sources "JVM source,fast reader,rate-micro-batch,fast reader (unix sockets)" --async-progress $(BENCH_FLAGS)
	$(PY) -m benchmarks.cold_start $(BENCH_FLAGS)
	$(PY) -m benchmarks.report

schedulers: prerequisites env .venvs/airflow/.installed .venvs/dagster/.installed ## Test the examples for Airflow and Dagster
	$(call step,pytest: the examples of docs/how-to/schedule.md)
	$(PY) -m pytest tests/jobs/test_schedulers.py $(PYTEST_FLAGS)

numba-next: prerequisites env ## Test and fuzz the fast reader with the newest numba, which the package may not allow yet
	$(call step,environment: .venvs/numba-next)
	test -x .venvs/numba-next/bin/python || $(UV) venv --quiet --python $(PY) .venvs/numba-next
	$(NUMBA_NEXT) --require-hashes -r requirements.lock
	$(NUMBA_NEXT) --upgrade 'numba>=0.68rc0' 'llvmlite>=0.46rc0'
	$(NUMBA_NEXT) --no-deps --no-build-isolation --editable .
	$(call step,pytest and fuzz: compiled code of this numba)
	.venvs/numba-next/bin/python -c 'import numba; print("numba", numba.__version__)'
	.venvs/numba-next/bin/python -m pytest tests/records $(PYTEST_FLAGS)
	.venvs/numba-next/bin/python -m fuzz.run --minutes $(FUZZ_MINUTES) --target records
	.venvs/numba-next/bin/python -m fuzz.run --minutes $(FUZZ_MINUTES) --target blocks

spark-versions: prerequisites $(SPARK_VERSIONS:%=spark-%) ## Test the source on other versions of Spark

reference: env ## Generate the parts of docs/ that come from the code: options, commands, errors, events, jobs
	$(PY) -m tools.docs_reference

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

wheel: env ## Build the wheel into dist/
	$(PY) -m hatchling build --target wheel

release-check: prerequisites env ## Do all of a release but the upload: build, check, install for each Python here, run
	$(PY) -m tools.release_check $(RELEASE_FLAGS)

lock: env ## Update requirements.lock, and tools/audit.lock
	$(UV) pip compile pyproject.toml --group dev --universal --python-version 3.10 \
	  --no-header --no-emit-index-url --generate-hashes $(LOCK_FLAGS) -o requirements.lock
	$(UV) pip compile --group audit --universal --python-version 3.10 \
	  --no-header --no-emit-index-url --generate-hashes $(LOCK_FLAGS) -o tools/audit.lock

audit: .venvs/audit/.installed ## Write the bill of materials, and audit requirements.lock, into build/audit
	$(call step,cyclonedx-py and pip-audit: what requirements.lock pins)
	.venvs/audit/bin/python -m tools.audit $(AUDIT_FLAGS)

clean: ## Remove the environment and all build results
	rm -rf $(VENV) .venvs dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache \
	  .hypothesis spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A comma cannot be written in an argument of `call`.
comma := ,

prerequisites:
	@sh tools/check_prerequisites.sh $(PYTHON)

prerequisites-of-tests:
	@sh tools/check_prerequisites.sh $(PYTHON) tests

# The environment, with nothing but uv, as pinned in requirements.lock. A Python may have no pip;
# one of the environment's own takes longer to make than all else here.
UV_ALONE := $(VENV)/uv.txt
PIP := -m pip --disable-pip-version-check
GET_UV := install --quiet --require-hashes -r $(UV_ALONE)
$(UV):
	@sh tools/check_prerequisites.sh $(PYTHON)
	$(call step,environment: $(VENV)$(comma) and uv$(comma) which installs packages faster than pip)
	@test -x $(PY) || $(PYTHON) -m venv --without-pip $(VENV)
	@awk '/^uv==/ {found = 1} found {print} found && !/\\$$/ {exit}' requirements.lock >$(UV_ALONE)
	@$(PYTHON) $(PIP) --python $(PY) $(GET_UV) 2>/dev/null \
	  || { $(PYTHON) -m venv $(VENV) && $(PY) $(PIP) $(GET_UV); }

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

# The packages of requirements.lock, with another version of Spark.
.venvs/spark-%/.installed: $(PACKAGES) pyproject.toml
	$(call step,environment: .venvs/spark-$*)
	test -x $(@D)/bin/python || $(UV) venv --quiet --python $(PY) $(@D)
	awk '/^pyspark==/ {skip = 1} !skip {print} skip && !/\\$$/ {skip = 0}' requirements.lock \
	  >$(@D)/requirements.txt
	$(INSTALL_INTO) $(@D) --require-hashes -r $(@D)/requirements.txt
	$(INSTALL_INTO) $(@D) pyspark==$*
	$(INSTALL_INTO) $(@D) --no-deps --no-build-isolation --editable .
	@touch $@

# Each has an environment of its own: Airflow and Dagster want other versions than requirements.lock.
.venvs/airflow/.installed: SCHEDULER := apache-airflow==3.3.2
.venvs/dagster/.installed: SCHEDULER := dagster==1.13.28
.venvs/airflow/.installed .venvs/dagster/.installed: | $(PACKAGES)
	$(call step,environment: $(@D))
	test -x $(@D)/bin/python || $(UV) venv --quiet --python $(PY) $(@D)
	$(INSTALL_INTO) $(@D) $(SCHEDULER)
	@touch $@

.venvs/audit/.installed: tools/audit.lock | $(PACKAGES)
	$(call step,environment: .venvs/audit)
	test -x $(@D)/bin/python || $(UV) venv --quiet --python $(PY) $(@D)
	$(INSTALL_INTO) $(@D) --require-hashes -r tools/audit.lock
	@touch $@

spark-%: .venvs/spark-%/.installed
	$(call step,pytest: the source on Spark $*)
	PYSPARK_PYTHON=$(CURDIR)/.venvs/spark-$*/bin/python .venvs/spark-$*/bin/python -m pytest \
	  tests/spark/source/test_source.py tests/spark/control/test_listener.py \
	  $(PYTEST_FLAGS)

.PRECIOUS: .venvs/spark-%/.installed

# Without isolation, the hatchling of the lock builds the project.
$(PROJECT): $(PACKAGES) pyproject.toml
	$(call step,spark-groups itself: editable)
	$(INSTALL_INTO) $(PY) --no-deps --no-build-isolation --editable .
	@touch $@
