//! What one look at the machine brought: rows, slow calls with their owners, events and gaps.

use flatwater_recording::{Call, Event, Gap, LatencyBucket, Series, Stack};

use crate::owner::Owner;

/// A slow call, and whose it is.
#[derive(Clone, Debug)]
pub struct OwnedCall {
    pub call: Call,
    pub owner: Owner,
}

/// Everything since the last look, about a second of it.
#[derive(Clone, Debug, Default)]
pub struct Second {
    pub start_ns: u64,
    pub end_ns: u64,
    pub series: Vec<Series>,
    pub calls: Vec<OwnedCall>,
    /// Those that the calls refer to and that were not told before.
    pub stacks: Vec<Stack>,
    pub latency: Vec<LatencyBucket>,
    pub events: Vec<Event>,
    pub gaps: Vec<Gap>,
}

impl Second {
    /// About what it takes in memory: texts and rows, without what the allocator adds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let series = self.series.iter().map(|series| (series.columns.len() + 3) * series.len() * VALUE_BYTES + 256);
        let calls = self.calls.iter().map(|owned| {
            let call = &owned.call;
            size_of::<OwnedCall>()
                + size_of_val(&call.segments[..])
                + call.thread.len()
                + call.file.as_ref().map_or(0, String::len)
        });
        let gaps = self.gaps.len() * 256;
        let latency = self.latency.len() * 256;
        size_of::<Second>() + series.sum::<usize>() + calls.sum::<usize>() + gaps + latency + self.events.len() * 128
    }

    /// The time that calls lost in it.
    #[must_use]
    pub fn stall_ns(&self) -> u64 {
        self.calls.iter().map(|owned| owned.call.duration_ns).fold(0, u64::saturating_add)
    }
}

/// A nullable integer in a column.
const VALUE_BYTES: usize = 16;
