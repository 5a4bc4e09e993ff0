//! What a probe measures, where, and within which limits.

use flatwater_recording::named_enum;
use serde::{Deserialize, Serialize};

named_enum! {
    /// A call of the victim, one thread each.
    Operation, text {
        /// write() of 4 KiB at the end of a file.
        Append => "append", "append";
        /// fsync() of a file after such a write.
        Fsync => "fsync", "fsync";
        /// read() of 4 KiB that is not in the page cache.
        Read => "read", "read";
        /// read() of 4 KiB that was in the page cache.
        CachedRead => "cached-read", "cached read";
    }
}

impl Operation {
    /// Name of the thread in the recording.
    #[must_use]
    pub fn thread(self) -> &'static str {
        match self {
            Operation::Append => "probe-append",
            Operation::Fsync => "probe-fsync",
            Operation::Read => "probe-read",
            Operation::CachedRead => "probe-cached",
        }
    }

    /// The pause of the thread after each call, ns. Without pauses the threads would slow each other, which would hide
    /// the effect of a neighbour.
    #[must_use]
    pub fn pause_ns(self) -> u64 {
        match self {
            Operation::Append | Operation::CachedRead => 4_000_000,
            Operation::Read => 5_000_000,
            Operation::Fsync => 3_000_000,
        }
    }
}

named_enum! {
    /// The load of a neighbour.
    Load, text {
        /// Sequential writes, written back at the speed of the device.
        Dirty => "dirty-stream", "dirty stream";
        /// Appends of 4 KiB, each with an fsync().
        Fsync => "fsync-stream", "fsync stream";
        /// Creates and removes files of 4 KiB.
        SmallFiles => "small-files", "small files";
        /// Reads a large file again and again, so that its pages displace others.
        Cache => "cache-eviction", "cache eviction";
    }
}

impl Load {
    /// Whether it changes the file system, so that a journal can contain its changes.
    #[must_use]
    pub fn writes(self) -> bool {
        self != Load::Cache
    }
}

named_enum! {
    /// Where the neighbour is, as the victim sees it.
    Relation, text {
        SameFileSystem => "same-file-system", "same file system";
        OtherCgroup => "other-cgroup", "same file system, other cgroup";
        SameDevice => "same-device", "other file system, same device";
        OtherDevice => "other-device", "other device";
    }
}

impl Relation {
    #[must_use]
    pub fn shares_file_system(self) -> bool {
        matches!(self, Relation::SameFileSystem | Relation::OtherCgroup)
    }
}

/// The most that a probe writes at once: this share of the free space of each file system.
const FREE_SHARE: u64 = 10;
const DIRTY_MAX: u64 = 256 << 20;
const CACHE_MAX: u64 = 64 << 20;
/// A memory limit up to this size is exceeded by the neighbour's reads.
const LIMIT_READ_MAX: u64 = 256 << 20;
const PART_MIN: u64 = 8 << 20;
/// Files of a neighbour that syncs or creates small files.
const SMALL: u64 = 2 << 20;
/// Time that a neighbour's pages under writeback take at the measured speed. Longer queues would still be full in the
/// pause after a phase.
const IN_FLIGHT_NS: u64 = 250_000_000;
/// Time for writing the file that a neighbour reads.
const PREPARE_NS: u64 = 1_500_000_000;

/// Sizes of the victim's files, bytes.
pub const APPEND_BYTES: u64 = 2 << 20;
pub const SYNC_BYTES: u64 = 2 << 20;
pub const READ_BYTES: u64 = 4 << 20;
pub const CACHED_BYTES: u64 = 2 << 20;
/// All files of the victim.
pub const VICTIM_BYTES: u64 = APPEND_BYTES + SYNC_BYTES + READ_BYTES + CACHED_BYTES;
/// Written and read at most, each neighbour, bytes per second.
pub const RATE_MAX: u64 = 512 << 20;

/// Limits of the neighbours in one directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The file of the dirty stream.
    pub dirty_bytes: u64,
    /// The file that is read to evict other pages.
    pub cache_bytes: u64,
    /// The most pages under writeback; `None`: the kernel starts the writeback, because the stream reaches its limits.
    pub in_flight_bytes: Option<u64>,
}

/// The file system's free space is too small to measure within a tenth of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooSmall {
    pub wanted_free_bytes: u64,
}

impl Limits {
    /// The limits of each of `neighbours` in a file system with this free space; `victim` if the victim's files are
    /// there as well. `bytes_per_s` is the measured speed of the device.
    pub fn of(
        free_bytes: u64,
        neighbours: u64,
        victim: bool,
        bytes_per_s: u64,
        memory: Memory,
    ) -> Result<Limits, TooSmall> {
        let victim_bytes = if victim { VICTIM_BYTES } else { 0 };
        let neighbours = neighbours.max(1);
        let share = (free_bytes / FREE_SHARE).saturating_sub(victim_bytes) / neighbours;
        let share = share.saturating_sub(SMALL);
        if share < 2 * PART_MIN {
            let wanted = (2 * PART_MIN + SMALL) * neighbours + victim_bytes;
            return Err(TooSmall { wanted_free_bytes: wanted * FREE_SHARE });
        }
        let in_ns =
            |ns: u64| (u128::from(bytes_per_s) * u128::from(ns) / 1_000_000_000).min(u128::from(u64::MAX)) as u64;
        // A quarter more than the limit, so that the pages of one pass do not fit.
        let evicting = memory.limit_bytes.map(|limit| limit / 4 * 5).filter(|wanted| *wanted <= LIMIT_READ_MAX);
        let cache_bytes =
            evicting.unwrap_or(CACHE_MAX).min(in_ns(PREPARE_NS) / neighbours).min(share / 2).max(PART_MIN);
        let dirty_bytes = (share - cache_bytes).min(DIRTY_MAX);
        let reaches = memory.dirty_limit_bytes.is_some_and(|limit| limit <= dirty_bytes);
        let in_flight_bytes = (!reaches).then(|| in_ns(IN_FLIGHT_NS).clamp(1 << 20, 64 << 20));
        Ok(Limits { dirty_bytes, cache_bytes, in_flight_bytes })
    }
}

/// Memory that bounds the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The limit of the cgroup in which the neighbour runs.
    pub limit_bytes: Option<u64>,
    /// What the machine can still give to the page cache.
    pub available_bytes: u64,
    /// Dirty pages from which the kernel pauses writers; `None` if that is not known.
    pub dirty_limit_bytes: Option<u64>,
}

impl Memory {
    /// More pages than this displace others.
    #[must_use]
    pub fn room_bytes(self) -> u64 {
        self.limit_bytes.unwrap_or(u64::MAX).min(self.available_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::{CACHE_MAX, Limits, Memory, PART_MIN, TooSmall, VICTIM_BYTES};

    const MEMORY: Memory = Memory { limit_bytes: None, available_bytes: 8 << 30, dirty_limit_bytes: Some(2 << 30) };

    #[test]
    fn all_files_together_take_at_most_a_tenth_of_what_is_free() {
        for free in [400_u64 << 20, 1 << 30, 5 << 30, 1 << 40] {
            for (neighbours, speed) in [(1, 5 << 20), (2, 100 << 20), (3, 4 << 30)] {
                let Ok(limits) = Limits::of(free, neighbours, true, speed, MEMORY) else { continue };
                let all = (limits.dirty_bytes + limits.cache_bytes + super::SMALL) * neighbours + VICTIM_BYTES;
                assert!(all <= free / 10, "{free} {neighbours}: {limits:?}");
                assert!(limits.dirty_bytes >= PART_MIN && limits.cache_bytes >= PART_MIN);
            }
        }
    }

    #[test]
    fn too_little_space_names_the_space_that_is_needed() {
        let Err(TooSmall { wanted_free_bytes }) = Limits::of(50 << 20, 2, true, 1 << 30, MEMORY) else {
            panic!("50 MiB are too few");
        };
        assert!(Limits::of(wanted_free_bytes, 2, true, 1 << 30, MEMORY).is_ok());
        assert!(Limits::of(wanted_free_bytes - (1 << 20), 2, true, 1 << 30, MEMORY).is_err());
    }

    #[test]
    fn writeback_in_flight_follows_the_speed_of_the_device() {
        let of = |speed, memory| Limits::of(1 << 40, 1, true, speed, memory).expect("enough space");
        assert_eq!(of(40 << 20, MEMORY).in_flight_bytes, Some(10 << 20));
        assert_eq!(of(1 << 10, MEMORY).in_flight_bytes, Some(1 << 20));
        let lowered = Memory { dirty_limit_bytes: Some(64 << 20), ..MEMORY };
        assert_eq!(of(40 << 20, lowered).in_flight_bytes, None, "the kernel's own limit is reached");
    }

    #[test]
    fn the_file_that_evicts_exceeds_the_memory_limit() {
        let limited = Memory { limit_bytes: Some(96 << 20), ..MEMORY };
        let limits = Limits::of(1 << 40, 1, true, 1 << 30, limited).expect("enough space");
        assert!(limits.cache_bytes > limited.room_bytes());
        let free = Limits::of(1 << 40, 1, true, 1 << 30, MEMORY).expect("enough space");
        assert!(free.cache_bytes == CACHE_MAX && free.cache_bytes < MEMORY.room_bytes());
    }
}
