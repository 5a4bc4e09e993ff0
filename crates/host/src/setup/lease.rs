//! Limits with a lease. A second process, `flatwater __lease`, sets each limit, and removes it when its lease is not
//! renewed: after the daemon was killed, while it hangs, or after the machine was suspended (CLOCK_BOOTTIME).
//!
//! The process writes the limit into a journal before it sets it, so that `flatwater restore`, and the daemon at its
//! next start, remove it even if both processes were killed. It never overwrites a value that another process set.
//! Removal waits for no disk, and the process locks its memory, because the disk may be the one that stalls.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flatwater_guard::{Action, Lease, Reading};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::limit::{Lifted, Limit, LimitError};
use super::undo::{Undo, UndoLog};
use super::{Log, state};

/// The hidden verb of the process.
pub const VERB: &str = "__lease";
/// Its first word on the command line; the program's file may be replaced by an upgrade while it runs.
const NAME: &str = "flatwater";
/// Interval between two checks of the lease and of the value in the kernel.
const LOOK: Duration = Duration::from_millis(250);
const LOOK_TIMESPEC: rustix::time::Timespec = rustix::time::Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
/// A command is at most this long: a group's path is at most 512 bytes.
const LINE_BYTES_MAX: usize = 4_096;
/// How long an answer may take. A limit is journalled before it is set, and the journal's disk may stall.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
const JOURNAL_PATIENCE: Duration = Duration::from_secs(40);
/// How long `end_all` waits.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// CLOCK_BOOTTIME, ns.
#[must_use]
pub fn boottime_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Order {
    Apply {
        action: Action,
        lease_ns: u64,
    },
    Renew,
    Remove,
    /// Keep the limit until this time, without further renewals, also after the daemon's end.
    Leave {
        until_ns: u64,
    },
}

/// The process's answer: its state after an order or a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Free,
    Held { action: Action, value: Option<String> },
    Failed { why: String },
    Foreign { value: String },
    Gone,
}

/// The state of the process with the lease.
#[derive(Debug)]
struct Holder {
    journal: Option<UndoLog>,
    /// The limits that the journal names.
    journalled: Vec<Limit>,
    held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    limit: Limit,
    lease_ns: u64,
    until_ns: u64,
    /// Set by `Order::Leave`.
    alone: bool,
}

impl Holder {
    fn apply(&mut self, action: Action, lease_ns: u64) -> State {
        if let Some(held) = &self.held {
            return State::Failed { why: format!("{} is in force", held.limit) };
        }
        let limit = Limit(action);
        if let Err(error) = limit.check_free().and_then(|()| Ok(self.record(&limit)?)).and_then(|()| limit.set()) {
            // If the kernel stored another value, that value is removed if it is ours.
            let _ = limit.lift();
            return state_of(error);
        }
        self.held = Some(Held { until_ns: boottime_ns().saturating_add(lease_ns), limit, lease_ns, alone: false });
        self.look()
    }

    /// Writes the limit to the journal, once: between on and off in alternation, no disk is waited for.
    fn record(&mut self, limit: &Limit) -> io::Result<()> {
        if self.journalled.contains(limit) {
            return Ok(());
        }
        if self.journal.is_none() {
            self.journal = Some(UndoLog::create(&state::directory()?)?);
        }
        if let Some(journal) = &mut self.journal {
            journal.record(Undo::Limit(limit.clone()))?;
        }
        self.journalled.push(limit.clone());
        Ok(())
    }

    fn remove(&mut self) -> State {
        let Some(held) = self.held.take() else { return State::Free };
        match held.limit.lift() {
            Ok(Lifted::Removed | Lifted::NotSet) => State::Free,
            Ok(Lifted::Foreign(value)) => State::Foreign { value },
            Ok(Lifted::Gone) => State::Gone,
            // It is still in force: try again at the next check.
            Err(_) => {
                let action = held.limit.0.clone();
                self.held = Some(Held { until_ns: 0, alone: false, ..held });
                State::Held { action, value: None }
            }
        }
    }

    /// Checks the lease, and the value in the kernel.
    fn look(&mut self) -> State {
        let Some(held) = &self.held else { return State::Free };
        if boottime_ns() >= held.until_ns {
            return self.remove();
        }
        let own = held.limit.0.setting.value();
        let (action, reading) = (held.limit.0.clone(), held.limit.read());
        match reading {
            Reading::Value(value) if value == own => State::Held { action, value: Some(value) },
            Reading::Missing => State::Held { action, value: None },
            // The other value stays.
            Reading::Value(value) => {
                self.held = None;
                State::Foreign { value }
            }
            Reading::Gone => {
                self.held = None;
                State::Gone
            }
        }
    }

    fn perform(&mut self, order: Order) -> State {
        match order {
            Order::Apply { action, lease_ns } => self.apply(action, lease_ns),
            Order::Renew => {
                if let Some(held) = self.held.as_mut().filter(|held| !held.alone) {
                    held.until_ns = boottime_ns().saturating_add(held.lease_ns);
                }
                self.look()
            }
            Order::Remove => self.remove(),
            Order::Leave { until_ns } => {
                if let Some(held) = &mut self.held {
                    (held.until_ns, held.alone) = (until_ns, true);
                }
                self.look()
            }
        }
    }

    /// Removes the journal. Called when no limit is in force.
    fn finish(&mut self) {
        if let Some(journal) = self.journal.take() {
            let _ = journal.finish();
        }
        self.journalled.clear();
    }
}

fn state_of(error: LimitError) -> State {
    match error {
        LimitError::Gone => State::Gone,
        LimitError::Foreign(value) => State::Foreign { value },
        error => State::Failed { why: error.to_string() },
    }
}

/// The body of `flatwater __lease`: takes orders from standard input until it ends. `stop` ends it as well, and any
/// limit with it.
pub fn serve(stop: &AtomicBool) -> io::Result<()> {
    // Its own session, so that a terminal's signal for the daemon does not end this process first.
    let _ = rustix::process::setsid();
    // With locked memory it works while the disk stalls. It may lack the permission.
    let lock =
        rustix::mm::MlockAllFlags::CURRENT | rustix::mm::MlockAllFlags::FUTURE | rustix::mm::MlockAllFlags::ONFAULT;
    let _ = rustix::mm::mlockall(lock);
    let (stdin, stdout) = (io::stdin(), io::stdout());
    rustix::io::ioctl_fionbio(&stdin, true)?;
    // A daemon that hangs does not read: its answers are dropped, and the lease ends.
    rustix::io::ioctl_fionbio(&stdout, true)?;
    let mut holder = Holder { journal: None, journalled: Vec::new(), held: None };
    let mut lines = Lines::default();
    let mut last = State::Free;
    loop {
        let mut open = true;
        if !lines.has_ended {
            let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
            let _ = poll(&mut ready, Some(&LOOK_TIMESPEC));
            while let Some(order) = lines.next(&stdin) {
                last = holder.perform(order);
                tell(&stdout, &last);
            }
            open = !lines.has_ended;
        } else {
            std::thread::sleep(LOOK);
        }
        let alone = holder.held.as_ref().is_some_and(|held| held.alone);
        if stop.load(Ordering::Relaxed) || (!open && !alone) {
            holder.remove();
        } else {
            let now = holder.look();
            if now != last {
                last = now;
                tell(&stdout, &last);
            }
        }
        if holder.held.is_none() && (stop.load(Ordering::Relaxed) || !open) {
            holder.finish();
            return Ok(());
        }
    }
}

fn tell(stdout: &io::Stdout, state: &State) {
    let Ok(mut line) = serde_json::to_vec(state) else { return };
    line.push(b'\n');
    // Shorter than PIPE_BUF: written at once, or not at all.
    let _ = rustix::io::write(stdout, &line);
}

/// Orders from a pipe that is not waited for.
#[derive(Default)]
struct Lines {
    buffer: Vec<u8>,
    has_ended: bool,
}

impl Lines {
    /// The next complete order, if one has arrived. A damaged line ends the orders: the lease then ends.
    fn next(&mut self, from: &impl AsFd) -> Option<Order> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let order = serde_json::from_slice(&line).ok();
                self.has_ended |= order.is_none();
                return order;
            }
            let mut chunk = [0; 1024];
            match rustix::io::read(from, &mut chunk) {
                Ok(0) => self.has_ended = true,
                Ok(count) if self.buffer.len() + count <= LINE_BYTES_MAX => {
                    self.buffer.extend_from_slice(chunk.get(..count).unwrap_or_default());
                    continue;
                }
                Ok(_) => self.has_ended = true,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(_) => self.has_ended = true,
            }
            return None;
        }
    }
}

/// The daemon's side.
#[derive(Debug)]
pub struct LeaseClient {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    line: Vec<u8>,
    state: Lease,
    /// When the oldest order without an answer was given, and how long its answer may take.
    unanswered: Option<(Instant, Duration)>,
    /// Why the last order failed.
    pub why: Option<String>,
}

impl LeaseClient {
    /// Starts the process.
    pub fn start() -> io::Result<LeaseClient> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0(NAME).arg(VERB).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn()?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("no pipe"));
        };
        // Neither a full pipe nor a missing answer holds the daemon up.
        rustix::io::ioctl_fionbio(&orders, true)?;
        rustix::io::ioctl_fionbio(&answers, true)?;
        let answers = BufReader::new(answers);
        Ok(LeaseClient { child, orders, answers, line: Vec::new(), state: Lease::Free, unanswered: None, why: None })
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn order(&mut self, order: &Order) {
        let patience = if matches!(order, Order::Apply { .. }) { JOURNAL_PATIENCE } else { ANSWER_PATIENCE };
        self.unanswered.get_or_insert((Instant::now(), patience));
        let sent = serde_json::to_vec(order).map_err(io::Error::other).and_then(|mut line| {
            line.push(b'\n');
            self.orders.write_all(&line)
        });
        if sent.is_err() {
            self.state = Lease::Lost;
        }
    }

    pub fn apply(&mut self, action: &Action, lease_ns: u64) {
        self.state = Lease::Pending;
        self.order(&Order::Apply { action: action.clone(), lease_ns });
    }

    pub fn renew(&mut self) {
        self.order(&Order::Renew);
    }

    pub fn remove(&mut self) {
        if self.state != Lease::Lost {
            self.state = Lease::Pending;
        }
        self.order(&Order::Remove);
    }

    pub fn leave(&mut self, until_ns: u64) {
        self.order(&Order::Leave { until_ns });
    }

    /// The state by the answers that have arrived. A process that does not answer in time is lost.
    pub fn state(&mut self) -> Lease {
        self.read_answers();
        if self.unanswered.is_some_and(|(since, patience)| since.elapsed() > patience) {
            self.state = Lease::Lost;
        }
        self.state.clone()
    }

    fn read_answers(&mut self) {
        loop {
            match self.answers.read_until(b'\n', &mut self.line) {
                Ok(_) if self.line.last() == Some(&b'\n') => {
                    match serde_json::from_slice(&self.line) {
                        Ok(state) => self.take(state),
                        Err(_) => self.state = Lease::Lost,
                    }
                    self.line.clear();
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => break,
                // The end of the pipe: the process is dead.
                Ok(_) | Err(_) => {
                    self.state = Lease::Lost;
                    break;
                }
            }
        }
    }

    fn take(&mut self, state: State) {
        self.why = None;
        self.unanswered = None;
        self.state = match state {
            State::Free => Lease::Free,
            State::Held { action, value } => {
                Lease::Held { action, reading: value.map_or(Reading::Missing, Reading::Value) }
            }
            State::Failed { why } => {
                self.why = Some(why);
                Lease::Failed
            }
            State::Foreign { value } => {
                self.why = Some(format!("the value is {value}"));
                Lease::Foreign
            }
            State::Gone => Lease::Gone,
        };
    }

    /// After a failure was seen: nothing is in force.
    pub fn clear(&mut self) {
        if matches!(self.state, Lease::Failed | Lease::Foreign | Lease::Gone) {
            self.state = Lease::Free;
        }
    }

    /// Kills a lost process. Its journal lists its changes.
    pub fn abandon(self) {
        let LeaseClient { mut child, .. } = self;
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Closes the pipe: the process removes its limit, or keeps it if it was ordered to, and ends. Waits until it has
    /// ended unless it keeps the limit.
    pub fn close(self, keeps: bool) {
        let LeaseClient { mut child, orders, answers, .. } = self;
        drop((orders, answers));
        if !keeps {
            let _ = child.wait();
        }
    }
}

/// This user's processes with a lease.
fn all() -> Vec<rustix::process::Pid> {
    use std::os::unix::fs::MetadataExt;
    let own = rustix::process::geteuid().as_raw();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_one = |pid: &i32| {
        let place = format!("/proc/{pid}");
        let is_own = std::fs::metadata(&place).is_ok_and(|entry| entry.uid() == own);
        if !is_own {
            return false;
        }
        let words = crate::proc::text::read_first(format!("{place}/cmdline"), 256).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0);
        words.next() == Some(NAME.as_bytes()) && words.next() == Some(VERB.as_bytes())
    };
    names.filter(is_one).filter_map(rustix::process::Pid::from_raw).collect()
}

/// Whether an earlier daemon left a limit in force.
#[must_use]
pub fn is_any_left() -> bool {
    !all().is_empty()
}

/// Ends all processes with a lease, and with each its limit; then restores what killed ones left. Returns how many
/// did not end.
pub fn end_all(log: &Log) -> usize {
    let until = Instant::now() + END_PATIENCE;
    for pid in all() {
        log(&format!("ending the lease of process {}", pid.as_raw_nonzero()));
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    loop {
        let left = all().len();
        if left == 0 || Instant::now() > until {
            super::recover(log);
            return left;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Makes `stop` true on SIGTERM, SIGINT and SIGHUP.
pub fn stop_on_signals() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flatwater_guard::{Device, Setting, action::Direction};

    use super::super::limit::Limit;
    use super::super::undo::Undo;
    use super::{Holder, LINE_BYTES_MAX, Lines, Order, State};

    /// As tests/matrix/guard.sh writes it.
    const APPLY: &str = concat!(
        r#"{"apply":{"action":{"group":"/flatwater-absent/x","setting":{"io-max":{"device":{"major":254,"minor":0},"#,
        r#""direction":"write","bytes_per_s":1048576}}},"lease_ns":5000000000}}"#
    );

    fn orders(bytes: &[u8]) -> (Vec<Order>, bool) {
        let (read, mut write) = std::io::pipe().expect("a pipe");
        write.write_all(bytes).expect("written");
        drop(write);
        let mut lines = Lines::default();
        let found = std::iter::from_fn(|| lines.next(&read)).collect();
        (found, lines.has_ended)
    }

    #[test]
    fn orders_are_lines_and_a_damaged_one_ends_them() {
        let (found, _) = orders(format!("{APPLY}\n\"renew\"\n\"remove\"\n").as_bytes());
        let [Order::Apply { action, lease_ns }, Order::Renew, Order::Remove] = &found[..] else { panic!("{found:?}") };
        let device = Device { major: 254, minor: 0 };
        let setting = Setting::IoMax { device, direction: Direction::Write, bytes_per_s: 1 << 20 };
        assert_eq!((action.setting, *lease_ns), (setting, 5_000_000_000));
        for damaged in ["{\"apply\":1}\n\"renew\"\n", "nonsense\n", &APPLY.replace("/flatwater-absent/x", "/../etc")] {
            let (found, ended) = orders(format!("{damaged}\n").as_bytes());
            assert!(found.is_empty() && ended, "{damaged}: {found:?}");
        }
        let (found, ended) = orders(&vec![b'x'; 2 * LINE_BYTES_MAX]);
        assert!(found.is_empty() && ended, "an endless line");
    }

    #[test]
    fn nothing_is_in_force_on_a_group_that_does_not_exist() {
        let mut holder = Holder { journal: None, journalled: Vec::new(), held: None };
        let Ok(order) = serde_json::from_str::<Order>(APPLY) else { panic!("{APPLY}") };
        let state = holder.perform(order);
        // Without cgroup v2 it fails with that reason.
        assert!(matches!(state, State::Gone | State::Failed { .. }), "{state:?}");
        assert!(holder.held.is_none() && holder.journal.is_none(), "nothing was journalled");
        assert_eq!((holder.perform(Order::Renew), holder.perform(Order::Remove)), (State::Free, State::Free));
    }

    #[test]
    fn a_limit_survives_the_journal() {
        let Ok(Order::Apply { action, .. }) = serde_json::from_str(APPLY) else { panic!("{APPLY}") };
        let undo = Undo::Limit(Limit(action));
        let text = serde_json::to_string(&undo).expect("encoded");
        assert_eq!(serde_json::from_str::<Undo>(&text).expect("decoded"), undo, "{text}");
    }
}
