//! A small disk for one test: a file system on a loop device on a file.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Scratch, tool};

/// A mounted loop device; unmounted, detached and deleted when dropped.
pub struct LoopDisk {
    device: String,
    /// Major and minor number, for example `7:3`.
    number: String,
    mount: PathBuf,
    mounted: bool,
    _scratch: Scratch,
}

impl LoopDisk {
    /// Makes an ext4 of this size on a new loop device.
    pub fn ext4(name: &str, mib: u64) -> Result<LoopDisk, String> {
        // Lazy initialisation would write at any later time and disturb the measurement.
        LoopDisk::made(name, mib, "mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
    }

    /// Makes a file system of this size with `mkfs` on a new loop device and mounts it.
    pub fn made(name: &str, mib: u64, mkfs: &str, options: &[&str]) -> Result<LoopDisk, String> {
        let scratch = Scratch::new(name);
        let image = scratch.path().join("disk.img");
        let mount = scratch.path().join("mnt");
        fs::create_dir_all(&mount).map_err(|error| error.to_string())?;
        let file = fs::File::create(&image).map_err(|error| error.to_string())?;
        file.set_len(mib << 20).map_err(|error| error.to_string())?;
        let image = image.to_string_lossy().into_owned();
        let device = tool("losetup", &["-f", "--show", &image])?;
        let mut disk = LoopDisk { number: String::new(), device, mount, mounted: false, _scratch: scratch };
        let behind = tool("losetup", &["-n", "-O", "BACK-FILE", &disk.device])?;
        if behind.trim() != image {
            return Err(format!("{} is backed by {behind}, not by {image}: not touched", disk.device));
        }
        let short = disk.device.trim_start_matches("/dev/").to_owned();
        disk.number = fs::read_to_string(format!("/sys/block/{short}/dev"))
            .map_err(|error| format!("/sys/block/{short}/dev: {error}"))?
            .trim()
            .to_owned();
        disk.as_new();
        tool(mkfs, &[options, &[disk.device.as_str()]].concat())?;
        tool("mount", &[&disk.device, &disk.mount.to_string_lossy()])?;
        disk.mounted = true;
        Ok(disk)
    }

    /// Resets the settings of the loop device. They outlive its file, and those of an earlier user would cause
    /// stalls here.
    fn as_new(&self) {
        for (knob, value) in [("strict_limit", "0"), ("max_ratio", "100"), ("min_ratio", "0")] {
            let _ = fs::write(format!("/sys/class/bdi/{}/{knob}", self.number), value);
        }
        // A device that has no scheduler, or rejects the value, already has its defaults.
        for (knob, value) in [("scheduler", "none"), ("nr_requests", "128")] {
            let _ = self.queue(knob, value);
        }
    }

    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// Limits the dirty pages of this device, so that the kernel throttles its writers early.
    pub fn bound_dirty(&self, bytes: u64) -> Result<(), String> {
        for (knob, value) in [("strict_limit", "1".to_owned()), ("max_bytes", bytes.to_string())] {
            let path = format!("/sys/class/bdi/{}/{knob}", self.number);
            fs::write(&path, value).map_err(|error| format!("{path}: {error}"))?;
        }
        Ok(())
    }

    /// Limits writes to the device; undone on drop.
    pub fn slow_writes(&self, bytes_per_s: u64) -> Result<(), String> {
        self.limit("write_bps", bytes_per_s)
    }

    /// Limits `read_bps`, `write_bps`, `read_iops` or `write_iops` of the device; undone on drop.
    pub fn limit(&self, what: &str, per_s: u64) -> Result<(), String> {
        let path = format!("/sys/fs/cgroup/blkio/blkio.throttle.{what}_device");
        fs::write(&path, format!("{} {per_s}", self.number)).map_err(|error| format!("{path}: {error}"))
    }

    /// Changes a setting of the device's queue; undone on drop.
    pub fn queue(&self, knob: &str, value: &str) -> Result<(), String> {
        let path = format!("/sys/block/{}/queue/{knob}", self.device.trim_start_matches("/dev/"));
        fs::write(&path, value).map_err(|error| format!("{path} = {value}: {error}"))
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        // 0 removes the limit. With it, unmounting would be slow, and the next user of the device would inherit
        // it.
        for what in ["read_bps", "write_bps", "read_iops", "write_iops"] {
            if !self.number.is_empty() {
                let _ = self.limit(what, 0);
            }
        }
        if self.mounted
            && let Err(why) = tool("umount", &[&self.mount.to_string_lossy()])
        {
            eprintln!("{why}");
            let _ = tool("umount", &["-l", &self.mount.to_string_lossy()]);
        }
        if !self.number.is_empty() {
            self.as_new();
        }
        if let Err(why) = tool("losetup", &["-d", &self.device]) {
            eprintln!("{why}");
        }
    }
}

/// A frozen file system; thawed when dropped.
#[derive(Debug)]
pub struct Frozen(String);

impl Frozen {
    pub fn of(mount: &Path) -> Result<Frozen, String> {
        let mount = mount.to_string_lossy().into_owned();
        tool("fsfreeze", &["-f", &mount])?;
        Ok(Frozen(mount))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if let Err(why) = tool("fsfreeze", &["-u", &self.0]) {
            eprintln!("{why}");
        }
    }
}

/// A loop device without a file system; detached when dropped.
pub struct BareLoop(String);

impl BareLoop {
    pub fn over(image: &Path) -> Result<BareLoop, String> {
        let image = image.to_string_lossy();
        let made = BareLoop(tool("losetup", &["-f", "--show", &image])?);
        let behind = tool("losetup", &["-n", "-O", "BACK-FILE", &made.0])?;
        if behind.trim() == image { Ok(made) } else { Err(format!("{} is backed by {behind}", made.0)) }
    }

    /// The device, for example `/dev/loop3`.
    pub fn path(&self) -> &str {
        &self.0
    }
}

impl Drop for BareLoop {
    fn drop(&mut self) {
        if let Err(why) = tool("losetup", &["-d", &self.0]) {
            eprintln!("{why}");
        }
    }
}
