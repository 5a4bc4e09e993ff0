//! A recording started by a trigger: the look-back, then each second until its end.

use std::collections::BTreeSet;

use flatwater_recording::units::Nanos;
use flatwater_recording::{
    Call, Clock, Event, EventKind, Finished, Gap, Header, Note, OwnCost, RecordingWriter, Request, Stack, StackId,
    Waited, WriteError,
};
use flatwater_safefs::{Dir, Refusal};

use crate::account::Account;
use crate::lookback::LookBack;
use crate::second::Second;
use crate::store::{self, Making};
use crate::trigger::Fired;

#[derive(Debug)]
pub struct Capture {
    pub name: String,
    writer: RecordingWriter,
    header: Header,
    until_ns: u64,
    /// The accounts whose triggers fired; the recording is stored for each of them.
    accounts: Vec<Account>,
    /// Calls still under way in the last second. They are written at the end of the recording, each once with its final
    /// duration.
    under_way: Vec<Call>,
    /// Requests still under way in the last second; written at the end as well.
    standing: Vec<Request>,
    /// Whether the recording says if every call is timed at its start.
    has_timing: bool,
    stacks_written: BTreeSet<StackId>,
    /// Kept open, so that the directory cannot be replaced while the writer uses it.
    dir: Dir,
}

/// Why a recording did not begin, or a trigger could not be added to it.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Store(#[from] Refusal),
}

/// The part of a stall in a recording that had begun before the stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// The stall and the whole time after it.
    Whole,
    /// The recording reaches its maximum length before that time is over.
    Part,
    /// The recording has the maximum number of accounts.
    TooMany,
}

impl Capture {
    /// Starts a recording and writes the look-back at once, so that a kill from here on loses no part of the look-back.
    /// After an error nothing of the recording is left.
    pub fn begin(
        mut making: Making,
        mut header: Header,
        fired: &Fired,
        look_back: &LookBack,
        after_ns: u64,
    ) -> Result<Capture, CaptureError> {
        let start_ns = look_back.start_ns().unwrap_or(fired.at_ns);
        let mark = format!("set off by {}: {}", fired.name, fired.observation);
        header.clock = Clock { start_ns, ..header.clock };
        header.duration_ns = fired.at_ns.saturating_sub(start_ns);
        header.trigger = Some(fired.name.clone());
        header.notes.insert(0, Note::Text(mark.clone()));
        let mut writer = RecordingWriter::create_durable(&making.dir().proc_path(), &header)?;
        // From here on a kill leaves a readable recording, however little of the look-back is written.
        making.publish()?;
        writer.append_events(&[Event::new(start_ns, EventKind::Start(header.target.what.clone()))])?;
        let mut capture = Capture {
            name: String::new(),
            writer,
            header,
            until_ns: fired.at_ns.saturating_add(after_ns),
            accounts: vec![fired.account.clone()],
            under_way: Vec::new(),
            standing: Vec::new(),
            has_timing: false,
            stacks_written: BTreeSet::new(),
            dir: making.dir().clone(),
        };
        capture.gaps(&look_back.missing())?;
        for second in look_back.seconds() {
            capture.add(second)?;
        }
        capture.writer.append_events(&[Event::new(fired.at_ns, EventKind::Mark(mark))])?;
        capture.writer.flush_now();
        capture.name = making.keep().0;
        Ok(capture)
    }

    /// Appends one second.
    pub fn add(&mut self, second: &Second) -> Result<(), WriteError> {
        if !self.has_timing {
            self.has_timing = true;
            let timing = EventKind::Timing { every_call: second.every_call_at_start };
            self.writer.append_events(&[Event::new(second.start_ns, timing)])?;
        }
        for series in &second.series {
            self.writer.append_series(series)?;
        }
        let calls: Vec<Call> = second.calls.iter().map(|owned| owned.call.clone()).collect();
        self.writer.append_calls(&calls)?;
        self.under_way = second.under_way.iter().map(|owned| owned.call.clone()).collect();
        self.standing.clone_from(&second.standing);
        let new = second.stacks.iter().filter(|stack| self.stacks_written.insert(stack.id));
        let stacks: Vec<Stack> = new.map(|stack| Stack::clone(stack)).collect();
        self.writer.append_stacks(&stacks)?;
        self.writer.append_latency(&second.latency)?;
        self.writer.append_waited(&second.waited)?;
        self.writer.append_users(&second.users)?;
        self.writer.append_events(&second.events)?;
        self.gaps(&second.gaps)?;
        self.header.duration_ns = second.end_ns.saturating_sub(self.header.clock.start_ns);
        self.writer.flush_now();
        Ok(())
    }

    pub fn gaps(&mut self, gaps: &[Gap]) -> Result<(), WriteError> {
        self.writer.append_gaps(gaps)
    }

    #[must_use]
    pub fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.until_ns
    }

    /// Adds a trigger that fired during the recording: marks it, stores the recording for its account as well, and
    /// extends the recording. It is never longer than `LENGTH_MAX` times `after_ns`.
    pub fn join(&mut self, fired: &Fired, after_ns: u64) -> Result<Joined, CaptureError> {
        if !self.accounts.contains(&fired.account) {
            if self.accounts.len() >= ACCOUNTS_MAX {
                return Ok(Joined::TooMany);
            }
            self.accounts.push(fired.account.clone());
            store::write_accounts(&self.dir, &self.accounts)?;
        }
        let wanted_ns = fired.at_ns.saturating_add(after_ns);
        let latest_ns = self.header.clock.start_ns.saturating_add(after_ns.saturating_mul(LENGTH_MAX));
        self.until_ns = self.until_ns.max(wanted_ns.min(latest_ns));
        let mark = format!("{}: {}", fired.name, fired.observation);
        self.writer.append_events(&[Event::new(fired.at_ns, EventKind::Mark(mark))])?;
        Ok(if self.until_ns >= wanted_ns { Joined::Whole } else { Joined::Part })
    }

    /// Seals the recording. `cut` is the reason if it ends early.
    pub fn finish(mut self, own_cost: OwnCost, cut: Option<&str>) -> Result<(String, Finished), WriteError> {
        let end_ns = self.header.clock.start_ns + self.header.duration_ns;
        self.writer.append_calls(&self.under_way)?;
        let requests = std::mem::take(&mut self.standing);
        self.writer.append_waited(&Waited { requests, ..Waited::default() })?;
        if let Some(why) = cut {
            let seen = Nanos(self.header.duration_ns);
            self.header.notes.push(Note::Text(format!("ended after {seen}: {why}")));
        }
        self.header.own_cost = own_cost;
        self.header.complete = cut.is_none();
        self.writer.append_events(&[Event::new(end_ns, EventKind::End(self.header.target.what.clone()))])?;
        let finished = self.writer.finish(&self.header)?;
        Ok((self.name, finished))
    }
}

/// Maximum length of a recording, in multiples of `after`. On a machine that stalls continuously, the next recording
/// follows.
const LENGTH_MAX: u64 = 10;
/// Maximum number of accounts that one recording is stored for.
const ACCOUNTS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use flatwater_recording::schema::meminfo;
    use flatwater_recording::{Entity, Header, Recording, Request, Series, Table};

    use super::{ACCOUNTS_MAX, Capture, Joined};
    use crate::account::Account;
    use crate::lookback::LookBack;
    use crate::second::{OwnedCall, Second};
    use crate::sight::tests::call;
    use crate::store::Store;
    use crate::store::tests::store;
    use crate::trigger::Fired;

    const S: u64 = 1_000_000_000;

    fn second(at: u64) -> Second {
        let mut series = Series::new(Table::Meminfo);
        series.record(at * S, &Entity::named(""), &[(meminfo::DIRTY_BYTES, Some(at as i64))]);
        let calls = vec![OwnedCall::new(call(at * S, 5_000_000), Default::default())];
        Second { start_ns: at * S, end_ns: (at + 1) * S, series: vec![series], calls, ..Second::default() }
    }

    fn fired(at_s: u64, account: Account) -> Fired {
        let observation = "a write took long".to_owned();
        Fired { name: "stall".into(), observation, at_ns: at_s * S, account, trigger: Some(0) }
    }

    fn begin(store: &Store, fired: &Fired, look_back: &LookBack, after_ns: u64) -> Capture {
        let making = store.begin(&fired.name, &fired.account, std::time::SystemTime::now()).expect("begins");
        Capture::begin(making, Header::default(), fired, look_back, after_ns).expect("begins")
    }

    /// Fails on 5d310ca9, where a recording that could not begin left its directory.
    #[test]
    fn a_recording_that_cannot_begin_leaves_nothing() {
        let (_place, store) = store(|_| {});
        let making = store.begin("stall", &Account::machine(), std::time::SystemTime::now()).expect("begins");
        // The header cannot be written over a directory.
        making.dir().make_dir("header.json").expect("made");
        let look_back = LookBack::new(60 * S, 1 << 24);
        let begun = Capture::begin(making, Header::default(), &fired(1, Account::machine()), &look_back, S);
        assert!(begun.is_err());
        assert_eq!(std::fs::read_dir(store.path()).expect("listed").count(), 0);
    }

    /// S9: fails on 5d310ca9, where the recording was stored for the first account alone.
    #[test]
    fn s9_a_recording_is_stored_for_each_account_whose_trigger_fired() {
        let (_place, store) = store(|_| {});
        let mut look_back = LookBack::new(60 * S, 1 << 24);
        look_back.push(second(9).into());
        let account = |number: usize| Account::of("/", Some(number as u32));
        let mut capture = begin(&store, &fired(10, account(0)), &look_back, 10 * S);
        assert_eq!(capture.join(&fired(12, account(1)), 10 * S).expect("joined"), Joined::Whole);
        assert!(!capture.is_over(21 * S) && capture.is_over(22 * S));
        assert_eq!(capture.join(&fired(100, account(0)), 10 * S).expect("joined"), Joined::Part, "at its maximum");
        let stored = store.recordings().expect("listed");
        assert_eq!(stored[0].accounts, [account(0).as_str(), account(1).as_str()]);
        let joined: Vec<Joined> =
            (2..100).map(|number| capture.join(&fired(13, account(number)), 10 * S).expect("joined")).collect();
        assert_eq!(joined.iter().filter(|joined| **joined == Joined::Whole).count(), ACCOUNTS_MAX - 2);
        assert_eq!(joined.last(), Some(&Joined::TooMany));
    }

    #[test]
    fn a_call_still_under_way_is_recorded_once() {
        let (_place, store) = store(|_| {});
        let hanging = |until: u64, from: u64| {
            let mut call = call(from * S, (until - from) * S);
            call.still_under_way = true;
            OwnedCall::new(call, Default::default())
        };
        let standing = |until: u64| {
            let still_under_way = Some(true);
            vec![Request { id: 1, device: "sda".into(), complete_ns: until * S, still_under_way, ..Request::default() }]
        };
        let mut look_back = LookBack::new(60 * S, 1 << 24);
        // One call hangs until the end; another of the same thread 7 ends before the last second.
        for at in 10..20 {
            let under_way = vec![hanging(at + 1, 5), hanging(at + 1, 9)];
            look_back.push(Second { under_way, standing: standing(at + 1), ..second(at) }.into());
        }
        let mut capture = begin(&store, &fired(20, Account::machine()), &look_back, S);
        let last = Second { under_way: vec![hanging(21, 5)], standing: standing(21), ..second(20) };
        capture.add(&last).expect("added");
        let (name, _) = capture.finish(Default::default(), None).expect("sealed");
        let read = Recording::open(store.path().join(name)).expect("opens");
        let hung: Vec<_> = read.calls.iter().filter(|call| call.still_under_way).collect();
        assert_eq!(hung.iter().map(|call| (call.start_ns, call.duration_ns)).collect::<Vec<_>>(), [(5 * S, 16 * S)]);
        assert_eq!(read.requests.iter().map(|request| request.complete_ns).collect::<Vec<_>>(), [21 * S]);
    }

    #[test]
    fn a_recording_begins_before_its_trigger_and_is_complete() {
        let (_place, store) = store(|_| {});
        let mut look_back = LookBack::new(60 * S, 1 << 24);
        (10..40).for_each(|at| look_back.push(second(at).into()));
        let mut capture = begin(&store, &fired(40, Account::machine()), &look_back, 5 * S);
        for at in 40..45 {
            let next = second(at);
            capture.add(&next).expect("added");
            assert_eq!(capture.is_over(next.end_ns), at == 44);
        }
        let (name, finished) = capture.finish(Default::default(), None).expect("sealed");
        assert!(finished.sealed, "{finished:?}");
        let read = Recording::open(store.path().join(name)).expect("opens");
        assert_eq!((read.header.clock.start_ns, read.header.duration_ns), (10 * S, 35 * S));
        assert_eq!(read.calls.len(), 35);
        assert_eq!(read.table(Table::Meminfo).map(|table| table.len()), Some(35));
        assert!(read.header.complete);
        assert!(read.header.notes[0].to_string().contains("set off by stall: a write took long"));
        assert_eq!(read.header.trigger.as_deref(), Some("stall"));
    }
}
