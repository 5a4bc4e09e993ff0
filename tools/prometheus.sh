#!/usr/bin/env bash
# Unpacks Debian's Prometheus below target/ for tests, because the installed package would start a server on every boot.
# Prints nothing if Prometheus is already there or on the PATH.
set -euo pipefail
place=target/prometheus
command -v prometheus >/dev/null && command -v promtool >/dev/null && exit 0
[ -x "$place/usr/bin/promtool" ] && exit 0
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    echo "setup: prometheus is not on the PATH, and apt is not available: its tests are skipped" >&2
    exit 0
fi
mkdir -p "$place/deb"
cd "$place/deb"
apt-get download -qq prometheus >/dev/null
dpkg-deb -x prometheus_*.deb ..
rm -f prometheus_*.deb
