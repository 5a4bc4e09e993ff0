#!/bin/busybox sh
# The guard on cgroup v2 (booted by tests/matrix/guard.rs): every limit ends, and a neighbour on another partition is limited.
/bin/busybox --install -s /bin
export PATH=/sbin:/bin:/usr/sbin:/usr/bin
G=/sys/fs/cgroup
cd / || exit 1
(
    beats=0
    while [ $beats -lt 150 ]; do
        sleep 15
        beats=$((beats + 1))
        echo "guard: running" >&2
    done
) &
beating=$!
now() { cut -d' ' -f1 /proc/uptime; }
since() { awk "BEGIN { print $(now) - $1 }"; }

disk=$(grep ' /work ' /proc/mounts | cut -d' ' -f1)
umount /work
dd if=/table of="$disk" bs=512 count=1 conv=fsync 2>/dev/null
blockdev --rereadpt "$disk"
sleep 1
mkdir -p /db /jobs
case $disk in
*[0-9]) part=${disk}p ;;
*) part=$disk ;;
esac
for each in "1 /db" "2 /jobs"; do
    mkfs.ext4 -q -F "$part${each% *}" && mount -t ext4 "$part${each% *}" "${each#* }" || exit 1
done
number=$(cat "/sys/class/block/${disk##*/}/dev")
echo "+memory +io +cpu" >$G/cgroup.subtree_control
mkdir -p $G/db $G/jobs/backup
echo "+memory +io +cpu" >$G/jobs/cgroup.subtree_control

# limit_of GROUP: the write limit, or `none`
limit_of() { grep "^$number " "$G$1/io.max" 2>/dev/null | tr ' ' '\n' | grep '^wbps=' | grep -v max || echo none; }
order() { echo "{\"apply\":{\"action\":{\"group\":\"$1\",\"setting\":{\"io-max\":{\"device\":{\"major\":${number%:*},\"minor\":${number#*:}},\"direction\":\"write\",\"bytes_per_s\":1048576}}},\"lease_ns\":5000000000}}"; }

# daemon GROUP NAME: in the daemon's place: a limit, and a renewal each second
daemon() {
    mkfifo "/tmp/$2"
    flatwater __lease <"/tmp/$2" >"/tmp/$2.out" &
    echo $! >"/tmp/$2.lease"
    exec 3>"/tmp/$2"
    order "$1" >&3
    while sleep 1; do echo '"renew"' >&3; done
}

# kill_one NUMBER HOW AFTER: ends a daemon after this time, and measures until its limit is gone
kill_one() {
    group=/jobs/kill$1
    mkdir -p $G$group
    daemon "$group" "kill$1" &
    pid=$!
    tries=0
    while [ "$(limit_of "$group")" = none ] && [ $tries -lt 600 ]; do
        usleep 100000
        tries=$((tries + 1))
    done
    [ "$(limit_of "$group")" = none ] && { echo "$2 -1"; return; }
    usleep "$3"
    kill "-$2" $pid
    began=$(now)
    while [ "$(limit_of "$group")" != none ] && [ "$(since "$began" | cut -d. -f1)" -lt 30 ]; do usleep 100000; done
    echo "$2 $(since "$began")"
    kill -9 $pid 2>/dev/null
}

round=0
while [ $round -lt ${KILL_ROUNDS:-6} ]; do
    waiting=
    for each in 1 2 3 4 5 6 7 8 9 10; do
        id=$((round * 10 + each))
        how=KILL
        [ $((id % 2)) = 0 ] || how=STOP
        kill_one $id $how $((id * 97001 % 4000000)) >"/tmp/time$id" &
        waiting="$waiting $!"
    done
    wait $waiting
    round=$((round + 1))
    echo "kills: round $round"
done
cat /tmp/time* >"$OUT/kills"

# Another program changes the value: it stays.
daemon /jobs/kill1 foreign &
pid=$!
tries=0
while [ "$(limit_of /jobs/kill1)" = none ] && [ $tries -lt 100 ]; do sleep 0.2; tries=$((tries + 1)); done
echo "$number wbps=7340032" >$G/jobs/kill1/io.max
sleep 2
kill -9 $pid
sleep 7
echo "foreign $(limit_of /jobs/kill1)" >>"$OUT/values"
# A value from before: it is not replaced.
echo "$number wbps=9437184" >$G/jobs/kill2/io.max
daemon /jobs/kill2 before &
pid=$!
sleep 4
kill -9 $pid
sleep 2
echo "foreign-before $(limit_of /jobs/kill2)" >>"$OUT/values"
# The group is removed while it is limited.
daemon /jobs/kill3 gone &
pid=$!
sleep 3
rmdir $G/jobs/kill3
sleep 2
kill -9 $pid
sleep 3
grep -q '"gone"' /tmp/gone.out && echo "removed-group ended" >>"$OUT/values"
# Both processes are killed: the journal knows the limit.
daemon /jobs/kill4 both &
pid=$!
sleep 4
kill -9 $pid "$(cat /tmp/both.lease)"
sleep 1
echo "both-killed $(limit_of /jobs/kill4)" >>"$OUT/values"
flatwater restore >"$OUT/restore" 2>&1
echo "restored $(limit_of /jobs/kill4)" >>"$OUT/values"

# victim NAME SECONDS: fsyncs in /db, ten a second
victim() {
    (
        echo 0 >$G/db/cgroup.procs
        exec fio --name=v --directory=/db --filename=journal --size=64k --rw=write --bs=4k --fsync=1 --time_based --runtime="$2" \
            --thinktime=50000 --output-format=json --eta=never >"$OUT/$1.json" 2>"$OUT/$1.log"
    )
}
# neighbour FILE: a stream of large writes from /jobs/backup
neighbour() {
    (
        echo 0 >$G/jobs/backup/cgroup.procs
        while :; do dd if=/dev/zero of="$1" bs=4M count=75 oflag=direct conv=notrunc 2>/dev/null; done
    ) &
    stream=$!
}
stop_neighbour() {
    for pid in $(cat $G/jobs/backup/cgroup.procs); do kill -9 $pid 2>/dev/null; done
    sync
}
# watch: a daemon that may limit /jobs/* for /db
watch() {
    mkdir -p /run/flatwater /tmp/watch
    chmod 700 /run/flatwater /tmp/watch
    cat >/tmp/watch.toml <<CONF
look_back = "60s"
after = "5s"
[budget]
cpu_share = 1.0
rss = "256MiB"
look_back = "64MiB"
[store]
directory = "/tmp/watch"
size = "64MiB"
keep_free = 0.0
[metrics]
socket = "/run/flatwater/watch.sock"
[[trigger]]
stall = "60s"
[guard]
mode = "act"
victims = ["/db"]
allow = ["/jobs/*"]
CONF
    flatwater watch -c /tmp/watch.toml 2>>"$OUT/watch.log" &
    watching=$!
    tries=0
    until flatwater watch -c /tmp/watch.toml status >/dev/null 2>&1 || [ $tries -gt 120 ]; do sleep 1; tries=$((tries + 1)); done
}
guard() { flatwater guard -c /tmp/watch.toml "$@"; }

victim alone 12
neighbour /jobs/big
sleep 5
victim beside 15
watch
victim trial 200 &
trial=$!
began=$(now)
while ! guard list | grep -q 'in force.*, proven'; do
    sleep 2
    [ "$(since "$began" | cut -d. -f1)" -lt 190 ] || break
done
since "$began" >"$OUT/proven"
kill -9 $trial 2>/dev/null
for pid in $(cat $G/db/cgroup.procs); do kill -9 $pid 2>/dev/null; done
victim limited 15
guard list >"$OUT/list"
guard list --format json >"$OUT/list.json"
guard show 1 >"$OUT/show" 2>&1
flatwater watch -c /tmp/watch.toml metrics | grep guard >"$OUT/guard.metrics"
kill -9 $watching
began=$(now)
while [ "$(limit_of /jobs/backup)" != none ] && [ "$(since "$began" | cut -d. -f1)" -lt 30 ]; do usleep 100000; done
echo "daemon $(since "$began")" >>"$OUT/kills"
stop_neighbour

# The neighbour writes to the victim's file system.
neighbour /db/big
watch
victim shared 40
guard list >"$OUT/shared"
guard list --format json >"$OUT/shared.state"
cp "$OUT/shared.json" "$OUT/shared.fio"
cp "$OUT/shared.state" "$OUT/shared.json"
kill -TERM $watching
stop_neighbour
kill $beating
exit 0
