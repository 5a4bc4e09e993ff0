//! The thread that removes old files (`retain_files`, `retain_bytes`), asks for a new file when the current one is old
//! (`roll_every`), and keeps the index of framed files.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::core::{Core, lock, now_ns};
use crate::files::header_of;
use crate::indexer::{self, Indexer};
use crate::options::Framing;

/// What to keep, and for how long a file is current.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Keep {
    /// Most files, the current one included; 0 = all.
    pub(crate) files: u64,
    /// Most bytes of all files together; 0 = all.
    pub(crate) bytes: u64,
    /// Age at which a file ends; `None` = at no age.
    pub(crate) roll_every: Option<Duration>,
}

impl Keep {
    /// Whether files are removed, or ended by age.
    pub(crate) fn is_needed(&self) -> bool {
        self.files != 0 || self.bytes != 0 || self.roll_every.is_some()
    }
}

/// Interval at which the files are listed, unless a file was begun.
const LOOK: Duration = Duration::from_secs(1);
/// Longest nap. A roll is late by at most this, and by the time until the next append.
const NAP: Duration = Duration::from_millis(20);
/// Nap of a thread that only keeps indexes.
const INDEX_NAP: Duration = Duration::from_millis(100);

/// Runs until the appender closes.
pub(crate) fn keep(core: &Core, keep: Keep) {
    let mut epoch = core.live.epoch();
    let mut begun = Instant::now().checked_sub(age_of_current(core)).unwrap_or_else(Instant::now);
    let mut indexer = (core.framing == Framing::Records).then(|| Indexer::new(core));
    let nap = match keep.roll_every {
        Some(age) => NAP.min(age).max(Duration::from_millis(1)),
        None if keep.is_needed() => NAP,
        None => INDEX_NAP,
    };
    let (mut looked, mut asked): (Option<Instant>, Option<u64>) = (None, None);
    while !core.closing.load(Ordering::Acquire) {
        if keep.is_needed() {
            core.panic_if_doomed();
        }
        let rolled = core.live.epoch() != epoch;
        if rolled {
            (epoch, begun) = (core.live.epoch(), Instant::now());
        }
        // Once for each file: with a ring, the epoch changes later than the writer has rolled.
        if asked != Some(epoch) && keep.roll_every.is_some_and(|age| begun.elapsed() >= age) {
            asked = Some(epoch);
            core.signals.0.roll_due.store(true, Ordering::Release);
            core.wake_helper();
        }
        if keep.is_needed() && (rolled || looked.is_none_or(|at| at.elapsed() >= LOOK)) {
            looked = Some(Instant::now());
            // A file that cannot be removed now is tried again, and harms no record.
            let _ = remove_old(core, keep);
        }
        if !indexer.as_mut().is_some_and(|indexer| indexer.turn(core)) {
            std::thread::park_timeout(nap);
        }
    }
    indexer::finish(core, indexer);
}

/// How long ago the current file was begun, by its header.
fn age_of_current(core: &Core) -> Duration {
    let file = std::sync::Arc::clone(&lock(&core.files).current.file);
    let begun = file.get().and_then(header_of).ok().flatten().map(|header| header.begun).filter(|begun| *begun > 0);
    Duration::from_nanos(begun.map_or(0, |begun| now_ns().saturating_sub(begun)))
}

/// Removes the oldest files until the limits hold. Never the current file, nor one after it.
fn remove_old(core: &Core, keep: Keep) -> io::Result<()> {
    let current = core.live.file().0;
    let present = core.names.present()?;
    let mut bytes = 0u64;
    for seq in &present {
        bytes = bytes.saturating_add(core.names.len(*seq)?);
    }
    let mut count = present.iter().filter(|seq| **seq <= current).count() as u64;
    for seq in present.into_iter().take_while(|seq| *seq < current) {
        let over = keep.files != 0 && count > keep.files || keep.bytes != 0 && bytes > keep.bytes;
        if !over {
            break;
        }
        let len = core.names.len(seq)?;
        // Checked like any data file: root removes only root's files.
        core.names.existing(seq).and_then(|_| core.names.remove(seq))?;
        // Its blocks are free only when the appender has closed it; nothing needs to be synced any more.
        lock(&core.files).older.retain(|left| left.seq != seq);
        (count, bytes) = (count - 1, bytes.saturating_sub(len));
    }
    Ok(())
}
