#!/usr/bin/env bash
# Unpacks Debian's Prometheus below target/, for tests: installed, it would start a server on every boot.
# Prints nothing when it is there, or on this machine's PATH.
set -euo pipefail
place=target/prometheus
command -v prometheus >/dev/null && command -v promtool >/dev/null && exit 0
[ -x "$place/usr/bin/promtool" ] && exit 0
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    echo "setup: no prometheus on PATH and no apt to fetch it: its tests are skipped" >&2
    exit 0
fi
mkdir -p "$place/deb"
cd "$place/deb"
apt-get download -qq prometheus >/dev/null
dpkg-deb -x prometheus_*.deb ..
rm -f prometheus_*.deb
