#!/usr/bin/env bash
# Makes sure that what building and testing need is there: through apt where it is missing and we are root,
# else with the exact command to run. Prints nothing when all is there.
#   tools/setup.sh build    what `make build` needs
#   tools/setup.sh test     what `make test` needs on top
set -euo pipefail
want=${1:-build}

# command or file : Debian package
build_needs=(cc:gcc clang:clang llvm-strip:llvm npm:npm node:nodejs make:make
    /usr/include/bpf/bpf_helpers.h:libbpf-dev objcopy:binutils python3:python3)
test_needs=(chromium:chromium qemu-system-x86_64:qemu-system-x86 busybox:busybox-static mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs
    losetup:mount valgrind:valgrind strace:strace fio:fio pkg-config:pkg-config
    tmux:tmux systemd-analyze:systemd openssl:openssl curl:curl)

needs=("${build_needs[@]}")
[ "$want" = test ] && needs+=("${test_needs[@]}")

missing=()
for need in "${needs[@]}"; do
    thing=${need%%:*} package=${need##*:}
    case $thing in
    /*) [ -e "$thing" ] || missing+=("$package") ;;
    *) PATH=$PATH:/usr/sbin:/sbin command -v "$thing" >/dev/null || missing+=("$package") ;;
    esac
done
# AddressSanitizer's runtime for the C example has no command of its own to look for.
if [ "$want" = test ] && ! ls /usr/lib/gcc/*/*/libasan.so >/dev/null 2>&1; then missing+=(libgcc-12-dev); fi

if ! command -v cargo >/dev/null; then
    echo "setup: no Rust toolchain: install one from https://rustup.rs (1.88 or later), then run this again" >&2
    exit 1
fi
fetch_rest() { [ "$want" = test ] && { tools/prometheus.sh; tools/s3.sh; }; return 0; }
if [ ${#missing[@]} -eq 0 ]; then
    fetch_rest
    exit 0
fi

install="apt-get install -y --no-install-recommends ${missing[*]}"
if ! command -v apt-get >/dev/null; then
    echo "setup: missing: ${missing[*]} (Debian's package names); install them and run this again" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "setup: missing packages; run:  sudo $install" >&2
    exit 1
fi
echo "setup: installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086
$install >/dev/null
fetch_rest
