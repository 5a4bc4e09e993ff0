//! swap-storm: memory is swapped out and read back at once.

use super::{CauseEntry, CauseId};
use crate::counters::{Point, lasting};
use crate::facts::Facts;
use crate::{Evidence, Finding, Fix};
use flatwater_recording::Cause;
use flatwater_recording::schema::{cpu, vmstat};

/// Minimum of the larger direction in one window.
const BOTH_BYTES_PER_S_MIN: f64 = 1_048_576.0;
/// Minimum over STEADY_WINDOWS_MIN consecutive windows, for slow disks.
const STEADY_BYTES_PER_S_MIN: f64 = 524_288.0;
const STEADY_WINDOWS_MIN: usize = 3;
const STEADY_OTHER_SHARE_MIN: f64 = 0.25;
/// Minimum of the smaller direction, as a share of these limits: pages that come back and are not changed go out
/// again without a write.
const OTHER_SHARE_MIN: f64 = 0.125;
const SHARE_MIN: f64 = 0.2;

pub const ENTRY: CauseEntry = CauseEntry {
    name: "swap-storm",
    span: None,
    headline: "memory is swapped out and needed again at once: the programs do not fit into memory",
    mechanism: "When the anonymous memory in use exceeds what reclaim can leave in place, pages go out (mm/vmscan.c: \
        pageout) and fault back in (mm/memory.c: do_swap_page) within seconds. Each fault waits for the swap device, \
        and each page that is read in displaces another one. Throughput falls by orders of magnitude although the \
        CPUs idle.",
    kernels: "All with swap.",
    in_spans: "swap-in, and direct-reclaim beside it.",
    in_counters: "pswpin and pswpout (si and so in vmstat) both high in the same seconds, for many of them; iowait \
        and blocked threads rise; swap used grows to a plateau.",
    against: "Only so (pages are swapped out once and stay there: idle memory makes room) or only si (a program wakes \
        up).",
    fix: "More memory or fewer programs: find the largest anonymous users (ps by RSS, smaps_rollup). Protect what \
        must stay fast (mlockall, memory.min); put the largest into a memory cgroup with a limit; zswap lessens the \
        effect.",
    prove: "Stop the largest anonymous user: si and so go to 0 together.",
    sources: &["mm/vmscan.c: pageout, get_scan_count", "mm/memory.c: do_swap_page"],
    find,
};

/// Windows with heavy swapping in both directions.
struct Storm {
    windows: usize,
    of: usize,
    seconds: f64,
    into: f64,
    out: f64,
    first_ns: u64,
}

/// The windows of both tracks with equal ends in which the larger value reaches the limit and the smaller value reaches
/// `other_share` of the limit. Each point is visited once, since logs may cover days.
fn both_over(
    into: impl Iterator<Item = Point>,
    out: impl Iterator<Item = Point>,
    limit: f64,
    other_share: f64,
) -> Vec<(Point, f64)> {
    let mut out = out.peekable();
    let pair = |point: Point| {
        while out.next_if(|back| back.at_ns < point.at_ns).is_some() {}
        let back = out.peek().filter(|back| back.at_ns == point.at_ns)?.value;
        let (more, less) = (point.value.max(back), point.value.min(back));
        (more >= limit && less >= other_share * limit).then_some((point, back))
    };
    into.filter_map(pair).collect()
}

impl Storm {
    fn of(pairs: &[(Point, f64)], of: usize) -> Option<Storm> {
        let mean = |of: fn(&(Point, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / pairs.len() as f64;
        Some(Storm {
            windows: pairs.len(),
            of,
            seconds: pairs.iter().map(|(point, _)| point.at_ns.saturating_sub(point.from_ns) as f64 / 1e9).sum(),
            into: mean(|pair| pair.0.value),
            out: mean(|pair| pair.1),
            first_ns: pairs.first()?.0.from_ns,
        })
    }

    fn lasts(&self) -> bool {
        lasting(self.windows, self.of, self.seconds) && self.windows as f64 >= SHARE_MIN * self.of as f64
    }
}

fn storm(facts: &Facts<'_>) -> Option<Storm> {
    let (into, out) = (facts.vmstat_rate(vmstat::PSWPIN), facts.vmstat_rate(vmstat::PSWPOUT));
    let page_bytes = facts.recording.header.machine.page_size_bytes() as f64;
    let over = |limit: f64, other: f64| {
        both_over(into.points.iter().copied(), out.points.iter().copied(), limit / page_bytes, other)
    };
    let heavy = Storm::of(&over(BOTH_BYTES_PER_S_MIN, OTHER_SHARE_MIN), into.len()).filter(Storm::lasts);
    heavy.or_else(|| {
        let run = longest_run(over(STEADY_BYTES_PER_S_MIN, STEADY_OTHER_SHARE_MIN));
        Storm::of(&run, into.len()).filter(Storm::lasts)
    })
}

/// The longest run of consecutive windows; empty if shorter than `STEADY_WINDOWS_MIN`.
fn longest_run(pairs: Vec<(Point, f64)>) -> Vec<(Point, f64)> {
    let (mut longest, mut run): (Vec<(Point, f64)>, Vec<(Point, f64)>) = (Vec::new(), Vec::new());
    for pair in pairs {
        if run.last().is_some_and(|(before, _)| before.at_ns != pair.0.from_ns) {
            run.clear();
        }
        run.push(pair);
        if run.len() > longest.len() {
            longest.clone_from(&run);
        }
    }
    if longest.len() < STEADY_WINDOWS_MIN { Vec::new() } else { longest }
}

/// Whether there is a swap storm.
#[must_use]
pub fn signature(facts: &Facts<'_>) -> bool {
    storm(facts).is_some()
}

/// Whether swapping, in one or both directions, explains why threads wait for the device.
#[must_use]
pub fn explains_waiting(facts: &Facts<'_>) -> bool {
    signature(facts) || out_only(facts).is_some()
}

fn find(facts: &Facts<'_>) -> Option<Finding> {
    both_ways(facts).or_else(|| out_only(facts))
}

/// Swapping out only: idle memory makes room for new memory. Allocating tasks pay, and the device is busy with it.
fn out_only(facts: &Facts<'_>) -> Option<Finding> {
    let page_bytes = facts.recording.header.machine.page_size_bytes() as f64;
    let out = facts.vmstat_rate(vmstat::PSWPOUT);
    let per_s_min = BOTH_BYTES_PER_S_MIN / page_bytes;
    let windows = out.over(per_s_min);
    let heavy: Vec<Point> = out.points.iter().copied().filter(|point| point.value >= per_s_min).collect();
    let seconds: f64 = heavy.iter().map(|point| point.at_ns.saturating_sub(point.from_ns) as f64 / 1e9).sum();
    let mean = out.mean()?;
    let (wait, blocked) = (facts.cpu_share(cpu::IOWAIT_NS).mean(), facts.blocked().mean());
    let felt = wait.is_some_and(|wait| wait >= 0.1) || blocked.is_some_and(|blocked| blocked >= 1.0);
    let lasts = lasting(windows, out.len(), seconds) && windows as f64 >= SHARE_MIN * out.len() as f64;
    if !facts.may_infer_place() || !lasts || !felt {
        return None;
    }
    let mib = mean * page_bytes / 1_048_576.0;
    let text = format!("in {windows} of {} windows memory went out to swap, {mib:.1} MiB/s on average", out.len());
    let headline = "memory goes out to swap while threads wait";
    let mut finding =
        Finding::inferred(CauseId::SwapStorm, 0.55, headline).with([Evidence::new(text, mean, "pages/s")]);
    finding.evidence.extend(
        blocked
            .map(|blocked| Evidence::new(format!("{blocked:.1} threads were blocked on average"), blocked, "threads")),
    );
    let back = match facts.vmstat_rate(vmstat::PSWPIN).mean() {
        Some(into) => format!("only {:.1} MiB/s come back", into * page_bytes / 1_048_576.0),
        None => "the log does not show whether it comes back (pswpin)".to_owned(),
    };
    let text = format!("{back}: idle memory that makes room looks the same at its start");
    finding.against.push(Evidence::statement(text));
    let finding = finding.fix(Fix::advice("find what grows (pidstat -r 1) and bound it with a memory cgroup"));
    Some(finding.settle("`pidstat -r 1` while it is slow: the process whose RSS grows displaces the others"))
}

fn both_ways(facts: &Facts<'_>) -> Option<Finding> {
    let allowed = facts.may_infer() && (!facts.spans_tell_all() || facts.significant(Cause::SwapIn).is_some());
    let Storm { windows, of, into, out, first_ns, .. } = storm(facts).filter(|_| allowed)?;
    let page_bytes = facts.recording.header.machine.page_size_bytes() as f64;
    let mib = |pages: f64| pages * page_bytes / 1_048_576.0;
    let mut evidence = vec![
        Evidence::new(
            format!(
                "in {windows} of {of} windows memory was swapped in both directions: {:.1} MiB/s in, {:.1} MiB/s out \
                    on average",
                mib(into),
                mib(out)
            ),
            into,
            "pages/s",
        )
        .at(first_ns),
    ];
    let wait = facts.cpu_share(cpu::IOWAIT_NS).mean().unwrap_or(0.0);
    if wait >= 0.05 {
        evidence.push(Evidence::new(
            format!("{:.0} % of CPU time waited for the device", wait * 100.0),
            wait * 100.0,
            "%",
        ));
    }
    if let Some(blocked) = facts.blocked().mean().filter(|blocked| *blocked >= 1.0) {
        evidence.push(Evidence::new(format!("{blocked:.1} threads were blocked on average"), blocked, "threads"));
    }
    let finding =
        Finding::inferred(CauseId::SwapStorm, if windows >= 3 { 0.85 } else { 0.7 }, ENTRY.headline).with(evidence);
    let finding = finding.fix(Fix::advice(
        "lock what must stay fast (mlockall, memory.min) and bound the largest anonymous user with a memory cgroup",
    ));
    Some(finding.settle(
        "sort processes by RSS plus Swap (smem, or VmRSS and VmSwap in /proc/*/status): the largest \
         is the one to bound",
    ))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::{ENTRY, both_over};
    use crate::counters::Point;
    use crate::testing::{RecordingBuilder, evidence_text, rising};
    use flatwater_recording::{Entity, Table};

    #[test]
    fn each_window_is_looked_at_once_whatever_the_length_of_the_log() {
        const WINDOWS: u64 = 300_000;
        let looked = Cell::new(0_u64);
        let points = |every: u64| {
            let point = |at: u64| Point { from_ns: at * 1_000, at_ns: (at + 1) * 1_000, value: 5.0 };
            (0..WINDOWS).filter(move |at| at % every == 0).map(point).inspect(|_| looked.set(looked.get() + 1))
        };
        let pairs = both_over(points(1), points(3), 1.0, 0.125);
        assert_eq!(pairs.len() as u64, WINDOWS / 3);
        assert!(looked.get() <= WINDOWS + WINDOWS / 3, "{} of {WINDOWS} windows", looked.get());
        assert!(both_over(points(1), points(1), 6.0, 0.125).is_empty(), "under the limit");
    }

    fn swapping(in_per_s: i64, out_per_s: i64) -> RecordingBuilder {
        let (into, out) = (rising(in_per_s, 10), rising(out_per_s, 10));
        RecordingBuilder::new().counters(Table::Vmstat, &Entity::default(), &[("pswpin", &into), ("pswpout", &out)])
    }

    #[test]
    fn traffic_both_ways_is_a_storm() {
        assert!(swapping(2_000, 1_500).found(&ENTRY).is_some());
    }

    #[test]
    fn clean_pages_swap_out_without_a_write() {
        assert!(swapping(350, 60).found(&ENTRY).is_some(), "1.4 MiB/s in, a quarter of one out");
        assert!(swapping(350, 20).found(&ENTRY).is_none(), "hardly anything goes out");
    }

    #[test]
    fn half_as_much_for_some_seconds_is_a_storm() {
        let (into, out) = ([0, 190, 390, 780, 780, 780], [0, 110, 200, 470, 470, 470]);
        let build = |into: &[i64], out: &[i64]| {
            let columns: [(&str, &[i64]); 2] = [("pswpin", into), ("pswpout", out)];
            RecordingBuilder::new().counters(Table::Vmstat, &Entity::default(), &columns)
        };
        assert!(build(&into, &out).found(&ENTRY).is_some(), "three windows of 0.7 MiB/s and more");
        assert!(build(&[0, 190, 190, 580, 580, 770], &out).found(&ENTRY).is_none(), "now and then");
    }

    #[test]
    fn sizes_are_of_the_pages_that_the_machine_has() {
        let arm = |in_per_s, out_per_s| {
            swapping(in_per_s, out_per_s).edit(|recording| recording.header.machine.page_bytes = Some(65_536))
        };
        let finding = arm(160, 80).found(&ENTRY).expect("10 and 5 MiB/s");
        assert!(evidence_text(&finding).contains("10.0 MiB/s in, 5.0 MiB/s out"), "{}", evidence_text(&finding));
        assert!(arm(7, 7).found(&ENTRY).is_none(), "less than half a MiB/s");
    }

    #[test]
    fn one_way_or_a_trickle_is_not() {
        let blocked = |builder: RecordingBuilder| {
            builder.gauges(Table::Cpu, &Entity::named("all"), &[("procs_blocked", &[4; 10])])
        };
        let out = blocked(swapping(0, 3_000)).found(&ENTRY).expect("threads wait while it goes out");
        assert!(
            out.weight < 0.6 && evidence_text(&out).contains("only 0.0 MiB/s come back"),
            "{}",
            evidence_text(&out)
        );
        let alone =
            RecordingBuilder::new().counters(Table::Vmstat, &Entity::default(), &[("pswpout", &rising(3_000, 10))]);
        let alone = blocked(alone).found(&ENTRY).expect("threads wait while it goes out");
        assert!(evidence_text(&alone).contains("does not show whether it comes back"), "{}", evidence_text(&alone));
        assert!(blocked(swapping(0, 30)).found(&ENTRY).is_none(), "a trickle");
        assert!(swapping(2_000, 0).found(&ENTRY).is_none());
        assert!(swapping(0, 3_000).found(&ENTRY).is_none());
        assert!(swapping(12, 9).found(&ENTRY).is_none());
    }
}
