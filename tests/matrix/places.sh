#!/bin/busybox sh
# File systems, devices and cgroup v2 in guests (tests/matrix/places.rs boots one per file system, mounted at /work). As in guest.sh
# each step leaves a file, and a failed step does not stop the next one.
/bin/busybox --install -s /bin
G=/sys/fs/cgroup

# wants STEP: whether $STEPS contains this step or `all`.
wants() {
    case " $STEPS " in
    *" $1 "* | *" all "*) return 0 ;;
    *) return 1 ;;
    esac
}

# record NAME SECONDS ARGUMENTS -- COMMAND...: records with the report as JSON, while a heartbeat prints
record() {
    name=$1 seconds=$2
    shift 2
    (for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 20; echo "$name: running"; done) &
    beating=$!
    # A command outlives its recording, and would disturb the devices of the next step.
    if [ "$1" = -- ]; then
        shift
        set -- -- timeout -s KILL "$((${seconds%s} + 2))" "$@"
    fi
    flatwater record -t "$seconds" --stack-hz 0 --hz 4 -m 1ms --format json -o "/tmp/$name" "$@" >"$OUT/$name.json" 2>"$OUT/$name.json.log"
    status=$?
    kill $beating
    echo "$status" >"$OUT/$name.json.status"
    # The whole recording, for its stacks (tests/golden/stacks).
    tar cf "$OUT/$name.tar" -C /tmp "$name"
    echo "$name: status $status"
}

# Durable appends beside a program that syncs large writes, both below DIRECTORY.
fsync_beside() {
    (while :; do dd if=/dev/zero of="$2/neighbour" bs=64k count=24 conv=fsync 2>/dev/null; done) &
    neighbour=$!
    record "$1" 6s -- /bin/sh -c \
        "while :; do dd if=/dev/zero of=$2/journal bs=4k count=1 oflag=append conv=notrunc,fsync 2>/dev/null; done"
    kill $neighbour
    sleep 1
    rm -f "$2/neighbour" "$2/journal"
}
wants fsync && fsync_beside fsync /work

mkdir -p /work/lower /work/upper /work/inner /merged
if wants overlay && mount -t overlay overlay -o lowerdir=/work/lower,upperdir=/work/upper,workdir=/work/inner /merged 2>"$OUT/overlay.json.log"; then
    fsync_beside overlay /merged
    umount /merged
fi

if wants pod; then
    # A pod as made by kubelet, recorded at its own level. The container's task joins one level below and exceeds memory.high.
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
fi

# Swapping to memory: a task repeatedly copies a file of a tmpfs through a buffer that is larger than its group's memory.high. No
# disk is involved, because on a slow disk the stall would be the disk's.
if wants zram && [ -e /sys/block/zram0/disksize ]; then
    echo 160M >/sys/block/zram0/disksize
    mkswap /dev/zram0 >/dev/null
    swapon /dev/zram0
    mkdir -p $G/small /in-memory
    mount -t tmpfs -o size=64m tmpfs /in-memory
    dd if=/dev/urandom of=/in-memory/random bs=1M count=20 2>/dev/null
    echo 16M >$G/small/memory.high
    record zram 12s -- /bin/sh -c \
        "echo 0 >$G/small/cgroup.procs; while :; do dd if=/in-memory/random of=/in-memory/copy bs=20M count=1 2>/dev/null; done"
    grep -E '^pswp' /proc/vmstat >"$OUT/zram.pswp"
    umount -l /in-memory
    swapoff /dev/zram0
fi

# A SCSI disk of 8 MiB in memory that takes 60 ms per command.
SCSI=/sys/bus/pseudo/drivers/scsi_debug
if wants scsi && [ -e $SCSI/ndelay ]; then
    echo 60000000 >$SCSI/ndelay
    tries=0
    until [ -b /dev/sda ] || [ $tries -gt 40 ]; do
        sleep 0.5
        tries=$((tries + 1))
    done
    record scsi 8s -- /bin/sh -c "while :; do dd if=/dev/zero of=/dev/sda bs=64k count=2 conv=notrunc,fsync 2>/dev/null; done"
fi

# The devices: two disks of 48 MiB on files. dm-delay adds 60 ms to each request of the first.
disk() {
    dd if=/dev/zero of="/work/disk$1" bs=1M count=48 2>/dev/null
    losetup "/dev/loop$1" "/work/disk$1"
}
made() {
    [ -e "/dev/mapper/$1" ] || dmsetup mknodes
}
# The last dd of a recording may still use the device for a few writes.
gone() {
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        dmsetup remove "$1" && return
        sleep 1
    done
}
# Durable writes to a device-mapper device.
writes_to() {
    record "$1" 8s -- /bin/sh -c \
        "while :; do dd if=/dev/zero of=/dev/mapper/$2 bs=64k count=2 conv=notrunc,fsync 2>/dev/null; done"
}
if [ -x /sbin/dmsetup ] && { wants delay || wants crypt || wants raid || wants nfs; }; then
    disk 0
    disk 1
    echo "0 98304 delay /dev/loop0 0 60" | dmsetup create slow 2>"$OUT/delay.log"
    made slow
    wants delay && writes_to delay slow

    key=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff
    if wants crypt && echo "0 98304 crypt aes-xts-plain64 $key 0 /dev/mapper/slow 0" | dmsetup create secret 2>"$OUT/crypt.json.log"; then
        made secret
        writes_to crypt secret
        gone secret
    fi

    # MD RAID 1 through the device mapper, without metadata and initial synchronisation.
    if wants raid && echo "0 98304 raid raid1 4 0 nosync region_size 1024 2 - /dev/mapper/slow - /dev/loop1" | dmsetup create mirror 2>"$OUT/raid.json.log"; then
        made mirror
        writes_to raid mirror
        gone mirror
    fi

    # An NFS server on loopback. Its answers to the kernel's upcalls (client, export, file handle) are written in advance.
    if wants nfs && /bin/busybox mke2fs /dev/mapper/slow >/dev/null 2>&1; then
        mkdir -p /srv/exported /imported
        ip link set lo up
        mount -t ext4 -o loud /dev/mapper/slow /srv/exported &&
            mount -t nfsd nfsd /proc/fs/nfsd &&
            echo 10 >/proc/fs/nfsd/nfsv4leasetime
        echo 10 >/proc/fs/nfsd/nfsv4gracetime
        echo "-2 -3 +4" >/proc/fs/nfsd/versions
        echo "nfsd 127.0.0.1 2147483647 here" >/proc/net/rpc/auth.unix.ip/channel
        echo "here /srv/exported 2147483647 9218 65534 65534 0" >/proc/net/rpc/nfsd.export/channel
        printf 'here 1 \\x00000000 2147483647 /srv/exported\n' >/proc/net/rpc/nfsd.fh/channel
        echo "tcp 2049" >/proc/fs/nfsd/portlist
        echo 2 >/proc/fs/nfsd/threads
        echo Y >/proc/fs/nfsd/v4_end_grace
        if mount -t nfs4 -o vers=4.2,addr=127.0.0.1,clientaddr=127.0.0.1,sec=sys 127.0.0.1:/ /imported 2>"$OUT/nfs.json.log"; then
            record nfs 10s -- /bin/sh -c \
                "while :; do dd if=/dev/zero of=/imported/file bs=64k count=4 conv=notrunc,fsync 2>/dev/null; done"
            umount /imported
        fi
        dmesg | tail -20 >"$OUT/nfs.dmesg"
        echo 0 >/proc/fs/nfsd/threads
        umount /srv/exported
    fi
    dmsetup remove slow
fi
exit 0
