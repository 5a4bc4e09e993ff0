# flatwater: `make demo` shows what it is for, `make test` proves it. Each target sets up what is missing.

PREFIX ?= /usr/local
CARGO  ?= cargo
export CARGO_TERM_COLOR ?= auto

# The tests simulate hours: our own code is optimised in them too (dependencies always are).
test test-long: export CARGO_PROFILE_DEV_OPT_LEVEL = 2

.PHONY: demo test test-long bench build score install setup setup-test web clean-demo

setup:
	@tools/setup.sh build

setup-test:
	@tools/setup.sh test

# The report's page: TypeScript and uPlot into one script that the binary embeds.
web: setup
	@tools/web.sh

build: web
	$(CARGO) build --release --bin flatwater

# A stall made on purpose: the journal beside a neighbour that fills their common memory cgroup.
demo: build
	target/release/flatwater run full-cgroup

test: setup-test web
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) test --workspace
	@tools/test-c.sh

test-long: test
	$(CARGO) test --workspace --profile test-fast -- --ignored --test-threads 1

bench: build
	@tools/bench.sh

score: build
	@tools/score.sh

install: build
	tools/install.sh $(PREFIX)
