//! Sums slow calls into the rows of a summary, by hour.

use std::collections::BTreeMap;

use super::hour::HOUR_NS;
use super::row::CALLS_OVER_NS;
use super::{HourStart, SummaryOrigin, SummaryRow};
use crate::short_sort::ShortSort;
use crate::{Call, Cause, Header, Machine, Observed, OpKind};

/// Maximum number of rows of one hour. Beyond it, the smallest are merged by cause and operation, without names.
const ROWS_MAX: usize = 64;

/// The victim: who made a slow call.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Whose {
    /// Name of the device.
    pub device: Option<String>,
    /// Path of the cgroup.
    pub cgroup: Option<String>,
    /// Name of the service.
    pub service: Option<String>,
    /// Name of the program.
    pub program: Option<String>,
}

/// The aggressor: who is responsible for a part of a call's time.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blame {
    /// `others`, `own`, `device`, `flush`, `limit`, `kernel`, `unknown`.
    pub kind: &'static str,
    /// Name of the program.
    pub program: Option<String>,
    /// Path of the cgroup.
    pub cgroup: Option<String>,
    /// By what it caused the stall.
    pub means: &'static str,
}

type Key = (Whose, OpKind, Cause, Option<Blame>);

#[derive(Clone, Debug, Default)]
struct Sums {
    calls: i64,
    stall_ns: i64,
    worst_ns: i64,
    over: [i64; CALLS_OVER_NS.len()],
}

impl Sums {
    fn absorb(&mut self, other: &Sums) {
        self.calls = self.calls.saturating_add(other.calls);
        self.stall_ns = self.stall_ns.saturating_add(other.stall_ns);
        self.worst_ns = self.worst_ns.max(other.worst_ns);
        for (into, from) in self.over.iter_mut().zip(other.over) {
            *into = into.saturating_add(from);
        }
    }
}

/// Observed time beyond this many hours (a year) is counted without its hour: only a damaged header holds more.
const HOURS_MAX: usize = 8_784;

#[derive(Clone, Debug, Default)]
struct Hour {
    observed_ns: u64,
    rows: BTreeMap<Key, Sums>,
}

/// Builds the rows of one summary.
#[derive(Clone, Debug)]
pub struct Summarizer {
    /// Values that all rows share.
    common: SummaryRow,
    wall_offset_ns: Option<i64>,
    /// Whether any kind of operation was timed.
    seen: bool,
    hours: BTreeMap<Option<HourStart>, Hour>,
}

impl Summarizer {
    /// Begins a summary of the time from `start_ns` on, on the header's clock.
    #[must_use]
    pub fn new(header: &Header, origin: SummaryOrigin, start_ns: u64) -> Summarizer {
        let machine = &header.machine;
        let mut common = SummaryRow {
            host: machine.hostname.clone().unwrap_or_else(|| "unknown".to_owned()),
            boot: machine.boot_id.clone(),
            sequence: signed(start_ns),
            origin,
            kernel: machine.kernel.clone(),
            cpus: machine.cpus,
            memory_bytes: machine.memory_bytes.map(signed),
            nodes: u32::try_from(machine.nodes.len()).ok().filter(|nodes| *nodes > 0),
            hypervisor: machine.hypervisor.clone(),
            shape: shape(machine),
            threshold_ns: signed(header.threshold_ns),
            not_observed: missed(&header.observed),
            written_by: header.written_by.clone(),
            ..SummaryRow::default()
        };
        common.take_settings(&header.setup);
        Summarizer {
            common,
            wall_offset_ns: header.clock.wall_offset_ns,
            seen: header.observed.is_empty() || header.observed.iter().any(|observed| observed.timed),
            hours: BTreeMap::new(),
        }
    }

    fn hour_of(&self, at_ns: u64) -> Option<HourStart> {
        Some(HourStart::of_ns(i64::try_from(at_ns).ok()?.checked_add(self.wall_offset_ns?)?))
    }

    /// Marks this time, on the header's clock, as observed. Every hour that overlaps it gets a row.
    pub fn observe(&mut self, from_ns: u64, to_ns: u64) {
        let mut at_ns = from_ns;
        for _ in 0..HOURS_MAX {
            let hour = self.hour_of(at_ns);
            let end_ns = match (hour, self.wall_offset_ns) {
                (Some(hour), Some(offset_ns)) => {
                    let end_ns = hour.hours().saturating_add(1).saturating_mul(HOUR_NS).saturating_sub(offset_ns);
                    u64::try_from(end_ns).unwrap_or(0).clamp(at_ns, to_ns.max(at_ns))
                }
                _ => to_ns.max(at_ns),
            };
            let entry = self.hours.entry(hour).or_default();
            entry.observed_ns = entry.observed_ns.saturating_add(end_ns - at_ns);
            // The second condition prevents an endless loop for an offset at the very end of the range.
            if end_ns >= to_ns || end_ns == at_ns {
                return;
            }
            at_ns = end_ns;
        }
        let unknown = self.hours.entry(None).or_default();
        unknown.observed_ns = unknown.observed_ns.saturating_add(to_ns.saturating_sub(at_ns));
    }

    /// Adds a slow call, with its time divided by cause and aggressor. It counts in the hour in which it began.
    pub fn add(&mut self, call: &Call, whose: &Whose, parts: &[(Cause, Option<Blame>, u64)]) {
        let hour = self.hour_of(call.start_ns);
        let rows = &mut self.hours.entry(hour).or_default().rows;
        let took_ns = signed(call.duration_ns.saturating_add(call.after_exit_ns));
        let most = parts.iter().max_by_key(|(.., ns)| *ns);
        for (cause, blame, ns) in parts {
            let sums = rows.entry((whose.clone(), call.op, *cause, blame.clone())).or_default();
            sums.stall_ns = sums.stall_ns.saturating_add(signed(*ns));
        }
        if let Some((cause, blame, _)) = most {
            let sums = rows.entry((whose.clone(), call.op, *cause, blame.clone())).or_default();
            sums.calls = sums.calls.saturating_add(1);
            sums.worst_ns = sums.worst_ns.max(took_ns);
            for (count, over_ns) in sums.over.iter_mut().zip(CALLS_OVER_NS) {
                *count += i64::from(took_ns >= over_ns);
            }
        }
    }

    /// The rows: for each hour first the row of the hour itself, then the causes by descending time.
    #[must_use]
    pub fn finish(self) -> Vec<SummaryRow> {
        let mut all = Vec::new();
        for (hour_start, hour) in &self.hours {
            let common = SummaryRow { hour_start: *hour_start, ..self.common.clone() };
            let seen = self.seen.then_some(0);
            let observed_ms = if self.seen { signed(hour.observed_ns / 1_000_000) } else { 0 };
            all.push(SummaryRow { calls: seen, stall_ns: seen, observed_ms: Some(observed_ms), ..common.clone() });
            let rows = fold(hour.rows.clone());
            all.extend(rows.into_iter().map(|(key, sums)| filled(&common, key, &sums)));
        }
        all
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Keeps the largest rows, and merges the others by operation and cause.
fn fold(rows: BTreeMap<Key, Sums>) -> Vec<(Key, Sums)> {
    let mut all: Vec<(Key, Sums)> = rows.into_iter().collect();
    // The sort is stable and the map was ordered: the same recording gives the same rows.
    all.sort_short_by_key(|(_, sums)| std::cmp::Reverse(sums.stall_ns));
    if all.len() <= ROWS_MAX {
        return all;
    }
    let mut small: BTreeMap<Key, Sums> = BTreeMap::new();
    for ((_, op, cause, _), sums) in all.drain(ROWS_MAX..) {
        small.entry((Whose::default(), op, cause, None)).or_default().absorb(&sums);
    }
    all.extend(small);
    all
}

fn filled(common: &SummaryRow, (whose, op, cause, blame): Key, sums: &Sums) -> SummaryRow {
    let mut over = CALLS_OVER_NS.iter().zip(sums.over);
    // Calls below the threshold were not recorded one by one: their number is unknown, not 0.
    let mut next = || over.next().and_then(|(over_ns, count)| (*over_ns >= common.threshold_ns).then_some(count));
    let named = |name: &'static str| (!name.is_empty()).then(|| name.to_owned());
    SummaryRow {
        device: whose.device,
        cgroup: whose.cgroup,
        service: whose.service,
        program: whose.program,
        operation: Some(op.name().to_owned()),
        cause: Some(cause.name().to_owned()),
        aggressor_kind: blame.as_ref().and_then(|blame| named(blame.kind)),
        aggressor_means: blame.as_ref().and_then(|blame| named(blame.means)),
        aggressor: blame.as_ref().and_then(|blame| blame.program.clone()),
        aggressor_cgroup: blame.and_then(|blame| blame.cgroup),
        calls: Some(sums.calls),
        stall_ns: Some(sums.stall_ns),
        worst_ns: (sums.calls > 0).then_some(sums.worst_ns),
        calls_over_1ms: next(),
        calls_over_3ms: next(),
        calls_over_10ms: next(),
        calls_over_30ms: next(),
        calls_over_100ms: next(),
        calls_over_300ms: next(),
        calls_over_1s: next(),
        calls_over_10s: next(),
        ..common.clone()
    }
}

/// `16c-64g-2n-kvm`. MemTotal differs between equal machines, because the kernel reserves some memory: it is rounded
/// to the nearest of 1, 1.25, 1.5, 1.75 times a power of two.
fn shape(machine: &Machine) -> String {
    let cpus = machine.cpus.map_or_else(|| "?".to_owned(), |cpus| cpus.to_string());
    let memory = machine.memory_bytes.map_or_else(|| "?".to_owned(), |bytes| rounded_gib(bytes).to_string());
    let nodes = machine.nodes.len().max(1);
    let place = machine.hypervisor.as_deref().unwrap_or("metal");
    format!("{cpus}c-{memory}g-{nodes}n-{place}")
}

fn rounded_gib(bytes: u64) -> f64 {
    let gib = bytes as f64 / f64::from(1 << 30);
    if gib <= 0.0 {
        return 0.0;
    }
    let power = gib.log2().floor().exp2();
    let quarters = (gib / power * 4.0).round().max(4.0);
    power * quarters / 4.0
}

fn missed(observed: &[Observed]) -> Option<String> {
    let names = observed.iter().filter(|one| !one.timed).map(|one| one.access.name());
    let names: std::collections::BTreeSet<&str> = names.collect();
    (!names.is_empty()).then(|| names.into_iter().collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::super::{SummaryRow, to_parquet};
    use super::{Blame, Summarizer, SummaryOrigin, Whose, rounded_gib};
    use crate::{AccessKind, Call, Cause, Header, Observed, OpKind, Segment};

    const S: u64 = 1_000_000_000;
    /// 2026-11-22 01:59:50 when the clock is at zero.
    const OFFSET_NS: i64 = 1_795_312_790 * 1_000_000_000;

    fn header(threshold_ns: u64) -> Header {
        let mut header = Header { threshold_ns, ..Header::default() };
        header.clock.wall_offset_ns = Some(OFFSET_NS);
        header.machine.hostname = Some("db-7".to_owned());
        header.setup.observe("vm.zone_reclaim_mode", "1");
        header
    }

    fn call(start_ns: u64, ms: u64) -> Call {
        let ns = ms * 1_000_000;
        Call::new(OpKind::Fsync, start_ns, ns, vec![Segment::bracketed(0, ns, Cause::PageWriteback)])
    }

    fn summed(rows: &[SummaryRow], of: impl Fn(&SummaryRow) -> Option<i64>) -> Option<i64> {
        rows.iter().filter_map(of).fold(None, |sum, value| Some(sum.unwrap_or(0) + value))
    }

    #[test]
    fn a_damaged_duration_makes_a_bounded_number_of_rows() {
        let mut summary = Summarizer::new(&header(5_000_000), SummaryOrigin::Recording, 4);
        summary.observe(0, 4_000_000_000 * S);
        let rows = summary.finish();
        assert!(rows.len() <= super::HOURS_MAX + 1, "{} rows", rows.len());
        assert_eq!(summed(&rows, |row| row.observed_ms), Some(4_000_000_000_000), "no time is lost");
    }

    #[test]
    fn calls_are_summed_by_the_hour_of_their_start() {
        let mut summary = Summarizer::new(&header(5_000_000), SummaryOrigin::Recording, 4);
        summary.observe(0, 30 * S);
        let backup = Blame {
            kind: "others",
            program: Some("tar".to_owned()),
            cgroup: Some("/backup".to_owned()),
            means: "queue",
        };
        for (at_ns, ms) in [(S, 40), (9 * S, 400), (11 * S, 7)] {
            let call = call(at_ns, ms);
            let half = call.duration_ns / 4;
            let parts = [(Cause::PageWriteback, Some(backup.clone()), 3 * half), (Cause::RunQueue, None, half)];
            summary.add(&call, &Whose { program: Some("postgres".to_owned()), ..Whose::default() }, &parts);
        }
        let rows = summary.finish();
        let hours: Vec<_> = rows.iter().filter(|row| row.cause.is_none()).collect();
        assert_eq!(hours.iter().map(|row| row.observed_ms).collect::<Vec<_>>(), [Some(10_000), Some(20_000)]);
        assert_eq!(hours.iter().map(|row| row.hour_start.map(|h| h.civil().3)).collect::<Vec<_>>(), [Some(1), Some(2)]);
        assert_eq!(summed(&rows, |row| row.calls), Some(3));
        assert_eq!(summed(&rows, |row| row.stall_ns), Some(447_000_000));
        let worst = rows.iter().max_by_key(|row| row.stall_ns).expect("rows");
        assert_eq!((worst.aggressor.as_deref(), worst.worst_ns), (Some("tar"), Some(400_000_000)));
        // Counts below the threshold are unknown; above it each call is in every class that it reaches.
        assert_eq!((worst.calls_over_1ms, worst.calls_over_3ms), (None, None));
        assert_eq!((worst.calls_over_10ms, worst.calls_over_100ms, worst.calls_over_1s), (Some(2), Some(1), Some(0)));
        assert_eq!((worst.vm_zone_reclaim_mode, worst.vm_swappiness), (Some(1), None));
    }

    #[test]
    fn a_quiet_hour_is_zero_and_an_unobserved_hour_is_null() {
        let mut header = header(0);
        let mut quiet = Summarizer::new(&header, SummaryOrigin::Watch, 0);
        quiet.observe(0, 5 * S);
        let quiet = quiet.finish();
        assert_eq!((quiet.len(), quiet[0].stall_ns, quiet[0].observed_ms), (1, Some(0), Some(5_000)));
        header.observed = vec![
            Observed::missed(AccessKind::FileCalls, "no BPF", ""),
            Observed::missed(AccessKind::IoUring, "no BPF", ""),
        ];
        let mut blind = Summarizer::new(&header, SummaryOrigin::Watch, 0);
        blind.observe(0, 5 * S);
        let blind = blind.finish();
        assert_eq!((blind[0].calls, blind[0].stall_ns, blind[0].observed_ms), (None, None, Some(0)));
        assert_eq!(blind[0].not_observed.as_deref(), Some("file-calls,io-uring"));
    }

    #[test]
    fn merging_small_rows_keeps_the_sums() {
        let mut summary = Summarizer::new(&header(0), SummaryOrigin::Watch, 0);
        for number in 0..500_u64 {
            let whose = Whose { cgroup: Some(format!("/pod-{number}")), ..Whose::default() };
            let call = call(S, number + 1);
            summary.add(&call, &whose, &[(Cause::PageWriteback, None, call.duration_ns)]);
        }
        let rows = summary.finish();
        assert!(rows.len() <= 66, "{}", rows.len());
        assert_eq!(summed(&rows, |row| row.calls), Some(500));
        assert_eq!(summed(&rows, |row| row.stall_ns), Some(500 * 501 / 2 * 1_000_000));
        assert_eq!(rows[1].cgroup.as_deref(), Some("/pod-499"));
    }

    #[test]
    fn a_summary_file_round_trips() {
        let mut summary = Summarizer::new(&header(1_000_000), SummaryOrigin::Capture, 77);
        summary.observe(0, S);
        let call = call(S / 2, 12);
        summary.add(&call, &Whose::default(), &[(Cause::PageWriteback, None, call.duration_ns)]);
        let rows = summary.finish();
        let bytes = bytes::Bytes::from(to_parquet(&rows).expect("encoded"));
        let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(bytes).expect("Parquet");
        let kept = reader.metadata().file_metadata().key_value_metadata().expect("metadata").clone();
        assert!(kept.iter().any(|pair| pair.key == super::super::VERSION_KEY && pair.value.as_deref() == Some("1")));
        let batches = reader.build().expect("a reader").collect::<Result<Vec<_>, _>>().expect("rows");
        assert_eq!(batches.iter().flat_map(SummaryRow::decode).collect::<Vec<_>>(), rows);
    }

    #[test]
    fn equal_machines_have_the_same_shape() {
        let gib = |gib: f64| rounded_gib((gib * f64::from(1 << 30)) as u64);
        assert_eq!((gib(62.7), gib(63.9), gib(64.0)), (64.0, 64.0, 64.0));
        assert_eq!((gib(31.2), gib(94.3), gib(7.75), gib(0.47)), (32.0, 96.0, 8.0, 0.5));
    }
}
