//! The writer's side of `window`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::core::{Core, DataFile};
use crate::error::AppendError;
use crate::frame;
use crate::lane::{Lane, Patience};
use crate::options::BackPressure;

#[derive(Debug)]
pub(crate) struct WindowSide {
    /// Holds the mapping that the lane points into.
    file: Arc<DataFile>,
    file_base: u64,
    /// Bytes of the file that records may fill: what is mapped, less the mark that ends it.
    file_bytes_max: u64,
}

impl WindowSide {
    /// Enters a file at `cursor`; `file_base` is the position of the file's first byte.
    pub(crate) fn enter(core: &Core, file: Arc<DataFile>, file_base: u64, lane: &mut Lane) -> WindowSide {
        let (base, mapped) = file.map.as_ref().map_or((std::ptr::null_mut(), 0), |m| (m.base(), m.len() as u64));
        let file_bytes_max = if core.roll_bytes == 0 { mapped } else { mapped.min(core.roll_room()) };
        lane.base = base.wrapping_sub(file_base as usize);
        lane.mask = u64::MAX;
        lane.limit = lane.cursor.max(file_base + file.warm.load(Ordering::Acquire).min(file_bytes_max));
        WindowSide { file, file_base, file_bytes_max }
    }

    /// Raises the lane's limit until `need` bytes fit: more of this file, or the next one.
    pub(crate) fn make_room(&mut self, core: &Core, lane: &mut Lane, need: u64) -> Result<(), AppendError> {
        let mut patience = Patience::new();
        let mut late = false;
        loop {
            let here = lane.cursor + need <= self.file_base + self.file_bytes_max;
            let all_warm = self.file.warm.load(Ordering::Acquire);
            let warm = all_warm.min(self.file_bytes_max);
            if here {
                lane.limit = lane.cursor.max(self.file_base + warm);
                if lane.room() >= need {
                    return Ok(());
                }
            } else if core.roll_bytes == 0 {
                let message = format!(
                    "the file has reached the {} bytes that could be mapped; open with a pattern and a roll size",
                    self.file_bytes_max
                );
                return Err(AppendError::Failed { what: "append", message });
            } else if self.file_base + all_warm < lane.cursor + mark_len(lane) {
                // The end of the file itself is late.
            } else if let Some(next) = core.take_next() {
                self.roll(core, lane, next);
                continue;
            }
            if !late {
                core.counters.0.late.fetch_add(1, Ordering::Relaxed);
                late = true;
            }
            if let Some(refusal) = core.append_refusal() {
                return Err(refusal);
            }
            if core.back_pressure == BackPressure::Fail {
                return Err(AppendError::Full { waiting_bytes: 0 });
            }
            patience.wait(core);
        }
    }

    /// Ends this file here and begins the prepared one. The helper learns of it from the live block.
    fn roll(&mut self, core: &Core, lane: &mut Lane, next: Arc<DataFile>) {
        if lane.framed {
            // SAFETY: the caller has seen that these bytes are warm; they lie before the file's end, see `file_bytes_max`.
            unsafe { lane.mark_end() };
        }
        lane.cursor += mark_len(lane);
        let (seq, base) = (next.seq, lane.cursor);
        // The old mapping lives on in the helper's hands, so this drop unmaps nothing.
        *self = WindowSide::enter(core, next, base, lane);
        core.live.set_file(seq, base);
        core.live.position.0.store(base, Ordering::Release);
        core.counters.0.rolls.fetch_add(1, Ordering::Relaxed);
    }
}

fn mark_len(lane: &Lane) -> u64 {
    if lane.framed { frame::END_MARK_LEN as u64 } else { 0 }
}
