#!/bin/busybox sh
# What one guest is asked about file systems, devices and cgroups of version 2 (tests/matrix/places.rs boots it once for each
# file system, which is /work). As in guest.sh each step leaves one file, and a step that fails does not stop the next.
/bin/busybox --install -s /bin
G=/sys/fs/cgroup

# record NAME SECONDS ARGUMENTS -- COMMAND...: the report as JSON, while the guest says that it is alive
record() {
    name=$1 seconds=$2
    shift 2
    (for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 20; echo "$name: running"; done) &
    beating=$!
    flatwater record -t "$seconds" --stack-hz 0 --hz 4 -m 1ms -O json -o "/tmp/$name" "$@" >"$OUT/$name.json" 2>"$OUT/$name.json.log"
    status=$?
    kill $beating
    echo "$status" >"$OUT/$name.json.status"
    echo "$name: status $status"
}

# Durable appends beside somebody who syncs a lot, both below DIRECTORY.
fsync_beside() {
    (while :; do dd if=/dev/zero of="$2/neighbour" bs=64k count=24 conv=fsync 2>/dev/null; done) &
    neighbour=$!
    record "$1" 6s -- /bin/sh -c \
        "while :; do dd if=/dev/zero of=$2/journal bs=4k count=1 oflag=append conv=notrunc,fsync 2>/dev/null; done"
    kill $neighbour
    sleep 1
    rm -f "$2/neighbour" "$2/journal"
}
fsync_beside fsync /work

mkdir -p /work/lower /work/upper /work/inner /merged
if mount -t overlay overlay -o lowerdir=/work/lower,upperdir=/work/upper,workdir=/work/inner /merged 2>"$OUT/overlay.json.log"; then
    fsync_beside overlay /merged
    umount /merged
fi

# A pod as kubelet makes it, watched from its own level; the container's task joins two levels below, and writes past memory.high.
POD=$G/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f1e2d3c.slice
mkdir -p "$POD/cri-containerd-ab12.scope"
for level in "$G" "$G/kubepods.slice" "$G/kubepods.slice/kubepods-burstable.slice" "$POD"; do
    echo +memory >"$level/cgroup.subtree_control"
done
echo 24M >"$POD/cri-containerd-ab12.scope/memory.high"
echo 96M >"$POD/memory.max"
(
    until [ -e /tmp/pod/header.json ]; do sleep 1; done
    echo 0 >"$POD/cri-containerd-ab12.scope/cgroup.procs"
    exec timeout 90 sh -c "while :; do dd if=/dev/zero of=/work/big bs=128k count=600 2>/dev/null; done"
) &
writer=$!
record pod 14s --cgroup "$POD"
cat "$POD/cri-containerd-ab12.scope/cgroup.procs" "$POD/cri-containerd-ab12.scope/memory.events" >"$OUT/pod.events"
kill $writer
rm -f /work/big

# Swap in memory: a task reads a file into a buffer that is larger than its group may be, again and again.
if [ -e /sys/block/zram0/disksize ]; then
    echo 160M >/sys/block/zram0/disksize
    mkswap /dev/zram0 >/dev/null
    swapon /dev/zram0
    mkdir -p $G/small
    dd if=/dev/urandom of=/work/random bs=1M count=20 2>/dev/null
    echo 16M >$G/small/memory.high
    record zram 20s -- /bin/sh -c \
        "echo 0 >$G/small/cgroup.procs; while :; do dd if=/work/random of=/work/copy bs=20M count=1 2>/dev/null; done"
    grep -E '^pswp' /proc/vmstat >"$OUT/zram.pswp"
    swapoff /dev/zram0
    rm -f /work/random /work/copy
fi

# A device that takes 60 ms more for each request: dm-delay over a loop device.
if [ -x /sbin/dmsetup ]; then
    dd if=/dev/zero of=/work/disk bs=1M count=48 2>/dev/null
    losetup /dev/loop0 /work/disk
    echo "0 98304 delay /dev/loop0 0 60" | dmsetup create slow 2>"$OUT/delay.json.log"
    [ -e /dev/mapper/slow ] || dmsetup mknodes
    record delay 8s -- /bin/sh -c \
        "while :; do dd if=/dev/zero of=/dev/mapper/slow bs=64k count=2 conv=notrunc,fsync 2>/dev/null; done"
    dmsetup remove slow
    losetup -d /dev/loop0
fi
exit 0
