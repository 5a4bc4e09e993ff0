//! Opening: probes the machine, chooses a mode, recovers, prepares, and starts the threads.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::appender::Appender;
use crate::budget::{Limits, Part};
use crate::choose::{Choice, Facts, ModeRefusal, Wants, choose, examine};
use crate::core::{Core, Counters, DataFile, Files, Signals};
use crate::error::OpenError;
use crate::files::{Names, header_of, read_full};
use crate::fork::Born;
use crate::frame::{self, Format};
use crate::handles::Dir;
use crate::helper::map_file;
use crate::live::{Birth, Line, LiveMap, remove_shm};
use crate::many::ManyAppender;
use crate::mode::Mode;
use crate::options::{BackPressure, Existing, Framing, Options};
use crate::plan::Tuning;
use crate::probe::{boot_id, probe_names, random};
use crate::recover::{Ended, recover_locked};
use crate::sidecar::{Sidecar, Taken};
use crate::space::Space;
use crate::stage::stage_bytes;
use crate::start::start;
use crate::stats::After;
use crate::sys::{self, page_bytes};

/// Address space first tried for the window of a single file, bytes; halved while the kernel refuses it.
const MAP_BYTES: u64 = 1 << 40;

/// Where appending starts.
pub(crate) struct Place {
    pub(crate) seq: u64,
    /// Length of the data in that file, bytes.
    pub(crate) len: u64,
    /// Position of that file's first byte.
    pub(crate) base: u64,
    /// Number of the next record.
    pub(crate) number: u64,
    /// What recovery found, for people.
    found: Option<String>,
}

/// Settings that are fixed before the first thread starts.
pub(crate) struct Plan {
    pub(crate) choice: Choice,
    pub(crate) tuning: Tuning,
    pub(crate) node: Option<u32>,
    pub(crate) place: Place,
}

impl Options {
    /// Opens for a single producer.
    pub fn open(self) -> Result<Appender, OpenError> {
        if self.mode.is_none() { self.open_auto() } else { self.attempt(false, None) }
    }

    fn open_auto(self) -> Result<Appender, OpenError> {
        let opened = match self.attempt(false, None) {
            // Shared memory may have run full since the probe.
            Err(OpenError::Io { source, .. }) if source.kind() == io::ErrorKind::StorageFull => {
                let dir = self.shm_dir.display();
                self.attempt(false, Some(format!("not ring: no room in {dir}; enlarge it, or use a smaller ring")))?
            }
            other => other?,
        };
        if self.process_death_may_lose || opened.survival().process_death == After::Append {
            return Ok(opened);
        }
        // Not even the page of the live block could be created.
        let mut reasons = opened.reasons().to_vec();
        reasons.push(format!("not {}: {}", opened.mode().name(), ModeRefusal::Unframed));
        // The first attempt has refused an existing file; the file that it created exists by now.
        let existing = if self.existing == Existing::Refuse { Existing::Continue } else { self.existing };
        let path = self.path.clone();
        opened.close().map_err(|e| OpenError::io("close", &path)(io::Error::other(e.to_string())))?;
        let mut opened = Options { mode: Some(Mode::Plain), existing, ..self }.attempt(false, None)?;
        opened.reasons.splice(0..0, reasons);
        Ok(opened)
    }

    /// Opens for many producers: framed records in a ring, whether or not its shared memory outlives the process
    /// ([`ManyAppender::survival`]).
    pub fn open_many(mut self) -> Result<ManyAppender, OpenError> {
        self.framing = Framing::Records;
        let appender = self.attempt(true, None)?;
        ManyAppender::of(appender).map_err(OpenError::io("start many producers on", &self.path))
    }

    /// Opens once. `full`: the reason to do without a ring.
    fn attempt(&self, many: bool, full: Option<String>) -> Result<Appender, OpenError> {
        let (core, plan) = prepare(self, many, full)?;
        start(self, core, plan)
    }
}

/// Why options are invalid.
#[derive(Debug, thiserror::Error)]
enum OptionsProblem {
    #[error("a roll size needs {{}} in the file name")]
    RollWithoutPattern,
    #[error("{{}} in the file name needs a roll size")]
    PatternWithoutRoll,
    #[error("roll_every, retain_files and retain_bytes need a roll size, and {{}} in the file name")]
    KeepWithoutPattern,
    #[error("the roll size must be a multiple of {0} bytes")]
    RollOfPartPages(u64),
    #[error("the ring of many producers cannot grow; choose BackPressure::Wait or Fail")]
    ManyGrow,
    #[error("ring_bytes or memory_bytes_max is above 1 TiB")]
    TooLarge,
    #[error("this machine has no CPU {0} for the helper threads")]
    NoCpu(u32),
    #[error("this machine has no NUMA node {0}")]
    NoNode(u32),
}

fn check(options: &Options, names: &Names, many: bool) -> Result<(), OptionsProblem> {
    if options.roll_bytes != 0 && !names.rolls() {
        return Err(OptionsProblem::RollWithoutPattern);
    }
    if options.roll_bytes == 0 && names.rolls() {
        return Err(OptionsProblem::PatternWithoutRoll);
    }
    if !names.rolls() && options.keep.is_needed() {
        return Err(OptionsProblem::KeepWithoutPattern);
    }
    if !options.roll_bytes.is_multiple_of(page_bytes()) {
        return Err(OptionsProblem::RollOfPartPages(page_bytes()));
    }
    if many && matches!(options.back_pressure, BackPressure::Grow { .. }) {
        return Err(OptionsProblem::ManyGrow);
    }
    if options.ring_bytes > 1 << 40 || options.memory_bytes_max > 1 << 40 {
        return Err(OptionsProblem::TooLarge);
    }
    if let Some(cpu) = options.helper_cpu.filter(|cpu| !sys::has_cpu(*cpu)) {
        return Err(OptionsProblem::NoCpu(cpu));
    }
    if let Some(node) = options.node.filter(|node| !sys::has_node(*node)) {
        return Err(OptionsProblem::NoNode(node));
    }
    Ok(())
}

fn prepare(options: &Options, many: bool, full: Option<String>) -> Result<(Arc<Core>, Plan), OpenError> {
    let path = &options.path;
    let problem = |problem: String| OpenError::Options { path: path.clone(), problem };
    let names = Names::of(path).map_err(|error| problem(error.to_string()))?;
    check(options, &names, many).map_err(|error| problem(error.to_string()))?;
    let mut sidecar = match Sidecar::take(&names).map_err(OpenError::io("lock the sidecar of", path))? {
        Taken::Ours(sidecar) => sidecar,
        Taken::Busy => return Err(OpenError::Busy { path: path.clone() }),
    };
    let journalled = sidecar.entry().map_err(OpenError::io("read the sidecar of", path))?.map(|entry| entry.seq);
    // Held until the appender locks its own file, since recovery and replacing change these files.
    let locks = match names.lock_from(journalled) {
        Err(e) => {
            let _ = forget_empty(&sidecar, &names);
            return Err(OpenError::io("lock a file of", path)(e));
        }
        Ok(locks) => locks,
    };
    let shm = Dir::named(&options.shm_dir);
    let facts = probe_names(&names, &shm).map_err(OpenError::io("probe the directory of", path))?;
    let facts = Facts { shm: facts.shm && full.is_none(), ..facts };
    let (mut choice, part) = match Part::take(|taken_bytes| {
        let facts = Facts { limits: Limits { taken_bytes, ..facts.limits }, ..facts };
        let choice = pick(options, &facts, many)?;
        let held = locked_bytes_max(options, &choice);
        Ok((choice, held))
    }) {
        Ok(taken) => taken,
        Err(e) => {
            let _ = forget_empty(&sidecar, &names);
            return Err(e);
        }
    };
    choice.reasons.extend(full);
    let mut place = place(options, &names, &mut sidecar)?;
    drop(locks);
    choice.reasons.extend(place.found.take());
    if let Ok(shm) = &shm {
        // Best effort: the next line lists what could not be removed.
        let _ = crate::leftovers::forget_orphans(shm, &names);
        choice.reasons.extend(crate::leftovers::sentence(shm));
    }
    let core = core(options, names, &choice, part, shm, &place, many)?;
    choice.reasons.extend(core.removal.filter(|_| choice.mode == Mode::Ring).map(|r| r.sentence().to_owned()));
    if core.framing == Framing::Records && place.len == 0 {
        begin_file(&core, &mut place).map_err(OpenError::io("write the header of", path))?;
    }
    let noted = sidecar.write(&core.entry(place.seq, place.len, place.base, Some(place.number)));
    noted.map_err(OpenError::io("write the sidecar of", path))?;
    core.names.sync_dir().map_err(OpenError::io("sync the directory of", path))?;
    *crate::core::lock(&core.sidecar) = Some(sidecar);
    let tuning = tuning(options, &choice);
    let node = options.node.or_else(sys::node_here);
    Ok((Arc::new(core), Plan { choice, tuning, node, place }))
}

fn core(
    options: &Options,
    names: Names,
    choice: &Choice,
    part: Part,
    shm: io::Result<Dir>,
    place: &Place,
    many: bool,
) -> Result<Core, OpenError> {
    let path = &options.path;
    let (token, shm_id) = (random(), random());
    let (framed, mode) = (options.framing == Framing::Records, choice.mode);
    let data = names.full();
    let stem = names.shm_stem(shm_id);
    let (position, seq, base, number) = (place.base + place.len, place.seq, place.base, place.number);
    let birth = Birth { token, boot: boot_id(), data: &data, framed, many, position, seq, base, number };
    let current = data_file(options, &names, mode, place).map_err(OpenError::io("open", path))?;
    let live = LiveMap::create(&shm, &stem, birth).map_err(OpenError::io("create the live block of", path))?;
    let removal = choice.removal.filter(|_| live.survives_process());
    Ok(Core {
        mode,
        locked: choice.locked,
        shm: shm.ok(),
        stem,
        shm_id,
        token,
        born: Born::here(),
        removal,
        framing: options.framing,
        times: options.times && framed,
        first_number: place.number,
        back_pressure: options.back_pressure,
        roll_bytes: options.roll_bytes,
        memory_bytes: choice.budget.bytes,
        part,
        live,
        counters: Line(Counters::default()),
        files: Mutex::new(Files { current: Arc::new(current), older: Vec::new() }),
        leaving: Mutex::new(()),
        next: AtomicPtr::new(std::ptr::null_mut()),
        durable: AtomicU64::new(place.base),
        signals: Line(Signals::default()),
        failure: OnceLock::new(),
        space: Space::new(),
        closing: AtomicBool::new(false),
        filed: AtomicBool::new(false),
        helper: OnceLock::new(),
        stage: OnceLock::new(),
        sidecar: Mutex::new(None),
        names,
        #[cfg(test)]
        doomed: AtomicBool::new(false),
    })
}

fn pick(options: &Options, facts: &Facts, many: bool) -> Result<Choice, OpenError> {
    let wants = Wants {
        readable_at_once: options.readable_at_once,
        many_producers: many,
        framed: options.framing == Framing::Records,
        process_death_may_lose: options.process_death_may_lose,
        memory_bytes: options.memory_bytes_max.max(page_bytes()),
        shares: options.shares,
    };
    let refused = |mode: Mode, reason| OpenError::Refused { path: options.path.clone(), mode: mode.name(), reason };
    match options.mode {
        Some(mode) => examine(mode, facts, &wants).map_err(|why| refused(mode, why.to_string())),
        None => {
            let choice = choose(facts, &wants);
            let unfit = many && choice.mode != Mode::Ring;
            if unfit { Err(refused(Mode::Ring, choice.reasons.join("; "))) } else { Ok(choice) }
        }
    }
}

/// Upper limit of the memory that this choice locks, bytes.
fn locked_bytes_max(options: &Options, choice: &Choice) -> u64 {
    let asked = match (choice.mode, options.back_pressure) {
        (Mode::Window, _) | (Mode::Ring, BackPressure::Grow { .. }) => choice.budget.bytes,
        (Mode::Ring, _) => options.ring_bytes.max(page_bytes()).next_power_of_two(),
        (Mode::Prefetch | Mode::Plain, _) => 0,
    };
    asked.min(choice.budget.bytes)
}

/// Removes a sidecar without an entry, which this open has just created.
fn forget_empty(sidecar: &Sidecar, names: &Names) -> io::Result<()> {
    if sidecar.entry()?.is_none() { names.dir().remove(&names.side_name()) } else { Ok(()) }
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
        return replace(names, sidecar, &present).map_err(io("replace the files of"));
    }
    let Ended { recovered, seq, base, number } = recover_locked(names, sidecar)?;
    let number = number.unwrap_or(0);
    let (len, found) = (recovered.len, recovered.sentence());
    if options.framing == Framing::Records {
        let present = names.present().map_err(io("list the files of"))?;
        all_framed(names, &present)
            .map_err(io("read a file of"))?
            .map_or(Ok(()), |problem| Err(OpenError::Options { path: names.given().to_owned(), problem }))?;
    }
    let base = match options.framing {
        Framing::Records => aligned(base, names)?,
        Framing::None => base,
    };
    let framed = options.framing == Framing::Records;
    let old = framed && len > 0 && format_of(names, seq).map_err(io("read a file of"))? == Format::First;
    if old && options.roll_bytes == 0 {
        return Err(OpenError::Options { path: names.given().to_owned(), problem: OLD.to_owned() });
    }
    if options.roll_bytes != 0 && seq > SEQ_MAX {
        let problem = format!("{} has a number that no appender reaches; move it away", names.path(seq).display());
        return Err(OpenError::Options { path: names.given().to_owned(), problem });
    }
    let full = options.roll_bytes != 0 && len + frame::END_MARK_LEN as u64 >= options.roll_bytes;
    if !full && !old {
        return Ok(Place { seq, len, base, number, found });
    }
    let len = if framed { end_file(names, seq, len).map_err(io("end a file of"))? } else { len };
    Ok(Place { seq: seq + 1, len: 0, base: base.saturating_add(len), number, found })
}

/// Another file was named by something else; from here on, numbers would run out.
const SEQ_MAX: u64 = u64::MAX / 4;
const OLD: &str = "the file has format 1, which this version only reads (Reader); begin another file";

fn format_of(names: &Names, seq: u64) -> io::Result<Format> {
    let header = header_of(&names.existing(seq)?)?;
    Ok(if header.is_some() { Format::Second } else { Format::First })
}

/// Marks the end of a file that the appender does not continue, durably, unless it is marked. Returns its length.
fn end_file(names: &Names, seq: u64, len: u64) -> io::Result<u64> {
    let mut last = [0; frame::END_MARK_LEN];
    let file = names.existing(seq)?;
    let at = len.saturating_sub(last.len() as u64);
    if read_full(&file, &mut last, at)? == last.len() && frame::is_end_mark(&last) {
        return Ok(len);
    }
    file.write_all_at(&format_of(names, seq)?.end_mark(), len)?;
    file.sync_all()?;
    Ok(len + frame::END_MARK_LEN as u64)
}

/// Writes the header of the current file, durably: the sidecar will say so.
fn begin_file(core: &Core, place: &mut Place) -> io::Result<()> {
    let file = Arc::clone(&crate::core::lock(&core.files).current.file);
    file.write_all_at(&core.header(place.seq, place.base, place.number).encode(), 0)?;
    file.sync_all()?;
    place.len = frame::FILE_HEADER_LEN as u64;
    let position = place.base + place.len;
    let live = &core.live;
    for at in [&live.position.0, &live.reserved.0, &live.flushed.0, &live.freed.0] {
        at.store(position, Ordering::Release);
    }
    live.set_unnumbered(position, place.number);
    Ok(())
}

/// The next position at which a frame may begin. Unframed files that were archived since may have ended at any
/// position.
fn aligned(base: u64, names: &Names) -> Result<u64, OpenError> {
    base.checked_next_multiple_of(frame::WORD as u64).ok_or_else(|| OpenError::Options {
        path: names.given().to_owned(),
        problem: "its positions have reached the end of their range; begin another pattern".to_owned(),
    })
}

/// Removes the existing data files and the shared memory of their last writer.
fn replace(names: &Names, sidecar: &Sidecar, present: &[u64]) -> io::Result<Place> {
    for seq in present {
        // Checked like any data file: root removes only root's files.
        names.existing(*seq).and_then(|_| names.remove(*seq))?;
    }
    if let Some(entry) = sidecar.entry()?
        && let Ok(shm) = Dir::exactly(&entry.shm_dir)
    {
        remove_shm(&shm, &names.shm_stem(entry.shm_id))?;
    }
    Ok(Place { seq: 0, len: 0, base: 0, number: 0, found: None })
}

/// Checks that every file consists of frames, judged by its length and its first frame. Returns why one does not.
fn all_framed(names: &Names, present: &[u64]) -> io::Result<Option<String>> {
    for seq in present {
        let file = names.existing(*seq)?;
        let len = file.metadata()?.len();
        let whole = len % frame::WORD as u64 == 0 && (len == 0 || crate::files::is_framed(&file)?);
        if !whole {
            let path = names.path(*seq);
            let path = path.display();
            return Ok(Some(format!(
                "the {len} bytes of {path} are not whole frames; open without framing or begin another file"
            )));
        }
    }
    Ok(None)
}

fn data_file(options: &Options, names: &Names, mode: Mode, place: &Place) -> io::Result<DataFile> {
    let file = names.open(place.seq)?;
    let map = match mode {
        Mode::Window if options.roll_bytes != 0 => Some(map_file(file.get()?, options.roll_bytes as usize)?),
        Mode::Window => Some(map_largest(file.get()?, place.len)?),
        _ => None,
    };
    DataFile::new(names, place.seq, file, map, options.handle_sigbus)
}

/// Maps as much address space as possible, so that a single file can grow without being mapped again.
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
    let mut tuning = Tuning::new(choice.mode, ahead_bytes.max(4 * page_bytes()), page_bytes());
    if let Some(window) = options.window_bytes {
        let most = tuning.ahead_bytes_max / 4;
        tuning.window_bytes = (window.clamp(page_bytes(), most.max(page_bytes())) / page_bytes()) * page_bytes();
        tuning.ahead_bytes_min = (4 * tuning.window_bytes).min(tuning.ahead_bytes_max);
    }
    tuning.roll_bytes = options.roll_bytes;
    tuning.write_back_bytes_per_s = options.write_back_bytes_per_s;
    if choice.mode == Mode::Prefetch {
        // `prefetch` also writes zeros to what it allocates.
        tuning.allocate_bytes = 8 << 20;
    }
    tuning
}
