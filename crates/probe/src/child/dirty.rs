//! The limit of dirty pages.

use super::DirtyLimit;

/// Whether the dirty pages of the machine, or of this cgroup, are at the limit from which the kernel pauses writers.
/// False if that is not known.
pub fn is_limit_reached(own: Option<&DirtyLimit>) -> bool {
    let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap_or_default();
    is_reached(&read("/proc/vmstat".as_ref()), own.map(|own| (read(&own.stat), own.bytes)))
}

fn is_reached(vmstat: &str, own: Option<(String, u64)>) -> bool {
    let of_cgroup = own.and_then(|(stat, limit)| {
        Some(field(&stat, "file_dirty ")?.saturating_add(field(&stat, "file_writeback ")?) >= limit)
    });
    let of_machine = free_run_pages(vmstat).zip(dirty_pages(vmstat)).is_some_and(|(limit, dirty)| dirty >= limit);
    of_cgroup == Some(true) || of_machine
}

/// Below the mean of the two limits writers are not paused (mm/page-writeback.c: dirty_freerun_ceiling).
pub fn free_run_pages(vmstat: &str) -> Option<u64> {
    let both = field(vmstat, "nr_dirty_threshold ")?.checked_add(field(vmstat, "nr_dirty_background_threshold ")?)?;
    Some(both / 2)
}

fn dirty_pages(vmstat: &str) -> Option<u64> {
    field(vmstat, "nr_dirty ")?.checked_add(field(vmstat, "nr_writeback ")?)
}

/// The number behind this name at the begin of a line.
pub fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::is_reached;

    #[test]
    fn pages_under_writeback_count_and_unknown_is_not_reached() {
        let vmstat = |dirty, writeback| {
            format!(
                "nr_dirty {dirty}\nnr_writeback {writeback}\nnr_dirty_threshold 1000\n\
                 nr_dirty_background_threshold 500\n"
            )
        };
        assert!(is_reached(&vmstat(700, 50), None));
        assert!(!is_reached(&vmstat(700, 49), None));
        let own = |dirty| Some((format!("file_dirty {dirty}\nfile_writeback 96\n"), 4_096));
        assert!(is_reached(&vmstat(0, 0), own(4_000)) && !is_reached(&vmstat(0, 0), own(3_999)));
        assert!(!is_reached("", Some((String::new(), 1))));
    }
}
