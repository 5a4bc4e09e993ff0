//! The writer's side of `window`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::core::{Core, DataFile};
use crate::error::AppendError;
use crate::frame::{self, FILE_HEADER_LEN};
use crate::lane::Lane;
use crate::options::BackPressure;
use crate::patience::Patience;
use crate::sys::page_bytes;

/// How often a writer in the ring checks whether it may return to its window, bytes.
const ASK_BYTES: u64 = 4096;

#[derive(Debug)]
pub(crate) struct WindowSide {
    /// Keeps the mapping alive that the lane points into.
    file: Arc<DataFile>,
    file_base: u64,
    /// Bytes of the file that records may fill: the mapped length, less the end mark.
    file_bytes_max: u64,
    /// The lane points into the ring, not into the file.
    staged: bool,
}

impl WindowSide {
    /// Enters a file at the lane's cursor. `file_base` is the position of the file's first byte.
    pub(crate) fn enter(core: &Core, file: Arc<DataFile>, file_base: u64, lane: &mut Lane) -> WindowSide {
        let mapped = file.map.as_ref().map_or(0, |m| m.len() as u64);
        let file_bytes_max = if core.roll_bytes == 0 { mapped } else { mapped.min(core.roll_room()) };
        let side = WindowSide { file, file_base, file_bytes_max, staged: false };
        side.point_at_file(lane);
        // With a fallback ring the writer checks before each page whether to switch; without one it uses all warm
        // pages.
        if core.stage.get().is_none() {
            lane.limit = lane.cursor.max(side.warm_end());
        }
        side
    }

    fn point_at_file(&self, lane: &mut Lane) {
        let base = self.file.map.as_ref().map_or(std::ptr::null_mut(), |m| m.base());
        lane.base = base.wrapping_sub(self.file_base as usize);
        lane.mask = u64::MAX;
        lane.limit = lane.cursor;
    }

    /// Position up to which records may be stored now.
    fn warm_end(&self) -> u64 {
        self.file_base + self.file.warm.load(Ordering::Acquire).min(self.file_bytes_max)
    }

    /// Raises the lane's limit until `need` bytes fit, in this file, in the next one or in the ring.
    pub(crate) fn make_room(&mut self, core: &Core, lane: &mut Lane, need: u64) -> Result<(), AppendError> {
        let mut patience = Patience::new();
        let mut late = false;
        loop {
            if self.staged {
                if self.room_in_ring(core, lane, need) {
                    return Ok(());
                }
                if !self.staged {
                    continue;
                }
            } else {
                if self.room_in_file(core, lane, need)? {
                    return Ok(());
                }
                if !late {
                    core.counters.0.late.fetch_add(1, Ordering::Relaxed);
                    late = true;
                }
                if self.enter_ring(core, lane, need) {
                    continue;
                }
            }
            if let Some(refusal) = core.append_refusal() {
                return Err(refusal);
            }
            if core.back_pressure == BackPressure::Fail {
                return Err(AppendError::Full { waiting_bytes: lane.cursor - core.filed_end() });
            }
            patience.wait(core);
        }
    }

    /// Makes room in this file or in the next, if it is warm and the helper is not stuck.
    fn room_in_file(&mut self, core: &Core, lane: &mut Lane, need: u64) -> Result<bool, AppendError> {
        if let Err(e) = core.check_stores(&self.file) {
            core.fail("append", &e);
            return Err(AppendError::Failed { what: "append", message: e.to_string() });
        }
        if lane.cursor + need > self.file_base + self.file_bytes_max {
            if core.roll_bytes == 0 {
                let message = format!(
                    "the file has reached the {} bytes that could be mapped; open with a pattern and a roll size",
                    self.file_bytes_max
                );
                return Err(AppendError::Failed { what: "append", message });
            }
            let Some(next) = self.next_file(core, lane) else { return Ok(false) };
            self.roll(core, lane, next);
            return self.room_in_file(core, lane, need);
        }
        let warm_end = self.warm_end();
        if warm_end < lane.cursor + need {
            return Ok(false);
        }
        lane.limit = match core.stage.get() {
            Some(stage) if stage.must_flee() && self.enter_ring(core, lane, need) => lane.limit,
            // The writer checks again at each page.
            Some(_) => {
                (self.file_base + (lane.cursor + need - self.file_base).next_multiple_of(page_bytes())).min(warm_end)
            }
            None => warm_end,
        };
        Ok(lane.room() >= need)
    }

    /// The prepared file, if the end mark of the current one fits into warm pages.
    fn next_file(&self, core: &Core, lane: &Lane) -> Option<Arc<DataFile>> {
        let all_warm = self.file.warm.load(Ordering::Acquire);
        if self.file_base + all_warm < lane.cursor + mark_len(lane) { None } else { core.take_next() }
    }

    /// Ends a file that is old, unless it is empty, in the ring, or the next file is not ready.
    pub(crate) fn roll_by_age(&mut self, core: &Core, lane: &mut Lane) {
        if self.staged || lane.cursor <= self.file_base + lane.head_len() {
            return;
        }
        if let Some(next) = self.next_file(core, lane) {
            self.roll(core, lane, next);
        }
    }

    /// Switches to the ring, if there is one and the record fits.
    fn enter_ring(&mut self, core: &Core, lane: &mut Lane, need: u64) -> bool {
        let fits = lane.cursor + need <= self.file_base + self.file_bytes_max;
        let Some(stage) = core.stage.get().filter(|s| fits && need <= s.ring.capacity / 2) else { return false };
        stage.enter(core, lane.cursor);
        (lane.base, lane.mask) = (stage.ring.base(), stage.ring.capacity - 1);
        lane.limit = lane.cursor + need;
        self.staged = true;
        core.counters.0.fallbacks.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Makes room in the ring. Or returns to the file; then `staged` is false.
    fn room_in_ring(&mut self, core: &Core, lane: &mut Lane, need: u64) -> bool {
        let Some(stage) = core.stage.get() else { return false };
        let file_end = self.file_base + self.file_bytes_max;
        let ends = lane.cursor + need > file_end;
        let warm = stage.is_ready() && self.warm_end() >= lane.cursor + need;
        // A record that begins a new file must wait until the window is used again.
        if (ends || warm) && stage.leave(core, lane.cursor) {
            self.point_at_file(lane);
            self.staged = false;
            return false;
        }
        let most = core.live.flushed.0.load(Ordering::Acquire) + stage.ring.capacity;
        // Once windows are ready, every append tries to return, since the ring is empty only for moments.
        let ask = if stage.is_ready() { need } else { need.max(ASK_BYTES) };
        lane.limit = lane.cursor.max(most.min(lane.cursor + ask).min(file_end));
        lane.room() >= need
    }

    /// Ends this file and enters the prepared one. The live block tells the helper.
    fn roll(&mut self, core: &Core, lane: &mut Lane, next: Arc<DataFile>) {
        if lane.framed {
            // SAFETY: the caller has checked that the mark's bytes are warm; `file_bytes_max` keeps them within the
            // mapping.
            unsafe { lane.mark_end() };
        }
        lane.cursor += mark_len(lane);
        let (seq, base) = (next.seq, lane.cursor);
        // The helper still has the old file, so the old mapping is not unmapped here.
        *self = WindowSide::enter(core, next, base, lane);
        // Position first: after a death between the two stores, the position must not be before the file's base.
        core.live.position.0.store(base, Ordering::Release);
        core.live.set_file(seq, base);
        if lane.framed {
            let header = core.header(seq, base, lane.number);
            // SAFETY: the helper offers a file once its first pages are warm, and this is the file's only writer.
            unsafe { lane.put_raw(&header.encode()) };
            lane.cursor += FILE_HEADER_LEN as u64;
            core.live.position.0.store(lane.cursor, Ordering::Release);
        }
        core.counters.0.rolls.fetch_add(1, Ordering::Relaxed);
        core.signals.0.roll_due.store(false, Ordering::Relaxed);
    }
}

fn mark_len(lane: &Lane) -> u64 {
    if lane.framed { frame::END_MARK_LEN as u64 } else { 0 }
}
