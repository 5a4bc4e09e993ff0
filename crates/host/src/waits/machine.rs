//! Level 0 for a daemon: finds the slow calls of all processes and who made them wait, with hooks of the scheduler, of
//! reclaim and of the block layer only. System calls are not slowed.

use super::{Settled, WaitOptions, WaitTracer};
use crate::clock::monotonic_ns;
use crate::kallsyms::{Kallsyms, KallsymsError};
use crate::tracer::TraceError;
use crate::tracer::stacks::StackTable;
use crate::tracer::under_way;
use flatwater_recording::{Call, Gap, HookStatus, Losses, Request, Stack, StackId, Users, Waited};

/// At this many kernel stacks (some 1.5 KiB each) the table is cleared; new stacks get ids that were not used before.
const STACKS_MAX: u32 = 1_024;

/// Why the machine cannot be traced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    #[error("cannot trace sleeps: {0}")]
    Symbols(#[from] KallsymsError),
    #[error("cannot trace sleeps: {0}")]
    Tracer(#[from] TraceError),
}

/// Everything since the last `take`.
#[derive(Clone, Debug, Default)]
pub struct MachineWaits {
    /// Calls found by their sleeps.
    pub calls: Vec<Call>,
    /// Calls that have not ended, with their time so far. Each is reported again: in `calls` when it has ended, or in
    /// the next list. `None` if threads were not examined this time.
    pub under_way: Option<Vec<Call>>,
    /// If there are such calls: requests that devices have not completed for a second or longer.
    pub standing: Vec<Request>,
    /// The waits of `calls` and of the calls that were passed in.
    pub waited: Waited,
    pub users: Users,
    /// Stacks that have not been returned before.
    pub stacks: Vec<Stack>,
    /// Stacks with lower ids are not used any more.
    pub stacks_from: StackId,
    /// What could not be read.
    pub gaps: Vec<Gap>,
}

/// The calls that hooks on system calls time.
#[derive(Clone, Copy, Debug)]
pub enum Timed<'a> {
    /// No such hook is attached.
    None,
    /// Hooks are being attached since this time. They may time calls that cannot be read yet.
    Since(u64),
    /// All calls that have settled, read at the end of the interval or later.
    Calls(&'a [Call]),
}

/// The hooks, and the records received so far.
#[derive(Debug)]
pub struct MachineTracer {
    waits: WaitTracer,
    stacks: StackTable,
    /// Lower ids belong to tables that were cleared.
    first_id: u32,
    stacks_reported: usize,
    /// Threads are examined for unfinished sleeps again from this time on.
    ask_ns: u64,
}

/// `ask_ns` after a failure: threads are not examined again.
const NEVER: u64 = u64::MAX;
/// Examining a thousand threads takes about a millisecond. After it, pause for this many times as long.
const ASK_AGAIN_TIMES: u64 = 500;
/// The longest pause: a hang is found this soon, however many threads there are.
const ASK_AGAIN_NS_MAX: u64 = 20_000_000_000;
/// The usual interval between calls of `take`.
const LOOK_NS: u64 = 1_000_000_000;

impl MachineTracer {
    /// Attaches the hooks that this kernel allows; the returned statuses list them. `requests`: also follow the
    /// requests of block devices.
    pub fn start(threshold_ns: u64, requests: bool) -> Result<(MachineTracer, Vec<HookStatus>), MachineError> {
        let symbols = Kallsyms::read()?;
        let stacks = StackTable::new(None, symbols);
        let options = WaitOptions {
            threshold_ns,
            detect_calls: true,
            whole_machine: true,
            requests,
            operations: true,
            libaio: false,
        };
        let (waits, statuses) = WaitTracer::start(&options, &stacks)?;
        Ok((MachineTracer { waits, stacks, first_id: 0, stacks_reported: 0, ask_ns: 0 }, statuses))
    }

    /// Whether unfinished calls are seen. If not, an empty `MachineWaits::under_way` means nothing.
    #[must_use]
    pub fn sees_hangs(&self) -> bool {
        self.ask_ns != NEVER && self.waits.sees_hangs()
    }

    /// Empties the kernel's buffer, which holds some ten thousand requests.
    pub fn pump(&mut self) {
        self.waits.pump(&mut self.stacks);
    }

    /// Returns everything since the last call, and the waits of the calls that hooks on system calls timed. `memory`:
    /// also return who made pages dirty and took memory, which costs some 20 us per known process.
    pub fn take(&mut self, timed: Timed<'_>, start_ns: u64, end_ns: u64, memory: bool) -> MachineWaits {
        let (under_way, mut gaps) = self.under_way();
        let mut standing = Vec::new();
        if under_way.as_ref().is_some_and(|calls| !calls.is_empty()) {
            let (found, unread) = self.waits.standing();
            standing = found;
            gaps.extend(unread);
        }
        let (calls, settled) = match timed {
            Timed::None => (&[][..], Settled::now()),
            Timed::Since(since_ns) => (&[][..], Settled::before_hooks(since_ns)),
            Timed::Calls(calls) => (calls, Settled::beside_hooks(end_ns)),
        };
        let found = self.waits.slow_records(calls, &mut self.stacks, settled);
        let mut taken = MachineWaits {
            under_way,
            standing,
            gaps,
            calls: found.calls,
            waited: found.waited,
            ..MachineWaits::default()
        };
        taken.users = if memory {
            self.waits.interval(start_ns, end_ns).users
        } else {
            Users { owners: self.waits.owners(start_ns, end_ns), ..Users::default() }
        };
        taken.stacks = self.stacks.stacks().get(self.stacks_reported..).unwrap_or_default().to_vec();
        self.stacks_reported += taken.stacks.len();
        self.number(&mut taken);
        taken.stacks_from = StackId(self.first_id);
        if self.stacks.stacks().len() >= STACKS_MAX as usize {
            self.first_id = self.first_id.wrapping_add(self.stacks.stacks().len() as u32);
            self.stacks_reported = 0;
            self.stacks.forget();
        }
        taken
    }

    /// The calls in which threads sleep now, so that a hang is reported before it ends.
    fn under_way(&mut self) -> (Option<Vec<Call>>, Vec<Gap>) {
        let since_ns = monotonic_ns();
        if since_ns < self.ask_ns {
            return (None, Vec::new());
        }
        match self.waits.under_way(&mut self.stacks) {
            Ok(calls) => {
                let now_ns = monotonic_ns();
                let rest_ns = now_ns.saturating_sub(since_ns).saturating_mul(ASK_AGAIN_TIMES).min(ASK_AGAIN_NS_MAX);
                // Successive calls of `take` are not exactly a second apart.
                self.ask_ns = if rest_ns < LOOK_NS { 0 } else { now_ns.saturating_add(rest_ns) };
                (Some(calls), Vec::new())
            }
            Err(error) => {
                self.ask_ns = NEVER;
                (Some(Vec::new()), vec![under_way::unread("calls that have not ended", &error)])
            }
        }
    }

    /// Makes the ids of this table follow those of the earlier tables.
    fn number(&self, taken: &mut MachineWaits) {
        let renamed = |id: &mut StackId| id.0 = id.0.wrapping_add(self.first_id);
        taken.stacks.iter_mut().for_each(|stack| renamed(&mut stack.id));
        let calls = taken.calls.iter_mut().chain(taken.under_way.iter_mut().flatten());
        let segments = calls.flat_map(|call| call.segments.iter_mut());
        segments.filter_map(|segment| segment.stack.as_mut()).for_each(renamed);
        for wait in &mut taken.waited.waits {
            wait.stack.iter_mut().chain(&mut wait.waker_stack).for_each(renamed);
        }
    }

    #[must_use]
    pub fn losses(&self) -> Losses {
        self.waits.losses()
    }
}
