#!/usr/bin/env bash
# tools/package_library.sh ARCHIVE OUT [VERSION]: packs the library precursor, from its built libprecursor.a: libprecursor1
# (the shared library) and libprecursor-dev (headers, static library, pkg-config and CMake files). Reproducible like
# tools/package.sh.
#   FLATWATER_PACKAGES="libdeb librpm"   the packages to build
set -euo pipefail
cd "$(dirname "$0")/.."
archive=${1:?libprecursor.a} out=${2:?where the packages go}
version=${3:-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)}
wanted=${FLATWATER_PACKAGES:-libdeb librpm}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
[ -e "$archive" ] || {
    echo "package: $archive does not exist: cargo build --release --package precursor" >&2
    exit 1
}
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

have() {
    command -v "$1" >/dev/null || {
        echo "package: $1 is missing: apt-get install $2" >&2
        exit 1
    }
}

# Installs into $work/KIND/run and $work/KIND/dev; $1: the kind, $2: the folder for libraries below /usr.
stage() {
    local all=$work/$1/all run=$work/$1/run dev=$work/$1/dev lib=$2
    precursor/install.sh "$(dirname "$archive")" "$all/usr" /usr "$lib"
    mkdir -p "$run/usr/$lib" "$run/usr/share/doc/libprecursor1" "$dev/usr/share/doc/libprecursor-dev"
    mv "$all/usr/$lib/libprecursor.so.1" "$run/usr/$lib/"
    cp -a "$all/usr" "$dev/"
    cat LICENSE-MIT LICENSE-APACHE >"$run/usr/share/doc/libprecursor1/copyright"
    cp "$run/usr/share/doc/libprecursor1/copyright" docs/precursor.md docs/precursor-guarantees.md \
        docs/precursor-errors.md docs/precursor-format.md "$dev/usr/share/doc/libprecursor-dev/"
    find "$run" "$dev" -type d -exec chmod 755 {} +
    find "$run" "$dev" -type f -exec chmod 644 {} +
    find "$run" "$dev" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

# One deb; $1: the package, $2: its tree, $3: its other fields.
deb() {
    local root=$2
    mkdir -p "$root/DEBIAN"
    {
        printf 'Package: %s\nSource: flatwater\nVersion: %s\nArchitecture: %s\n' "$1" "$version" "$arch"
        printf 'Maintainer: The flatwater developers <maintainers@flatwater.example>\nMulti-Arch: same\nPriority: optional\n'
        printf 'Installed-Size: %s\n' "$(du -sk --apparent-size --exclude=DEBIAN "$root" | cut -f 1)"
        printf '%s\n' "$3"
    } >"$root/DEBIAN/control"
    (cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    chmod 644 "$root"/DEBIAN/*
    find "$root/DEBIAN" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz --build "$root" "$out/$1_${version}_$arch.deb" >/dev/null
    echo "$out/$1_${version}_$arch.deb"
}

debs() {
    have dpkg-deb dpkg
    local arch multiarch glibc run=$work/deb/run
    arch=$(dpkg --print-architecture)
    multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || cc -print-multiarch)
    stage deb "lib/$multiarch"
    glibc=$(objdump -T "$run/usr/lib/$multiarch/libprecursor.so.1" | sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -Vu |
        tail -n 1)
    mkdir -p "$run/DEBIAN"
    echo "libprecursor 1 libprecursor1 (>= $version)" >"$run/DEBIAN/shlibs"
    echo "activate-noawait ldconfig" >"$run/DEBIAN/triggers"
    deb libprecursor1 "$run" "Section: libs
Depends: libc6 (>= $glibc), libgcc-s1
Description: appends to a file without stalling
 A program that appends through this library does not wait for block
 allocation, reclaim, the journal or dirty throttling."
    deb libprecursor-dev "$work/deb/dev" "Section: libdevel
Depends: libprecursor1 (= $version)
Description: appends to a file without stalling - development files
 Headers for C and C++, the static library, and files for pkg-config and
 CMake."
}

rpms() {
    have rpmbuild rpm
    local top=$work/rpms arch
    arch=$(uname -m)
    stage rpm lib64
    mkdir -p "$top"
    sed -e "s/@VERSION@/$version/" packaging/rpm/libprecursor.spec.in >"$top/libprecursor.spec"
    rpmbuild -bb --quiet --target "$arch-linux" --define "_topdir $top" --define "_run $work/rpm/run" \
        --define "_dev $work/rpm/dev" --define "_dbpath $top/db" --define 'use_source_date_epoch_as_buildtime 1' \
        --define '_build_id_links none' --define 'clamp_mtime_to_source_date_epoch 1' "$top/libprecursor.spec" >&2
    find "$top/RPMS" -name '*.rpm' -exec cp {} "$out/" \;
    find "$out" -maxdepth 1 -name "libprecursor*-$version-*.$arch.rpm" | sort
}

for which in $wanted; do
    case $which in
    libdeb) debs ;;
    librpm) rpms ;;
    *)
        echo "package: FLATWATER_PACKAGES: $which is not one of libdeb, librpm" >&2
        exit 2
        ;;
    esac
done
