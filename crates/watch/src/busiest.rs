//! Finds the process that spent most time in the kernel between two moments: the kernel does not count the system calls
//! of a process, and the hooks count those of the machine.

use std::collections::HashMap;
use std::fs;

use flatwater_host::proc::text;

/// Time in the kernel so far, in clock ticks, by process. Kernel threads are left out.
#[derive(Debug, Default)]
pub struct KernelTime(HashMap<u32, u64>);

impl KernelTime {
    /// Reads it for each process that can be read.
    #[must_use]
    pub fn read() -> KernelTime {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        KernelTime(pids.filter_map(|pid| Some((pid, ticks(&text::read(format!("/proc/{pid}/stat")).ok()?)?))).collect())
    }

    /// The process whose time rose most; `None` if none rose.
    #[must_use]
    pub fn busiest_since(&self, before: &KernelTime) -> Option<u32> {
        let rise = |(pid, now): (&u32, &u64)| (*pid, now.saturating_sub(before.0.get(pid).copied().unwrap_or(0)));
        let all = self.0.iter().map(rise).filter(|(_, rise)| *rise > 0);
        all.max_by_key(|(pid, rise)| (*rise, *pid)).map(|(pid, _)| pid)
    }
}

/// `stime` of /proc/PID/stat (proc(5)); `None` for a kernel thread. The name may contain spaces and parentheses.
fn ticks(stat: &str) -> Option<u64> {
    const KTHREADD: &str = "2";
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if fields.get(1) == Some(&KTHREADD) {
        return None;
    }
    fields.get(12)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{KernelTime, ticks};

    #[test]
    fn the_process_whose_time_in_the_kernel_rose_most_is_found() {
        let time = |all: &[(u32, u64)]| KernelTime(all.iter().copied().collect());
        let before = time(&[(1, 900), (7, 10), (8, 50)]);
        assert_eq!(time(&[(1, 905), (7, 90), (8, 50), (9, 30)]).busiest_since(&before), Some(7));
        assert_eq!(before.busiest_since(&before), None);
        assert!(KernelTime::read().0.contains_key(&std::process::id()));
    }

    #[test]
    fn a_name_with_parentheses_is_one_field_and_kernel_threads_are_left_out() {
        let rest = "S 1 7 7 0 -1 4194560 1 0 0 0 11 22 0 0 20 0 1 0 5";
        assert_eq!(ticks(&format!("7 (evil) R 1 2) {rest}")), Some(22));
        assert_eq!(ticks(&format!("7 (kworker/0:1) {}", rest.replacen("S 1", "I 2", 1))), None);
        assert_eq!(ticks(""), None);
    }
}
