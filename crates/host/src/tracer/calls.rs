//! The system calls that are timed in other programs, and what their arguments mean.

use flatwater_recording::OpKind;

use super::layout::CallState;

/// Where a call's file stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileArg {
    /// Argument 0 is a file descriptor.
    Descriptor,
    /// A path in this argument; at 1, argument 0 is the directory it is relative to.
    Path(usize),
    /// Argument 0 is an address within a mapping.
    Address,
}

/// Where the number of bytes stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BytesArg {
    None,
    At(usize),
    /// A vector whose sum only the result tells.
    Result,
}

/// Where the offset in the file stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetArg {
    None,
    At(usize),
    /// The file position, which has moved on by the result when we read it.
    Position,
}

#[derive(Clone, Copy, Debug)]
pub struct TimedCall {
    pub number: i64,
    pub name: &'static str,
    pub op: OpKind,
    pub file: FileArg,
    pub bytes: BytesArg,
    pub offset: OffsetArg,
}

macro_rules! timed {
    ($($number:ident $name:literal $op:ident $file:expr, $bytes:expr, $offset:expr;)*) => {
        [$(TimedCall {
            number: libc::$number, name: $name, op: OpKind::$op, file: $file, bytes: $bytes, offset: $offset,
        }),*]
    };
}

use BytesArg::{At as Size, None as NoBytes, Result as Vector};
use FileArg::{Address, Descriptor, Path};
use OffsetArg::{At, None as NoOffset, Position};

pub static TIMED: &[TimedCall] = &timed! {
    SYS_read "read" Read Descriptor, Size(2), Position;
    SYS_write "write" Write Descriptor, Size(2), Position;
    SYS_pread64 "pread64" Read Descriptor, Size(2), At(3);
    SYS_pwrite64 "pwrite64" Write Descriptor, Size(2), At(3);
    SYS_readv "readv" Read Descriptor, Vector, Position;
    SYS_writev "writev" Write Descriptor, Vector, Position;
    SYS_preadv "preadv" Read Descriptor, Vector, At(3);
    SYS_pwritev "pwritev" Write Descriptor, Vector, At(3);
    SYS_preadv2 "preadv2" Read Descriptor, Vector, At(3);
    SYS_pwritev2 "pwritev2" Write Descriptor, Vector, At(3);
    SYS_fsync "fsync" Fsync Descriptor, NoBytes, NoOffset;
    SYS_fdatasync "fdatasync" Fdatasync Descriptor, NoBytes, NoOffset;
    SYS_sync_file_range "sync_file_range" SyncFileRange Descriptor, Size(2), At(1);
    SYS_fallocate "fallocate" Fallocate Descriptor, Size(3), At(2);
    SYS_ftruncate "ftruncate" Truncate Descriptor, Size(1), NoOffset;
    SYS_truncate "truncate" Truncate Path(0), Size(1), NoOffset;
    SYS_renameat "renameat" Rename Path(1), NoBytes, NoOffset;
    SYS_renameat2 "renameat2" Rename Path(1), NoBytes, NoOffset;
    SYS_unlinkat "unlinkat" Unlink Path(1), NoBytes, NoOffset;
    SYS_openat "openat" Open Path(1), NoBytes, NoOffset;
    SYS_openat2 "openat2" Open Path(1), NoBytes, NoOffset;
    SYS_msync "msync" Msync Address, Size(1), NoOffset;
};

/// Calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
pub static TIMED_OLD: &[TimedCall] = &timed! {
    SYS_open "open" Open Path(0), NoBytes, NoOffset;
    SYS_creat "creat" Create Path(0), NoBytes, NoOffset;
    SYS_rename "rename" Rename Path(0), NoBytes, NoOffset;
    SYS_unlink "unlink" Unlink Path(0), NoBytes, NoOffset;
};
#[cfg(not(target_arch = "x86_64"))]
pub static TIMED_OLD: &[TimedCall] = &[];

/// The sets of call numbers that the kernel side is loaded with, one bit each.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallSets {
    pub wanted: [u64; 8],
    pub path_first: [u64; 8],
    pub path_second: [u64; 8],
    pub takes_file: [u64; 8],
}

pub fn all() -> impl Iterator<Item = &'static TimedCall> {
    TIMED.iter().chain(TIMED_OLD)
}

#[must_use]
pub fn find(number: i32) -> Option<&'static TimedCall> {
    all().find(|call| call.number == i64::from(number))
}

impl CallSets {
    #[must_use]
    pub fn of_all() -> CallSets {
        let mut sets = CallSets::default();
        for call in all() {
            add(&mut sets.wanted, call.number);
            match call.file {
                FileArg::Descriptor => add(&mut sets.takes_file, call.number),
                FileArg::Path(0) => add(&mut sets.path_first, call.number),
                FileArg::Path(_) => add(&mut sets.path_second, call.number),
                FileArg::Address => {}
            }
        }
        sets
    }
}

fn add(set: &mut [u64; 8], number: i64) {
    if let Ok(number) = usize::try_from(number)
        && let Some(word) = set.get_mut(number / 64)
    {
        *word |= 1 << (number % 64);
    }
}

impl TimedCall {
    #[must_use]
    pub fn bytes_of(&self, state: &CallState) -> Option<u64> {
        match self.bytes {
            BytesArg::None => None,
            BytesArg::At(index) => state.arg.get(index).copied(),
            BytesArg::Result => u64::try_from(state.result).ok(),
        }
    }

    #[must_use]
    pub fn offset_of(&self, state: &CallState) -> Option<u64> {
        match self.offset {
            OffsetArg::None => None,
            OffsetArg::At(index) => state.arg.get(index).copied(),
            OffsetArg::Position if state.has_position != 0 => {
                state.position.checked_sub(u64::try_from(state.result).unwrap_or(0))
            }
            OffsetArg::Position => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CallSets, all, find};
    use flatwater_recording::OpKind;

    #[test]
    fn each_timed_call_has_a_bit_and_is_found_by_its_number() {
        let sets = CallSets::of_all();
        let bits: u32 = sets.wanted.iter().map(|word| word.count_ones()).sum();
        assert_eq!(bits as usize, all().count());
        assert_eq!(find(libc::SYS_fsync as i32).map(|call| call.op), Some(OpKind::Fsync));
        assert!(find(-1).is_none());
        assert!(find(libc::SYS_getppid as i32).is_none());
    }
}
