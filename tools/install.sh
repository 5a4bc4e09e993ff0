#!/usr/bin/env bash
# tools/install.sh INTO PREFIX: copies what `make install` has built. INTO is DESTDIR + PREFIX; PREFIX is what the
# pkg-config file will say.
set -euo pipefail
into=${1:?where to install} prefix=${2:?the prefix}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
install -D -m 755 target/release/flatwater "$into/bin/flatwater"
precursor/link.sh target/release/libprecursor.a target/release
install -D -m 755 target/release/libprecursor.so.1 "$into/lib/libprecursor.so.1"
ln -sf libprecursor.so.1 "$into/lib/libprecursor.so"
install -D -m 644 target/release/libprecursor.a "$into/lib/libprecursor.a"
install -D -m 644 precursor/include/precursor.h "$into/include/precursor.h"
mkdir -p "$into/lib/pkgconfig" "$into/share/bash-completion/completions" "$into/share/zsh/site-functions" \
    "$into/share/fish/vendor_completions.d" "$into/share/man/man1"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" precursor/precursor.pc.in >"$into/lib/pkgconfig/precursor.pc"
target/release/flatwater completions bash >"$into/share/bash-completion/completions/flatwater"
target/release/flatwater completions zsh >"$into/share/zsh/site-functions/_flatwater"
target/release/flatwater completions fish >"$into/share/fish/vendor_completions.d/flatwater.fish"
target/release/flatwater completions man >"$into/share/man/man1/flatwater.1"
echo "installed into $into"
