//! Finds who made pages dirty and who took memory, from the kernel's own counts of known processes, once per interval.
//!
//! /proc/PID/io counts the bytes that a process made dirty (`write_bytes`, include/linux/task_io_accounting.h), at no
//! cost to the writer. Counting each page with a hook as it becomes dirty would cost 176 ns a page.

use std::collections::HashMap;
use std::fs;

use super::identity::Identities;
use crate::proc;
use flatwater_recording::{Dirtier, MemoryScope, MemoryUser, Task};

/// Read at most this many processes, at some 20 us each.
const PROCESSES_MAX: usize = 512;

#[derive(Clone, Debug, Default)]
struct Counts {
    /// The current name: a process seen between fork() and execve() had the shell's name.
    name: String,
    dirtied_bytes: u64,
    read_bytes: u64,
    faults: u64,
    resident_pages: u64,
}

/// The counts of the processes at the last reading.
#[derive(Debug, Default)]
pub struct MemoryLedger {
    before: HashMap<u32, Counts>,
    looked_ns: u64,
}

impl MemoryLedger {
    /// Rows for the interval since the last call (the first time: since `began_ns`). A new process gets rows from the
    /// next call on.
    pub fn take(&mut self, names: &mut Identities, began_ns: u64, now_ns: u64) -> (Vec<Dirtier>, Vec<MemoryUser>) {
        if self.looked_ns == 0 {
            self.looked_ns = began_ns;
        }
        let (start_ns, width_ns) = (self.looked_ns, now_ns.saturating_sub(self.looked_ns));
        let (mut dirtiers, mut users) = (Vec::new(), Vec::new());
        let mut after = HashMap::new();
        for owner in names.known_processes().take(PROCESSES_MAX) {
            let Some(now) = counts(owner.pid) else { continue };
            let owner = if now.name == owner.name { owner } else { names.owner(owner.pid, owner.pid, &now.name) };
            if let Some(before) = self.before.get(&owner.pid) {
                let dirtied = now.dirtied_bytes.saturating_sub(before.dirtied_bytes);
                let faults = now.faults.saturating_sub(before.faults);
                let read = now.read_bytes.saturating_sub(before.read_bytes);
                if dirtied > 0 {
                    dirtiers.push(row(&owner, start_ns, width_ns, dirtied));
                }
                if faults > 0 || read > 0 {
                    users.push(MemoryUser {
                        start_ns,
                        width_ns,
                        scope: MemoryScope::Process,
                        owner: owner.clone(),
                        allocated_pages: Some(faults),
                        resident_pages: Some(now.resident_pages),
                        read_bytes: Some(read),
                        ..MemoryUser::default()
                    });
                }
            }
            after.insert(owner.pid, now);
        }
        for (&(device, inode), dirtied) in names.dirtied_since(start_ns) {
            dirtiers.push(Dirtier {
                inode: Some(inode),
                // The kernel's device number: 20 bits of minor (include/linux/kdev_t.h).
                device: Some(format!("{}:{}", device >> 20, device & 0xf_ffff)),
                file: dirtied.file.clone(),
                bytes: None,
                ..row(&dirtied.owner, start_ns, width_ns, 0)
            });
        }
        (self.before, self.looked_ns) = (after, now_ns);
        (dirtiers, users)
    }
}

fn row(owner: &Task, start_ns: u64, width_ns: u64, bytes: u64) -> Dirtier {
    Dirtier { start_ns, width_ns, owner: owner.clone(), bytes: Some(bytes), ..Dirtier::default() }
}

fn counts(pid: u32) -> Option<Counts> {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let stat = proc::text::read(format!("/proc/{pid}/stat")).ok()?;
    read_counts(&io, &stat)
}

fn read_counts(io: &str, stat: &str) -> Option<Counts> {
    let of = |name: &str| io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    // The name may contain any character. After it: state first, minflt 8th, majflt 10th, rss 22nd.
    let (before, after) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let field = |place: usize| fields.get(place).and_then(|text| text.parse::<u64>().ok());
    Some(Counts {
        name: before.split_once('(')?.1.to_owned(),
        dirtied_bytes: of("write_bytes:")?,
        read_bytes: of("read_bytes:")?,
        faults: field(7)? + field(9)?,
        resident_pages: field(21)?,
    })
}

#[cfg(test)]
mod tests {
    use super::{MemoryLedger, read_counts};
    use crate::waits::identity::Identities;
    use crate::waits::layout::DirtierRecord;

    #[test]
    fn counts_are_parsed_after_any_name() {
        let io = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 50\nwrite_bytes: 60\ncancelled_write_bytes: 7\n";
        let stat =
            "812 (a) b (c) S 7 812 812 0 -1 4194560 100 2 30 4 5 6 7 8 20 0 31 0 100 9999 555 18446744073709551615";
        let counts = read_counts(io, stat).expect("counts");
        assert_eq!((counts.dirtied_bytes, counts.read_bytes), (60, 50));
        assert_eq!((counts.faults, counts.resident_pages, counts.name.as_str()), (130, 555, "a) b (c"));
        assert!(read_counts("", stat).is_none());
    }

    #[test]
    fn the_first_interval_begins_with_the_recording() {
        let (mut names, mut ledger) = (Identities::default(), MemoryLedger::default());
        names.note_dirtier(&DirtierRecord {
            inode_device: 1,
            inode: 2,
            at_ns: 700,
            tgid: 9,
            ..DirtierRecord::default()
        });
        let (dirtiers, _) = ledger.take(&mut names, 500, 1_000);
        let spans: Vec<_> = dirtiers.iter().map(|row| (row.start_ns, row.width_ns)).collect();
        assert_eq!(spans, [(500, 500)]);
    }

    #[test]
    fn a_process_that_writes_is_a_dirtier_from_the_second_reading_on() {
        let mut names = Identities::default();
        let pid = std::process::id();
        // As if seen between fork() and execve().
        names.owner(pid, pid, "sh");
        let mut ledger = MemoryLedger::default();
        let folder = tempfile::tempdir().expect("a folder");
        assert!(ledger.take(&mut names, 500, 1_000).0.is_empty());
        // Larger than what the allocator keeps, so its pages are new.
        let bytes = vec![7_u8; 48 << 20];
        std::fs::write(folder.path().join("file"), &bytes).expect("written");
        let (dirtiers, users) = ledger.take(&mut names, 1_000, 2_000);
        assert!(users.iter().any(|user| user.owner.pid == pid), "it has faulted pages in");
        // On tmpfs nothing is written back or counted as dirty.
        if !folder.path().starts_with("/dev/shm") {
            let own = dirtiers.iter().find(|row| row.owner.pid == pid).expect("it made pages dirty");
            assert!(own.bytes.expect("a count") >= 4 << 20, "{own:?}");
            assert_eq!((own.start_ns, own.width_ns), (1_000, 1_000));
            let now = std::fs::read_to_string("/proc/self/comm").expect("a name");
            assert_eq!(own.owner.name, now.trim_end(), "the current name");
        }
    }
}
