//! The guest's initramfs and disks.
//!
//! The binary packs itself and the shared objects that it uses (from /proc/self/maps); a static build packs only
//! itself. No second build has to be kept in sync.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;

use flatwater_safefs::Dir;

use super::arch::Arch;
use super::cpio::Writer;
use super::kernel::Kernel;
use super::qemu::Machine;
use super::{Carried, Job, VmError, modules, unprivileged};

/// Path of the job in the guest.
pub const JOB_PATH: &str = "/job.json";
/// Size of the disk for the recording; the file is sparse.
const OUT_BYTES: u64 = 2 << 30;

/// Files for QEMU.
#[derive(Debug)]
pub struct Prepared {
    pub arch: Arch,
    /// Release of the kernel, for messages.
    pub release: String,
    pub kernel: PathBuf,
    pub initramfs: PathBuf,
    pub disk: PathBuf,
    pub out_path: PathBuf,
    /// The disk for the recording, as created. It is read through this handle, so that it is the same file.
    pub out: File,
}

pub fn prepare(
    job: &Job,
    kernel: &Kernel,
    work: &Dir,
    machine: &Machine,
    carried: &Carried,
) -> Result<Prepared, VmError> {
    let mut job = job.clone();
    job.file_system.clone_from(&machine.file_system);
    let mut needed: Vec<PathBuf> = Vec::new();
    // Some kernels have only ext4 built in: any other file system needs a module.
    if kernel.modules.is_none() && machine.file_system != "ext4" {
        let modules = format!("lib/modules/{} beside {}", kernel.release, kernel.image.display());
        return Err(VmError::MissingModule { module: machine.file_system.clone(), modules });
    }
    if let Some(folder) = &kernel.modules {
        // ext4, jbd2 and nvme are built into Debian's cloud kernel; in other kernels they may be modules.
        let asked = carried.modules.iter().map(String::as_str);
        for name in ["nvme", machine.file_system.as_str()].into_iter().chain(asked) {
            match modules::chain(folder, name) {
                Ok(chain) => chain.into_iter().for_each(|path| {
                    if !needed.contains(&path) {
                        needed.push(path);
                    }
                }),
                Err(error) if !matches!(name, "nvme" | "ext4") => return Err(error),
                Err(_) => {}
            }
        }
    }
    job.modules = needed.iter().map(|path| format!("/modules/{}", modules::plain_name(path))).collect();
    let made = |name: &str| work.create(name).map_err(|refusal| VmError::prepare(name)(refusal.into()));
    let given = |name: &str, file: &File| unprivileged::give(file).map_err(VmError::prepare(name));
    let initramfs = made("initramfs")?;
    write_archive(&job, &needed, work, &initramfs, carried)?;
    given("initramfs", &initramfs)?;
    let disk = made("disk")?;
    let disk_path = work.path().join("disk");
    make_disk(&disk, &disk_path, machine)?;
    given("disk", &disk)?;
    let out = made("out")?;
    out.set_len(OUT_BYTES).map_err(VmError::prepare("the disk for the recording"))?;
    given("out", &out)?;
    let (initramfs, out_path) = (work.path().join("initramfs"), work.path().join("out"));
    let (arch, release, image) = (kernel.arch, kernel.release.clone(), kernel_for(kernel, work)?);
    Ok(Prepared { arch, release, kernel: image, initramfs, disk: disk_path, out_path, out })
}

/// A copy of the kernel image that QEMU can read: the cache is accessible only to us.
fn kernel_for(kernel: &Kernel, work: &Dir) -> Result<PathBuf, VmError> {
    let failed = || VmError::prepare(format!("a copy of {}", kernel.image.display()));
    let mut from = File::open(&kernel.image).map_err(failed())?;
    let mut to = work.create("kernel").map_err(|refusal| failed()(refusal.into()))?;
    std::io::copy(&mut from, &mut to).map_err(failed())?;
    unprivileged::give(&to).map_err(failed())?;
    Ok(work.path().join("kernel"))
}

/// Maximum size of a file to carry. The guest has two copies in memory while it boots.
const CARRIED_BYTES_MAX: u64 = 1 << 30;

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn write_archive(job: &Job, needed: &[PathBuf], work: &Dir, to: &File, carried: &Carried) -> Result<(), VmError> {
    let failed = || VmError::prepare("the initramfs");
    let mut archive = Writer::new(BufWriter::new(to));
    let mut folders = BTreeSet::new();
    for folder in ["dev", "proc", "sys", "tmp", "run", "work", "out", "modules", "var", "var/lib", "var/tmp", "root"] {
        folders.insert(folder.to_owned());
        archive.directory(folder).map_err(failed())?;
    }
    let own = match &carried.init {
        Some(path) => whole(path)?,
        None => stripped_self(work.path())?,
    };
    archive.file("init", 0o755, &own).map_err(failed())?;
    let mut above = |archive: &mut Writer<BufWriter<&File>>, name: &str| {
        for (end, _) in name.match_indices('/') {
            if folders.insert(name[..end].to_owned()) {
                archive.directory(&name[..end])?;
            }
        }
        Ok::<(), std::io::Error>(())
    };
    // Another binary than ours must be static, because only our own process can list its shared objects.
    let libraries = if carried.init.is_some() { Ok(Vec::new()) } else { loaded_libraries() };
    for library in libraries.map_err(VmError::prepare("the list of flatwater's shared objects"))? {
        let content = fs::read(&library).map_err(VmError::prepare(library.display().to_string()))?;
        let name = library.to_string_lossy().trim_start_matches('/').to_owned();
        above(&mut archive, &name).map_err(failed())?;
        archive.file(&name, 0o755, &content).map_err(failed())?;
        // The path of the ELF interpreter (/lib64/...) is often a symbolic link.
        if name.contains("ld-linux") {
            let link = format!("lib64/{}", file_name(&library));
            above(&mut archive, &link).map_err(failed())?;
            archive.symlink(&link, &format!("/{name}")).map_err(failed())?;
        }
    }
    for (from, to) in &carried.files {
        let content = whole(from)?;
        let name = to.trim_start_matches('/');
        above(&mut archive, name).map_err(failed())?;
        archive.file(name, 0o755, &content).map_err(failed())?;
    }
    for module in needed {
        let content = modules::content(module)?;
        archive.file(&format!("modules/{}", modules::plain_name(module)), 0o644, &content).map_err(failed())?;
    }
    let text = serde_json::to_vec(job).map_err(|error| VmError::prepare("the job")(error.into()))?;
    archive.file(JOB_PATH.trim_start_matches('/'), 0o644, &text).map_err(failed())?;
    archive.finish().map(|_| ()).map_err(failed())
}

/// Content of a file for the guest. Refuses pipes, which would block, and devices, which may be endless.
fn whole(path: &Path) -> Result<Vec<u8>, VmError> {
    let read = flatwater_safefs::read_regular(path, CARRIED_BYTES_MAX);
    read.map_err(|refusal| VmError::prepare(path.display().to_string())(refusal.into()))
}

/// Our own executable, without debug information if `strip` is installed: a guest with a few hundred MiB keeps its
/// initramfs in memory permanently.
fn stripped_self(work: &Path) -> Result<Vec<u8>, VmError> {
    // Resolved here, because /proc/self/exe would be `strip` in the child.
    let own = fs::read_link("/proc/self/exe").map_err(VmError::prepare("the path of flatwater's executable"))?;
    let stripped = work.join("stripped");
    for strip in ["strip", "llvm-strip"] {
        let done = Command::new(strip).arg("-o").arg(&stripped).arg(&own).output();
        if done.is_ok_and(|done| done.status.success())
            && let Ok(content) = fs::read(&stripped)
        {
            let _ = fs::remove_file(&stripped);
            return Ok(content);
        }
    }
    fs::read(own).map_err(VmError::prepare("flatwater's executable"))
}

/// Shared objects mapped executable into this process, each once; empty for a static build.
fn loaded_libraries() -> std::io::Result<Vec<PathBuf>> {
    let own = fs::read_link("/proc/self/exe")?;
    let maps = fs::read_to_string("/proc/self/maps")?;
    let paths = maps.lines().filter(|line| line.split_whitespace().nth(1).is_some_and(|mode| mode.contains('x')));
    let paths = paths.filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])));
    let unique: BTreeSet<PathBuf> = paths.filter(|path| *path != own && path.is_file()).collect();
    Ok(unique.into_iter().collect())
}

/// PATH plus the usual directories of mkfs. Empty and relative elements are removed: they would include the current
/// directory, where anyone may have put a program with this name.
fn search_path(path: Option<&OsStr>) -> OsString {
    let given = path.unwrap_or_default();
    let folders = std::env::split_paths(given).filter(|folder| folder.is_absolute());
    let all = folders.chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from));
    std::env::join_paths(all).unwrap_or_else(|_| OsString::from("/usr/sbin:/sbin:/usr/bin:/bin"))
}

/// Creates a sparse disk with a new file system. mkfs runs on the host, so that the guest needs no tools.
fn make_disk(disk: &File, path: &Path, machine: &Machine) -> Result<(), VmError> {
    disk.set_len(machine.disk_bytes).map_err(VmError::prepare("the guest's disk"))?;
    let program = format!("mkfs.{}", machine.file_system);
    let mut command = Command::new(&program);
    command.env("PATH", search_path(std::env::var_os("PATH").as_deref()));
    match machine.file_system.as_str() {
        // Without lazy initialisation: otherwise a kernel thread that writes inode tables would appear in every
        // recording.
        "ext4" => command.args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]),
        "ext2" => command.args(["-q", "-F"]),
        _ => command.args(["-q", "-f"]),
    };
    let done = command.arg(path).output().map_err(VmError::prepare(program.clone()))?;
    if done.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Err(VmError::Prepare { what: program, source: std::io::Error::other(why) })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::search_path;

    /// S12: with PATH unset, mkfs was searched in the current directory.
    #[test]
    fn programs_are_never_searched_in_the_current_directory() {
        for path in [None, Some(""), Some(":/bin:"), Some(".:relative:/opt/bin")] {
            let searched = search_path(path.map(OsStr::new));
            assert!(std::env::split_paths(&searched).all(|folder| folder.is_absolute()), "{path:?}: {searched:?}");
            assert!(std::env::split_paths(&searched).any(|folder| folder.ends_with("sbin")), "{searched:?}");
        }
    }
}
