//! The kernel side's object: embedded at build time, given its constants, loaded.

use aya::{Btf, Ebpf, EbpfLoader};

use super::calls::CallTables;
use super::hooks::reason;

pub(super) static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/slow_calls.bpf.o"));

/// The constants that the kernel side is loaded with; the verifier then drops the code they switch off.
#[derive(Clone, Copy, Debug)]
pub struct Constants {
    /// Not 0: only our own threads.
    pub own_tgid: u32,
    pub threshold_ns: u64,
    pub target_cgroup: u64,
}

/// How old a call must be before a sample looks at its stack. Of the calls that a sample meets nearly all are quick, and
/// the few us that a stack takes would stand among the slowest of them. What a slow call loses is no time: a sample
/// speaks for the stretch before it.
const SAMPLE_AFTER_NS: u64 = 100_000;

/// Bytes of the ring buffer. It is mapped twice and resident from the start. Where only our own threads are followed it
/// takes nothing but the pieces of calls that are too long for their slot.
const RING_BYTES_OWN: u32 = 1 << 20;
const RING_BYTES_OTHERS: u32 = 1 << 21;

/// What the running kernel says of its types: tens of MB while it is held.
pub fn kernel_types() -> Result<Btf, String> {
    if OBJECT.is_empty() {
        return Err(
            "this flatwater was built without its kernel tracer (no clang then): install clang and build again, \
                    or build with FLATWATER_BPF_OBJECT=<prebuilt object>"
                .to_owned(),
        );
    }
    Btf::from_sys_fs().map_err(|error| {
        format!(
            "no type information of the kernel in /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF): {}",
            reason(&error)
        )
    })
}

/// Maps exist and programs are known afterwards; nothing is attached yet.
pub fn load(btf: &Btf, constants: Constants, tables: &CallTables) -> Result<Ebpf, String> {
    let mut loader = EbpfLoader::new();
    // Task storage is unknown to the loader's user side; we never touch it from here.
    loader.allow_unsupported_maps().btf(Some(btf));
    loader.override_global("own_tgid", &constants.own_tgid, true);
    loader.override_global("threshold_ns", &constants.threshold_ns, true);
    let sample_after_ns = SAMPLE_AFTER_NS.min(constants.threshold_ns / 4);
    loader.override_global("sample_after_ns", &sample_after_ns, true);
    loader.override_global("target_cgroup", &constants.target_cgroup, true);
    loader.override_global("wanted_calls", &tables.wanted, true);
    loader.override_global("file_arg", &tables.file_arg, true);
    loader.override_global("file_arg_2", &tables.file_arg_2, true);
    loader.override_global("path_arg", &tables.path_arg, true);
    loader.override_global("map_number", &(libc::SYS_mmap as u64), true);
    loader.override_global("map_flags", &((libc::MAP_POPULATE | libc::MAP_LOCKED) as u64), true);
    loader.override_global("close_number", &(libc::SYS_close as u64), true);
    loader.map_max_entries("records", if constants.own_tgid == 0 { RING_BYTES_OTHERS } else { RING_BYTES_OWN });
    let rows = super::totals::rows();
    loader.override_global("row_of_call", &rows, true);
    loader.load(OBJECT).map_err(|error| reason(&error))
}
