//! Calls found by their sleeps, until they are reported.

use super::detector::Found;

/// Keep at most this many calls; beyond that new ones are dropped and counted.
const CALLS_MAX: usize = 65_536;

#[derive(Debug, Default)]
pub struct FoundCalls {
    calls: Vec<Found>,
    pub dropped: u64,
}

impl FoundCalls {
    pub fn extend(&mut self, found: impl IntoIterator<Item = Found>) {
        for call in found {
            if self.calls.len() < CALLS_MAX {
                self.calls.push(call);
            } else {
                self.dropped += 1;
            }
        }
    }

    /// Removes and returns the calls that had returned by this time.
    pub fn take(&mut self, returned_by_ns: u64) -> Vec<Found> {
        self.calls.extract_if(.., |found| found.returned_by_ns <= returned_by_ns).collect()
    }
}
