//! The database's writers: they append bursts to a new file, which then replaces a random one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{MAPPINGS, READY_POLL_NS, Shared};
use crate::dice::Dice;
use crate::{FileId, Mark, Op, Stream};

#[derive(Debug)]
pub(super) enum WriterStep {
    Wait,
    Create,
    Append,
    Pause,
    Lock,
    Unmap,
    CloseOld,
    Map,
    Check,
    Mark,
    Unlock,
    Delete,
}

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) dice: Dice,
    pub(super) step: WriterStep,
    pub(super) file: FileId,
    pub(super) old: FileId,
    pub(super) slot: u64,
    pub(super) written_bytes: u64,
    pub(super) file_bytes: u64,
    pub(super) burst_bytes: u64,
    pub(super) pause_ns: u64,
    /// Whether to unlink replaced files.
    pub(super) deletes: bool,
    /// Whether to read a new file completely before other threads can read it.
    pub(super) checks: bool,
}

impl Stream for Writer {
    fn next(&mut self, _now_ns: u64) -> Option<Op> {
        let file = self.file;
        let (step, op) = match self.step {
            WriterStep::Wait if !self.shared.is_ready() => (WriterStep::Wait, Op::Sleep { ns: READY_POLL_NS }),
            WriterStep::Wait | WriterStep::Create => (WriterStep::Append, Op::Create { file }),
            WriterStep::Append => {
                let bytes = self.burst_bytes.min(self.file_bytes - self.written_bytes);
                self.written_bytes += bytes;
                (WriterStep::Pause, Op::Append { file, bytes })
            }
            WriterStep::Pause => {
                let full = self.written_bytes == self.file_bytes;
                (if full { WriterStep::Lock } else { WriterStep::Append }, Op::Sleep { ns: self.pause_ns })
            }
            WriterStep::Lock => (WriterStep::Unmap, Op::Lock { lock: MAPPINGS, exclusive: true }),
            WriterStep::Unmap => {
                self.slot = self.dice.below(self.shared.slots.len() as u64);
                self.old = self.shared.file(self.slot);
                (WriterStep::CloseOld, Op::Unmap { file: self.old })
            }
            WriterStep::CloseOld => (WriterStep::Map, Op::Close { file: self.old }),
            WriterStep::Map => {
                self.shared.slots[self.slot as usize].store(file.0, Ordering::Release);
                let next = if self.checks { WriterStep::Check } else { WriterStep::Mark };
                (next, Op::Map { file, bytes: self.file_bytes })
            }
            WriterStep::Check => {
                (WriterStep::Mark, Op::Touch { file, offset_bytes: 0, bytes: self.file_bytes, write: false })
            }
            WriterStep::Mark => (WriterStep::Unlock, Op::Mark { mark: Mark::Remapped, value: file.0 }),
            WriterStep::Unlock => {
                self.file = FileId(file.0 + 1);
                self.written_bytes = 0;
                let next = if self.deletes { WriterStep::Delete } else { WriterStep::Create };
                (next, Op::Unlock { lock: MAPPINGS })
            }
            WriterStep::Delete => (WriterStep::Create, Op::Unlink { file: self.old }),
        };
        self.step = step;
        Some(op)
    }
}
