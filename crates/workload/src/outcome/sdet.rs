//! SDET: scripts per hour of each run, and their trend.

use super::statistics::trend_percent;
use crate::{Mark, Observation, Observe, Op};
use flatwater_recording::Series;
use flatwater_recording::outcome::{SdetOutcome, SdetRun, WorkloadOutcome};

#[derive(Debug)]
pub struct SdetObserver {
    scripts: u32,
    begin_ns: Option<u64>,
    runs: Vec<SdetRun>,
}

impl SdetObserver {
    #[must_use]
    pub fn new(scripts: u32) -> SdetObserver {
        SdetObserver { scripts, begin_ns: None, runs: Vec::new() }
    }
}

impl Observe for SdetObserver {
    fn observe(&mut self, seen: &Observation<'_>) {
        match seen.op {
            Op::Mark { mark: Mark::RunBegin, .. } => self.begin_ns = Some(seen.start_ns),
            Op::Mark { mark: Mark::RunEnd, value } => {
                let Some(begin_ns) = self.begin_ns.take() else { return };
                let elapsed_ns = seen.start_ns.saturating_sub(begin_ns);
                if elapsed_ns > 0 {
                    let scripts_per_hour = f64::from(self.scripts) * 3.6e12 / elapsed_ns as f64;
                    let run = u32::try_from(value).unwrap_or(u32::MAX);
                    self.runs.push(SdetRun { run, elapsed_ns, scripts_per_hour });
                }
            }
            _ => {}
        }
    }

    /// A run that the end of the scenario cuts off does not count.
    fn outcome(self: Box<Self>, _sampled: &[Series]) -> Option<WorkloadOutcome> {
        let throughput: Vec<f64> = self.runs.iter().map(|run| run.scripts_per_hour).collect();
        let trend_percent_per_run = trend_percent(&throughput);
        let table = SdetOutcome { scripts: self.scripts, runs: self.runs, trend_percent_per_run };
        (!table.runs.is_empty()).then_some(WorkloadOutcome::Sdet(table))
    }
}

#[cfg(test)]
mod tests {
    use super::SdetObserver;
    use crate::{Mark, Observation, Observe, Op};
    use flatwater_recording::outcome::WorkloadOutcome;

    #[test]
    fn complete_runs_have_a_throughput_and_a_trend() {
        let mut observer = SdetObserver::new(128);
        let mut mark = |mark, value, start_ns| {
            let op = Op::Mark { mark, value };
            let (thread, tid, actor, due_ns, duration_ns, bytes, measured) = ("sdet", 1, 0, None, 0, 0, true);
            observer.observe(&Observation { actor, thread, tid, op, start_ns, due_ns, duration_ns, bytes, measured });
        };
        let second = 1_000_000_000;
        for (run, begin, end) in [(0, 0, 100), (1, 100, 225), (2, 230, 430)] {
            mark(Mark::RunBegin, run, begin * second);
            mark(Mark::RunEnd, run, end * second);
        }
        mark(Mark::RunBegin, 3, 430 * second);
        let Some(WorkloadOutcome::Sdet(table)) = Box::new(observer).outcome(&[]) else { panic!("a table") };
        let throughput: Vec<f64> = table.runs.iter().map(|run| run.scripts_per_hour.round()).collect();
        assert_eq!(throughput, [4608.0, 3686.0, 2304.0]);
        assert!(table.trend_percent_per_run.is_some_and(|trend| trend < -20.0), "{table:?}");
    }
}
