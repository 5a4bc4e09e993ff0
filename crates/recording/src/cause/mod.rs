//! The causes of segments, with one `CauseSpec` for each.
//!
//! The table `SPECS` is the only machine-readable description of a cause: the kernel hooks that bracket it, the
//! functions on a stack that name it, and how its time is judged. The tracer's constants, the stack rules, the hooks
//! and the lists in `explain` are generated from it. `crates/explain/src/cause/<name>.rs` describes what a cause means
//! to people, how it is proven and how it is fixed.
//!
//! This folder uses no other part of the crate and no dependency, because the build script of `flatwater-host`
//! includes it to generate the header of the BPF programs.

mod by_system;
mod table;

pub use table::Cause;

/// The properties of one cause that all stages share.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CauseSpec {
    /// The cause that this row describes.
    pub cause: Cause,
    /// Name in recordings, in JSON and on the command line.
    pub name: &'static str,
    /// Pairs of hooks that enclose the cause.
    pub brackets: &'static [Bracket],
    /// Kernel functions that name the cause when they are on a stack.
    pub symbols: &'static [Symbols],
    /// Whether a thread can spend CPU time in this cause. The other causes are waits: a sample that hits their code on
    /// the CPU shows a wait that is about to begin or has just ended, so it does not count.
    pub can_run: bool,
    /// Brackets that take over sleeps of this cause: inside an open bracket of one of these, such a sleep gets the
    /// cause of the bracket. For example, a wait for a page under writeback during reclaim is a part of reclaim.
    pub belongs_to: &'static [Cause],
    /// Whether the machine's own noise can explain it.
    pub noise: NoiseClass,
    /// Whether the cause consists of CPU time. Software emulation distorts such time.
    pub processor_time: bool,
    /// Hooks other than the brackets that can show the cause.
    pub hooks: &'static [Hook],
}

/// Two hooks that mark where a thread enters and leaves the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bracket {
    /// `DIRECT_RECLAIM` is `B_DIRECT_RECLAIM` in bpf/.
    pub name: &'static str,
    /// Where the interval begins and ends.
    pub ends: Ends,
    /// Whether the bracket opens rarely, and usually for long, so that it can be traced in every process at all times
    /// (level 0).
    pub seldom: bool,
}

/// The hooks that begin and end a bracket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are names of tracepoints")]
pub enum Ends {
    /// Two tracepoints without code of their own: the build generates both programs.
    Tracepoints { begin: &'static str, end: &'static str },
    /// Entry and return of a function, which only some kernels can trace. The build generates both programs. Several
    /// names are names of the same function in different kernels.
    Function(&'static [&'static str]),
    /// Two tracepoints whose programs are written in bpf/, as `on_<tracepoint>`. Brackets may share them.
    Written { begin: &'static str, end: &'static str },
}

/// Functions that name a cause, and how specific they are.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Symbols {
    /// Which cause wins if the functions of several are on one stack.
    pub rank: Rank,
    /// Base names (see `symbol::base_name`). A name that ends in `*` matches as a prefix.
    pub names: &'static [&'static str],
    /// The functions count only if they sleep themselves: between the function and the scheduler only a sleeping
    /// primitive is on the stack. A sample on the CPU, and a frame that called another function, do not count.
    pub asleep: bool,
}

/// How specific a function on a stack is, from the least to the most specific.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The thread sleeps for I/O; nothing more is known.
    Sleeps,
    /// The kind of object the thread waits for: a buffer, a page.
    Waits,
    /// The operation that the thread performs.
    Does,
    /// A wrapper with a single purpose, which is more specific than the functions that it calls.
    Refines,
}

/// How time in a cause compares with the time that a thread without system calls loses on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoiseClass {
    /// A thread without system calls never has this cause; the time that the hypervisor and interrupts take from a
    /// thread would be mistaken for it.
    MemoryManagement,
    /// A thread without system calls loses the same time, so the machine causes it and not the call.
    Machine,
    /// The kernel reports that the thread waited, so noise cannot look like this cause.
    Waits,
}

/// A hook of the tracer that can show more than one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hook {
    /// Tracepoint sched_switch: sleeps with their stacks, and waits for a CPU.
    SchedSwitch,
    /// Tracepoint sched_wakeup: when a thread begins to wait for a CPU.
    SchedWakeup,
    /// Stack samples of threads on the CPU.
    CpuClock,
    /// Tracepoint page_fault_user: where a page fault of user code begins.
    PageFaultUser,
}

impl NoiseClass {
    /// Whether time in the cause counts only if it exceeds the machine's noise floor.
    #[must_use]
    pub fn has_floor(self) -> bool {
        self != NoiseClass::Waits
    }
}

impl CauseSpec {
    const fn new(cause: Cause, name: &'static str) -> CauseSpec {
        CauseSpec {
            cause,
            name,
            brackets: &[],
            symbols: &[],
            can_run: false,
            belongs_to: &[],
            noise: NoiseClass::Waits,
            processor_time: false,
            hooks: &[],
        }
    }

    /// Whether kernel events alone show that a thread is in the cause: the events of the cause's brackets, or the
    /// scheduler's.
    #[must_use]
    pub fn is_bracketed(&self) -> bool {
        !self.brackets.is_empty() || matches!(self.cause, Cause::RunQueue | Cause::CpuQuota)
    }
}

impl Cause {
    /// The row that describes this cause.
    #[must_use]
    pub fn spec(self) -> &'static CauseSpec {
        &table::SPECS[self as usize]
    }

    /// The name in tables, in JSON and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    /// The cause with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Cause> {
        table::SPECS.iter().find(|spec| spec.name == name).map(|spec| spec.cause)
    }

    /// The cause of the bracket with this number, as the BPF programs number brackets. Time inside an open bracket has
    /// this cause unless a more specific one is known.
    #[must_use]
    pub fn of_bracket(number: u8) -> Option<Cause> {
        brackets().find(|(known, ..)| *known == number).map(|(_, cause, _)| cause)
    }
}

/// All brackets with their numbers, from 1; the BPF programs use the same numbers.
pub fn brackets() -> impl Iterator<Item = (u8, Cause, &'static Bracket)> {
    let all = table::SPECS.iter().flat_map(|spec| spec.brackets.iter().map(move |bracket| (spec.cause, bracket)));
    (1_u8..).zip(all).map(|(number, (cause, bracket))| (number, cause, bracket))
}

const fn tracepoints(name: &'static str, begin: &'static str, end: &'static str) -> Bracket {
    Bracket { name, ends: Ends::Tracepoints { begin, end }, seldom: false }
}

const fn seldom(bracket: Bracket) -> Bracket {
    Bracket { seldom: true, ..bracket }
}

const fn written(name: &'static str, begin: &'static str, end: &'static str) -> Bracket {
    Bracket { name, ends: Ends::Written { begin, end }, seldom: false }
}

const fn function(name: &'static str, names: &'static [&'static str]) -> Bracket {
    Bracket { name, ends: Ends::Function(names), seldom: false }
}

const fn symbols(rank: Rank, names: &'static [&'static str]) -> Symbols {
    Symbols { rank, names, asleep: false }
}

const fn asleep(rank: Rank, names: &'static [&'static str]) -> Symbols {
    Symbols { rank, names, asleep: true }
}
