#!/usr/bin/env bash
# The matrix of kernels (tests/matrix); docs/kernels.md has the result.
#   tools/matrix.sh fetch [NAME,NAME]   packages of the kernels into flatwater's cache, through apt, without installing them;
#                             those that are there already are not fetched again
#   tools/matrix.sh           boots each kernel that was fetched and writes target/kernels.md
#   tools/matrix.sh run NAME,NAME:stalls   only these make the stalls (5.10,7.3), or the foreign programs' alone (:stalls); the others
#                             are asked for `check`
#   tools/matrix.sh places [STEPS]   file systems and devices: all of tests/matrix/places.sh, or these steps ("crypt nfs")
# The guests run the static binary where `tools/cross.sh static` has built one, those of arm64 that of `tools/cross.sh aarch64`.
# What a kernel answered lies under target/matrix; the same build does not ask it again.
set -euo pipefail
cd "$(dirname "$0")/.."
flatwater=${FLATWATER:-target/release/flatwater}

# Suites of Debian that hold these kernels; the addresses are this machine's own.
suites="bullseye bookworm bookworm-backports trixie trixie-backports"
security="bullseye-security bookworm-security trixie-security"
# packages_named NAME,NAME: of these kernels; of all where none is named.
packages_named() {
    awk -v names=",$1," '!/^#/ && (names == ",," || index(names, "," $2 ",")) { print $1 }' tests/matrix/kernels.txt
}
# Where flatwater itself looks: root's own place, whatever a user's environment says, else the user's.
cache=/var/cache/flatwater
[ "$(id -u)" -eq 0 ] || cache=${XDG_CACHE_HOME:-$HOME/.cache}/flatwater

# In /bin of older packages, in /usr/bin of newer ones.
program_in() {
    find "$1" -type f -path '*bin/busybox' -print -quit
}

fetch() {
    local place uris uri package packages=()
    for package in $(packages_named "${1:-}"); do
        [ -n "$(find "$cache/kernels/${package%%:*}" -name 'vmlinuz*' -print -quit 2>/dev/null)" ] || packages+=("$package")
    done
    [ ${#packages[@]} -gt 0 ] || [ ! -x "$cache/busybox" ] || return 0
    place=$(mktemp -d)
    trap 'rm -rf "$place"' RETURN
    mkdir -p "$place/lists/partial" "$place/archives/partial"
    uris=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sort -u | grep -E '/debian(-security)?/$' || true)
    [ -n "$uris" ] || { echo "matrix: apt of this machine knows no Debian archive" >&2; return 1; }
    local key=/usr/share/keyrings/debian-archive-keyring.gpg
    for uri in $uris; do
        local of=$suites
        case $uri in *-security/) of=$security ;; esac
        for suite in $of; do echo "deb [signed-by=$key] $uri $suite main"; done
    done >"$place/sources.list"
    cat >"$place/apt.conf" <<CONF
Dir::Etc::sourcelist "$place/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$place/lists";
Dir::Cache "$place";
APT::Architectures { "amd64"; "arm64"; };
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
CONF
    export APT_CONFIG=$place/apt.conf
    apt-get update -qq
    for package in "${packages[@]}"; do "$flatwater" vm fetch-kernel "$package"; done
    # A static program of the guest's own: what the foreign programs of the matrix are.
    (cd "$place" && apt-get download -qq busybox-static && dpkg-deb -x busybox-static_*.deb busybox)
    install -D -m 755 "$(program_in "$place/busybox")" "$cache/busybox"
    (cd "$place" && rm busybox-static_*.deb && apt-get download -qq busybox-static:arm64 && dpkg-deb -x busybox-static_*.deb arm64)
    install -D -m 755 "$(program_in "$place/arm64")" "$cache/busybox-aarch64"
}

# The static binaries that were built; FLATWATER_INIT_X86_64 and _AARCH64 name others.
static() {
    local built=$PWD/target/$2/release/flatwater
    if [ -n "${!1:-}" ]; then return; fi
    if [ -x "$built" ]; then
        export "$1=$built"
        echo "matrix: guests run $built of $(date -r "$built" '+%F %T')"
    else
        echo "matrix: $built is not there (tools/cross.sh builds it); ${3}" >&2
    fi
}
statics() {
    static FLATWATER_INIT_X86_64 x86_64-unknown-linux-musl "guests run this machine's own build"
    static FLATWATER_INIT_AARCH64 aarch64-unknown-linux-gnu "arm64 is not booted"
}

case ${1:-run} in
fetch) fetch "${2:-}" ;;
places)
    statics
    # The steps but the first are made on ext4.
    if [ -n "${2:-}" ]; then export FLATWATER_PLACES_STEPS=$2 FLATWATER_PLACES_ON=ext4; fi
    cargo test -p flatwater --test flatwater -- --ignored --nocapture matrix::stalls_of_file_systems
    ;;
run)
    statics
    began=$(date +%s)
    FLATWATER_MATRIX=${2:-all} cargo test -p flatwater --test flatwater -- --ignored --nocapture matrix::
    echo "matrix: $((($(date +%s) - began + 30) / 60)) minutes"
    ;;
*) echo "usage: tools/matrix.sh [fetch [NAME,NAME] | run [NAME,NAME] | places [STEPS]]" >&2; exit 2 ;;
esac
