//! Events with the numbers of dirty throttling that the kernel used when it paused a writer.

use super::layout::DirtyNumbers;
use flatwater_recording::{Event, EventKind};

/// A throttled writer pauses many times a second; keep at most one event per this time.
const EVERY_NS: u64 = 500_000_000;
/// Keep at most this many unread events.
const KEPT_MAX: usize = 4_096;

#[derive(Debug, Default)]
pub struct DirtyNotes {
    last_ns: Option<u64>,
    events: Vec<Event>,
}

impl DirtyNotes {
    pub fn note(&mut self, thread: u32, numbers: &DirtyNumbers) {
        let soon = self.last_ns.is_some_and(|last| numbers.at_ns < last.saturating_add(EVERY_NS));
        if numbers.pauses == 0 || soon || self.events.len() >= KEPT_MAX {
            return;
        }
        self.last_ns = Some(numbers.at_ns);
        self.events.push(Event::new(numbers.at_ns, EventKind::Report(line(thread, numbers))));
    }

    pub fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }
}

fn line(thread: u32, numbers: &DirtyNumbers) -> String {
    let DirtyNumbers { pauses, pause_ms, dirty_pages, limit_pages, wb_dirty_pages, wb_setpoint_pages, .. } = numbers;
    let limit = if *limit_pages > 0 { format!(" of at most {limit_pages}") } else { String::new() };
    format!(
        "balance_dirty_pages: thread {thread} paused {pauses} times in one call, the last for {pause_ms} ms; \
         {dirty_pages} pages dirty{limit}, of this device {wb_dirty_pages} (setpoint {wb_setpoint_pages})"
    )
}

#[cfg(test)]
mod tests {
    use super::{DirtyNotes, DirtyNumbers};

    #[test]
    fn one_line_in_half_a_second_and_none_without_a_pause() {
        let numbers = |at_ns, pauses| DirtyNumbers { at_ns, pauses, dirty_pages: 7, ..DirtyNumbers::default() };
        let mut notes = DirtyNotes::default();
        notes.note(1, &numbers(0, 0));
        notes.note(1, &numbers(10, 2));
        notes.note(1, &numbers(20, 2));
        notes.note(1, &numbers(600_000_000, 1));
        let events = notes.take();
        assert_eq!(events.iter().map(|event| event.at_ns).collect::<Vec<_>>(), [10, 600_000_000]);
        assert!(events[0].kind.to_string().contains("thread 1 paused 2 times"));
        assert!(notes.take().is_empty());
    }
}
