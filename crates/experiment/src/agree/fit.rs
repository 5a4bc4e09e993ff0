//! Turns the machine of a recording into assignments to a scenario, so that the model runs on the same machine. It fits
//! nothing that is compared.

use super::blocks::kernel_blocks;
use super::growth::Growth;
use super::unsaid::Unsaid;
use flatwater_recording::schema::{Column, meminfo, nodes, zones};
use flatwater_recording::units::Nanos;
use flatwater_recording::{Entity, Gap, ICOUNT_TICK, Recording, Rows, Source, Speed, Table, lru_gen_runs};
use flatwater_workload::scenario::Scenario;

/// How often the model's CPU is slowed down at most, and how many times the reference's bytes the model may move.
const TRIES: usize = 5;
const MORE_WORK_MAX: f64 = 1.05;
/// sizeof(struct page) of the kernels that a guest boots (include/linux/mm_types.h, x86-64, 4.x to 6.x).
const STRUCT_PAGE_BYTES: u64 = 64;

/// Runs the model on the machine of the reference: with its memory, and with CPUs as fast as they were measured before
/// the scenario. For recordings without such a measurement it slows the CPUs down until the model moves no more bytes
/// than the reference in the same time. `perform` runs the model with the assignments and is called once per try.
/// Properties of the machine that the reference does not have are gaps of the returned recording: for them the model
/// used the scenario's values, or none.
pub fn as_fast_as<E>(
    real: &Recording,
    scenario: &Scenario,
    mut perform: impl FnMut(&[String]) -> Result<Recording, E>,
) -> Result<Recording, E> {
    let Machine { assignments: mut machine, mut gaps } = Machine::of(real, scenario);
    gaps.extend(pace_unknown(real));
    let with_gaps = |mut recording: Recording| {
        recording.gaps.extend(gaps.clone());
        recording
    };
    if let Some(speed) = real.header.speed {
        // The nodes of an emulated machine share the host's memory, so that a remote node is as fast as the own one.
        let speed = Speed { remote_percent: speed.remote_percent.or(Some(100)), ..speed.while_it_ran() };
        machine.push(format!("machine.speed={speed}"));
        return perform(&machine).map(with_gaps);
    }
    let mut percent = f64::from(scenario.machine.cpu_speed_percent.unwrap_or(100));
    let mut tries = 0;
    loop {
        let recording = perform(&machine)?;
        let excess = bytes_moved(&recording) / bytes_moved(real).max(1.0);
        tries += 1;
        if real.header.source != Source::Vm || excess <= MORE_WORK_MAX || percent <= 1.0 || tries == TRIES {
            return Ok(with_gaps(recording));
        }
        percent = (percent / excess).max(1.0).round();
        machine.retain(|assignment| !assignment.starts_with(CPU_SPEED));
        machine.push(format!("{CPU_SPEED}={percent}"));
    }
}

const CPU_SPEED: &str = "machine.cpu_speed_percent";

/// A gap for a guest whose speed was not measured while the scenario ran: the model takes the speed before the
/// scenario.
fn pace_unknown(real: &Recording) -> Option<Gap> {
    let speed = real.header.speed.filter(|_| real.header.source == Source::Vm)?;
    let unknown = speed.pace_ns.is_none() || speed.run_pace_ns.is_none();
    let why = "the reference gives the machine's speed before the scenario, but not while it ran";
    let again = "record the guest again with this version, for longer than a quarter of a second";
    unknown.then(|| Gap::new("machine.speed while the scenario ran", why, again))
}

fn bytes_moved(recording: &Recording) -> f64 {
    recording.latency.iter().map(|bucket| bucket.bytes as f64).sum()
}

/// The guest's machine as assignments to the model's, and gaps for what the reference does not say.
#[derive(Default)]
struct Machine {
    assignments: Vec<String>,
    gaps: Vec<Gap>,
}

impl Machine {
    /// Memory that the guest's kernel and initramfs use on each node, and the reserve that the kernel chose: the place
    /// of an initramfs differs from boot to boot. Empty if the reference is not from a guest.
    fn of(reference: &Recording, scenario: &Scenario) -> Machine {
        if reference.header.source != Source::Vm {
            return Machine::default();
        }
        let mut machine = Machine::default();
        let (growth, why_not) = match Growth::of(reference, scenario) {
            Ok(growth) => (growth, None),
            Err(why) => (Growth::default(), Some(why)),
        };
        machine.tell(HELD, held(reference, scenario, &growth));
        machine.tell(BUFFERS, buffers(reference, scenario));
        machine.tell(MAPPED_UNLISTED, mapped_unlisted(reference, scenario));
        if let Some(why) = why_not {
            machine.gaps.push(Gap::new(GROWS, why.to_string(), RECORD_AGAIN));
        }
        machine.tell(ZONE_MIN, zone_min(reference, scenario));
        let own = (reference.header.own_cost.cpu_share * 100.0).round();
        let told = kernel_blocks(reference).into_iter().chain(growth.assignment()).chain(cpu_turn(reference));
        machine.assignments.extend(told);
        machine.assignments.extend((own >= 1.0).then(|| format!("machine.own_cpu_percent={own}")));
        machine.assignments.extend(chosen_by_the_kernel(reference, scenario));
        machine
    }

    fn tell(&mut self, what: &str, found: Result<Vec<String>, Unsaid>) {
        match found {
            Ok(assignments) => self.assignments.extend(assignments),
            Err(why) => self.gaps.push(Gap::new(what, why.to_string(), RECORD_AGAIN)),
        }
    }
}

const HELD: &str = "machine.reserved and machine.resident";
/// Memory that grew before the measured part counts as resident.
const GROWS: &str = "machine.grows, and its part of machine.resident";
const BUFFERS: &str = "machine.buffers";
const MAPPED_UNLISTED: &str = "machine.mapped_unlisted";
const ZONE_MIN: &str = "machine.zone_min";
const RECORD_AGAIN: &str =
    "record the guest again with this version; until then the model uses its own machine's value";

/// The first value of this column in a node's samples.
fn at_first(node: usize, rows: Rows<'_>, column: Column) -> Result<u64, Unsaid> {
    let first = rows.first(column).and_then(|value| u64::try_from(value).ok());
    first.ok_or(Unsaid::Column { column: column.name, node })
}

/// The rows of the scenario's nodes, in order, each with the node's bytes.
fn nodes_of<'a>(reference: &'a Recording, scenario: &Scenario) -> Result<Vec<(u64, Rows<'a>)>, Unsaid> {
    let rows: Vec<Rows<'a>> =
        reference.table(Table::Nodes).into_iter().flat_map(|table| table.by_entity()).map(|(_, rows)| rows).collect();
    let sizes = &scenario.machine.node_bytes;
    if rows.len() < sizes.len() {
        return Err(Unsaid::Nodes { has: rows.len(), wants: sizes.len() });
    }
    Ok(sizes.iter().copied().zip(rows).collect())
}

/// `key=SIZE,SIZE`; absent if the scenario does not list nodes.
fn by_node(key: &str, sizes: &[String]) -> Option<String> {
    (!sizes.is_empty()).then(|| format!("{key}={}", sizes.join(",")))
}

/// What the kernel reserves on each node for good, and what is in use before the set-up. The model computes the rest.
fn held(reference: &Recording, scenario: &Scenario, growth: &Growth) -> Result<Vec<String>, Unsaid> {
    let (mut reserved, mut resident) = (Vec::new(), Vec::new());
    // `machine.buffers` passes these pages, and they are reclaimable.
    let buffers = buffers_bytes(reference, scenario).unwrap_or_default();
    for (node, (bytes, rows)) in nodes_of(reference, scenario)?.into_iter().enumerate() {
        let total = at_first(node, rows, nodes::MEM_TOTAL_BYTES)?;
        let free = at_first(node, rows, nodes::MEM_FREE_BYTES)?;
        // The model subtracts the struct pages itself.
        let struct_pages = bytes / reference.header.machine.page_size_bytes() * STRUCT_PAGE_BYTES;
        reserved.push(bytes.saturating_sub(total + struct_pages).to_string());
        let taken = growth.before.get(node).copied().unwrap_or(0);
        let buffers = buffers.get(node).copied().unwrap_or(0);
        resident.push((total.saturating_sub(free) + taken).saturating_sub(buffers).to_string());
    }
    let given = [("machine.reserved", reserved), ("machine.resident", resident)];
    Ok(given.into_iter().filter_map(|(key, of_nodes)| by_node(key, &of_nodes)).collect())
}

/// File pages on a node's LRU lists, bytes.
fn listed(node: usize, rows: Rows<'_>) -> Result<u64, Unsaid> {
    Ok(at_first(node, rows, nodes::ACTIVE_FILE_BYTES)? + at_first(node, rows, nodes::INACTIVE_FILE_BYTES)?)
}

/// Mapped file pages beyond those on LRU lists: programs of an initramfs. zone_reclaim_mode takes the file pages on
/// lists less the mapped ones for reclaimable.
fn mapped_unlisted(reference: &Recording, scenario: &Scenario) -> Result<Vec<String>, Unsaid> {
    let mut unlisted = Vec::new();
    for (node, (_, rows)) in nodes_of(reference, scenario)?.into_iter().enumerate() {
        let mapped = at_first(node, rows, nodes::MAPPED_BYTES)?;
        unlisted.push(mapped.saturating_sub(listed(node, rows)?).to_string());
    }
    Ok(by_node(MAPPED_UNLISTED, &unlisted).into_iter().collect())
}

/// The pages of the block device's own page cache by node. No table has them by node, so they are divided in proportion
/// to the file pages on the nodes' lists, which hold little else (a few pages of an initramfs).
fn buffers(reference: &Recording, scenario: &Scenario) -> Result<Vec<String>, Unsaid> {
    let shares: Vec<String> = buffers_bytes(reference, scenario)?.iter().map(u64::to_string).collect();
    Ok(by_node(BUFFERS, &shares).into_iter().collect())
}

fn buffers_bytes(reference: &Recording, scenario: &Scenario) -> Result<Vec<u64>, Unsaid> {
    let unsaid = || Unsaid::Samples { what: "Buffers" };
    let rows = reference.table(Table::Meminfo).and_then(|table| table.rows_of(&Entity::default()));
    let first = rows.and_then(|rows| rows.first(meminfo::BUFFERS_BYTES));
    let all = first.and_then(|bytes| u64::try_from(bytes).ok()).ok_or_else(unsaid)?;
    let nodes = nodes_of(reference, scenario)?.into_iter().enumerate();
    let by_lists = nodes.map(|(node, (_, rows))| listed(node, rows)).collect::<Result<Vec<u64>, Unsaid>>()?;
    let total = by_lists.iter().sum::<u64>().max(1);
    let page = reference.header.machine.page_size_bytes();
    Ok(by_lists.iter().map(|own| all / page * own / total * page).collect())
}

/// Each zone's share of min_free_kbytes, which the kernel divides before it frees the initramfs (mm/page_alloc.c:
/// init_per_zone_wmark_min), so that the node with the initramfs gets a lower watermark than its memory calls for.
/// Absent if the scenario sets min_free_kbytes, since the kernel then divides it anew.
fn zone_min(reference: &Recording, scenario: &Scenario) -> Result<Vec<String>, Unsaid> {
    if scenario.setup.get(MIN_FREE).is_some() {
        return Ok(Vec::new());
    }
    let table = reference.table(Table::Zones).ok_or(Unsaid::Samples { what: "zones" })?;
    let page = reference.header.machine.page_size_bytes();
    let mut nodes = Vec::new();
    for node in &reference.header.machine.nodes {
        let mut own = Vec::new();
        for (entity, rows) in table.by_entity().filter(|(entity, _)| entity.node == Some(node.node)) {
            let min = rows.first(zones::MIN).and_then(|min| u64::try_from(min).ok());
            let unsaid = || Unsaid::Min { zone: entity.name.clone(), node: node.node };
            let min = min.ok_or_else(unsaid)?;
            own.push((entity.name.as_str(), min));
        }
        // DMA, DMA32, Normal: the kernel's order.
        own.sort_unstable();
        let sizes: Vec<String> = own.into_iter().map(|(_, min)| (min * page).to_string()).collect();
        if sizes.is_empty() {
            return Err(Unsaid::Zone { node: node.node });
        }
        nodes.push(sizes.join(","));
    }
    Ok((!nodes.is_empty()).then(|| format!("{ZONE_MIN}={}", nodes.join(";"))).into_iter().collect())
}

/// Period of the tick on Debian's kernels (250 Hz). QEMU executes one CPU of a guest until an interrupt from outside is
/// raised for any of them (accel/tcg/tcg-accel-ops-rr.c: rr_kick_vcpu_thread, 7.2; its own timer, TCG_KICK_PERIOD, is
/// 100 ms). All CPUs have the tick at the same instants (kernel/time/tick-sched.c: tick_setup_sched_timer, skew_tick=0,
/// 6.1), so a turn lasts one tick.
const TICK: Nanos = Nanos(4_000_000);
/// How long an emulated CPU executes before the next one does. One thread executes them in turn, so that kswapd may
/// stand still while a writer fills memory.
fn cpu_turn(reference: &Recording) -> Option<String> {
    let header = &reference.header;
    let cpus = u64::from(header.machine.cpus.unwrap_or(1));
    let emulated = header.machine.hypervisor.as_deref() == Some("qemu-tcg") && cpus > 1;
    // With -icount, each CPU gets its part of the time to the next timer (accel/tcg/tcg-accel-ops-icount.c:
    // icount_percpu_budget).
    let turn = if header.icount.is_some() { ICOUNT_TICK.0 / cpus } else { TICK.0 };
    emulated.then(|| format!("machine.cpu_turn={turn}ns"))
}

const MIN_FREE: &str = "vm.min_free_kbytes";
const LRU_GEN: &str = "lru_gen.enabled";

/// Settings of the guest that come from how its kernel was built or booted, unless the scenario sets them.
fn chosen_by_the_kernel(reference: &Recording, scenario: &Scenario) -> Vec<String> {
    let found = |key: &str| reference.header.setup.get(key).filter(|_| scenario.setup.get(key).is_none());
    // The kernel computes it before it frees the initramfs (mm/page_alloc.c: init_per_zone_wmark_min), so it is lower
    // than the model would compute from all of memory.
    let reserve = found(MIN_FREE).map(|value| format!("{MIN_FREE}={value}"));
    // Chosen by CONFIG_LRU_GEN_ENABLED. Off is the default of every model, including those of kernels without MGLRU.
    let generations = found(LRU_GEN).filter(|value| lru_gen_runs(value) != Some(false));
    let of_the_queue = OF_THE_QUEUE.into_iter().filter_map(|key| Some(format!("{key}={}", found(key)?)));
    let generations = generations.map(|value| format!("{LRU_GEN}={value}"));
    reserve.into_iter().chain(generations).chain(of_the_queue).collect()
}

/// Queue settings that depend on the emulated device and its driver: nvme has no scheduler and 1023 tags.
const OF_THE_QUEUE: [&str; 5] =
    ["queue.scheduler", "queue.nr_requests", "queue.max_sectors_kb", "queue.read_ahead_kb", "queue.wbt_lat_usec"];

#[cfg(test)]
mod tests {
    use super::{
        Machine, Unsaid, as_fast_as, buffers, chosen_by_the_kernel, cpu_turn, mapped_unlisted, pace_unknown, zone_min,
    };
    use flatwater_explain::testing::Made;
    use flatwater_recording::schema::zones;
    use flatwater_recording::{Entity, NodeShape, OpKind, Recording, Source, Speed, Table};
    use flatwater_workload::scenario::Scenario;

    fn moved(bytes: u64) -> Recording {
        let made = Made::new().bucket("", OpKind::Write, &[1_000]);
        made.edit(|recording| {
            recording.latency[0].bytes = bytes;
            recording.header.source = Source::Vm;
        })
        .done()
    }

    #[test]
    fn the_models_cpus_are_slowed_until_it_moves_no_more_than_the_guest() {
        let scenario = Scenario::load("journal").expect("built in");
        let mut given: Vec<Vec<String>> = Vec::new();
        let found = as_fast_as(&moved(1_000), &scenario, |assignments| {
            given.push(assignments.to_vec());
            Ok::<_, std::convert::Infallible>(moved(if given.len() == 1 { 2_000 } else { 1_010 }))
        });
        let Ok(found) = found;
        assert_eq!(found.latency[0].bytes, 1_010);
        assert_eq!(given, [vec![], vec!["machine.cpu_speed_percent=50".to_owned()]]);
    }

    fn on_node(made: Made, node: u32, columns: &[(&str, i64)]) -> Made {
        let columns: Vec<(&str, [i64; 1])> = columns.iter().map(|(name, bytes)| (*name, [*bytes])).collect();
        let columns: Vec<(&str, &[i64])> = columns.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
        made.gauges(Table::Nodes, &Entity::on_node(node, ""), &columns)
    }

    /// A guest with two nodes, each with these columns.
    fn guest(nodes: [&[(&str, i64)]; 2]) -> (Recording, Scenario) {
        let made = nodes.iter().zip(0..).fold(Made::new(), |made, (columns, node)| on_node(made, node, columns));
        let real = made.edit(|recording| recording.header.source = Source::Vm).done();
        let mut scenario = Scenario::load("journal").expect("built in");
        scenario.machine.node_bytes = vec![128 << 20, 128 << 20];
        (real, scenario)
    }

    #[test]
    fn mapped_unlisted_needs_the_columns_of_every_node() {
        let all = [("Mapped_bytes", 9 << 20), ("Active(file)_bytes", 2 << 20), ("Inactive(file)_bytes", 3 << 20)];
        let few = [("Mapped_bytes", 1 << 20), ("Active(file)_bytes", 2 << 20), ("Inactive(file)_bytes", 3 << 20)];
        let (real, scenario) = guest([&all, &few]);
        assert_eq!(mapped_unlisted(&real, &scenario), Ok(vec!["machine.mapped_unlisted=4194304,0".to_owned()]));
        let (real, scenario) = guest([&all, &few[1..]]);
        let machine = Machine::of(&real, &scenario);
        assert!(machine.assignments.iter().all(|told| !told.contains("unlisted")), "{:?}", machine.assignments);
        let gap = machine.gaps.iter().find(|gap| gap.what == "machine.mapped_unlisted").expect("a gap");
        assert_eq!(gap.why, "the reference has no Mapped_bytes of node 1");
    }

    #[test]
    fn buffers_are_divided_among_nodes_like_their_file_pages() {
        let page = 4096;
        let of = |active: i64, inactive: i64| {
            [("Active(file)_bytes", active * page), ("Inactive(file)_bytes", inactive * page)]
        };
        let (real, scenario) = guest([&of(9, 3), &of(18, 6)]);
        assert_eq!(buffers(&real, &scenario), Err(Unsaid::Samples { what: "Buffers" }));
        let made = on_node(on_node(Made::new(), 0, &of(9, 3)), 1, &of(18, 6));
        let real = made.gauges(Table::Meminfo, &Entity::default(), &[("Buffers_bytes", &[26 * page])]).done();
        let told = format!("machine.buffers={},{}", 8 * page, 17 * page);
        assert_eq!(buffers(&real, &scenario), Ok(vec![told]));
    }

    #[test]
    fn zone_min_lists_nodes_with_zones_in_the_kernels_order() {
        let low = |zone: &str, node, min: i64, made: Made| {
            made.gauges(Table::Zones, &Entity::on_node(node, zone), &[("min", &[min]), ("free", &[900])])
        };
        let made = low("DMA32", 1, 400, low(zones::DMA, 0, 9, low("DMA32", 0, 300, Made::new())));
        let mut real = made.done();
        let node = |node| NodeShape { node, ..NodeShape::default() };
        real.header.machine.nodes = vec![node(0), node(1)];
        let mut scenario = Scenario::load("journal").expect("built in");
        let page = 4096;
        let told = format!("machine.zone_min={},{};{}", 9 * page, 300 * page, 400 * page);
        assert_eq!(zone_min(&real, &scenario), Ok(vec![told]));
        real.header.machine.nodes.push(node(2));
        assert_eq!(zone_min(&real, &scenario), Err(Unsaid::Zone { node: 2 }));
        scenario.setup.observe("vm.min_free_kbytes", "2048");
        assert_eq!(zone_min(&real, &scenario), Ok(Vec::new()), "the kernel computes them anew");
    }

    #[test]
    fn only_emulated_cpus_run_in_turns() {
        let mut real = moved(1_000);
        real.header.machine.cpus = Some(2);
        assert_eq!(cpu_turn(&real), None);
        real.header.machine.hypervisor = Some("qemu-tcg".to_owned());
        assert_eq!(cpu_turn(&real).as_deref(), Some("machine.cpu_turn=4000000ns"));
        real.header.icount = Some(2);
        assert_eq!(cpu_turn(&real).as_deref(), Some("machine.cpu_turn=125000ns"));
        real.header.machine.cpus = Some(1);
        assert_eq!(cpu_turn(&real), None);
    }

    #[test]
    fn lru_gen_is_taken_from_the_guest_unless_the_scenario_sets_it() {
        let given = |value: &str, own: &str| {
            let mut real = moved(1);
            real.header.setup.observe("vm.min_free_kbytes", "2048");
            real.header.setup.observe("lru_gen.enabled", value);
            let mut scenario = Scenario::load("journal").expect("built in");
            if !own.is_empty() {
                scenario.setup.observe("lru_gen.enabled", own);
            }
            chosen_by_the_kernel(&real, &scenario)
        };
        assert_eq!(given("0x0007", ""), ["vm.min_free_kbytes=2048", "lru_gen.enabled=0x0007"]);
        assert_eq!(given("0x0000", ""), ["vm.min_free_kbytes=2048"]);
        assert_eq!(given("0x0007", "0"), ["vm.min_free_kbytes=2048"]);
    }

    #[test]
    fn queue_settings_are_taken_from_the_guest_unless_the_scenario_sets_them() {
        let mut real = moved(1_000);
        for (key, value) in [("queue.scheduler", "none"), ("queue.nr_requests", "1023"), ("queue.wbt_lat_usec", "2000")]
        {
            real.header.setup.observe(key, value);
        }
        let mut scenario = Scenario::load("journal").expect("built in");
        scenario.setup.observe("queue.nr_requests", "64");
        assert_eq!(chosen_by_the_kernel(&real, &scenario), ["queue.scheduler=none", "queue.wbt_lat_usec=2000"]);
    }

    #[test]
    fn a_guest_whose_speed_was_not_measured_during_the_run_has_a_gap() {
        let speed = |run_pace_ns| Some(Speed { pace_ns: Some(80_000), run_pace_ns, ..Speed::default() });
        let gap = |source, speed| {
            pace_unknown(
                &Made::new()
                    .edit(|recording| (recording.header.source, recording.header.speed) = (source, speed))
                    .done(),
            )
        };
        assert!(gap(Source::Vm, speed(Some(90_000))).is_none() && gap(Source::Host, speed(None)).is_none());
        let gap = gap(Source::Vm, speed(None)).expect("a gap");
        assert!(gap.what.contains("while the scenario ran") && gap.remedy.contains("again"), "{gap:?}");
    }

    #[test]
    fn a_measured_speed_is_not_fitted() {
        let scenario = Scenario::load("journal").expect("built in");
        let mut real = moved(1_000);
        real.header.speed = Some(flatwater_recording::Speed::default());
        let mut runs = 0;
        let Ok(_) = as_fast_as(&real, &scenario, |assignments| {
            runs += 1;
            assert!(assignments[0].starts_with("machine.speed="), "{assignments:?}");
            Ok::<_, std::convert::Infallible>(moved(9_000))
        });
        assert_eq!(runs, 1);
    }
}
