//! Neighbours in a run of flatwater's own workloads. All threads of a run belong to one process, which the kernel's
//! accounts of memory do not divide; each thread's own count of bytes does.

use std::collections::BTreeMap;

use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::units::Bytes;
use flatwater_recording::{Cause, Recording};

use super::{Aggressor, Answerable, Means, RECLAIM};
use crate::Evidence;

/// Divides the target's own share of a stall for memory among the run's threads by the bytes that each wrote, and
/// names the neighbours. `lost_ns` is the stall time. Returns nothing for other causes and without neighbours.
#[must_use]
pub fn of_memory(
    recording: &Recording,
    cause: Cause,
    lost_ns: u64,
    answerable: &Answerable,
) -> Option<(Vec<Aggressor>, Answerable)> {
    let means = match cause {
        Cause::DirtyThrottle => Means::DirtyPages,
        _ if RECLAIM.contains(&cause) => Means::Memory,
        _ => return None,
    };
    let neighbours = recording.neighbours();
    let mut written: BTreeMap<&str, u64> = BTreeMap::new();
    for bucket in &recording.latency {
        let bytes = written.entry(bucket.thread.as_str()).or_default();
        *bytes = bytes.saturating_add(bucket.bytes);
    }
    let all = written.values().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
    let named = written.iter().filter(|(thread, bytes)| neighbours.contains(**thread) && **bytes > 0);
    let mut aggressors: Vec<Aggressor> = named
        .map(|(thread, &bytes)| {
            let share = answerable.own * (bytes as f64 / all as f64);
            let text = format!("it wrote {} of the {} that the run's threads wrote", Bytes(bytes), Bytes(all));
            let evidence = Evidence::new(text, bytes as f64, "bytes");
            // What it wrote in all is not what it had dirtied in one wait: `bytes` stays unknown.
            Aggressor::by(thread, Vec::new(), (share, (lost_ns as f64 * share) as u64), means, evidence)
        })
        .filter(|aggressor| aggressor.share >= super::NAMED_SHARE_MIN)
        .collect();
    if aggressors.is_empty() {
        return None;
    }
    aggressors
        .sort_short_by(|one, other| other.stall_ns.cmp(&one.stall_ns).then_with(|| one.program.cmp(&other.program)));
    aggressors.truncate(super::NAMED_MAX);
    let theirs: f64 = aggressors.iter().map(|aggressor| aggressor.share).sum();
    let answerable = Answerable {
        others: answerable.others + theirs,
        own: (answerable.own - theirs).max(0.0),
        ..answerable.clone()
    };
    Some((aggressors, answerable))
}

#[cfg(test)]
mod tests {
    use super::of_memory;
    use crate::aggressor::{Answerable, Means};
    use crate::testing::RecordingBuilder;
    use flatwater_recording::{Cause, OpKind, Recording};

    fn run() -> Recording {
        let threads = [("", 1), ("stream-0", 90), ("stream-0", 9), ("idle-0", 0)];
        let builder = threads
            .iter()
            .fold(RecordingBuilder::new(), |builder, (thread, _)| builder.bucket(thread, OpKind::Write, &[2_000]));
        let builder = builder.edit(|recording| {
            recording.header.target.neighbours = vec!["stream-0".to_owned(), "idle-0".to_owned()];
            for (bucket, (_, mib)) in recording.latency.iter_mut().zip(threads) {
                bucket.bytes = mib << 20;
            }
        });
        builder.done()
    }

    #[test]
    fn the_thread_that_fills_the_cgroup_is_named_and_the_shares_still_sum_to_one() {
        let own = Answerable { own: 0.9, kernel: 0.1, ..Answerable::default() };
        let (aggressors, answerable) = of_memory(&run(), Cause::MemcgReclaim, 1_000_000, &own).expect("a neighbour");
        let [stream] = aggressors.as_slice() else { panic!("{aggressors:?}") };
        assert_eq!((stream.program.as_str(), stream.means, stream.bytes), ("stream-0", Means::Memory, 0));
        assert!((stream.share - 0.891).abs() < 1e-6 && stream.stall_ns == 891_000, "{stream:?}");
        assert!((answerable.others + answerable.own + answerable.kernel - 1.0).abs() < 1e-9, "{answerable:?}");
    }

    #[test]
    fn other_causes_and_runs_without_neighbours_name_no_thread() {
        let own = Answerable { own: 1.0, ..Answerable::default() };
        assert!(of_memory(&run(), Cause::JournalCommit, 1_000_000, &own).is_none());
        let mut alone = run();
        alone.header.target.neighbours.clear();
        assert!(of_memory(&alone, Cause::MemcgReclaim, 1_000_000, &own).is_none());
    }
}
