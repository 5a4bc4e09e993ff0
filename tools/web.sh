#!/usr/bin/env bash
# Installs what the tests of the report's page need and checks the page's types. cargo itself makes the bundle
# (crates/report/build.rs), so `cargo build` alone is enough.
set -euo pipefail
cd "$(dirname "$0")/../crates/report/web"
if ! command -v npm >/dev/null; then
    echo "web: no npm, so the report will have no charts; install nodejs and npm" >&2
    exit 0
fi
if ! cmp -s package-lock.json node_modules/.flatwater-lock; then
    if ! npm ci --ignore-scripts --no-audit --no-fund --prefer-offline >/dev/null; then
        echo "web: npm ci failed; the page's types are not checked and its browser test cannot run" >&2
        exit 0
    fi
    cp package-lock.json node_modules/.flatwater-lock
fi
node_modules/.bin/tsc --noEmit
