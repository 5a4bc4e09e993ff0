//! Level 0 for a daemon: the slow calls of every process of this machine, with who made them wait, by hooks of the
//! scheduler, of reclaim and of the block layer alone. No system call pays.

use super::{WaitOptions, WaitTracer};
use crate::kallsyms::{Kallsyms, KallsymsError};
use crate::tracer::TraceError;
use crate::tracer::stacks::StackTable;
use flatwater_recording::{Call, HookStatus, Losses, Stack, StackId, Users, Waited};

/// More kernel stacks than this, some 1.5 KiB each, and their table begins anew, with ids that were not given before.
const STACKS_MAX: u32 = 1_024;

/// Why nothing is seen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    #[error("sleeps cannot be followed: {0}")]
    Symbols(#[from] KallsymsError),
    #[error("sleeps cannot be followed: {0}")]
    Tracer(#[from] TraceError),
}

/// Everything since the last time.
#[derive(Clone, Debug, Default)]
pub struct MachineWaits {
    /// Calls that were found by their sleeps.
    pub calls: Vec<Call>,
    /// Of these calls, and of those that were handed in.
    pub waited: Waited,
    pub users: Users,
    /// Those that were not told before.
    pub stacks: Vec<Stack>,
    /// Stacks with lower ids are referred to no more.
    pub stacks_from: StackId,
}

/// The hooks, and what they have told.
#[derive(Debug)]
pub struct MachineTracer {
    waits: WaitTracer,
    stacks: StackTable,
    /// Ids below are of tables that were let go.
    first_id: u32,
    told: usize,
}

impl MachineTracer {
    /// Attaches what this kernel allows; the statuses say what that is.
    /// `requests`: whose requests the block devices work on, too.
    pub fn start(threshold_ns: u64, requests: bool) -> Result<(MachineTracer, Vec<HookStatus>), MachineError> {
        let symbols = Kallsyms::read()?;
        let stacks = StackTable::new(None, symbols);
        let options = WaitOptions { threshold_ns, detect_calls: true, whole_machine: true, requests, libaio: false };
        let (waits, statuses) = WaitTracer::start(&options, &stacks)?;
        Ok((MachineTracer { waits, stacks, first_id: 0, told: 0 }, statuses))
    }

    /// Empties the kernel's buffer: it holds some ten thousand requests.
    pub fn pump(&mut self) {
        self.waits.pump(&mut self.stacks);
    }

    /// Everything since the last time, and why these calls waited, which somebody else has timed. `memory`: also who made
    /// pages dirty and took memory, which costs some 20 us for each process that was met.
    pub fn take(&mut self, exact: &[Call], start_ns: u64, end_ns: u64, memory: bool) -> MachineWaits {
        let told = self.waits.tell(exact, &mut self.stacks, false);
        let mut taken = MachineWaits { calls: told.calls, waited: told.waited, ..MachineWaits::default() };
        taken.users = if memory {
            self.waits.interval(start_ns, end_ns).users
        } else {
            Users { owners: self.waits.owners(start_ns, end_ns), ..Users::default() }
        };
        taken.stacks = self.stacks.stacks().get(self.told..).unwrap_or_default().to_vec();
        self.told += taken.stacks.len();
        self.number(&mut taken);
        taken.stacks_from = StackId(self.first_id);
        if self.stacks.stacks().len() >= STACKS_MAX as usize {
            self.first_id = self.first_id.wrapping_add(self.stacks.stacks().len() as u32);
            self.told = 0;
            self.stacks.forget();
        }
        taken
    }

    /// Ids of this table follow those of the tables before it.
    fn number(&self, taken: &mut MachineWaits) {
        let renamed = |id: &mut StackId| id.0 = id.0.wrapping_add(self.first_id);
        taken.stacks.iter_mut().for_each(|stack| renamed(&mut stack.id));
        let segments = taken.calls.iter_mut().flat_map(|call| call.segments.iter_mut());
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
