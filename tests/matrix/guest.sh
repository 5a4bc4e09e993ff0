#!/bin/busybox sh
# The steps that each kernel of the matrix runs in its guest (booted by tests/matrix/mod.rs). Each step writes its output to a
# file in $OUT. A failed step does not stop the next one.
/bin/busybox --install -s /bin
G=/sys/fs/cgroup

# `vm exec` ends a silent guest. On a busy host a step may be silent for long, so a heartbeat prints beside it, for up to STEP_MAX_S.
STEP_MAX_S=900
heartbeat() {
    beats=0
    while [ $beats -lt $((STEP_MAX_S / 20)) ]; do
        sleep 20
        beats=$((beats + 1))
        echo "$1: running"
    done
}

# step NAME COMMAND...: the command's output becomes $OUT/NAME, its status $OUT/NAME.status
step() {
    name=$1
    shift
    heartbeat "$name" &
    beating=$!
    began=$(cut -d. -f1 /proc/uptime)
    "$@" >"$OUT/$name" 2>"$OUT/$name.log"
    status=$?
    kill $beating
    echo "$status $(($(cut -d. -f1 /proc/uptime) - began))" >"$OUT/$name.status"
    echo "$name: status $status after $(($(cut -d. -f1 /proc/uptime) - began)) s"
}

# record NAME SECONDS SCRIPT: runs a foreign program under `flatwater record`, with the report as JSON
record() {
    step "$1.json" flatwater record -t "$2" --stack-hz 0 --hz 4 -m 1ms --format json -o "/tmp/$1" -- /bin/sh -c "$3"
}

uname -r >"$OUT/release"
cat /sys/kernel/mm/lru_gen/enabled >"$OUT/lru_gen" 2>/dev/null || echo absent >"$OUT/lru_gen"

step check.json flatwater check --format json
[ "$MATRIX" = check ] && exit 0

# Page cache fills a nested group, as of a pod. The writer joins the group itself.
mkdir -p $G/pods/pod1
echo +memory >$G/pods/cgroup.subtree_control
echo 40M >$G/pods/pod1/memory.max
record memcg 6s "echo 0 >$G/pods/pod1/cgroup.procs; dd if=/dev/zero of=/work/big bs=128k count=800 2>/dev/null"
rm -f /work/big

# Small durable appends beside a program that syncs large writes.
(while :; do dd if=/dev/zero of=/work/neighbour bs=64k count=24 conv=fsync 2>/dev/null; done) &
neighbour=$!
record fsync 6s 'while :; do dd if=/dev/zero of=/work/journal bs=4k count=1 oflag=append conv=notrunc,fsync 2>/dev/null; done'
kill $neighbour
sleep 1
rm -f /work/neighbour /work/journal

# A writer whose group is limited to 2 MB/s on the device.
device=$(cat "/sys/class/block/$(grep ' /work ' /proc/mounts | cut -d' ' -f1 | sed 's,.*/,,')/dev")
mkdir -p $G/slow
echo "$device wbps=2000000" >$G/slow/io.max
record throttle 8s "echo 0 >$G/slow/cgroup.procs; dd if=/dev/zero of=/work/slow bs=256k count=32 conv=fsync 2>/dev/null"
rm -f /work/slow

cd /work || exit 1
# flatwater itself is in the group: with a limit of 40 MiB the OOM killer of 5.10 killed it.
# A guest on a busy host made only one call of the stream and 39 of the journal in 8 s, so the run lasts until the stream has
# filled the group twice. The journal appends whole pages, so that its own charges reach the limit too.
step full-cgroup.json flatwater run full-cgroup -t 8s --stack-hz 0 --set cgroup.memory_limit=72MiB --set stream.file_size=160MiB --set stream.at_least=144MiB --set journal.bytes=16KiB --set journal.interval=2ms --format json -o /tmp/full
tar cf "$OUT/full-cgroup.tar" -C /tmp/full .
# The run lasts until the stream has read 160 MiB, the size of the node that it is pinned to.
step numa-spill.json flatwater run numa-spill -t 8s --stack-hz 0 --apply --set stream.pause=0ns --format json -o /tmp/spill

# A killed run leaves a changed knob and a group. `restore` must undo both.
restore() {
    before=$(cat /proc/sys/vm/dirty_bytes)
    flatwater run full-cgroup -t 60s --stack-hz 0 --set stream.file_size=128MiB --set vm.dirty_bytes=33554432 --apply -o /tmp/killed &
    run=$!
    tries=0
    while [ "$(cat /proc/sys/vm/dirty_bytes)" = "$before" ] && [ $tries -lt 90 ]; do
        sleep 1
        tries=$((tries + 1))
    done
    during=$(cat /proc/sys/vm/dirty_bytes)
    sleep 2
    kill -9 $run
    sleep 1
    flatwater restore
    after=$(cat /proc/sys/vm/dirty_bytes)
    echo "before $before during $during after $after groups $(find $G -name '*flatwater*' | wc -l)"
    [ "$before" = "$after" ] && [ "$during" = 33554432 ] && [ "$(find $G -name '*flatwater*' | wc -l)" = 0 ]
}
step restore restore

# answers COMMAND...: repeats the command until it succeeds, because the daemon is slow to start and busy while it seals.
answers() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 60 ] || return 1
        sleep 2
    done
}

# Runs the daemon for a minute beside a program that syncs. It must answer, seal a recording on request, and end on SIGTERM.
watch() {
    mkdir -p /run/flatwater /tmp/watch
    chmod 700 /run/flatwater /tmp/watch
    cat >/tmp/watch.toml <<CONF
threshold = "5ms"
look_back = "20s"
after = "2s"
[budget]
cpu_share = 0.9
rss = "128MiB"
[store]
directory = "/tmp/watch"
size = "32MiB"
keep_free = 0.0
[metrics]
socket = "/run/flatwater/watch.sock"
[[trigger]]
name = "stall"
stall = "100ms"
CONF
    flatwater watch -c /tmp/watch.toml &
    daemon=$!
    answers flatwater watch status >/dev/null || return 1
    end=$(($(cut -d. -f1 /proc/uptime) + 60))
    while [ "$(cut -d. -f1 /proc/uptime)" -lt $end ]; do
        dd if=/dev/zero of=/work/watched bs=64k count=24 conv=fsync 2>/dev/null
    done
    answers flatwater watch status
    answers flatwater watch metrics >"$OUT/watch.metrics"
    answers flatwater watch dump >"$OUT/watch.dump"
    kill -TERM $daemon
    wait $daemon
    echo "$?" >"$OUT/watch.ended"
    grep -q '^flatwater_stalls_total.*operation="fsync"' "$OUT/watch.metrics" && [ -s "$OUT/watch.dump" ] && [ "$(cat "$OUT/watch.ended")" = 0 ]
}
step watch.json watch
exit 0
