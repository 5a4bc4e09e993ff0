#!/usr/bin/env bash
# tools/install.sh INTO PREFIX: installs the files that `make install` has built. INTO is DESTDIR + PREFIX; PREFIX goes into
# the pkg-config file.
set -euo pipefail
into=${1:?where to install} prefix=${2:?the prefix}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
binary_bytes_max=20000000

# Installs a binary without debug information. That goes to lib/debug, where gdb and perf find it through the binary's
# .gnu_debuglink.
stripped() {
    local from=$1 mode=$2 to=$3
    local debug="$into/lib/debug/${to#"$into/"}.debug"
    mkdir -p "$(dirname "$debug")"
    install -D -m "$mode" "$from" "$to"
    objcopy --only-keep-debug "$from" "$debug"
    chmod 644 "$debug"
    strip --strip-unneeded "$to"
    objcopy --add-gnu-debuglink="$debug" "$to"
}

# Fails if a shipped file contains the builder's paths.
anonymous() {
    local at
    for at in "$HOME/" "${CARGO_HOME:-$HOME/.cargo}" "$PWD/"; do
        [ "$at" != / ] || continue
        if grep -qaF -- "$at" "$1"; then
            echo "install: $1 contains the builder's path $at: build it with make, which trims paths" >&2
            exit 1
        fi
    done
}

stripped target/release/flatwater 755 "$into/bin/flatwater"
precursor/link.sh target/release/libprecursor.a target/release
stripped target/release/libprecursor.so.1 755 "$into/lib/libprecursor.so.1"
ln -sf libprecursor.so.1 "$into/lib/libprecursor.so"
install -D -m 644 target/release/libprecursor.a "$into/lib/libprecursor.a"
strip --strip-debug "$into/lib/libprecursor.a"
for shipped in "$into/bin/flatwater" "$into/lib/libprecursor.so.1" "$into/lib/libprecursor.a"; do anonymous "$shipped"; done
bytes=$(stat -c %s "$into/bin/flatwater")
if [ "$bytes" -ge $binary_bytes_max ]; then
    echo "install: the command has $bytes bytes, more than the limit of $binary_bytes_max" >&2
fi
install -D -m 644 precursor/include/precursor.h "$into/include/precursor.h"
install -m 644 precursor/include/precursor.hpp "$into/include/precursor.hpp"
mkdir -p "$into/lib/pkgconfig" "$into/share/bash-completion/completions" "$into/share/zsh/site-functions" \
    "$into/share/fish/vendor_completions.d" "$into/share/man/man1" "$into/share/doc/flatwater"
sed -e "s|@PREFIX@|$prefix|" -e "s|@LIB@|lib|" -e "s|@VERSION@|$version|" precursor/precursor.pc.in >"$into/lib/pkgconfig/precursor.pc"
mkdir -p "$into/lib/cmake/precursor"
for cmake in precursor-config.cmake precursor-config-version.cmake; do
    sed -e "s|@LIB@|lib|" -e "s|@UP@|../../..|" -e "s|@VERSION@|$version|" "precursor/$cmake.in" >"$into/lib/cmake/precursor/$cmake"
done
target/release/flatwater completions bash >"$into/share/bash-completion/completions/flatwater"
target/release/flatwater completions zsh >"$into/share/zsh/site-functions/_flatwater"
target/release/flatwater completions fish >"$into/share/fish/vendor_completions.d/flatwater.fish"
target/release/flatwater completions man -o "$into/share/man/man1"
install -m 644 CHANGELOG.md LICENSE-APACHE LICENSE-MIT SECURITY.md "$into/share/doc/flatwater/"
tools/third_party.py licences >"$into/share/doc/flatwater/THIRD-PARTY-LICENCES.txt"
tools/third_party.py sbom >"$into/share/doc/flatwater/flatwater.cdx.json"
echo "installed into $into (the command has $bytes bytes)"
