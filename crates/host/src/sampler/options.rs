//! Options of the sampler.

use std::path::PathBuf;

use super::target::{BlockDevice, TargetCgroup};

/// At a higher rate the sampler would itself be a load.
pub const HZ_MAX: u32 = 100;

#[derive(Clone, Debug)]
pub struct SamplerOptions {
    /// Samples per second, 1 to 100.
    pub hz: u32,
    /// The target's devices; the one that holds its file system first.
    pub devices: Vec<BlockDevice>,
    /// The target's memory cgroup, unless it is the root.
    pub cgroup: Option<TargetCgroup>,
    /// CPUs with pinned threads of the workload, which the sampler avoids if it can.
    pub avoid_cpus: Vec<u32>,
    /// The root of /proc and /sys; other than `/` only in tests.
    pub root: PathBuf,
}

impl Default for SamplerOptions {
    fn default() -> SamplerOptions {
        SamplerOptions { hz: 10, devices: Vec::new(), cgroup: None, avoid_cpus: Vec::new(), root: PathBuf::from("/") }
    }
}

impl SamplerOptions {
    #[must_use]
    pub fn rate(&self) -> u32 {
        self.hz.clamp(1, HZ_MAX)
    }
}
