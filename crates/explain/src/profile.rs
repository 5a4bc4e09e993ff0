//! CPU profiles in logs (perf top, perf report): the share of samples in reclaim, in shrinkers, and in compaction.

use flatwater_recording::symbol::meaning;
use flatwater_recording::{Cause, CauseBasis, DurationBasis, Recording, ReportedBy, SampledTask, Source};

use super::cause::CauseId;
use super::facts::Facts;
use super::precedence::{Candidate, Origin};
use super::{Evidence, Finding};

/// Causes that use CPU. Sleeps do not appear in a profile.
const COMPUTING: &[Cause] = &[
    Cause::DirectReclaim,
    Cause::MemcgReclaim,
    Cause::NodeReclaim,
    Cause::Shrinker,
    Cause::Compaction,
    Cause::SlabRefill,
    Cause::BlockAllocation,
];
/// From this share of all samples a cause is a finding; a machine with enough memory spends next to nothing on
/// these.
const SHARE_MIN: f64 = 0.10;
/// The `count` of a profile's sampled tasks is in units of 1/10,000 of all samples.
const ALL: f64 = 10_000.0;

fn is_sample(task: &SampledTask) -> bool {
    task.reported_by == ReportedBy::Traced && task.state == Some('R')
}

fn shares(recording: &Recording) -> Vec<(Cause, f64)> {
    let mut shares: Vec<(Cause, f64)> = Vec::new();
    for task in recording.header.sampled_tasks.iter().filter(|task| is_sample(task)) {
        let stack = task.stack.and_then(|id| recording.stack(id));
        let frames: Vec<&str> =
            stack.map(|stack| stack.frames.iter().map(String::as_str).collect()).unwrap_or_default();
        let Some(cause) = meaning(&frames).map(|known| known.cause).filter(|cause| COMPUTING.contains(cause)) else {
            continue;
        };
        let share = f64::from(task.count) / ALL;
        match shares.iter_mut().find(|(known, _)| *known == cause) {
            Some((_, sum)) => *sum += share,
            None => shares.push((cause, share)),
        }
    }
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    shares
}

/// Adds what the profile shows: evidence to candidates that name the same cause, otherwise candidates.
pub fn add(facts: &Facts<'_>, candidates: &mut Vec<Candidate>) {
    if facts.recording.header.source != Source::Import {
        return;
    }
    background_reclaim(facts, candidates);
    let shares = shares(facts.recording).into_iter().filter(|(_, share)| *share >= SHARE_MIN);
    for (place, (cause, share)) in shares.enumerate() {
        let text = format!("{:.1} % of the profile's samples were taken in it", share * 100.0);
        let evidence = Evidence::new(text, share * 100.0, "%");
        if let Some(known) = candidates.iter_mut().find(|known| known.finding.cause == cause.into()) {
            known.finding.evidence.insert(0, evidence);
            continue;
        }
        let headline = CauseId::from(cause).entry().headline;
        let mut finding = Finding::inferred(cause, (0.5 + share / 2.0).min(0.8), headline).with([evidence]);
        (finding.cause_basis, finding.duration_basis) = (CauseBasis::Stack, DurationBasis::Sampled);
        candidates.push(Candidate { finding, origin: Origin::Profile { place } });
    }
}

/// From this share of one CPU, kswapd cannot keep up. On a machine with enough memory it sleeps.
const KSWAPD_SHARE_MIN: f64 = 0.2;

/// Adds to direct reclaim that kswapd uses much of a CPU, if top shows it; alone it is a candidate only if there is no
/// other.
fn background_reclaim(facts: &Facts<'_>, candidates: &mut Vec<Candidate>) {
    let tasks = facts.recording.header.sampled_tasks.iter();
    let kswapd = tasks.filter(|task| is_sample(task) && task.stack.is_none() && task.task.starts_with("kswapd"));
    let Some(busiest) = kswapd.max_by_key(|task| task.count) else { return };
    let share = f64::from(busiest.count) / ALL;
    if share < KSWAPD_SHARE_MIN {
        return;
    }
    let text = format!("{} uses {:.0} % of a CPU: background reclaim does not keep up", busiest.task, share * 100.0);
    let evidence = Evidence::new(text, share * 100.0, "%");
    if let Some(known) = candidates.iter_mut().find(|known| known.finding.cause == CauseId::DirectReclaim) {
        known.finding.evidence.push(evidence);
        return;
    }
    if !candidates.is_empty() {
        return;
    }
    let headline = "memory is short: kswapd reclaims all the time, and allocating tasks will soon reclaim themselves";
    let finding = Finding::inferred(CauseId::DirectReclaim, 0.5, headline).with([evidence]);
    let finding = finding.settle("`sar -B 1` while it is slow: pgscank/s, pgscand/s and %vmeff");
    candidates.push(Candidate::figures(finding));
}

#[cfg(test)]
mod tests {
    use crate::Explanation;
    use crate::cause::CauseId;
    use crate::testing::Made;
    use flatwater_recording::{ReportedBy, SampledTask, Source, Stack, StackId};

    fn profiled(rows: &[(&str, u32)]) -> Explanation {
        Made::new()
            .edit(|recording| {
                recording.header.source = Source::Import;
                for (at, (frame, count)) in rows.iter().enumerate() {
                    let id = StackId(at as u32);
                    recording.stacks.push(Stack { id, frames: vec![(*frame).to_owned()] });
                    let mut task = SampledTask::new(ReportedBy::Traced);
                    (task.state, task.count, task.stack) = (Some('R'), *count, Some(id));
                    recording.header.sampled_tasks.push(task);
                }
            })
            .explained()
    }

    #[test]
    fn a_profile_full_of_reclaim_names_it() {
        let explanation = profiled(&[("try_to_free_mem_cgroup_pages", 2400), ("copy_page", 900)]);
        assert_eq!(explanation.findings[0].cause, CauseId::MemcgReclaim);
    }

    #[test]
    fn a_profile_of_anything_else_is_not_quiet() {
        let explanation = profiled(&[("copy_page", 4000)]);
        assert_eq!(explanation.findings[0].cause, CauseId::NotEnough);
    }
}
