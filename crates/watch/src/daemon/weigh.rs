//! Measures the daemon's cost, and sheds work above the budget.

use flatwater_host::own_cost::{OwnCostMeter, give_back_memory};
use flatwater_host::tracer::Level;
use flatwater_recording::units::Bytes;
use flatwater_recording::{Gap, printable};

use super::Daemon;
use crate::budget::{Cost, Memory, Step};
use crate::busiest::KernelTime;
use crate::owner::Owners;
use crate::sight::Wanted;

/// While system calls are hooked after a trigger, this many times the CPU budget may be used.
const ARMED_TIMES: f64 = 20.0;

impl Daemon {
    /// Measures the daemon's cost, and sheds work above the budget.
    pub(super) fn weigh(&mut self, now_ns: u64, tell: &mut dyn FnMut(&str)) {
        let hooks_share = self.sight.programs.end();
        let now_answering_ns = self.server.answering_ns();
        let answering_ns = now_answering_ns - std::mem::replace(&mut self.answering_ns, now_answering_ns);
        let meter = std::mem::replace(&mut self.meter, OwnCostMeter::start());
        let (all, own) = (meter.finish(0), meter.finish(answering_ns));
        self.cost = Cost {
            process_share: own.cpu_share,
            hooks_share,
            answers_share: (all.cpu_share - own.cpu_share).max(0.0),
            rss_bytes: rss_bytes(),
        };
        let before = self.keeper.step();
        let armed_from = self.armed_from.take();
        let armed = (armed_from.is_some() || self.sight.is_armed()) && self.config.level == Level::Sleeps;
        if armed && self.cost.share() > self.config.budget.cpu_share * ARMED_TIMES {
            self.disarm(armed_from.as_ref(), now_ns, tell);
        }
        // The time after a trigger costs more by design; it must not shed the permanent hooks.
        let looked = if armed { None } else { self.keeper.look(self.cost) };
        if let Some(step) = looked {
            tell(&format!("flatwater {}; shed now: {step}", self.cost));
            if let (Some(gap), Some(capture)) = (step.gap(now_ns, self.cost, self.keeper.budget()), &mut self.capture) {
                let _ = capture.gaps(&[gap]);
            }
            if self.wanted(before) != self.wanted(step) {
                self.attach();
            }
        }
        self.weigh_memory(tell);
    }

    /// Halves the look-back above `budget.rss`, and restores it when there is room.
    fn weigh_memory(&mut self, tell: &mut dyn FnMut(&str)) {
        let budget_bytes = self.config.budget.rss_bytes;
        let change = self.memory.look(self.cost.rss_bytes, budget_bytes, self.look_back.halved_to());
        let (rss, most) = (Bytes(self.cost.rss_bytes), Bytes(budget_bytes));
        match change {
            Some(Memory::Halve) => {
                give_back_memory();
                let done = if self.look_back.halve() { "halved" } else { "already as small as it can be" };
                tell(&format!("flatwater uses {rss}, budget.rss is {most}: the look-back is {done}"));
            }
            Some(Memory::Double) => {
                self.look_back.double();
                tell(&format!("flatwater uses {rss}, budget.rss is {most}: the look-back is doubled again"));
            }
            None => {}
        }
    }

    /// Detaches the hooks on system calls because they cost too much. The gap names the process that spent most time in
    /// the kernel, since its calls are most likely the reason.
    fn disarm(&mut self, before: Option<&KernelTime>, now_ns: u64, tell: &mut dyn FnMut(&str)) {
        let busiest = before.and_then(|before| KernelTime::read().busiest_since(before));
        let busiest = busiest.map_or_else(String::new, |pid| {
            let (owner, account) = Owners::default().of(pid, "", None, now_ns);
            let (program, account) = (printable::line(&owner.program), account.as_str());
            format!("; most time in the kernel was that of {program} (pid {pid}), {account}")
        });
        tell(&format!(
            "flatwater {}: too much even after a trigger; the hooks on system calls are detached{busiest}",
            self.cost
        ));
        let why = format!("flatwater {} while calls were timed{busiest}", self.cost);
        let gap = Gap::new("exact times of calls", why, "raise budget.cpu_share in watch.toml").since(now_ns);
        if let Some(capture) = &mut self.capture {
            let _ = capture.gaps(&[gap]);
        }
        self.sight.disarm();
    }

    /// The hooks to attach in this step; `None` if the step sheds all of them.
    fn wanted(&self, step: Step) -> Option<Wanted> {
        let times = if step >= Step::ShortStalls { 4 } else { 1 };
        (step < Step::Hooks).then(|| Wanted {
            threshold_ns: self.config.threshold_ns.saturating_mul(times),
            requests: step < Step::Requests,
            level: self.config.level,
        })
    }

    /// Attaches the hooks that the current step allows.
    pub(super) fn attach(&mut self) {
        match self.wanted(self.keeper.step()) {
            Some(wanted) => self.sight.attach(wanted),
            None => self.sight.detach(),
        }
    }
}

/// Resident memory of this process, bytes; 0 only if /proc is not mounted.
fn rss_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages.saturating_mul(rustix::param::page_size() as u64)
}
