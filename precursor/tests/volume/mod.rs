//! File systems on loop devices. Needs root.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a program. Returns its standard output, or an error with its standard error.
pub fn output_of(program: &str, args: &[&str]) -> Result<String, String> {
    let done = Command::new(program).args(args).output().map_err(|e| format!("{program}: {e}"))?;
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned()),
        false => Err(format!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&done.stderr))),
    }
}

/// A file system in an image file, mounted until dropped.
#[derive(Debug)]
pub struct Mounted {
    pub dir: PathBuf,
    device: String,
}

impl Mounted {
    /// Mounts the file system in an image.
    pub fn attach(image: &Path, dir: &Path, options: &str) -> Result<Mounted, String> {
        Mounted::of(image, dir, options, &[])
    }

    /// Creates an image of this size, runs `make` with the device added to create a file system, and mounts it.
    pub fn create(image: &Path, bytes: u64, make: &[&str], dir: &Path) -> Result<Mounted, String> {
        std::fs::File::create_new(image).and_then(|f| f.set_len(bytes)).map_err(|e| e.to_string())?;
        Mounted::of(image, dir, "defaults", make)
    }

    fn of(image: &Path, dir: &Path, options: &str, make: &[&str]) -> Result<Mounted, String> {
        std::fs::create_dir_all(dir).map_err(|e| e.to_string())?;
        let image = image.display().to_string();
        let device = output_of("losetup", &["-f", "--show", &image])?;
        let mounted = Mounted { dir: dir.to_owned(), device };
        let backing = output_of("losetup", &["-n", "-O", "BACK-FILE", &mounted.device])?;
        assert!(backing.starts_with(&image), "{} is {backing}, not {image}", mounted.device);
        if let Some((program, args)) = make.split_first() {
            output_of(program, &[args, &[mounted.device.as_str()]].concat())?;
        }
        output_of("mount", &["-o", options, &mounted.device, &dir.display().to_string()])?;
        Ok(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let report = |e: &String| eprintln!("left behind: {e}");
        let _ = output_of("umount", &[&self.dir.display().to_string()]).inspect_err(report);
        let _ = output_of("losetup", &["-d", &self.device]).inspect_err(report);
    }
}
