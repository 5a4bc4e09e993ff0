#!/bin/sh
# Causes known stalls, explains them without knowing the cause, and writes target/score.md. Needs root; takes about half an hour.
#   FLATWATER_SCORE_RUNS=5 FLATWATER_SCORE_QUIET=100   runs of each kind, and of the quiet control
#   FLATWATER_SCORE_ONLY=NAME[,NAME]                   recipes whose name contains one of these; prints, but writes no file
#   FLATWATER_SCORE_SECONDS=240                        runs at most this long and continues where the last call stopped;
#                                                      without it, all runs start again
#   FLATWATER_SCORE_RESULTS=FILE                       file with the runs, one line of JSON each
set -eu
cd "$(dirname "$0")/.."
if [ "$(id -u)" != 0 ]; then
    echo "make score: causing stalls needs root (cgroups, loop devices): run it with sudo" >&2
    exit 1
fi
FLATWATER_BIN="${FLATWATER_BIN:-$PWD/target/release/flatwater}"
export FLATWATER_BIN
exec "${CARGO:-cargo}" test -p flatwater --test flatwater ground_truth::score -- --ignored --exact --nocapture --test-threads 1
