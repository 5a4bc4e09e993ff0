//! Slow calls and their segments.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{AccessKind, Cause};

/// One slow call of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// Process id in the recorded machine.
    pub pid: u32,
    /// Thread id in the recorded machine.
    pub tid: u32,
    /// Name of the thread (comm, or the actor's name in flatwater's own workloads).
    pub thread: String,
    /// What the program called.
    pub op: OpKind,
    /// Bytes requested; absent for calls that transfer no data.
    pub bytes: Option<u64>,
    /// Position in the file, if the call has one.
    pub offset_bytes: Option<u64>,
    /// Path of the file, if it could be resolved.
    pub file: Option<String>,
    /// When an open-loop workload scheduled the call; absent elsewhere.
    pub due_ns: Option<u64>,
    /// When the call began, ns of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// From start to return. Equals the sum of the segments.
    pub duration_ns: u64,
    /// Ordered by time, without holes: see `Call::tiles`.
    pub segments: Vec<Segment>,
    /// Time lost on the return to user space, after the call (memcg-over-high); not part of `duration_ns`.
    pub after_exit_ns: u64,
    /// An event of this call was lost: a segment may have the wrong cause, but its length is right.
    pub damaged: bool,
    /// The call had not returned when the recording ended; `duration_ns` counts until then.
    pub still_under_way: bool,
    /// Error number of the call (errno of the recorded machine); absent if it succeeded or if its result was not
    /// observed.
    pub errno: Option<u32>,
}

/// An interval of a call with one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Segment {
    /// Begin of the segment, ns after the call's start.
    pub offset_ns: u64,
    /// Length of the segment, ns.
    pub ns: u64,
    /// What the call did or waited for.
    pub cause: Cause,
    /// How well `ns` is known.
    pub duration_basis: DurationBasis,
    /// How well `cause` is known.
    pub cause_basis: CauseBasis,
    /// The kernel stack of the thread asleep, or of the sample.
    pub stack: Option<StackId>,
    /// Number of intervals merged into this segment: 1, unless the call had more intervals than the tracer could
    /// store.
    pub count: u32,
}

impl Segment {
    /// A segment without a stack, made of one interval.
    #[must_use]
    pub fn new(
        offset_ns: u64,
        ns: u64,
        cause: Cause,
        duration_basis: DurationBasis,
        cause_basis: CauseBasis,
    ) -> Segment {
        Segment { offset_ns, ns, cause, duration_basis, cause_basis, stack: None, count: 1 }
    }

    /// A segment whose begin, end and cause the kernel reported. With the cause `unexplained`, it is the remaining
    /// time.
    #[must_use]
    pub fn bracketed(offset_ns: u64, ns: u64, cause: Cause) -> Segment {
        let left = cause == Cause::Unexplained;
        let basis = if left { CauseBasis::Elimination } else { CauseBasis::Bracketed };
        Segment::new(offset_ns, ns, cause, DurationBasis::Measured, basis)
    }

    /// One segment for a whole call of which only the duration is known.
    #[must_use]
    pub fn unexplained(ns: u64) -> Segment {
        Segment::new(0, ns, Cause::Unexplained, DurationBasis::Measured, CauseBasis::Elimination)
    }

    /// The same segment with the stack at which it slept.
    #[must_use]
    pub fn with_stack(mut self, stack: Option<StackId>) -> Segment {
        self.stack = stack;
        self
    }

    /// The same segment for a sum of this many intervals.
    #[must_use]
    pub fn with_count(mut self, count: u32) -> Segment {
        self.count = count;
        self
    }
}

/// How well a figure is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Between two events of the kernel, or a sleep with its stack.
    Exact,
    /// Estimated from stack samples.
    Sampled,
    /// Derived from counters.
    Inferred,
}

/// Defines an enum whose variants have names, which tables, JSON and the command line use. With the name of a method,
/// it also has a text for people.
#[doc(hidden)]
#[macro_export]
macro_rules! named_enum {
    ($(#[$doc:meta])* $noun:ident { $($(#[$of:meta])* $variant:ident => $name:literal),* $(,)? }) => {
        $crate::named_enum! { @names $(#[$doc])* #[non_exhaustive] $noun { $($(#[$of])* $variant => $name),* } }
    };
    ($(#[$doc:meta])* $noun:ident, $method:ident {
        $($(#[$of:meta])* $variant:ident => $name:literal, $text:literal;)*
    }) => {
        $crate::named_enum! { @names $(#[$doc])* $noun { $(#[doc = $text] $(#[$of])* $variant => $name),* } }

        impl $noun {
            /// The text for people.
            #[must_use]
            pub fn $method(self) -> &'static str {
                match self { $($noun::$variant => $text),* }
            }
        }
    };
    (@names $(#[$doc:meta])* $noun:ident { $($(#[$of:meta])* $variant:ident => $name:literal),* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[allow(missing_docs, reason = "variants without a text are described by their names")]
        pub enum $noun { $($(#[$of])* #[serde(rename = $name)] $variant),* }

        impl $noun {
            /// All variants in the order of their declaration.
            pub const ALL: &[$noun] = &[$($noun::$variant),*];

            /// The name in tables, in JSON and on the command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $($noun::$variant => $name),* }
            }

            /// The variant with this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<$noun> {
                match name { $($name => Some($noun::$variant),)* _ => None }
            }
        }
    };
}
pub(crate) use named_enum;

named_enum! {
    /// How well the duration of a segment is known.
    DurationBasis {
        /// Between two events of the kernel.
        Measured => "measured",
        /// Estimated from samples.
        Sampled => "sampled",
        /// Derived from counters, or what remains when all other time is known.
        Inferred => "inferred",
    }
}

named_enum! {
    /// How well the cause of a segment is known.
    CauseBasis {
        /// Events of the kernel reported where the cause begins and ends, or the scheduler reported why the thread did
        /// not run.
        Bracketed => "bracketed",
        /// A kernel stack of the thread names the cause.
        Stack => "by-stack",
        /// The one function of the stack that an ordinary user may read names the cause.
        Channel => "by-channel",
        /// A counter of the kernel rose during that time, so this cause is possible.
        Counters => "by-counters",
        /// Nothing else was observed in that time.
        Elimination => "by-elimination",
    }
}

impl From<DurationBasis> for Basis {
    fn from(duration: DurationBasis) -> Basis {
        match duration {
            DurationBasis::Measured => Basis::Exact,
            DurationBasis::Sampled => Basis::Sampled,
            DurationBasis::Inferred => Basis::Inferred,
        }
    }
}

impl From<Basis> for DurationBasis {
    fn from(basis: Basis) -> DurationBasis {
        match basis {
            Basis::Exact => DurationBasis::Measured,
            Basis::Sampled => DurationBasis::Sampled,
            Basis::Inferred => DurationBasis::Inferred,
        }
    }
}

impl CauseBasis {
    /// The basis of the cause for a segment with only a `basis`, as version 0.1 recorded it.
    #[must_use]
    pub fn of_basis(basis: Basis, cause: Cause) -> CauseBasis {
        match basis {
            Basis::Exact if cause == Cause::Unexplained => CauseBasis::Elimination,
            Basis::Exact if cause.spec().is_bracketed() => CauseBasis::Bracketed,
            Basis::Exact | Basis::Sampled => CauseBasis::Stack,
            Basis::Inferred if matches!(cause, Cause::CpuQuota | Cause::Steal) => CauseBasis::Counters,
            Basis::Inferred => CauseBasis::Elimination,
        }
    }
}

impl Basis {
    /// The name in tables, in JSON and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Basis::Exact => "exact",
            Basis::Sampled => "sampled",
            Basis::Inferred => "inferred",
        }
    }
}

/// Number of a stack in its recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StackId(pub u32);

/// A kernel stack, innermost frame first, as symbol names (`+0x1c` offsets and module tags removed).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The number to which segments refer.
    pub id: StackId,
    /// Functions of the kernel, the innermost first.
    pub frames: Vec<String>,
}

macro_rules! op_kinds {
    ($($variant:ident => $name:literal),* $(,)?) => {
        /// Kind of the timed call. Tables, JSON and the command line use the names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        #[allow(missing_docs, reason = "the names are those of the system calls")]
        pub enum OpKind { $($variant),* }

        impl OpKind {
            /// All kinds in the order of their declaration.
            pub const ALL: &[OpKind] = &[$(OpKind::$variant),*];

            /// The name in tables, in JSON and on the command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(OpKind::$variant => $name),* }
            }

            /// The variant with this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<OpKind> {
                match name { $($name => Some(OpKind::$variant),)* _ => None }
            }
        }
    };
}

op_kinds! {
    Read => "read", Write => "write", Fsync => "fsync", Fdatasync => "fdatasync",
    SyncFileRange => "sync-file-range", Msync => "msync", Fallocate => "fallocate", Truncate => "truncate",
    Open => "open", Close => "close", Create => "create", Rename => "rename", Unlink => "unlink", Mkdir => "mkdir", List => "list",
    Stat => "stat", Map => "map", Unmap => "unmap", PageFault => "page-fault", Lock => "lock",
    Sync => "sync", Syncfs => "syncfs", Unmount => "umount", Mremap => "mremap", Madvise => "madvise",
    CopyFileRange => "copy-file-range", Splice => "splice", Sendfile => "sendfile", Link => "link", Symlink => "symlink",
    IoSubmit => "io-submit",
    UringRead => "io-uring-read", UringWrite => "io-uring-write", UringFsync => "io-uring-fsync",
    UringOther => "io-uring-other", AioRead => "aio-read", AioWrite => "aio-write", AioFsync => "aio-fsync",
    Spawn => "spawn", Compute => "compute", Checkpoint => "checkpoint", Other => "other",
}

impl OpKind {
    /// The interface through which programs make this operation. Operations of io_uring and libaio last from
    /// submission to completion.
    #[must_use]
    pub fn access(self) -> AccessKind {
        match self {
            OpKind::UringRead | OpKind::UringWrite | OpKind::UringFsync | OpKind::UringOther => AccessKind::IoUring,
            OpKind::AioRead | OpKind::AioWrite | OpKind::AioFsync => AccessKind::LinuxAio,
            OpKind::PageFault => AccessKind::PageFaults,
            _ => AccessKind::FileCalls,
        }
    }
}

impl Call {
    /// A call with these segments and no other details. `segments` must tile it (`Call::tiles`).
    #[must_use]
    pub fn new(op: OpKind, start_ns: u64, duration_ns: u64, segments: Vec<Segment>) -> Call {
        Call {
            pid: 0,
            tid: 0,
            thread: String::new(),
            op,
            bytes: None,
            offset_bytes: None,
            file: None,
            due_ns: None,
            start_ns,
            duration_ns,
            segments,
            after_exit_ns: 0,
            damaged: false,
            still_under_way: false,
            errno: None,
        }
    }

    /// Sets the process and the thread that made the call.
    #[must_use]
    pub fn by(mut self, pid: u32, tid: u32, thread: impl Into<String>) -> Call {
        (self.pid, self.tid, self.thread) = (pid, tid, thread.into());
        self
    }

    /// Sets the file, the size and the offset of the call, as far as they are known.
    #[must_use]
    pub fn on(mut self, file: Option<String>, bytes: Option<u64>, offset_bytes: Option<u64>) -> Call {
        (self.file, self.bytes, self.offset_bytes) = (file, bytes, offset_bytes);
        self
    }

    /// When the call returned, ns of CLOCK_MONOTONIC.
    #[must_use]
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }

    /// Exclusive time by cause; sums to `duration_ns`.
    #[must_use]
    pub fn by_cause(&self) -> BTreeMap<Cause, u64> {
        let mut sums = BTreeMap::new();
        for segment in &self.segments {
            let sum: &mut u64 = sums.entry(segment.cause).or_default();
            *sum = sum.saturating_add(segment.ns);
        }
        sums
    }

    /// Whether the segments are ordered, without holes, and sum to the duration. Every writer keeps this invariant.
    #[must_use]
    pub fn tiles(&self) -> bool {
        let mut at = 0_u64;
        for segment in &self.segments {
            if segment.offset_ns != at {
                return false;
            }
            // An untrusted recording can contain any numbers: segments that overflow do not tile.
            let Some(next) = at.checked_add(segment.ns) else { return false };
            at = next;
        }
        at == self.duration_ns
    }

    /// Cuts off the part of the call before this instant; the remaining segments tile the rest.
    pub fn begin_at(&mut self, from_ns: u64) {
        let cut_ns = from_ns.saturating_sub(self.start_ns).min(self.duration_ns);
        self.start_ns += cut_ns;
        self.duration_ns -= cut_ns;
        self.segments.retain_mut(|segment| {
            let end_ns = segment.offset_ns.saturating_add(segment.ns);
            let begin_ns = segment.offset_ns.max(cut_ns);
            segment.ns = end_ns.saturating_sub(begin_ns);
            segment.offset_ns = begin_ns - cut_ns;
            segment.ns > 0
        });
    }

    /// Cuts off the part of the call after this instant; the remaining segments tile the rest.
    pub fn end_at(&mut self, to_ns: u64) {
        self.duration_ns = self.duration_ns.min(to_ns.saturating_sub(self.start_ns));
        self.segments.retain_mut(|segment| {
            segment.ns = segment.ns.min(self.duration_ns.saturating_sub(segment.offset_ns));
            segment.ns > 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{Basis, Call, CauseBasis, DurationBasis, OpKind, Segment};
    use crate::Cause;

    #[test]
    fn an_old_basis_converts_to_a_cause_basis() {
        for (basis, cause, meant) in [
            (Basis::Exact, Cause::MemcgReclaim, CauseBasis::Bracketed),
            (Basis::Exact, Cause::RunQueue, CauseBasis::Bracketed),
            (Basis::Exact, Cause::JournalCommit, CauseBasis::Stack),
            (Basis::Exact, Cause::Unexplained, CauseBasis::Elimination),
            (Basis::Sampled, Cause::SlabRefill, CauseBasis::Stack),
            (Basis::Inferred, Cause::Steal, CauseBasis::Counters),
            (Basis::Inferred, Cause::Compute, CauseBasis::Elimination),
        ] {
            assert_eq!(CauseBasis::of_basis(basis, cause), meant, "{basis:?} {cause:?}");
        }
    }

    #[test]
    fn begin_at_cuts_the_call_and_the_segments_still_tile() {
        let segment =
            |offset_ns, ns| Segment::new(offset_ns, ns, Cause::Lock, DurationBasis::Measured, CauseBasis::Bracketed);
        let whole = Call::new(OpKind::Write, 1_000, 100, vec![segment(0, 30), segment(30, 50), segment(80, 20)]);
        let cut = |from_ns| {
            let mut call = whole.clone();
            call.begin_at(from_ns);
            assert!(call.tiles(), "{call:?}");
            (call.start_ns, call.duration_ns, call.segments.len())
        };
        assert_eq!(cut(900), (1_000, 100, 3));
        assert_eq!(cut(1_040), (1_040, 60, 2));
        assert_eq!(cut(1_080), (1_080, 20, 1));
        assert_eq!(cut(5_000), (1_100, 0, 0));
    }

    #[test]
    fn end_at_cuts_the_call_and_the_segments_still_tile() {
        let segment =
            |offset_ns, ns| Segment::new(offset_ns, ns, Cause::Lock, DurationBasis::Measured, CauseBasis::Bracketed);
        let whole = Call::new(OpKind::Write, 1_000, 100, vec![segment(0, 30), segment(30, 50), segment(80, 20)]);
        let cut = |to_ns| {
            let mut call = whole.clone();
            call.end_at(to_ns);
            assert!(call.tiles(), "{call:?}");
            (call.start_ns, call.duration_ns, call.segments.len())
        };
        assert_eq!(cut(2_000), (1_000, 100, 3));
        assert_eq!(cut(1_040), (1_000, 40, 2));
        assert_eq!(cut(1_030), (1_000, 30, 1));
        assert_eq!(cut(900), (1_000, 0, 0));
    }

    #[test]
    fn bases_convert_and_round_trip_through_their_names() {
        for basis in [Basis::Exact, Basis::Sampled, Basis::Inferred] {
            assert_eq!(Basis::from(DurationBasis::from(basis)), basis);
        }
        for &basis in CauseBasis::ALL {
            assert_eq!(CauseBasis::from_name(basis.name()), Some(basis));
        }
    }
}
