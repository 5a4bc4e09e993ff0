#!/usr/bin/env bash
# Checks that flatwater compiles for other machines: arm64 with its BPF programs, and as a static binary. Uses `cargo check`, so
# nothing is linked; takes a few minutes the first time. Installs a cross compiler (for zstd's C code) and Rust's targets.
#   tools/cross.sh            check aarch64 and musl
#   tools/cross.sh test       check aarch64, for `make test`; skipped with a message if Rust's target cannot be installed
#   tools/cross.sh static     build a static binary for this machine: target/x86_64-unknown-linux-musl/release/flatwater
#   tools/cross.sh aarch64    build a static binary for arm64: target/aarch64-unknown-linux-gnu/release/flatwater
set -euo pipefail
cd "$(dirname "$0")/.."

# Skips the check if this machine cannot run it; fails if FLATWATER_REQUIRE names `cross`.
leave_out() {
    case ,${FLATWATER_REQUIRE:-}, in
    *,cross,*) echo "cross: $1" >&2; exit 1 ;;
    *) echo "SKIPPED cross: $1"; exit 0 ;;
    esac
}

needs=(aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu /usr/aarch64-linux-gnu/include/asm/types.h:linux-libc-dev-arm64-cross
    /usr/aarch64-linux-gnu/include/limits.h:libc6-dev-arm64-cross
    musl-gcc:musl-tools)
missing=()
for need in "${needs[@]}"; do
    thing=${need%%:*} package=${need##*:}
    case $thing in
    /*) [ -e "$thing" ] || missing+=("$package") ;;
    *) command -v "$thing" >/dev/null || missing+=("$package") ;;
    esac
done
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        [ "${1:-}" = test ] && leave_out "missing packages: ${missing[*]}"
        echo "cross: missing packages; run:  sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
        exit 1
    fi
    echo "cross: installing ${missing[*]}" >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" >/dev/null
fi
if command -v rustup >/dev/null; then
    rustup target add aarch64-unknown-linux-gnu x86_64-unknown-linux-musl 2>/dev/null ||
        [ "${1:-}" != test ] || leave_out "rustup cannot add the target aarch64-unknown-linux-gnu"
elif [ "${1:-}" = test ] && [ ! -d "$(rustc --print sysroot)/lib/rustlib/aarch64-unknown-linux-gnu" ]; then
    leave_out "this Rust lacks the target aarch64-unknown-linux-gnu, and rustup is not installed"
fi

export CC_x86_64_unknown_linux_musl=musl-gcc CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
# The same list as in the Makefile.
export CFLAGS="${CFLAGS:-}$(printf ' -DZSTD_EXCLUDE_%s_BLOCK_COMPRESSOR' GREEDY LAZY LAZY2 BTLAZY2 BTOPT BTULTRA)"
case ${1:-check} in
check | test)
    # build.rs warns if it omits the BPF programs.
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    targets=(aarch64-unknown-linux-gnu)
    [ "${1:-check}" = test ] || targets+=(x86_64-unknown-linux-musl)
    for target in "${targets[@]}"; do
        cargo check --target "$target" --bin flatwater 2>&1 | tee "$log"
        if grep -q 'the kernel tracer is left out' "$log"; then exit 1; fi
    done
    ;;
static)
    # 0.76 MB smaller: a relative relocation takes about 1 bit instead of 24 bytes.
    export CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS="-C link-arg=-Wl,-z,pack-relative-relocs"
    CARGO_PROFILE_RELEASE_STRIP=symbols cargo build --release --target x86_64-unknown-linux-musl --bin flatwater
    file=target/x86_64-unknown-linux-musl/release/flatwater
    "$file" --version >/dev/null || {
        echo "cross: $file does not start: before Rust 1.93 musl cannot apply packed relocations; run \`rustup update stable\`" >&2
        exit 1
    }
    # CARGO_PROFILE_RELEASE_STRIP does not remove everything.
    strip "$file"
    bytes=$(stat -c %s "$file")
    echo "cross: $file: $((bytes / 1000000)) MB"
    [ "$bytes" -lt 20000000 ] || { echo "cross: larger than 20 MB" >&2; exit 1; }
    ;;
aarch64)
    # glibc, statically linked: musl for this target would need a separate C compiler for zstd.
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C target-feature=+crt-static"
    CARGO_PROFILE_RELEASE_STRIP=symbols cargo build --release --target aarch64-unknown-linux-gnu --bin flatwater
    aarch64-linux-gnu-strip target/aarch64-unknown-linux-gnu/release/flatwater
    ;;
*) echo "usage: tools/cross.sh [test|static|aarch64]" >&2; exit 2 ;;
esac
