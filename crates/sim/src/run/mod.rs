//! Runs a scenario: builds the machine, starts its tasks, lets time pass, gathers the recording.

pub mod actor;
pub mod invariant;
pub mod monitor;
pub mod options;
pub mod precursor_steps;
pub mod prepare;
pub mod process;
pub mod recorder;
pub mod sample;
pub mod warm;

use crate::constant::constants;
use crate::kernel::PAGE_BYTES;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::block;
use crate::block::Block;
use crate::block::device::Device;
use crate::block::disk::DiskModel;
use crate::constant;
use crate::fs::file_system::FileSystem;
use crate::fs::journal;
use crate::kernel::{self, Profile, Throttle};
use crate::machine::Machine;
use crate::machine::bounds::{self, Bound};
use crate::machine::build;
use crate::machine::knobs::{DeviceKnobs, Knobs, NR_REQUESTS, number};
use crate::machine::model_inputs::ModelInputs;
use crate::machine::refuse;
use crate::mm::memory::Mm;
use crate::mm::zone;
use crate::run::actor::{Shared, Who};
use crate::run::invariant::Broken;
use crate::run::options::{Options, Truth};
use crate::run::recorder::Recorder;
use crate::sched::clock::Clock;
use crate::sched::cpu::Cpus;
use crate::sched::task::Task;
use crate::v22::{self, Old};
use crate::writeback;
use crate::writeback::Writeback;
use crate::writeback::flusher;
use crate::writeback::io_less;
use flatwater_recording::{
    Clock as ClockInfo, Event, EventKind, FORMAT_VERSION, Gap, Header, NodeShape, OwnCost, Recording, Setup, Source,
    Target,
};
use flatwater_workload::scenario::{DiskSpec, FIRST_DEVICE, Scenario, WorkloadSpec};
use flatwater_workload::{Actor, ActorStart, ParamError, Role};

#[derive(Debug, thiserror::Error)]
pub enum SimError {
    #[error("no model of kernel '{kernel}', only of {known}")]
    UnknownKernel { kernel: String, known: String },
    #[error("the machine of scenario '{scenario}' cannot be modelled: {why}")]
    Machine { scenario: String, why: Bound },
    #[error(
        "the model of {kernel} cannot express scenario '{scenario}': it has not {mechanism}; \
         change the scenario, or run it on a host or in a vm"
    )]
    Missing { scenario: String, kernel: &'static str, mechanism: String },
    #[error(transparent)]
    Workload(#[from] ParamError),
    #[error("the model lost track of a page after {at_ns} ns (seed {seed}): {what}; this is a bug of the model")]
    Conservation { at_ns: u64, seed: u64, what: Broken },
}

constants! {
    /// Time slice of a thread.
    const SLICE_NS: u64 = assumed(10_000_000, "between the slices of CFS and of the O(1) scheduler");
}

pub(crate) const NEWEST: &str = "linux-6.18";

/// The profile of the kernel that the scenario names.
fn profile_of(scenario: &Scenario) -> Result<Profile, SimError> {
    let known = || kernel::PROFILES.iter().map(|make| make().name).collect::<Vec<_>>().join(", ");
    // A scenario without a kernel runs on the newest modelled one.
    let name = scenario.kernel.as_deref().unwrap_or(NEWEST);
    kernel::find(name).ok_or_else(|| SimError::UnknownKernel { kernel: name.to_owned(), known: known() })
}

/// Every constant that a run of the scenario uses and every input that it assumes, with their origins.
pub fn constants(scenario: &Scenario) -> Result<String, SimError> {
    let profile = profile_of(scenario)?;
    Ok(constant::text(&profile, &constant::inputs::of_scenario(scenario)))
}

/// Runs the scenario on the kernel that it names.
pub fn run(scenario: &Scenario) -> Result<(Recording, Truth), SimError> {
    run_with(scenario, &Options::default(), |_| true)
}

/// As `run`; calls `watch` with the virtual time now and then, which may end the run.
pub fn run_with(
    scenario: &Scenario,
    options: &Options,
    watch: impl FnMut(u64) -> bool,
) -> Result<(Recording, Truth), SimError> {
    let (machine, seed) = built(scenario, options)?;
    machine.clock.run(watch);
    checked(&machine, seed)?;
    Ok(finish(&machine, scenario, seed))
}

/// The machine with every task started and its set-up performed.
pub(crate) fn built(scenario: &Scenario, options: &Options) -> Result<(Rc<Machine>, u64), SimError> {
    let mut profile = profile_of(scenario)?;
    if let Some(mechanism) = refuse::missing(scenario, &profile) {
        return Err(SimError::Missing { scenario: scenario.name.clone(), kernel: profile.name, mechanism });
    }
    profile.throttle = options.ablations.throttle.unwrap_or(profile.throttle);
    if !options.ablations.lowmem_limit {
        profile.lowmem_bytes = None;
    }
    let seed = options.seed.unwrap_or(scenario.seed);
    let machine = Rc::new(make(scenario, profile, options, seed)?);
    start(&machine, scenario, seed)?;
    Ok((machine, seed))
}

/// Checks that no page was lost.
pub(crate) fn checked(machine: &Machine, seed: u64) -> Result<(), SimError> {
    let queues = || machine.devices.iter().try_for_each(|device| device.block.borrow().check());
    let own = || machine.mm.borrow().check().and_then(|()| queues());
    let what = machine.old.as_ref().map_or_else(own, |old| old.borrow().check());
    what.map_err(|what| SimError::Conservation { at_ns: machine.clock.now(), seed, what })
}

/// Builds the machine.
fn make(scenario: &Scenario, profile: Profile, options: &Options, seed: u64) -> Result<Machine, SimError> {
    let shape = build::shape(&scenario.machine, &profile);
    bounds::of_machine(&scenario.machine, &shape, &profile).map_err(|why| why.of(scenario))?;
    bounds::of_files(scenario, seed)?;
    let nodes = shape.node_bytes.len();
    let speed = u64::from(scenario.machine.cpu_speed_percent.unwrap_or(100)).max(1);
    let mut mm = memory_after_boot(scenario, &profile, &shape);
    bounds::of_memory(&mm).map_err(|why| why.of(scenario))?;
    let total = mm.managed();
    let knobs = starting_knobs(scenario, &profile, &shape, &mm);
    zone::set_watermarks(&mut mm.zones, knobs.min_free_kbytes, knobs.watermark_scale_factor, &profile);
    let inputs = ModelInputs::of(scenario).map_err(|why| why.of(scenario))?;
    build::fill(&mut mm, &inputs);
    bounds::of_processes(&inputs, &mm).map_err(|why| why.of(scenario))?;
    if has_cgroup(scenario) {
        mm.open_cgroup();
    }
    build::add_devices(&mut mm, scenario);
    let old = profile.buffer_cache.map(|rules| {
        RefCell::new(Old::new(shape.node_bytes.iter().sum(), rules, shape.disk, options.ablations.orphaning))
    });
    let machine = Machine {
        clock: Clock::new(scenario.duration.0),
        costs: profile.costs.values().at_speed(speed),
        inputs,
        speed_percent: speed,
        knobs: RefCell::new(knobs),
        ablations: options.ablations,
        cpus: RefCell::new(cpus(&shape)),
        mm: RefCell::new(mm),
        devices: devices(scenario, &profile, &shape),
        coming: RefCell::default(),
        wb: RefCell::new(Writeback::new(shape.cpus)),
        kswapd: RefCell::new(vec![None; nodes]),
        owed: Cell::default(),
        blocked: Cell::new(0),
        shared: scenario.workloads.iter().map(|_| RefCell::new(Shared::default())).collect(),
        aheads: RefCell::default(),
        precursor_used: Cell::new(false),
        skips_setup: old.is_none(),
        prepares: prepare::is_due(scenario, &profile, total * PAGE_BYTES, seed)?,
        preparing: Cell::new(0),
        start_ns: Cell::new(0),
        ready: RefCell::default(),
        old,
        series: RefCell::new(sample::tables(has_cgroup(scenario))),
        samples_from_ns: Cell::new(0),
        recorder: RefCell::new(Recorder::new(profile.generation, scenario.threshold.0, scenario.duration.0)),
        dice: build::generator(seed, 1),
        profile,
    };
    machine.apply(&scenario.setup);
    for (device, (_, _, setup)) in machine.devices.iter().zip(scenario.devices()).skip(1) {
        device.apply(setup, &machine.profile, &machine.clock);
    }
    machine.set_ratelimit();
    Ok(machine)
}

/// Memory after boot, without the memory that the kernel and other processes use.
fn memory_after_boot(scenario: &Scenario, profile: &Profile, shape: &build::Shape) -> Mm {
    let mut mm = build::memory(profile, &shape.node_bytes, shape.cpus);
    build::take_away(&mut mm, &scenario.machine);
    build::set_boot_minimums(&mut mm, &scenario.machine);
    if profile.is_6() {
        build::keep_buffers(&mut mm, &scenario.machine);
    }
    mm
}

/// CPU i belongs to node i mod nodes, as on the machines of the case studies.
fn cpus(shape: &build::Shape) -> Cpus {
    let nodes: Vec<usize> = (0..shape.cpus).map(|cpu| cpu % shape.node_bytes.len()).collect();
    Cpus::new(&nodes, SLICE_NS.get())
}

/// Settings of the kernel at boot on this machine, then those of the scenario.
fn starting_knobs(scenario: &Scenario, profile: &Profile, shape: &build::Shape, mm: &Mm) -> Knobs {
    let far = mm.nodes > 1 && profile.reclaim_distance.is_some_and(|limit| shape.distance > limit.get());
    let ratelimit = writeback::ratelimit_pages(mm.managed(), shape.cpus as u64);
    let min_free = zone::default_min_free_kbytes(&mm.zones, profile);
    let mut knobs = Knobs::defaults(profile, min_free, u64::from(far), ratelimit);
    knobs.apply(&scenario.setup);
    knobs
}

/// The machine's devices with their settings.
fn devices(scenario: &Scenario, profile: &Profile, shape: &build::Shape) -> Vec<Device> {
    let models =
        std::iter::once(shape.disk).chain(scenario.machine.devices.iter().map(|own| build::disk(&own.disk, profile)));
    let all = scenario.devices().zip(models);
    all.map(|((name, disk, setup), model)| device(name, disk, setup, model, profile)).collect()
}

fn device(name: &str, disk: &DiskSpec, setup: &Setup, model: DiskModel, profile: &Profile) -> Device {
    let file_system = FileSystem::of(disk, setup, profile);
    let mut knobs = DeviceKnobs::defaults(profile);
    // 6.x: a flash disk of several queues has no scheduler.
    if model.in_order {
        "none".clone_into(&mut knobs.scheduler);
    }
    knobs.commit_interval_ns = file_system.commit_interval_ns;
    knobs.apply(setup);
    Device::new(name, file_system, knobs, Block::new(model, NR_REQUESTS.get() as u32))
}

pub(crate) fn has_cgroup(scenario: &Scenario) -> bool {
    scenario.setup.get("cgroup.memory_limit").is_some()
}

/// Starts the kernel's threads and every actor.
fn start(m: &Rc<Machine>, scenario: &Scenario, seed: u64) -> Result<(), SimError> {
    if m.old.is_some() {
        v22::start(m);
    } else {
        process::start_kswapds(m);
        if m.inputs.process_memory > 0 {
            process::start(m, m.inputs.process_node as usize, m.inputs.process_memory);
        }
        start_threads(m);
    }
    m.clock.spawn(sample::sampler(m.clone(), scenario.duration.0));
    if !m.prepares {
        m.clock.spawn(monitor::timeline(m.clone(), scenario.timeline.clone()));
        process::start_others(m, &scenario.machine);
    }
    if !scenario.machine.cgroup_grows.is_empty() {
        m.clock.spawn(process::grow_in_cgroup(m.clone(), scenario.machine.cgroup_grows.clone()));
    }
    for (number, spec) in scenario.workloads.iter().enumerate() {
        start_workload(m, scenario, spec, number as u32, seed)?;
    }
    if m.prepares {
        prepare::all(m, scenario)?;
    }
    Ok(())
}

fn start_threads(m: &Rc<Machine>) {
    for device in m.device_ids() {
        m.clock.spawn(block::device(m.clone(), device));
    }
    // fs/super.c: sget puts a new file system at the end of the list, and fs/fs-writeback.c: writeback_inodes begins
    // there.
    let flushers = match m.profile.throttle {
        Throttle::None => Vec::new(),
        rule if rule.has_pdflush() => {
            m.device_ids().skip(1).for_each(|device| {
                m.clock.spawn(flusher::background(m.clone(), device));
            });
            vec![m.device_ids().rev().collect()]
        }
        _ => m.device_ids().map(|device| vec![device]).collect(),
    };
    for devices in flushers {
        m.clock.spawn(flusher::flusher(m.clone(), devices));
    }
    if m.is_estimated_by_file() {
        m.device_ids().for_each(|device| {
            m.clock.spawn(io_less::estimator(m.clone(), device));
        });
    }
    for device in m.device_ids().filter(|&device| m.device(device).file_system.has_log) {
        m.clock.spawn(journal::kjournald(m.clone(), device));
    }
    m.clock.spawn(monitor::slabinfo_reader(m.clone()));
}

fn start_workload(
    m: &Rc<Machine>,
    scenario: &Scenario,
    spec: &WorkloadSpec,
    number: u32,
    seed: u64,
) -> Result<(), SimError> {
    let workload = (spec.entry.build)(&spec.params, seed.wrapping_add(u64::from(number)))?;
    let actors = spec.actors(workload.as_ref());
    {
        let mut recorder = m.recorder.borrow_mut();
        recorder.observers.push(workload.observer());
        recorder.workloads.push(workload);
    }
    let end_ns = spec.duration.map_or(u64::MAX, |duration| spec.start.0 + duration.0);
    let mut dormant = Vec::with_capacity(actors.len());
    for (place, actor) in actors.into_iter().enumerate() {
        let task = place_task(m, scenario, spec, place);
        let who = Who {
            workload: number,
            actor: place as u32,
            name: actor.name.as_str().into(),
            foreground: actor.role == Role::Foreground,
            start_ns: spec.start.0,
            end_ns,
        };
        match actor.start {
            ActorStart::Immediately => {
                m.preparing.set(m.preparing.get() + 1);
                m.clock.spawn(actor::run(m.clone(), who, actor, task, None));
                dormant.push(None);
            }
            ActorStart::OnSpawn => dormant.push(Some((actor, task))),
        }
    }
    put_dormant(m, number, dormant);
    Ok(())
}

fn put_dormant(m: &Machine, workload: u32, dormant: Vec<Option<(Actor, Task)>>) {
    m.shared[workload as usize].borrow_mut().dormant = dormant;
}

/// A workload's own placement, else the setup's, as on a host.
fn place_task(m: &Machine, scenario: &Scenario, spec: &WorkloadSpec, place: usize) -> Task {
    let cpus = m.cpus.borrow();
    let placed = |key| number(&scenario.setup, key).and_then(|number| u32::try_from(number).ok());
    let node = spec.node.or_else(|| placed("placement.node"));
    let node = node.map(|node| node as usize).filter(|&node| node < m.mm.borrow().nodes);
    let cpu = spec.cpu.or_else(|| placed("placement.cpu"));
    let pinned = cpu.map(|cpu| cpu as u16).filter(|cpu| usize::from(*cpu) < cpus.len());
    let cpu = pinned.unwrap_or_else(|| cpus.pick(node, place));
    let mut task = Task::new(cpus.node_of(cpu), cpu);
    task.pinned = pinned;
    task.bound_node = node;
    task.in_cgroup = !m.mm.borrow().cgroup.lruvecs.is_empty();
    task
}

pub(crate) fn finish(m: &Machine, scenario: &Scenario, seed: u64) -> (Recording, Truth) {
    sample::take(m);
    let mut recorder = m.recorder.borrow_mut();
    recorder.close_buckets(m.clock.now());
    let series = std::mem::take(&mut *m.series.borrow_mut());
    let outcomes = std::mem::take(&mut recorder.observers).into_iter().flatten();
    let outcomes = outcomes.filter_map(|observer| observer.outcome(&series)).collect();
    let mm = m.mm.borrow();
    let truth = Truth {
        stalls: std::mem::take(&mut recorder.truth),
        operations: recorder.operations,
        events: m.clock.events.get(),
        frames: mm.managed(),
        chunks: mm.chunks.held(),
        over_limit: m.wb.borrow().over_limit,
    };
    let mut calls = std::mem::take(&mut recorder.calls);
    calls.sort_by_key(|call| (call.start_ns, call.tid));
    let mut events = std::mem::take(&mut recorder.events);
    events.push(Event::new(m.start_ns.get(), EventKind::Start("start".to_owned())));
    events.push(Event::new(m.clock.now(), EventKind::End("end".to_owned())));
    events.sort_by_key(|event| event.at_ns);
    let gaps = (recorder.dropped_calls > 0).then(|| {
        let why = format!("{} slow calls more than are kept one by one", recorder.dropped_calls);
        Gap::new("slow calls", why, "raise the scenario's threshold")
    });
    let recording = Recording {
        header: header(m, scenario, seed),
        latency: std::mem::take(&mut recorder.latency),
        calls,
        stacks: std::mem::take(&mut recorder.stacks),
        series,
        events,
        gaps: gaps.into_iter().collect(),
        outcomes,
        ..Recording::default()
    };
    (recording, truth)
}

fn header(m: &Machine, scenario: &Scenario, seed: u64) -> Header {
    let mm = m.mm.borrow();
    let cpus = m.cpus.borrow();
    let distance = scenario.machine.distance.unwrap_or(20);
    let nodes = (0..mm.nodes).map(|node| NodeShape {
        node: node as u32,
        cpus: (0..cpus.len() as u32).filter(|cpu| cpus.node_of(*cpu as u16) == node).collect(),
        memory_bytes: Some(
            mm.zones.iter().filter(|zone| zone.node == node).map(|zone| zone.managed * PAGE_BYTES).sum(),
        ),
        distances: (0..mm.nodes).map(|other| if other == node { 10 } else { distance }).collect(),
    });
    let inputs = scenario.model.iter().map(|(key, value)| (key.clone(), value.clone()));
    let parameters = scenario.workloads.iter().flat_map(|spec| {
        spec.params.iter().map(|(name, value)| (format!("{}.{name}", spec.label), value.to_owned())).collect::<Vec<_>>()
    });
    let mut header = Header {
        format_version: FORMAT_VERSION,
        written_by: env!("CARGO_PKG_VERSION").to_owned(),
        source: Source::Sim,
        clock: ClockInfo { start_ns: m.start_ns.get(), ..ClockInfo::default() },
        duration_ns: m.clock.now() - m.start_ns.get(),
        setup: m.observed().with(&scenario.setup),
        scenario: Some(scenario.name.clone()),
        scenario_text: Some(scenario.text.clone()),
        seed,
        threshold_ns: scenario.threshold.0,
        target: Target {
            what: scenario.name.clone(),
            file_system: scenario.machine.disk.file_system.clone(),
            device: Some(FIRST_DEVICE.to_owned()),
            parameters: parameters.chain(inputs).collect(),
            ..Target::default()
        },
        own_cost: OwnCost::default(),
        complete: true,
        ..Header::default()
    };
    header.machine.kernel = Some(m.profile.name.to_owned());
    header.machine.cpus = Some(cpus.len() as u32);
    header.machine.page_bytes = Some(PAGE_BYTES);
    header.machine.memory_bytes = Some(mm.managed() * PAGE_BYTES);
    header.machine.nodes = nodes.collect();
    header
        .notes
        .push(format!("simulated on a model of {}: docs/simulator.md lists what it leaves out", m.profile.name).into());
    header
}
