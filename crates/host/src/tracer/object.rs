//! The kernel side's objects: embedded at build time, given their constants, loaded.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use aya::{Btf, Ebpf, EbpfLoader, Endianness};

use super::calls::CallTables;
use super::error::{Refusal, TraceError};
use super::hooks::{reason, refused};
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

/// How old a call must be before a sample takes its stack. Of the calls that a sample meets nearly all are quick, and
/// the few us that a stack takes would stand among the slowest of them. What a slow call loses is no time: a sample
/// describes the interval before it.
const SAMPLE_AFTER_NS: u64 = 100_000;

/// Bytes of the ring buffer. It is mapped twice and resident from the start. Where only our own threads are followed it
/// takes nothing but the batches of calls that are too long for their slot.
const RING_BYTES_OWN: u32 = 1 << 20;
const RING_BYTES_OTHERS: u32 = 1 << 21;

/// The kernel's types as a file gave them, where the kernel has none of its own. Read once: what was judged is what is
/// used, whatever becomes of the file meanwhile.
static TYPES: OnceLock<(PathBuf, Vec<u8>)> = OnceLock::new();
/// A kernel's types take 4 to 10 MB, those of one with all its drivers built in some 30.
const TYPES_BYTES_MAX: u64 = 256 << 20;
const OWN_TYPES: &str = "/sys/kernel/btf/vmlinux";
/// Documentation/bpf/btf.rst.
const BTF_MAGIC: u16 = 0xeb9f;

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
    let bytes = types_in(path)?;
    // A second file in one process would be a mistake of ours; the first stays.
    let _ = TYPES.set((path.to_owned(), bytes));
    Ok(())
}

/// The content of a regular file, if it is BTF and that of a kernel.
fn types_in(path: &Path) -> Result<Vec<u8>, TypesError> {
    let failed = |why: String| TypesError { path: path.to_owned(), why };
    let bytes = flatwater_safefs::read_regular(path, TYPES_BYTES_MAX).map_err(|refusal| failed(refusal.to_string()))?;
    if !bytes.starts_with(&BTF_MAGIC.to_ne_bytes()) {
        return Err(failed("it does not begin as BTF of this machine does".to_owned()));
    }
    drop(Btf::parse(&bytes, Endianness::default()).map_err(|error| failed(reason(&error)))?);
    // A module's types, and those of an empty file with a header, are BTF too.
    if memchr::memmem::find(&bytes, b"\0task_struct\0").is_none() {
        return Err(failed("there is no task_struct in it".to_owned()));
    }
    Ok(bytes)
}

/// What the running kernel says of its types: tens of MB while it is held.
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

/// Means that are not to be tried.
pub fn without() -> Vec<Means> {
    let mut means = variant::without(TYPES.get().is_some());
    if unsafe_storage().is_some() && !means.contains(&Means::TaskStorage) {
        means.push(Means::TaskStorage);
    }
    means
}

/// Why task storage is not used on this kernel, if that is so.
pub fn unsafe_storage() -> Option<Refusal> {
    static ALLOCATES: OnceLock<bool> = OnceLock::new();
    let allocates = *ALLOCATES.get_or_init(|| !std::fs::read(OWN_TYPES).is_ok_and(|types| storage_has_reserve(&types)));
    allocates.then_some(Refusal { variant: "task_storage", why: TraceError::StorageAllocates })
}

/// Whether storage of a task that has none yet comes from memory that was put aside (kernel/bpf/bpf_local_storage.c: struct
/// bpf_local_storage_map: `storage_ma`, 6.4), or is asked for without taking a lock (`use_kmalloc_nolock`, which took its place).
/// Before, bpf_map_kzalloc() asked the slab allocator wherever the hook was. From a wakeup of kswapd, which holds the lock of its wait
/// queue, that ended in wake_all_kswapds(), which waits for the same lock with interrupts off (seen on 6.1.0-56). A distribution's kernel
/// has what its number does not tell, so its types are asked.
fn storage_has_reserve(types: &[u8]) -> bool {
    [b"\0storage_ma\0".as_slice(), b"\0use_kmalloc_nolock\0"]
        .iter()
        .any(|member| memchr::memmem::find(types, member).is_some())
}

/// Maps exist and programs are known afterwards; nothing is attached yet.
pub fn load(variant: &Variant, btf: &Btf, constants: Constants, tables: &CallTables) -> Result<Ebpf, TraceError> {
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
    loader.load(variant.object).map_err(|error| refused(&error))
}

/// Before 5.11 maps count as memory that their user has locked, of which 64 KiB are allowed by default. Where the limit
/// may not be raised, the kernel says so itself when a map is made.
fn raise_locked_memory() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{storage_has_reserve, types_in};

    /// Members of struct bpf_local_storage_map in BTF's strings: of 6.1, of 6.4, and of what came after.
    #[test]
    fn task_storage_is_used_where_its_memory_was_put_aside() {
        let known = [&b"\0cache_idx\0"[..], b"\0selem_ma\0storage_ma\0bpf_ma\0", b"\0use_kmalloc_nolock\0"];
        assert_eq!(known.map(storage_has_reserve), [false, true, true]);
        assert!(!storage_has_reserve(b"\0my_storage_ma\0"), "another name's end");
    }

    #[test]
    fn only_a_regular_file_with_a_kernels_types_is_taken() {
        let place = tempfile::tempdir().expect("a directory");
        let refused = |path: &Path, word: &str| {
            let why = types_in(path).expect_err("refused").to_string();
            assert!(why.contains(word), "{}: {why}", path.display());
        };
        // Neither waits for a writer, nor reads for ever.
        let pipe = place.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a pipe");
        refused(&pipe, "a named pipe");
        refused(Path::new("/dev/zero"), "a device");
        let file = place.path().join("types");
        let given = |bytes: &[u8]| std::fs::write(&file, bytes).expect("written");
        given(b"\x7fELF");
        refused(&file, "does not begin as BTF");
        // A header alone, which the kernel's loader takes for types too.
        let header: Vec<u8> = [0x0001_eb9f_u32, 24, 0, 0, 0, 1].iter().flat_map(|word| word.to_ne_bytes()).collect();
        given(&[&header[..], &[0]].concat());
        refused(&file, "no task_struct");
    }

    /// Whatever stands in the words of a small one: an answer, never a panic, and never for long.
    #[test]
    fn types_that_lie_are_refused() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("types");
        // One struct of one member, one integer, and their names.
        let names = b"\0task_struct\0pid\0int\0";
        let types = [1_u32, 4 << 24 | 1, 4, 13, 2, 0, 17, 1 << 24, 4, 1 << 24 | 32];
        let header = [0x0001_eb9f, 24, 0, types.len() as u32 * 4, types.len() as u32 * 4, names.len() as u32];
        let words = [&header[..], &types[..]].concat();
        let write = |words: &[u32], names: &[u8]| {
            let body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            std::fs::write(&file, [&body[..], names].concat()).expect("written");
        };
        write(&words, names);
        types_in(&file).expect("a kernel's types, as far as is asked");
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
