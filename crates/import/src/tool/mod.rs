//! Monitors that print several resources at once, one file each. `interval` turns their means into counters, as `sar`
//! does.

mod atop;
mod cgtop;
mod collectl;
mod dstat;
mod htop;
mod interval;
mod iotop;
mod nmon;
mod processes;
mod top;

pub use atop::IMPORTER as ATOP;
pub use cgtop::IMPORTER as CGTOP;
pub use collectl::IMPORTER as COLLECTL;
pub use dstat::IMPORTER as DSTAT;
pub use htop::IMPORTER as HTOP;
pub use interval::Intervals;
pub use iotop::IMPORTER as IOTOP;
pub use nmon::IMPORTER as NMON;
pub use processes::IMPORTER as PROCESSES;
pub use top::IMPORTER as TOP;

/// Parses a number with a suffix that is a power of 1024: `251.4G`, `28.7M`, `512K`; a number without a suffix is
/// multiplied by `bare`.
fn scaled(text: &str, bare: f64) -> Option<f64> {
    crate::number::size(text, bare).map(|value| value as f64)
}
