//! Memory in a cgroup that the recorder holds, and not the workloads.

use flatwater_recording::schema::cgroup;
use flatwater_recording::units::Nanos;
use flatwater_recording::{Recording, Table};
use flatwater_workload::scenario::{Growth, Scenario, WorkloadSpec};

/// Smaller amounts of the workloads' own memory are stacks and buffers, most of which they never touch.
const OWN_MEMORY_MIN_BYTES: u64 = 16 << 20;

/// Memory in a host's memory cgroup that is not the workloads', for `machine.cgroup_grows`: the recorder performs the
/// workloads itself, so its memory counts against their limit. `None` if the recording has a cgroup but not its
/// processes' memory; empty without a cgroup.
pub fn in_cgroup(reference: &Recording, scenario: &Scenario) -> Option<Vec<Growth>> {
    let Some((_, rows)) = reference.table(Table::Cgroup).and_then(|table| table.by_entity().next()) else {
        return Some(Vec::new());
    };
    let own = Some(own_memory_bytes(scenario)).filter(|bytes| *bytes > OWN_MEMORY_MIN_BYTES).unwrap_or(0);
    let column = [cgroup::RSS, cgroup::ANON].into_iter().find(|column| rows.first(*column).is_some())?;
    let start_ns = reference.header.clock.start_ns;
    let beyond = |(at_ns, bytes): (u64, i64)| (at_ns, u64::try_from(bytes).unwrap_or(0).saturating_sub(own));
    let all: Vec<(u64, u64)> = rows.values(column).map(beyond).collect();
    let (before, later) = all.split_at(all.partition_point(|(at_ns, _)| *at_ns <= start_ns));
    let first = (start_ns, before.last().map_or(0, |(_, bytes)| *bytes));
    let mut steps: Vec<(u64, u64)> = std::iter::once(first).chain(later.iter().copied()).collect();
    steps.dedup_by_key(|(_, bytes)| *bytes);
    let step = |(at_ns, bytes): (u64, u64)| Growth { at: Nanos(at_ns - start_ns), node_bytes: vec![bytes] };
    let holds = steps.iter().any(|(_, bytes)| *bytes > 0);
    Some(if holds { steps.into_iter().map(step).collect() } else { Vec::new() })
}

fn own_memory_bytes(scenario: &Scenario) -> u64 {
    let build = |spec: &WorkloadSpec| (spec.entry.build)(&spec.params, scenario.seed).ok();
    scenario.workloads.iter().filter_map(build).map(|work| work.footprint().memory_bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::in_cgroup;
    use flatwater_explain::testing::RecordingBuilder;
    use flatwater_recording::{Entity, Recording, Table};
    use flatwater_workload::scenario::Scenario;

    /// The cgroup's processes hold 1 MiB a second before the measured part, 3 at its start and a second later, then 2.
    #[test]
    fn the_recorders_memory_in_the_cgroup_is_passed_to_the_model() {
        let held = [1, 3, 3, 2].map(|mib| mib << 20);
        let builder = RecordingBuilder::new().gauges(Table::Cgroup, &Entity::named("/x"), &[("rss", &held[..])]).edit(
            |recording| {
                let rows = recording.series[0].by_entity().next().expect("rows").1;
                recording.header.clock.start_ns = rows.values("rss").nth(1).expect("a sample").0;
            },
        );
        let real = builder.done();
        let rows = real.table(Table::Cgroup).expect("rows").by_entity().next().expect("a cgroup").1;
        let at_ns = rows.values("rss").nth(3).expect("a sample").0 - real.header.clock.start_ns;
        let journal = Scenario::load("journal").expect("built in");
        let steps = |scenario: &Scenario| {
            let found = in_cgroup(&real, scenario).expect("the recording has cgroup samples");
            found.iter().map(|step| (step.at.0, step.bytes())).collect::<Vec<_>>()
        };
        assert_eq!(steps(&journal), [(0, 3_145_728), (at_ns, 2_097_152)]);
        assert_eq!(in_cgroup(&Recording::default(), &journal), Some(Vec::new()), "no cgroup");
        let usage =
            RecordingBuilder::new().gauges(Table::Cgroup, &Entity::named("/x"), &[("usage_bytes", &held[..])]).done();
        assert_eq!(in_cgroup(&usage, &journal), None, "no column for the processes' memory");
        let own = "name = 'x'\nsentence = 'X.'\nduration = '1s'\n[[workload]]\nuse = 'memory'\nsize = '64MiB'\n";
        assert_eq!(steps(&Scenario::parse("x", own).expect("parses")), [], "all memory is the program's");
    }
}
