//! What the tables of each format are about.

use flatwater_recording::About;

/// What the figures of this format are about; empty if they are about operations or tasks only.
pub fn of(format: &str) -> &'static [About] {
    use About::{Cgroups, Cpus, Devices, Fragmentation, Kills, Nodes, Reclaim, Slabs, State, Swap, Writeback};
    match format {
        "application-log" | "fio-text" => &[Devices, Writeback],
        "atop" | "top" => &[Devices, Swap, Cpus],
        "bcc-table" => &[Devices, Swap, Fragmentation, Kills],
        "blkparse" | "btt" | "fio-json" | "iotop" | "nmon" | "pidstat" | "sadf-json" | "vmstat-modes" => &[Devices],
        "bpf-histogram" | "collectl" | "dstat" | "iostat" => &[Devices, Cpus],
        "buddyinfo" => &[Fragmentation],
        "cgroup" | "container-state" => &[Cgroups, Kills],
        "cgroup-files" | "docker-stats" => &[Cgroups],
        "cpu-profile" | "folded-stacks" => &[Slabs, Reclaim, Fragmentation],
        "drsnoop" | "trace-events" => &[Reclaim],
        "free" => &[Swap],
        "informix" | "perf-lock" | "postgresql" | "slower" | "syscall-trace" | "writer-log" => &[Writeback],
        "kernel-log" => &[Kills, State],
        "meminfo" => &[Swap, Slabs, Nodes, Writeback],
        "numactl" | "numastat" => &[Nodes],
        "perf-sched" => &[Cpus],
        "pmrep" => &[Devices, Swap],
        "pressure" => &[Devices, Cgroups, Reclaim, Cpus, Writeback],
        "proc-vmstat" => &[Swap, Reclaim, Fragmentation],
        "ps" | "task-stack" => &[State],
        "sar" | "vmstat" => &[Devices, Swap, Reclaim, Cpus, Writeback],
        "settings" => &[Fragmentation, Nodes, State],
        "slabinfo" | "slabtop" => &[Slabs],
        "zoneinfo" => &[Slabs, Reclaim, Nodes],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use crate::IMPORTERS;

    #[test]
    fn most_formats_are_about_something() {
        let about = IMPORTERS.iter().filter(|importer| !super::of(importer.name).is_empty());
        assert_eq!(about.count(), COUNT, "a name above is not that of a format");
    }

    const COUNT: usize = 49;
}
