# flatwater: `make demo` shows what it is for, `make test` proves it. Each target sets up what is missing.

PREFIX  ?= /usr/local
DESTDIR ?=
CARGO   ?= cargo
# One at a time: many tests make stalls on the real machine and would make each other's.
TEST_THREADS ?= 1
export CARGO_TERM_COLOR ?= auto

# The tests simulate hours: our own code is optimised in them too (dependencies always are).
test test-long score matrix: export CARGO_PROFILE_DEV_OPT_LEVEL = 1

.PHONY: package demo test test-fleet test-fleet-long test-long matrix matrix-fetch cross bench build programs score score-logs score-pastes soak storms fuzz install sbom setup setup-test check-format lint deny miri sanitize

# What is shipped does not say where it was built: panics and debug information name /build, /cargo and /rust.
CARGO_HOME ?= $(HOME)/.cargo
TRIM = --remap-path-prefix=$(CURDIR)=/build --remap-path-prefix=$(CARGO_HOME)=/cargo \
	--remap-path-prefix=$(HOME)=/home
build install: export RUSTFLAGS += $(TRIM)
build install: export CFLAGS += -ffile-prefix-map=$(CURDIR)=/build -ffile-prefix-map=$(CARGO_HOME)=/cargo

build: setup
	$(CARGO) build --release --bin flatwater

setup:
	@tools/setup.sh build

setup-test:
	@tools/setup.sh test

# A stall made on purpose: the journal beside a neighbour that fills their common memory cgroup.
demo: build
	target/release/flatwater run full-cgroup

test: setup-test check-format lint deny
	@tools/cross.sh test
	CARGO="$(CARGO)" tools/test.py $(TEST_THREADS) --workspace
	@$(MAKE) --no-print-directory test-fleet
	@echo "test: all passed; what was left out above says why (look for SKIPPED)"

# The program for fleets is a workspace of its own (crates/fleet/Cargo.toml says why).
FLEET = --manifest-path crates/fleet/Cargo.toml
test-fleet:
	$(CARGO) fmt $(FLEET) --check
	$(CARGO) clippy $(FLEET) --all-targets -- -D warnings
	$(CARGO) test $(FLEET)

# A fleet's questions on other engines; FLEET_PYTHON has duckdb, pyspark and chdb. Ballista is a build of its own, so that no other grows.
FLEET_PYTHON ?= python3
test-fleet-long:
	$(CARGO) clippy $(FLEET) --all-targets --features ballista-cluster -- -D warnings
	$(CARGO) test $(FLEET) --features ballista-cluster --lib cluster
	$(CARGO) test $(FLEET) --features ballista-cluster --test fleet -- --ignored --test-threads 1 --nocapture ballista::
	$(CARGO) build $(FLEET)
	$(FLEET_PYTHON) crates/fleet/tests/engines.py duckdb spark clickhouse --fleet crates/fleet/target/debug/flatwater-fleet

# Licences, sources and bans of all dependencies; advisories where their database is (deny.toml).
deny:
	@tools/deny.sh

# The precursor's unsafe code on plain memory, under miri: wants `rustup component add --toolchain nightly miri`.
miri:
	@$(CARGO) +nightly miri --version >/dev/null 2>&1 || { echo "miri: this toolchain has none: rustup component add --toolchain nightly miri" >&2; exit 1; }
	$(CARGO) +nightly miri test --package precursor --test precursor unsafe_code::

# The same with real threads and memory: ThreadSanitizer, AddressSanitizer, valgrind (tools/sanitize.sh).
sanitize:
	@tools/sanitize.sh

check-format:
	$(CARGO) fmt --all --check

lint:
	@tools/web.sh
	$(CARGO) clippy --workspace --all-targets -- -D warnings

# What takes more than minutes: the swarm with thousands of seeds, all scenarios in real guests with the agreement table, the
# score, ten hours of the precursor. (Every other row of the case studies is in `make test`.) Tests that write fixtures are left out.
test-long: test
	FLATWATER_SWARM=2000 $(CARGO) test --release --test swarm
	$(CARGO) test --workspace --release -- --ignored --test-threads 1 --skip writes_ --skip make_the_fixture
	$(CARGO) test $(FLEET) --release -- --ignored
	@$(MAKE) --no-print-directory storms

# Each kernel of tests/matrix/kernels.txt in a guest with this build: what it shows, and whether the stalls made there are
# named; docs/kernels.md is written from it. `matrix-fetch` takes the kernels through apt first. (`make test` asks the oldest
# and the newest of those that were fetched for `check` alone.)
matrix: setup-test
	@tools/matrix.sh

matrix-fetch: build
	@tools/matrix.sh fetch

# Whether it compiles for arm64, kernel side included, and against musl.
cross:
	@tools/cross.sh

# Every claim about speed, each beside its rival; needs a quiet machine.
bench: setup-test build
	$(CARGO) bench --workspace
	python3 bench/level_cost.py --flatwater target/release/flatwater

# Hostile bytes for the reader, the kernel files and the importers (fuzz/README.md); wants `cargo install cargo-fuzz`. Each
# target with its longest input: what reaches its limits; longer ones only take longer. FUZZ_RUNS=10000000 ends by count.
FUZZ_SECONDS ?= 60
FUZZ_RUNS ?= -1
FUZZ_TARGETS ?= reader:65536 kernel_files:65536 import:65536 import_each:65536 precursor_sidecar:1100 \
	precursor_frames:4096 precursor_live:256 cpio:1024 console:512
fuzz:
	@for each in $(FUZZ_TARGETS); do target=$${each%:*}; \
	  more=; [ $$target = import ] && more=tests/golden/import; mkdir -p fuzz/corpus-live/$$target; \
	  RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run $$target fuzz/corpus-live/$$target fuzz/corpus/$$target $$more -- \
	    -max_total_time=$(FUZZ_SECONDS) -runs=$(FUZZ_RUNS) -max_len=$${each#*:} || exit 1; done

score: build setup-test
	@tools/score.sh

# Real programs (fio, PostgreSQL, Redis, SQLite, RocksDB, etcd, MariaDB: those that are installed), each alone and beside
# neighbours of known kind. Makes stalls on a loop device; root; about 20 s a run.
PROGRAMS_RUNS ?= 5
programs: build
	python3 tests/programs/programs.py --flatwater target/release/flatwater --runs $(PROGRAMS_RUNS)

# A program that forks 10 000 children, one of 5 000 threads, one of 200 000 calls a second, recorded: memory stays
# bounded, and what was lost is counted and said. Root; half a minute.
storms: build
	python3 tests/programs/storms.py --flatwater target/release/flatwater

# The daemon in real time for so many hours: each step adds its minutes to target/soak.csv, and all are shown. Root.
SOAK_HOURS ?= 8
soak: build
	python3 tests/watch/soak.py --flatwater target/release/flatwater --hours $(SOAK_HOURS)
	python3 tests/watch/soak.py --summary target/soak.csv

# Published logs with a confirmed cause (tests/corpus), both halves, beside a rule of thumb for each format.
score-logs:
	FLATWATER_WRITE=1 $(CARGO) test --package flatwater --test score_logs -- --ignored --nocapture score_of_both_halves

# The same logs pasted in a hundred other ways: whose answer survives? Minutes.
score-pastes:
	FLATWATER_WRITE=1 $(CARGO) test --package flatwater --test score_logs -- --ignored --nocapture answers_of_all_pastes

# The command, its completions and manual, the library with its header and pkg-config file, debug information beside
# them, the licence texts and the bill of materials of all that is linked in.
install: build
	$(CARGO) build --release --package precursor
	tools/install.sh "$(DESTDIR)$(PREFIX)" "$(PREFIX)"

# A deb, an rpm and an OCI image of the command and its daemon, in target/packages; an rpm wants `apt-get install rpm`.
package: build
	tools/package.sh target/release/flatwater target/packages

# What of other people's is linked into what we ship: CycloneDX 1.5.
sbom:
	@mkdir -p target
	tools/third_party.py sbom >target/flatwater.cdx.json
	@echo "sbom: target/flatwater.cdx.json"
