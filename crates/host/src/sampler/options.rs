//! What to sample and how often.

use std::path::PathBuf;

use super::target::{BlockDevice, TargetCgroup};

/// Faster than this the sampler would be a load of its own.
pub const HZ_MAX: u32 = 100;

#[derive(Clone, Debug)]
pub struct SamplerOptions {
    /// Samples a second, 1 to 100.
    pub hz: u32,
    /// The target's devices, the one under its file system first.
    pub devices: Vec<BlockDevice>,
    /// The target's memory cgroup, unless it is the root.
    pub cgroup: Option<TargetCgroup>,
    /// CPUs that measured threads are pinned to: the sampler stays off them where it can.
    pub avoid_cpus: Vec<u32>,
    /// Where /proc and /sys are; `/` but for tests.
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
