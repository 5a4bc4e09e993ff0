#!/bin/sh
# Draws the pictures of docs/simulator.md: each case study as run by the model, with lines at the published figures.
# tools/pictures.sh [DIRECTORY [NAME ...]]: names as below (journal, bulk, sdet, graphdb, maildir); default: all.
set -eu

out=${1:-docs/pictures}
[ $# -gt 0 ] && shift
wanted=${*:-journal bulk sdet graphdb maildir}
flatwater=${FLATWATER:-target/release/flatwater}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# performed SCENARIO [OPTION ...]: runs the scenario, unless its recording exists
performed() {
    scenario=$1
    shift
    [ -d "$work/$scenario" ] || "$flatwater" run "$scenario" --on sim "$@" -o "$work/$scenario" >/dev/null 2>&1
}

# drawn FILE SCENARIO TITLE [OPTION ...]
drawn() {
    file=$1 scenario=$2 title=$3
    shift 3
    "$flatwater" report "$work/$scenario" --title "$title" "$@" -o "$out/$file.svg"
}

journal() {
    performed journal-2.6.32
    performed journal-2.6.32-zone-reclaim
    drawn sim-journal journal-2.6.32 "journal-2.6.32: slow writes, ms" --chart calls \
        --level "published: elevated to 40 ms=40"
    drawn sim-journal-remote journal-2.6.32 "journal-2.6.32: pages a second that come from the other node" \
        --chart nodes@0:numa_miss/s
    drawn sim-journal-mode1 journal-2.6.32-zone-reclaim "journal-2.6.32-zone-reclaim: slow writes, ms" --chart calls \
        --level "published: spikes of 10 ...=10" --level "... to 15 ms=15"
}

bulk() {
    performed bulk-2.6.17
    performed bulk-2.6.17-ratelimit16
    drawn sim-bulk bulk-2.6.17 "bulk-2.6.17: write() calls over 100 ms, ms" --chart calls \
        --level "published longest: 4.8 s=4806" --level "15 s=14968" --level "26 s=26000"
    drawn sim-bulk-ratelimit16 bulk-2.6.17-ratelimit16 "bulk-2.6.17-ratelimit16: the same, ms" --chart calls \
        --level "arithmetic, each for itself: 2.667 s=2667"
}

sdet() {
    performed sdet-2.2.3 -t 480s
    performed sdet-2.2.5 -t 300s
    drawn sim-sdet-buff sdet-2.2.3 "sdet-2.2.3: memory, MB" --chart "meminfo:Buffers_bytes*1e-6" \
        --chart "meminfo:MemFree_bytes*1e-6" --level "published buff at the end: 388 056 kB=397"
    drawn sim-sdet-bi sdet-2.2.3 "sdet-2.2.3: bi, KiB/s" --chart vmstat:pgpgin/s --level "published: 320 ...=320" \
        --level "... to 480=480"
    drawn sim-sdet-fixed sdet-2.2.5 "sdet-2.2.5: memory, MB" --chart "meminfo:Buffers_bytes*1e-6" \
        --chart "meminfo:MemFree_bytes*1e-6" --level "published buff: 89 232 to 91 856 kB=92"
}

graphdb() {
    performed graphdb-zone-reclaim
    drawn sim-graphdb-scan graphdb-zone-reclaim "graphdb-zone-reclaim: pages scanned a second" --log \
        --chart vmstat:pgscan_direct/s --chart vmstat:pgscan_kswapd/s --level "published, at most: 6.2 M=6222810"
    drawn sim-graphdb-calls graphdb-zone-reclaim "graphdb-zone-reclaim: slow calls, ms" --log --chart calls \
        --level "mode 0, published: 100 ...=100" --level "... to 200=200" --level "mode 1, published: to 36 s=36000"
}

maildir() {
    performed maildir-pae
    performed maildir-x86_64
    drawn sim-maildir-pae maildir-pae "maildir-pae: memory, GB" --chart "meminfo:MemFree_bytes*1e-9" \
        --chart "meminfo:Cached_bytes*1e-9" --level "published free: about 10=10" --level "published cached: 1.5=1.55"
    drawn sim-maildir-inodes maildir-pae "maildir-pae: inodes in memory" --chart slabs@reiser_inode_cache:active_objs \
        --level "published: 100 k ...=100000" --level "... to 200 k at most=200000"
    drawn sim-maildir-x86_64 maildir-x86_64 "maildir-x86_64: memory, GB" --chart "meminfo:MemFree_bytes*1e-9" \
        --chart "meminfo:Cached_bytes*1e-9" --chart "meminfo:Buffers_bytes*1e-9" \
        --level "published cached: 7.84=8.03" --level "published buffers: 1.50=1.54"
    drawn sim-maildir-x86_64-inodes maildir-x86_64 "maildir-x86_64: inodes in memory" \
        --chart slabs@reiser_inode_cache:active_objs --level "published: 2 M=2000000"
}

for name in $wanted; do
    "$name"
done
