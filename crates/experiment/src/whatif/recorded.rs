//! Makes a scenario of a recording: machine, settings and operations as recorded, and a sentence for each assumption.

use super::{cgroup_memory, device, machine};
use flatwater_recording::schema::{Column, meminfo};
use flatwater_recording::units::{Bytes, Nanos};
use flatwater_recording::{Entity, Header, Recording, Source, Table};
use flatwater_workload::scenario::{DiskSpec, Scenario, ScenarioError, SetError};

/// A scenario, and its assumptions, one sentence each.
#[derive(Clone, Debug)]
pub struct RecordedModel {
    pub scenario: Scenario,
    pub assumed: Vec<String>,
}

/// Why a recording cannot be turned into a scenario.
#[derive(Debug, thiserror::Error)]
pub enum RecordedError {
    #[error(
        "this recording is of programs and does not contain their operations: write a similar scenario \
         (`flatwater scenarios journal` prints one) and give that to whatif"
    )]
    NoOperations,
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error(transparent)]
    Set(#[from] SetError),
}

/// The scenario of a recording, on the machine that it was recorded on. `profiles` are the kernels of the model by
/// name.
pub fn scenario(recording: &Recording, profiles: &[&str]) -> Result<RecordedModel, RecordedError> {
    let header = &recording.header;
    let (Some(name), Some(text)) = (&header.scenario, &header.scenario_text) else {
        return Err(RecordedError::NoOperations);
    };
    let mut scenario = Scenario::parse(name, text)?;
    let mut assumed = Vec::new();
    operations(&mut scenario, header)?;
    // The settings at the start override those of the scenario.
    scenario.setup = scenario.setup.with(&header.setup);
    shape(&mut scenario, header, &mut assumed);
    kernel(&mut scenario, header, profiles, &mut assumed);
    contents(&mut scenario, recording, &mut assumed);
    disk(&mut scenario, recording, &mut assumed);
    cgroup(&mut scenario, recording, &mut assumed);
    Ok(RecordedModel { scenario, assumed })
}

/// The workloads with their recorded parameters, seed, duration and threshold.
fn operations(scenario: &mut Scenario, header: &Header) -> Result<(), RecordedError> {
    for (key, value) in &header.target.parameters {
        scenario.set(&format!("{key}={value}"))?;
    }
    scenario.seed = header.seed;
    if header.duration_ns > 0 {
        scenario.duration = Nanos(header.duration_ns);
    }
    if header.threshold_ns > 0 {
        scenario.threshold = Nanos(header.threshold_ns);
    }
    Ok(())
}

fn shape(scenario: &mut Scenario, header: &Header, assumed: &mut Vec<String>) {
    if header.source == Source::Sim {
        // The model ran on the scenario's own machine. The sizes in the header are without mem_map.
        return;
    }
    let machine = &header.machine;
    scenario.machine.cpus = machine.cpus.or(scenario.machine.cpus);
    let mut nodes: Vec<u64> = machine.nodes.iter().filter_map(|node| node.memory_bytes).collect();
    if nodes.is_empty() {
        nodes.extend(machine.memory_bytes);
    }
    if !nodes.is_empty() {
        scenario.machine.node_bytes = nodes;
    } else if scenario.machine.node_bytes.is_empty() {
        assumed.push("assumed: 4 GiB of memory; the recording does not contain it (--machine nodes=16GiB)".to_owned());
    }
    let far = machine.nodes.iter().flat_map(|node| &node.distances).filter(|distance| **distance > 10).max();
    scenario.machine.distance = far.copied().or(scenario.machine.distance);
}

/// The model's kernel that is nearest to this one: the table has the version from which on each is.
pub fn profile_of(release: &str) -> &'static str {
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = [0; 3].map(|_| parts.next().unwrap_or(0));
    const SINCE: [([u32; 3], &str); 8] = [
        ([6, 16, 0], "linux-6.18"),
        ([6, 6, 0], "linux-6.12"),
        ([3, 2, 0], "linux-6.1"),
        ([2, 6, 32], "linux-2.6.32"),
        ([2, 6, 20], "linux-2.6.20-x86_64"),
        ([2, 4, 0], "linux-2.6.17"),
        ([2, 2, 5], "linux-2.2.5"),
        ([2, 0, 0], "linux-2.2.3"),
    ];
    SINCE.iter().find(|(since, _)| version >= *since).map_or("linux-6.18", |(_, name)| name)
}

fn kernel(scenario: &mut Scenario, header: &Header, profiles: &[&str], assumed: &mut Vec<String>) {
    let ran = header.machine.kernel.clone();
    if let Some(ran) = ran.as_ref().filter(|ran| profiles.contains(&ran.as_str())) {
        scenario.kernel = Some(ran.clone());
        return;
    }
    let profile = ran.as_deref().map_or("linux-6.18", profile_of);
    let ran = ran.unwrap_or_else(|| "(not in the recording)".to_owned());
    assumed.push(format!("assumed: kernel {ran} behaves as the model of {profile} (--kernel chooses another)"));
    scenario.kernel = Some(profile.to_owned());
}

/// How full memory was at the start, which decides when reclaim begins.
fn contents(scenario: &mut Scenario, recording: &Recording, assumed: &mut Vec<String>) {
    if recording.header.source == Source::Sim {
        return;
    }
    let first = |column: Column| {
        let rows = recording.table(Table::Meminfo)?.rows_of(&Entity::default())?;
        rows.first(column).filter(|bytes| *bytes >= 0)
    };
    let (Some(total), Some(free)) =
        (first(meminfo::MEM_TOTAL_BYTES).filter(|total| *total > 0), first(meminfo::MEM_FREE_BYTES))
    else {
        assumed.push(
            "assumed: memory empty at the start; the recording does not contain it (--set model.cache_percent=...)"
                .to_owned(),
        );
        return;
    };
    let cache = [meminfo::CACHED_BYTES, meminfo::BUFFERS_BYTES].into_iter().filter_map(first).sum::<i64>();
    let slab = first(meminfo::SRECLAIMABLE_BYTES).unwrap_or(0);
    let in_use = (total - free - cache - slab).max(0);
    let percent = |part: i64, whole: i64| (100 * part / whole.max(1)).clamp(0, 100);
    let (pinned, cached) = (percent(in_use, total), percent(cache, cache + free));
    scenario.model.insert("model.pinned_percent".to_owned(), pinned.to_string());
    scenario.model.insert("model.cache_percent".to_owned(), cached.to_string());
    assumed.push(format!(
        "taken from the first sample: {pinned} % of memory in use, {cached} % of the rest page cache; assumed: that \
         cache is clean and old"
    ));
}

/// The version of the memory cgroup, which decides its dirty limits (memory.stat has `cache` in v1, `file` in v2), and
/// the memory that the recorder itself took from the cgroup.
fn cgroup(scenario: &mut Scenario, recording: &Recording, assumed: &mut Vec<String>) {
    let columns =
        recording.table(Table::Cgroup).map(|table| ["cache", "file"].map(|name| table.column(name).is_some()));
    if let Some([v1, _]) = columns.filter(|[v1, v2]| v1 != v2) {
        scenario.model.insert("model.cgroup_version".to_owned(), if v1 { "1" } else { "2" }.to_owned());
    }
    // Without a limit the model has no cgroup.
    if recording.header.source != Source::Host || scenario.setup.get("cgroup.memory_limit").is_none() {
        return;
    }
    match cgroup_memory::in_cgroup(recording, scenario) {
        Some(taken) => scenario.machine.cgroup_grows = taken,
        None => assumed.push(
            "assumed: the cgroup's processes hold nothing beside the workloads' memory; the recording does not contain it \
             (--set machine.cgroup_grows=0s:8MiB)"
                .to_owned(),
        ),
    }
}

/// The device: limits of the cgroup if the recording has them, else an estimate. A recording counts requests, but does
/// not show how fast the device could have been.
fn disk(scenario: &mut Scenario, recording: &Recording, assumed: &mut Vec<String>) {
    if recording.header.source == Source::Sim || scenario.machine.disk.write_bytes_per_s.is_some() {
        return;
    }
    let spec = &mut scenario.machine.disk;
    let limit = |key: &str| scenario.setup.number(key).and_then(|bps| u64::try_from(bps).ok()).filter(|bps| *bps > 0);
    if let Some(bps) = limit("cgroup.write_bps") {
        spec.write_bytes_per_s = Some(bps);
        spec.read_bytes_per_s = limit("cgroup.read_bps");
        spec.seek_ns = Some(0);
        spec.rotation_ns = Some(0);
        assumed.push(format!("assumed: a device of {}/s, the limit that was set on the cgroup, no seeks", Bytes(bps)));
        return;
    }
    *spec = DiskSpec { file_system: spec.file_system.take(), bytes: spec.bytes, ..machine::DEFAULT_DISK };
    match device::seen(recording) {
        Some(seen) if seen.least_ns < FLASH_NS => {
            (spec.seek_ns, spec.rotation_ns) = (None, None);
            let iops = 1_000_000_000 / seen.access_ns.max(10_000);
            let rate = seen.bytes_per_s.unwrap_or(500_000_000);
            (spec.iops, spec.write_bytes_per_s) = (Some(iops), Some(rate));
            let whence = if seen.bytes_per_s.is_some() { "measured while it was busy" } else { "not measured" };
            assumed.push(format!(
                "assumed: a flash device of {iops} requests/s ({} recorded requests took {} each in the fastest interval, {} without \
                 moving their bytes) and {}/s ({whence}) (--machine disk.iops=..., disk.write_bps=...)",
                seen.requests,
                Nanos(seen.least_ns),
                Nanos(seen.access_ns),
                Bytes(rate)
            ));
        }
        _ => assumed.push(
            "assumed: a disk of 80 MB/s, 8 ms seek, 7200 rpm; the recording does not measure it \
             (--machine disk.write_bps=..., disk.seek=..., disk.iops=...)"
                .to_owned(),
        ),
    }
}

/// A mean below this contains no seek.
const FLASH_NS: u64 = 2_000_000;

#[cfg(test)]
mod tests {
    use super::{profile_of, scenario};
    use flatwater_recording::{ColumnKind, Entity, NodeShape, Recording, Series, Table};

    fn recorded() -> Recording {
        let mut recording = Recording::default();
        let header = &mut recording.header;
        header.scenario = Some("journal".to_owned());
        header.scenario_text = Some(flatwater_workload::scenario::Scenario::load("journal").expect("built in").text);
        header.seed = 11;
        header.duration_ns = 5_000_000_000;
        header.target.parameters.insert("journal.bytes".to_owned(), "300".to_owned());
        header.setup.observe("vm.dirty_ratio", "33");
        header.machine.kernel = Some("5.10.0-8-amd64".to_owned());
        header.machine.cpus = Some(2);
        let node = |node, distances| NodeShape { node, distances, memory_bytes: Some(1 << 33), ..NodeShape::default() };
        header.machine.nodes = vec![node(0, vec![10, 21]), node(1, vec![21, 10])];
        let mut meminfo = Series::new(Table::Meminfo);
        let gauge = |name, gib: i64| (name, ColumnKind::Gauge, Some(gib << 30));
        let values = [gauge("MemTotal_bytes", 16), gauge("MemFree_bytes", 3), gauge("Cached_bytes", 9)];
        meminfo.push(0, &Entity::default(), &values);
        recording.series.push(meminfo);
        recording
    }

    #[test]
    fn the_scenario_has_the_machine_settings_and_operations_of_the_recording() {
        let modelled = scenario(&recorded(), &["linux-6.1"]).expect("a scenario");
        let (it, machine) = (&modelled.scenario, &modelled.scenario.machine);
        assert_eq!((it.seed, it.duration.0, it.kernel.as_deref()), (11, 5_000_000_000, Some("linux-6.1")));
        assert_eq!((machine.cpus, machine.node_bytes.len(), machine.distance), (Some(2), 2, Some(21)));
        assert_eq!(it.workloads[0].params.iter().find(|(name, _)| *name == "bytes").map(|(_, v)| v), Some("300"));
        assert_eq!(it.setup.get("vm.dirty_ratio"), Some("33"));
        let contents = ["model.pinned_percent", "model.cache_percent"].map(|key| it.model.get(key).map(String::as_str));
        assert_eq!(contents, [Some("25"), Some("75")]);
        for wanted in ["kernel 5.10.0-8-amd64 behaves", "25 % of memory in use, 75 %", "a disk of 80 MB/s"] {
            assert!(
                modelled.assumed.iter().any(|sentence| sentence.contains(wanted)),
                "{wanted}: {:?}",
                modelled.assumed
            );
        }
    }

    #[test]
    fn a_busy_flash_device_is_recognized() {
        let mut recording = recorded();
        recording.header.target.device = Some("vda".to_owned());
        let mut disks = Series::new(Table::Disks);
        for (at, writes, ns) in [(0, 0, 0), (1_000_000_000, 100, 20_000_000)] {
            let counter = |name, value| (name, ColumnKind::Counter, Some(value));
            disks.push(at, &Entity::named("vda"), &[counter("writes", writes), counter("write_ns", ns)]);
        }
        recording.series.push(disks);
        let modelled = scenario(&recording, &[]).expect("a scenario");
        assert_eq!(modelled.scenario.machine.disk.iops, Some(5000));
    }

    #[test]
    fn a_recording_without_operations_is_refused() {
        let mut recording = recorded();
        recording.header.scenario_text = None;
        let message = scenario(&recording, &[]).expect_err("refused").to_string();
        assert!(message.contains("write a similar scenario"), "{message}");
    }

    #[test]
    fn a_kernel_gets_the_nearest_profile() {
        for (release, profile) in [
            ("6.18.5-test", "linux-6.18"),
            ("6.12.9", "linux-6.12"),
            ("6.1.0", "linux-6.1"),
            ("5.15.0-generic", "linux-6.1"),
            ("4.18.0-147.el8.x86_64", "linux-6.1"),
            ("3.10.0-1160.el7.x86_64", "linux-6.1"),
            ("2.6.32-754.el6.x86_64", "linux-2.6.32"),
            ("2.6.18-8.el5", "linux-2.6.17"),
            ("2.2.4", "linux-2.2.3"),
            ("2.2.14", "linux-2.2.5"),
        ] {
            assert_eq!(profile_of(release), profile, "{release}");
        }
    }
}
