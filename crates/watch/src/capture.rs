//! A recording started by a trigger: the look-back, then each second until its end.

use flatwater_recording::store::{Finished, RecordingWriter, WriteError};
use flatwater_recording::units::Nanos;
use flatwater_recording::{Call, Clock, Event, EventKind, Gap, Header, Note, OwnCost, Request, Stack, Waited};
use flatwater_safefs::Dir;

use crate::lookback::LookBack;
use crate::second::Second;
use crate::trigger::Fired;

#[derive(Debug)]
pub struct Capture {
    pub name: String,
    writer: RecordingWriter,
    header: Header,
    until_ns: u64,
    /// Calls still under way in the last second. They are written at the end of the recording, each once with its final
    /// duration.
    under_way: Vec<Call>,
    /// Requests still under way in the last second; written at the end as well.
    standing: Vec<Request>,
    /// What the recording says of its last second; absent before the first.
    every_call: Option<bool>,
    stacks_told: std::collections::BTreeSet<flatwater_recording::StackId>,
    /// Kept open, so that the directory cannot be replaced while the writer uses it.
    _dir: Dir,
}

impl Capture {
    /// Starts a recording and writes the look-back at once, so that a kill from here on loses no part of the look-back.
    pub fn begin(
        (name, dir): (String, Dir),
        mut header: Header,
        fired: &Fired,
        held: &LookBack,
        after_ns: u64,
    ) -> Result<Capture, WriteError> {
        let start_ns = held.start_ns().unwrap_or(fired.at_ns);
        header.clock = Clock { start_ns, ..header.clock };
        header.duration_ns = fired.at_ns.saturating_sub(start_ns);
        header.trigger = Some(fired.name.clone());
        header.notes.insert(0, Note::Text(format!("set off by {}: {}", fired.name, fired.what)));
        let mut writer = RecordingWriter::create(&dir.proc_path(), &header)?.durable(true);
        writer.append_events(&[Event::new(start_ns, EventKind::Start(header.target.what.clone()))])?;
        let mut capture = Capture {
            name,
            writer,
            header,
            until_ns: fired.at_ns.saturating_add(after_ns),
            under_way: Vec::new(),
            standing: Vec::new(),
            every_call: None,
            stacks_told: Default::default(),
            _dir: dir,
        };
        capture.gaps(held.missing().as_slice())?;
        for second in held.seconds() {
            capture.add(second)?;
        }
        let said = format!("set off by {}: {}", fired.name, fired.what);
        capture.writer.append_events(&[Event::new(fired.at_ns, EventKind::Mark(said))])?;
        capture.writer.flush_now();
        Ok(capture)
    }

    /// Appends one second.
    pub fn add(&mut self, second: &Second) -> Result<(), WriteError> {
        if self.every_call != Some(second.every_call) {
            self.every_call = Some(second.every_call);
            let timing = EventKind::Timing { every_call: second.every_call };
            self.writer.append_events(&[Event::new(second.start_ns, timing)])?;
        }
        for series in &second.series {
            self.writer.append_series(series)?;
        }
        let calls: Vec<Call> = second.calls.iter().map(|owned| owned.call.clone()).collect();
        self.writer.append_calls(&calls)?;
        self.under_way = second.under_way.iter().map(|owned| owned.call.clone()).collect();
        self.standing.clone_from(&second.standing);
        let new = second.stacks.iter().filter(|stack| self.stacks_told.insert(stack.id));
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

    /// Extends the recording because another trigger fired. A recording is never longer than `LENGTH_MAX` times
    /// `after_ns`.
    pub fn goes_on(&mut self, fired: &Fired, after_ns: u64) -> Result<(), WriteError> {
        let length_max_ns = after_ns.saturating_mul(LENGTH_MAX);
        let latest_ns = self.header.clock.start_ns.saturating_add(length_max_ns);
        self.until_ns = self.until_ns.max(fired.at_ns.saturating_add(after_ns).min(latest_ns));
        let said = format!("{}: {}", fired.name, fired.what);
        self.writer.append_events(&[Event::new(fired.at_ns, EventKind::Mark(said))])
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

#[cfg(test)]
mod tests {
    use flatwater_recording::schema::meminfo;
    use flatwater_recording::{Entity, Header, Recording, Request, Series, Table};
    use flatwater_safefs::Dir;

    use super::Capture;
    use crate::lookback::LookBack;
    use crate::second::{OwnedCall, Second};
    use crate::sight::tests::call;
    use crate::trigger::Fired;

    const S: u64 = 1_000_000_000;

    fn second(at: u64) -> Second {
        let mut series = Series::new(Table::Meminfo);
        series.record(at * S, &Entity::named(""), &[(meminfo::DIRTY_BYTES, Some(at as i64))]);
        let calls = vec![OwnedCall::new(call(at * S, 5_000_000), Default::default())];
        Second { start_ns: at * S, end_ns: (at + 1) * S, series: vec![series], calls, ..Second::default() }
    }

    #[test]
    fn a_call_still_under_way_is_recorded_once() {
        let place = tempfile::tempdir().expect("a directory");
        let dir = Dir::claim(&place.path().join("one"), None).expect("claimed");
        let hanging = |until: u64, from: u64| {
            let mut call = call(from * S, (until - from) * S);
            call.still_under_way = true;
            OwnedCall::new(call, Default::default())
        };
        let standing = |until: u64| {
            let still_under_way = Some(true);
            vec![Request { id: 1, device: "sda".into(), complete_ns: until * S, still_under_way, ..Request::default() }]
        };
        let mut held = LookBack::new(60 * S, 1 << 24);
        // One call hangs until the end; another of the same thread 7 ends before the last second.
        for at in 10..20 {
            let under_way = vec![hanging(at + 1, 5), hanging(at + 1, 9)];
            held.push(Second { under_way, standing: standing(at + 1), ..second(at) }.into());
        }
        let fired =
            Fired { name: "stall".into(), what: "a write hangs".into(), at_ns: 20 * S, account: Default::default() };
        let mut capture = Capture::begin(("one".into(), dir), Header::default(), &fired, &held, S).expect("begins");
        let last = Second { under_way: vec![hanging(21, 5)], standing: standing(21), ..second(20) };
        capture.add(&last).expect("added");
        capture.finish(Default::default(), None).expect("sealed");
        let read = Recording::open(place.path().join("one")).expect("opens");
        let hung: Vec<_> = read.calls.iter().filter(|call| call.still_under_way).collect();
        assert_eq!(hung.iter().map(|call| (call.start_ns, call.duration_ns)).collect::<Vec<_>>(), [(5 * S, 16 * S)]);
        assert_eq!(read.requests.iter().map(|request| request.complete_ns).collect::<Vec<_>>(), [21 * S]);
    }

    #[test]
    fn a_recording_begins_before_its_trigger_and_is_complete() {
        let place = tempfile::tempdir().expect("a directory");
        let dir = Dir::claim(&place.path().join("one"), None).expect("claimed");
        let mut held = LookBack::new(60 * S, 1 << 24);
        (10..40).for_each(|at| held.push(second(at).into()));
        let fired = Fired {
            name: "stall".into(),
            what: "a write took long".into(),
            at_ns: 40 * S,
            account: Default::default(),
        };
        let mut capture = Capture::begin(("one".into(), dir), Header::default(), &fired, &held, 5 * S).expect("begins");
        for at in 40..45 {
            let next = second(at);
            capture.add(&next).expect("added");
            assert_eq!(capture.is_over(next.end_ns), at == 44);
        }
        let (_, finished) = capture.finish(Default::default(), None).expect("sealed");
        assert!(finished.sealed, "{finished:?}");
        let read = Recording::open(place.path().join("one")).expect("opens");
        assert_eq!((read.header.clock.start_ns, read.header.duration_ns), (10 * S, 35 * S));
        assert_eq!(read.calls.len(), 35);
        assert_eq!(read.table(Table::Meminfo).map(|table| table.len()), Some(35));
        assert!(read.header.complete);
        assert!(read.header.notes[0].to_string().contains("set off by stall: a write took long"));
        assert_eq!(read.header.trigger.as_deref(), Some("stall"));
    }
}
