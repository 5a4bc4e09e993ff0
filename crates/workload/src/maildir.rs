//! A mail store: very many small files in hashed directories, which are delivered, listed, read and expunged. It shows
//! how many inodes and dentries the kernel keeps, and the cost of a miss.
//!
//! The case study's servers had 50 million files each; `scale` reduces this to a size that fits the machine.

use super::dice::Dice;
use super::outcome::maildir::MaildirObserver;
use super::params::SCALE;
use super::{Actor, ActorStart, DirId, FileId, Footprint, Observe, ParamError, ParamKind, ParamSpec, Params, Role};
use super::{Stream, Workload, WorkloadEntry};

mod server;

pub const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "maildir",
    sentence: "Very many small files in hashed directories: deliver, list, stat, read, expunge.",
    params: PARAMS,
    build,
};

const fn share(name: &'static str, default: &'static str, sentence: &'static str) -> ParamSpec {
    ParamSpec { name, kind: ParamKind::Share, default, sentence }
}

const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        name: "mailboxes",
        kind: ParamKind::Count { min: 1, max: 1 << 24 },
        default: "100000",
        sentence: "Mailboxes, 256 in each hashed directory (scaled).",
    },
    ParamSpec {
        name: "messages",
        kind: ParamKind::Count { min: 1, max: 1 << 20 },
        default: "500",
        sentence: "Messages in each mailbox when the measured part begins.",
    },
    ParamSpec {
        name: "message_size",
        kind: ParamKind::Size { min: 1, max: 1 << 30 },
        default: "4KiB",
        sentence: "Mean size of a message; sizes are uniform from a quarter to seven quarters of the mean.",
    },
    ParamSpec {
        name: "threads",
        kind: ParamKind::Count { min: 1, max: 1024 },
        default: "8",
        sentence: "Server threads, each with its own mailboxes.",
    },
    share("deliver", "0.2", "Share of a server's actions that deliver a message: create in tmp, write, rename to new."),
    share("expunge", "0.2", "Share that unlink the oldest message of a mailbox."),
    share("list", "0.3", "Share that list a mailbox and stat some of the messages; the other actions read messages."),
    ParamSpec {
        name: "stats",
        kind: ParamKind::Count { min: 0, max: 1 << 20 },
        default: "20",
        sentence: "Messages to stat() after listing a mailbox.",
    },
    ParamSpec {
        name: "reads",
        kind: ParamKind::Count { min: 1, max: 1 << 20 },
        default: "1",
        sentence: "Consecutive messages of a mailbox that one action reads, like a session that fetches its mail.",
    },
    ParamSpec {
        name: "fsync",
        kind: ParamKind::Switch,
        default: "false",
        sentence: "Whether a delivery calls fsync() before rename().",
    },
    ParamSpec {
        name: "pause",
        kind: ParamKind::Duration { min_ns: 0, max_ns: 3_600_000_000_000 },
        default: "1ms",
        sentence: "Pause of a server after each action.",
    },
    ParamSpec {
        name: "hit_under",
        kind: ParamKind::Duration { min_ns: 100, max_ns: 1_000_000_000 },
        default: "20us",
        sentence: "A faster stat() counts as a cache hit: reading the inode from any disk takes longer.",
    },
    SCALE,
];

/// Shares and sizes of a server's actions.
#[derive(Clone, Copy, Debug)]
struct Habits {
    deliver: f64,
    expunge: f64,
    list: f64,
    stats: u64,
    reads: u64,
    fsync: bool,
    pause_ns: u64,
}

#[derive(Debug)]
struct Maildir {
    layout: Layout,
    threads: u64,
    habits: Habits,
    hit_under_ns: u64,
}

fn build(params: &Params, seed: u64) -> Result<Box<dyn Workload>, ParamError> {
    let habits = Habits {
        deliver: params.share("deliver"),
        expunge: params.share("expunge"),
        list: params.share("list"),
        stats: params.count("stats"),
        reads: params.count("reads"),
        fsync: params.switch("fsync"),
        pause_ns: params.duration_ns("pause"),
    };
    if habits.deliver + habits.expunge + habits.list > 1.0 + 1e-9 {
        return Err(ParamError::Impossible {
            workload: "maildir".to_owned(),
            why: "deliver, expunge and list add up to more than 1; the remaining share is for reads".to_owned(),
        });
    }
    let layout = Layout {
        seed,
        mailboxes: params.scaled_count("mailboxes"),
        messages: params.count("messages"),
        message_bytes: params.size_bytes("message_size"),
    };
    let threads = params.count("threads").min(layout.mailboxes);
    Ok(Box::new(Maildir { layout, threads, habits, hit_under_ns: params.duration_ns("hit_under") }))
}

/// Paths of messages. A message is (mailbox, number); it is in `new`, or in `tmp` during its delivery.
#[derive(Clone, Copy, Debug)]
struct Layout {
    seed: u64,
    mailboxes: u64,
    messages: u64,
    message_bytes: u64,
}

const IN_TMP: u64 = 1 << 63;
const NUMBER_BITS: u32 = 32;
const MAILBOXES_A_DIRECTORY: u64 = 256;

/// Directories of one mailbox: the mailbox itself, `new` and `tmp`. Ids of hashed directories are above those of all
/// mailboxes.
const DIRS_A_MAILBOX: u64 = 3;
const HASHED_DIRS: u64 = 1 << 40;

impl Layout {
    fn message(self, mailbox: u64, number: u64) -> FileId {
        FileId(mailbox << NUMBER_BITS | number & 0xffff_ffff)
    }

    fn message_in_tmp(self, mailbox: u64, number: u64) -> FileId {
        FileId(self.message(mailbox, number).0 | IN_TMP)
    }

    fn hashed(self, mailbox: u64) -> DirId {
        DirId(HASHED_DIRS + mailbox / MAILBOXES_A_DIRECTORY)
    }

    fn mailbox(self, mailbox: u64) -> DirId {
        DirId(mailbox * DIRS_A_MAILBOX)
    }

    fn new_of(self, mailbox: u64) -> DirId {
        DirId(mailbox * DIRS_A_MAILBOX + 1)
    }

    fn tmp_of(self, mailbox: u64) -> DirId {
        DirId(mailbox * DIRS_A_MAILBOX + 2)
    }

    /// Depends only on the message, so that a reader knows the length.
    fn size_bytes(self, message: FileId) -> u64 {
        let quarter = (self.message_bytes / 4).max(1);
        Dice::new(self.seed, message.0 & !IN_TMP, "maildir sizes").between(quarter, 7 * quarter)
    }
}

impl Workload for Maildir {
    fn footprint(&self) -> Footprint {
        let files = self.layout.mailboxes * self.layout.messages;
        // A small file takes a whole 4 KiB block and an inode of 256 B; a mailbox takes three directory blocks.
        let on_disk = self.layout.message_bytes.max(4096) + 256;
        let net_growth = (self.habits.deliver - self.habits.expunge).max(0.0) * self.threads as f64;
        let actions_per_s = 1e9 / self.habits.pause_ns.max(50_000) as f64;
        Footprint {
            disk_bytes: files
                .saturating_mul(on_disk)
                .saturating_add(self.layout.mailboxes * DIRS_A_MAILBOX * (4096 + 256)),
            growth_bytes_per_s: (net_growth * actions_per_s * on_disk as f64) as u64,
            files: files + self.layout.mailboxes * DIRS_A_MAILBOX,
            memory_bytes: self.layout.mailboxes * 8 + self.threads * (1 << 20),
            threads: u32::try_from(self.threads + 1).unwrap_or(u32::MAX),
            processes: 0,
        }
    }

    fn actors(&self) -> Vec<Actor> {
        server::actors(self.layout, self.threads, self.habits)
            .into_iter()
            .map(|(name, role, stream): (String, Role, Box<dyn Stream>)| Actor {
                name,
                role,
                start: ActorStart::Immediately,
                stream,
            })
            .collect()
    }

    fn path(&self, file: FileId) -> String {
        let dir = self.directory_path(self.directory(file));
        format!("{dir}/{}", file.0 & 0xffff_ffff)
    }

    fn directory(&self, file: FileId) -> DirId {
        let mailbox = (file.0 & !IN_TMP) >> NUMBER_BITS;
        if file.0 & IN_TMP == 0 { self.layout.new_of(mailbox) } else { self.layout.tmp_of(mailbox) }
    }

    fn directory_path(&self, dir: DirId) -> String {
        if dir.0 >= HASHED_DIRS {
            return format!("{:03x}", dir.0 - HASHED_DIRS);
        }
        let mailbox = dir.0 / DIRS_A_MAILBOX;
        let below = ["", "/new", "/tmp"][(dir.0 % DIRS_A_MAILBOX) as usize];
        format!("{:03x}/{:02x}{below}", mailbox / MAILBOXES_A_DIRECTORY, mailbox % MAILBOXES_A_DIRECTORY)
    }

    fn directory_above(&self, dir: DirId) -> Option<DirId> {
        let mailbox = dir.0 / DIRS_A_MAILBOX;
        match dir.0 {
            number if number >= HASHED_DIRS => None,
            number if number.is_multiple_of(DIRS_A_MAILBOX) => Some(self.layout.hashed(mailbox)),
            _ => Some(self.layout.mailbox(mailbox)),
        }
    }

    fn observer(&self) -> Option<Box<dyn Observe>> {
        Some(Box::new(MaildirObserver::new(self.hit_under_ns)))
    }
}

#[cfg(test)]
mod tests;
