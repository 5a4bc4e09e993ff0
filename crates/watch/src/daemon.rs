//! The daemon's loop. Once a second it collects slow calls and counters, keeps them in the look-back, checks the
//! triggers, writes to a running recording, updates the metrics, and stays within its budget.

mod guard;
mod weigh;

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use flatwater_host::clock::{monotonic_ns, wall_offset_ns};
use flatwater_host::machine;
use flatwater_host::own_cost::{OwnCostMeter, give_back_memory};
use flatwater_host::privileges::{self, Needs, PrivilegeError};
use flatwater_host::setup::knobs;
use flatwater_recording::units::{Bytes, Nanos};
use flatwater_recording::{Clock, Event, Gap, Header, OwnCost, Source, Target, printable};

use crate::account::Account;
use crate::answers::{NotRecorded, Shared, answerer, lock};
use crate::budget::{Cost, Keeper, MemoryKeeper, Step};
use crate::busiest::KernelTime;
use crate::capture::{Capture, Joined};
use crate::config::Config;
use crate::guard::Guard;
use crate::hourly::Hourly;
use crate::http::{self, Server};
use crate::lookback::LookBack;
use crate::metrics::Metrics;
use crate::now::{self, Now};
use crate::remote::Keys;
use crate::second::Second;
use crate::sight::Sight;
use crate::store::{Full, Pruned, Store};
use crate::trigger::{Fired, Outcome, Triggers};

/// The arguments of `run`.
#[derive(Debug)]
pub struct Options {
    pub config: Config,
    /// Read again when `reload` is set.
    pub config_path: Option<PathBuf>,
    pub stop: Arc<AtomicBool>,
    pub reload: Arc<AtomicBool>,
}

#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error(transparent)]
    Serve(#[from] http::ServeError),
    #[error(transparent)]
    Privileges(#[from] PrivilegeError),
}

const SECOND_NS: u64 = 1_000_000_000;
/// Interval between two checks of the daemon's own cost.
const COST_EVERY_S: u64 = 10;
/// Interval between two attempts to open a store that could not be opened.
const STORE_EVERY_S: u64 = 60;
/// Samples are faster for this long after the last stall.
const BUSY_NS: u64 = 10 * SECOND_NS;
/// The table for `top` is kept up to date for this long after a request.
const NOW_KEPT_NS: u64 = 5 * SECOND_NS;

/// Runs the daemon until `stop` is set. `tell` receives lines for the journal.
pub fn run(options: Options, tell: &mut dyn FnMut(&str)) -> Result<(), WatchError> {
    let Options { config, config_path, stop, reload } = options;
    // Users choose some of the names in these lines: none of them adds a line to the journal.
    let tell = &mut |line: &str| tell(&printable::line(line));
    let shared = Arc::new(Mutex::new(Shared::new(Metrics::new(config.metrics.label_values_max))));
    let keys = config.metrics.remote.clone().map(Keys::read).transpose().map_err(http::ServeError::from)?.map(Arc::new);
    let metrics = &config.metrics;
    let server = Server::start(metrics.socket.as_deref(), metrics.listen, keys.clone(), answerer(&shared))?;
    let server = Arc::new(server);
    let mut daemon = Daemon::start(config, shared, Arc::clone(&server), tell);
    // Everything is open now. Keep only the capabilities that attaching hooks again requires: not every installation
    // has the limits of the systemd unit.
    privileges::drop_on_all_threads(Needs { attaching: true, ..Needs::default() })?;
    notify("READY=1");
    while !stop.load(Ordering::Relaxed) {
        daemon.tick(tell);
        if let Some(keys) = &keys {
            keys.expiry(chrono::Utc::now()).into_iter().for_each(|warning| tell(&warning));
            if let Some(error) = keys.refused() {
                tell(&format!("{error}; the previous certificate, key and token stay in use"));
            }
        }
        if reload.swap(false, Ordering::Relaxed) {
            daemon.reload(config_path.as_deref(), tell);
        }
    }
    notify("STOPPING=1");
    daemon.end(tell);
    drop(server);
    Ok(())
}

struct Daemon {
    config: Config,
    shared: Arc<Mutex<Shared>>,
    server: Arc<Server>,
    /// CPU time of answers at the last measurement of the cost.
    answering_ns: u64,
    sight: Sight,
    look_back: LookBack,
    triggers: Triggers,
    keeper: Keeper,
    store: Option<Store>,
    capture: Option<Capture>,
    hourly: Option<Hourly>,
    meter: OwnCostMeter,
    cost: Cost,
    seconds: u64,
    next_sample_ns: u64,
    next_second_ns: u64,
    busy_until_ns: u64,
    memory: MemoryKeeper,
    /// Set if hooks on system calls were attached when the measurement of the cost began.
    armed_from: Option<KernelTime>,
    last_capture: Option<String>,
    guard: Option<Guard>,
    /// Events of the guard for the next second.
    guard_events: Vec<Event>,
    guard_lost_before: u64,
}

impl Daemon {
    fn start(config: Config, shared: Arc<Mutex<Shared>>, server: Arc<Server>, tell: &mut dyn FnMut(&str)) -> Daemon {
        let sight = Sight::open(&config);
        let now_ns = monotonic_ns();
        let mut daemon = Daemon {
            look_back: LookBack::new(config.look_back_ns, config.budget.look_back_bytes),
            triggers: Triggers::new(config.triggers.clone(), &config.store),
            keeper: Keeper::new(config.budget),
            store: None,
            capture: None,
            hourly: None,
            meter: OwnCostMeter::start(),
            cost: Cost::default(),
            seconds: 0,
            next_sample_ns: now_ns,
            next_second_ns: now_ns + SECOND_NS,
            busy_until_ns: 0,
            memory: MemoryKeeper::default(),
            armed_from: None,
            last_capture: None,
            guard: Some(Guard::start(config.guard.clone(), config.budget.cpu_share, now_ns, tell)),
            guard_events: Vec::new(),
            guard_lost_before: 0,
            sight,
            shared,
            answering_ns: server.answering_ns(),
            server,
            config,
        };
        daemon.open_store(tell);
        let seen = match (daemon.sight.is_attached(), daemon.sight.is_exact()) {
            (true, false) => "slow calls by their sleeps (level 0) and counters",
            (_, true) => "slow calls by hooks on every system call (level 2) and counters",
            (false, false) => "counters only",
        };
        let (limit, back) = (Nanos(daemon.config.threshold_ns), Nanos(daemon.config.look_back_ns));
        tell(&format!("watching {seen}: stalls over {limit}, look-back {back}"));
        let store = &daemon.config.store;
        let triggers: Vec<String> = daemon.config.triggers.iter().map(|trigger| trigger.when.to_string()).collect();
        tell(&format!(
            "recording at {}, at most {} times an hour, to {}",
            if triggers.is_empty() { "no trigger".to_owned() } else { triggers.join(", or ") },
            store.captures_per_hour_max,
            store.directory.display(),
        ));
        daemon
    }

    /// Sleeps until something is due, and does it.
    fn tick(&mut self, tell: &mut dyn FnMut(&str)) {
        let now_ns = monotonic_ns();
        let due_ns = self.next_sample_ns.min(self.next_second_ns);
        if now_ns < due_ns {
            // A signal does not shorten the sleep; the caller checks its flags once a second.
            std::thread::sleep(Duration::from_nanos(due_ns - now_ns));
        }
        let now_ns = monotonic_ns();
        self.sight.pump();
        if now_ns >= self.next_sample_ns {
            self.sight.sample();
            self.next_sample_ns = now_ns + self.sample_period_ns(now_ns);
        }
        if now_ns >= self.next_second_ns {
            self.next_second_ns = (self.next_second_ns + SECOND_NS).max(now_ns + SECOND_NS / 2);
            let second = self.sight.take(now_ns < self.busy_until_ns);
            self.second(second, tell);
        }
    }

    fn sample_period_ns(&self, now_ns: u64) -> u64 {
        let step = self.keeper.step();
        if step >= Step::Samples {
            return 10 * SECOND_NS;
        }
        let busy = now_ns < self.busy_until_ns && step < Step::FastSamples;
        let hz = if busy { self.config.sample_hz_busy.max(self.config.sample_hz) } else { self.config.sample_hz };
        SECOND_NS / u64::from(hz.max(1))
    }

    fn second(&mut self, mut second: Second, tell: &mut dyn FnMut(&str)) {
        self.seconds += 1;
        second.events.append(&mut self.guard_events);
        let now_ns = second.end_ns;
        if !second.calls.is_empty() || !second.under_way.is_empty() || self.capture.is_some() {
            self.busy_until_ns = now_ns + BUSY_NS;
        }
        lock(&self.shared).metrics.add(&second);
        self.add_to_hour(&second, tell);
        let second = Arc::new(second);
        self.look_back.push(Arc::clone(&second));
        if let Some(capture) = &mut self.capture
            && let Err(error) = capture.add(&second)
        {
            self.cut(&format!("writing failed: {error}"), tell);
        }
        let mut refused = None;
        for fired in self.triggers.ask(&second, &self.look_back) {
            // If one recording cannot begin, neither can another in this second.
            let outcome = match refused {
                Some(reason) => {
                    lock(&self.shared).metrics.skipped(reason);
                    Outcome::Failed
                }
                None => {
                    let (outcome, path) = self.fire(&fired, tell);
                    refused = path.err().map(|why| why.reason());
                    outcome
                }
            };
            self.triggers.note(&fired, outcome);
        }
        self.guard(now_ns, tell);
        self.dump(now_ns, tell);
        if self.capture.as_ref().is_some_and(|capture| capture.is_over(now_ns)) {
            self.seal(None, tell);
        }
        self.upkeep(now_ns, tell);
        self.publish();
    }

    fn add_to_hour(&mut self, second: &Second, tell: &mut dyn FnMut(&str)) {
        if self.hourly.as_ref().is_some_and(|hourly| hourly.is_over(second.start_ns)) {
            self.end_hour(tell);
        }
        let begun = self.hourly.take().unwrap_or_else(|| Hourly::begin(&self.header().0, second.start_ns));
        self.hourly.insert(begun).add(second, self.sight.is_attached());
    }

    fn end_hour(&mut self, tell: &mut dyn FnMut(&str)) {
        match self.hourly.take().map(|hourly| hourly.keep(self.store.as_ref())) {
            Some(Ok(name)) => tell(&format!("summary of this hour: {}", self.shown(&name))),
            Some(Err(error)) => tell(&format!("the summary of this hour was not stored: {error}")),
            None => {}
        }
    }

    /// Makes a requested dump, and answers with its path or the reason why there is none.
    fn dump(&mut self, now_ns: u64, tell: &mut dyn FnMut(&str)) {
        let Some(asker) = lock(&self.shared).dump.take() else { return };
        let (name, observation) = ("dump".to_owned(), "requested".to_owned());
        let fired = Fired { name, observation, at_ns: now_ns, account: Account::dumps(), trigger: None };
        // A client that has disconnected gets no answer.
        let _ = asker.try_send(self.fire(&fired, tell).1);
    }

    /// Starts a recording, or extends the current one. Returns what became of the trigger, and the recording's path.
    fn fire(&mut self, fired: &Fired, tell: &mut dyn FnMut(&str)) -> (Outcome, Result<String, NotRecorded>) {
        if self.capture.is_some() {
            return self.join(fired, tell);
        }
        let begun = self.begin(fired, tell);
        match begun {
            Ok(path) => {
                tell(&format!("{}: {}; recording {path}", fired.name, fired.observation));
                self.arm(fired.at_ns);
                (Outcome::Begun, Ok(path))
            }
            Err(why) => {
                lock(&self.shared).metrics.skipped(why.reason());
                tell(&format!("{}: {}; not recorded: {why}", fired.name, fired.observation));
                (Outcome::Failed, Err(why))
            }
        }
    }

    /// Adds a trigger to the current recording.
    fn join(&mut self, fired: &Fired, tell: &mut dyn FnMut(&str)) -> (Outcome, Result<String, NotRecorded>) {
        let Some(capture) = &mut self.capture else { return (Outcome::Failed, Err(NotRecorded::NoAnswer)) };
        let name = capture.name.clone();
        let outcome = match capture.join(fired, self.config.after_ns) {
            Ok(Joined::Whole) => Outcome::Joined,
            Ok(Joined::Part) => Outcome::JoinedLate,
            Ok(Joined::TooMany) => Outcome::TooManyAccounts,
            Err(error) => {
                self.cut(&format!("writing failed: {error}"), tell);
                Outcome::Failed
            }
        };
        self.arm(fired.at_ns);
        (outcome, Ok(self.shown(&name)))
    }

    /// Attaches hooks on system calls, so that what follows a trigger is timed exactly, unless the budget has shed all
    /// hooks.
    fn arm(&mut self, at_ns: u64) {
        if self.keeper.step() < Step::Hooks {
            self.sight.arm(at_ns.saturating_add(self.config.after_ns));
        }
    }

    fn begin(&mut self, fired: &Fired, tell: &mut dyn FnMut(&str)) -> Result<String, NotRecorded> {
        self.prune(None, tell);
        let Some(store) = &self.store else {
            return Err(NotRecorded::Store(self.config.store.directory.clone()));
        };
        store.room().map_err(|full| match full {
            Full::Disk => NotRecorded::Full { keep_free_share: self.config.store.keep_free_share },
            Full::Unwritable => NotRecorded::Unwritable,
        })?;
        // Reading /proc and /sys takes a while: nothing is on disk until the header is complete.
        let (header, gaps) = self.header();
        let making = store.begin(&fired.name, &fired.account, SystemTime::now());
        let making = making.map_err(|refusal| NotRecorded::Begin(refusal.into()))?;
        let capture = Capture::begin(making, header, fired, &self.look_back, self.config.after_ns);
        let mut capture = capture.map_err(|error| NotRecorded::Begin(error.into()))?;
        let name = capture.name.clone();
        let shown = self.shown(&name);
        // Best effort: the recording is useful without these gaps.
        let _ = capture.gaps(&gaps);
        if let Some(gap) = self.keeper.step().gap(fired.at_ns, self.cost, self.keeper.budget()) {
            let _ = capture.gaps(&[gap]);
        }
        self.capture = Some(capture);
        lock(&self.shared).metrics.captured(&fired.name, &name);
        self.last_capture = Some(name);
        Ok(shown)
    }

    fn shown(&self, name: &str) -> String {
        self.config.store.directory.join(name).display().to_string()
    }

    fn header(&self) -> (Header, Vec<Gap>) {
        let (setup, gaps) = knobs::observe(None);
        let header = Header {
            written_by: env!("CARGO_PKG_VERSION").to_owned(),
            source: Source::Host,
            machine: machine::describe(),
            setup,
            clock: Clock { start_ns: 0, wall_offset_ns: Some(wall_offset_ns()) },
            threshold_ns: self.config.threshold_ns,
            target: Target { what: "every program of this machine".to_owned(), ..Target::default() },
            hooks: self.sight.hooks(),
            observed: self.sight.observed(),
            ..Header::default()
        };
        (header, gaps)
    }

    fn cut(&mut self, why: &str, tell: &mut dyn FnMut(&str)) {
        self.seal(Some(why), tell);
    }

    fn seal(&mut self, cut: Option<&str>, tell: &mut dyn FnMut(&str)) {
        let Some(capture) = self.capture.take() else { return };
        let own = OwnCost { cpu_share: self.cost.share(), rss_bytes: self.cost.rss_bytes, syscall_ns: None };
        match capture.finish(own, cut) {
            Ok((name, finished)) => {
                let whole = if finished.sealed { "sealed" } else { "not sealed, but readable" };
                tell(&format!("{} {whole}", self.shown(&name)));
            }
            Err(error) => tell(&format!("the recording could not be sealed: {error}; what was written is readable")),
        }
        give_back_memory();
        self.prune(None, tell);
    }

    /// Work that is done less often than once a second.
    fn upkeep(&mut self, now_ns: u64, tell: &mut dyn FnMut(&str)) {
        if self.store.is_none() && self.seconds.is_multiple_of(STORE_EVERY_S) {
            self.open_store(tell);
        }
        let short = self.store.as_ref().is_some_and(|store| store.room() == Err(Full::Disk));
        if short && self.capture.is_some() {
            self.prune(self.capture.as_ref().map(|capture| capture.name.clone()).as_deref(), tell);
            if self.store.as_ref().is_some_and(|store| store.room().is_err()) {
                self.cut("the file system's free space is down to store.keep_free", tell);
            }
        }
        match self.seconds % COST_EVERY_S {
            0 => {
                self.sight.programs.begin();
                self.armed_from = self.sight.is_armed().then(KernelTime::read);
            }
            1 => self.weigh(now_ns, tell),
            _ => {}
        }
        if self.seconds.is_multiple_of(3_600) {
            self.prune(None, tell);
        }
    }

    fn open_store(&mut self, tell: &mut dyn FnMut(&str)) {
        match Store::open(&self.config.store) {
            Ok(store) => {
                for refusal in store.remove_leftovers() {
                    tell(&format!("a recording that was not completed cannot be removed: {refusal}"));
                }
                self.store = Some(store);
            }
            Err(refusal) => tell(&format!("no recording is possible until this is fixed: {refusal}")),
        }
        self.prune(None, tell);
    }

    fn prune(&mut self, current: Option<&str>, tell: &mut dyn FnMut(&str)) {
        let Some(store) = &self.store else { return };
        let current = current.or(self.capture.as_ref().map(|capture| capture.name.as_str()));
        match store.prune(SystemTime::now(), current) {
            Ok(Pruned { removed, failed }) => {
                if !removed.is_empty() {
                    let bytes = Bytes(removed.iter().map(|one| one.bytes).sum());
                    tell(&format!(
                        "{} recordings removed, {bytes}: over store.age_days or store.size, or below store.keep_free",
                        removed.len()
                    ));
                }
                for refusal in failed {
                    tell(&format!("an old recording cannot be removed: {refusal}"));
                }
            }
            Err(refusal) => tell(&format!("old recordings cannot be removed: {refusal}")),
        }
        if let Some(bytes) = store.bytes() {
            lock(&self.shared).metrics.stored(bytes);
        }
    }

    fn reload(&mut self, path: Option<&std::path::Path>, tell: &mut dyn FnMut(&str)) {
        let Some(path) = path else { return tell("no configuration file was given, so there is none to read again") };
        let config = match Config::read(path) {
            Ok(config) => config,
            Err(error) => return tell(&format!("{error}; the previous configuration stays in use")),
        };
        let other_server = config.metrics != self.config.metrics;
        let other_store = config.store.directory != self.config.store.directory;
        let other_hooks = (config.threshold_ns, config.level) != (self.config.threshold_ns, self.config.level);
        if other_store || other_hooks {
            // A summary covers one store and one threshold.
            self.end_hour(tell);
        }
        self.look_back.set_limits(config.look_back_ns, config.budget.look_back_bytes);
        self.triggers.configure(config.triggers.clone(), &config.store);
        self.keeper.set_budget(config.budget);
        if let Some(guard) = &mut self.guard {
            guard.configure(config.guard.clone(), config.budget.cpu_share);
        }
        self.config = config;
        if other_store {
            self.seal(Some("store.directory was changed"), tell);
        }
        self.store = None;
        self.open_store(tell);
        if other_hooks {
            self.attach();
        }
        let note = if other_server { "; changes of [metrics] take effect at the next start" } else { "" };
        tell(&format!("configuration read again{note}"));
    }

    /// Publishes metrics and status until the next second.
    fn publish(&mut self) {
        let look_back_ns = self.look_back.start_ns().map_or(0, |start_ns| monotonic_ns().saturating_sub(start_ns));
        let status = serde_json::json!({
            "version": 1,
            "calls_seen": self.sight.is_attached(),
            "exact": self.sight.is_exact(),
            "threshold_ns": self.config.threshold_ns,
            "held_ns": look_back_ns,
            "held_bytes": self.look_back.bytes(),
            "shed": self.keeper.step().to_string(),
            "own_cpu_ratio": self.cost.share(),
            "own_rss_bytes": self.cost.rss_bytes,
            "recording": self.capture.as_ref().map(|capture| self.shown(&capture.name)),
            "last_recording": self.last_capture.as_ref().map(|name| self.shown(name)),
        });
        let losses = self.sight.losses();
        let asked_ns = lock(&self.shared).now_asked_ns;
        let now_ns = monotonic_ns();
        let now = (asked_ns.saturating_add(NOW_KEPT_NS) > now_ns).then(|| self.now(now_ns));
        let mut shared = lock(&self.shared);
        shared.now = now;
        shared.metrics.own(self.cost, self.keeper.step(), self.sight.is_attached(), &losses);
        shared.metrics.silenced(&self.triggers.silenced);
        shared.status = status;
        shared.next_second();
    }

    /// The table for `top`.
    fn now(&self, now_ns: u64) -> Now {
        let (rows, rows_left_out) = now::rows(self.look_back.seconds(), now_ns);
        Now {
            version: 1,
            span_ns: now::SPAN_NS,
            threshold_ns: self.config.threshold_ns,
            calls_seen: self.sight.is_attached(),
            exact: self.sight.is_exact(),
            own_cpu_ratio: self.cost.share(),
            shed: self.keeper.step().to_string(),
            rows,
            rows_left_out,
        }
    }

    fn end(mut self, tell: &mut dyn FnMut(&str)) {
        self.end_guard(tell);
        let last = self.sight.take(true);
        if self.capture.is_some() {
            self.second(last, tell);
            self.seal(Some("flatwater watch was stopped"), tell);
        }
        self.end_hour(tell);
    }
}

/// Sends the state to systemd, if systemd started the daemon and waits for it (sd_notify(3)).
fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let sent = || -> io::Result<usize> { UnixDatagram::unbound()?.send_to(state.as_bytes(), &path) };
    let _ = sent();
}
