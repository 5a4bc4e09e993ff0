//! Runs the page cache experiments of WRENCH's authors on the model: `cargo bench --bench wrench --
//! [exp1|exp2|exp3|exp4] [SIZE...]`.
//!
//! Measured durations and the errors of WRENCH, a simulator, come from arXiv 2101.01335 (Do and others, 2021) and its
//! data (big-data-lab-team/paper-io-simulation, 5ccedcb); bench/wrench.toml has them. The model gets the platform that
//! the paper describes (memory read 6860 and write 2764 MB/s, disk read 510 and write 420 MB/s), the CPU times, the
//! resident memory and CentOS 8's settings, and none of the durations. `write=516` uses the disk's measured 516 MB/s.
//! `read=564` uses the rate at which the page cache grew in experiment 2 while all pipelines read, so the first reads
//! are then no prediction.
//!
//! Experiment 2 ran on another node than experiment 1, so it gets that node's memory and the CPU time of each job.
//! Experiment 3 is experiment 2 on an NFS mount: network 3000 MB/s, the server's disk 515 and 375 MB/s, and a client
//! that does not cache its writes (noac). Experiment 4 gets the files that are read and written, the computing between
//! them, and the copies that nibabel makes of what it saves, from its source. (The first result, 16.9 %, was without
//! these copies.)

use std::collections::BTreeMap;

use flatwater_recording::{Call, OpKind, Recording};
use flatwater_sim as sim;
use flatwater_workload::scenario::Scenario;
use flatwater_workload::{
    Actor, ActorStart, DirId, FileId, Footprint, Op, ParamError, Params, Role, Stream, Workload, WorkloadEntry,
    pipeline,
};

/// Rates in the paper, MB (10^6 bytes) per second.
const MEMORY_READ_MB: u64 = 6_860;
const MEMORY_WRITE_MB: u64 = 2_764;

#[derive(serde::Deserialize)]
struct Data {
    exp1: Vec<One>,
    exp2: Vec<Many>,
    exp3: Vec<Many>,
    exp4: Vec<Step>,
}

/// Durations of read 1, write 1, ... write 3, s, and the errors of WRENCH with page cache, per cent.
#[derive(serde::Deserialize)]
struct One {
    size_gb: u64,
    compute_s: Vec<f64>,
    real_s: Vec<f64>,
    wrench_error_percent: Vec<f64>,
}

/// Seconds of reading, of writing and in total of one of several pipelines of 3 GB: measured, and from WRENCH. For
/// experiment 2 also the CPU time of each job, by pipeline, and when the first and the last pipeline had read its first
/// file.
#[derive(serde::Deserialize)]
struct Many {
    pipelines: u64,
    real_s: [f64; 3],
    wrench_s: [f64; 3],
    first_reads_end_s: Option<[f64; 2]>,
    #[serde(default)]
    compute_s: Vec<[f64; 3]>,
}

/// The node of an experiment, and its disk.
#[derive(Clone, Copy)]
struct Node {
    /// Memory that the kernel does not manage, per NUMA node; `resident` is what was in use before the run.
    reserved: &'static str,
    resident: &'static str,
    read_mb: u64,
    write_mb: u64,
}

/// A step of the application of experiment 4, and the seconds of reading and of writing.
#[derive(Clone, serde::Deserialize)]
struct Step {
    step: String,
    ops: Vec<(String, u64, u64, f64)>,
    cast: Vec<u64>,
    real_s: [f64; 2],
    wrench_error_percent: [f64; 2],
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let asked = |name: &str| {
        let named = arguments.iter().any(|argument| argument.starts_with("exp"));
        !named || arguments.iter().any(|argument| argument == name)
    };
    let only: Vec<u64> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    let given = |key: &str| arguments.iter().find_map(|argument| argument.strip_prefix(key)?.parse().ok());
    let (read_mb, write_mb) = (given("read=").unwrap_or(510), given("write=").unwrap_or(420));
    let node = Node { reserved: "950MiB", resident: "3919MiB", read_mb, write_mb };
    let data = data();
    println!("disk reads at {read_mb} MB/s and writes at {write_mb} MB/s");
    if asked("exp1") {
        let rows = data.exp1.iter().filter(|row| only.is_empty() || only.contains(&row.size_gb));
        experiment_1(rows, node);
    }
    if asked("exp2") {
        let rows = data.exp2.iter().filter(|row| only.is_empty() || only.contains(&row.pipelines));
        // atop's first line of each run on comp06: 65 614 610 pages, of which 65 189 992 are free.
        experiment_2(2, rows, &|n| jobs(n, Node { reserved: "867MiB", resident: "829MiB", ..node }));
    }
    if asked("exp4") {
        experiment_4(&data.exp4, node);
    }
    if asked("exp3") {
        let rows = data.exp3.iter().filter(|row| only.is_empty() || only.contains(&row.pipelines));
        experiment_2(3, rows, &remote);
    }
}

fn data() -> Data {
    toml::from_str(include_str!("wrench.toml")).expect("wrench.toml")
}

/// The paper's compute node. CentOS 8 has only the multi-queue schedulers, of which a SATA disk gets mq-deadline
/// (docs.redhat.com, RHEL 8, "Setting the disk scheduler"); tuned sets the dirty limits. The node has 2 x 16 cores with
/// two threads each, two NUMA nodes, and 262 288 396 KiB (comp06: 262 458 440).
fn scenario(pipelines: u64, size_bytes: u64, compute_s: f64, node: Node) -> Scenario {
    let Node { reserved, resident, read_mb, write_mb } = node;
    let text = format!(
        "name = 'wrench'\nsentence = 'Pipelines of three jobs.'\nduration = '4h'\nthreshold = '1us'\nkernel = 'linux-4.18'\n\
         [machine]\ncpus = 64\nnodes = ['128GiB', '128GiB']\ndistance = 21\nreserved = ['{reserved}', '{reserved}']\n\
         resident = ['{resident}', '{resident}']\nswap = '4294963kB'\n\
         disk = {{ size = '450GiB', read_bps = '{read_mb}MB', write_bps = '{write_mb}MB', iops = 20000, file_system = 'xfs' }}\n\
         [setup]\n'vm.dirty_ratio' = 40\n'vm.dirty_background_ratio' = 10\n'queue.read_ahead_kb' = 4096\n\
         'queue.max_sectors_kb' = 1024\n'queue.scheduler' = 'mq-deadline'\n\
         [[workload]]\nuse = 'pipeline'\npipelines = {pipelines}\nfile_size = '{size_bytes}B'\ncompute = '{}ms'\n",
        (compute_s * 1000.0) as u64,
    );
    let mut scenario = Scenario::parse("wrench", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    // Reading only copies. From the measured time of a written page the model subtracts its insertion into the cache.
    let speed = format!(
        "machine.speed=copy_byte_ps={},write_page_ns={}",
        1_000_000 / MEMORY_READ_MB,
        4_096_000 / MEMORY_WRITE_MB
    );
    scenario.set(&speed).unwrap_or_else(|error| panic!("{error}"));
    scenario
}

/// The pipelines of 3 GB, each job with its measured CPU time.
fn jobs(pipelines: u64, node: Node) -> Scenario {
    let mut scenario = scenario(pipelines, 3_000_000_000, 0.0, node);
    scenario.workloads[0].entry = JOBS;
    scenario
}

/// The same pipelines on an NFS mount of another node's disk.
fn remote(pipelines: u64) -> Scenario {
    let node = Node { reserved: "950MiB", resident: "3919MiB", read_mb: 515, write_mb: 375 };
    let mut scenario = scenario(pipelines, 3_000_000_000, 4.4, node);
    let disk = &mut scenario.machine.disk;
    disk.network_bytes_per_s = Some(3_000_000_000);
    disk.file_system = Some("nfs4".to_owned());
    scenario.machine.swap_bytes = 0;
    scenario.set("mount.options=noac").unwrap_or_else(|error| panic!("{error}"));
    scenario
}

fn run(scenario: &Scenario) -> Recording {
    sim::run(scenario).unwrap_or_else(|error| panic!("{error}")).0
}

/// The phases of each thread, alternately reads and writes: start of the first call and end of the last, s.
fn phases(recording: &Recording) -> BTreeMap<String, Vec<(OpKind, f64, f64)>> {
    let mut all: BTreeMap<String, Vec<(OpKind, f64, f64)>> = BTreeMap::new();
    let moves = |call: &&Call| matches!(call.op, OpKind::Read | OpKind::Write);
    for call in recording.calls.iter().filter(moves) {
        let (start, end) = (call.start_ns as f64 / 1e9, (call.start_ns + call.duration_ns) as f64 / 1e9);
        let own = all.entry(call.thread.clone()).or_default();
        match own.last_mut() {
            Some((op, _, last)) if *op == call.op => *last = end,
            _ => own.push((call.op, start, end)),
        }
    }
    all
}

fn error_percent(got: f64, real: f64) -> f64 {
    (got - real).abs() / real * 100.0
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn experiment_1<'a>(rows: impl Iterator<Item = &'a One>, node: Node) {
    let names = ["read 1", "write 1", "read 2", "write 2", "read 3", "write 3"];
    println!(
        "\n| experiment 1 | phase | measured s | flatwater s | flatwater error % | WRENCH error % |\n|---|---|---|---|---|---|"
    );
    let (mut own, mut theirs) = (Vec::new(), Vec::new());
    for row in rows {
        // Shared memory, slab and processes that existed before the first sample.
        let resident = if row.size_gb == 100 { "2460MiB" } else { node.resident };
        let compute = mean(&row.compute_s);
        let recording = run(&scenario(1, row.size_gb * 1_000_000_000, compute, Node { resident, ..node }));
        let phases = phases(&recording);
        let got = phases.get("pipe-0").map(Vec::as_slice).unwrap_or_default();
        assert_eq!(got.len(), 6, "six phases: {got:?}");
        for (number, (_, start, end)) in got.iter().enumerate() {
            let (real, wrench) = (row.real_s[number], row.wrench_error_percent[number]);
            let error = error_percent(end - start, real);
            println!(
                "| {} GB | {} | {real:.1} | {:.1} | {error:.1} | {wrench:.1} |",
                row.size_gb,
                names[number],
                end - start
            );
            own.push(error);
            theirs.push(wrench);
        }
    }
    println!("| mean of {} | | | | **{:.1}** | **{:.1}** |", own.len(), mean(&own), mean(&theirs));
}

/// Experiment 2, or experiment 3, which is the same on another mount.
fn experiment_2<'a>(number: u32, rows: impl Iterator<Item = &'a Many>, scenario_of: &dyn Fn(u64) -> Scenario) {
    let names = ["read", "write", "makespan"];
    println!(
        "\n| experiment {number} | phase | measured s | flatwater s | flatwater error % | WRENCH error % |\n|---|---|---|---|---|---|"
    );
    let mut errors: [(Vec<f64>, Vec<f64>); 3] = Default::default();
    for row in rows {
        let recording = run(&scenario_of(row.pipelines));
        let all = phases(&recording);
        let by_pipeline: Vec<[f64; 3]> = all
            .values()
            .map(|own| {
                let sum = |kind: OpKind| own.iter().filter(|(op, ..)| *op == kind).map(|(_, from, to)| to - from).sum();
                let makespan =
                    own.last().map_or(0.0, |(.., end)| *end) - own.first().map_or(0.0, |(_, start, _)| *start);
                [sum(OpKind::Read), sum(OpKind::Write), makespan]
            })
            .collect();
        for (number, name) in names.iter().enumerate() {
            let got = mean(&by_pipeline.iter().map(|own| own[number]).collect::<Vec<_>>());
            let (real, wrench) = (row.real_s[number], row.wrench_s[number]);
            let (error, their) = (error_percent(got, real), error_percent(wrench, real));
            println!("| n = {} | {name} | {real:.1} | {got:.1} | {error:.1} | {their:.1} |", row.pipelines);
            errors[number].0.push(error);
            errors[number].1.push(their);
        }
        if let Some([first, last]) = row.first_reads_end_s {
            let ends = all.values().filter_map(|own| own.first()).map(|(.., end)| *end);
            let (from, to) = ends.fold((f64::MAX, 0.0_f64), |(from, to), end| (from.min(end), to.max(end)));
            let n = row.pipelines;
            println!("| n = {n} | first reads end | {first:.1} to {last:.1} | {from:.1} to {to:.1} | | |");
        }
    }
    for (name, (own, theirs)) in names.iter().zip(&errors) {
        println!("| mean | {name} | | | **{:.1}** | **{:.1}** |", mean(own), mean(theirs));
    }
}

/// The pipelines, with the measured computing time of each job.
struct Jobs {
    pipelines: Box<dyn Workload>,
    compute_s: Vec<[f64; 3]>,
}

const JOBS: &WorkloadEntry = &WorkloadEntry {
    name: "jobs",
    sentence: "Pipelines of jobs as measured.",
    params: pipeline::ENTRY.params,
    build: build_jobs,
};

fn build_jobs(params: &Params, seed: u64) -> Result<Box<dyn Workload>, ParamError> {
    let row = data().exp2.into_iter().find(|row| row.pipelines == params.count("pipelines")).expect("a measured row");
    Ok(Box::new(Jobs { pipelines: (pipeline::ENTRY.build)(params, seed)?, compute_s: row.compute_s }))
}

impl Workload for Jobs {
    fn footprint(&self) -> Footprint {
        self.pipelines.footprint()
    }

    fn actors(&self) -> Vec<Actor> {
        let timed = |(actor, compute_s): (Actor, &[f64; 3])| {
            let compute_ns = compute_s.map(|seconds| (seconds * 1e9) as u64).into_iter();
            Actor { stream: Box::new(Timed { stream: actor.stream, compute_ns }), ..actor }
        };
        self.pipelines.actors().into_iter().zip(&self.compute_s).map(timed).collect()
    }

    fn path(&self, file: FileId) -> String {
        self.pipelines.path(file)
    }

    fn directory(&self, file: FileId) -> DirId {
        self.pipelines.directory(file)
    }

    fn directory_path(&self, dir: DirId) -> String {
        self.pipelines.directory_path(dir)
    }
}

struct Timed {
    stream: Box<dyn Stream>,
    compute_ns: std::array::IntoIter<u64, 3>,
}

impl Stream for Timed {
    fn next(&mut self, now_ns: u64) -> Option<Op> {
        match self.stream.next(now_ns)? {
            Op::Compute { .. } => self.compute_ns.next().map(|ns| Op::Compute { ns }),
            op => Some(op),
        }
    }
}

/// The application of experiment 4 as the authors traced it: whole files read and written, with computing between them.
#[derive(Debug)]
struct Traced;

const TRACED: &WorkloadEntry =
    &WorkloadEntry { name: "traced", sentence: "Four steps of Nighres.", params: &[], build: traced };

fn traced(_params: &Params, _seed: u64) -> Result<Box<dyn Workload>, ParamError> {
    Ok(Box::new(Traced))
}

fn steps() -> Vec<Step> {
    data().exp4
}

impl Workload for Traced {
    fn footprint(&self) -> Footprint {
        let bytes = steps().iter().flat_map(|step| &step.ops).map(|(_, _, bytes, _)| bytes).sum();
        Footprint { disk_bytes: bytes, growth_bytes_per_s: 0, files: 64, memory_bytes: bytes, threads: 1, processes: 0 }
    }

    fn actors(&self) -> Vec<Actor> {
        let stream = Box::new(Trace { ops: trace(&steps()).into_iter() });
        vec![Actor { name: "traced".to_owned(), role: Role::Foreground, start: ActorStart::Immediately, stream }]
    }

    fn path(&self, file: FileId) -> String {
        format!("file-{}", file.0)
    }

    fn directory(&self, _file: FileId) -> DirId {
        DirId(0)
    }

    fn directory_path(&self, _dir: DirId) -> String {
        String::new()
    }
}

struct Trace {
    ops: std::vec::IntoIter<Op>,
}

impl Stream for Trace {
    fn next(&mut self, _now_ns: u64) -> Option<Op> {
        self.ops.next()
    }
}

/// The operations. Files that a step reads before any step has written them exist at the start.
fn trace(steps: &[Step]) -> Vec<Op> {
    let mut known = std::collections::BTreeSet::new();
    let (mut before, mut measured) = (vec![Op::Measure { on: false }], vec![Op::Measure { on: true }]);
    let mut own_bytes = 0;
    for step in steps {
        for (kind, file, bytes, compute_s) in &step.ops {
            let (file, bytes, is_new) = (FileId(*file), *bytes, known.insert(*file));
            measured.push(Op::Compute { ns: (compute_s * 1e9) as u64 });
            if kind == "read" {
                if is_new {
                    before.extend([
                        Op::Create { file },
                        Op::Write { file, offset_bytes: 0, bytes },
                        Op::Close { file },
                    ]);
                }
                measured.push(Op::ReadKept { file, offset_bytes: 0, bytes });
            } else {
                measured.push(Op::Create { file });
                let cast = step.cast.contains(&file.0);
                measured.extend(saved(file, bytes, cast, &mut own_bytes));
            }
            measured.push(Op::Close { file });
        }
        // Each step is a separate process.
        measured.push(Op::DropKept);
        own_bytes = 0;
    }
    before.extend(measured);
    before
}

/// The writes of one saved image. nibabel saves by slices of the last dimension (volumeutils.py, _write_data, 3.0.2):
/// it casts a slice if the type of the voxels differs, copies it into a string and writes it. A volume's slices have
/// about 400 KB, which the C library allocates from its heap; the slices of a four-dimensional image are whole volumes,
/// and each copy is new memory (DEFAULT_MMAP_THRESHOLD_MAX, malloc.c: 32 MiB).
fn saved(file: FileId, bytes: u64, cast: bool, own_bytes: &mut u64) -> Vec<Op> {
    const VOLUME_BYTES: u64 = 98_304_000;
    const HEADER_BYTES: u64 = 352;
    let copies = 1 + u64::from(cast);
    let volumes = (bytes - HEADER_BYTES) / VOLUME_BYTES;
    let mut ops = Vec::new();
    for volume in 0..volumes {
        for _ in 0..copies {
            if volumes > 1 {
                ops.push(Op::TouchOwn { offset_bytes: *own_bytes, bytes: VOLUME_BYTES, write: true });
                *own_bytes += VOLUME_BYTES;
            }
            ops.push(Op::Compute { ns: VOLUME_BYTES * 1000 / MEMORY_READ_MB });
        }
        // An image has one header, before its first volume.
        let header = if volume == 0 { HEADER_BYTES } else { 0 };
        ops.push(Op::Append { file, bytes: header + VOLUME_BYTES });
    }
    ops
}

/// Seconds of each file in turn: of a read, or from the file's creation to the end of the last write.
fn files(recording: &Recording) -> Vec<(OpKind, f64)> {
    let mut all: Vec<(OpKind, f64)> = Vec::new();
    let mut opened_ns = 0;
    for call in &recording.calls {
        let end_ns = call.start_ns + call.duration_ns;
        match call.op {
            OpKind::Create => {
                opened_ns = end_ns;
                all.push((OpKind::Write, 0.0));
            }
            OpKind::Write => {
                let (_, seconds) = all.last_mut().expect("a file is created before it is written");
                *seconds = (end_ns - opened_ns) as f64 / 1e9;
            }
            OpKind::Read => all.push((OpKind::Read, call.duration_ns as f64 / 1e9)),
            _ => {}
        }
    }
    all
}

fn experiment_4(steps: &[Step], node: Node) {
    println!(
        "\n| experiment 4 | phase | measured s | flatwater s | flatwater error % | WRENCH error % |\n|---|---|---|---|---|---|"
    );
    let mut given = scenario(1, 4096, 0.0, node);
    given.workloads[0].entry = TRACED;
    let recording = run(&given);
    let mut files = files(&recording).into_iter();
    let (mut own, mut theirs) = (Vec::new(), Vec::new());
    for step in steps {
        let mut got_s = [0.0; 2];
        for ((op, seconds), (kind, ..)) in files.by_ref().take(step.ops.len()).zip(&step.ops) {
            assert_eq!(op == OpKind::Write, kind == "write", "{}: {op:?}", step.step);
            got_s[usize::from(kind == "write")] += seconds;
        }
        for (phase, name) in ["read", "write"].into_iter().enumerate() {
            let error = error_percent(got_s[phase], step.real_s[phase]);
            let (real, wrench) = (step.real_s[phase], step.wrench_error_percent[phase]);
            println!("| {} | {name} | {real:.3} | {:.3} | {error:.1} | {wrench:.1} |", step.step, got_s[phase]);
            own.push(error);
            theirs.push(wrench);
        }
    }
    println!("| mean of {} | | | | **{:.1}** | **{:.1}** |", own.len(), mean(&own), mean(&theirs));
}
