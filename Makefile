# flatwater: `make demo` shows a stall and its cause, `make test` runs the tests. Each target installs what it needs.
# docs/development.md says what each target covers and how long it takes.

PREFIX  ?= /usr/local
DESTDIR ?=
CARGO   ?= cargo
CARGO_TERM_COLOR ?= auto
export CARGO CARGO_TERM_COLOR

.PHONY: demo build build-fleet install install-precursor package setup setup-test test test-long test-model test-fleet test-fleet-hosts test-fleet-questions test-fleet-engines test-import test-kernels test-kills \
	test-guard test-power-cuts test-verify \
	test-watch test-packages test-cross test-storms lint budgets matrix matrix-fetch cross bench programs score score-logs \
	score-pastes soak fuzz sbom miri sanitize

# Shipped files do not reveal where they were built: panics and debug information name /build, /cargo and /home.
CARGO_HOME ?= $(HOME)/.cargo
TRIM = --remap-path-prefix=$(CURDIR)=/build --remap-path-prefix=$(CARGO_HOME)=/cargo \
	--remap-path-prefix=$(HOME)=/home
# Recordings use the levels 1 to 3 of zstd: 0.3 MB of code for slower levels is left out. tools/cross.sh has the same list.
ZSTD = $(foreach of,GREEDY LAZY LAZY2 BTLAZY2 BTOPT BTULTRA,-DZSTD_EXCLUDE_$(of)_BLOCK_COMPRESSOR)
build install install-precursor: export RUSTFLAGS += $(TRIM)
build install install-precursor: export CFLAGS += -ffile-prefix-map=$(CURDIR)=/build -ffile-prefix-map=$(CARGO_HOME)=/cargo $(ZSTD)

# Causes a stall: a journal beside a neighbour that fills their common memory cgroup. The build omits what the demo does not
# use (the model, the daemon, `top`).
demo: setup
	@tools/timed.py demo target/demo $(CARGO) build --locked --profile demo --no-default-features --bin flatwater
	target/demo/flatwater run full-cgroup

build: setup
	@tools/timed.py build target/release $(CARGO) build --locked --release --bin flatwater

# The program for fleets, a separate workspace with DataFusion: crates/fleet/target/release/flatwater-fleet.
build-fleet: setup
	$(CARGO) build --locked --release $(FLEET)

setup:
	@tools/setup.sh build

setup-test:
	@tools/setup.sh test

test: setup-test
	@tools/test.py

lint: setup-test
	@tools/test.py format page
	$(CARGO) clippy --workspace --all-targets -- -D warnings

# The tests that `make test` omits, in parts that run alone. FLEET_PYTHON has duckdb, pyspark and chdb for test-fleet.
FLEET = --manifest-path crates/fleet/Cargo.toml
FLEET_PYTHON ?= python3
export FLEET_PYTHON
test-long: setup-test
	@tools/long.py all
test-model test-fleet test-fleet-hosts test-fleet-questions test-fleet-engines test-import test-kernels test-kills test-guard test-power-cuts test-verify test-watch test-packages test-cross test-storms: setup-test
	@tools/long.py $(@:test-%=%)

# The project's budgets and the present figures.
budgets:
	@tools/budgets.py

# The precursor's unsafe code on plain memory, under miri. Needs `rustup component add --toolchain nightly miri`.
miri:
	@$(CARGO) +nightly miri --version >/dev/null 2>&1 || { echo "miri: not installed; run: rustup component add --toolchain nightly miri" >&2; exit 1; }
	$(CARGO) +nightly miri test --package precursor --test precursor unsafe_code::

# The same with real threads and memory: ThreadSanitizer, AddressSanitizer and valgrind (tools/sanitize.sh).
sanitize:
	@tools/sanitize.sh

# Boots each kernel of tests/matrix/kernels.txt in a guest with this build and writes target/kernels.md. `matrix-fetch` fetches
# the kernels through apt first.
matrix: setup-test
	@tools/matrix.sh

matrix-fetch: build
	@tools/matrix.sh fetch

# Checks that flatwater compiles for arm64, BPF programs included, and with musl.
cross:
	@tools/cross.sh

# Benchmarks for every claim about speed, each beside a rival; needs a quiet machine.
bench: setup-test build
	$(CARGO) bench --workspace
	python3 bench/level_cost.py --flatwater target/release/flatwater

# Fuzzes the reader, the parsers of kernel files and the importers (fuzz/README.md); needs `cargo install cargo-fuzz`. The number
# after each target is the length of its longest input: enough to reach the target's limits. FUZZ_RUNS=10000000 ends by count.
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

# Records real programs (fio, PostgreSQL, Redis, SQLite, RocksDB, etcd, MariaDB: the installed ones), each alone and beside known
# neighbours. Causes stalls on a loop device; needs root; about 20 s per run.
PROGRAMS_RUNS ?= 5
programs: build
	python3 tests/programs/programs.py --flatwater target/release/flatwater --runs $(PROGRAMS_RUNS)

# Runs the daemon for SOAK_HOURS in real time, appends the figures of each minute to target/soak.csv, and prints them. Needs root.
SOAK_HOURS ?= 8
soak: build
	python3 tests/watch/soak.py --flatwater target/release/flatwater --hours $(SOAK_HOURS)
	python3 tests/watch/soak.py --summary target/soak.csv

# Scores published logs with a confirmed cause (tests/corpus), with a rule of thumb as rival: target/score-logs.md.
score-logs:
	$(CARGO) test -p flatwater --test flatwater -- --ignored --nocapture score_logs::score_of_both_halves

# Checks which answers survive when the same logs are pasted in 98 other ways: target/score-pastes.md. Takes minutes.
score-pastes:
	$(CARGO) test -p flatwater --test flatwater -- --ignored --nocapture score_logs::answers_of_all_pastes

# Installs the command, its completions and manual, the library with header and pkg-config file, separate debug information, the
# licence texts, and the bill of materials of all linked crates.
install: build
	$(CARGO) build --release --package precursor
	tools/install.sh "$(DESTDIR)$(PREFIX)" "$(PREFIX)"

# Installs the library precursor alone, for C and C++.
install-precursor:
	$(CARGO) build --release --package precursor
	precursor/install.sh target/release "$(DESTDIR)$(PREFIX)" "$(PREFIX)"

# Builds a deb, an rpm and an OCI image of the command and its daemon, and debs and rpms of the library, in target/packages. The
# rpms need `apt-get install rpm`.
package: build
	$(CARGO) build --release --package precursor
	tools/package.sh target/release/flatwater target/packages
	tools/package_library.sh target/release/libprecursor.a target/packages

# The bill of materials of the third-party code in our binaries (CycloneDX 1.5).
sbom:
	@mkdir -p target
	tools/third_party.py sbom >target/flatwater.cdx.json
	@echo "sbom: target/flatwater.cdx.json"
