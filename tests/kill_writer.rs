//! Kills the writer of a recording at random instants: all flushed rows can be read.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use flatwater_recording::{
    Call, Cause, ColumnKind, Entity, Gap, Header, OpKind, Recording, RecordingWriter, Segment, Series, Table, read,
};
use rand_core::{Rng, SeedableRng};

/// Environment variable of the child: the directory of the recording.
const CHILD: &str = "FLATWATER_TEST_KILL_DIR";
const KILLS: u64 = 24;

fn call(number: u64) -> Call {
    let segment = |offset_ns, ns, cause| Segment::bracketed(offset_ns, ns, cause);
    let segments = vec![segment(0, 1000, Cause::MemcgReclaim), segment(1000, 500, Cause::Unexplained)];
    let file = Some("/srv/data/journal".to_owned());
    Call::new(OpKind::Write, number, 1500, segments).by(1, 2, "journal").on(file, Some(220), None)
}

fn samples(number: u64) -> Series {
    let mut series = Series::new(Table::Vmstat);
    let value = Some(i64::try_from(number).expect("small"));
    series.push(number, &Entity::default(), &[("pgfault", ColumnKind::Counter, value)]);
    series
}

/// The child: writes in rounds and prints each round that it has flushed.
#[test]
fn child_writes_until_it_is_killed() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let mut writer = RecordingWriter::create(Path::new(&dir), &Header::default()).expect("create");
    for round in 0..800_u64 {
        writer.append_calls(&[call(round)]).expect("append");
        writer.append_series(&samples(round)).expect("append");
        writer.flush_now();
        println!("flushed {round}");
        if round % 200 == 199 {
            writer.header(&Header { seed: round, ..Header::default() }).expect("write");
        }
    }
    // Half of the kills aim at the seal.
    println!("sealing");
    let finished = writer.finish(&Header { complete: true, ..Header::default() }).expect("finish");
    assert!(finished.sealed, "{finished:?}");
}

/// Checks that calls and samples are numbered 0, 1, 2 ... without holes, and returns their counts.
fn whole_rounds(recording: &Recording) -> (usize, usize) {
    let calls: Vec<u64> = recording.calls.iter().map(|call| call.start_ns).collect();
    assert!(calls.iter().copied().eq(0..calls.len() as u64), "calls have holes");
    assert!(recording.calls.iter().all(|call| *call == self::call(call.start_ns)));
    let sampled = recording.table(Table::Vmstat).map_or_else(Vec::new, |series| series.at_ns().to_vec());
    assert!(sampled.iter().copied().eq(0..sampled.len() as u64), "samples have holes");
    (calls.len(), sampled.len())
}

#[test]
fn a_killed_writer_keeps_all_flushed_rows() {
    let place = tempfile::tempdir().expect("temporary directory");
    let mut random = rand_pcg::Pcg64::seed_from_u64(1);
    let (mut unfinished, mut finished) = (0, 0);
    for kill in 0..KILLS {
        let dir = place.path().join(format!("kill-{kill}"));
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "kill_writer::child_writes_until_it_is_killed", "--nocapture"])
            .env(CHILD, &dir)
            .stdout(Stdio::piped())
            .spawn()
            .expect("spawn");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        // Kill odd rounds while they seal, even ones while they write.
        let until = if kill % 2 == 0 { format!("flushed {}", random.next_u64() % 700) } else { "sealing".to_owned() };
        assert!(lines.any(|line| line == until), "the child ended before '{until}'");
        std::thread::sleep(Duration::from_micros(random.next_u64() % 12_000));
        child.kill().expect("kill");
        child.wait().expect("wait");
        let printed: Vec<String> = lines.collect();
        let last =
            printed.iter().rev().chain([&until]).find_map(|line| line.strip_prefix("flushed ")?.parse::<usize>().ok());
        let flushed = last.map_or(800, |last| last + 1);

        let recording = read(&dir).unwrap_or_else(|error| panic!("kill {kill}: {error}"));
        let (calls, sampled) = whole_rounds(&recording);
        assert!(
            calls >= flushed && sampled >= flushed,
            "kill {kill}: {flushed} flushed, but {calls} calls and {sampled} samples read"
        );
        if recording.header.complete {
            finished += 1;
        } else {
            unfinished += 1;
            assert!(
                recording.gaps.iter().any(|gap| gap.what.contains("end of this recording")),
                "{:?}",
                recording.gaps
            );
        }
        let damage: Vec<&Gap> = recording.gaps.iter().filter(|gap| gap.what.contains("table")).collect();
        assert!(damage.is_empty(), "kill {kill}: {damage:?}");
        fs::remove_dir_all(&dir).expect("remove");
    }
    assert!(
        unfinished > 0 && finished > 0,
        "{unfinished} unfinished, {finished} finished: all kills hit the same phase"
    );
}
