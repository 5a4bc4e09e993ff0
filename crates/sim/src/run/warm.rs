//! A machine that has run for a while, from which runs with several settings continue.
//!
//! Its tasks are futures, which cannot be copied. To try many settings on one warm machine, the caller copies the
//! process: it forks, and each child calls `go_on` once (`flatwater_experiment::whatif::search_copies`). The pages of
//! the machine are shared until one of them changes.

use std::rc::Rc;

use crate::Machine;
use crate::run::options::{Options, Truth};
use crate::run::sample;
use crate::run::{SimError, built, checked, finish, has_cgroup};
use flatwater_recording::{Recording, Setup};
use flatwater_workload::scenario::Scenario;

#[derive(Debug)]
pub struct Warm {
    machine: Rc<Machine>,
    scenario: Scenario,
    seed: u64,
    /// When the measured part begins: virtual time, a whole bucket of the latencies.
    from_ns: u64,
}

impl Warm {
    /// Runs the unchanged scenario for at least `warm_ns`; its timeline counts from the beginning of that.
    pub fn up(scenario: &Scenario, options: &Options, warm_ns: u64) -> Result<Warm, SimError> {
        let (machine, seed) = built(scenario, options)?;
        let width_ns = machine.recorder.borrow().width_ns();
        let from_ns = machine.start_ns.get().saturating_add(warm_ns).next_multiple_of(width_ns);
        machine.recorder.borrow_mut().begin_at(from_ns);
        machine.samples_from_ns.set(from_ns);
        machine.clock.set_end(from_ns);
        machine.clock.run_up_to(from_ns);
        checked(&machine, seed)?;
        Ok(Warm { machine, scenario: scenario.clone(), seed, from_ns })
    }

    /// Continues with the setup of `changed` for the scenario's own duration; the recording begins here.
    /// To be called once for each copy of the machine.
    pub fn go_on(&self, changed: &Scenario) -> Result<(Recording, Truth), SimError> {
        let m = &self.machine;
        let mut different = Setup::default();
        for (key, value) in changed.setup.iter().filter(|(key, value)| self.scenario.setup.get(key) != Some(value)) {
            different.observe(key, value);
        }
        m.apply(&different);
        m.start_ns.set(self.from_ns);
        m.recorder.borrow_mut().begin_anew(self.from_ns);
        *m.series.borrow_mut() = sample::tables(has_cgroup(changed));
        sample::take(m);
        m.clock.set_end(self.from_ns.saturating_add(changed.duration.0));
        m.clock.run(|_| true);
        checked(m, self.seed)?;
        Ok(finish(m, changed, self.seed))
    }
}
