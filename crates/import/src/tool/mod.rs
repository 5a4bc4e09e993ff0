//! Monitors that print many resources at once, one file each; `interval` turns their means into the recording's counters
//! as sar's are.

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

/// `251.4G`, `28.7M`, `512K`, `12`: a number with a decimal factor of 1024, in `bare` units where it has none.
fn scaled(text: &str, bare: f64) -> Option<f64> {
    crate::number::size(text, bare).map(|value| value as f64)
}
