#!/usr/bin/env bash
# The matrix of kernels (tests/matrix); docs/kernels.md has the result.
#   tools/matrix.sh fetch [NAME,NAME]   downloads the packages of the kernels into flatwater's cache, through apt, without installing
#                             them; skips those that are in the cache
#   tools/matrix.sh           boots each downloaded kernel and writes target/kernels.md
#   tools/matrix.sh run NAME,NAME:stalls   only these kernels (5.10,7.3) perform the stalls, or only those of foreign programs
#                             (:stalls); the others only run `check`
#   tools/matrix.sh places [STEPS]   file systems and devices: all steps of tests/matrix/places.sh, or these ("crypt nfs")
# Guests run the static binary if `tools/cross.sh static` has built one; arm64 guests that of `tools/cross.sh aarch64`.
# The answers are stored below target/matrix; a kernel that answered the same build is not booted again.
set -euo pipefail
cd "$(dirname "$0")/.."
flatwater=${FLATWATER:-target/release/flatwater}

# The suites of Debian with these kernels. The addresses come from this machine's apt configuration.
suites="bullseye bookworm bookworm-backports trixie trixie-backports"
security="bullseye-security bookworm-security trixie-security"
# packages_named NAME,NAME: the packages of these kernels; all if the list is empty.
packages_named() {
    awk -v names=",$1," '!/^#/ && (names == ",," || index(names, "," $2 ",")) { print $1 }' tests/matrix/kernels.txt
}
# flatwater's own cache: a fixed directory for root, whatever the environment; else the user's.
cache=/var/cache/flatwater
[ "$(id -u)" -eq 0 ] || cache=${XDG_CACHE_HOME:-$HOME/.cache}/flatwater

# The program is in /bin of older packages and in /usr/bin of newer ones.
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
    [ -n "$uris" ] || { echo "matrix: this machine's apt has no Debian archive" >&2; return 1; }
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
    # A static busybox for the guests, which acts as the foreign program.
    (cd "$place" && apt-get download -qq busybox-static && dpkg-deb -x busybox-static_*.deb busybox)
    install -D -m 755 "$(program_in "$place/busybox")" "$cache/busybox"
    (cd "$place" && rm busybox-static_*.deb && apt-get download -qq busybox-static:arm64 && dpkg-deb -x busybox-static_*.deb arm64)
    install -D -m 755 "$(program_in "$place/arm64")" "$cache/busybox-aarch64"
}

# Exports the paths of static binaries that were built; FLATWATER_INIT_X86_64 and _AARCH64 override them.
static() {
    local built=$PWD/target/$2/release/flatwater
    if [ -n "${!1:-}" ]; then return; fi
    if [ -x "$built" ]; then
        export "$1=$built"
        echo "matrix: guests run $built of $(date -r "$built" '+%F %T')"
    else
        echo "matrix: $built does not exist (tools/cross.sh builds it); ${3}" >&2
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
    # Selected steps run on ext4 only; just the first step runs on every file system.
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
