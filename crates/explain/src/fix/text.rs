//! The sentences of fixes against a party.

use flatwater_recording::units::Bytes;

use super::action::{Action, Change, Party, Resource};

/// The sentence of an action; empty if the finding has its own.
pub(super) fn of(action: &Action) -> String {
    match action {
        Action::Advice | Action::Set { .. } => String::new(),
        Action::Limit { party, resource } => limit(party, resource),
        Action::OwnMemory { party } => own_memory(party),
        Action::Change { party, change } => of_change(party, change),
    }
}

fn limit(party: &Party, resource: &Resource) -> String {
    let (what, amount) = match resource {
        Resource::WriteRate { disk, bytes_per_s } => {
            let disk = disk.as_deref().unwrap_or("the disk");
            (format!("limit what {party} writes to {disk}"), format!(" ({}/s)", Bytes(*bytes_per_s)))
        }
        Resource::Memory => (format!("bound the memory of {party}"), " (to half of what its cgroup uses)".to_owned()),
        Resource::Cpu => (format!("give {party} less CPU"), String::new()),
    };
    let place = match (party.own_cgroup(), party.shared_cgroup()) {
        (Some(_), _) => String::new(),
        (None, Some(path)) => {
            format!(", in its own cgroup: {path} is also the target's, which a limit there would delay as well")
        }
        (None, None) => ", in its own cgroup".to_owned(),
    };
    format!("{what}{amount}{place}")
}

fn own_memory(party: &Party) -> String {
    let shared = party.shared_cgroup();
    let why = shared.map(|path| format!(": it shares {path} with the target, which a limit there would delay as well"));
    format!("give {party} its own memory cgroup{}", why.unwrap_or_default())
}

fn of_change(party: &Party, change: &Change) -> String {
    match change {
        Change::DeviceForData => format!(
            "move the files of {party} to another device: a commit of this file system's journal writes the data of \
             all processes, so a limit on its I/O would delay the commit as well"
        ),
        Change::DeviceForInodes => format!(
            "move the files of {party} to another device, or have it change fewer inodes (create, remove, rename): a \
             commit of this file system's journal writes the changes of all processes"
        ),
        Change::DeviceForQueue { disk } => format!(
            "move the files of {party} to another device; another file system of {} would share its queue, and made \
             p99 worse where it was tried",
            disk.as_deref().unwrap_or("the disk")
        ),
        Change::DirectWrites => format!("have {party} write with O_DIRECT, or call sync_file_range() as it writes"),
        Change::KeepPageCache => format!("stop {party} from writing to /proc/sys/vm/drop_caches"),
        Change::ShortLocks => {
            format!("keep {party} off the file or directory, or have it hold the lock for shorter operations")
        }
        // The aggressor ends the wait after it has run; with less CPU it would end it later.
        Change::ShortRuns => {
            format!("have {party} do less before it ends the wait, or give it more CPU (nice, cpu.weight)")
        }
    }
}
