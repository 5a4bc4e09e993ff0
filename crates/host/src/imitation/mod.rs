//! Collects the data to imitate the recorded programs and the processes that disturbed them (`flatwater reproduce`):
//! operations from the tracer, limits from /proc, /sys and cgroups, service times from requests.

mod limits;
mod neighbours;

pub use limits::Limits;
pub use neighbours::Neighbours;

use crate::tracer::Tracer;
use flatwater_recording::{Gap, GroupRole, Imitation, ServiceTime};

const WHAT: &str = "the operations that `flatwater reproduce` imitates";

/// Why nothing was counted.
#[must_use]
pub fn not_counted(why: &str, remedy: &str) -> Gap {
    Gap::new(WHAT, why, remedy)
}

/// All counts, and gaps for missing counts.
#[must_use]
pub fn collect(tracer: &Tracer, service_times: Vec<ServiceTime>, limits: Limits) -> (Imitation, Vec<Gap>) {
    let mut gaps = Vec::new();
    let mut imitation = Imitation { service_times, ..Imitation::default() };
    let mut file_systems = Vec::new();
    match tracer.profiles() {
        Some((profiles, full)) => {
            imitation.operations = profiles.operations();
            imitation.files = profiles.files();
            file_systems = profiles.file_systems();
            if full > 0 {
                let why = format!("{full} calls belong to more groups of threads or files than are counted");
                gaps.push(not_counted(&why, "record fewer programs"));
            }
        }
        None => gaps.push(not_counted("no hook saw the calls", "record as root at level 1 or 2")),
    }
    if imitation.operations.iter().all(|row| row.role == GroupRole::Target) && tracer.profiles().is_some() {
        let why = "no process was seen that made the target's calls wait and made calls on files itself";
        gaps.push(Gap::new("operations of neighbours", why, ""));
    }
    imitation.limits = limits.at_end(&file_systems);
    (imitation, gaps)
}
