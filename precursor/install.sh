#!/bin/sh
# install.sh TARGET INTO PREFIX [LIB]: installs the library without flatwater. TARGET holds libprecursor.a; INTO is
# DESTDIR + PREFIX; PREFIX goes into the pkg-config file; LIB is the folder for libraries below it, lib by default.
set -eu
target=${1:?the folder of libprecursor.a} into=${2:?where to install} prefix=${3:?the prefix} lib=${4:-lib}
here=$(cd "$(dirname "$0")" && pwd)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../Cargo.toml" | head -n 1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$here/link.sh" "$target/libprecursor.a" "$work"
mkdir -p "$into/$lib/pkgconfig" "$into/$lib/cmake/precursor" "$into/include"
install -m 755 "$work/libprecursor.so.1" "$into/$lib/libprecursor.so.1"
strip --strip-unneeded "$into/$lib/libprecursor.so.1"
ln -sf libprecursor.so.1 "$into/$lib/libprecursor.so"
install -m 644 "$target/libprecursor.a" "$into/$lib/libprecursor.a"
strip --strip-debug "$into/$lib/libprecursor.a"
install -m 644 "$here/include/precursor.h" "$here/include/precursor.hpp" "$into/include/"
# From LIB/cmake/precursor up to the prefix.
up=../..$(printf '%s\n' "$lib" | sed 's|[^/][^/]*|/..|g; s|//|/|g')
fill() {
    sed -e "s|@PREFIX@|$prefix|" -e "s|@LIB@|$lib|" -e "s|@UP@|$up|" -e "s|@VERSION@|$version|" "$here/$1" \
        >"$into/$lib/$2"
}
fill precursor.pc.in pkgconfig/precursor.pc
fill precursor-config.cmake.in cmake/precursor/precursor-config.cmake
fill precursor-config-version.cmake.in cmake/precursor/precursor-config-version.cmake
