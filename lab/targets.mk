# Targets for work on lab/, which the Makefile includes; `make help-all` lists them.

# The number of requests that `make conformance-hunt` compares on each version of Kafka.
REQUESTS ?= 10000

.PHONY: conformance conformance-hunt

##@ The laboratory

conformance: prerequisites env ## Play scenarios and compare the model with Kafka 4.0 to 4.4; REWRITE=1 records scenarios
	$(call step,pytest: lab/tests/scenarios and lab/tests/conformance on every version of Kafka)
	$(PYTEST) lab/tests/scenarios lab/tests/conformance $(PYTEST_FLAGS)

conformance-hunt: prerequisites env ## Compare the model with Kafka on random requests; REQUESTS=20000 SEED=7 repeats a hunt
	$(call step,pytest: $(REQUESTS) requests on each of three versions of Kafka)
	CONFORMANCE_REQUESTS=$(REQUESTS) CONFORMANCE_SEED=$(or $(SEED),$(shell date +%s)) \
	  $(PYTEST) -v -v lab/tests/conformance/test_conformance.py $(PYTEST_FLAGS)
