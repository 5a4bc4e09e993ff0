//! The kernel side's structures as Rust sees them: a mirror of bpf/slow_calls.h.

use std::mem::{offset_of, size_of};

pub const STRETCHES: usize = 64;
pub const OWN_SLOTS: usize = 256;
pub const STACK_SECOND: i32 = 0x4000_0000;
const DEPTH: usize = 16;

/// A piece of a call's time, in the order in which it was spent.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    pub ns: u64,
    /// Negative: none.
    pub stack: i32,
    pub kind: u8,
    pub bracket: u8,
    pub count: u16,
}

pub mod kind {
    pub const ON_CPU: u8 = 0;
    pub const SAMPLED: u8 = 1;
    pub const ASLEEP: u8 = 2;
    pub const WOKEN: u8 = 3;
    pub const PREEMPTED: u8 = 4;
    pub const THROTTLED: u8 = 5;
    pub const THROTTLED_LATER: u8 = 6;
}

pub mod record {
    pub const PIECE: u8 = 1;
    pub const CALL: u8 = 2;
    pub const FAULT: u8 = 3;
    pub const AFTER_EXIT: u8 = 4;
}

pub mod counter {
    pub const LOST: u32 = 0;
    pub const TOO_DEEP: u32 = 1;
    pub const NO_STATE: u32 = 2;
    pub const UNBALANCED: u32 = 3;
    pub const STACK_ERROR: u32 = 4;
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirtyNumbers {
    pub at_ns: u64,
    pub pause_ms: i64,
    pub dirty_pages: u64,
    pub limit_pages: u64,
    pub wb_dirty_pages: u64,
    pub wb_setpoint_pages: u64,
    pub pauses: u64,
}

/// A thread's call under way, as the kernel side keeps it and sends it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CallState {
    pub op_start_ns: u64,
    pub start_ns: u64,
    pub last_ns: u64,
    pub end_ns: u64,
    pub wake_ns: u64,
    pub throttled_ns: u64,
    pub arg: [u64; 4],
    pub result: i64,
    pub position: u64,
    pub after_exit_ns: u64,
    pub lock: [u64; DEPTH],
    pub dirty: DirtyNumbers,
    pub tid: u32,
    pub tgid: u32,
    pub number: i32,
    pub sleep_stack: i32,
    pub stretches: u32,
    pub pieces: u32,
    pub record: u8,
    pub active: u8,
    pub off: u8,
    pub busy: u8,
    pub depth: u8,
    pub after_exit: u8,
    pub damaged: u8,
    pub has_position: u8,
    pub bracket: [u8; DEPTH],
    pub comm: [u8; 16],
    pub path: [u8; 128],
    pub stretch: [Stretch; STRETCHES],
}

/// Bytes before the stretches: what every record holds.
pub const HEAD_BYTES: usize = offset_of!(CallState, stretch);

impl CallState {
    /// A record as it came through the ring buffer: the head and as many stretches as it says. `None` if the
    /// bytes are too few.
    #[must_use]
    pub fn from_record(bytes: &[u8]) -> Option<CallState> {
        if bytes.len() < HEAD_BYTES {
            return None;
        }
        let take = bytes.len().min(size_of::<CallState>());
        let mut state = std::mem::MaybeUninit::<CallState>::zeroed();
        // SAFETY: `take` is at most the size of the destination and of the source, which cannot overlap; every
        // bit pattern is a valid CallState, since it holds integers only.
        let mut state = unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), state.as_mut_ptr().cast::<u8>(), take);
            state.assume_init()
        };
        let held = (take - HEAD_BYTES) / size_of::<Stretch>();
        state.stretches = state.stretches.min(held as u32);
        Some(state)
    }

    #[must_use]
    pub fn stretches(&self) -> &[Stretch] {
        let held = (self.stretches as usize).min(STRETCHES);
        &self.stretch[..held]
    }
}

/// Text up to the first zero byte.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{CallState, HEAD_BYTES, OWN_SLOTS, STRETCHES, Stretch, text};

    const HEADER: &str = include_str!("../../bpf/slow_calls.h");

    fn defined(name: &str) -> Option<usize> {
        let line = HEADER.lines().find(|line| line.starts_with(&format!("#define {name} ")))?;
        line.split_whitespace().nth(2)?.parse().ok()
    }

    #[test]
    fn the_mirror_has_the_sizes_of_the_original() {
        assert_eq!(defined("STRETCHES"), Some(STRETCHES));
        assert_eq!(defined("OWN_SLOTS"), Some(OWN_SLOTS));
        assert_eq!(size_of::<Stretch>(), 16);
        // 11 words, 4 arguments, 16 locks, 7 dirty numbers, 6 ints, 8 bytes, 16 brackets, comm and path.
        assert_eq!(HEAD_BYTES, 9 * 8 + 4 * 8 + 16 * 8 + 7 * 8 + 6 * 4 + 8 + 16 + 16 + 128);
        assert_eq!(size_of::<CallState>(), HEAD_BYTES + STRETCHES * 16);
    }

    #[test]
    fn a_short_record_is_refused_and_a_lying_count_is_cut() {
        assert!(CallState::from_record(&[0; 10]).is_none());
        let state = CallState::from_record(&[0xff; HEAD_BYTES + 16]).expect("a head and one stretch");
        assert_eq!(state.stretches().len(), 1);
    }

    #[test]
    fn text_ends_at_the_first_zero() {
        assert_eq!(text(b"cat\0\0x"), "cat");
    }
}
