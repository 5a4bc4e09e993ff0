//! Which kernel the guest boots, and the modules it needs from beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use flatwater_safefs::{Dir, Refusal};

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

/// Root's cache: a kernel that root boots is never taken from where somebody else could have put it.
const OF_ROOT: &str = "/var/cache/flatwater/kernels";

/// Where `fetch-kernel` keeps what it fetched: $XDG_CACHE_HOME, else ~/.cache; root's is /var/cache/flatwater.
/// `None` for a user without a home.
#[must_use]
pub fn cache_directory() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from(OF_ROOT));
    }
    let under_home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(under_home);
    base.filter(|base| base.is_absolute()).map(|base| base.join("flatwater/kernels"))
}

/// The cache as it is believed: nobody but us and root had a say in any part of its path.
fn cache(make: bool) -> Option<Result<Dir, Refusal>> {
    let path = cache_directory()?;
    match if make { Dir::make_trusted(&path) } else { Dir::trusted(&path) } {
        Err(refusal) if refusal.is_missing() => None,
        other => Some(other),
    }
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
    let cache = match cache(false) {
        None => None,
        Some(Ok(cache)) => Some(cache),
        Some(Err(refusal)) => return Err(VmError::NoKernel { looked: refusal.to_string() }),
    };
    let fetched = cache.iter().flat_map(|cache| {
        let names = cache.names().unwrap_or_default();
        names.into_iter().map(|name| cache.path().join(name).join("boot")).collect::<Vec<_>>()
    });
    let places = fetched.chain([PathBuf::from("/boot")]).collect::<Vec<_>>();
    let mut images: Vec<PathBuf> = places.iter().flat_map(|place| images_in(place)).collect();
    images.sort();
    // Fetched ones stand under the cache's path; a cloud kernel has built in what a guest needs, so it goes first.
    let cloud = images.iter().rev().find(|image| image.to_string_lossy().contains("cloud"));
    match cloud.or(images.last()) {
        Some(image) => Ok(at(image)),
        None => {
            let cache = cache_directory().map(|cache| format!("{} and ", cache.display())).unwrap_or_default();
            Err(VmError::NoKernel { looked: format!("{cache}/boot") })
        }
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

/// Takes a kernel package (Debian's current cloud kernel if none is named) through apt and unpacks it without
/// installing it.
pub fn fetch(package: Option<&str>, said: &mut dyn FnMut(&str)) -> Result<Kernel, VmError> {
    let package = match package {
        // It becomes a directory's name and an argument of apt.
        Some(name) if name.starts_with("linux-image-") && !name.contains('/') => name.to_owned(),
        Some(name) => {
            return Err(VmError::Fetch { why: format!("'{name}' is no package of a kernel (linux-image-...)") });
        }
        None => current_cloud_package()?,
    };
    let package = package.as_str();
    let cache = cache(true).ok_or_else(|| VmError::Fetch { why: "there is no HOME to keep it in".to_owned() })?;
    let cache = cache.map_err(|refusal| VmError::Fetch { why: refusal.to_string() })?;
    let staging = tempfile::tempdir().map_err(|error| VmError::Fetch { why: error.to_string() })?;
    said(&format!("fetching {package}"));
    output(Command::new("apt-get").args(["download", package]).current_dir(staging.path()))?;
    let archives = fs::read_dir(staging.path()).into_iter().flatten().flatten().map(|entry| entry.path());
    let archive = archives.into_iter().find(|path| path.extension().is_some_and(|ext| ext == "deb"));
    let archive =
        archive.ok_or_else(|| VmError::Fetch { why: format!("apt-get download {package} left no package") })?;
    // Unpacked beside its place and renamed, so that a half-unpacked kernel is never found.
    let part = format!("{package}.part");
    let refused = |refusal: Refusal| VmError::Fetch { why: refusal.to_string() };
    for name in [&part, package] {
        match cache.remove_tree(name) {
            Err(refusal) if !refusal.is_missing() => return Err(refused(refusal)),
            _ => {}
        }
    }
    let unpacked = cache.make_dir(&part).map_err(refused)?;
    output(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(unpacked.path()))?;
    cache.rename(&part, package).map_err(refused)?;
    let target = cache.path().join(package);
    said(&format!("unpacked to {}", target.display()));
    let image = images_in(&target.join("boot")).pop();
    image.map(|image| at(&image)).ok_or_else(|| VmError::Fetch { why: format!("{package} holds no kernel image") })
}

fn current_cloud_package() -> Result<String, VmError> {
    let depends = output(Command::new("apt-cache").args(["depends", "linux-image-cloud-amd64"]))?;
    let package = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: ")).map(str::trim);
    let package = package.filter(|name| name.starts_with("linux-image-")).ok_or_else(|| VmError::Fetch {
        why: "apt knows no linux-image-cloud-amd64; run `apt-get update` on Debian, or give --kernel".to_owned(),
    })?;
    Ok(package.to_owned())
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
