//! /proc/stat: CPU time by state, for all CPUs together and each CPU, and event counters of the machine.

use super::sheet::Sheet;
use super::text::Scan;
use flatwater_recording::schema::{Column, cpu};

/// In the order of the `cpu` lines; older kernels print fewer.
const STATES: [Column; 10] = [
    cpu::USER_NS,
    cpu::NICE_NS,
    cpu::SYSTEM_NS,
    cpu::IDLE_NS,
    cpu::IOWAIT_NS,
    cpu::IRQ_NS,
    cpu::SOFTIRQ_NS,
    cpu::STEAL_NS,
    cpu::GUEST_NS,
    cpu::GUEST_NICE_NS,
];

/// Lines whose first number goes into the row `all` (`intr` and `softirq` continue with one number per source).
const COUNTERS: [(&[u8], Column); 6] = [
    (b"intr", cpu::INTR),
    (b"ctxt", cpu::CTXT),
    (b"processes", cpu::PROCESSES),
    (b"procs_running", cpu::PROCS_RUNNING),
    (b"procs_blocked", cpu::PROCS_BLOCKED),
    (b"softirq", cpu::SOFTIRQ),
];

/// Puts the machine into the row `all` and, if `each_cpu`, each CPU into its own row. Converts the kernel's ticks of
/// `tick_ns` to ns.
pub fn read(text: &[u8], at_ns: u64, tick_ns: i64, each_cpu: bool, sheet: &mut Sheet) {
    let mut scan = Scan::new(text);
    // The first lines are `cpu`, `cpu0` and so on; the counters after them belong to `all`.
    let mut counters_of_all = false;
    while !scan.is_empty() {
        let key = scan.word();
        if key.starts_with(b"cpu") {
            let name: &[u8] = if key == b"cpu" { b"all" } else { key };
            if each_cpu || key == b"cpu" {
                sheet.open(at_ns, None, name);
                times(&mut scan, tick_ns, sheet);
            }
        } else if let Some((_, column)) = COUNTERS.iter().find(|(name, _)| *name == key) {
            if !counters_of_all {
                sheet.open(at_ns, None, b"all");
                counters_of_all = true;
            }
            let value = scan.number();
            sheet.put_column("", *column, value);
        }
        scan.next_line();
    }
}

fn times(scan: &mut Scan<'_>, tick_ns: i64, sheet: &mut Sheet) {
    for state in STATES {
        let Some(ticks) = scan.number() else { return };
        sheet.put_column("", state, Some(ticks.saturating_mul(tick_ns)));
    }
}

/// Steal time of all CPUs, ns; `None` if the kernel does not count it.
#[must_use]
pub fn steal_ns(text: &[u8], tick_ns: i64) -> Option<u64> {
    let mut scan = Scan::new(text);
    if scan.word() != b"cpu" {
        return None;
    }
    let steal = (0..8).map(|_| scan.number()).last().flatten()?;
    u64::try_from(steal.saturating_mul(tick_ns)).ok()
}

#[cfg(test)]
mod tests {
    use super::{read, steal_ns};
    use crate::proc::sheet::{Filled, Sheet};
    use flatwater_recording::{Entity, Table};

    const TEXT: &str = "\
cpu  50 1 8 19 10 0 8 78 0 0
cpu0 24 0 3 10 9 0 1 37 0 0
cpu1 26 1 5 9 1 0 7 41 0 0
intr 441850 0 0 123
ctxt 609031
btime 1795247920
processes 13321
procs_running 2
procs_blocked 1
softirq 281570 0 31544
";

    #[test]
    fn times_are_ns_and_counters_belong_to_the_machine() {
        let mut sheet = Sheet::new(Table::Cpu);
        for at_ns in [1, 2] {
            read(TEXT.as_bytes(), at_ns, 10_000_000, true, &mut sheet);
        }
        read(TEXT.as_bytes(), 3, 10_000_000, false, &mut sheet);
        let mut filled = Filled::default();
        sheet.swap(&mut filled);
        let series = sheet.series(&filled);
        assert_eq!(series.len(), 7);
        let all = series.rows_of(&Entity::named("all")).expect("rows");
        for (column, value) in [
            ("user_ns", 500_000_000),
            ("steal_ns", 780_000_000),
            ("intr", 441_850),
            ("ctxt", 609_031),
            ("procs_blocked", 1),
        ] {
            assert_eq!(all.values(column).collect::<Vec<_>>(), [(1, value), (2, value), (3, value)], "{column}");
        }
        let second = series.rows_of(&Entity::named("cpu1")).expect("rows");
        assert_eq!((second.last("steal_ns"), second.last("ctxt")), (Some(410_000_000), None));
        assert!(series.column("btime").is_none());
    }

    #[test]
    fn kernels_before_steal_have_none() {
        assert_eq!(steal_ns(TEXT.as_bytes(), 10_000_000), Some(780_000_000));
        assert_eq!(steal_ns(b"cpu  50 1 8 19 10 0 8\n", 10_000_000), None);
        assert_eq!(steal_ns(b"", 10_000_000), None);
    }
}
