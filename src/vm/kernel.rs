//! Which kernel the guest boots, and the modules it needs from beside it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::VmError;

/// A kernel image with its modules, if they were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    pub image: PathBuf,
    /// `lib/modules/RELEASE` beside it; absent if there is none.
    pub modules: Option<PathBuf>,
    /// From the file's name; the guest tells the real one.
    pub release: String,
}

/// Where `fetch-kernel` keeps what it fetched: $XDG_CACHE_HOME, else ~/.cache, else /var/tmp.
#[must_use]
pub fn cache_directory() -> PathBuf {
    let under_home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(under_home);
    base.unwrap_or_else(|| PathBuf::from("/var/tmp")).join("flatwater/kernels")
}

/// The given image, else one fetched before, else the newest distribution image in /boot.
pub fn find(given: Option<&Path>) -> Result<Kernel, VmError> {
    if let Some(image) = given {
        return if image.is_file() {
            Ok(at(image))
        } else {
            Err(VmError::NoKernel { looked: image.display().to_string() })
        };
    }
    let cache = cache_directory();
    let fetched = fs::read_dir(&cache).into_iter().flatten().flatten().map(|entry| entry.path().join("boot"));
    let places = fetched.chain([PathBuf::from("/boot")]).collect::<Vec<_>>();
    let mut images: Vec<PathBuf> = places.iter().flat_map(|place| images_in(place)).collect();
    images.sort();
    // Fetched ones stand under the cache's path; a cloud kernel has built in what a guest needs, so it goes first.
    let cloud = images.iter().rev().find(|image| image.to_string_lossy().contains("cloud"));
    match cloud.or(images.last()) {
        Some(image) => Ok(at(image)),
        None => Err(VmError::NoKernel { looked: format!("{} and /boot", cache.display()) }),
    }
}

fn images_in(place: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| file_name(path).starts_with("vmlinuz-")).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn at(image: &Path) -> Kernel {
    let release = file_name(image).trim_start_matches("vmlinuz-").to_owned();
    let beside = image.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let candidates = [beside.join("lib/modules"), beside.join("usr/lib/modules"), PathBuf::from("/lib/modules")];
    let modules = candidates.into_iter().map(|base| base.join(&release)).find(|path| path.is_dir());
    Kernel { image: image.to_owned(), modules, release }
}

/// Takes Debian's cloud kernel package through apt and unpacks it without installing it.
pub fn fetch(said: &mut dyn FnMut(&str)) -> Result<Kernel, VmError> {
    let depends = output(Command::new("apt-cache").args(["depends", "linux-image-cloud-amd64"]))?;
    let package = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: ")).map(str::trim);
    let package = package.filter(|name| name.starts_with("linux-image-")).ok_or_else(|| VmError::Fetch {
        why: "apt knows no linux-image-cloud-amd64; run `apt-get update` on Debian, or give --kernel".to_owned(),
    })?;
    let target = cache_directory().join(package);
    let staging = tempfile::tempdir().map_err(|error| VmError::Fetch { why: error.to_string() })?;
    said(&format!("fetching {package}"));
    output(Command::new("apt-get").args(["download", package]).current_dir(staging.path()))?;
    let archives = fs::read_dir(staging.path()).into_iter().flatten().flatten().map(|entry| entry.path());
    let archive = archives.into_iter().find(|path| path.extension().is_some_and(|ext| ext == "deb"));
    let archive =
        archive.ok_or_else(|| VmError::Fetch { why: format!("apt-get download {package} left no package") })?;
    // Unpacked beside its place and renamed, so that a half-unpacked kernel is never found.
    let unpacked = target.with_extension("part");
    let io_error = |error: io::Error| VmError::Fetch { why: format!("{}: {error}", unpacked.display()) };
    if unpacked.exists() {
        fs::remove_dir_all(&unpacked).map_err(io_error)?;
    }
    fs::create_dir_all(&unpacked).map_err(io_error)?;
    output(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&unpacked))?;
    if target.exists() {
        fs::remove_dir_all(&target).map_err(io_error)?;
    }
    fs::rename(&unpacked, &target).map_err(io_error)?;
    said(&format!("unpacked to {}", target.display()));
    let image = images_in(&target.join("boot")).pop();
    image.map(|image| at(&image)).ok_or_else(|| VmError::Fetch { why: format!("{package} holds no kernel image") })
}

fn output(command: &mut Command) -> Result<String, VmError> {
    let shown = format!("{command:?}");
    let fail = |why: String| VmError::Fetch { why: format!("{shown}: {why}") };
    let done = command.output().map_err(|error| fail(error.to_string()))?;
    if !done.status.success() {
        return Err(fail(String::from_utf8_lossy(&done.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Paths of a module and of all it depends on, in the order of loading; empty if it is built in.
pub fn module_chain(modules: &Path, name: &str) -> Result<Vec<PathBuf>, VmError> {
    let missing = || VmError::MissingModule { module: name.to_owned(), modules: modules.display().to_string() };
    let builtin = fs::read_to_string(modules.join("modules.builtin")).unwrap_or_default();
    if builtin.lines().any(|line| is_module(line, name)) {
        return Ok(Vec::new());
    }
    // Debian's packages ship no modules.dep before depmod has run: without it, look for the files themselves.
    if let Ok(depends) = fs::read_to_string(modules.join("modules.dep")) {
        let line = depends.lines().find(|line| is_module(line.split(':').next().unwrap_or_default(), name));
        let (path, needs) = line.and_then(|line| line.split_once(':')).ok_or_else(missing)?;
        let mut chain: Vec<PathBuf> = needs.split_whitespace().rev().map(|need| modules.join(need)).collect();
        chain.push(modules.join(path));
        return Ok(chain);
    }
    let known: &[&str] = match name {
        "xfs" => &["libcrc32c", "xfs"],
        "btrfs" => &["xor", "raid6_pq", "libcrc32c", "btrfs"],
        _ => &[],
    };
    let wanted: Vec<&str> = if known.is_empty() { vec![name] } else { known.to_vec() };
    let mut chain = Vec::new();
    for module in wanted {
        let found = find_file(modules, module);
        // libcrc32c and its like may be built in: only the one asked for must be there.
        match found {
            Some(path) => chain.push(path),
            None if module == name => return Err(missing()),
            None => {}
        }
    }
    Ok(chain)
}

fn is_module(path: &str, name: &str) -> bool {
    let stem = path.rsplit('/').next().unwrap_or_default().split(".ko").next().unwrap_or_default();
    stem.replace('-', "_") == name.replace('-', "_")
}

fn find_file(folder: &Path, name: &str) -> Option<PathBuf> {
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = find_file(&path, name) {
                return Some(found);
            }
        } else if file_name(&path).contains(".ko") && is_module(&file_name(&path), name) {
            return Some(path);
        }
    }
    None
}
