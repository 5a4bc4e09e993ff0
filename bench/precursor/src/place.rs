//! Where a cell runs: in a memory cgroup with a limit and, for the slow device, on a loop volume. Both are removed on
//! drop.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A memory cgroup (v1 or v2) with a limit, removed on drop.
#[derive(Debug)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    pub fn create(limit_mib: u64) -> Result<Cgroup> {
        let name = format!("precursor-bench-{}", std::process::id());
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let (root, file) = match v1.is_dir() {
            true => (v1, "memory.limit_in_bytes"),
            false => (Path::new("/sys/fs/cgroup"), "memory.max"),
        };
        let path = root.join(name);
        std::fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
        let group = Cgroup(path);
        std::fs::write(group.0.join(file), format!("{}", limit_mib << 20)).context("set the cgroup's limit")?;
        Ok(group)
    }

    pub fn add(&self, pid: u32) -> Result<()> {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).context("move into the cgroup")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The processes have ended, but the kernel may need a moment until the group is empty.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        eprintln!("could not remove {}", self.0.display());
    }
}

/// An ext4 volume on a loop device that is limited to `BYTES_PER_S` and throttles processes that dirty its pages.
#[derive(Debug)]
pub struct SlowVolume {
    image: PathBuf,
    device: Option<String>,
    mount: PathBuf,
    mounted: bool,
    number: Option<String>,
}

const BYTES_PER_S: u64 = 4 << 20;
const THROTTLE: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";

impl SlowVolume {
    pub fn create(dir: &Path) -> Result<SlowVolume> {
        let image = dir.join(format!("precursor-bench-{}.img", std::process::id()));
        let mount = dir.join(format!("precursor-bench-{}.mnt", std::process::id()));
        std::fs::create_dir(&mount)?;
        let file = std::fs::File::create(&image)?;
        file.set_len(1 << 30)?;
        let mut volume = SlowVolume { image, device: None, mount, mounted: false, number: None };
        let device = stdout_of("losetup", &["-f", "--show", path(&volume.image)?])?;
        volume.device = Some(device.clone());
        let backing = stdout_of("losetup", &["-n", "-O", "BACK-FILE", &device])?;
        if Path::new(&backing) != volume.image.canonicalize()? {
            bail!("{device} is backed by {backing}, not by the new image");
        }
        stdout_of("mkfs.ext4", &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", &device])?;
        stdout_of("mount", &[&device, path(&volume.mount)?])?;
        volume.mounted = true;
        let name = device.trim_start_matches("/dev/");
        let number = std::fs::read_to_string(format!("/sys/block/{name}/dev"))?.trim().to_owned();
        // These settings disappear with the device, so they need not be restored.
        std::fs::write(format!("/sys/class/bdi/{number}/strict_limit"), "1").context("strict_limit")?;
        std::fs::write(format!("/sys/class/bdi/{number}/max_ratio"), "1").context("max_ratio")?;
        std::fs::write(THROTTLE, format!("{number} {BYTES_PER_S}"))
            .context("throttle the loop device (cgroup v1 blkio)")?;
        volume.number = Some(number);
        Ok(volume)
    }

    pub fn dir(&self) -> &Path {
        &self.mount
    }

    /// Lifts the device's limit, so that dirty pages can be written before the next step.
    pub fn release(&mut self) {
        if let Some(number) = self.number.take() {
            let _ = std::fs::write(THROTTLE, format!("{number} 0"));
        }
    }
}

impl Drop for SlowVolume {
    fn drop(&mut self) {
        self.release();
        if self.mounted {
            let _ = Command::new("umount").arg(&self.mount).status();
        }
        if let Some(device) = &self.device {
            let _ = Command::new("losetup").args(["-d", device]).status();
        }
        let _ = std::fs::remove_dir(&self.mount);
        let _ = std::fs::remove_file(&self.image);
    }
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().context("the directory's name must be UTF-8")
}

fn stdout_of(program: &str, args: &[&str]) -> Result<String> {
    let done = Command::new(program).args(args).output().with_context(|| format!("run {program}"))?;
    if !done.status.success() {
        bail!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&done.stderr));
    }
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

/// Pins this thread to one CPU.
pub fn pin_here(cpu: usize) -> Result<()> {
    // SAFETY: cpu_set_t consists of bits, for which zero is valid; CPU_SET checks its bound; the set outlives the call;
    // 0 means this thread.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if result < 0 { Err(std::io::Error::last_os_error()).context("pin to a CPU") } else { Ok(()) }
}

/// Puts this thread under SCHED_FIFO with the lowest real-time priority.
pub fn fifo_here() -> Result<()> {
    // SAFETY: sched_param consists of integers, for which zero is valid, and outlives the call; 0 means this thread.
    let result = unsafe {
        let mut parameters: libc::sched_param = std::mem::zeroed();
        parameters.sched_priority = 1;
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const parameters)
    };
    if result < 0 { Err(std::io::Error::last_os_error()).context("SCHED_FIFO") } else { Ok(()) }
}
