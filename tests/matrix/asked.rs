//! One kernel of the matrix: its image, its boot, and its answers.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use flatwater_recording::{Cause, Recording};
use flatwater_vm::{Arch, kernel};
use serde_json::Value;

pub const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/matrix");

/// Folder of the answers. A kernel that answered the same build is not booted again, so an interrupted run continues.
pub const ANSWERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/matrix");

pub type Stalls = &'static [(&'static str, &'static str, &'static [&'static str])];

/// The steps that a kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Steps {
    /// `check` alone.
    Check,
    /// `check` and the three stalls of a foreign program.
    Stalls,
    /// `Stalls`, the scenarios, `restore` and `watch`; takes about four times as long.
    All,
}

/// The line of the script that ends the stalls of foreign programs.
const SCENARIOS: &str = "\ncd /work || exit 1\n";
/// The stalls of `STALLS` before that line.
const FOREIGN: &[&str] = &["memcg", "fsync", "throttle"];

/// One of these causes must be among the findings of a stall, but need not be first: a slow device delays every commit,
/// and the journal may wait longer for the group's writeback than the writers wait for memory.
pub fn meant(stall: &str) -> &'static [&'static str] {
    match stall {
        "fsync" => &["journal-commit"],
        // cgroup v2 throttles the writers at the group's share of the dirty limit, before the group is full.
        "full-cgroup" => &["memcg-reclaim", "dirty-throttle"],
        _ => &[],
    }
}

impl Steps {
    fn name(self) -> &'static str {
        match self {
            Steps::Check => "check",
            Steps::Stalls => "stalls",
            Steps::All => "all",
        }
    }

    /// The steps of a kernel according to `list`, which has items such as `7.3` (all steps) and `7.3:stalls`. An empty
    /// list selects all steps of every kernel.
    pub fn wanted(kernel: &Kernel, list: &str) -> Steps {
        let asked = |item: &str| item == kernel.name || item == "all" || list.is_empty();
        let stalls = |item: &str| item.strip_suffix(":stalls").is_some_and(asked);
        match () {
            () if list.split(',').any(asked) => Steps::All,
            () if list.split(',').any(stalls) => Steps::Stalls,
            () => Steps::Check,
        }
    }

    pub fn makes(self, stall: &str) -> bool {
        self == Steps::All || self == Steps::Stalls && FOREIGN.contains(&stall)
    }
}

/// The stalls: name of the step, description, and the causes that may come first. docs/kernels.md explains why some
/// stalls have several.
pub const STALLS: Stalls = &[
    (
        "memcg",
        "page cache fills a memory cgroup",
        // 6.18 kills the writer, where other kernels pause it.
        &["memcg-reclaim", "dirty-throttle", "memcg-over-high", "cgroup-full", "out-of-memory"],
    ),
    // The writer's own page is written before its commit begins. Behind the neighbour's requests either may take
    // longer.
    ("fsync", "appends beside an fsync neighbour", &["journal-commit", "device-slow", "page-writeback"]),
    (
        "throttle",
        "a group that may write 2 MB/s",
        &["io-throttle", "dirty-throttle", "page-writeback", "device-wait", "request-queue"],
    ),
    (
        "full-cgroup",
        "run full-cgroup",
        &["memcg-reclaim", "dirty-throttle", "page-writeback", "journal-buffer", "device-queue-starved"],
    ),
    ("numa-spill", "run numa-spill: among the findings, since counters give it no time", &["remote-spill"]),
];

#[derive(Clone, Debug)]
pub struct Kernel {
    pub package: String,
    pub name: String,
    /// The image of a kernel that is not in kernels.txt.
    image: Option<PathBuf>,
}

/// The kernels of kernels.txt, oldest first.
pub fn listed() -> Vec<Kernel> {
    let text = fs::read_to_string(Path::new(HERE).join("kernels.txt")).expect("kernels.txt");
    let rows = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' '));
    rows.map(|(package, name)| Kernel { package: package.to_owned(), name: name.to_owned(), image: None }).collect()
}

/// The kernel that `vm kernel` or `vm fetch-kernel` provides, if none of the list was fetched.
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

/// The guest's static shell: fetched with the kernels, or Debian's busybox-static.
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

    /// The static build (FLATWATER_INIT_<ARCH>) or the busybox (FLATWATER_BUSYBOX_<ARCH>) for the kernel's
    /// architecture.
    fn named(&self, what: &str) -> Option<PathBuf> {
        std::env::var_os(format!("FLATWATER_{what}_{}", self.arch().name().to_uppercase())).map(PathBuf::from)
    }

    fn busybox(&self) -> PathBuf {
        let fetched = || {
            let cache = kernel::cache_directory().unwrap_or_default();
            cache.parent().unwrap_or(Path::new("/")).join(format!("busybox-{}", self.arch().name()))
        };
        self.named("BUSYBOX").unwrap_or_else(|| if self.is_own_arch() { busybox() } else { fetched() })
    }

    pub fn can_boot(&self) -> bool {
        self.missing().is_empty()
    }

    /// Why this kernel cannot boot, with the command that provides the missing part; empty if it can.
    pub fn missing(&self) -> String {
        let arch = self.arch();
        let qemu = Command::new(arch.qemu()).arg("--version").output().is_ok_and(|output| output.status.success());
        if self.image().is_none() {
            "it was not fetched (`make matrix-fetch`)".to_owned()
        } else if !qemu {
            format!("{} is not on the PATH", arch.qemu())
        } else if !self.is_own_arch() && self.named("INIT").is_none() {
            let variable = format!("FLATWATER_INIT_{}", arch.name().to_uppercase());
            format!(
                "no static flatwater for {} was given in {variable} (`tools/cross.sh {}`)",
                arch.name(),
                arch.name()
            )
        } else if !self.busybox().is_file() {
            "no busybox-static beside the kernels (`make matrix-fetch`)".to_owned()
        } else {
            String::new()
        }
    }
}

/// The answers of one kernel.
pub struct Asked {
    pub kernel: Kernel,
    pub place: PathBuf,
    pub minutes: f64,
    pub steps: Steps,
    /// Standard error of a boot that failed.
    pub failed: Option<String>,
    full: RefCell<Option<Recording>>,
}

/// The build under test.
fn binary(kernel: &Kernel) -> PathBuf {
    let own = std::env::var_os("FLATWATER_INIT_X86_64").filter(|_| kernel.is_own_arch());
    own.map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_flatwater")), PathBuf::from)
}

/// Identifies the build (size and time of the file) and the script that an answer depends on.
fn stamp(kernel: &Kernel, script: &str) -> String {
    let of = |path: &Path| {
        let file = fs::metadata(path).ok()?;
        let since = file.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(format!("{} bytes of {}\n", file.len(), since.as_secs()))
    };
    let guest = kernel.named("INIT").filter(|_| !kernel.is_own_arch());
    let builds = std::iter::once(binary(kernel)).chain(guest);
    builds.filter_map(|path| of(&path)).collect::<String>() + script
}

/// Returns the stored answers of this build and kernel, or boots the kernel for new ones.
pub fn ask(kernel: &Kernel, steps: Steps) -> Asked {
    let text = fs::read_to_string(Path::new(HERE).join("guest.sh")).expect("guest.sh");
    // A guest's command gets no environment, so the script contains the steps.
    let mut text = text.replacen('\n', &format!("\nMATRIX={}\n", steps.name()), 1);
    if steps == Steps::Stalls {
        text.truncate(text.find(SCENARIOS).expect("the scenarios begin with this line"));
    }
    let place = Path::new(ANSWERS).join(format!("{}-{}", kernel.name, steps.name()));
    let stamp = stamp(kernel, &text);
    let minutes = fs::read_to_string(place.join("minutes")).ok().and_then(|text| text.trim().parse().ok());
    let known = fs::read_to_string(place.join("stamp")).is_ok_and(|known| known == stamp);
    if let Some(minutes) = minutes.filter(|_| known) {
        println!("== {}: answered this build before, {}", kernel.name, place.display());
        return Asked { kernel: kernel.clone(), place, minutes, steps, failed: None, full: RefCell::new(None) };
    }
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).expect("a directory for the answers");
    let own = Boot { machine: Path::new(HERE).join("machine.toml"), modules: &[], with: Vec::new() };
    let (minutes, failed) = boot(kernel, &place, &text, &own);
    // A failed kernel gets no stamp, so that it is booted again.
    if failed.is_none() {
        fs::write(place.join("stamp"), stamp).expect("write");
    }
    fs::write(place.join("minutes"), format!("{minutes:.2}\n")).expect("write");
    Asked { kernel: kernel.clone(), place, minutes, steps, failed, full: RefCell::new(None) }
}

/// The parts of a guest other than the kernel.
pub struct Boot {
    pub machine: PathBuf,
    pub modules: &'static [&'static str],
    /// Files of this machine, each with the guest's path.
    pub with: Vec<(PathBuf, String)>,
}

/// Boots the kernel with the script. Returns the minutes that this took, and standard error if it failed.
pub fn boot(kernel: &Kernel, place: &Path, text: &str, of: &Boot) -> (f64, Option<String>) {
    let script = place.join("guest.sh");
    fs::write(&script, text).expect("write");
    let began = Instant::now();
    let mut command = Command::new(binary(kernel));
    command.args(["vm", "exec", "--console", "--patience", "150s", "--kernel"]).arg(kernel.image().expect("can_boot"));
    command.arg("--machine").arg(&of.machine);
    of.modules.iter().for_each(|module| {
        command.args(["--module", module]);
    });
    for (file, path) in &of.with {
        command.arg("--with").arg(format!("{}={path}", file.display()));
    }
    command.arg("--with").arg(format!("{}=/bin/busybox", kernel.busybox().display()));
    command.arg("--with").arg(format!("{}=/guest.sh", script.display()));
    if let Some(init) = kernel.named("INIT").filter(|_| !kernel.is_own_arch()) {
        command.arg("--init").arg(init);
    }
    let output = command.arg("-o").arg(place.join("out")).args(["--", "/bin/busybox", "sh", "/guest.sh"]).output();
    let output = output.expect("flatwater runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    println!("== {}\n{errors}", kernel.name);
    (began.elapsed().as_secs_f64() / 60.0, (!output.status.success()).then_some(errors))
}

/// Whether the cause is time on a processor, which emulation stretches out of proportion.
fn is_processor_time(cause: &str) -> bool {
    let is_work =
        |known: &Cause| known.spec().processor_time || matches!(known, Cause::PageAllocation | Cause::SlabRefill);
    Cause::ALL.iter().any(|known| known.name() == cause && is_work(known))
}

/// The first finding of a stall that is not processor time, the named share of the lost time, and the lost time in ns.
pub fn first_named(place: &Path, name: &str) -> Option<(String, Option<f64>, u64)> {
    let text = fs::read_to_string(place.join("out").join(format!("{name}.json"))).ok()?;
    let explanation: Value = serde_json::from_str(&text).ok()?;
    let mut causes = explanation["findings"].as_array()?.iter().filter_map(|finding| finding["cause"].as_str());
    // A cause that only counters show has no time and cannot be first.
    let counted = |cause: &&str| name == "numa-spill" && *cause == "remote-spill";
    let first = match causes.clone().find(counted) {
        Some(cause) => cause.to_owned(),
        None => causes.find(|cause| !is_processor_time(cause))?.to_owned(),
    };
    let slow = &explanation["slow"];
    Some((first, slow["named_share"].as_f64(), slow["lost_ns"].as_u64().unwrap_or(0)))
}

impl Asked {
    pub fn stall(&self, name: &str) -> Option<(String, Option<f64>, u64)> {
        first_named(&self.place, name)
    }

    /// Whether a stall's findings have this cause.
    pub fn names(&self, stall: &str, cause: &str) -> bool {
        let explanation = self.json(&format!("{stall}.json"));
        explanation["findings"]
            .as_array()
            .is_some_and(|findings| findings.iter().any(|finding| finding["cause"] == cause))
    }

    pub fn text(&self, file: &str) -> String {
        fs::read_to_string(self.place.join("out").join(file)).unwrap_or_default().trim().to_owned()
    }

    /// Null if the step failed.
    pub fn json(&self, file: &str) -> Value {
        serde_json::from_str(&self.text(file)).unwrap_or(Value::Null)
    }

    pub fn status(&self, file: &str) -> Option<i32> {
        self.text(&format!("{file}.status")).split(' ').next()?.parse().ok()
    }

    /// Stalls with a wrong answer, and steps that failed.
    pub fn wrong(&self) -> Vec<String> {
        if let Some(errors) = &self.failed {
            return vec![format!("{}: {errors}", self.kernel.name)];
        }
        let mut wrong = Vec::new();
        for (name, _, right) in STALLS.iter().filter(|(name, ..)| self.steps.makes(name)) {
            match self.stall(name) {
                Some((first, ..)) if right.contains(&first.as_str()) => {}
                Some((first, ..)) => wrong.push(format!("{}: {name}: {first}, not {right:?}", self.kernel.name)),
                None => wrong.push(format!("{}: {name}: {}", self.kernel.name, self.text(&format!("{name}.json.log")))),
            }
        }
        for (name, ..) in STALLS.iter().filter(|(name, ..)| self.steps.makes(name)) {
            let meant = meant(name);
            if !meant.is_empty() && !meant.iter().any(|cause| self.names(name, cause)) {
                wrong.push(format!("{}: {name}: none of {meant:?} is a finding", self.kernel.name));
            }
        }
        if self.steps != Steps::All {
            return wrong;
        }
        for step in ["restore", "watch.json"] {
            if self.status(step) != Some(0) {
                let (output, log) = (self.text(step), self.text(&format!("{step}.log")));
                wrong.push(format!("{}: {step}: {output} {log}", self.kernel.name));
            }
        }
        wrong
    }

    /// The recording of full-cgroup, unpacked once.
    pub fn with_full<T>(&self, read: impl FnOnce(&Recording) -> T) -> Option<T> {
        if self.full.borrow().is_none() {
            let folder = self.place.join("full");
            fs::create_dir_all(&folder).ok()?;
            let archive = self.place.join("out/full-cgroup.tar");
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
