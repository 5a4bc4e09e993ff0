//! Reads traces of function calls and returns as slow calls. Each segment is the time that a function spent itself.
//!
//! The stack of a segment consists of the functions that were open, so the recording shows how long a call was inside a
//! function, and in which order.

mod function_graph;
mod systemtap;
pub mod tree;

pub use function_graph::IMPORTER as FUNCTION_GRAPH;
pub use systemtap::IMPORTER as SYSTEMTAP;

use super::builder::{Builder, Track};
use flatwater_recording::{Call, OpKind};
use tree::Node;

/// The task that made the call, as the trace names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Task {
    name: String,
    tid: u32,
}

/// The kind of operation that the root function of a trace performs.
#[must_use]
pub fn op_of(function: &str) -> OpKind {
    // Remove prefixes: `__x64_sys_pwrite64`, `ksys_write`, `do_sys_openat2`, `vfs_fsync_range`.
    let mut bare = function;
    for prefix in ["__x64_", "__arm64_", "__se_", "__", "do_", "ksys_", "SyS_", "SYSC_", "sys_", "vfs_", "do_"] {
        bare = bare.strip_prefix(prefix).unwrap_or(bare);
    }
    let known = [
        ("fdatasync", OpKind::Fdatasync),
        ("fsync", OpKind::Fsync),
        ("sync_write", OpKind::Write),
        ("sync_read", OpKind::Read),
        ("sync_file_range", OpKind::SyncFileRange),
        ("msync", OpKind::Msync),
        ("fallocate", OpKind::Fallocate),
        ("write", OpKind::Write),
        ("pwrite", OpKind::Write),
        ("read", OpKind::Read),
        ("pread", OpKind::Read),
        ("truncate", OpKind::Truncate),
        ("ftruncate", OpKind::Truncate),
        ("open", OpKind::Open),
        ("create", OpKind::Create),
        ("rename", OpKind::Rename),
        ("unlink", OpKind::Unlink),
        ("mkdir", OpKind::Mkdir),
        ("stat", OpKind::Stat),
        ("newstat", OpKind::Stat),
        ("page_fault", OpKind::PageFault),
        ("user_addr_fault", OpKind::PageFault),
        ("handle_mm_fault", OpKind::PageFault),
    ];
    let file_system = ["ext4_file_", "ext4_sync_", "xfs_file_", "generic_file_", "btrfs_file_", "f2fs_file_"];
    let inner = file_system.iter().find_map(|prefix| bare.strip_prefix(prefix)).unwrap_or(bare);
    let found = known.iter().find(|(name, _)| inner == *name);
    let found = found.or_else(|| known.iter().find(|(name, _)| inner.starts_with(name)));
    match found {
        Some((_, op)) => *op,
        None if inner.starts_with("aio_write") || inner.starts_with("buffered_write") => OpKind::Write,
        None if function == "ext4_sync_file" => OpKind::Fsync,
        None => OpKind::Other,
    }
}

/// Adds a call for a finished root.
fn push_call(b: &mut Builder, place: (Track, i64), task: &Task, root: &Node, damaged: bool) {
    let segments = tree::segments(root, b);
    let mut call = Call::new(op_of(&root.name), 0, root.ns, segments).by(task.tid, task.tid, task.name.as_str());
    call.damaged = damaged;
    b.call(place, call);
}

#[cfg(test)]
mod tests {
    use super::op_of;
    use flatwater_recording::OpKind;

    #[test]
    fn root_functions_determine_the_operation() {
        for (root, op) in [
            ("vfs_write", OpKind::Write),
            ("ksys_write", OpKind::Write),
            ("__x64_sys_pwrite64", OpKind::Write),
            ("SyS_write", OpKind::Write),
            ("vfs_fsync_range", OpKind::Fsync),
            ("__x64_sys_fdatasync", OpKind::Fdatasync),
            ("ext4_file_write_iter", OpKind::Write),
            ("ext4_sync_file", OpKind::Fsync),
            ("do_sys_openat2", OpKind::Open),
            ("handle_mm_fault", OpKind::PageFault),
            ("kswapd", OpKind::Other),
        ] {
            assert_eq!(op_of(root), op, "{root}");
        }
    }
}
