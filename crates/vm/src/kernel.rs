//! Finds the kernel to boot and its modules.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use flatwater_safefs::{Dir, Refusal};

use super::VmError;
use super::arch::Arch;

/// A kernel image with its modules, if they were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    pub image: PathBuf,
    /// `lib/modules/RELEASE` next to it; `None` if it does not exist.
    pub modules: Option<PathBuf>,
    /// From the file's name; the guest reports the real release.
    pub release: String,
    pub arch: Arch,
}

/// Root's cache: root never boots a kernel from a place where another user could have put it.
const OF_ROOT: &str = "/var/cache/flatwater/kernels";

/// Where `fetch-kernel` stores kernels: in $XDG_CACHE_HOME, otherwise ~/.cache; for root in /var/cache/flatwater.
/// `None` for a user without a home directory.
#[must_use]
pub fn cache_directory() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from(OF_ROOT));
    }
    let under_home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(under_home);
    base.filter(|base| base.is_absolute()).map(|base| base.join("flatwater/kernels"))
}

/// The cache, if it can be trusted: only we and root control its path.
fn cache(make: bool) -> Option<Result<Dir, Refusal>> {
    let path = cache_directory()?;
    match if make { Dir::make_trusted(&path) } else { Dir::trusted(&path) } {
        Err(refusal) if refusal.is_missing() => None,
        other => Some(other),
    }
}

/// The given image, otherwise a fetched one, otherwise the newest image of the distribution in /boot.
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
        names.into_iter().flat_map(|name| images_of(&cache.path().join(name))).collect::<Vec<_>>()
    });
    let mut images: Vec<PathBuf> = fetched.chain(images_in(Path::new("/boot"))).collect();
    // A kernel for another architecture is used only if it is given explicitly.
    images.retain(|image| Arch::of_image(image).is_none_or(|arch| arch == Arch::OWN));
    images.sort();
    // Images are sorted by path, so fetched ones are together. A cloud kernel has the drivers for a guest built in and
    // is preferred.
    let cloud = images.iter().rev().find(|image| image.to_string_lossy().contains("cloud"));
    match cloud.or(images.last()) {
        Some(image) => Ok(at(image)),
        None => {
            let cache = cache_directory().map(|cache| format!("{} and ", cache.display())).unwrap_or_default();
            Err(VmError::NoKernel { looked: format!("{cache}/boot") })
        }
    }
}

/// The release of each image, with a number appended if several have the same.
pub fn names(images: &[PathBuf]) -> Result<Vec<String>, VmError> {
    let mut names: Vec<String> = Vec::new();
    for image in images {
        let release = find(Some(image))?.release;
        let namesakes = names.iter().filter(|name| name.split(" (").next() == Some(release.as_str())).count();
        names.push(if namesakes == 0 { release } else { format!("{release} ({})", namesakes + 1) });
    }
    Ok(names)
}

fn images_in(place: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| file_name(path).starts_with("vmlinuz-")).collect()
}

/// The images of an unpacked package, in either layout: /boot/vmlinuz-RELEASE, and since 7.0
/// /usr/lib/modules/RELEASE/vmlinuz.
#[must_use]
pub fn images_of(package: &Path) -> Vec<PathBuf> {
    let releases = fs::read_dir(package.join("usr/lib/modules")).into_iter().flatten().flatten();
    let beside_modules = releases.map(|release| release.path().join("vmlinuz")).filter(|path| path.is_file());
    images_in(&package.join("boot")).into_iter().chain(beside_modules).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn at(image: &Path) -> Kernel {
    let arch = Arch::of_image(image).unwrap_or(Arch::OWN);
    if let (true, Some(modules)) = (file_name(image) == "vmlinuz", image.parent()) {
        let has_modules = modules.join("modules.builtin").is_file();
        return Kernel {
            image: image.to_owned(),
            release: file_name(modules),
            modules: has_modules.then(|| modules.to_owned()),
            arch,
        };
    }
    let release = file_name(image).trim_start_matches("vmlinuz-").to_owned();
    let beside = image.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let candidates = [beside.join("lib/modules"), beside.join("usr/lib/modules"), PathBuf::from("/lib/modules")];
    let modules = candidates.into_iter().map(|base| base.join(&release)).find(|path| path.is_dir());
    Kernel { image: image.to_owned(), modules, release, arch }
}

/// File in the cache that marks a failure of KVM in this boot of the host.
const KVM_REFUSED: &str = "kvm-refused";

fn boot_id() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned())
}

/// Whether KVM failed in this boot of the host: trying again would cost each run the same seconds.
#[must_use]
pub fn kvm_refused() -> bool {
    let read = || cache(false)?.ok()?.read(KVM_REFUSED).ok().and_then(|file| std::io::read_to_string(file).ok());
    read().is_some_and(|text| Some(text.trim().to_owned()) == boot_id())
}

/// Best effort: if it fails, the next run tries KVM again.
pub fn remember_kvm_refused() {
    if let (Some(Ok(cache)), Some(id)) = (cache(true), boot_id()) {
        let _ = cache.replace(KVM_REFUSED, id.as_bytes(), false);
    }
}

/// Downloads a kernel package (by default Debian's current cloud kernel) through apt and unpacks it without installing
/// it.
pub fn fetch(package: Option<&str>, message: &mut dyn FnMut(&str)) -> Result<Kernel, VmError> {
    let package = match package {
        // The name becomes the name of a directory and an argument of apt.
        Some(name) if is_kernel_package(name) => name.to_owned(),
        Some(name) => {
            return Err(VmError::Fetch { why: format!("'{name}' is not a kernel package (linux-image-...)") });
        }
        None => current_cloud_package()?,
    };
    let package = package.as_str();
    let cache = cache(true)
        .ok_or_else(|| VmError::Fetch { why: "HOME is not set, so the cache directory is unknown".to_owned() })?;
    let cache = cache.map_err(|refusal| VmError::Fetch { why: refusal.to_string() })?;
    let staging = tempfile::tempdir().map_err(|error| VmError::Fetch { why: error.to_string() })?;
    message(&format!("fetching {package}"));
    let archives = download(package, staging.path())?;
    // Unpacked under a temporary name in the cache and renamed, so that an incomplete kernel is never found.
    let folder = package.replace(':', "_");
    let part = format!("{folder}.part");
    let refused = |refusal: Refusal| VmError::Fetch { why: refusal.to_string() };
    for name in [&part, &folder] {
        match cache.remove_tree(name) {
            Err(refusal) if !refusal.is_missing() => return Err(refused(refusal)),
            _ => {}
        }
    }
    let unpacked = cache.make_dir(&part).map_err(refused)?;
    for archive in &archives {
        output(Command::new("dpkg-deb").arg("-x").arg(archive).arg(unpacked.path()))?;
    }
    cache.rename(&part, &folder).map_err(refused)?;
    let target = cache.path().join(&folder);
    message(&format!("unpacked to {}", target.display()));
    let image = images_of(&target).pop();
    image.map(|image| at(&image)).ok_or_else(|| VmError::Fetch { why: format!("{package} contains no kernel image") })
}

fn is_kernel_package(name: &str) -> bool {
    let letters = |c: char| c.is_ascii_alphanumeric() || "+.-_:~".contains(c);
    (name.starts_with("linux-image-") || name.starts_with("linux-binary-")) && name.chars().all(letters)
}

/// Downloads the packages of a kernel: the package itself, and since 7.0 also those that it depends on (image, modules
/// and configuration are separate).
fn download(package: &str, into: &Path) -> Result<Vec<PathBuf>, VmError> {
    let get = |name: &str| output(Command::new("apt-get").args(["download", name]).current_dir(into));
    let archives = || -> Vec<PathBuf> {
        let entries = fs::read_dir(into).into_iter().flatten().flatten().map(|entry| entry.path());
        entries.filter(|path| path.extension().is_some_and(|ext| ext == "deb")).collect()
    };
    get(package)?;
    let Some(first) = archives().pop() else {
        return Err(VmError::Fetch { why: format!("apt-get download {package} produced no package") });
    };
    let depends = output(Command::new("dpkg-deb").arg("-f").arg(&first).arg("Depends"))?;
    let arch = package.split_once(':').map(|(_, arch)| format!(":{arch}")).unwrap_or_default();
    for name in parts_of(&depends) {
        get(&format!("{name}{arch}"))?;
    }
    Ok(archives())
}

/// From the dependencies of a kernel package: the packages with its parts.
fn parts_of(depends: &str) -> Vec<&str> {
    let names = depends.split(',').filter_map(|dependency| dependency.split_whitespace().next());
    let part = |name: &&str| ["linux-binary-", "linux-modules-"].iter().any(|begin| name.starts_with(begin));
    names.filter(part).collect()
}

fn current_cloud_package() -> Result<String, VmError> {
    let meta = match Arch::OWN {
        Arch::X86_64 => "linux-image-cloud-amd64",
        Arch::Aarch64 => "linux-image-cloud-arm64",
    };
    let depends = output(Command::new("apt-cache").args(["depends", meta]))?;
    let package = first_kernel(&depends).ok_or_else(|| VmError::Fetch {
        why: format!("apt does not know {meta}; run `apt-get update` on Debian, or use --kernel"),
    })?;
    Ok(package.to_owned())
}

/// The first kernel in the output of `apt-cache depends`, at any position.
fn first_kernel(depends: &str) -> Option<&str> {
    let named = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: ")).map(str::trim);
    named.into_iter().find(|name| is_kernel_package(name))
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{at, first_kernel, images_of, is_kernel_package, names, parts_of};

    /// Fault 4 of the kernel matrix: no image was found in packages of 7.x.
    #[test]
    fn kernels_in_both_package_layouts_are_found_with_their_modules() {
        let scratch = tempfile::tempdir().expect("a directory");
        let put = |path: &str| {
            let path = scratch.path().join(path);
            std::fs::create_dir_all(path.parent().expect("not the root")).expect("made");
            std::fs::write(path, b"x").expect("written");
        };
        for file in [
            "new/usr/lib/modules/7.3.4/vmlinuz",
            "new/usr/lib/modules/7.3.4/modules.builtin",
            "bare/usr/lib/modules/7.3.4/vmlinuz",
        ] {
            put(file);
        }
        for file in ["old/boot/vmlinuz-6.1.0", "old/lib/modules/6.1.0/modules.builtin"] {
            put(file);
        }
        let found = |package: &str| {
            let images = images_of(&scratch.path().join(package));
            assert_eq!(images.len(), 1, "{package}: {images:?}");
            let kernel = at(&images[0]);
            (kernel.release, kernel.modules.is_some())
        };
        assert_eq!(found("new"), ("7.3.4".to_owned(), true));
        assert_eq!(found("bare"), ("7.3.4".to_owned(), false));
        assert_eq!(found("old"), ("6.1.0".to_owned(), true));
        assert!(images_of(Path::new("/nonexistent")).is_empty());
    }

    #[test]
    fn a_kernel_in_several_packages_is_fetched_completely() {
        let depends = "dracut | linux-initramfs-tool, linux-base-7.3.4+deb13 (= 7.3.4-1), \
                       linux-binary-7.3.4+deb13 (= 7.3.4-1), linux-modules-7.3.4+deb13 (= 7.3.4-1)";
        assert_eq!(parts_of(depends), ["linux-binary-7.3.4+deb13", "linux-modules-7.3.4+deb13"]);
        assert!(parts_of("kmod, linux-base (>= 4.3~)").is_empty());
    }

    #[test]
    fn the_current_kernel_is_found_after_other_dependencies() {
        let reported =
            "linux-image-cloud-amd64\n  Depends: linux-base-7.3.4\n  Depends: linux-image-7.3.4-cloud-amd64\n";
        assert_eq!(first_kernel(reported), Some("linux-image-7.3.4-cloud-amd64"));
        assert_eq!(first_kernel("  Depends: linux-base\n"), None);
    }

    #[test]
    fn only_kernel_package_names_are_accepted() {
        assert!(is_kernel_package("linux-image-6.12.117+deb13-cloud-arm64:arm64"));
        for name in ["--help", "linux-image-../../x", "linux-image-a b", "coreutils"] {
            assert!(!is_kernel_package(name), "{name}");
        }
    }

    #[test]
    fn images_of_one_release_are_numbered_and_a_missing_image_is_an_error() {
        let scratch = tempfile::tempdir().expect("a directory");
        let present = scratch.path().join("vmlinuz-6.1.0");
        std::fs::write(&present, b"x").expect("written");
        assert_eq!(names(&[present.clone(), present.clone()]).expect("found"), ["6.1.0", "6.1.0 (2)"]);
        let absent = scratch.path().join("absent");
        assert!(names(&[present, absent]).is_err_and(|error| error.to_string().contains("absent")));
    }
}
