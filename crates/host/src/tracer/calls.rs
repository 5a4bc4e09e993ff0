//! The system calls that are timed in other programs, and the meaning of their arguments.

use flatwater_recording::OpKind;

use super::layout::CallState;

/// Which argument names the file of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileArg {
    /// A file descriptor in this argument.
    Descriptor(usize),
    /// Two descriptors. The first is the file of the call, unless it is a pipe; then the second is.
    Descriptors(usize, usize),
    /// A path in this argument, relative to the working directory.
    Path(usize),
    /// A path in this argument, relative to the directory descriptor in the argument before it.
    PathAt(usize),
    /// Argument 0 is an address within a mapping.
    Address,
    /// No argument: sync() concerns all files.
    Nothing,
}

/// Where the number of bytes comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BytesArg {
    None,
    At(usize),
    /// A vector; only the call's result gives the sum.
    Result,
}

/// Where the file offset comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetArg {
    None,
    At(usize),
    /// The file position, which has advanced by the result when it is read.
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
use FileArg::{Address, Descriptor, Descriptors, Nothing, Path, PathAt};
use OffsetArg::{At, None as NoOffset, Position};

pub static TIMED: &[TimedCall] = &timed! {
    SYS_read "read" Read Descriptor(0), Size(2), Position;
    SYS_write "write" Write Descriptor(0), Size(2), Position;
    SYS_pread64 "pread64" Read Descriptor(0), Size(2), At(3);
    SYS_pwrite64 "pwrite64" Write Descriptor(0), Size(2), At(3);
    SYS_readv "readv" Read Descriptor(0), Vector, Position;
    SYS_writev "writev" Write Descriptor(0), Vector, Position;
    SYS_preadv "preadv" Read Descriptor(0), Vector, At(3);
    SYS_pwritev "pwritev" Write Descriptor(0), Vector, At(3);
    SYS_preadv2 "preadv2" Read Descriptor(0), Vector, At(3);
    SYS_pwritev2 "pwritev2" Write Descriptor(0), Vector, At(3);
    SYS_copy_file_range "copy_file_range" CopyFileRange Descriptor(2), Vector, NoOffset;
    SYS_splice "splice" Splice Descriptors(2, 0), Vector, NoOffset;
    SYS_sendfile "sendfile" Sendfile Descriptor(1), Vector, NoOffset;
    SYS_fsync "fsync" Fsync Descriptor(0), NoBytes, NoOffset;
    SYS_fdatasync "fdatasync" Fdatasync Descriptor(0), NoBytes, NoOffset;
    SYS_sync_file_range "sync_file_range" SyncFileRange Descriptor(0), Size(2), At(1);
    SYS_sync "sync" Sync Nothing, NoBytes, NoOffset;
    SYS_syncfs "syncfs" Syncfs Descriptor(0), NoBytes, NoOffset;
    SYS_umount2 "umount2" Unmount Path(0), NoBytes, NoOffset;
    SYS_fallocate "fallocate" Fallocate Descriptor(0), Size(3), At(2);
    SYS_ftruncate "ftruncate" Truncate Descriptor(0), Size(1), NoOffset;
    SYS_truncate "truncate" Truncate Path(0), Size(1), NoOffset;
    SYS_renameat2 "renameat2" Rename PathAt(1), NoBytes, NoOffset;
    SYS_unlinkat "unlinkat" Unlink PathAt(1), NoBytes, NoOffset;
    SYS_linkat "linkat" Link PathAt(1), NoBytes, NoOffset;
    SYS_symlinkat "symlinkat" Symlink PathAt(2), NoBytes, NoOffset;
    SYS_mkdirat "mkdirat" Mkdir PathAt(1), NoBytes, NoOffset;
    SYS_openat "openat" Open PathAt(1), NoBytes, NoOffset;
    SYS_openat2 "openat2" Open PathAt(1), NoBytes, NoOffset;
    SYS_close "close" Close Descriptor(0), NoBytes, NoOffset;
    SYS_getdents64 "getdents64" List Descriptor(0), NoBytes, NoOffset;
    SYS_fstat "fstat" Stat Descriptor(0), NoBytes, NoOffset;
    SYS_newfstatat "newfstatat" Stat PathAt(1), NoBytes, NoOffset;
    SYS_statx "statx" Stat PathAt(1), NoBytes, NoOffset;
    SYS_mmap "mmap" Map Nothing, Size(1), NoOffset;
    SYS_munmap "munmap" Unmap Address, Size(1), NoOffset;
    SYS_mremap "mremap" Mremap Address, Size(1), NoOffset;
    SYS_madvise "madvise" Madvise Address, Size(1), NoOffset;
    SYS_msync "msync" Msync Address, Size(1), NoOffset;
    SYS_flock "flock" Lock Descriptor(0), NoBytes, NoOffset;
    SYS_io_submit "io_submit" IoSubmit Nothing, NoBytes, NoOffset;
};

/// System calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
pub static TIMED_OLD: &[TimedCall] = &timed! {
    SYS_open "open" Open Path(0), NoBytes, NoOffset;
    SYS_creat "creat" Create Path(0), NoBytes, NoOffset;
    SYS_rename "rename" Rename Path(0), NoBytes, NoOffset;
    SYS_renameat "renameat" Rename PathAt(1), NoBytes, NoOffset;
    SYS_unlink "unlink" Unlink Path(0), NoBytes, NoOffset;
    SYS_rmdir "rmdir" Unlink Path(0), NoBytes, NoOffset;
    SYS_mkdir "mkdir" Mkdir Path(0), NoBytes, NoOffset;
    SYS_link "link" Link Path(0), NoBytes, NoOffset;
    SYS_symlink "symlink" Symlink Path(1), NoBytes, NoOffset;
    SYS_stat "stat" Stat Path(0), NoBytes, NoOffset;
    SYS_lstat "lstat" Stat Path(0), NoBytes, NoOffset;
};
#[cfg(not(target_arch = "x86_64"))]
pub static TIMED_OLD: &[TimedCall] = &[];

/// File system calls that are not timed; the targets' uses are counted and reported.
pub static UNTIMED: &[(i64, &str)] = &[
    (libc::SYS_vmsplice, "vmsplice"),
    (libc::SYS_tee, "tee"),
    (libc::SYS_readahead, "readahead"),
    (libc::SYS_fadvise64, "fadvise64"),
    (libc::SYS_fcntl, "fcntl"),
    (libc::SYS_faccessat, "faccessat"),
    (libc::SYS_fchmod, "fchmod"),
    (libc::SYS_fchmodat, "fchmodat"),
    (libc::SYS_fchownat, "fchownat"),
    (libc::SYS_utimensat, "utimensat"),
    (libc::SYS_readlinkat, "readlinkat"),
    (libc::SYS_setxattr, "setxattr"),
    (libc::SYS_fsetxattr, "fsetxattr"),
    (libc::SYS_getxattr, "getxattr"),
    (libc::SYS_fgetxattr, "fgetxattr"),
    (libc::SYS_statfs, "statfs"),
    (libc::SYS_fstatfs, "fstatfs"),
    (libc::SYS_mount, "mount"),
    (libc::SYS_mlock, "mlock"),
    (libc::SYS_io_uring_enter, "io_uring_enter"),
];

/// System calls that are only named here; threads that others wait for are often in one of them.
const NAMED: &[(i64, &str)] = &[
    (libc::SYS_futex, "futex"),
    (libc::SYS_nanosleep, "nanosleep"),
    (libc::SYS_clock_nanosleep, "clock_nanosleep"),
    (libc::SYS_epoll_pwait, "epoll_pwait"),
    (libc::SYS_ppoll, "ppoll"),
    (libc::SYS_pselect6, "pselect6"),
    (libc::SYS_recvfrom, "recvfrom"),
    (libc::SYS_sendto, "sendto"),
    (libc::SYS_recvmsg, "recvmsg"),
    (libc::SYS_sendmsg, "sendmsg"),
    (libc::SYS_clone, "clone"),
    (libc::SYS_execve, "execve"),
    (libc::SYS_exit, "exit"),
    (libc::SYS_exit_group, "exit_group"),
    (libc::SYS_wait4, "wait4"),
    (libc::SYS_kill, "kill"),
    (libc::SYS_sched_yield, "sched_yield"),
    (libc::SYS_io_getevents, "io_getevents"),
    (libc::SYS_brk, "brk"),
    (libc::SYS_mprotect, "mprotect"),
    (libc::SYS_ioctl, "ioctl"),
];

/// The name of a system call, if known.
#[must_use]
pub fn name_of(number: i32) -> Option<&'static str> {
    let timed = find(number).map(|call| call.name);
    let listed = |list: &'static [(i64, &'static str)]| {
        list.iter().find(|(known, _)| *known == i64::from(number)).map(|(_, name)| *name)
    };
    timed.or_else(|| listed(UNTIMED)).or_else(|| listed(NAMED))
}

/// Size of tables that are indexed by system call number; the kernel's numbers are lower.
pub const CALLS: usize = 512;

/// Constants for the BPF programs: a bit for each timed call, and per call the index + 1 of each argument (0: none).
#[derive(Clone, Copy, Debug)]
pub struct CallTables {
    pub wanted: [u64; 8],
    pub file_arg: [u8; CALLS],
    pub file_arg_2: [u8; CALLS],
    pub path_arg: [u8; CALLS],
}

pub fn all() -> impl Iterator<Item = &'static TimedCall> {
    TIMED.iter().chain(TIMED_OLD)
}

#[must_use]
pub fn find(number: i32) -> Option<&'static TimedCall> {
    all().find(|call| call.number == i64::from(number))
}

impl CallTables {
    #[must_use]
    pub fn of_all() -> CallTables {
        let mut tables =
            CallTables { wanted: [0; 8], file_arg: [0; CALLS], file_arg_2: [0; CALLS], path_arg: [0; CALLS] };
        for call in all() {
            let Some(number) = usize::try_from(call.number).ok().filter(|number| *number < CALLS) else { continue };
            tables.wanted[number / 64] |= 1 << (number % 64);
            let place = |index: usize| u8::try_from(index + 1).unwrap_or(0);
            match call.file {
                FileArg::Descriptor(index) => tables.file_arg[number] = place(index),
                FileArg::Descriptors(first, second) => {
                    tables.file_arg[number] = place(first);
                    tables.file_arg_2[number] = place(second);
                }
                FileArg::Path(index) | FileArg::PathAt(index) => tables.path_arg[number] = place(index),
                FileArg::Address | FileArg::Nothing => {}
            }
        }
        tables
    }
}

impl TimedCall {
    /// The user space address of the call's path.
    #[must_use]
    pub fn path_of(&self, state: &CallState) -> Option<u64> {
        match self.file {
            FileArg::Path(index) | FileArg::PathAt(index) => state.arg.get(index).copied(),
            _ => None,
        }
    }

    #[must_use]
    pub fn bytes_of(&self, state: &CallState) -> Option<u64> {
        match self.bytes {
            BytesArg::None => None,
            BytesArg::At(index) => state.arg.get(index).copied(),
            BytesArg::Result => u64::try_from(state.result).ok(),
        }
    }

    /// The errno of a failed call, as the program saw it.
    #[must_use]
    pub fn errno_of(&self, state: &CallState) -> Option<u32> {
        // include/linux/err.h: MAX_ERRNO; include/linux/errno.h: ERESTARTSYS and its successors never reach a program.
        const ERRNO_MAX: u32 = 4_095;
        const RESTARTS: std::ops::RangeInclusive<u32> = 512..=516;
        let errno = u32::try_from(state.result.checked_neg()?).ok().filter(|errno| (1..=ERRNO_MAX).contains(errno))?;
        Some(if RESTARTS.contains(&errno) { libc::EINTR.unsigned_abs() } else { errno })
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
    use super::super::layout::{CallState, HEAD_BYTES};
    use super::{CallTables, UNTIMED, all, find};
    use flatwater_recording::OpKind;

    #[test]
    fn each_timed_call_has_a_bit_and_is_found_by_its_number() {
        let tables = CallTables::of_all();
        let bits: u32 = tables.wanted.iter().map(|word| word.count_ones()).sum();
        assert_eq!(bits as usize, all().count());
        assert_eq!(find(libc::SYS_fsync as i32).map(|call| call.op), Some(OpKind::Fsync));
        assert!(find(-1).is_none());
        assert!(find(libc::SYS_getppid as i32).is_none());
        assert!(UNTIMED.iter().all(|(number, _)| find(*number as i32).is_none()));
    }

    #[test]
    fn the_errno_is_the_one_that_the_program_saw() {
        let write = find(libc::SYS_write as i32).expect("a timed call");
        let errno = |result: i64| {
            let mut state = CallState::from_record(&[0; HEAD_BYTES]).expect("a head");
            state.result = result;
            write.errno_of(&state)
        };
        assert_eq!((errno(-5), errno(0), errno(4096)), (Some(5), None, None));
        assert_eq!(errno(-512), Some(libc::EINTR as u32));
        assert_eq!((errno(-4096), errno(i64::MIN)), (None, None), "an address or garbage");
    }

    #[test]
    fn the_tables_give_the_arguments_that_name_files() {
        let tables = CallTables::of_all();
        let at = |number: i64| {
            let number = number as usize;
            (tables.file_arg[number], tables.file_arg_2[number], tables.path_arg[number])
        };
        assert_eq!(at(libc::SYS_write), (1, 0, 0));
        assert_eq!(at(libc::SYS_sendfile), (2, 0, 0));
        assert_eq!(at(libc::SYS_splice), (3, 1, 0));
        assert_eq!(at(libc::SYS_openat), (0, 0, 2));
        assert_eq!(at(libc::SYS_symlinkat), (0, 0, 3));
        assert_eq!(at(libc::SYS_sync), (0, 0, 0));
    }
}
