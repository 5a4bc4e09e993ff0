//! Random sequences of `reserve`, `append`, `commit`, `sync_to`, close, death and recovery, in every mode, compared
//! with a list of records.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use proptest::prelude::{Just, ProptestConfig, Strategy, prop_oneof, proptest};

use crate::frame;
use crate::{
    AppendError, Appender, Evidence, Existing, Framing, ManyAppender, Mode, OpenError, Options, Position, RecoverError,
    SyncError, records, recover,
};

const MODES: [Mode; 4] = [Mode::Ring, Mode::Window, Mode::Prefetch, Mode::Plain];

/// Length of a record, bytes.
#[derive(Debug, Clone, Copy)]
enum Len {
    Bytes(usize),
    /// This many bytes above the longest record.
    Above(i64),
    Huge,
}

#[derive(Debug, Clone, Copy)]
enum Call {
    Append(Len),
    Reserve(Len),
    /// This many bytes above the reserved length, or above 100 without a reservation.
    Commit(i64),
    Sync,
    SyncBeyond,
    /// Others try to open and to recover the file.
    Intrude,
    CloseAndOpen(Mode),
    /// The helper panics; then the file is recovered and opened again.
    Die(Mode),
}

fn lens() -> impl Strategy<Value = Len> {
    prop_oneof![
        6 => (0usize..300).prop_map(Len::Bytes),
        4 => (0usize..20_000).prop_map(Len::Bytes),
        2 => (-8i64..8).prop_map(Len::Above),
        1 => Just(Len::Huge),
    ]
}

fn calls() -> impl Strategy<Value = Call> {
    let modes = || proptest::sample::select(&MODES[..]);
    prop_oneof![
        12 => lens().prop_map(Call::Append),
        8 => lens().prop_map(Call::Reserve),
        6 => (-64i64..1).prop_map(Call::Commit),
        2 => (1i64..70_000).prop_map(Call::Commit),
        2 => Just(Call::Sync),
        1 => Just(Call::SyncBeyond),
        1 => Just(Call::Intrude),
        2 => modes().prop_map(Call::CloseAndOpen),
        1 => modes().prop_map(Call::Die),
    ]
}

/// The bytes that a roll adds to the position of a framed appender.
const MARK_AND_HEADER: u64 = (frame::END_MARK_LEN + frame::FILE_HEADER_LEN) as u64;

#[derive(Debug, Clone, Copy)]
struct Setup {
    mode: Mode,
    framing: Framing,
    roll_bytes: u64,
}

fn setups() -> impl Strategy<Value = Setup> {
    let framings = proptest::sample::select(&[Framing::None, Framing::Records][..]);
    let rolls = proptest::sample::select(&[0u64, 64 << 10, 256 << 10][..]);
    let mode = proptest::sample::select(&MODES[..]);
    (mode, framings, rolls).prop_map(|(mode, framing, roll_bytes)| Setup { mode, framing, roll_bytes })
}

/// The appender under test and what it has accepted.
struct Run<'a> {
    setup: Setup,
    dir: &'a Path,
    shm: &'a Path,
    log: Appender,
    accepted: Vec<Vec<u8>>,
    reserved: Option<usize>,
    position: u64,
}

fn options(setup: Setup, dir: &Path, shm: &Path) -> Options {
    let path = dir.join(if setup.roll_bytes == 0 { "log" } else { "log-{}" });
    let options = Options::new(path).mode(setup.mode).framing(setup.framing).roll_bytes(setup.roll_bytes);
    options.ring_bytes(64 << 10).memory_bytes_max(1 << 20).shm_dir(shm.to_owned())
}

impl Run<'_> {
    fn options(&self, mode: Mode) -> Options {
        options(Setup { mode, ..self.setup }, self.dir, self.shm)
    }

    fn len(&self, len: Len) -> usize {
        // Without a limit of the mode the longest record is 1 GiB; lengths near that are left out.
        let max = self.log.record_max;
        match len {
            Len::Bytes(bytes) => bytes,
            Len::Above(_) if max > 16 << 20 => 70_000,
            Len::Above(by) => max.saturating_add_signed(by as isize),
            Len::Huge => usize::MAX,
        }
    }

    fn contents(&self, len: usize) -> Vec<u8> {
        let number = self.accepted.len();
        (0..len).map(|i| (i.wrapping_mul(7) ^ number.wrapping_mul(31)) as u8).collect()
    }

    /// The position has moved by the record's length, and by an end mark if the record began a new file.
    fn accept(&mut self, record: Vec<u8>, end: Position) {
        let framed = self.setup.framing == Framing::Records;
        let need = if framed { frame::framed_len(record.len()) } else { record.len() } as u64;
        let mark = if framed && self.setup.roll_bytes != 0 { MARK_AND_HEADER } else { 0 };
        let moved = end.bytes() - self.position;
        assert!(moved == need || moved == need + mark, "{moved} bytes for {need}");
        self.position = end.bytes();
        self.accepted.push(record);
    }

    fn append(&mut self, len: Len) {
        let len = self.len(len);
        self.reserved = None;
        if len > self.log.record_max {
            // Such a slice cannot be allocated; `append` checks the length first.
            let record = vec![0; len.min(self.log.record_max + 70_000)];
            assert!(matches!(self.log.append(&record), Err(AppendError::TooLong { .. })), "{len}");
            return;
        }
        let record = self.contents(len);
        let end = self.log.append(&record).unwrap();
        self.accept(record, end);
    }

    fn reserve(&mut self, len: Len) {
        let (len, max, record) = (self.len(len), self.log.record_max, self.contents(self.len(len).min(1 << 20)));
        match self.log.reserve(len) {
            Ok(place) => {
                assert!(len <= max);
                place.copy_from_slice(&record);
                self.reserved = Some(len);
            }
            Err(AppendError::TooLong { max: most, .. }) => {
                assert!(len > max && most == max);
                self.reserved = None;
            }
            Err(e) => panic!("{e}"),
        }
        // The call may have ended a file.
        let position = self.log.position().bytes();
        assert!(position == self.position || position == self.position + MARK_AND_HEADER);
        self.position = position;
    }

    fn commit(&mut self, above: i64) {
        let reserved = self.reserved.take();
        let len = reserved.unwrap_or(100).saturating_add_signed(above as isize);
        let record = self.contents(reserved.unwrap_or(0));
        match self.log.commit(len) {
            Ok(end) => {
                assert!(reserved.is_some_and(|reserved| len <= reserved), "{len} of {reserved:?}");
                self.accept(record[..len].to_vec(), end);
            }
            Err(AppendError::NotReserved { .. }) => assert!(reserved.is_none_or(|reserved| len > reserved)),
            Err(e) => panic!("{e}"),
        }
    }

    fn sync(&mut self, beyond: u64) {
        let asked = Position(self.position + beyond);
        match self.log.sync_to(asked) {
            Ok(durable) => assert!(beyond == 0 && durable.bytes() == self.position),
            Err(SyncError::Beyond { end, .. }) => assert!(beyond > 0 && end == self.position),
            Err(e) => panic!("{e}"),
        }
    }

    fn intrude(&mut self) {
        for mode in MODES {
            assert!(matches!(self.options(mode).open(), Err(OpenError::Busy { .. })));
        }
        assert!(matches!(self.options(Mode::Plain).existing(Existing::Replace).open(), Err(OpenError::Busy { .. })));
        assert!(matches!(recover(&self.options(Mode::Plain).path), Err(RecoverError::Busy { .. })));
    }

    /// Closes with `close`, checks the files, and opens them again.
    fn over_to(self, mode: Mode, close: impl FnOnce(Appender, &Path, u64)) -> Self {
        let options = self.options(mode);
        close(self.log, &options.path, self.position);
        check(&self.accepted, self.setup, self.dir, self.position);
        let log = options.open().unwrap();
        // The last file may have been full.
        let (position, framed) = (log.position().bytes(), self.setup.framing == Framing::Records);
        let moved = position - self.position;
        assert!(moved == 0 || framed && [frame::FILE_HEADER_LEN as u64, MARK_AND_HEADER].contains(&moved), "{moved}");
        Run { log, reserved: None, setup: Setup { mode, ..self.setup }, position, ..self }
    }
}

fn close(log: Appender, path: &Path, position: u64) {
    assert_eq!(log.close().unwrap().bytes(), position);
    assert_eq!(recover(path).unwrap().evidence, Evidence::Length);
}

fn die(mut log: Appender, path: &Path, _: u64) {
    if log.threads.is_empty() {
        log.core.fail("write", &std::io::Error::other("the test makes it fail"));
    }
    log.core.doomed.store(true, Ordering::Relaxed);
    let begun = Instant::now();
    while log.failure().is_none() {
        log.core.wake_helper();
        assert!(begun.elapsed() < Duration::from_secs(20), "no helper took a turn");
        std::thread::sleep(Duration::from_micros(100));
    }
    assert!(matches!(log.append(b"refused"), Err(AppendError::Failed { .. })));
    assert!(matches!(log.reserve(1), Err(AppendError::Failed { .. })));
    log.close().unwrap_err();
    assert_eq!(recover(path).unwrap().evidence, Evidence::Live);
    assert_eq!(recover(path).unwrap().evidence, Evidence::Length, "recovered twice");
}

/// The files contain exactly the accepted records, in order.
fn check(accepted: &[Vec<u8>], setup: Setup, dir: &Path, position: u64) {
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with("log"));
    files.sort();
    let files: Vec<Vec<u8>> = files.iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert_eq!(files.iter().map(Vec::len).sum::<usize>() as u64, position, "{setup:?}");
    assert!(setup.roll_bytes == 0 || files.iter().all(|file| file.len() as u64 <= setup.roll_bytes));
    match setup.framing {
        Framing::Records => {
            assert!(files.iter().flat_map(|file| records(file)).eq(accepted.iter().map(Vec::as_slice)), "{setup:?}");
        }
        Framing::None => assert!(files.concat() == accepted.concat(), "{setup:?}"),
    }
}

fn run(setup: Setup, calls: &[Call]) {
    let (dir, shm) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
    let (dir, shm) = (dir.path(), shm.path());
    let log = options(setup, dir, shm).open().unwrap();
    let position = if setup.framing == Framing::Records { frame::FILE_HEADER_LEN as u64 } else { 0 };
    let mut run = Run { setup, dir, shm, log, accepted: Vec::new(), reserved: None, position };
    for call in calls {
        match *call {
            Call::Append(len) => run.append(len),
            Call::Reserve(len) => run.reserve(len),
            Call::Commit(above) => run.commit(above),
            Call::Sync => run.sync(0),
            Call::SyncBeyond => run.sync(1),
            Call::Intrude => run.intrude(),
            Call::CloseAndOpen(mode) => run = run.over_to(mode, close),
            Call::Die(mode) => run = run.over_to(mode, die),
        }
        assert_eq!(run.log.position().bytes(), run.position);
    }
    let mode = run.setup.mode;
    drop(run.over_to(mode, close));
    assert_eq!(std::fs::read_dir(shm).unwrap().count(), 0, "shared memory is left");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn accepted_records_survive_any_order_of_calls(
        setup in setups(),
        calls in proptest::collection::vec(calls(), 1..60),
    ) {
        run(setup, &calls);
    }
}

/// Many producers: bursts of appends on several threads, between syncs, closes and deaths.
#[derive(Debug, Clone)]
enum ManyCall {
    /// Each producer appends this many records of up to this many bytes, and some sync.
    Burst(Vec<usize>, usize),
    TooLong,
    CloseAndOpen,
    Die,
}

fn many_calls() -> impl Strategy<Value = ManyCall> {
    prop_oneof![
        8 => (proptest::collection::vec(0usize..60, 1..4), prop_oneof![0usize..100, 0usize..9000])
            .prop_map(|(counts, len)| ManyCall::Burst(counts, len)),
        1 => Just(ManyCall::TooLong),
        2 => Just(ManyCall::CloseAndOpen),
        1 => Just(ManyCall::Die),
    ]
}

/// The producer's number, the record's number, and filling.
fn many_record(producer: usize, number: usize, len_max: usize) -> Vec<u8> {
    let mut record = [producer.to_le_bytes(), number.to_le_bytes()].concat();
    record.resize(16 + (number * 131 + producer) % (len_max + 1), number as u8);
    record
}

/// The records of each producer are in the files, in its order, and no others.
fn check_many(dir: &Path, accepted: &[Vec<Vec<u8>>]) {
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with("log"));
    files.sort();
    let mut next = vec![0; accepted.len()];
    for file in files.iter().map(|path| std::fs::read(path).unwrap()) {
        assert_eq!(frame::sound_len(&file), file.len(), "frames that are not whole");
        for record in records(&file) {
            let producer = usize::from_le_bytes(*record.first_chunk().unwrap());
            assert!(record == accepted[producer][next[producer]], "record {} of {producer}", next[producer]);
            next[producer] += 1;
        }
    }
    assert!(next.iter().zip(accepted).all(|(found, accepted)| *found == accepted.len()), "{next:?} found");
}

fn burst(log: &ManyAppender, accepted: &mut [Vec<Vec<u8>>], counts: &[usize], len_max: usize) {
    std::thread::scope(|scope| {
        for (producer, (accepted, count)) in accepted.iter_mut().zip(counts).enumerate() {
            scope.spawn(move || {
                let mut last = Position(0);
                for _ in 0..*count {
                    let record = many_record(producer, accepted.len(), len_max);
                    let end = log.append(&record).unwrap();
                    assert!(end > last);
                    last = end;
                    accepted.push(record);
                }
                if count % 2 == 1 {
                    assert!(log.sync_to(last).unwrap().bytes() >= last.bytes());
                }
            });
        }
    });
}

fn run_many(roll_bytes: u64, calls: &[ManyCall]) {
    let (dir, shm) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
    let (dir, shm) = (dir.path(), shm.path());
    let setup = Setup { mode: Mode::Ring, framing: Framing::Records, roll_bytes };
    let open = || options(setup, dir, shm).open_many().unwrap();
    let path = options(setup, dir, shm).path;
    let mut accepted = vec![Vec::new(); 4];
    let mut log = open();
    for call in calls {
        match call {
            ManyCall::Burst(counts, len_max) => burst(&log, &mut accepted, counts, *len_max),
            ManyCall::TooLong => {
                assert!(matches!(log.append(&vec![0; 64 << 10]), Err(AppendError::TooLong { .. })));
            }
            ManyCall::CloseAndOpen => {
                log.close().unwrap();
                check_many(dir, &accepted);
                log = open();
            }
            ManyCall::Die => {
                log.syncer().core.fail("write", &std::io::Error::other("the test makes it fail"));
                assert!(matches!(log.append(b"refused"), Err(AppendError::Failed { .. })));
                log.close().unwrap_err();
                assert_eq!(recover(&path).unwrap().evidence, Evidence::Live);
                check_many(dir, &accepted);
                log = open();
            }
        }
    }
    log.close().unwrap();
    check_many(dir, &accepted);
    assert_eq!(std::fs::read_dir(shm).unwrap().count(), 0, "shared memory is left");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn records_of_many_producers_survive_any_order_of_calls(
        roll_bytes in proptest::sample::select(&[0u64, 64 << 10, 256 << 10][..]),
        calls in proptest::collection::vec(many_calls(), 1..20),
    ) {
        run_many(roll_bytes, &calls);
    }
}
