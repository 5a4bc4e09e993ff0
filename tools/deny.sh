#!/usr/bin/env bash
# Checks the dependencies of both workspaces against deny.toml: licences and sources always, bans for the tool on hosts, and
# advisories if their database is present (`cargo deny fetch` downloads it once into $CARGO_HOME/advisory-dbs). A missing
# database is reported; with FLATWATER_ADVISORIES=required it is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/target/tools/bin:$PATH
# The program for fleets is a separate workspace. It uses an HTTP client to reach a store; the tool on hosts may not.
checked=("Cargo.toml licenses bans sources" "crates/fleet/Cargo.toml licenses sources")

check() { # MANIFEST CHECK...
    cargo-deny --log-level error --offline --manifest-path "$1" --config deny.toml check --hide-inclusion-graph "${@:2}"
}

for one in "${checked[@]}"; do
    read -r manifest checks <<<"$one"
    # cargo-deny reads the dependencies of all targets, including crates for Windows that no build here downloads.
    cargo fetch --locked --quiet --manifest-path "$manifest" ||
        echo "deny: cargo fetch of $manifest failed; checking the downloaded crates only" >&2
    # shellcheck disable=SC2086 # a list of words
    output=$(check "$manifest" $checks 2>&1) || { echo "$output" >&2; echo "deny: $manifest failed" >&2; exit 1; }
    # The last line is the summary. Before it are warnings about duplicate crates.
    echo "$manifest: $(tail -n 1 <<<"$output")"
done
databases=$(find "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs" -mindepth 2 -maxdepth 2 -name crates -type d 2>/dev/null | head -n 1 || true)
if [ -n "$databases" ]; then
    for one in "${checked[@]}"; do check "${one%% *}" advisories; done
elif [ "${FLATWATER_ADVISORIES:-}" = required ]; then
    echo "deny: advisories NOT checked: their database (github.com/rustsec/advisory-db) is not in CARGO_HOME: cargo deny fetch db" >&2
    exit 1
else
    echo "deny: advisories NOT checked: their database (github.com/rustsec/advisory-db) is not in CARGO_HOME (cargo deny fetch db)"
fi
