//! Loads the BPF objects that build.rs embeds, with their constants.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use aya::{Btf, Ebpf, EbpfLoader, Endianness};

use super::calls::CallTables;
use super::error::{Refusal, TraceError};
use super::hooks::{reason, refused};
use super::variant::{self, Means, Variant};

/// Constants for the BPF programs; the verifier drops the code that they switch off.
#[derive(Clone, Copy, Debug)]
pub struct Constants {
    /// If not 0, only threads of this process are traced.
    pub own_tgid: u32,
    pub threshold_ns: u64,
    pub target_cgroup: u64,
    /// The hierarchy of `target_cgroup`; 0 is v2.
    pub target_hierarchy: u32,
    /// Whether calls are counted for imitation (bpf/profile.h).
    pub profile: bool,
}

/// A sample takes a stack only in calls at least this old. Most sampled calls are short, and the few microseconds that
/// a stack takes would make them some of the slowest. Slow calls lose no time, because a sample describes the interval
/// before it.
const SAMPLE_AFTER_NS: u64 = 100_000;

/// Size of the ring buffer. It is mapped twice and stays resident. If only own threads are traced, it carries nothing
/// but the batches of calls that are too long for their slot.
const RING_BYTES_OWN: u32 = 1 << 20;
const RING_BYTES_OTHERS: u32 = 1 << 21;

/// BTF of the kernel from a file, for kernels without their own. Read once, so that the checked bytes are the ones
/// used, even if the file changes.
static TYPES: OnceLock<(PathBuf, Vec<u8>)> = OnceLock::new();
/// The BTF of a kernel takes 4 to 10 MB, with all drivers built in some 30 MB.
const TYPES_BYTES_MAX: u64 = 256 << 20;
const OWN_TYPES: &str = "/sys/kernel/btf/vmlinux";
/// Documentation/bpf/btf.rst.
const BTF_MAGIC: u16 = 0xeb9f;

/// Why a file cannot be used as the kernel's BTF.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} does not hold the types of a kernel: {why}; make it from that kernel's vmlinux with debug information: `pahole -J --btf_encode_detached=FILE vmlinux`", path.display()
)]
pub struct TypesError {
    path: PathBuf,
    why: String,
}

/// Makes the tracer use the BTF in this file (format as in /sys/kernel/btf/vmlinux).
pub fn use_types_of(path: &Path) -> Result<(), TypesError> {
    let bytes = types_in(path)?;
    // Calling this twice is a bug; the first file stays in use.
    let _ = TYPES.set((path.to_owned(), bytes));
    Ok(())
}

/// Reads a regular file and checks that it is the BTF of a kernel.
fn types_in(path: &Path) -> Result<Vec<u8>, TypesError> {
    let failed = |why: String| TypesError { path: path.to_owned(), why };
    let bytes = flatwater_safefs::read_regular(path, TYPES_BYTES_MAX).map_err(|refusal| failed(refusal.to_string()))?;
    if !bytes.starts_with(&BTF_MAGIC.to_ne_bytes()) {
        return Err(failed("it does not begin with the BTF magic number in this machine's byte order".to_owned()));
    }
    drop(Btf::parse(&bytes, Endianness::default()).map_err(|error| failed(reason(&error)))?);
    // The BTF of a module, or of a header without types, parses as well.
    if memchr::memmem::find(&bytes, b"\0task_struct\0").is_none() {
        return Err(failed("it has no task_struct".to_owned()));
    }
    Ok(bytes)
}

/// The types of the running kernel; takes tens of MB until dropped.
pub fn kernel_types() -> Result<Btf, TraceError> {
    if variant::ALL.iter().all(|variant| variant.object.is_empty()) {
        return Err(TraceError::NotBuilt);
    }
    if let Some((path, bytes)) = TYPES.get() {
        return Btf::parse(bytes, Endianness::default())
            .map_err(|error| TraceError::TypesFile { path: path.clone(), why: reason(&error) });
    }
    Btf::from_sys_fs().map_err(|error| TraceError::NoTypes { why: reason(&error) })
}

/// Means that must not be tried.
pub fn without() -> Vec<Means> {
    let mut means = variant::without(TYPES.get().is_some());
    if unsafe_storage().is_some() && !means.contains(&Means::TaskStorage) {
        means.push(Means::TaskStorage);
    }
    means
}

/// Why task storage is not used on this kernel; `None` if it is safe.
pub fn unsafe_storage() -> Option<Refusal> {
    static ALLOCATES: OnceLock<bool> = OnceLock::new();
    let allocates = *ALLOCATES.get_or_init(|| !std::fs::read(OWN_TYPES).is_ok_and(|types| storage_has_reserve(&types)));
    allocates.then_some(Refusal { variant: "task_storage", why: TraceError::StorageAllocates })
}

/// Whether creating the storage of a task is safe in any hook: its memory is preallocated
/// (kernel/bpf/bpf_local_storage.c: struct bpf_local_storage_map: `storage_ma`, 6.4) or allocated without a lock
/// (`use_kmalloc_nolock`, its successor). Before, bpf_map_kzalloc() called the slab allocator wherever the hook ran. In
/// a wakeup of kswapd, which holds its wait queue's lock, the allocation reached wake_all_kswapds(), which spins
/// on the same lock with interrupts off (seen on 6.1.0-56). Distribution kernels backport such changes, so the types
/// are checked instead of the version.
fn storage_has_reserve(types: &[u8]) -> bool {
    [b"\0storage_ma\0".as_slice(), b"\0use_kmalloc_nolock\0"]
        .iter()
        .any(|member| memchr::memmem::find(types, member).is_some())
}

/// Loads a variant: creates its maps and makes its programs known. Attaches nothing.
pub fn load(variant: &Variant, btf: &Btf, constants: Constants, tables: &CallTables) -> Result<Ebpf, TraceError> {
    raise_locked_memory();
    let mut loader = EbpfLoader::new();
    // The loader's user side does not know task storage; user space never accesses it.
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
    let profile_calls = u32::from(constants.profile);
    loader.override_global("profile_calls", &profile_calls, true);
    let (kinds, offsets) = super::profile::tables();
    loader.override_global("profile_kind_of", &kinds, true);
    loader.override_global("profile_offset_of", &offsets, true);
    if !constants.profile {
        // The maps are preallocated.
        loader.map_max_entries("profiles", 1).map_max_entries("profile_files", 1).map_max_entries("parents", 64);
    }
    let rows = super::totals::rows();
    loader.override_global("row_of_call", &rows, true);
    loader.load(&variant.object.elf()).map_err(|error| refused(&error))
}

/// Raises the limit of locked memory. Before 5.11 maps count against it, and it is 64 KiB by default. If raising it
/// fails, creating a map fails with the kernel's own message.
fn raise_locked_memory() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{storage_has_reserve, types_in};

    /// BTF strings with members of struct bpf_local_storage_map: of 6.1, of 6.4, and of a later kernel.
    #[test]
    fn task_storage_is_used_only_if_it_does_not_allocate_under_locks() {
        let known = [&b"\0cache_idx\0"[..], b"\0selem_ma\0storage_ma\0bpf_ma\0", b"\0use_kmalloc_nolock\0"];
        assert_eq!(known.map(storage_has_reserve), [false, true, true]);
        assert!(!storage_has_reserve(b"\0my_storage_ma\0"), "the end of another name");
    }

    #[test]
    fn only_a_regular_file_with_kernel_btf_is_accepted() {
        let place = tempfile::tempdir().expect("a directory");
        let refused = |path: &Path, word: &str| {
            let why = types_in(path).expect_err("refused").to_string();
            assert!(why.contains(word), "{}: {why}", path.display());
        };
        // Opening must not wait for a writer, and reading must end.
        let pipe = place.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a pipe");
        refused(&pipe, "a named pipe");
        refused(Path::new("/dev/zero"), "a device");
        let file = place.path().join("types");
        let given = |bytes: &[u8]| std::fs::write(&file, bytes).expect("written");
        given(b"\x7fELF");
        refused(&file, "BTF magic");
        // A header without types, which the loader accepts as BTF.
        let header: Vec<u8> = [0x0001_eb9f_u32, 24, 0, 0, 0, 1].iter().flat_map(|word| word.to_ne_bytes()).collect();
        given(&[&header[..], &[0]].concat());
        refused(&file, "no task_struct");
    }

    /// Corrupted BTF must be refused or accepted, without a panic or a long loop.
    #[test]
    fn corrupted_btf_is_refused() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("types");
        // One struct with one member, one integer, and their names.
        let names = b"\0task_struct\0pid\0int\0";
        let types = [1_u32, 4 << 24 | 1, 4, 13, 2, 0, 17, 1 << 24, 4, 1 << 24 | 32];
        let header = [0x0001_eb9f, 24, 0, types.len() as u32 * 4, types.len() as u32 * 4, names.len() as u32];
        let words = [&header[..], &types[..]].concat();
        let write = |words: &[u32], names: &[u8]| {
            let body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            std::fs::write(&file, [&body[..], names].concat()).expect("written");
        };
        write(&words, names);
        types_in(&file).expect("it has the checked names");
        let mut refused = 0;
        for at in 0..words.len() {
            for lie in [0, 1, 0x7fff_ffff, 0xffff_fffc, u32::MAX, words[at] ^ 1, words[at].swap_bytes()] {
                let mut words = words.clone();
                words[at] = lie;
                write(&words, names);
                refused += usize::from(types_in(&file).is_err());
            }
        }
        for length in 0..names.len() {
            write(&words, &names[..length]);
            refused += usize::from(types_in(&file).is_err());
        }
        assert!(refused > 40, "{refused}");
    }
}
