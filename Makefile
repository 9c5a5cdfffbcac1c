# Everything a person runs. `make demo` and `make test` do all the set-up on a fresh machine.
# Usage: make [demo|test|test-fast|test-long|test-peers|test-cep-peers|fuzz|setup|lint|fmt|docs|bench|bench-log|bench-broker|bench-pipelines|bench-keyed|bench-windows|bench-joins|bench-nexmark|bench-cdc|bench-queues|bench-eventsourcing|bench-cep|bench-search|bench-statsd|bench-polling|bench-sockets|bench-cores|bench-first|clean]

PYTHON ?= python3
BIN    := .venv/bin
STAMP  := .venv/.installed
PEERS  := kafka streams servers
BENCH_PEERS := spark flink
CDC_PEERS := debezium
QUEUE_PEERS := rabbitmq
CEP_PEERS := flink esper
POSTGRES_VERSIONS := 14 15 16 17 18
POSTGRES_TESTS := $(addprefix tests/integration/,cdc_postgres test_cdc_postgres_kill.py test_cdc_triggers.py test_cdc_keys.py \
	test_cdc_avro.py test_sync_postgres_types.py test_sync_contract.py::TestPostgres)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-long test-peers test-mysql test-services test-cep-peers fuzz lint fmt docs bench bench-log bench-broker bench-pipelines bench-keyed bench-windows bench-joins bench-nexmark bench-groups bench-cdc bench-queues bench-eventsourcing bench-cep bench-search bench-statsd bench-polling bench-sockets bench-cores bench-first proto requirements peers clean

help:           ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: $(STAMP) ## make .venv, with everything pinned and checked by hash

$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "headrace needs Python 3.11 or newer: name one with 'make PYTHON=python3.12 …'"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { echo "python3 has no venv module: install Debian's python3-venv"; exit 1; }
	@echo "setting up .venv …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup     ## run the main job: an online shop, live in one page, from its database to everything that follows it
	@$(BIN)/python examples/shop/demo.py

test: lint peers .cache/spark-archive ## linters, types, layers, then the tests
	$(BIN)/python -m pytest -n 3 --dist worksteal --durations=25 -m "not long"

test-long: lint peers .cache/spark-archive ## every test, those that are long by nature too, and ten times the examples of the property tests
	HEADRACE_EXAMPLES=3 $(BIN)/python -m pytest -n 2 --dist worksteal --durations=25

test-fast: setup ## the tests that need no Java
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not java and not long"

test-peers: $(POSTGRES_VERSIONS:%=test-postgres-%) test-mysql test-services test-cep-peers ## on every PostgreSQL, MySQL 8, OpenSearch, a schema registry, Flink and Esper

$(POSTGRES_VERSIONS:%=test-postgres-%): test-postgres-%: setup .cache/peers/postgres-%/.resolved
	HEADRACE_POSTGRES=.cache/peers/postgres-$*/home/bin $(BIN)/python -m pytest -m "not java" $(POSTGRES_TESTS)

test-mysql: setup .cache/peers/mysql/.resolved ## change capture on a real MySQL 8
	HEADRACE_MYSQL=.cache/peers/mysql/home/bin/mysqld $(BIN)/python -m pytest tests/integration/cdc_mysql

test-services: setup .cache/peers/opensearch/.resolved .cache/peers/apicurio/.resolved .cache/peers/lucene/.resolved .cache/peers/statsd/.resolved ## OpenSearch, a schema registry, StatsD
	HEADRACE_PEERS=1 $(BIN)/python -m pytest tests/peers --ignore tests/peers/test_cep.py

test-cep-peers: setup $(CEP_PEERS:%=.cache/peers/%/.resolved) ## what Flink and Esper answer to the shared patterns
	HEADRACE_PEERS=1 $(BIN)/python -m pytest tests/peers/test_cep.py

fuzz: setup     ## a million requests of any kind and ten thousand damaged data directories (FUZZ="--seed 2" for others)
	$(BIN)/python -m tests.fuzz.run $(FUZZ)

# A session that ends writes an archive of the classes it had, and its loops are compiled: each of the many sessions of the
# tests then starts in half the time. The shell waits for the JVM too, which writes after Python has ended.
.cache/spark-archive: $(STAMP)
	@echo "making the archive of Spark's classes …"
	@said=$$(HEADRACE_JAVA_OPTIONS=-XX:TieredStopAtLevel=1 $(BIN)/python examples/nexmark/run.py 2000 q5 q11 2>&1) && \
		mkdir -p $(@D) && touch $@ || echo "none is made, and the tests start Spark without: $$said"

lint: setup     ## ruff, mypy and the layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: setup      ## format and mend what a tool can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup     ## build the documentation into site/
	@$(BIN)/python docs/generate.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

bench: bench-log bench-broker bench-pipelines bench-keyed bench-windows bench-joins bench-groups bench-cdc bench-queues bench-eventsourcing bench-cep bench-search bench-statsd bench-polling bench-sockets bench-cores bench-first ## all benchmarks

bench-log: setup ## the log against the disk's own speed
	$(BIN)/python benchmarks/log.py

bench-broker: setup peers ## the broker against a real Kafka, side by side
	$(BIN)/python benchmarks/broker.py

bench-pipelines: setup peers $(BENCH_PEERS:%=.cache/peers/%/.resolved) ## pipelines beside plain PySpark and Flink SQL
	$(BIN)/python benchmarks/pipelines.py

bench-keyed: setup ## keyed state by the bucket beside Spark's own aggregation and one call a key
	$(BIN)/python benchmarks/keyed.py

bench-windows: setup peers $(BENCH_PEERS:%=.cache/peers/%/.resolved) ## windows beside plain PySpark and Flink SQL
	$(BIN)/python benchmarks/windows.py

bench-groups: setup ## groups of a table against the same question asked of a window
	$(BIN)/python benchmarks/groups.py

bench-joins: setup peers $(BENCH_PEERS:%=.cache/peers/%/.resolved) ## joins beside one call a key and Flink SQL
	$(BIN)/python benchmarks/joins.py

bench-nexmark: setup peers $(BENCH_PEERS:%=.cache/peers/%/.resolved) ## Nexmark's queries beside Flink SQL (NEXMARK="--quick" to see that it runs)
	$(BIN)/python benchmarks/nexmark.py $(NEXMARK)

bench-cdc: setup peers $(CDC_PEERS:%=.cache/peers/%/.resolved) ## change capture beside Debezium's embedded engine
	$(BIN)/python benchmarks/cdc.py

bench-queues: setup peers $(QUEUE_PEERS:%=.cache/peers/%/.resolved) ## queues beside a real Kafka's share groups and RabbitMQ (QUEUES="--resume" goes on, "--waiting 10000000" has longer ones)
	$(BIN)/python benchmarks/queues.py $(QUEUES)

bench-eventsourcing: setup .cache/peers/eventsourcing/.resolved ## event stores beside the eventsourcing library (EVENTS="--quick" to see that it runs)
	$(BIN)/python benchmarks/event_stores.py $(EVENTS)

bench-cep: setup peers $(CEP_PEERS:%=.cache/peers/%/.resolved) ## patterns beside Flink CEP and Esper (CEP="--quick" to see that it runs)
	$(BIN)/python benchmarks/cep.py $(CEP)

bench-search: setup .cache/peers/lucene/.resolved ## stored queries beside Lucene Monitor (SEARCH="--quick" to see that it runs)
	$(BIN)/python benchmarks/search.py $(SEARCH)

bench-statsd: setup .cache/peers/statsd/.resolved ## metrics of programs beside the reference daemon of StatsD (STATSD="--quick" to see that it runs)
	$(BIN)/python benchmarks/statsd.py $(STATSD)

bench-polling: setup ## asking again and again against being told (POLLING="--quick" to see that it runs)
	$(BIN)/python benchmarks/polling.py $(POLLING)

bench-sockets: setup ## messages over ZeroMQ and nng beside plain pyzmq and pynng (SOCKETS="--quick" to see that it runs)
	$(BIN)/python benchmarks/sockets.py $(SOCKETS)

bench-cores: setup peers ## each part on one core and on two (CORES="--quick" to see that it runs)
	$(BIN)/python benchmarks/cores.py $(CORES)

bench-first: setup .cache/peers/spark/.resolved ## how long somebody waits for the first result (FIRST="--quick" to see that it runs)
	$(BIN)/python benchmarks/first_results.py $(FIRST)

peers: $(PEERS:%=.cache/peers/%/.resolved) ## fetch the real systems we are measured against

.cache/peers/%/.resolved: peers/%/pom.xml peers/fetch | setup
	@peers/fetch $*

.cache/peers/postgres-%/.resolved: peers/postgres/pom.xml peers/postgres/archive peers/fetch peers/archives.py | setup
	@peers/fetch postgres-$*

.cache/peers/mysql/.resolved .cache/peers/apicurio/.resolved: peers/archives.py

.cache/peers/servers/.resolved: peers/servers peers/debian.sh
	@peers/servers

.cache/peers/flink/.resolved: peers/flink/requirements.txt

.cache/peers/eventsourcing/.resolved: peers/eventsourcing/requirements.txt peers/fetch | setup
	@peers/fetch eventsourcing

.cache/peers/statsd/.resolved: peers/statsd/package-lock.json peers/fetch peers/debian.sh | setup
	@peers/fetch statsd

.cache/peers/rabbitmq/.resolved: peers/rabbitmq/debian

proto:          ## compile headrace.proto, of which a gateway of gRPC has its messages
	$(BIN)/python -m grpc_tools.protoc -I src/headrace/gateways/grpc \
		--descriptor_set_out=src/headrace/gateways/grpc/headrace.binpb headrace.proto

requirements:   ## pin again from pyproject.toml, without touching what need not change
	$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --universal --python-version 3.11 \
		pyproject.toml --extra spark --extra avro --extra postgres --extra mysql --extra redis --extra search --extra warehouse --extra dashboard --extra cep --extra percolation --extra oauth --extra forgetting --extra grpc --extra otel --extra gateways --extra statsd \
		--group dev --group docs requirements/build.in -o requirements/dev.txt

clean:          ## remove what set-up and runs made
	rm -rf .venv .cache site build
