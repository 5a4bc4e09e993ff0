//! Performs a probe: prepares directories, cgroups and processes, leads them through the phases, and judges.

mod phases;
mod seats;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use flatwater_host::error::HostError;
use flatwater_host::setup::{self, Applied, Log, SetupContext, SetupError};
use flatwater_recording::{ReadError, Recording, Setup};
use flatwater_safefs::Dir;

use super::child::{Command, Order, Role};
use super::children::{Silence, Worker};
use super::mechanism::{Attribution, Found, Pair};
use super::output::{PairResult, PlanText, Report};
use super::place::{Place, PlaceError};
use super::plan::{Load, Operation, Relation};
use super::statistic::{Comparison, Round, compare};
use super::verdict::{self, Reach, Verdict};
use super::work::Total;
use phases::Phases;
use seats::{Seat, Seats};

/// Calls from this duration on are recorded one by one.
const THRESHOLD_NS: u64 = 100_000;
/// Time for the first answers: files, hooks.
const PREPARE: Duration = Duration::from_secs(20);
/// Kept of the whole time for the end of the recording and the analysis.
const RESERVE: Duration = Duration::from_secs(5);
const SEAL: Duration = Duration::from_secs(20);
/// Limits of dirty pages with `--apply`: the neighbours exceed them.
const DIRTY_LIMITS: [(&str, &str); 2] = [("vm.dirty_bytes", "33554432"), ("vm.dirty_background_bytes", "8388608")];

/// What to probe.
#[derive(Clone, Debug)]
pub struct Options {
    /// The victim's directory, and further directories for neighbours.
    pub paths: Vec<PathBuf>,
    /// The directory of the victim's cgroup.
    pub cgroup: Option<PathBuf>,
    /// The neighbours' loads.
    pub loads: Vec<Load>,
    /// Lower the machine's limits of dirty pages while the probe runs.
    pub apply: bool,
    /// Length of the whole probe.
    pub length: Duration,
    pub seed: u64,
    /// Keeps the recording.
    pub out: Option<Dir>,
}

#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error("{path} has {free_mib} MiB free: a probe uses a tenth of that and needs {wanted_mib} MiB free")]
    Space { path: String, free_mib: u64, wanted_mib: u64 },
    #[error("cannot start a process of the probe: {0}")]
    Start(std::io::Error),
    #[error("the probe's {who} failed: {why}")]
    Child { who: &'static str, why: Silence },
    #[error("interrupted before anything was measured")]
    Interrupted,
}

/// Performs the probe. `planned` receives the plan before anything is changed.
pub fn run(
    options: &Options,
    stop: &AtomicBool,
    log: &Log,
    planned: &mut dyn FnMut(&PlanText),
) -> Result<Report, ProbeError> {
    let begun = Instant::now();
    let clock = Clock { until: begun + options.length.saturating_sub(RESERVE), deadline: begun + options.length, stop };
    setup::recover(log);
    // Before the first change: it removes what a killed probe leaves.
    let mut sweeper = start(&Order { procs: Vec::new(), role: Role::Sweeper }, &PathBuf::from("/"))?;
    let mut seats = Seats::find(options, log)?;
    planned(&seats.plan(options));
    let works = works(options, &seats, log)?;
    let scratch = match &options.out {
        Some(_) => None,
        None => Some(Applied::apply(&Setup::default(), &context(scratch_directory(), false), log.clone())?),
    };
    let out = match (&options.out, &scratch) {
        (Some(out), _) => out.clone(),
        (None, Some(scratch)) => scratch.work()?.clone(),
        (None, None) => unreachable!("one of the two is created above"),
    };
    let measured = measure(options, &mut seats, &works, &out, &clock);
    let restored: Vec<setup::Restored> = works.into_iter().map(Applied::restore).collect();
    // The limits follow the measured speed.
    let report = measured.map(|measured| judge(options, &seats, seats.plan(options), &measured));
    drop(scratch);
    let failed: Vec<String> = restored.into_iter().flat_map(|restored| restored.failed).chain(seats.remove()).collect();
    sweeper.send(Command::End);
    if failed.is_empty() { report } else { Err(HostError::NotRestored { left: failed.join(", ") }.into()) }
}

fn context(dir: PathBuf, apply: bool) -> SetupContext {
    SetupContext { dir, name: "probe".to_owned(), apply, keep: false }
}

/// Memory, so that the recording does not write to the disk that is measured; else the state directory.
fn scratch_directory() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let usable = Place::of(&memory).is_ok_and(|place| place.is_in_memory());
    let writable = rustix::fs::access(&memory, rustix::fs::Access::WRITE_OK).is_ok();
    if usable && writable { memory } else { std::env::temp_dir() }
}

/// The probe's own directory in each place.
fn works(options: &Options, seats: &Seats, log: &Log) -> Result<Vec<Applied>, ProbeError> {
    let mut works = Vec::new();
    for (index, place) in seats.places.iter().enumerate() {
        let mut setup = Setup::default();
        let lowered = options.apply && index == 0;
        for (key, value) in DIRTY_LIMITS.iter().filter(|_| lowered) {
            setup.set(key, value).map_err(|why| SetupError::Impossible {
                what: format!("set {key}"),
                why: why.to_string(),
                next: "probe without --apply".to_owned(),
            })?;
        }
        works.push(work_in(place, &setup, lowered, log)?);
    }
    Ok(works)
}

fn work_in(place: &Place, setup: &Setup, apply: bool, log: &Log) -> Result<Applied, ProbeError> {
    let applied = Applied::apply(setup, &context(place.path.clone(), apply), log.clone())?;
    place.require_above(applied.work()?)?;
    Ok(applied)
}

fn start(order: &Order, directory: &std::path::Path) -> Result<Worker, ProbeError> {
    Worker::start(order, directory).map_err(ProbeError::Start)
}

/// The times at which the probe stops.
#[derive(Clone, Copy, Debug)]
struct Clock<'a> {
    /// No phase begins later.
    until: Instant,
    /// No answer is awaited longer.
    deadline: Instant,
    /// Set by a signal.
    stop: &'a AtomicBool,
}

impl Clock<'_> {
    /// This time, or what is left of the probe's time.
    fn at_most(&self, time: Duration) -> Duration {
        time.min(self.deadline.saturating_duration_since(Instant::now()))
    }
}

/// Why mechanisms are unknown.
#[derive(Debug, thiserror::Error)]
enum Unrecorded {
    #[error("the recorder failed: {0}")]
    Recorder(#[from] Silence),
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// The result of the phases.
struct Measured {
    phases: Phases,
    /// The recording of the victim's calls, or why there is none.
    recording: Result<Recording, Unrecorded>,
    pids: Vec<u32>,
    notes: Vec<String>,
}

fn measure(
    options: &Options,
    seats: &mut Seats,
    works: &[Applied],
    out: &Dir,
    clock: &Clock<'_>,
) -> Result<Measured, ProbeError> {
    let failed = |who: &'static str| {
        move |why: Silence| match why {
            Silence::Interrupted => ProbeError::Interrupted,
            why => ProbeError::Child { who, why },
        }
    };
    let directory = |place: usize| -> Result<PathBuf, ProbeError> {
        works.get(place).map_or(Ok(PathBuf::from(".")), |work| Ok(work.work()?.proc_path()))
    };
    let order = Order { procs: seats.victim_group.procs(), role: Role::Victim { seed: options.seed } };
    let mut victim = start(&order, &directory(0)?)?;
    let ready = victim.answer(clock.at_most(PREPARE), clock.stop).map_err(failed("victim"))?;
    let bytes_per_s = ready.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(u64::MAX);
    seats.set_limits(bytes_per_s);
    let mut neighbours = Vec::new();
    for seat in &seats.seats {
        let order =
            Order { procs: seat.group.procs(), role: Role::Neighbour { limits: seat.limits, own: seat.dirty_limit() } };
        neighbours.push(start(&order, &directory(seat.place)?)?);
    }
    for neighbour in &neighbours {
        neighbour.answer(clock.at_most(PREPARE), clock.stop).map_err(failed("neighbour"))?;
    }
    let order = Order { procs: Vec::new(), role: Role::Recorder { pid: victim.pid(), threshold_ns: THRESHOLD_NS } };
    let mut recorder = start(&order, &out.proc_path())?;
    let recording = recorder.answer(clock.at_most(PREPARE), clock.stop);
    let pids = neighbours.iter().map(Worker::pid).collect();
    let mut phases = Phases::default();
    let mut notes = Vec::new();
    let loads: Vec<(usize, Load)> =
        (0..seats.seats.len()).flat_map(|seat| options.loads.iter().map(move |load| (seat, *load))).collect();
    phases
        .perform(&loads, options.seed, (&mut victim, &mut neighbours), clock, &mut notes)
        .map_err(failed("victim"))?;
    let sealed = recording.and_then(|_| recorder.ask(Command::End, clock.at_most(SEAL), clock.stop));
    victim.ask(Command::End, clock.at_most(PREPARE), clock.stop).map_err(failed("victim"))?;
    phases.samples = victim.samples();
    let path = out.proc_path().join(super::child::RECORDING);
    let recording = sealed.map_err(Unrecorded::from).and_then(|_| Ok(flatwater_recording::read(&path)?));
    Ok(Measured { phases, recording, pids, notes })
}

/// Compares the phases, and looks for the mechanism of each harm.
fn judge(options: &Options, seats: &Seats, plan: PlanText, measured: &Measured) -> Report {
    let mut notes = measured.notes.clone();
    match &measured.recording {
        Err(why) => notes.push(format!("mechanisms are unknown: the calls were not recorded: {why}")),
        Ok(recording) if recording.calls.is_empty() => {
            let why = recording.gaps.first().map_or(String::new(), |gap| format!(": {}: {}", gap.what, gap.why));
            notes.push(format!("mechanisms are unknown: no slow call was recorded{why}"));
        }
        Ok(_) => {}
    }
    let attribution =
        measured.recording.as_ref().ok().filter(|recording| !recording.calls.is_empty()).map(Attribution::of);
    let mut pairs = Vec::new();
    for (index, seat) in seats.seats.iter().enumerate() {
        for (load, operation) in options.loads.iter().flat_map(|load| Operation::ALL.iter().map(move |op| (*load, *op)))
        {
            let rounds: Vec<Round> = measured.phases.rounds((index, load), operation);
            let found = compare(&rounds, options.seed);
            let work = measured.phases.work((index, load));
            let (verdict, why) = verdict::judge(operation, load, found.as_ref(), reach(seat, seats, load, &work));
            let pair = Pair {
                has_journal: seats.places.first().is_some_and(|place| place.has_journal),
                operation,
                load,
                relation: seat.relation,
                memory_limited: seat.memory.limit_bytes.is_some(),
                neighbour_pid: measured.pids.get(index).copied().unwrap_or_default(),
            };
            // Calls that became slower by too little for a verdict have a mechanism, too.
            let slower = verdict != Verdict::Isolated && found.as_ref().is_some_and(Comparison::is_slower);
            let mechanism = slower.then(|| {
                let (alone, beside) = measured.phases.spans((index, load));
                attribution.as_ref().map_or(Found::UNKNOWN, |of| of.mechanism(&pair, &alone, &beside))
            });
            let why = why.map(str::to_owned);
            let place = seats.places.get(seat.place).map(|place| place.path.display().to_string()).unwrap_or_default();
            let relation = seat.relation;
            pairs.push(PairResult { operation, load, relation, place, verdict, why, found, mechanism, work });
        }
    }
    if attribution.as_ref().is_some_and(Attribution::is_partial) {
        notes.push(
            "mechanisms come from a part of the calls: the recording exceeds the bound of the analysis".to_owned(),
        );
    }
    let verdict = verdict::overall(pairs.iter().map(|pair| pair.verdict));
    Report::new(plan, pairs, verdict, notes)
}

/// What the neighbour in this seat did and reached.
fn reach(seat: &Seat, seats: &Seats, load: Load, work: &Total) -> Reach {
    let in_memory = seats.places.first().is_some_and(Place::is_in_memory);
    // Pages of a tmpfs are not evicted without swap, but they count for the limit of a cgroup.
    let stays = in_memory && seat.memory.limit_bytes.is_none() && !has_swap();
    let shares_device = !in_memory && seat.relation != Relation::OtherDevice;
    Reach {
        shares_controller: seat.shares_controller(),
        loaded: work.is_load(load, &seat.limits),
        held: shares_device && work.is_held(load),
        dirty_limit: in_memory || work.dirty_limit,
        evicts: stays || work.pass_bytes > seat.memory.room_bytes(),
        journal: !in_memory && seat.relation.shares_file_system(),
    }
}

fn has_swap() -> bool {
    let areas = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    areas.lines().count() > 1
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};
    use std::sync::Arc;

    use flatwater_recording::Setup;
    use needs::{Need, UNPRIVILEGED_ID, as_unprivileged, skip};

    use super::{PlaceError, ProbeError, work_in};
    use crate::place::Place;

    /// A user replaces the directory by a link to another one after its file system and its space were checked: root's
    /// probe loaded that one.
    #[test]
    fn a_directory_that_its_owner_replaces_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return skip(Need::Root, "a directory of another user", "not root");
        }
        let yard = tempfile::tempdir().expect("a directory");
        let (theirs, other) = (yard.path().join("theirs"), yard.path().join("other"));
        std::fs::create_dir(&other).expect("made");
        std::fs::create_dir(&theirs).expect("made");
        chown(&theirs, Some(UNPRIVILEGED_ID), None).expect("given away");
        std::fs::set_permissions(yard.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("chmod");
        let path = theirs.join("data");
        as_unprivileged(|| std::fs::create_dir(&path).expect("made"));
        let place = Place::of(&path).expect("usable");
        let work = |place| work_in(place, &Setup::default(), false, &(Arc::new(|_: &str| {}) as _));
        drop(work(&place).expect("unchanged"));
        as_unprivileged(|| {
            std::fs::rename(&path, theirs.join("away")).expect("renamed");
            symlink(&other, &path).expect("linked");
        });
        let refused = work(&place).map(drop).expect_err("replaced");
        assert!(matches!(refused, ProbeError::Place(PlaceError::Replaced { .. })), "{refused}");
        assert_eq!(std::fs::read_dir(&other).expect("readable").count(), 0, "nothing is left");
    }
}
