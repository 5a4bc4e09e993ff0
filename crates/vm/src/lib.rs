//! Performs a scenario on a real kernel in QEMU, on the machine that the scenario describes.
//!
//! The guest runs this binary as `/init` of a generated initramfs. It mounts a new disk, performs the scenario as on
//! any host, and writes the recording as a cpio archive to a second disk. This crate does not perform scenarios: the
//! module `guest` prepares the machine and returns the result, and its caller performs the scenario in between.
//!
//! - [`run`] boots a guest for a [`Job`] with [`VmOptions`] and unpacks the recording; it returns a [`VmReport`].
//! - [`Kernel`] is a kernel image with its modules; [`kernel::find`] and [`kernel::fetch`] get one.
//! - [`Arch`] is the architecture of a kernel and its guest.

pub mod arch;
pub mod console;
pub mod cpio;
#[doc(hidden)]
pub mod fuzzing;
pub mod guest;
mod initramfs;
pub mod kernel;
mod modules;
mod one_cpu;
mod qemu;
mod tsc;
mod unprivileged;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flatwater_safefs::Dir;
use serde::{Deserialize, Serialize};

pub use arch::Arch;
pub use kernel::Kernel;

/// A scenario or command, as passed to the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Text of the scenario; `set` are the settings of the command line that override it.
    pub scenario_text: String,
    pub scenario_origin: String,
    pub set: Vec<String>,
    /// Samples per second of counters and of stacks; without `stack_hz` the tracer's default applies.
    pub sample_hz: u32,
    pub stack_hz: Option<u32>,
    /// Virtual time differs from that of a real machine.
    pub time_distorted: bool,
    pub file_system: String,
    /// A program of the guest with arguments, to run instead of the scenario.
    #[serde(default)]
    pub command: Vec<String>,
    /// Modules to load in this order, as paths in the initramfs.
    pub modules: Vec<String>,
}

/// Contents of the guest besides our own binary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// A static flatwater instead of our own, for a kernel of another architecture.
    pub init: Option<PathBuf>,
    /// Files of the host with their paths in the guest.
    pub files: Vec<(PathBuf, String)>,
    /// Modules to load besides those of the disk and its file system.
    pub modules: Vec<String>,
}

/// Options of a run.
#[derive(Clone, Debug)]
pub struct VmOptions {
    pub kernel: Option<PathBuf>,
    /// Fetch a kernel through apt if none is found.
    pub fetch_kernel: bool,
    /// Output directory of the recording; must be empty.
    pub out: Dir,
    pub machine: flatwater_workload::scenario::MachineSpec,
    pub carried: Carried,
    /// Length of the measured part, for the watchdog.
    pub duration_ns: u64,
    /// A guest that sends nothing for this long counts as hung, ns.
    pub silence_ns_max: u64,
    /// Keep the guest's console in `out/console.log` even after a success.
    pub keep_console: bool,
    pub stop: Arc<AtomicBool>,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct VmReport {
    pub release: String,
    /// `kvm` or `tcg`.
    pub accelerator: &'static str,
    /// From the start of QEMU to the guest's first line; `first_write_ns` is until the start of the workload.
    pub boot_ns: u64,
    pub first_write_ns: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum VmError {
    #[error("no QEMU: {program} is not on the PATH; install it (Debian: apt-get install {package})")]
    NoQemu { program: &'static str, package: &'static str },
    #[error(
        "{image} is a kernel for {theirs}, and this flatwater is for {ours}: build one (cargo build --release --target \
         {theirs}-unknown-linux-musl) and pass it with --init, or use a kernel for {ours}"
    )]
    OtherArch { image: String, theirs: &'static str, ours: &'static str },
    #[error(
        "no kernel to boot (searched {looked}): use --kernel PATH, run `flatwater vm fetch-kernel`, or add \
            --fetch-kernel (both fetch Debian's through apt)"
    )]
    NoKernel { looked: String },
    #[error("cannot fetch a kernel: {why}; or pass one with --kernel PATH (a vmlinuz with its lib/modules next to it)")]
    Fetch { why: String },
    #[error("module {module} is not under {modules}: use another kernel with --kernel, or a scenario on ext4")]
    MissingModule { module: String, modules: String },
    #[error("cannot create the machine of this scenario: {why}")]
    Machine { why: String },
    #[error("cannot prepare the guest: {what}: {source}")]
    Prepare { what: String, source: std::io::Error },
    #[error("the guest {what}; the last lines of the console:\n{console}")]
    Guest { what: String, console: String },
    #[error(
        "{release} did not boot: the guest {what}; use another kernel with --kernel PATH, or Debian's with `flatwater vm \
         fetch-kernel`, or give a slow machine more time with --patience; the last lines of the console:\n{console}"
    )]
    NoBoot { release: String, what: String, console: String },
    #[error("the guest could not perform the scenario: {why}")]
    Scenario { why: String },
    #[error("stopped before the guest had returned its recording")]
    Stopped,
}

impl VmError {
    fn no_qemu(arch: Arch) -> VmError {
        VmError::NoQemu { program: arch.qemu(), package: arch.qemu_package() }
    }

    fn prepare(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> VmError {
        let what = what.into();
        move |source| VmError::Prepare { what, source }
    }
}

/// Boots a guest, performs the job in it and unpacks its recording into `options.out`.
pub fn run(job: &Job, options: &VmOptions, message: &mut dyn FnMut(&str)) -> Result<VmReport, VmError> {
    watch::remove_stale();
    let kernel = match kernel::find(options.kernel.as_deref()) {
        Err(VmError::NoKernel { .. }) if options.kernel.is_none() && !qemu::is_installed(Arch::OWN) => {
            return Err(VmError::no_qemu(Arch::OWN));
        }
        Err(VmError::NoKernel { .. }) if options.kernel.is_none() && options.fetch_kernel => {
            message("no kernel to boot yet: fetching Debian's through apt, once, without installing it");
            kernel::fetch(None, message)?
        }
        found => found?,
    };
    if kernel.arch != Arch::OWN && options.carried.init.is_none() {
        let (theirs, ours) = (kernel.arch.name(), Arch::OWN.name());
        return Err(VmError::OtherArch { image: kernel.image.display().to_string(), theirs, ours });
    }
    let machine = qemu::Machine::plan(&options.machine)?;
    let mut last = None;
    for accelerator in qemu::accelerators(kernel.arch, kernel::kvm_refused()) {
        let emulated = accelerator == "tcg";
        // On an emulated CPU a sample costs more than the work that it interrupts: no samples unless requested.
        let stack_hz = job.stack_hz.or(emulated.then_some(0));
        let job = Job { time_distorted: emulated, stack_hz, ..job.clone() };
        let work = watch::WorkDirectory::make()?;
        let prepared = initramfs::prepare(&job, &kernel, work.dir(), &machine, &options.carried)?;
        message(&format!("booting {} under {accelerator} ({})", kernel.release, machine.describe()));
        match watch::boot(&prepared, &machine, accelerator, options, message) {
            Ok(report) => return Ok(VmReport { release: kernel.release, accelerator, ..report }),
            // KVM may exist and still fail (nested, no rights): try emulation next.
            Err(error @ (VmError::Guest { .. } | VmError::NoBoot { .. })) if accelerator == "kvm" => {
                let failure = error.to_string();
                let reason = failure.lines().next().unwrap_or_default();
                kernel::remember_kvm_refused();
                message(&format!("KVM does not work here, so the machine is emulated: {reason}"));
                last = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(last.unwrap_or(VmError::no_qemu(kernel.arch)))
}
