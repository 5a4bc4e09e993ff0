//! Fixes against a process that made the calls wait.

use flatwater_recording::RequestOp;
use flatwater_recording::units::Bytes;

use super::measured::{OWN_MEMORY_CGROUP, WRITE_LIMIT, WRITE_LIMIT_OTHER_FILE_SYSTEM};
use super::place::disk;
use super::{Fix, Limit, Resource};
use crate::aggressor::{Aggressor, Means};
use crate::facts::Facts;
use crate::lead;

/// The lowest limit proposed: at 1 MiB/s the waiting calls' p99 rose again (docs/recipes/fio.md).
const WRITE_RATE_MIN: u64 = 4 << 20;

/// Fixes against one aggressor, the best one first.
pub(crate) fn against(aggressor: &Aggressor, facts: &Facts<'_>) -> Vec<Fix> {
    let who = lead::who(aggressor);
    match aggressor.means {
        Means::Data => vec![Fix::advice(format!(
            "move the files of {who} to another device: a commit of this file system's journal writes the data of all \
             processes, so a limit on its I/O would delay the commit as well"
        ))],
        Means::Journal => vec![Fix::advice(format!(
            "move the files of {who} to another device, or have it change fewer inodes (create, remove, rename): a \
             commit of this file system's journal writes the changes of all processes"
        ))],
        Means::Queue | Means::Beside | Means::Cache => at_device(aggressor, &who, facts),
        Means::DirtyPages => vec![
            limit(
                aggressor,
                &who,
                &format!("bound the memory of {who}, and with it what it may dirty"),
                Resource::Memory,
            ),
            Fix::advice(format!("have {who} write with O_DIRECT, or call sync_file_range() as it writes")),
        ],
        Means::Memory => {
            let bound = limit(aggressor, &who, &format!("bound the memory of {who}"), Resource::Memory);
            let shares = aggressor.in_own_cgroup || aggressor.cgroup.is_none();
            vec![if shares { bound.measured(&OWN_MEMORY_CGROUP) } else { bound }]
        }
        Means::DroppedCache => vec![Fix::advice(format!("stop {who} from writing to /proc/sys/vm/drop_caches"))],
        Means::Lock => vec![Fix::advice(format!(
            "keep {who} off the file or directory, or have it hold the lock for shorter operations"
        ))],
        // The aggressor ends the wait after it has run; with less CPU it would end it later.
        Means::Running => vec![Fix::advice(format!(
            "have {who} do less before it ends the wait, or give it more CPU (nice, cpu.weight)"
        ))],
        Means::Cpu => vec![limit(aggressor, &who, &format!("give {who} less CPU"), Resource::Cpu)],
    }
}

fn at_device(aggressor: &Aggressor, who: &str, facts: &Facts<'_>) -> Vec<Fix> {
    let disk = disk(facts).unwrap_or("the disk");
    let rate = Resource::WriteRate(write_rate(aggressor, facts));
    let bound = limit(aggressor, who, &format!("limit what {who} writes to {disk}"), rate);
    let bound = match aggressor.same_file_system {
        Some(false) => bound.measured(&WRITE_LIMIT_OTHER_FILE_SYSTEM),
        _ => bound.measured(&WRITE_LIMIT),
    };
    let other_device = format!(
        "move the files of {who} to another device; another file system of {disk} would share its queue, and made p99 \
         worse where it was tried"
    );
    vec![bound, Fix::advice(other_device)]
}

/// A quarter of what the aggressor wrote per second, in MiB.
fn write_rate(aggressor: &Aggressor, facts: &Facts<'_>) -> u64 {
    let theirs = facts.recording.queue_owners.iter().filter(|row| {
        row.op == RequestOp::Write
            && row.owner.as_ref().is_some_and(|owner| {
                owner.cgroup == aggressor.cgroup && (aggressor.several || owner.name == aggressor.program)
            })
    });
    let bytes = theirs.fold(0_u64, |sum, row| sum.saturating_add(row.bytes));
    let seconds = (facts.duration_ns / 1_000_000_000).max(1);
    let quarter = bytes.checked_div(seconds).unwrap_or(bytes) / 4;
    quarter.max(WRITE_RATE_MIN) >> 20 << 20
}

fn limit(aggressor: &Aggressor, who: &str, what: &str, resource: Resource) -> Fix {
    let own = aggressor.cgroup.clone().filter(|path| path != "/" && !aggressor.in_own_cgroup);
    if let (None, Resource::Memory) = (&own, resource) {
        let shared = aggressor.cgroup.as_deref().filter(|path| *path != "/");
        let why =
            shared.map(|path| format!(": it shares {path} with the target, which a limit there would delay as well"));
        let text = format!("give {who} its own memory cgroup{}", why.unwrap_or_default());
        return Fix::limit(text, Limit { resource, pids: aggressor.pids.clone(), cgroup: None });
    }
    let amount = match resource {
        Resource::WriteRate(bytes) => format!(" ({}/s)", Bytes(bytes)),
        Resource::Memory => " (to half of what its cgroup uses)".to_owned(),
        Resource::Cpu => String::new(),
    };
    let place = match (&own, &aggressor.cgroup) {
        (None, Some(path)) if path != "/" => {
            format!(", in its own cgroup: {path} is also the target's, which a limit there would delay as well")
        }
        (None, _) => ", in its own cgroup".to_owned(),
        (Some(_), _) => String::new(),
    };
    Fix::limit(format!("{what}{amount}{place}"), Limit { resource, pids: aggressor.pids.clone(), cgroup: own })
}
