# Targets for work on workshop/, which the Makefile includes; `make help-all` lists them.

# Flags for `make elastic`, `make bench-tables` and every program of `make bench`; the programs of
# `make bench` take a third of the time with --repeats 1.
BENCH_FLAGS ?=
# Turns off bounds checks in Arrow for Java: a tuning, measured in addition to Spark's defaults.
UNCHECKED := -Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false
FUZZ_MINUTES := $(if $(filter command line environment,$(origin MINUTES)),$(MINUTES),5)
SOAK_MINUTES := $(if $(filter command line environment,$(origin MINUTES)),$(MINUTES),60)
# Release candidates count as well.
NUMBA_NEXT = $(INSTALL_INTO) .venvs/numba-next

# Processes of `make reach`; empty: one for each core.
JOBS ?=
# Further options of `make plants`; --missing plays only bugs without a good control.
PLANTS_FLAGS ?=

.PHONY: workshop reach plants load soak elastic fuzz bench-handover bench-tables bench-columnar bench-assignors bench numba-next

##@ Measuring, and hunting for faults

workshop: prerequisites-of-tests classes ## Test what is in workshop/: chaos, benchmarks, fuzz targets, tools
	$(call step,pytest: workshop/tests)
	$(PYTEST) -m "not long and not slow" workshop/tests $(PYTEST_FLAGS)

reach: env ## Play so many schedules with fresh seeds, and note them in docs/benchmarks/reach.csv; SCHEDULES=50000 JOBS=1
	$(call step,schedules that no run has played: $(SCHEDULES))
	$(PY) -m workshop.benchmarks.reach --schedules $(SCHEDULES) $(if $(JOBS),--jobs $(JOBS))

plants: prerequisites env ## Plant bugs that chaos and the simulation must find, into docs/benchmarks/reliability.md; about 20 minutes
	$(call step,every planted bug: until a check finds it)
	$(PY) -m workshop.benchmarks.plants $(PLANTS_FLAGS)

load: prerequisites env ## Measure 1,000 members, 10,000 partitions and 200 groups; BENCH_FLAGS="--parts page"
	$(call step,large groups on a real Kafka)
	$(PY) -m workshop.benchmarks.load $(BENCH_FLAGS)

soak: prerequisites env ## Run one query for an hour, and fail if memory, threads or descriptors grow; MINUTES=10
	$(call step,one query under load: $(SOAK_MINUTES) minutes)
	$(PY) -m workshop.benchmarks.soak --minutes $(SOAK_MINUTES)

elastic: prerequisites env ## Add and remove applications by lag, from 3,000 to 30,000 records a second; RECORD=1; about 10 minutes
	$(call step,applications that follow the lag of their group)
	$(PY) -m workshop.benchmarks.elastic $(if $(RECORD),--record) $(BENCH_FLAGS)

fuzz: env ## Feed hostile input to every parser of external data; MINUTES=5 SEED=7 repeats a seed
	$(call step,hostile input: $(FUZZ_MINUTES) minutes)
	$(PY) -m workshop.fuzz.run --minutes $(FUZZ_MINUTES) $(if $(SEED),--seed $(SEED))

bench-handover: prerequisites env ## Compare hand-overs with confluent-kafka; about 20 minutes; BENCH_FLAGS="--rounds 1" plays one round of three
	$(PY) -m workshop.benchmarks.handover $(BENCH_FLAGS)

bench-tables: prerequisites-of-tests env ## Compare write_table with delta-spark and with COPY, of bytes and of typed rows; about 50 minutes
	$(PY) -m workshop.benchmarks.tables $(BENCH_FLAGS)
	$(PY) -m workshop.benchmarks.typed_tables $(BENCH_FLAGS)

bench-columnar: prerequisites env ## Measure what columnar reads of Python sources would give; about 5 minutes
	$(PY) -m workshop.benchmarks.throughput --columnar --topics 100,1000 --json build/columnar.json $(BENCH_FLAGS)

bench-assignors: prerequisites env ## Measure every assignor with 10,000 members and 100,000 partitions; about 1 minute
	$(PY) -m workshop.benchmarks.assignors $(BENCH_FLAGS)
	$(PY) -m workshop.benchmarks.assignors --mixed $(BENCH_FLAGS)

bench: prerequisites env ## Compare with Spark's own source, into docs/benchmarks/throughput.md; about 50 minutes
	$(PY) -m workshop.benchmarks.best_peer $(BENCH_FLAGS)
	$(PY) -m workshop.benchmarks.throughput --tasks 4 $(BENCH_FLAGS)
	$(PY) -m workshop.benchmarks.throughput --tasks 2 --json build/throughput_two_tasks.json \
	  $(BENCH_FLAGS)
	$(PY) -m workshop.benchmarks.throughput --tasks 4 --jvm-options="$(UNCHECKED)" \
	  --topics 100 --readers "JVM source, best;fast reader;bound: from nowhere" \
	  --json build/throughput_unchecked.json $(BENCH_FLAGS)
	$(PY) -m workshop.benchmarks.triggers $(BENCH_FLAGS)
	$(PY) -m workshop.benchmarks.latency --sources "JVM source,fast reader,rate-micro-batch,fast reader (unix sockets)" --async-progress $(BENCH_FLAGS)
	$(PY) -m workshop.benchmarks.cold_start $(BENCH_FLAGS)
	$(PY) -m workshop.benchmarks.report

numba-next: prerequisites env ## Test and fuzz the fast reader with the newest numba, which the package may not allow yet
	$(call step,environment: .venvs/numba-next)
	test -x .venvs/numba-next/bin/python || $(UV) venv --quiet --python $(PY) .venvs/numba-next
	$(NUMBA_NEXT) --require-hashes -r requirements.lock
	$(NUMBA_NEXT) --upgrade 'numba>=0.68rc0' 'llvmlite>=0.46rc0'
	$(NUMBA_NEXT) --no-deps --no-build-isolation --editable . --editable lab
	$(call step,pytest and fuzz: compiled code of this numba)
	.venvs/numba-next/bin/python -c 'import numba; print("numba", numba.__version__)'
	.venvs/numba-next/bin/python -m pytest tests/records tests/formats/avro $(PYTEST_FLAGS)
	.venvs/numba-next/bin/python -m workshop.fuzz.run --minutes $(FUZZ_MINUTES) --target records
	.venvs/numba-next/bin/python -m workshop.fuzz.run --minutes $(FUZZ_MINUTES) --target blocks
	.venvs/numba-next/bin/python -m workshop.fuzz.run --minutes $(FUZZ_MINUTES) --target "Avro records"
