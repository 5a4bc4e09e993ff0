//! The machine of a guest as assignments to the scenario: memory that its kernel and other processes hold, watermarks
//! and queue settings. Nothing that is compared is fitted.

use flatwater_recording::schema::{Column, meminfo, nodes, zones};
use flatwater_recording::{Entity, Recording, Rows, Table};
use flatwater_workload::scenario::{Scenario, WorkloadSpec};

/// sizeof(struct page) of the kernels that a guest boots (include/linux/mm_types.h, x86-64, 4.x to 6.x).
const STRUCT_PAGE_BYTES: u64 = 64;
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
/// Steps of growth smaller than this are merged with the next one.
const STEP_BYTES: u64 = 128 << 10;
/// Settings that a kernel chooses at boot, some of them by its emulated device and driver.
const CHOSEN_BY_THE_KERNEL: [&str; 6] = [
    "vm.min_free_kbytes",
    "queue.scheduler",
    "queue.nr_requests",
    "queue.max_sectors_kb",
    "queue.read_ahead_kb",
    "queue.wbt_lat_usec",
];

type Assignments = Result<Vec<String>, String>;

/// The assignments, and a sentence for each property that the recording does not contain.
pub fn machine(real: &Recording, scenario: &Scenario) -> (Vec<String>, Vec<String>) {
    let (mut all, mut unknown) = (Vec::new(), Vec::new());
    let growth = growth(real, scenario).unwrap_or_else(|why| {
        unknown.push(format!("machine.grows: {why}"));
        Growth::default()
    });
    let found = [
        ("machine.reserved and machine.resident", held(real, scenario, &growth.before)),
        ("machine.buffers", buffers(real, scenario).map(|shares| by_node("machine.buffers", &shares))),
        ("machine.zone_min", zone_min(real, scenario)),
    ];
    for (what, found) in found {
        match found {
            Ok(assignments) => all.extend(assignments),
            Err(why) => unknown.push(format!("{what}: {why}; the model uses its own machine's value")),
        }
    }
    all.extend(growth.assignment);
    let own = (real.header.own_cost.cpu_share * 100.0).round();
    all.extend((own >= 1.0).then(|| format!("machine.own_cpu_percent={own}")));
    let chosen = CHOSEN_BY_THE_KERNEL.iter().filter(|key| scenario.setup.get(key).is_none());
    all.extend(chosen.filter_map(|key| Some(format!("{key}={}", real.header.setup.get(key)?))));
    (all, unknown)
}

/// The rows of the scenario's nodes, in order, each with the node's bytes.
fn nodes_of<'a>(real: &'a Recording, scenario: &Scenario) -> Result<Vec<(u64, Rows<'a>)>, String> {
    let rows: Vec<Rows<'a>> =
        real.table(Table::Nodes).into_iter().flat_map(|table| table.by_entity()).map(|(_, rows)| rows).collect();
    let sizes = &scenario.machine.node_bytes;
    if rows.len() < sizes.len() {
        return Err(format!("the recording has {} nodes, the scenario {}", rows.len(), sizes.len()));
    }
    Ok(sizes.iter().copied().zip(rows).collect())
}

fn first(rows: Rows<'_>, column: Column) -> Result<u64, String> {
    let value = rows.first(column).and_then(|value| u64::try_from(value).ok());
    value.ok_or_else(|| format!("the recording has no {} of a node", column.name))
}

fn by_node(key: &str, bytes: &[u64]) -> Vec<String> {
    let sizes: Vec<String> = bytes.iter().map(u64::to_string).collect();
    (!sizes.is_empty()).then(|| format!("{key}={}", sizes.join(","))).into_iter().collect()
}

/// What the kernel reserves on each node for good, and what is in use before the set-up. The model computes the rest.
fn held(real: &Recording, scenario: &Scenario, before: &[u64]) -> Assignments {
    let (mut reserved, mut resident) = (Vec::new(), Vec::new());
    // `machine.buffers` passes these pages, and they are reclaimable.
    let buffers = buffers(real, scenario).unwrap_or_default();
    for (node, (bytes, rows)) in nodes_of(real, scenario)?.into_iter().enumerate() {
        let (total, free) = (first(rows, nodes::MEM_TOTAL_BYTES)?, first(rows, nodes::MEM_FREE_BYTES)?);
        // The model subtracts the struct pages itself.
        let struct_pages = bytes / real.header.machine.page_size_bytes() * STRUCT_PAGE_BYTES;
        reserved.push(bytes.saturating_sub(total + struct_pages));
        let more = before.get(node).copied().unwrap_or(0);
        resident.push((total.saturating_sub(free) + more).saturating_sub(buffers.get(node).copied().unwrap_or(0)));
    }
    Ok([by_node("machine.reserved", &reserved), by_node("machine.resident", &resident)].concat())
}

/// The pages of the block device's own page cache by node. No table has them by node, so they are divided in proportion
/// to the file pages on the nodes' lists, which hold little else before the run.
fn buffers(real: &Recording, scenario: &Scenario) -> Result<Vec<u64>, String> {
    let rows = real.table(Table::Meminfo).and_then(|table| table.rows_of(&Entity::default()));
    let all = first(rows.ok_or("the recording has no samples of /proc/meminfo")?, meminfo::BUFFERS_BYTES)?;
    let listed = |(_, rows): (u64, Rows<'_>)| {
        Ok(first(rows, nodes::ACTIVE_FILE_BYTES)? + first(rows, nodes::INACTIVE_FILE_BYTES)?)
    };
    let lists = nodes_of(real, scenario)?.into_iter().map(listed).collect::<Result<Vec<u64>, String>>()?;
    let (total, page) = (lists.iter().sum::<u64>().max(1), real.header.machine.page_size_bytes());
    Ok(lists.iter().map(|own| all / page * own / total * page).collect())
}

/// Each zone's share of min_free_kbytes, which the kernel divides before it frees the initramfs (mm/page_alloc.c:
/// init_per_zone_wmark_min), so that the node with the initramfs gets a lower watermark than its memory calls for.
/// Absent if the scenario sets min_free_kbytes, since the kernel then divides it anew.
fn zone_min(real: &Recording, scenario: &Scenario) -> Assignments {
    if scenario.setup.get("vm.min_free_kbytes").is_some() {
        return Ok(Vec::new());
    }
    let table = real.table(Table::Zones).ok_or("the recording has no samples of zones")?;
    let page = real.header.machine.page_size_bytes();
    let mut of_nodes = Vec::new();
    for node in &real.header.machine.nodes {
        let mut own = Vec::new();
        for (entity, rows) in table.by_entity().filter(|(entity, _)| entity.node == Some(node.node)) {
            own.push((entity.name.clone(), first(rows, zones::MIN)? * page));
        }
        // DMA, DMA32, Normal: the kernel's order.
        own.sort_unstable();
        let sizes: Vec<String> = own.into_iter().map(|(_, min)| min.to_string()).collect();
        of_nodes.push(sizes.join(","));
    }
    Ok(vec![format!("machine.zone_min={}", of_nodes.join(";"))])
}

/// Memory other than page cache and reclaimable slabs that the guest took after the first sample: the recorder's rows,
/// stacks, page tables.
#[derive(Default)]
struct Growth {
    /// Bytes of each node when the measured part began: the set-up already ran with less memory.
    before: Vec<u64>,
    /// `machine.grows`, from the start of the measured part on.
    assignment: Option<String>,
}

fn growth(real: &Recording, scenario: &Scenario) -> Result<Growth, String> {
    let build = |spec: &WorkloadSpec| (spec.entry.build)(&spec.params, scenario.seed).ok();
    let own: u64 = scenario.workloads.iter().filter_map(build).map(|work| work.footprint().memory_bytes).sum();
    if own > OWN_MEMORY_MAX_BYTES {
        return Ok(Growth::default());
    }
    let table = real.table(Table::Nodes).ok_or("the recording has no samples of nodes")?;
    let of_nodes: Vec<Vec<(u64, u64)>> =
        table.by_entity().map(|(_, rows)| taken(rows)).collect::<Result<_, String>>()?;
    let count = of_nodes.iter().map(Vec::len).min().unwrap_or(0);
    if count == 0 {
        return Ok(Growth::default());
    }
    let start_ns = real.header.clock.start_ns;
    let at = |row: usize| -> Vec<u64> { of_nodes.iter().map(|node| node[row].1).collect() };
    let began = (0..count).rev().find(|row| of_nodes[0][*row].0 <= start_ns).unwrap_or(0);
    let before = at(began);
    let (mut steps, mut last) = (Vec::new(), vec![0; of_nodes.len()]);
    for (row, (at_ns, _)) in of_nodes[0].iter().enumerate().take(count).skip(began + 1) {
        let now: Vec<u64> = at(row).iter().zip(&before).map(|(now, before)| now.saturating_sub(*before)).collect();
        if now.iter().zip(&last).any(|(now, last)| now.abs_diff(*last) >= STEP_BYTES) {
            let sizes: Vec<String> = now.iter().map(u64::to_string).collect();
            steps.push(format!("{}ns:{}", at_ns - start_ns, sizes.join(",")));
            last = now;
        }
    }
    Ok(Growth { before, assignment: (!steps.is_empty()).then(|| format!("machine.grows={}", steps.join(";"))) })
}

/// (ns, bytes of a node taken beyond the first sample).
fn taken(rows: Rows<'_>) -> Result<Vec<(u64, u64)>, String> {
    let mut sums: Vec<(u64, i64)> = Vec::new();
    for column in HELD {
        let values: Vec<(u64, i64)> = rows.values(column).collect();
        if !sums.is_empty() && values.len() != sums.len() {
            return Err(format!("the recording has no {} of some samples of a node", column.name));
        }
        if sums.is_empty() {
            sums = values;
        } else {
            sums.iter_mut().zip(values).for_each(|((_, sum), (_, bytes))| *sum += bytes);
        }
    }
    let first = sums.first().map_or(0, |(_, sum)| *sum);
    Ok(sums.into_iter().map(|(at_ns, sum)| (at_ns, u64::try_from(sum - first).unwrap_or(0))).collect())
}
