//! Receives the records of the BPF programs: from a ring buffer, or on kernels without one from a perf buffer per CPU.

use std::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};

use aya::maps::perf::{PerfEvent, PerfEventArrayBuffer};
use aya::maps::{Map, MapData, PerfEventArray, RingBuf};

use super::error::TraceError;
use super::hooks::{online_cpus, refused};
use super::layout::CallState;

/// Pages per CPU's perf buffer, a power of two: 256 KiB with 4 KiB pages.
const PERF_PAGES: usize = 64;

pub enum Records {
    Ring(RingBuf<MapData>),
    /// The buffers keep their map open. Records that did not fit are counted in `lost`.
    Perf {
        buffers: Vec<PerfEventArrayBuffer<MapData>>,
        lost: u64,
    },
}

impl Records {
    pub fn of(map: Map) -> Result<Records, TraceError> {
        match map {
            Map::RingBuf(_) => RingBuf::try_from(map).map(Records::Ring).map_err(|error| refused(&error)),
            _ => {
                let mut array = PerfEventArray::try_from(map).map_err(|error| refused(&error))?;
                let open = |cpu| array.open(cpu, Some(PERF_PAGES)).map_err(|error| refused(&error));
                let buffers = online_cpus()?.into_iter().map(open).collect::<Result<_, _>>()?;
                Ok(Records::Perf { buffers, lost: 0 })
            }
        }
    }

    /// Passes all available records to `take`; the records of one thread come in the order in which they were sent.
    pub fn drain(&mut self, mut take: impl FnMut(&[u8])) {
        match self {
            Records::Ring(ring) => {
                while let Some(record) = ring.next() {
                    take(&record);
                }
            }
            Records::Perf { buffers, lost } => {
                let mut records: Vec<Vec<u8>> = Vec::new();
                for buffer in buffers {
                    buffer.for_each(|event| match event {
                        PerfEvent::Sample { head, tail } => records.push([head, tail].concat()),
                        PerfEvent::Lost { count } => *lost += count,
                    });
                }
                in_order(&mut records);
                records.iter().for_each(|record| take(record));
            }
        }
    }

    /// Records lost because their perf buffer was full. For the ring buffer, the BPF programs count them.
    pub fn lost(&self) -> u64 {
        match self {
            Records::Ring(_) => 0,
            Records::Perf { lost, .. } => *lost,
        }
    }

    /// Copies of the descriptors that become readable when a record arrives.
    pub fn descriptors(&self) -> std::io::Result<Vec<OwnedFd>> {
        match self {
            Records::Ring(ring) => Ok(vec![ring.as_fd().try_clone_to_owned()?]),
            Records::Perf { buffers, .. } => buffers.iter().map(|buffer| buffer.as_fd().try_clone_to_owned()).collect(),
        }
    }
}

/// Sorts records by the time up to which they reach (`last_ns`). A thread that migrates leaves the batches of a call in
/// several buffers; a batch ends where the next one begins.
fn in_order(records: &mut [Vec<u8>]) {
    const REACHES: usize = offset_of!(CallState, last_ns);
    records.sort_by_key(|record| {
        let bytes = record.get(REACHES..REACHES + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    });
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::in_order;
    use crate::tracer::layout::CallState;

    #[test]
    fn the_pieces_of_a_call_that_migrated_come_in_order() {
        let record = |last_ns: u64| {
            let mut bytes = vec![0; 64];
            let at = offset_of!(CallState, last_ns);
            bytes[at..at + 8].copy_from_slice(&last_ns.to_ne_bytes());
            bytes
        };
        // The call ended on CPU 0, which is drained first; an earlier batch is on CPU 1.
        let mut records = vec![record(300), record(100), record(200)];
        in_order(&mut records);
        assert_eq!(records, [record(100), record(200), record(300)]);
        in_order(&mut [vec![1, 2]]);
    }
}
