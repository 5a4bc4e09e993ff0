#!/usr/bin/env bash
# Runs the precursor's tests under ThreadSanitizer and AddressSanitizer, and its unsafe code under valgrind: with real threads
# and memory, while miri (`make miri`) interprets plain memory only. RUSTC_BOOTSTRAP allows this with a stable compiler.
#   tools/sanitize.sh [thread|address|memcheck ...]
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- thread address memcheck
host=$(rustc -vV | sed -n 's/^host: //p')
supported=(unsafe_code:: modes:: closing:: forked::)

# The unit tests, and the modules of tests/main.rs that sanitizers support.
sanitized() {
    cargo test --package precursor --target "$1" --lib -- --test-threads 1
    cargo test --package precursor --target "$1" --test precursor -- --test-threads 1 "${supported[@]}"
}

for what in "$@"; do
    case $what in
    thread | address)
        # rustup's standard library is not instrumented, hence the permission to mix ABIs, and the suppressions.
        flags="-Zsanitizer=$what -Cunsafe-allow-abi-mismatch=sanitizer -Copt-level=1"
        # Tests that kill or forget their writer leak; ignore leaks.
        ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS="suppressions=$PWD/precursor/tests/thread-sanitizer.txt" \
            RUSTC_BOOTSTRAP=1 RUSTFLAGS="$flags" CARGO_TARGET_DIR="target/sanitize-$what" \
            sanitized "$host"
        ;;
    memcheck)
        program=$(cargo test --package precursor --test precursor --no-run --message-format json |
            sed -n 's/.*"executable":"\([^"]*precursor-[^"]*\)".*/\1/p' | head -n 1)
        valgrind -q --error-exitcode=9 --leak-check=no "$program" --test-threads 1 unsafe_code::
        ;;
    *) echo "usage: tools/sanitize.sh [thread|address|memcheck ...]" >&2; exit 2 ;;
    esac
done
