//! Opening: probe, choose, recover, prepare, start the threads.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};

use crate::ahead::map_file;
use crate::appender::Appender;
use crate::budget::{Limits, Part};
use crate::choose::{Choice, Facts, Wants, choose, examine};
use crate::core::{Core, Counters, DataFile, Files};
use crate::error::OpenError;
use crate::files::{Names, remove_if_present};
use crate::frame;
use crate::live::{Birth, Line, LiveMap, remove_shm};
use crate::many::ManyAppender;
use crate::options::{BackPressure, Existing, Framing, Options};
use crate::plan::{Mode, Tuning};
use crate::probe::probe_names;
use crate::recover::recover_held;
use crate::sidecar::{Sidecar, Taken};
use crate::space::Space;
use crate::stage::stage_bytes;
use crate::start::start;
use crate::sys::{self, page_bytes};

/// A window of one file for ever maps this much address space at first try; half, quarter ... where that is refused.
const MAP_BYTES: u64 = 1 << 40;

/// Where appending begins.
pub(crate) struct Place {
    seq: u64,
    /// Length of that file's data.
    pub(crate) len: u64,
    /// Position of its first byte.
    pub(crate) base: u64,
    /// What was found of a dead writer, for people.
    found: Option<String>,
}

/// Everything settled before the first thread starts.
pub(crate) struct Plan {
    pub(crate) choice: Choice,
    pub(crate) tuning: Tuning,
    pub(crate) node: Option<u32>,
    pub(crate) place: Place,
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
    let (mut choice, part) = match Part::take(|taken_bytes| {
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
    let mut place = place(options, &names, &mut sidecar)?;
    choice.reasons.extend(place.found.take());
    choice.reasons.extend(crate::leftovers::sentence(&options.shm_dir));
    let token = token();
    let (framed, mode) = (options.framing == Framing::Records, choice.mode);
    let data = names.full();
    let (position, seq, base) = (place.base + place.len, place.seq, place.base);
    let birth = Birth { token, data: &data, framed, many, position, seq, base };
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
        return Ok(Place { seq: 0, len: 0, base: 0, found: None });
    }
    let found = recover_held(names, sidecar)?.sentence();
    let length = |seq: u64| std::fs::metadata(names.path(seq)).map(|m| m.len());
    let present = names.present().map_err(io("list the files of"))?;
    let Some((&last, earlier)) = present.split_last() else { return Ok(Place { seq: 0, len: 0, base: 0, found }) };
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
    Ok(match full {
        true => Place { seq: last + 1, len: 0, base: base + len, found },
        false => Place { seq: last, len, base, found },
    })
}

fn data_file(options: &Options, names: &Names, mode: Mode, place: &Place) -> io::Result<DataFile> {
    let file = names.open(place.seq)?;
    let map = match mode {
        Mode::Window if options.roll_bytes != 0 => Some(map_file(&file, options.roll_bytes as usize)?),
        Mode::Window => Some(map_largest(&file, place.len)?),
        _ => None,
    };
    Ok(DataFile { seq: place.seq, file: Arc::new(file), map, warm: AtomicU64::new(0), zeroed: AtomicU64::new(0) })
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
