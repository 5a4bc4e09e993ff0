//! Summarizes a recording as rows: stall time by hour, cause, victim and aggressor.

use std::collections::{BTreeMap, HashMap};

use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::summary::{Blame, Summarizer, SummaryOrigin, SummaryRow, Whose};
use flatwater_recording::{Call, Cause, Recording, Task, WatchedProcess};

use super::aggressor::{Links, Party, Share, segment};

/// Name at most this many aggressors per slow call; the others are summed without a name.
const NAMED_MAX: usize = 3;

/// The summary rows of this recording: totals by hour, and stall time by cause.
#[must_use]
pub fn of(recording: &Recording) -> Vec<SummaryRow> {
    let header = &recording.header;
    let mut summary = Summarizer::new(header, origin(recording), header.clock.start_ns);
    summary.observe(header.clock.start_ns, header.clock.start_ns.saturating_add(header.duration_ns));
    let waits_known =
        !recording.waits.is_empty() || !recording.dirtiers.is_empty() || !recording.memory_users.is_empty();
    let links = Links::of(recording);
    let processes: HashMap<u32, &WatchedProcess> =
        header.target.processes.iter().map(|process| (process.pid, process)).collect();
    for call in recording.foreground_calls() {
        let whose = whose(recording, &links, call, processes.get(&call.pid).copied());
        let parts = if waits_known { charged(&links, call) } else { by_cause(call) };
        summary.add(call, &whose, &parts);
    }
    summary.finish()
}

fn origin(recording: &Recording) -> SummaryOrigin {
    if recording.header.trigger.is_some() { SummaryOrigin::Capture } else { SummaryOrigin::Recording }
}

fn whose(recording: &Recording, links: &Links<'_>, call: &Call, process: Option<&WatchedProcess>) -> Whose {
    let target = &recording.header.target;
    let awaited = links.sleeps(call).filter_map(|wait| links.request(wait)).next();
    let cgroup = links.own_cgroup(call).map(str::to_owned).or_else(|| target.cgroup.clone());
    Whose {
        device: awaited.map(|request| request.device.clone()).or_else(|| target.device.clone()),
        cgroup,
        service: process.and_then(|process| process.container.clone()),
        program: Some(process.map_or_else(|| call.thread.clone(), |process| process.name.clone()))
            .filter(|name| !name.is_empty()),
    }
}

fn by_cause(call: &Call) -> Vec<(Cause, Option<Blame>, u64)> {
    let mut parts: Vec<_> = call.by_cause().into_iter().map(|(cause, ns)| (cause, None, ns)).collect();
    if call.after_exit_ns > 0 {
        parts.push((Cause::MemcgOverHigh, None, call.after_exit_ns));
    }
    parts
}

/// Splits the call's time by cause and responsible party.
fn charged(links: &Links<'_>, call: &Call) -> Vec<(Cause, Option<Blame>, u64)> {
    let mut sums: BTreeMap<(Cause, Blame), u64> = BTreeMap::new();
    for (place, of) in call.segments.iter().enumerate() {
        let mut charged_ns = 0_u64;
        for share in segment(links, call, place) {
            charged_ns = charged_ns.saturating_add(share.ns);
            add(&mut sums, (of.cause, blame(&share)), share.ns);
        }
        // The remainder of rounding is charged to unknown.
        let rest_ns = of.ns.saturating_sub(charged_ns);
        if rest_ns > 0 {
            add(&mut sums, (of.cause, unknown_aggressor()), rest_ns);
        }
    }
    if call.after_exit_ns > 0 {
        add(&mut sums, (Cause::MemcgOverHigh, unknown_aggressor()), call.after_exit_ns);
    }
    let mut parts: Vec<((Cause, Blame), u64)> = sums.into_iter().collect();
    parts.sort_short_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let mut named = 0;
    let mut thin: BTreeMap<(Cause, Blame), u64> = BTreeMap::new();
    for ((cause, mut blame), ns) in parts {
        named = usize::from(blame.program.is_some()).saturating_add(named);
        if named > NAMED_MAX {
            (blame.program, blame.cgroup) = (None, None);
        }
        add(&mut thin, (cause, blame), ns);
    }
    thin.into_iter().map(|((cause, blame), ns)| (cause, Some(blame), ns)).collect()
}

/// Saturates, since a damaged recording may contain any number.
fn add(sums: &mut BTreeMap<(Cause, Blame), u64>, key: (Cause, Blame), ns: u64) {
    let sum = sums.entry(key).or_default();
    *sum = sum.saturating_add(ns);
}

fn unknown_aggressor() -> Blame {
    Blame { kind: "unknown", ..Blame::default() }
}

fn blame(charge: &Share<'_>) -> Blame {
    let of = |kind: &'static str, task: Option<&Task>| Blame {
        kind,
        program: task.map(|task| task.name.clone()).filter(|name| !name.is_empty()),
        cgroup: task.and_then(|task| task.cgroup.clone()).filter(|path| path != "/"),
        means: charge.means.name(),
    };
    match charge.party {
        Party::Other(task) => of("others", Some(task)),
        // The recording itself names the thread.
        Party::Own(_) => of("own", None),
        Party::Device => of("device", None),
        Party::Flush => of("flush", None),
        Party::Limit(task) => of("limit", Some(task)),
        Party::Kernel(_) => of("kernel", None),
        Party::Unknown => unknown_aggressor(),
    }
}

#[cfg(test)]
mod tests {
    use flatwater_recording::summary::SummaryOrigin;
    use flatwater_recording::{Cause, OpKind};

    use super::of;
    use crate::testing::RecordingBuilder;

    #[test]
    fn a_recording_without_waits_names_no_aggressor_and_keeps_all_time() {
        let recording = RecordingBuilder::new()
            .slow(OpKind::Write, &[(Cause::DirtyThrottle, 40.0), (Cause::RunQueue, 2.0)])
            .slow_by("noise", OpKind::Write, &[(Cause::DirtyThrottle, 9.0)])
            .neighbour("noise")
            .done();
        let rows = of(&recording);
        let time: i64 = rows.iter().filter_map(|row| row.stall_ns).sum();
        assert_eq!(time, 42_000_000);
        assert_eq!(rows.iter().filter_map(|row| row.calls).sum::<i64>(), 1);
        assert_eq!(rows.iter().filter(|row| row.cause.is_none()).count(), 1);
        let most = rows.iter().max_by_key(|row| row.stall_ns).expect("rows");
        assert_eq!((most.cause.as_deref(), most.calls, &most.aggressor_kind), (Some("dirty-throttle"), Some(1), &None));
        assert_eq!(most.origin, SummaryOrigin::Recording);
    }

    #[test]
    fn a_recording_of_the_daemon_is_a_capture() {
        let recording =
            RecordingBuilder::new().edit(|recording| recording.header.trigger = Some("stall".to_owned())).done();
        assert!(of(&recording).iter().all(|row| row.origin == SummaryOrigin::Capture));
        let noted = RecordingBuilder::new()
            .edit(|recording| recording.header.notes.insert(0, "set off by stall: x".into()))
            .done();
        assert!(of(&noted).iter().all(|row| row.origin == SummaryOrigin::Recording), "a note is text for readers");
    }
}
