//! The machine of a recording as assignments to a scenario, so that a model runs on what the real one had. Nothing that
//! is compared is fitted.

use flatwater_recording::schema::{Column, nodes, zones};
use flatwater_recording::{NodeShape, Recording, Rows, Source, Speed, Table, ZoneBlocks, lru_gen_runs};
use flatwater_workload::scenario::Scenario;

/// How often the model's CPU is made slower, and how much more than the reference it may do.
const TRIES: usize = 5;
const MORE_WORK_MAX: f64 = 1.05;
/// sizeof(struct page) of the kernels that a guest boots (include/linux/mm_types.h, x86-64, 4.x to 6.x).
const STRUCT_PAGE_BYTES: u64 = 64;

/// The model on the machine that the reference had: its memory, and its CPUs as they were measured before the scenario.
/// Recordings of before that was measured: CPUs so slow that the model moves no more bytes in the same time. `perform`
/// runs the model with these assignments, again each time.
pub fn as_fast_as<E>(
    real: &Recording,
    scenario: &Scenario,
    mut perform: impl FnMut(&[String]) -> Result<Recording, E>,
) -> Result<Recording, E> {
    let mut machine = machine_of(real, scenario);
    if let Some(speed) = real.header.speed {
        // An emulated machine's nodes share the host's memory.
        let speed = Speed { remote_percent: speed.remote_percent.or(Some(100)), ..speed };
        machine.push(format!("machine.speed={speed}"));
        return perform(&machine);
    }
    let mut percent = f64::from(scenario.machine.cpu_speed_percent.unwrap_or(100));
    let mut tries = 0;
    loop {
        let recording = perform(&machine)?;
        let excess = bytes_moved(&recording) / bytes_moved(real).max(1.0);
        tries += 1;
        if real.header.source != Source::Vm || excess <= MORE_WORK_MAX || percent <= 1.0 || tries == TRIES {
            return Ok(recording);
        }
        percent = (percent / excess).max(1.0).round();
        machine.retain(|assignment| !assignment.starts_with(CPU_SPEED));
        machine.push(format!("{CPU_SPEED}={percent}"));
    }
}

const CPU_SPEED: &str = "machine.cpu_speed_percent";

fn bytes_moved(recording: &Recording) -> f64 {
    recording.latency.iter().map(|bucket| bucket.bytes as f64).sum()
}

/// What the guest's kernel and initramfs hold of each node and the reserve that the kernel chose for itself, told to the
/// simulator as a part of its machine: where an initramfs lies differs from boot to boot. Empty for another
/// simulation.
fn machine_of(reference: &Recording, scenario: &Scenario) -> Vec<String> {
    let Some(table) = reference.table(Table::Nodes).filter(|_| reference.header.source == Source::Vm) else {
        return Vec::new();
    };
    let growth = Growth::of(reference, scenario);
    let (mut reserved, mut resident, mut unlisted) = (Vec::new(), Vec::new(), Vec::new());
    for (node, (bytes, (_, rows))) in scenario.machine.node_bytes.iter().zip(table.by_entity()).enumerate() {
        // Before its set-up: what that leaves in memory is for the model to find out.
        let at_first = |column| rows.values(column).next().map(|(_, value)| value);
        let (Some(total), Some(free)) = (at_first(nodes::MEM_TOTAL_BYTES), at_first(nodes::MEM_FREE_BYTES)) else {
            return Vec::new();
        };
        let (total, free) = (u64::try_from(total).unwrap_or(0), u64::try_from(free).unwrap_or(0));
        // The model takes the struct pages off by itself.
        let struct_pages = bytes / reference.header.machine.page_size_bytes() * STRUCT_PAGE_BYTES;
        reserved.push(bytes.saturating_sub(total + struct_pages).to_string());
        let taken = growth.before.get(node).copied().unwrap_or(0);
        resident.push((total.saturating_sub(free) + taken).to_string());
        // zone_reclaim_mode asks for page cache beyond what is mapped; programs of an initramfs are mapped but on no list.
        let sum = |columns: &[Column]| columns.iter().filter_map(|&column| at_first(column)).sum::<i64>();
        let listed = sum(&[nodes::ACTIVE_FILE_BYTES, nodes::INACTIVE_FILE_BYTES]);
        unlisted.push(u64::try_from(sum(&[nodes::MAPPED_BYTES]) - listed).unwrap_or(0).to_string());
    }
    let given = [("reserved", reserved), ("resident", resident), ("mapped_unlisted", unlisted)];
    let mut machine: Vec<String> = given.map(|(key, of_nodes)| format!("machine.{key}={}", of_nodes.join(","))).into();
    machine.extend(kernel_free(reference));
    machine.extend(growth.assignment());
    let own = (reference.header.own_cost.cpu_share * 100.0).round();
    if own >= 1.0 {
        machine.push(format!("machine.own_cpu_percent={own}"));
    }
    machine.extend(cpu_turn(reference));
    machine.extend(zone_min(reference, scenario));
    machine.extend(chosen_by_the_kernel(reference, scenario));
    machine
}

/// Which free pages boot left in the kernel's page blocks: from 6.10 on they decide whether a full node's next page is another's.
fn kernel_free(reference: &Recording) -> Option<String> {
    let header = &reference.header;
    let page = header.machine.page_size_bytes();
    let of_node = |node: &NodeShape| {
        // The DMA zone's are the model's own.
        let own = || header.zone_blocks.iter().filter(|zone| zone.node == node.node && zone.zone != "DMA");
        let sizes = |kind: fn(&ZoneBlocks) -> &Vec<u64>| {
            let pieces = || own().flat_map(|zone| kind(zone).iter().enumerate()).filter(|(_, pieces)| **pieces > 0);
            let free: u64 = pieces().map(|(order, pieces)| pieces << order).sum();
            let largest = pieces().map(|(order, _)| 1_u64 << order).max().unwrap_or(0);
            format!("{},{}", free * page, largest * page)
        };
        format!("{},{}", sizes(|zone| &zone.reclaimable), sizes(|zone| &zone.unmovable))
    };
    let bytes: Vec<String> = header.machine.nodes.iter().map(of_node).collect();
    (!header.zone_blocks.is_empty()).then(|| format!("machine.kernel_free={}", bytes.join(";")))
}

/// The zones' shares of min_free_kbytes, which the kernel deals out before the initramfs is given back (mm/page_alloc.c:
/// init_per_zone_wmark_min): the node that holds it has a lower watermark than its memory stands for. A scenario that sets the
/// reserve has them computed anew.
fn zone_min(reference: &Recording, scenario: &Scenario) -> Option<String> {
    let table = reference.table(Table::Zones).filter(|_| scenario.setup.get(MIN_FREE).is_none())?;
    let page = reference.header.machine.page_size_bytes();
    let of_node = |node: &NodeShape| -> Vec<String> {
        let own = table.by_entity().filter(|(entity, _)| entity.node == Some(node.node));
        let mut own: Vec<(&str, u64)> = own
            .filter_map(|(entity, rows)| {
                let min = rows.values(zones::MIN).next().and_then(|(_, min)| u64::try_from(min).ok())?;
                Some((entity.name.as_str(), min))
            })
            .collect();
        // DMA, DMA32, Normal: the kernel's order.
        own.sort_unstable();
        own.into_iter().map(|(_, min)| (min * page).to_string()).collect()
    };
    let nodes: Vec<String> = reference.header.machine.nodes.iter().map(|node| of_node(node).join(",")).collect();
    (!nodes.is_empty() && nodes.iter().all(|sizes| !sizes.is_empty()))
        .then(|| format!("machine.zone_min={}", nodes.join(";")))
}

/// QEMU executes one CPU of a guest until an interrupt is raised for any of them (accel/tcg/tcg-accel-ops-rr.c: rr_kick_vcpu_thread,
/// 10.0): the tick of each, 250 times a second on Debian's kernels.
const TICK_NS: u64 = 4_000_000;
/// Where it counts instructions a CPU has its part of the time to the next timer, which guests keep at 250 us
/// (accel/tcg/tcg-accel-ops-icount.c: icount_percpu_budget; crates/vm/src/icount.rs: keep_time).
const ICOUNT_TICK_NS: u64 = 250_000;

/// Emulated CPUs are executed in turn by one thread, so that kswapd may stand still while a writer fills memory.
fn cpu_turn(reference: &Recording) -> Option<String> {
    let header = &reference.header;
    let cpus = u64::from(header.machine.cpus.unwrap_or(1));
    let emulated = header.machine.hypervisor.as_deref() == Some("qemu-tcg") && cpus > 1;
    let tick_ns = if header.icount.is_some() { ICOUNT_TICK_NS } else { TICK_NS };
    emulated.then(|| format!("machine.cpu_turn={}ns", tick_ns / cpus))
}

/// A scenario whose workloads hold more memory of their own than this performs it in the model too.
const OWN_MEMORY_MAX_BYTES: u64 = 16 << 20;
/// Steps of less than this are left to the next one.
const STEP_BYTES: u64 = 128 << 10;

/// What else than page cache and reclaimable slabs the guest's memory was taken by after the first sample: its recorder's rows,
/// kept in memory and in a tmpfs, stacks, page tables. In a guest of 256 MiB they are 20 MiB at the end, which its page cache
/// is without.
#[derive(Default)]
struct Growth {
    /// Bytes of each node that were taken when the measured part began: the set-up was performed with less and less memory.
    before: Vec<u64>,
    /// The instant, and what was taken beyond that.
    later: Vec<(u64, Vec<u64>)>,
}

impl Growth {
    fn of(reference: &Recording, scenario: &Scenario) -> Growth {
        let build =
            |spec: &flatwater_workload::scenario::WorkloadSpec| (spec.entry.build)(&spec.params, scenario.seed).ok();
        let own: u64 = scenario.workloads.iter().filter_map(build).map(|work| work.footprint().memory_bytes).sum();
        let table = reference.table(Table::Nodes).filter(|_| own <= OWN_MEMORY_MAX_BYTES);
        let nodes: Vec<Vec<(u64, u64)>> =
            table.into_iter().flat_map(|table| table.by_entity()).map(|(_, rows)| taken(rows)).collect();
        let Some(first) = nodes.first() else { return Growth::default() };
        let at = |row: usize| -> Vec<u64> {
            nodes.iter().map(|of_node| of_node.get(row).map_or(0, |(_, bytes)| *bytes)).collect()
        };
        let start_ns = reference.header.clock.start_ns;
        let began = first.iter().rposition(|(at_ns, _)| *at_ns <= start_ns).unwrap_or(0);
        let before = at(began);
        let (mut later, mut last) = (Vec::new(), vec![0; nodes.len()]);
        for (row, (at_ns, _)) in first.iter().enumerate().skip(began + 1) {
            let now: Vec<u64> = at(row).iter().zip(&before).map(|(now, before)| now.saturating_sub(*before)).collect();
            if now.iter().zip(&last).any(|(now, last)| now.abs_diff(*last) >= STEP_BYTES) {
                later.push((at_ns - start_ns, now.clone()));
                last = now;
            }
        }
        Growth { before, later }
    }

    /// As an assignment of `machine.grows`.
    fn assignment(&self) -> Option<String> {
        let sizes = |bytes: &[u64]| bytes.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        let steps: Vec<String> =
            self.later.iter().map(|(at_ns, bytes)| format!("{at_ns}ns:{}", sizes(bytes))).collect();
        (!steps.is_empty()).then(|| format!("machine.grows={}", steps.join(";")))
    }
}

/// What of a node was taken beyond the first sample's, by instant.
fn taken(rows: Rows<'_>) -> Vec<(u64, u64)> {
    let held = [
        nodes::ANON_PAGES_BYTES,
        nodes::SHMEM_BYTES,
        nodes::SUNRECLAIM_BYTES,
        nodes::KERNEL_STACK_BYTES,
        nodes::PAGE_TABLES_BYTES,
    ];
    let columns = held.map(|column| rows.values(column).collect::<Vec<(u64, i64)>>());
    let sum = |row: usize| columns.iter().filter_map(|values| values.get(row)).map(|(_, bytes)| *bytes).sum::<i64>();
    let first = sum(0);
    let moments = columns[0].iter().enumerate();
    moments.map(|(row, (at_ns, _))| (*at_ns, u64::try_from(sum(row) - first).unwrap_or(0))).collect()
}

const MIN_FREE: &str = "vm.min_free_kbytes";
const LRU_GEN: &str = "lru_gen.enabled";

/// Settings that differ from the model's because of how the kernel was built or booted, unless the scenario has its own.
fn chosen_by_the_kernel(reference: &Recording, scenario: &Scenario) -> Vec<String> {
    let found = |key: &str| reference.header.setup.get(key).filter(|_| scenario.setup.get(key).is_none());
    // It is computed before the initramfs is given back (mm/page_alloc.c: init_per_zone_wmark_min), so lower than from
    // all of memory.
    let reserve = found(MIN_FREE).map(|value| format!("{MIN_FREE}={value}"));
    // By CONFIG_LRU_GEN_ENABLED. Off is what every model does unasked, those of kernels without generations too.
    let generations = found(LRU_GEN).filter(|value| lru_gen_runs(value) != Some(false));
    reserve.into_iter().chain(generations.map(|value| format!("{LRU_GEN}={value}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::{Growth, as_fast_as, chosen_by_the_kernel, cpu_turn, kernel_free};
    use flatwater_explain::testing::Made;
    use flatwater_recording::{Entity, NodeShape, OpKind, Recording, Source, Table, ZoneBlocks};
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
    fn a_model_that_does_more_than_the_guest_gets_slower_cpus_until_it_does_not() {
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

    /// Three samples a second apart; the measured part begins at the second.
    #[test]
    fn what_the_guests_other_memory_grew_by_the_model_is_told_from_the_measured_part_on() {
        let mib = |values: [i64; 3]| values.map(|mib| mib << 20);
        let (anonymous, shared) = (mib([10, 14, 15]), mib([30, 30, 32]));
        let columns: &[(&str, &[i64])] = &[("AnonPages_bytes", &anonymous), ("Shmem_bytes", &shared)];
        let made = Made::new().gauges(Table::Nodes, &Entity::on_node(0, ""), columns).edit(|recording| {
            recording.header.source = Source::Vm;
            let rows = recording.series[0].by_entity().next().expect("rows").1;
            let second = rows.values("AnonPages_bytes").nth(1).expect("a sample").0;
            recording.header.clock.start_ns = second;
        });
        let real = made.done();
        let scenario = Scenario::load("journal").expect("built in");
        let growth = Growth::of(&real, &scenario);
        assert_eq!(growth.before, [4 << 20], "held when the measured part begins");
        let [(at_ns, bytes)] = &growth.later[..] else { panic!("{:?}", growth.later) };
        assert!(*at_ns > 0 && *bytes == [3 << 20], "{at_ns} {bytes:?}");
        assert_eq!(growth.assignment(), Some(format!("machine.grows={at_ns}ns:3145728")));
    }

    #[test]
    fn free_pieces_of_the_kernels_blocks_are_told_by_node() {
        let mut real = moved(1_000);
        let node = |node| NodeShape { node, ..NodeShape::default() };
        real.header.machine.nodes = vec![node(0), node(1)];
        assert_eq!(kernel_free(&real), None, "where it was not read");
        let zone = |node, zone: &str, reclaimable: &[u64], unmovable: &[u64]| ZoneBlocks {
            node,
            zone: zone.to_owned(),
            reclaimable: reclaimable.to_vec(),
            unmovable: unmovable.to_vec(),
        };
        real.header.zone_blocks =
            vec![zone(0, "DMA", &[], &[0, 0, 9]), zone(0, "DMA32", &[1, 0, 2], &[]), zone(1, "DMA32", &[], &[0, 3])];
        // 1 + 2 * 4 pages, 4 in a piece; 3 * 2 pages, 2 in a piece.
        assert_eq!(kernel_free(&real).as_deref(), Some("machine.kernel_free=36864,16384,0,0;0,0,24576,8192"));
    }

    #[test]
    fn an_emulated_machine_has_turns() {
        let mut real = moved(1_000);
        real.header.machine.cpus = Some(2);
        assert_eq!(cpu_turn(&real), None);
        real.header.machine.hypervisor = Some("qemu-tcg".to_owned());
        assert_eq!(cpu_turn(&real).as_deref(), Some("machine.cpu_turn=2000000ns"));
        real.header.icount = Some(2);
        assert_eq!(cpu_turn(&real).as_deref(), Some("machine.cpu_turn=125000ns"));
        real.header.machine.cpus = Some(1);
        assert_eq!(cpu_turn(&real), None);
    }

    #[test]
    fn generations_that_the_guest_has_the_model_gets_too() {
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
    fn a_measured_speed_is_taken_as_it_is() {
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
