//! Memory of a guest that was taken during the recording by something other than page cache and reclaimable slabs.

use super::unsaid::Unsaid;
use flatwater_recording::schema::{Column, cgroup, nodes};
use flatwater_recording::units::Nanos;
use flatwater_recording::{Recording, Rows, Table};
use flatwater_workload::scenario::{Growth as CgroupGrowth, Scenario, WorkloadSpec};

/// Memory of a node that is neither page cache nor a reclaimable slab.
const HELD: [Column; 5] = [
    nodes::ANON_PAGES_BYTES,
    nodes::SHMEM_BYTES,
    nodes::SUNRECLAIM_BYTES,
    nodes::KERNEL_STACK_BYTES,
    nodes::PAGE_TABLES_BYTES,
];
/// If the workloads' own memory is larger than this, growth is not passed on: the model performs the workloads, and so
/// their memory, itself.
const OWN_MEMORY_MAX_BYTES: u64 = 16 << 20;
/// Steps smaller than this are merged with the next one.
const STEP_BYTES: u64 = 128 << 10;

/// Growth of a guest's memory other than page cache and reclaimable slabs since the first sample: the recorder's rows
/// (in its memory and in a tmpfs), stacks, page tables. In a guest of 256 MiB it is 20 MiB at the end, which its page
/// cache then lacks.
#[derive(Default)]
pub struct Growth {
    /// Bytes of each node that were taken when the measured part began: the set-up already ran with less memory.
    pub before: Vec<u64>,
    /// Steps: ns since the start of the measured part, and bytes of each node beyond `before`.
    pub later: Vec<(u64, Vec<u64>)>,
}

impl Growth {
    /// Fails if the recording lacks one of the columns.
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

/// Memory in a host's memory cgroup that is not the workloads', for `machine.cgroup_grows`: the recorder performs the
/// workloads itself, so its memory counts against their limit. `None` if the recording has a cgroup but not its
/// processes' memory; empty without a cgroup.
pub fn in_cgroup(reference: &Recording, scenario: &Scenario) -> Option<Vec<CgroupGrowth>> {
    let Some((_, rows)) = reference.table(Table::Cgroup).and_then(|table| table.by_entity().next()) else {
        return Some(Vec::new());
    };
    // Smaller amounts are stacks and buffers, most of which the workloads never touch.
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

/// (ns, bytes of a node taken beyond the first sample).
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

    /// Three samples a second apart; anonymous and shared memory grow, the others do not. The measured part begins at
    /// the second sample.
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
    fn growth_is_counted_from_the_start_of_the_measured_part() {
        let growth = Growth::of(&grew(None), &Scenario::load("journal").expect("built in")).expect("all was read");
        assert_eq!(growth.before, [4 << 20], "held when the measured part begins");
        let [(at_ns, bytes)] = &growth.later[..] else { panic!("{:?}", growth.later) };
        assert!(*at_ns > 0 && *bytes == [3 << 20], "{at_ns} {bytes:?}");
        assert_eq!(growth.assignment(), Some(format!("machine.grows={at_ns}ns:3145728")));
    }

    /// The cgroup's processes hold 1 MiB a second before the measured part, 3 at its start and a second later, then 2.
    #[test]
    fn the_recorders_memory_in_the_cgroup_is_passed_to_the_model() {
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
        assert_eq!(in_cgroup(&usage, &journal), None, "no column for the processes' memory");
        let own = "name = 'x'\nsentence = 'X.'\nduration = '1s'\n[[workload]]\nuse = 'memory'\nsize = '64MiB'\n";
        assert_eq!(told(&Scenario::parse("x", own).expect("parses")), [], "all memory is the program's");
    }

    #[test]
    fn a_missing_column_is_an_error_not_zero_growth() {
        let scenario = Scenario::load("journal").expect("built in");
        for column in HELD {
            let why = Growth::of(&grew(Some(column.name)), &scenario).err();
            assert!(why.as_ref().is_some_and(|why| why.to_string().contains(column.name)), "{}: {why:?}", column.name);
        }
    }
}
