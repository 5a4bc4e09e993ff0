//! The files of one workload: opened on first use, shared by its actors, mapped on request.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, RwLock};

use flatwater_safefs::Dir;
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::mm::Advice;

use flatwater_workload::{DirId, FileId, OpenHow, Workload};

/// An open file. The mapping has its own lock, because graphdb replaces it by a new one.
#[derive(Debug)]
pub struct OpenFile {
    pub file: File,
    pub mapping: RwLock<Option<Arc<Mapping>>>,
}

/// A shared mapping of a file from offset 0; unmapped when its last user drops it.
#[derive(Debug)]
pub struct Mapping {
    memory: MmapRaw,
}

impl Mapping {
    pub fn new(file: &File, bytes: u64) -> io::Result<Mapping> {
        let bytes = usize::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(Mapping { memory: MmapOptions::new().len(bytes).map_raw(file)? })
    }

    /// Makes the kernel reclaim all its pages (mm/madvise.c: madvise_pageout, since 5.4).
    pub fn page_out(&self) -> io::Result<()> {
        // SAFETY: the range is the mapping's own, and the kernel reads pages of a file again when they are touched.
        Ok(unsafe { rustix::mm::madvise(self.memory.as_mut_ptr().cast(), self.memory.len(), Advice::LinuxPageOut) }?)
    }

    /// Reads (or also writes) one byte in each page of the range, clipped to the mapping. Truncating a mapped file
    /// would cause SIGBUS; no workload does that.
    pub fn touch(&self, offset_bytes: u64, bytes: u64, write: bool) {
        let page_bytes = rustix::param::page_size();
        let end = usize::try_from(offset_bytes.saturating_add(bytes)).unwrap_or(usize::MAX).min(self.memory.len());
        let mut at = usize::try_from(offset_bytes).unwrap_or(usize::MAX);
        while at < end {
            // SAFETY: `at` is below the mapping's length, and `self` keeps the mapping alive. Each access is a volatile
            // load or store of one byte; concurrent changes of the content are allowed in a shared mapping.
            unsafe {
                let place = self.memory.as_mut_ptr().add(at);
                let byte = place.read_volatile();
                if write {
                    place.write_volatile(byte.wrapping_add(1));
                }
            }
            at += page_bytes;
        }
    }
}

/// All open files of a workload. Names are resolved below the handle of a directory that only this user can write, so
/// that no other file is touched even if the path to it changes.
pub struct Files {
    root: Dir,
    workload: Arc<dyn Workload>,
    open: Mutex<HashMap<FileId, Arc<OpenFile>>>,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").field("root", &self.root.path()).finish_non_exhaustive()
    }
}

impl Files {
    #[must_use]
    pub fn new(root: Dir, workload: Arc<dyn Workload>) -> Files {
        Files { root, workload, open: Mutex::new(HashMap::new()) }
    }

    /// The path of a file, for messages.
    #[must_use]
    pub fn path(&self, file: FileId) -> PathBuf {
        self.root.path().join(self.workload.path(file))
    }

    pub fn unlink(&self, file: FileId) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.root, self.workload.path(file), AtFlags::empty())?)
    }

    pub fn stat(&self, file: FileId) -> io::Result<()> {
        rustix::fs::statat(&self.root, self.workload.path(file), AtFlags::empty())?;
        Ok(())
    }

    pub fn make_directory(&self, dir: DirId) -> io::Result<()> {
        match rustix::fs::mkdirat(&self.root, self.workload.directory_path(dir), Mode::from_raw_mode(0o700)) {
            // Several actors may try to create the same directory.
            Err(rustix::io::Errno::EXIST) => Ok(()),
            made => Ok(made?),
        }
    }

    pub fn remove_directory(&self, dir: DirId) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.root, self.workload.directory_path(dir), AtFlags::REMOVEDIR)?)
    }

    pub fn syncfs(&self) -> io::Result<()> {
        rustix::fs::syncfs(&self.root).map_err(io::Error::from)
    }

    pub fn list(&self, dir: DirId) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.root, self.workload.directory_path(dir), flags, Mode::empty())?;
        for entry in rustix::fs::Dir::new(opened)? {
            entry?;
        }
        Ok(())
    }

    fn open_at(&self, file: FileId, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.root, self.workload.path(file), flags, Mode::from_raw_mode(0o600))?;
        Ok(File::from(opened))
    }

    fn table(&self) -> std::sync::MutexGuard<'_, HashMap<FileId, Arc<OpenFile>>> {
        // A panic in another actor leaves the map consistent: each change is a single insert or remove.
        self.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    #[must_use]
    pub fn known(&self, file: FileId) -> Option<Arc<OpenFile>> {
        self.table().get(&file).cloned()
    }

    /// The open file; opens it for reading and writing, and creates it if necessary, on first use.
    pub fn get(&self, file: FileId) -> io::Result<Arc<OpenFile>> {
        if let Some(open) = self.known(file) {
            return Ok(open);
        }
        self.insert(file, self.open_at(file, OFlags::empty())?)
    }

    pub fn create(&self, file: FileId) -> io::Result<Arc<OpenFile>> {
        self.insert(file, self.open_at(file, OFlags::EXCL)?)
    }

    pub fn open(&self, file: FileId, how: OpenHow) -> io::Result<Arc<OpenFile>> {
        let mut flags = OFlags::empty();
        flags.set(OFlags::APPEND, how.append);
        flags.set(OFlags::DIRECT, how.direct);
        flags.set(OFlags::DSYNC, how.data_sync);
        self.insert(file, self.open_at(file, flags)?)
    }

    fn insert(&self, file: FileId, opened: File) -> io::Result<Arc<OpenFile>> {
        let open = Arc::new(OpenFile { file: opened, mapping: RwLock::new(None) });
        self.table().insert(file, open.clone());
        Ok(open)
    }

    /// Removes the file from the table; it is closed when its last user drops it.
    pub fn take(&self, file: FileId) -> Option<Arc<OpenFile>> {
        self.table().remove(&file)
    }

    pub fn rename(&self, from: FileId, to: FileId) -> io::Result<()> {
        rustix::fs::renameat(&self.root, self.workload.path(from), &self.root, self.workload.path(to))?;
        let mut table = self.table();
        if let Some(open) = table.remove(&from) {
            table.insert(to, open);
        }
        Ok(())
    }
}

impl OpenFile {
    fn slot(&self) -> std::sync::RwLockWriteGuard<'_, Option<Arc<Mapping>>> {
        self.mapping.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub fn map(&self, bytes: u64) -> io::Result<()> {
        let mapping = Mapping::new(&self.file, bytes)?;
        *self.slot() = Some(Arc::new(mapping));
        Ok(())
    }

    pub fn unmap(&self) {
        let old = self.slot().take();
        drop(old);
    }

    #[must_use]
    pub fn mapped(&self) -> Option<Arc<Mapping>> {
        self.mapping.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}
