#!/usr/bin/env bash
# Holds the dependencies of both workspaces against deny.toml: licences and sources always, bans for the tool on hosts,
# advisories where their database is (`cargo deny fetch` once, with a network; afterwards it lies in $CARGO_HOME/advisory-dbs).
# A missing database is reported, and is an error with FLATWATER_ADVISORIES=required.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/target/tools/bin:$PATH
# The program for fleets is a workspace of its own. It reaches a store through an HTTP client, which is banned on hosts.
checked=("Cargo.toml licenses bans sources" "crates/fleet/Cargo.toml licenses sources")

check() { # MANIFEST CHECK...
    cargo-deny --log-level error --offline --manifest-path "$1" --config deny.toml check --hide-inclusion-graph "${@:2}"
}

for one in "${checked[@]}"; do
    read -r manifest checks <<<"$one"
    # The graph of all targets names crates that no build here needs (those for Windows); cargo-deny reads them too.
    cargo fetch --locked --quiet --manifest-path "$manifest" ||
        echo "deny: cargo fetch of $manifest failed; checking with the crates that are here" >&2
    # shellcheck disable=SC2086 # a list of words
    output=$(check "$manifest" $checks 2>&1) || { echo "$output" >&2; echo "deny: $manifest failed" >&2; exit 1; }
    # The last line is the summary; what precedes it are warnings about crates in two versions.
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
