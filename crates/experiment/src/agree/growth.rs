//! What else than page cache and reclaimable slabs took a guest's memory while it was recorded.

use super::unsaid::Unsaid;
use flatwater_recording::schema::{Column, cgroup, nodes};
use flatwater_recording::units::Nanos;
use flatwater_recording::{Recording, Rows, Table};
use flatwater_workload::scenario::{Growth as CgroupGrowth, Scenario, WorkloadSpec};

/// What of a node's memory is neither page cache nor a reclaimable slab.
const HELD: [Column; 5] = [
    nodes::ANON_PAGES_BYTES,
    nodes::SHMEM_BYTES,
    nodes::SUNRECLAIM_BYTES,
    nodes::KERNEL_STACK_BYTES,
    nodes::PAGE_TABLES_BYTES,
];
/// A scenario whose workloads hold more memory of their own than this performs it in the model too.
const OWN_MEMORY_MAX_BYTES: u64 = 16 << 20;
/// Steps of less than this are left to the next one.
const STEP_BYTES: u64 = 128 << 10;

/// What else than page cache and reclaimable slabs the guest's memory was taken by after the first sample: its recorder's rows,
/// kept in memory and in a tmpfs, stacks, page tables. In a guest of 256 MiB they are 20 MiB at the end, which its page cache
/// is without.
#[derive(Default)]
pub struct Growth {
    /// Bytes of each node that were taken when the measured part began: the set-up was performed with less and less memory.
    pub before: Vec<u64>,
    /// The instant, and what was taken beyond that.
    pub later: Vec<(u64, Vec<u64>)>,
}

impl Growth {
    /// Or why it is not known: the recording lacks a part of what adds up to it.
    pub fn of(reference: &Recording, scenario: &Scenario) -> Result<Growth, Unsaid> {
        if own_memory_bytes(scenario) > OWN_MEMORY_MAX_BYTES {
            return Ok(Growth::default());
        }
        let table = reference.table(Table::Nodes).ok_or(Unsaid::Samples { what: "nodes" })?;
        let nodes: Vec<Vec<(u64, u64)>> = table.by_entity().map(|(_, rows)| taken(rows)).collect::<Result<_, _>>()?;
        let Some(first) = nodes.first() else { return Ok(Growth::default()) };
        if nodes.iter().any(|node| node.len() != first.len()) {
            return Err(Unsaid::Uneven);
        }
        let at = |row: usize| -> Vec<u64> { nodes.iter().map(|node| node[row].1).collect() };
        let start_ns = reference.header.clock.start_ns;
        let began = first.iter().rposition(|(at_ns, _)| *at_ns <= start_ns).unwrap_or(0);
        let before = if first.is_empty() { Vec::new() } else { at(began) };
        let (mut later, mut last) = (Vec::new(), vec![0; nodes.len()]);
        for (row, (at_ns, _)) in first.iter().enumerate().skip(began + 1) {
            let now: Vec<u64> = at(row).iter().zip(&before).map(|(now, before)| now.saturating_sub(*before)).collect();
            if now.iter().zip(&last).any(|(now, last)| now.abs_diff(*last) >= STEP_BYTES) {
                later.push((at_ns - start_ns, now.clone()));
                last = now;
            }
        }
        Ok(Growth { before, later })
    }

    /// As an assignment of `machine.grows`.
    pub fn assignment(&self) -> Option<String> {
        let sizes = |bytes: &[u64]| bytes.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        let steps: Vec<String> =
            self.later.iter().map(|(at_ns, bytes)| format!("{at_ns}ns:{}", sizes(bytes))).collect();
        (!steps.is_empty()).then(|| format!("machine.grows={}", steps.join(";")))
    }
}

/// What the processes of a host's memory cgroup held that is none of the workloads', for `machine.cgroup_grows`: the recorder
/// performs the workloads itself, and takes from their limit. Where workloads have memory of their own it is what goes beyond that.
/// None where the recording has a cgroup and does not say what its processes held; nothing without a cgroup.
pub fn in_cgroup(reference: &Recording, scenario: &Scenario) -> Option<Vec<CgroupGrowth>> {
    let Some((_, rows)) = reference.table(Table::Cgroup).and_then(|table| table.by_entity().next()) else {
        return Some(Vec::new());
    };
    // Smaller ones are stacks and buffers that are mostly never touched.
    let own = Some(own_memory_bytes(scenario)).filter(|bytes| *bytes > OWN_MEMORY_MAX_BYTES).unwrap_or(0);
    let column = [cgroup::RSS, cgroup::ANON].into_iter().find(|column| rows.first(*column).is_some())?;
    let start_ns = reference.header.clock.start_ns;
    let beyond = |(at_ns, bytes): (u64, i64)| (at_ns, u64::try_from(bytes).unwrap_or(0).saturating_sub(own));
    let all: Vec<(u64, u64)> = rows.values(column).map(beyond).collect();
    let (before, later) = all.split_at(all.partition_point(|(at_ns, _)| *at_ns <= start_ns));
    let first = (start_ns, before.last().map_or(0, |(_, bytes)| *bytes));
    let mut steps: Vec<(u64, u64)> = std::iter::once(first).chain(later.iter().copied()).collect();
    steps.dedup_by_key(|(_, bytes)| *bytes);
    let step = |(at_ns, bytes): (u64, u64)| CgroupGrowth { at: Nanos(at_ns - start_ns), node_bytes: vec![bytes] };
    let holds = steps.iter().any(|(_, bytes)| *bytes > 0);
    Some(if holds { steps.into_iter().map(step).collect() } else { Vec::new() })
}

fn own_memory_bytes(scenario: &Scenario) -> u64 {
    let build = |spec: &WorkloadSpec| (spec.entry.build)(&spec.params, scenario.seed).ok();
    scenario.workloads.iter().filter_map(build).map(|work| work.footprint().memory_bytes).sum()
}

/// What of a node was taken beyond the first sample's, by instant.
fn taken(rows: Rows<'_>) -> Result<Vec<(u64, u64)>, Unsaid> {
    let [first_of_all, others @ ..] = HELD;
    let mut sums: Vec<(u64, i64)> = rows.values(first_of_all).collect();
    for column in others {
        let values: Vec<(u64, i64)> = rows.values(column).collect();
        if values.len() != sums.len() {
            let (has, others) = (values.len(), sums.len());
            return Err(Unsaid::Partly { column: column.name, has, other: first_of_all.name, others });
        }
        sums.iter_mut().zip(values).for_each(|((_, sum), (_, bytes))| *sum += bytes);
    }
    let first = sums.first().map_or(0, |(_, sum)| *sum);
    Ok(sums.into_iter().map(|(at_ns, sum)| (at_ns, u64::try_from(sum - first).unwrap_or(0))).collect())
}

#[cfg(test)]
mod tests {
    use super::{Growth, HELD, in_cgroup};
    use flatwater_explain::testing::Made;
    use flatwater_recording::{Entity, Recording, Source, Table};
    use flatwater_workload::scenario::Scenario;

    /// Three samples a second apart of what grew, and of the rest, which did not; the measured part begins at the second.
    fn grew(left_out: Option<&str>) -> Recording {
        let mib = |values: [i64; 3]| values.map(|mib| mib << 20);
        let (anonymous, shared, flat) = (mib([10, 14, 15]), mib([30, 30, 32]), mib([1, 1, 1]));
        let values = |name: &str| match name {
            "AnonPages_bytes" => anonymous,
            "Shmem_bytes" => shared,
            _ => flat,
        };
        let all: Vec<(&str, [i64; 3])> = HELD.iter().map(|column| (column.name, values(column.name))).collect();
        let columns: Vec<(&str, &[i64])> =
            all.iter().filter(|(name, _)| Some(*name) != left_out).map(|(name, values)| (*name, &values[..])).collect();
        let made = Made::new().gauges(Table::Nodes, &Entity::on_node(0, ""), &columns).edit(|recording| {
            recording.header.source = Source::Vm;
            let rows = recording.series[0].by_entity().next().expect("rows").1;
            let second = rows.values(columns[0].0).nth(1).expect("a sample").0;
            recording.header.clock.start_ns = second;
        });
        made.done()
    }

    #[test]
    fn what_the_guests_other_memory_grew_by_the_model_is_told_from_the_measured_part_on() {
        let growth = Growth::of(&grew(None), &Scenario::load("journal").expect("built in")).expect("all was read");
        assert_eq!(growth.before, [4 << 20], "held when the measured part begins");
        let [(at_ns, bytes)] = &growth.later[..] else { panic!("{:?}", growth.later) };
        assert!(*at_ns > 0 && *bytes == [3 << 20], "{at_ns} {bytes:?}");
        assert_eq!(growth.assignment(), Some(format!("machine.grows={at_ns}ns:3145728")));
    }

    /// A second before the measured part the cgroup's processes held 1 MiB, at its begin 3; a second later still 3, then 2.
    #[test]
    fn what_a_hosts_recorder_took_from_the_workloads_limit_the_model_is_told() {
        let held = [1, 3, 3, 2].map(|mib| mib << 20);
        let made = Made::new().gauges(Table::Cgroup, &Entity::named("/x"), &[("rss", &held[..])]).edit(|recording| {
            let rows = recording.series[0].by_entity().next().expect("rows").1;
            recording.header.clock.start_ns = rows.values("rss").nth(1).expect("a sample").0;
        });
        let real = made.done();
        let rows = real.table(Table::Cgroup).expect("rows").by_entity().next().expect("a cgroup").1;
        let at_ns = rows.values("rss").nth(3).expect("a sample").0 - real.header.clock.start_ns;
        let journal = Scenario::load("journal").expect("built in");
        let told = |scenario: &Scenario| {
            let steps = in_cgroup(&real, scenario).expect("it says");
            steps.iter().map(|step| (step.at.0, step.bytes())).collect::<Vec<_>>()
        };
        assert_eq!(told(&journal), [(0, 3_145_728), (at_ns, 2_097_152)]);
        assert_eq!(in_cgroup(&grew(None), &journal), Some(Vec::new()), "no cgroup");
        let usage = Made::new().gauges(Table::Cgroup, &Entity::named("/x"), &[("usage_bytes", &held[..])]).done();
        assert_eq!(in_cgroup(&usage, &journal), None, "it does not say what of it processes held");
        let own = "name = 'x'\nsentence = 'X.'\nduration = '1s'\n[[workload]]\nuse = 'memory'\nsize = '64MiB'\n";
        assert_eq!(told(&Scenario::parse("x", own).expect("parses")), [], "all of it is the program's");
    }

    #[test]
    fn what_was_not_read_is_not_taken_for_what_did_not_grow() {
        let scenario = Scenario::load("journal").expect("built in");
        for column in HELD {
            let why = Growth::of(&grew(Some(column.name)), &scenario).err();
            assert!(why.as_ref().is_some_and(|why| why.to_string().contains(column.name)), "{}: {why:?}", column.name);
        }
    }
}
