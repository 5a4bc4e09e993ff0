#!/usr/bin/env bash
# tools/package.sh BINARY OUT [VERSION]: builds a deb, an rpm and an OCI image of the command and its daemon from an existing
# binary. Uses only dpkg-deb, rpmbuild and python3: no daemon and no network. The deb and the image are reproducible from the
# same binary and SOURCE_DATE_EPOCH.
#   FLATWATER_PACKAGES="deb rpm oci"   the packages to build
set -euo pipefail
cd "$(dirname "$0")/.."
binary=${1:?the built command} out=${2:?where the packages go}
version=${3:-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)}
url=$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
wanted=${FLATWATER_PACKAGES:-deb rpm oci}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree

have() {
    command -v "$1" >/dev/null || {
        echo "package: $1 is missing: apt-get install $2" >&2
        exit 1
    }
}

# The ELF machine, by the names that deb and rpm use.
case $(od -An -t u2 -j 18 -N 2 "$binary" | tr -d ' ') in
62) deb_arch=amd64 rpm_arch=x86_64 oci_arch=amd64 ;;
183) deb_arch=arm64 rpm_arch=aarch64 oci_arch=arm64 ;;
*)
    echo "package: $binary is for an unsupported architecture" >&2
    exit 1
    ;;
esac

# The newest version of glibc symbols in the binary; empty if it is linked statically.
glibc=$(objdump -T "$binary" 2>/dev/null | sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -Vu | tail -n 1 || true)

stage() {
    local doc=$tree/usr/share/doc/flatwater
    install -D -m 755 "$binary" "$tree/usr/bin/flatwater"
    strip --strip-unneeded "$tree/usr/bin/flatwater"
    install -d "$tree/usr/share/man/man1" "$tree/usr/share/bash-completion/completions" \
        "$tree/usr/share/zsh/vendor-completions" "$tree/usr/share/fish/vendor_completions.d" "$doc"
    "$binary" completions man -o "$tree/usr/share/man/man1"
    gzip -9n "$tree"/usr/share/man/man1/*.1
    "$binary" completions bash >"$tree/usr/share/bash-completion/completions/flatwater"
    "$binary" completions zsh >"$tree/usr/share/zsh/vendor-completions/_flatwater"
    "$binary" completions fish >"$tree/usr/share/fish/vendor_completions.d/flatwater.fish"
    install -D -m 644 packaging/systemd/flatwater-watch.service "$tree/usr/lib/systemd/system/flatwater-watch.service"
    install -D -m 644 packaging/watch.toml "$tree/etc/flatwater/watch.toml"
    install -d "$tree/usr/share/flatwater"
    cp -r packaging/prometheus packaging/grafana packaging/kubernetes "$tree/usr/share/flatwater/"
    install -m 644 docs/watch.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE SECURITY.md "$doc/"
    cat LICENSE-MIT LICENSE-APACHE >"$doc/copyright"
    tools/third_party.py licences >"$doc/THIRD-PARTY-LICENCES.txt"
    tools/third_party.py sbom >"$doc/flatwater.cdx.json"
    find "$tree" -type d -exec chmod 755 {} +
    find "$tree" -type f ! -path '*/bin/*' -exec chmod 644 {} +
    find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

deb() {
    have dpkg-deb dpkg
    local root=$work/deb
    cp -a "$tree" "$root"
    install -d -m 755 "$root/DEBIAN"
    sed -e "s/@VERSION@/$version/" -e "s|@URL@|$url|" -e "s/@ARCH@/$deb_arch/" \
        -e "s/@SIZE@/$(du -sk --apparent-size "$tree" | cut -f 1)/" \
        -e "s/@DEPENDS@/${glibc:+libc6 (>= $glibc), libgcc-s1}/" -e '/^Depends: $/d' \
        packaging/deb/control.in >"$root/DEBIAN/control"
    echo /etc/flatwater/watch.toml >"$root/DEBIAN/conffiles"
    install -m 755 packaging/deb/postinst packaging/deb/prerm packaging/deb/postrm "$root/DEBIAN/"
    (cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    chmod 644 "$root/DEBIAN/control" "$root/DEBIAN/conffiles" "$root/DEBIAN/md5sums"
    find "$root/DEBIAN" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz --build "$root" "$out/flatwater_${version}_${deb_arch}.deb" >/dev/null
    echo "$out/flatwater_${version}_${deb_arch}.deb"
}

rpm_package() {
    have rpmbuild rpm
    local top=$work/rpm
    mkdir -p "$top"
    sed -e "s/@VERSION@/$version/" -e "s|@URL@|$url|" -e "s/@GLIBC@/${glibc:-2.17}/" packaging/rpm/flatwater.spec.in >"$top/flatwater.spec"
    [ -n "$glibc" ] || sed -i '/^Requires: *libc\.so/d' "$top/flatwater.spec"
    rpmbuild -bb --quiet --target "$rpm_arch-linux" --define "_topdir $top" --define "_tree $tree" \
        --define "_dbpath $top/db" --define 'use_source_date_epoch_as_buildtime 1' --define '_build_id_links none' \
        --define 'clamp_mtime_to_source_date_epoch 1' "$top/flatwater.spec"
    find "$top/RPMS" -name '*.rpm' -exec cp {} "$out/" \;
    find "$out" -maxdepth 1 -name "flatwater-$version-*.$rpm_arch.rpm"
}

oci() {
    python3 tools/oci.py --tree "$tree" --version "$version" --architecture "$oci_arch" \
        --out "$out/flatwater-$version-$oci_arch.oci.tar"
    echo "$out/flatwater-$version-$oci_arch.oci.tar"
}

stage
for which in $wanted; do
    case $which in
    deb) deb ;;
    rpm) rpm_package ;;
    oci) oci ;;
    *)
        echo "package: FLATWATER_PACKAGES: $which is not one of deb, rpm, oci" >&2
        exit 2
        ;;
    esac
done
