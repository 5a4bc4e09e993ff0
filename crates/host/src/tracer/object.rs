//! The kernel side's objects: embedded at build time, given their constants, loaded.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use aya::{Btf, Ebpf, EbpfLoader, Endianness};

use super::calls::CallTables;
use super::hooks::reason;
use super::variant::{self, Means, Variant};

/// The constants that the kernel side is loaded with; the verifier then drops the code they switch off.
#[derive(Clone, Copy, Debug)]
pub struct Constants {
    /// Not 0: only our own threads.
    pub own_tgid: u32,
    pub threshold_ns: u64,
    pub target_cgroup: u64,
    /// The hierarchy that it is in; 0 is v2.
    pub target_hierarchy: u32,
}

/// How old a call must be before a sample looks at its stack. Of the calls that a sample meets nearly all are quick, and
/// the few us that a stack takes would stand among the slowest of them. What a slow call loses is no time: a sample
/// speaks for the stretch before it.
const SAMPLE_AFTER_NS: u64 = 100_000;

/// Bytes of the ring buffer. It is mapped twice and resident from the start. Where only our own threads are followed it
/// takes nothing but the pieces of calls that are too long for their slot.
const RING_BYTES_OWN: u32 = 1 << 20;
const RING_BYTES_OTHERS: u32 = 1 << 21;

/// The file that the kernel's types are read from, where the kernel has none of its own.
static TYPES: OnceLock<PathBuf> = OnceLock::new();

/// Why a file cannot stand for the kernel's own types.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} does not hold the types of a kernel: {why}; make it from that kernel's vmlinux with debug information: `pahole -J --btf_encode_detached=FILE vmlinux`", path.display()
)]
pub struct TypesError {
    path: PathBuf,
    why: String,
}

/// From now on the types of the kernel are those in this file (BTF, as in /sys/kernel/btf/vmlinux).
pub fn use_types_of(path: &Path) -> Result<(), TypesError> {
    let failed = |why: String| TypesError { path: path.to_owned(), why };
    drop(Btf::parse_file(path, Endianness::default()).map_err(|error| failed(reason(&error)))?);
    // A second file in one process would be a mistake of ours; the first stays.
    let _ = TYPES.set(path.to_owned());
    Ok(())
}

/// What the running kernel says of its types: tens of MB while it is held.
pub fn kernel_types() -> Result<Btf, String> {
    if variant::ALL.iter().all(|variant| variant.object.is_empty()) {
        return Err(
            "this flatwater was built without its kernel tracer (no clang then): install clang and build again, \
                    or build with FLATWATER_BPF_OBJECTS=<folder of prebuilt objects>"
                .to_owned(),
        );
    }
    if let Some(path) = TYPES.get() {
        return Btf::parse_file(path, Endianness::default())
            .map_err(|error| format!("the kernel's types in {}: {}", path.display(), reason(&error)));
    }
    Btf::from_sys_fs().map_err(|error| {
        format!(
            "no type information of the kernel in /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF): {}; give a file with --btf",
            reason(&error)
        )
    })
}

/// Means that are not to be tried.
pub fn without() -> Vec<Means> {
    variant::without(TYPES.get().is_some())
}

/// Maps exist and programs are known afterwards; nothing is attached yet.
pub fn load(variant: &Variant, btf: &Btf, constants: Constants, tables: &CallTables) -> Result<Ebpf, String> {
    raise_locked_memory();
    let mut loader = EbpfLoader::new();
    // Task storage is unknown to the loader's user side; we never touch it from here.
    loader.allow_unsupported_maps().btf(Some(btf));
    loader.override_global("own_tgid", &constants.own_tgid, true);
    loader.override_global("threshold_ns", &constants.threshold_ns, true);
    let sample_after_ns = SAMPLE_AFTER_NS.min(constants.threshold_ns / 4);
    loader.override_global("sample_after_ns", &sample_after_ns, true);
    loader.override_global("target_cgroup", &constants.target_cgroup, true);
    loader.override_global("target_hierarchy", &constants.target_hierarchy, true);
    loader.override_global("wanted_calls", &tables.wanted, true);
    loader.override_global("file_arg", &tables.file_arg, true);
    loader.override_global("file_arg_2", &tables.file_arg_2, true);
    loader.override_global("path_arg", &tables.path_arg, true);
    loader.override_global("map_number", &(libc::SYS_mmap as u64), true);
    loader.override_global("map_flags", &((libc::MAP_POPULATE | libc::MAP_LOCKED) as u64), true);
    loader.override_global("close_number", &(libc::SYS_close as u64), true);
    if variant.has(Means::RingBuffer) {
        loader.map_max_entries("records", if constants.own_tgid == 0 { RING_BYTES_OTHERS } else { RING_BYTES_OWN });
    }
    let rows = super::totals::rows();
    loader.override_global("row_of_call", &rows, true);
    loader.load(variant.object).map_err(|error| reason(&error))
}

/// Before 5.11 maps count as memory that their user has locked, of which 64 KiB are allowed by default. Where the limit
/// may not be raised, the kernel says so itself when a map is made.
fn raise_locked_memory() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
}
