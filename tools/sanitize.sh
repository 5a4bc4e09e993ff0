#!/usr/bin/env bash
# The precursor's tests under ThreadSanitizer and AddressSanitizer, and its unsafe code under valgrind: with real threads and
# real memory, where miri (`make miri`) would interpret plain memory alone. A stable compiler does it with RUSTC_BOOTSTRAP.
#   tools/sanitize.sh [thread|address|memcheck ...]
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- thread address memcheck
host=$(rustc -vV | sed -n 's/^host: //p')
supported=(--lib --test unsafe_code --test modes --test closing --test forked)

for what in "$@"; do
    case $what in
    thread | address)
        # The standard library that rustup ships is not instrumented, hence the permission to mix, and the suppressions.
        flags="-Zsanitizer=$what -Cunsafe-allow-abi-mismatch=sanitizer -Copt-level=1"
        # A leak of a test that kills or forgets its writer is no finding.
        ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS="suppressions=$PWD/precursor/tests/thread-sanitizer.txt" \
            RUSTC_BOOTSTRAP=1 RUSTFLAGS="$flags" CARGO_TARGET_DIR="target/sanitize-$what" \
            cargo test --package precursor --target "$host" "${supported[@]}" -- --test-threads 1
        ;;
    memcheck)
        program=$(cargo test --package precursor --test unsafe_code --no-run --message-format json |
            sed -n 's/.*"executable":"\([^"]*unsafe_code[^"]*\)".*/\1/p' | head -n 1)
        valgrind -q --error-exitcode=9 --leak-check=no "$program" --test-threads 1
        ;;
    *) echo "usage: tools/sanitize.sh [thread|address|memcheck ...]" >&2; exit 2 ;;
    esac
done
