//! A loop device with its own file system, made for one run, so that limits and a full file system affect no other
//! program.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use flatwater_safefs::Dir;

use super::SetupError;
use super::knobs::Device;
use super::place::Place;
use super::undo::{Undo, UndoLog};
use flatwater_recording::Setup;
use flatwater_recording::units::Bytes;

/// Size of a volume if the scenario does not set one.
const DEFAULT_BYTES: u64 = 1 << 30;

#[derive(Clone, Debug)]
pub struct Volume {
    /// The root directory of the volume's file system.
    pub work: Dir,
    /// `None` for tmpfs.
    pub device: Option<Device>,
}

/// The volume that the scenario requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    file_system: String,
    pub bytes: u64,
    options: String,
    mkfs_options: Vec<String>,
}

impl std::fmt::Display for Spec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = if self.file_system == "tmpfs" { "a tmpfs" } else { "a loop device" };
        write!(f, "{place} of {} ({})", Bytes(self.bytes), self.file_system)
    }
}

impl Spec {
    /// `None` if no mount.* knob is set.
    #[must_use]
    pub fn of(setup: &Setup) -> Option<Spec> {
        setup.iter().find(|(key, _)| key.starts_with("mount."))?;
        let text = |key: &str| setup.get(key).unwrap_or_default().to_owned();
        let bytes = setup.number("mount.size").and_then(|size| u64::try_from(size).ok()).unwrap_or(DEFAULT_BYTES);
        let file_system = setup.get("mount.file_system").unwrap_or("ext4").to_owned();
        let mkfs_options = text("mount.mkfs_options").split_whitespace().map(str::to_owned).collect();
        Some(Spec { file_system, bytes, options: text("mount.options"), mkfs_options })
    }

    fn mkfs_arguments(&self) -> Vec<String> {
        let own: &[&str] = match self.file_system.as_str() {
            // Without lazy initialisation, since a kernel thread would write inode tables during the measurement.
            // Without discard, which would make holes in the image.
            "ext4" => &["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
            "ext2" => &["-q", "-F", "-E", "nodiscard"],
            _ => &["-q", "-f", "-K"],
        };
        own.iter().map(|&word| word.to_owned()).chain(self.mkfs_options.iter().cloned()).collect()
    }
}

/// Runs a program to its end. The program inherits the locked journal, so that a restore waits for it if this process
/// is killed.
fn run(program: &str, arguments: &[&str], log: Option<&UndoLog>) -> Result<String, SetupError> {
    let line = || format!("{program} {}", arguments.join(" "));
    let failed = |why: String| SetupError::Impossible {
        what: format!("run `{}`", line()),
        why,
        next: "run as root with util-linux and the file system's tools installed, or omit mount.*".to_owned(),
    };
    let mut command = Command::new(program);
    if let Some(journal) = log.map(UndoLog::descriptor) {
        // SAFETY: fcntl is async-signal-safe, and the descriptor is open while `log` is borrowed.
        unsafe {
            command.pre_exec(move || match libc::fcntl(journal, libc::F_SETFD, 0) {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
    }
    let output = command.args(arguments).output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(failed(if message.is_empty() { output.status.to_string() } else { message }));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Creates image, loop device, file system and mount, each recorded before it is made. All names are resolved below the
/// directory's handle, so that another user who can rename there cannot redirect formatting, mounting or writing.
pub fn make(dir: &Dir, name: &str, spec: &Spec, keep: bool, log: &mut UndoLog) -> Result<Volume, SetupError> {
    let record = |log: &mut UndoLog, undo: Undo| {
        let path = log.path().to_owned();
        log.record(undo).map_err(|source| SetupError::file("write", path, source))
    };
    let mount_name = format!("{name}.mnt");
    let place = Place::new(dir, &mount_name)?;
    record(log, Undo::Remove { place: place.clone() })?;
    let point = dir.make_dir(&mount_name)?;
    if spec.file_system == "tmpfs" {
        record(log, Undo::Mount { target: place })?;
        // Accessible only to this user, as the root directory of a file system made by mkfs.
        let size = format!("size={},mode=0700", spec.bytes);
        let options = if spec.options.is_empty() { size } else { format!("{size},{}", spec.options) };
        mount("tmpfs", &options, "flatwater", &point, log)?;
        return Ok(Volume { work: mounted(dir, &mount_name)?, device: None });
    }
    let image = Place::new(dir, &format!("{name}.img"))?;
    if !keep {
        record(log, Undo::Remove { place: image.clone() })?;
    }
    let file = make_image(dir, &image, spec.bytes)?;
    record(log, Undo::Loop { image: image.clone() })?;
    let device = attach(&image.path(), &file, log)?;
    let mut arguments = spec.mkfs_arguments();
    arguments.push(device.clone());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    run(&format!("mkfs.{}", spec.file_system), &arguments, Some(log))?;
    record(log, Undo::Mount { target: place })?;
    let options = if spec.options.is_empty() { "noatime" } else { &spec.options };
    mount(&spec.file_system, options, &device, &point, log)?;
    let loop_name = device.trim_start_matches("/dev/").to_owned();
    let number = std::fs::read_to_string(format!("/sys/block/{loop_name}/dev"))
        .map_err(|source| SetupError::file("read", format!("/sys/block/{loop_name}/dev"), source))?;
    let device = Device { number: number.trim().to_owned(), name: loop_name, own: true };
    Ok(Volume { work: mounted(dir, &mount_name)?, device: Some(device) })
}

/// A path through which a started program reaches an open file of this process.
fn path_for_others(fd: impl AsFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), fd.as_fd().as_raw_fd())
}

fn mount(kind: &str, options: &str, source: &str, point: &Dir, log: &UndoLog) -> Result<(), SetupError> {
    let point = path_for_others(point);
    // Without -c mount(8) resolves the handle to a path, and would mount on whatever is at that path a moment later.
    run("mount", &["-c", "-t", kind, "-o", options, source, &point], Some(log)).map(|_| ())
}

/// Opens the root of the mounted file system; the handle from before the mount leads to the directory below it.
fn mounted(dir: &Dir, name: &str) -> Result<Dir, SetupError> {
    Ok(dir.dir(name)?)
}

fn make_image(dir: &Dir, image: &Place, bytes: u64) -> Result<File, SetupError> {
    let file = dir.create(image.name())?;
    // Allocated ahead, so that the device under test does not wait for block allocation in the file system below.
    let allocated = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes);
    match allocated {
        Ok(()) => {
            fill(&file, bytes.min(FILLED_MAX)).map_err(|source| SetupError::file("write", image.path(), source))?
        }
        Err(rustix::io::Errno::OPNOTSUPP) => {
            file.set_len(bytes).map_err(|source| SetupError::file("size", image.path(), source))?;
        }
        Err(error) => return Err(SetupError::file("allocate", image.path(), error.into())),
    }
    Ok(file)
}

/// A larger image is written only up to here, to bound the time of the preparation.
const FILLED_MAX: u64 = 2 << 30;

/// Writes the image once. The first write to a block that was only allocated makes the file system below commit its
/// journal, so that a flush of the device takes several times as long.
fn fill(file: &File, bytes: u64) -> std::io::Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut left = bytes;
    let mut to = file;
    while left > 0 {
        let part = left.min(zeros.len() as u64) as usize;
        std::io::Write::write_all(&mut to, &zeros[..part])?;
        left -= part as u64;
    }
    file.sync_all()
}

/// Attaches a loop device to the image and returns `/dev/loopN`; checks that the image backs it before anything is
/// written.
fn attach(image: &Path, file: &File, log: &UndoLog) -> Result<String, SetupError> {
    let text = path_for_others(file);
    // Direct I/O: otherwise every page is cached twice, and the lower cache hides the speed of the device.
    let attached = run("losetup", &["--find", "--show", "--direct-io=on", &text], Some(log))
        .or_else(|_| run("losetup", &["--find", "--show", &text], Some(log)))?;
    let name = attached.trim_start_matches("/dev/");
    if backing_of(name).as_deref() != Some(image) {
        return Err(SetupError::Impossible {
            what: format!("use {attached}"),
            why: format!("it is not backed by {}", image.display()),
            next: "another process is using loop devices: try again".to_owned(),
        });
    }
    Ok(attached)
}

/// The file behind `loopN`.
#[must_use]
pub fn backing_of(name: &str) -> Option<PathBuf> {
    let text = std::fs::read(format!("/sys/block/{name}/loop/backing_file")).ok()?;
    // The kernel prints the raw path and a newline, and ` (deleted)` after it if the file was removed.
    let path = text.strip_suffix(b"\n").unwrap_or(&text);
    Some(PathBuf::from(OsStr::from_bytes(path.strip_suffix(b" (deleted)").unwrap_or(path))))
}

/// All loop devices backed by this image.
#[must_use]
pub fn loops_of(image: &Path) -> Vec<String> {
    let Ok(blocks) = std::fs::read_dir("/sys/block") else { return Vec::new() };
    let names = blocks.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("loop") && backing_of(name).as_deref() == Some(image)).collect()
}

pub fn detach(name: &str) -> Result<(), SetupError> {
    run("losetup", &["--detach", &format!("/dev/{name}")], None).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::Spec;
    use flatwater_recording::Setup;

    #[test]
    fn a_volume_is_made_only_with_mount_knobs() {
        let mut setup = Setup::default();
        setup.set("cgroup.memory_limit", "1GiB").expect("a knob");
        assert_eq!(Spec::of(&setup), None);
        setup.set("mount.size", "64MiB").expect("a knob");
        setup.set("mount.mkfs_options", "-b 1024").expect("a knob");
        let spec = Spec::of(&setup).expect("a volume");
        assert_eq!((spec.bytes, spec.file_system.as_str()), (64 << 20, "ext4"));
        assert!(spec.mkfs_arguments().ends_with(&["-b".to_owned(), "1024".to_owned()]));
    }
}
