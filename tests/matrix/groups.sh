#!/bin/busybox sh
# The scenarios that use a cgroup, in one guest (booted by tests/matrix/groups.rs): on cgroup v2 laid out as by systemd, in a
# delegated scope, and with v1 and v2 on one machine. As in guest.sh each step leaves a file.
/bin/busybox --install -s /bin
export PATH=/sbin:/bin
G=/sys/fs/cgroup
cd /work || exit 1

# run NAME WHERE SCENARIO ARGUMENTS...: runs the scenario from within the group WHERE, and lists flatwater's groups during the run
run() {
    name=$1 where=$2
    shift 2
    (
        beats=0
        while [ $beats -lt 600 ]; do
            find $G /cg1 -type d -name 'flatwater-*' 2>/dev/null
            sleep 0.3
            beats=$((beats + 1))
            [ $((beats % 60)) != 0 ] || echo "$name: running" >&2
        done
    ) >"/tmp/$name.groups" &
    beating=$!
    began=$(cut -d. -f1 /proc/uptime)
    (
        echo 0 >"$where/cgroup.procs"
        exec flatwater run "$@" -t 4s --stack-hz 0 --apply --format json -o "/tmp/$name"
    ) >"$OUT/$name.json" 2>"$OUT/$name.json.log"
    status=$?
    kill $beating
    sort -u "/tmp/$name.groups" >"$OUT/$name.groups"
    echo "$status $(($(cut -d. -f1 /proc/uptime) - began))" >"$OUT/$name.json.status"
    echo "$name: status $status after $(($(cut -d. -f1 /proc/uptime) - began)) s"
    rm -rf "/tmp/$name"
}

# v1 and v2: memory in v1, io and cpu in v2. In a separate boot ($ONLY), because v1 cannot mount the controller while pages of a v2
# group remain, and those of removed groups may remain for minutes.
if [ "$ONLY" = hybrid ]; then
    SESSION=$G/user.slice/user-0.slice/session-1.scope
    mkdir /cg1
    # The guest initially enables memory in v2.
    for group in $(find $G -name cgroup.subtree_control | sort -r); do echo -memory >"$group"; done
    tries=0
    until mount -t cgroup -o memory memory /cg1 2>"$OUT/hybrid.log" || [ $tries -gt 20 ]; do
        sleep 0.5
        tries=$((tries + 1))
    done
    if [ -e /cg1/cgroup.procs ]; then
        mkdir -p $SESSION
        for level in $G $G/user.slice $G/user.slice/user-0.slice; do echo "+io +cpu" >$level/cgroup.subtree_control; done
        run hybrid-memory $SESSION maildir --set mount.size=256MiB --set cgroup.memory_limit=96MiB --set maildir.scale=0.00005
        run hybrid-record $SESSION full-cgroup --set cgroup.memory_limit=96MiB --set stream.file_size=128MiB
    fi
    exit 0
fi

# As with systemd: slices pass the controllers on, and the processes of a session are in a scope.
SESSION=$G/user.slice/user-0.slice/session-1.scope
mkdir -p $SESSION
for level in $G $G/user.slice $G/user.slice/user-0.slice; do echo "+memory +io +cpu" >$level/cgroup.subtree_control; done
ls -R $G | grep ':$' | sort >/tmp/before
run bulk $SESSION bulk --set mount.size=256MiB --set bulk.scale=0.02
run checkpoint $SESSION checkpoint --set mount.size=128MiB --set checkpoint.data_size=16MiB
run dirty-bytes $SESSION dirty-bytes --set mount.size=256MiB --set bulk.file_size=16MiB --set vm.dirty_bytes=33554432
run dirty-slow-device $SESSION dirty-slow-device --set mount.size=256MiB --set bulk.file_size=16MiB
run graphdb $SESSION graphdb --set cgroup.memory_limit=160MiB --set graphdb.scale=0.005
run inode-churn $SESSION inode-churn --set mount.size=512MiB --set cgroup.memory_limit=96MiB --set maildir.mailboxes=10 --set stream.file_size=128MiB
run journal-neighbours $SESSION journal-neighbours --set mount.size=256MiB
run maildir $SESSION maildir --set mount.size=256MiB --set cgroup.memory_limit=96MiB --set maildir.scale=0.00005
ls -R $G | grep ':$' | sort >/tmp/after
diff /tmp/before /tmp/after >"$OUT/left"
losetup -a >>"$OUT/left"

# A delegated scope (Delegate=), whose manager is in a group below it.
SCOPE=$G/system.slice/run-1.scope
mkdir -p $SCOPE/main
for level in $G/system.slice $SCOPE; do echo "+memory +io +cpu" >$level/cgroup.subtree_control; done
run delegated $SCOPE/main full-cgroup --set cgroup.memory_limit=96MiB --set stream.file_size=128MiB
exit 0
