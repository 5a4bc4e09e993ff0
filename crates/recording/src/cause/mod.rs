//! The causes that a segment of a call can carry, one `CauseSpec` each.
//!
//! The table is the one place where a cause is described to machines: which hooks of the kernel bracket it, which
//! functions on a stack name it, and how the time in it is judged. The tracer's constants, the rules for stacks, the
//! hooks and the lists in `explain` are made from it. What a cause means to people, how it is proven and fixed, is in
//! `crates/explain/src/cause/<name>.rs`.
//!
//! This folder uses no other part of the crate and no dependency: the build script of `flatwater-host` includes it, to
//! write the header that the kernel side of the tracer is compiled with.

mod by_system;
mod table;

pub use table::Cause;

/// What the stages have to agree on about one cause.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CauseSpec {
    pub cause: Cause,
    /// As recordings, JSON and the command line spell it.
    pub name: &'static str,
    /// The hooks between which a thread is in it.
    pub brackets: &'static [Bracket],
    /// The kernel functions that name it when they are on a stack.
    pub symbols: &'static [Symbols],
    /// A thread can be busy with it on the CPU. The others are ways to wait: code of theirs that a sample meets on the
    /// CPU is about to begin or to end the wait, and waits for nothing at that moment.
    pub can_run: bool,
    /// Inside an open bracket of one of these a sleep of this cause is counted as the bracket's: reclaim brings a wait
    /// for a page under writeback upon itself, the caller asked for memory.
    pub belongs_to: &'static [Cause],
    pub noise: NoiseClass,
    /// Made of time on a CPU, which software emulation stretches out of all proportion.
    pub processor_time: bool,
    /// The hooks beside its brackets that can show it.
    pub hooks: &'static [Hook],
}

/// Two hooks between which a thread is in the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bracket {
    /// `DIRECT_RECLAIM` is `B_DIRECT_RECLAIM` in bpf/.
    pub name: &'static str,
    pub ends: Ends,
    /// Opens seldom and mostly for long, so that it may be followed in every process at all times (level 0).
    pub seldom: bool,
}

/// What begins and ends a bracket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ends {
    /// Two tracepoints that need no code of their own: the build makes both programs.
    Tracepoints { begin: &'static str, end: &'static str },
    /// Entry of and return from a function, which only some kernels allow; the build makes both programs. Several names
    /// are one function under the names that kernels gave it.
    Function(&'static [&'static str]),
    /// Two tracepoints whose programs are written in bpf/, as `on_<tracepoint>`; brackets may share them.
    Written { begin: &'static str, end: &'static str },
}

/// Functions, and how much each says.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Symbols {
    pub rank: Rank,
    /// Base names (see `symbol::base_name`); one that ends in `*` matches by its beginning.
    pub names: &'static [&'static str],
    /// They count only where they are asleep themselves: between them and the scheduler stands nothing but a primitive of
    /// sleeping. A sample on the CPU, and a frame that called something else, say nothing.
    pub asleep: bool,
}

/// How much a function on a stack says, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// That the thread sleeps for I/O, and nothing more.
    Sleeps,
    /// Which kind of thing it waits for: a buffer, a page.
    Waits,
    /// What it does.
    Does,
    /// A wrapper that does one thing only, and says more than what it wraps.
    Refines,
}

/// How time in a cause is held against what the machine takes from a thread that makes no system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoiseClass {
    /// A thread that makes no system calls cannot meet it, and what such a thread loses (to the hypervisor, to
    /// interrupts) would be taken for it.
    MemoryManagement,
    /// A thread that makes no system calls loses the same, so that it is the machine's and not the call's.
    Machine,
    /// The kernel says that the thread waited: no noise can look like that.
    Waits,
}

/// A hook of the tracer that shows more than one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hook {
    /// Tracepoint sched_switch: sleeps with their stacks, and waits for a CPU.
    SchedSwitch,
    /// Tracepoint sched_wakeup: from when on a thread waits for a CPU.
    SchedWakeup,
    /// Samples of the stack of a thread on the CPU.
    CpuClock,
    /// Tracepoint page_fault_user: where a fault of user code begins.
    PageFaultUser,
}

impl NoiseClass {
    /// Whether time in the cause counts only where it stands above the machine's noise.
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

    /// Whether events of the kernel alone say that a thread is in it: its brackets, or the scheduler's.
    #[must_use]
    pub fn is_bracketed(&self) -> bool {
        !self.brackets.is_empty() || matches!(self.cause, Cause::RunQueue | Cause::CpuQuota)
    }
}

impl Cause {
    #[must_use]
    pub fn spec(self) -> &'static CauseSpec {
        &table::SPECS[self as usize]
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    #[must_use]
    pub fn from_name(name: &str) -> Option<Cause> {
        table::SPECS.iter().find(|spec| spec.name == name).map(|spec| spec.cause)
    }

    /// The cause that an open bracket gives to whatever happens inside it and is not known better, by the number that
    /// the kernel side gives the bracket.
    #[must_use]
    pub fn of_bracket(number: u8) -> Option<Cause> {
        brackets().find(|(known, ..)| *known == number).map(|(_, cause, _)| cause)
    }
}

/// Every bracket with its number, 1 and up, as both sides of the tracer count them.
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
