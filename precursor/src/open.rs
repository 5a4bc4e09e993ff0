//! Opening: probe, choose, recover, prepare, start the threads.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::ahead::{Ahead, map_file};
use crate::appender::{Appender, Side};
use crate::budget::{Limits, Part};
use crate::choose::{Choice, Facts, Wants, choose, examine};
use crate::core::{Core, Counters, DataFile, Files};
use crate::error::OpenError;
use crate::files::{Names, remove_if_present};
use crate::flush::{Flusher, grow};
use crate::frame;
use crate::hot::{Hot, HotPage};
use crate::lane::Lane;
use crate::live::{Birth, Line, LiveMap, remove_shm};
use crate::many::ManyAppender;
use crate::options::{BackPressure, Durability, Existing, Framing, Options};
use crate::plan::{Mode, Planner, Tuning};
use crate::probe::probe_names;
use crate::recover::recover_held;
use crate::ring::{RingMemory, RingNeeds, RingSide, Spare};
use crate::sidecar::{Sidecar, Taken};
use crate::space::Space;
use crate::stage::{add_stage, stage_bytes};
use crate::syncer::sync_every;
use crate::sys::{self, page_bytes};
use crate::timer::Timer;
use crate::window::WindowSide;
use crate::written::WrittenSide;

/// A window of one file for ever maps this much address space at first try; half, quarter ... where that is refused.
const MAP_BYTES: u64 = 1 << 40;

/// Where appending begins.
struct Place {
    seq: u64,
    /// Length of that file's data.
    len: u64,
    /// Position of its first byte.
    base: u64,
}

/// Everything settled before the first thread starts.
struct Plan {
    choice: Choice,
    tuning: Tuning,
    node: Option<u32>,
    place: Place,
}

impl Options {
    /// Opens for one producer.
    pub fn open(self) -> Result<Appender, OpenError> {
        let (core, plan) = prepare(&self, false)?;
        start(&self, core, plan)
    }

    /// Opens for many producers: framed records in a ring.
    pub fn open_many(mut self) -> Result<ManyAppender, OpenError> {
        self.framing = Framing::Records;
        let (core, plan) = prepare(&self, true)?;
        let appender = start(&self, core, plan)?;
        ManyAppender::of(appender).map_err(OpenError::io("start many producers on", &self.path))
    }
}

fn check(options: &Options, names: &Names, many: bool) -> Result<(), String> {
    if options.roll_bytes != 0 && !names.rolls() {
        return Err("a roll size needs {} in the file name".to_owned());
    }
    if options.roll_bytes == 0 && names.rolls() {
        return Err("{} in the file name needs a roll size".to_owned());
    }
    if !options.roll_bytes.is_multiple_of(page_bytes()) {
        return Err(format!("the roll size must be a multiple of {} bytes", page_bytes()));
    }
    if many && matches!(options.back_pressure, BackPressure::Grow { .. }) {
        return Err("many producers share one ring, which cannot grow; choose wait or fail".to_owned());
    }
    if options.ring_bytes > 1 << 40 || options.memory_bytes_max > 1 << 40 {
        return Err("a ring or ceiling above 1 TiB".to_owned());
    }
    Ok(())
}

fn prepare(options: &Options, many: bool) -> Result<(Arc<Core>, Plan), OpenError> {
    let path = &options.path;
    let problem = |problem: String| OpenError::Options { path: path.clone(), problem };
    let names = Names::of(path).map_err(problem)?;
    check(options, &names, many).map_err(problem)?;
    let mut sidecar = match Sidecar::take(&names).map_err(OpenError::io("lock the file beside", path))? {
        Taken::Ours(sidecar) => sidecar,
        Taken::Busy => return Err(OpenError::Busy { path: path.clone() }),
    };
    let facts = probe_names(&names, &options.shm_dir).map_err(OpenError::io("probe the folder of", path))?;
    let (choice, part) = match Part::take(|taken_bytes| {
        let facts = Facts { limits: Limits { taken_bytes, ..facts.limits }, ..facts };
        let choice = pick(options, &facts, many)?;
        let held = held_bytes(options, &choice);
        Ok((choice, held))
    }) {
        Ok(taken) => taken,
        Err(e) => {
            let _ = forget_empty(&sidecar, &names);
            return Err(e);
        }
    };
    let place = place(options, &names, &mut sidecar)?;
    let token = token();
    let (framed, mode) = (options.framing == Framing::Records, choice.mode);
    let birth = Birth { token, framed, many, position: place.base + place.len, seq: place.seq, base: place.base };
    let live = LiveMap::create(&options.shm_dir, &names.shm_stem(), birth)
        .map_err(OpenError::io("make the live block of", path))?;
    let current = data_file(options, &names, mode, &place).map_err(OpenError::io("open", path))?;
    let core = Arc::new(Core {
        mode,
        locked: choice.locked,
        shm_dir: options.shm_dir.clone(),
        token,
        framing: options.framing,
        back_pressure: options.back_pressure,
        roll_bytes: options.roll_bytes,
        memory_bytes: choice.budget.bytes,
        part,
        live,
        counters: Line(Counters::default()),
        files: Mutex::new(Files { current: Arc::new(current), older: Vec::new() }),
        next: AtomicPtr::new(std::ptr::null_mut()),
        durable: AtomicU64::new(place.base),
        failed: AtomicBool::new(false),
        failure: OnceLock::new(),
        space: Space::new(),
        closing: AtomicBool::new(false),
        helper: OnceLock::new(),
        stage: OnceLock::new(),
        sidecar: Mutex::new(None),
        names,
    });
    sidecar.write(&core.entry(place.seq, place.len)).map_err(OpenError::io("write the file beside", path))?;
    core.names.sync_dir().map_err(OpenError::io("sync the folder of", path))?;
    *crate::core::lock(&core.sidecar) = Some(sidecar);
    let tuning = tuning(options, &choice);
    let node = options.node.or_else(sys::node_here);
    Ok((core, Plan { choice, tuning, node, place }))
}

fn pick(options: &Options, facts: &Facts, many: bool) -> Result<Choice, OpenError> {
    let wants = Wants {
        readable_at_once: options.readable_at_once,
        many_producers: many,
        memory_bytes: options.memory_bytes_max.max(page_bytes()),
        shares: options.shares,
    };
    let refused = |mode: Mode, reason| OpenError::Refused { path: options.path.clone(), mode: mode.name(), reason };
    match options.mode {
        Some(mode) => examine(mode, facts, &wants).map_err(|reason| refused(mode, reason)),
        None => {
            let choice = choose(facts, &wants);
            let unfit = many && choice.mode != Mode::Ring;
            if unfit { Err(refused(Mode::Ring, choice.reasons.join("; "))) } else { Ok(choice) }
        }
    }
}

/// Most memory that the choice will hold locked, bytes.
fn held_bytes(options: &Options, choice: &Choice) -> u64 {
    let asked = match (choice.mode, options.back_pressure) {
        (Mode::Window, _) | (Mode::Ring, BackPressure::Grow { .. }) => choice.budget.bytes,
        (Mode::Ring, _) => options.ring_bytes.max(page_bytes()).next_power_of_two(),
        (Mode::Prefetch | Mode::Plain, _) => 0,
    };
    asked.min(choice.budget.bytes)
}

/// A sidecar that says nothing was made by this very open.
fn forget_empty(sidecar: &Sidecar, names: &Names) -> io::Result<()> {
    if sidecar.entry()?.is_none() { remove_if_present(&names.sidecar()) } else { Ok(()) }
}

fn place(options: &Options, names: &Names, sidecar: &mut Sidecar) -> Result<Place, OpenError> {
    let io = |what| OpenError::io(what, names.given());
    let present = names.present().map_err(io("list the files of"))?;
    if options.existing == Existing::Refuse
        && let Some(seq) = present.last()
    {
        let _ = forget_empty(sidecar, names);
        return Err(OpenError::Exists { path: names.path(*seq) });
    }
    if options.existing == Existing::Replace {
        for seq in present {
            remove_if_present(&names.path(seq)).map_err(io("remove a file of"))?;
        }
        if let Some(entry) = sidecar.entry().map_err(io("read the file beside"))? {
            remove_shm(&entry.shm_dir, &names.shm_stem()).map_err(io("remove the ring of"))?;
        }
        return Ok(Place { seq: 0, len: 0, base: 0 });
    }
    recover_held(names, sidecar)?;
    let length = |seq: u64| std::fs::metadata(names.path(seq)).map(|m| m.len());
    let present = names.present().map_err(io("list the files of"))?;
    let Some((&last, earlier)) = present.split_last() else { return Ok(Place { seq: 0, len: 0, base: 0 }) };
    let mut base = 0;
    for seq in earlier {
        base += length(*seq).map_err(io("look at a file of"))?;
    }
    let len = length(last).map_err(io("look at"))?;
    // A framed record must begin on a multiple of 8; what is there was not framed, or was cut by someone else.
    if options.framing == Framing::Records && len % frame::HEADER as u64 != 0 {
        return Err(OpenError::Options {
            path: names.given().to_owned(),
            problem: format!("its {len} bytes are not whole frames; open without framing or begin another file"),
        });
    }
    let full = options.roll_bytes != 0 && len + frame::END_MARK_LEN as u64 >= options.roll_bytes;
    Ok(if full { Place { seq: last + 1, len: 0, base: base + len } } else { Place { seq: last, len, base } })
}

fn data_file(options: &Options, names: &Names, mode: Mode, place: &Place) -> io::Result<DataFile> {
    let file = names.open(place.seq)?;
    let map = match mode {
        Mode::Window if options.roll_bytes != 0 => Some(map_file(&file, options.roll_bytes as usize)?),
        Mode::Window => Some(map_largest(&file, place.len)?),
        _ => None,
    };
    Ok(DataFile { seq: place.seq, file, map, warm: AtomicU64::new(0), zeroed: AtomicU64::new(0) })
}

/// Maps as much as the address space allows, so that one file may grow without being mapped again.
fn map_largest(file: &std::fs::File, len: u64) -> io::Result<sys::Mapping> {
    let mut bytes = MAP_BYTES.max(len.saturating_mul(2).next_multiple_of(page_bytes()));
    loop {
        match map_file(file, usize::try_from(bytes).unwrap_or(usize::MAX / 2)) {
            Err(_) if bytes / 2 > len.saturating_add(64 << 20) => bytes = (bytes / 2).next_multiple_of(page_bytes()),
            other => return other,
        }
    }
}

fn tuning(options: &Options, choice: &Choice) -> Tuning {
    let ahead_bytes = choice.budget.bytes - stage_bytes(options, choice);
    let mut tuning = Tuning::new(choice.mode, ahead_bytes.max(4 * page_bytes()));
    if let Some(window) = options.window_bytes {
        let most = tuning.ahead_bytes_max / 4;
        tuning.window_bytes = (window.clamp(page_bytes(), most.max(page_bytes())) / page_bytes()) * page_bytes();
        tuning.ahead_bytes_min = (4 * tuning.window_bytes).min(tuning.ahead_bytes_max);
    }
    tuning.roll_bytes = options.roll_bytes;
    tuning.write_back_bytes_per_s = options.write_back_bytes_per_s;
    if choice.mode == Mode::Prefetch {
        // Its zeros are written, not merely promised.
        tuning.allocate_bytes = 8 << 20;
    }
    tuning
}

/// Tells this run's shared memory from an earlier one's.
fn token() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_le_bytes(bytes) | 1,
        _ => u64::from(std::process::id()) << 32 | 1,
    }
}

fn start(options: &Options, core: Arc<Core>, plan: Plan) -> Result<Appender, OpenError> {
    let path: &Path = &options.path;
    let cursor = plan.place.base + plan.place.len;
    let framed = options.framing == Framing::Records;
    let lane = Lane { base: std::ptr::null_mut(), mask: u64::MAX, cursor, limit: cursor, framed };
    let hot = HotPage::new(Hot { lane, worst_ticks: 0, appends: 0, reserved: 0 })
        .map_err(OpenError::io("make the writer's page of", path))?;
    let current = Arc::clone(&crate::core::lock(&core.files).current);
    let mut appender = Appender {
        hot,
        measure: options.measure,
        timer: Timer::calibrated(),
        record_max: frame::LEN_MAX,
        side: Side::Written(WrittenSide::new(Arc::clone(&current), plan.place.base)),
        core,
        threads: Vec::new(),
        reasons: plan.choice.reasons.clone(),
        durability: options.durability,
    };
    match plan.choice.mode {
        Mode::Plain => {}
        Mode::Ring => {
            start_ring(options, &mut appender, &plan, current).map_err(OpenError::io("make the ring of", path))?
        }
        Mode::Window | Mode::Prefetch => {
            start_ahead(options, &mut appender, &plan, current)
                .map_err(OpenError::io("prepare the first window of", path))?;
        }
    }
    if let Durability::Every(period) = options.durability {
        let core = Arc::clone(&appender.core);
        spawn(options, &mut appender, plan.node, "precursor-sync", move || sync_every(&core, period))
            .map_err(OpenError::io("start a thread for", path))?;
    }
    Ok(appender)
}

fn start_ring(options: &Options, appender: &mut Appender, plan: &Plan, file: Arc<DataFile>) -> io::Result<()> {
    let core = Arc::clone(&appender.core);
    let asked = options.ring_bytes.max(page_bytes()).next_power_of_two();
    let most = plan.choice.budget.bytes.max(16 * page_bytes());
    let capacity = asked.min(1 << most.ilog2());
    if capacity < asked {
        appender.reasons.push(format!(
            "ring of {} KiB instead of {}: {}",
            capacity >> 10,
            asked >> 10,
            plan.choice.budget.bound.name()
        ));
    }
    if !core.live.survives_process() {
        appender.reasons.push(
            "no shared-memory file: the ring dies with the process, and only sync_to protects from that".to_owned(),
        );
    }
    let stem = core.names.shm_stem();
    let named = core.live.survives_process();
    let needs = RingNeeds { dir: &core.shm_dir, stem: &stem, node: plan.node, locked: core.locked, named };
    let ring = Arc::new(RingMemory::create(&needs, 0, capacity)?);
    if let Some(entry) = core.live.rings.first() {
        entry.capacity.store(capacity, Ordering::Relaxed);
        entry.start.store(appender.hot.lane.cursor, Ordering::Relaxed);
        core.live.ring_count.store(1, Ordering::Release);
    }
    (appender.hot.lane.base, appender.hot.lane.mask) = (ring.base(), capacity - 1);
    appender.record_max = (capacity / 2) as usize - frame::HEADER;
    let spare = Arc::new(Spare::none());
    let side = RingSide::new(Arc::clone(&ring), Arc::clone(&spare), appender.hot.lane.cursor, plan.place.base);
    appender.side = Side::Ring(side);
    let mut made = None;
    if let BackPressure::Grow { .. } = options.back_pressure {
        let (send, receive) = std::sync::mpsc::channel();
        made = Some(receive);
        let (core, node) = (Arc::clone(&core), plan.node);
        spawn(options, appender, plan.node, "precursor-grow", move || grow(&core, &spare, &send, node, capacity))?;
    }
    let flusher = Flusher::new(Arc::clone(&core), Planner::new(plan.tuning), ring, made, file, plan.place.base);
    spawn(options, appender, plan.node, "precursor-flush", move || flusher.run())?;
    remember_helper(appender);
    Ok(())
}

fn start_ahead(options: &Options, appender: &mut Appender, plan: &Plan, file: Arc<DataFile>) -> io::Result<()> {
    let core = Arc::clone(&appender.core);
    if plan.choice.mode == Mode::Window {
        add_stage(options, appender, &plan.choice, plan.node);
    }
    let mut ahead = Ahead::new(core, Planner::new(plan.tuning), Arc::clone(&file), plan.place.base, plan.place.len)?;
    ahead.first()?;
    if plan.choice.mode == Mode::Window {
        let window = WindowSide::enter(&appender.core, file, plan.place.base, &mut appender.hot.lane);
        appender.side = Side::Window(window);
        let t = &plan.tuning;
        let warm = t.ahead_bytes_min.saturating_sub(t.window_bytes).max(t.window_bytes / 2);
        let ring = appender.core.stage.get().map_or(u64::MAX, |stage| stage.ring.capacity / 2);
        appender.record_max = warm.min(ring) as usize - frame::HEADER;
    }
    spawn(options, appender, plan.node, "precursor-ahead", move || ahead.run())?;
    remember_helper(appender);
    Ok(())
}

fn remember_helper(appender: &Appender) {
    if let Some(last) = appender.threads.last() {
        // Set once per appender, here.
        let _ = appender.core.helper.set(last.thread().clone());
    }
}

fn spawn(
    options: &Options,
    appender: &mut Appender,
    node: Option<u32>,
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let cpu = options.helper_cpu;
    if let Some(cpu) = cpu {
        appender.reasons.push(format!("{name} on CPU {cpu}"));
    }
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        // Wishes: a CPU or node that is not there leaves the thread where the scheduler puts it.
        let _ = cpu.map(sys::pin_here);
        let _ = node.map(sys::prefer_node_here);
        work();
    })?;
    appender.threads.push(thread);
    Ok(())
}
