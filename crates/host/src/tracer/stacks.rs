//! Resolves the stack ids of the BPF programs to kernel functions, numbers distinct stacks, and finds their causes.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use aya::maps::{MapData, StackTraceMap};

use super::layout::stack;
use crate::kallsyms::Kallsyms;
use flatwater_recording::symbol::{cause_of, lock_taker, meaning_inside};
use flatwater_recording::{Cause, Stack, StackId};

/// Functions of tracing itself. Frames inside of the outermost of these are dropped; they include the BPF program's
/// machine code, whose address has no symbol or a wrong one.
const OURS: &[&str] = &["bpf_trace_run", "__bpf_trace_", "__traceiter_", "trace_event_raw_event_", "perf_trace_"];

/// Source of stacks: the BPF object's two tables, or a test's.
pub trait Frames: Send {
    /// Addresses, innermost first; `None` if the table no longer has the stack.
    fn frames(&self, id: i32) -> Option<Vec<u64>>;
}

pub struct KernelStacks {
    pub first: StackTraceMap<MapData>,
    pub second: StackTraceMap<MapData>,
}

impl Frames for KernelStacks {
    fn frames(&self, id: i32) -> Option<Vec<u64>> {
        let table = if id & stack::SECOND == 0 { &self.first } else { &self.second };
        let key = u32::try_from(id & !stack::SECOND).ok()?;
        let trace = table.get(&key, 0).ok()?;
        Some(trace.frames().iter().map(|frame| frame.ip).collect())
    }
}

/// The stacks seen so far.
pub struct StackTable {
    source: Option<Box<dyn Frames>>,
    symbols: Kallsyms,
    known: HashMap<i32, Option<usize>>,
    meanings: HashMap<(usize, Option<Cause>), Option<Cause>>,
    stacks: Vec<Stack>,
    /// Indexes of stacks by a hash of their function names, to store each stack once.
    by_frames: HashMap<u64, Vec<usize>>,
    hasher: RandomState,
    pub unresolved: u64,
}

impl std::fmt::Debug for StackTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StackTable").field("stacks", &self.stacks.len()).finish_non_exhaustive()
    }
}

impl StackTable {
    #[must_use]
    pub fn new(source: Option<Box<dyn Frames>>, symbols: Kallsyms) -> StackTable {
        StackTable {
            source,
            symbols,
            known: HashMap::new(),
            meanings: HashMap::new(),
            stacks: Vec::new(),
            by_frames: HashMap::new(),
            hasher: RandomState::new(),
            unresolved: 0,
        }
    }

    fn place(&mut self, id: i32) -> Option<usize> {
        if id < 0 {
            return None;
        }
        if let Some(&known) = self.known.get(&id) {
            return known;
        }
        let place = self.resolve(id);
        if place.is_none() {
            self.unresolved += 1;
        }
        self.known.insert(id, place);
        place
    }

    fn resolve(&mut self, id: i32) -> Option<usize> {
        let addresses = self.source.as_ref()?.frames(id)?;
        self.add(&addresses)
    }

    /// The id of a stack with these addresses, innermost first; `None` if no address has a name.
    pub fn of_addresses(&mut self, addresses: &[u64]) -> Option<StackId> {
        self.add(addresses).map(|place| StackId(place as u32))
    }

    /// The functions of a stack, innermost first.
    #[must_use]
    pub fn functions(&self, id: StackId) -> &[String] {
        self.stacks.get(id.0 as usize).map_or(&[], |stack| &stack.frames)
    }

    /// The start address of a function.
    #[must_use]
    pub fn address_of(&self, function: &str) -> Option<u64> {
        self.symbols.address_of(function)
    }

    /// The function that contains an address.
    #[must_use]
    pub fn symbol(&self, address: u64) -> Option<&str> {
        self.symbols.name_of(address)
    }

    fn add(&mut self, addresses: &[u64]) -> Option<usize> {
        let names: Vec<&str> = addresses.iter().filter_map(|&address| self.symbols.name_of(address)).collect();
        let is_ours = |name: &&str| OURS.iter().any(|prefix| name.starts_with(prefix));
        let ours = names.iter().rposition(is_ours).map_or(0, |last| last + 1);
        let names = &names[ours..];
        if names.is_empty() {
            return None;
        }
        // Stacks with the same functions at different addresses count as one.
        let candidates = self.by_frames.entry(self.hasher.hash_one(names)).or_default();
        if let Some(&same) = candidates.iter().find(|&&place| self.stacks[place].frames == names) {
            return Some(same);
        }
        let place = self.stacks.len();
        candidates.push(place);
        let frames = names.iter().map(|&name| name.to_owned()).collect();
        self.stacks.push(Stack { id: StackId(place as u32), frames });
        Some(place)
    }

    /// The dense id of a kernel stack id, if it could be resolved.
    pub fn id(&mut self, id: i32) -> Option<StackId> {
        self.place(id).map(|place| StackId(place as u32))
    }

    /// The cause that a stack names, inside `bracket` or outside of brackets.
    pub fn cause(&mut self, id: i32, bracket: Option<Cause>) -> Option<Cause> {
        self.place(id).and_then(|place| self.cause_at(place, bracket))
    }

    /// Like `cause`, for a stack that already has a dense id.
    pub fn cause_of(&mut self, id: StackId) -> Option<Cause> {
        self.cause_at(id.0 as usize, None)
    }

    fn cause_at(&mut self, place: usize, bracket: Option<Cause>) -> Option<Cause> {
        if let Some(&known) = self.meanings.get(&(place, bracket)) {
            return known;
        }
        let frames = &self.stacks.get(place)?.frames;
        let mut cause = meaning_inside(frames, bracket).map(|meaning| meaning.cause);
        if cause.or(bracket) == Some(Cause::Lock) {
            // A journal that waits for space or for a commit makes threads queue on its mutex.
            let journal = lock_taker(frames).and_then(cause_of);
            cause = journal.filter(|&why| matches!(why, Cause::JournalFull | Cause::JournalCommit)).or(cause);
        }
        self.meanings.insert((place, bracket), cause);
        cause
    }

    /// Whether one of these functions is on the stack.
    pub fn holds(&mut self, id: i32, functions: &[&str]) -> bool {
        let Some(place) = self.place(id) else { return false };
        let frames = self.stacks.get(place).map_or(&[][..], |stack| &stack.frames);
        // Compilers append suffixes such as `.constprop.0`.
        frames.iter().any(|frame| functions.contains(&frame.split('.').next().unwrap_or_default()))
    }

    /// Drops all stacks; ids start again at 0.
    pub fn forget(&mut self) {
        self.known.clear();
        self.meanings.clear();
        self.stacks.clear();
        self.by_frames.clear();
    }

    #[must_use]
    pub fn stacks(&self) -> &[Stack] {
        &self.stacks
    }
}

#[cfg(test)]
mod tests {
    use super::{Frames, StackTable};
    use crate::kallsyms::Kallsyms;
    use flatwater_recording::{Cause, StackId};

    struct Fixed;
    impl Frames for Fixed {
        fn frames(&self, id: i32) -> Option<Vec<u64>> {
            match id {
                0 => Some(vec![0x900, 0x1000, 0x2004, 0x3000]),
                1 => Some(vec![0x1000, 0x2008, 0x3000]),
                2 => Some(vec![0x4000, 0x5000]),
                _ => None,
            }
        }
    }

    fn table() -> StackTable {
        let symbols = "800 T _einittext\n1000 T bpf_trace_run3\n2000 T schedule\n3000 T jbd2_log_wait_commit\n4000 t __mutex_lock\n\
                       5000 t __jbd2_log_wait_for_space\n";
        StackTable::new(Some(Box::new(Fixed)), Kallsyms::parse(symbols.as_bytes()).expect("symbols"))
    }

    #[test]
    fn frames_of_tracing_are_dropped_and_equal_stacks_share_an_id() {
        let mut table = table();
        assert_eq!(table.id(0), Some(StackId(0)));
        assert_eq!(table.id(1), Some(StackId(0)));
        assert_eq!(table.stacks()[0].frames, ["schedule", "jbd2_log_wait_commit"]);
        assert_eq!(table.cause(0, None), Some(Cause::JournalCommit));
        assert!(table.holds(0, &["schedule"]));
    }

    #[test]
    fn a_wait_for_a_mutex_of_the_journal_is_journal_full() {
        assert_eq!(table().cause(2, Some(Cause::Lock)), Some(Cause::JournalFull));
    }

    #[test]
    fn a_stack_that_the_kernel_lost_is_counted() {
        let mut table = table();
        assert_eq!(table.id(77), None);
        assert_eq!(table.id(-1), None);
        assert_eq!(table.unresolved, 1);
    }
}
