//! Reads files of /proc and /sys, single or in a series with times between them.

mod buddyinfo;
mod cgroup_files;
mod flat;
mod io_max;
mod io_stat;
mod meminfo;
mod pressure;
mod slabinfo;
mod zoneinfo;

pub use buddyinfo::IMPORTER as BUDDYINFO;
use cgroup_files::without_remark;
pub use cgroup_files::{IMPORTER as CGROUP_FILES, cgroup_file};
pub use flat::{CGROUP, VMSTAT_FILE};
pub use io_max::IMPORTER as IO_MAX;
pub use io_stat::IMPORTER as IO_STAT;
pub use meminfo::IMPORTER as MEMINFO;
pub use pressure::IMPORTER as PRESSURE;
pub use slabinfo::IMPORTER as SLABINFO;
pub use zoneinfo::ZONEINFO;

/// Splits `/proc/pressure/io:some avg10=...` (output of `grep . FILE...`) into path and line. The path is empty if
/// there is none.
pub(super) fn without_path(text: &str) -> (&str, &str) {
    if !text.starts_with('/') {
        return ("", text);
    }
    text.split_once(':').filter(|(path, _)| !path.contains(' ')).unwrap_or(("", text))
}
