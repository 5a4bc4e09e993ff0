//! One kernel of the matrix: where it is, and what it answered.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use flatwater_recording::Recording;
use flatwater_vm::{Arch, kernel};
use serde_json::Value;

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/matrix");

/// The stalls that are made, by the step's name, and the causes that may come first: several where the same stall has
/// two ends, which docs/kernels.md explains.
pub const STALLS: [(&str, &str, &[&str]); 5] = [
    (
        "memcg",
        "page cache fills a memory cgroup",
        &["memcg-reclaim", "dirty-throttle", "memcg-over-high", "cgroup-full"],
    ),
    ("fsync", "appends beside an fsync neighbour", &["journal-commit"]),
    (
        "throttle",
        "a group that may write 2 MB/s",
        &["dirty-throttle", "page-writeback", "device-wait", "request-queue"],
    ),
    ("full-cgroup", "run full-cgroup", &["memcg-reclaim", "dirty-throttle", "page-writeback"]),
    ("numa-spill", "run numa-spill", &["remote-spill"]),
];

#[derive(Clone, Debug)]
pub struct Kernel {
    pub package: String,
    pub name: String,
    /// Where it is not one of the list.
    image: Option<PathBuf>,
}

/// Those of kernels.txt, oldest first.
pub fn listed() -> Vec<Kernel> {
    let text = fs::read_to_string(Path::new(HERE).join("kernels.txt")).expect("kernels.txt");
    let rows = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' '));
    rows.map(|(package, name)| Kernel { package: package.to_owned(), name: name.to_owned(), image: None }).collect()
}

/// The one kernel that this machine has or gets by itself, where none of the list was fetched.
pub fn any() -> Option<Kernel> {
    let ok = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_flatwater")).args(arguments).output();
        output.is_ok_and(|output| output.status.success())
    };
    if !(ok(&["vm", "kernel"]) || ok(&["vm", "fetch-kernel"])) {
        return None;
    }
    let image = kernel::find(None).ok()?.image;
    let name = kernel::names(std::slice::from_ref(&image)).ok()?.pop()?;
    Some(Kernel { package: String::new(), name, image: Some(image) })
}

/// The guest's own static program: beside the kernels, or Debian's busybox-static.
fn busybox() -> PathBuf {
    let cache = kernel::cache_directory().unwrap_or_default();
    let fetched = cache.parent().unwrap_or(Path::new("/")).join("busybox");
    let installed = ["/usr/bin/busybox", "/bin/busybox"].map(PathBuf::from);
    std::iter::once(fetched).chain(installed).find(|path| path.is_file()).unwrap_or_default()
}

impl Kernel {
    fn image(&self) -> Option<PathBuf> {
        if self.image.is_some() {
            return self.image.clone();
        }
        let folder = kernel::cache_directory()?.join(self.package.replace(':', "_"));
        kernel::images_of(&folder).pop()
    }

    fn arch(&self) -> Arch {
        self.image().and_then(|image| Arch::of_image(&image)).unwrap_or(Arch::OWN)
    }

    pub fn is_own_arch(&self) -> bool {
        self.arch() == Arch::OWN
    }

    /// For another processor FLATWATER_INIT_<ARCH> names a static build, and FLATWATER_BUSYBOX_<ARCH> its busybox.
    fn named(&self, what: &str) -> Option<PathBuf> {
        std::env::var_os(format!("FLATWATER_{what}_{}", self.arch().name().to_uppercase())).map(PathBuf::from)
    }

    fn busybox(&self) -> PathBuf {
        self.named("BUSYBOX").unwrap_or_else(busybox)
    }

    pub fn can_boot(&self) -> bool {
        let qemu =
            Command::new(self.arch().qemu()).arg("--version").output().is_ok_and(|output| output.status.success());
        let binary = self.is_own_arch() || self.named("INIT").is_some();
        qemu && binary && self.image().is_some() && self.busybox().is_file()
    }
}

/// What came back.
pub struct Asked {
    pub kernel: Kernel,
    pub place: tempfile::TempDir,
    pub minutes: f64,
    full: RefCell<Option<Recording>>,
}

/// Boots the kernel with the script; what it wrote is read later.
pub fn ask(kernel: &Kernel, steps: &str) -> Asked {
    let place = tempfile::tempdir().expect("a directory");
    let script = place.path().join("guest.sh");
    let text = fs::read_to_string(Path::new(HERE).join("guest.sh")).expect("guest.sh");
    // The kernel hands no environment to a command of a guest: what is asked for stands in the script.
    fs::write(&script, text.replacen('\n', &format!("\nMATRIX={steps}\n"), 1)).expect("written");
    let began = Instant::now();
    let mut command = match std::env::var_os("FLATWATER_INIT_X86_64").filter(|_| kernel.is_own_arch()) {
        Some(own) => Command::new(own),
        None => Command::new(env!("CARGO_BIN_EXE_flatwater")),
    };
    command.args(["vm", "exec", "--console", "--patience", "150s", "--kernel"]).arg(kernel.image().expect("can_boot"));
    command.arg("--machine").arg(Path::new(HERE).join("machine.toml"));
    command.arg("--with").arg(format!("{}=/bin/busybox", kernel.busybox().display()));
    command.arg("--with").arg(format!("{}=/guest.sh", script.display()));
    if let Some(init) = kernel.named("INIT").filter(|_| !kernel.is_own_arch()) {
        command.arg("--init").arg(init);
    }
    let output =
        command.arg("-o").arg(place.path().join("out")).args(["--", "/bin/busybox", "sh", "/guest.sh"]).output();
    let output = output.expect("flatwater runs");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    println!("== {}\n{told}", kernel.name);
    assert!(output.status.success(), "{}: {told}", kernel.name);
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    Asked { kernel: kernel.clone(), place, minutes, full: RefCell::new(None) }
}

impl Asked {
    pub fn text(&self, file: &str) -> String {
        fs::read_to_string(self.place.path().join("out").join(file)).unwrap_or_default().trim().to_owned()
    }

    /// Null where the step failed.
    pub fn json(&self, file: &str) -> Value {
        serde_json::from_str(&self.text(file)).unwrap_or(Value::Null)
    }

    pub fn status(&self, file: &str) -> Option<i32> {
        self.text(&format!("{file}.status")).split(' ').next()?.parse().ok()
    }

    /// First finding of a stall, the share of lost time that has a name, and the lost time.
    pub fn stall(&self, name: &str) -> Option<(String, Option<f64>, u64)> {
        let told = self.json(&format!("{name}.json"));
        let first = told["findings"].as_array()?.first()?["cause"].as_str()?.to_owned();
        Some((first, told["slow"]["named_share"].as_f64(), told["slow"]["lost_ns"].as_u64().unwrap_or(0)))
    }

    /// Which stalls were not named rightly, and whether restore failed.
    pub fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (name, _, right) in STALLS {
            match self.stall(name) {
                Some((first, ..)) if right.contains(&first.as_str()) => {}
                Some((first, ..)) => wrong.push(format!("{}: {name}: {first}, not {right:?}", self.kernel.name)),
                None => wrong.push(format!("{}: {name}: {}", self.kernel.name, self.text(&format!("{name}.json.log")))),
            }
        }
        if self.status("restore") != Some(0) {
            wrong.push(format!("{}: restore: {} {}", self.kernel.name, self.text("restore"), self.text("restore.log")));
        }
        wrong
    }

    /// The recording of full-cgroup, unpacked once.
    pub fn with_full<T>(&self, read: impl FnOnce(&Recording) -> T) -> Option<T> {
        if self.full.borrow().is_none() {
            let folder = self.place.path().join("full");
            fs::create_dir_all(&folder).ok()?;
            let archive = self.place.path().join("out/full-cgroup.tar");
            let done = Command::new("tar").arg("xf").arg(archive).arg("-C").arg(&folder).status().ok()?;
            if !done.success() {
                return None;
            }
            *self.full.borrow_mut() = flatwater_recording::read(&folder).ok();
        }
        self.full.borrow().as_ref().map(read)
    }
}

/// The variant of the tracer that the kernel accepted, and the rest of that line.
pub fn variant(check: &Value) -> Option<(String, String)> {
    let line = check["hooks"]
        .as_array()?
        .iter()
        .find(|hook| hook["hook"].as_str().is_some_and(|name| name.starts_with("bpf/")))?;
    let name = line["hook"].as_str()?.trim_start_matches("bpf/");
    Some((name.to_owned(), line["reason"].as_str().unwrap_or_default().to_owned()))
}
