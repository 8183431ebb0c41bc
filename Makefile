# Everything that Sluice does from a checkout. `make up` and `make test` install what they lack by apt-get.

ARGS ?=
SECONDS_EACH ?= 60
SEEDS ?= 20000
SESSIONS ?= 940
ACTS ?= 56
STRESS_SECONDS ?= 600
N ?= 1000
FROM ?= 0
NODES ?= 3
FAULT_SECONDS ?= 1800
# Where cargo builds.
TARGET = $(or $(CARGO_TARGET_DIR),target)

.PHONY: help up test regress driver-suites lint deb bench bench-peers bench-everything bench-floods bench-handshakes bench-gate soak faults fuzz reference

help:
	@echo 'make up           build, and start PostgreSQL behind the pool   (ARGS="--data DIR --listen ADDR:PORT")'
	@echo 'make test         all tests'
	@echo 'make regress      all of PostgreSQL 15'"'"'s own regression files and isolation specs through the pool and straight, compared'
	@echo 'make lint         rustfmt and clippy'
	@echo 'make deb          Debian packages of the pool, and of the extension for PostgreSQL 15, in target/debian'
	@echo 'make bench        the laboratory: a tour of a minute, and its report  (ARGS="--help" lists the options)'
	@echo 'make bench-peers  Sluice against PostgreSQL, HAProxy and PgBouncer   (ARGS="--help" lists the options)'
	@echo 'make bench-everything  the pool with everything switched on and unused   (ARGS="--help" lists the options)'
	@echo 'make bench-floods clients that are served, while others flood the pool   (ARGS="--help" lists the options)'
	@echo 'make bench-handshakes  whole TLS handshakes a second   (ARGS="--help" lists the options)'
	@echo 'make bench-gate   PostgreSQL with the gate against PostgreSQL without it   (ARGS="--help" lists the options)'
	@echo 'make soak         the simulations with many seeds, the twin test with a million statements, faults of all kinds under'
	@echo '                  work of all kinds, then the stress test of the gate on four servers, one of them with assertions'
	@echo '                  (SEEDS=20000 SESSIONS=940 ACTS=56 FAULT_SECONDS=1800 STRESS_SECONDS=600)'
	@echo 'make faults       faults by seed on a cluster of three hosts under work, and what was lost: nothing; as root'
	@echo '                  (N=1000 FROM=0; NODES=2 has two hosts and a witness)'
	@echo 'make driver-suites  two drivers'"'"' own test suites, straight and through the pool, and where they differ'
	@echo 'make fuzz         coverage-guided fuzzing of each target        (SECONDS_EACH=60)'
	@echo 'make reference    writes the generated references anew'

up:
	@scripts/up.sh $(ARGS)

test:
	@scripts/test.sh

regress:
	scripts/test-deps.sh
	SLUICE_REGRESS=all cargo test --locked -p sluice --test regress -- --nocapture --test-threads 1

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo run --locked -p xtask -- tidy

deb:
	@scripts/package.sh
	@scripts/extension.sh --deb

bench:
	scripts/bench-deps.sh gate
	scripts/extension.sh /usr/lib/postgresql/15/bin/pg_config
	cargo build --release --locked -p sluice
	$(TARGET)/release/sluice bench run quick $(ARGS)

bench-peers:
	scripts/bench-deps.sh all
	scripts/extension.sh /usr/lib/postgresql/15/bin/pg_config
	cargo build --release --locked -p sluice
	$(TARGET)/release/sluice bench run peers --require scenarios/peers/require.toml $(ARGS)

bench-everything:
	scripts/bench-deps.sh peers
	cargo build --release --locked -p sluice
	$(TARGET)/release/sluice bench run everything-on --require scenarios/everything-on/require.toml $(ARGS)

bench-floods:
	scripts/bench-deps.sh peers
	cargo build --release --locked -p sluice
	$(TARGET)/release/sluice bench run floods --require scenarios/floods/require.toml $(ARGS)

bench-handshakes:
	scripts/bench-deps.sh peers
	cargo build --release --locked -p sluice
	$(TARGET)/release/sluice bench handshakes $(ARGS)

bench-gate:
	scripts/bench-deps.sh gate
	scripts/extension.sh /usr/lib/postgresql/15/bin/pg_config
	cargo build --release --locked -p sluice
	$(TARGET)/release/sluice bench run gate --require scenarios/gate/require.toml $(ARGS)

soak:
	SLUICE_SIM_SEEDS=$(SEEDS) cargo test --release --locked -p sluice-core -p sluice-control --test simulation
	scripts/test-deps.sh
	RUST_TEST_THREADS=$$((4 * $$(nproc))) SLUICE_TWIN_SESSIONS=$(SESSIONS) SLUICE_TWIN_ACTS=$(ACTS) cargo test --release --locked -p sluice --test twin -- --nocapture | \
	    awk '{ print } /statements compared/ { for (i = 1; i < NF; i++) if ($$i == "statements") sum += $$(i - 1) } \
	         /^test result:/ { ended = 1 } /^test result: FAILED/ { failed = 1 } \
	         END { print sum " statements compared in all"; exit (failed || !ended || !sum) }'
	SLUICE_FAULT_SECONDS=$(FAULT_SECONDS) cargo test --release --locked -p sluice --test pool faults:: -- --nocapture
	SLUICE_STRESS_SECONDS=$(STRESS_SECONDS) cargo test --release --locked -p sluice-extension --test gate -- \
	    stress:: --nocapture --test-threads 1
	scripts/cassert.sh
	SLUICE_TEST_PG15_BIN=$(CURDIR)/target/postgresql-15-cassert/bin SLUICE_STRESS_SECONDS=$(STRESS_SECONDS) \
	    cargo test --release --locked -p sluice-extension --test gate -- \
	    stress::everything_at_once::pg15 --nocapture --test-threads 1

driver-suites:
	scripts/test-deps.sh
	SLUICE_SUITES=all cargo test --release --locked -p sluice --test suites -- --test-threads 1 --nocapture

faults:
	scripts/test-deps.sh
	SLUICE_FAULTS=$(N) SLUICE_FAULTS_FROM=$(FROM) SLUICE_FAULTS_NODES=$(NODES) \
	    cargo test --locked -p sluice --test hosts faults -- --nocapture

fuzz:
	scripts/fuzz.sh $(SECONDS_EACH)

reference:
	SLUICE_BLESS=1 cargo test --locked -p sluice-config --test config
