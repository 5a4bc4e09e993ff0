//! How fast a recording with a million slow calls opens and is explained: `cargo bench --bench read_calls -- [CALLS]`.

use std::path::Path;
use std::time::Instant;

use flatwater_explain::explain;
use flatwater_recording::{
    Call, Cause, Header, OpKind, Recording, RecordingWriter, Segment, StackId, read, write_whole,
};
use flatwater_report::{Options, render};
use rand_core::{Rng, SeedableRng};

const ROUNDS: usize = 5;

fn main() {
    let count = std::env::args().filter_map(|word| word.parse().ok()).next().unwrap_or(1_000_000);
    let mut random = rand_pcg::Pcg64::seed_from_u64(1);
    let calls: Vec<Call> = (0..count).map(|number| call(number, &mut random)).collect();
    let segments: usize = calls.iter().map(|call| call.segments.len()).sum();
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory under the build's");
    let framed = place.path().join("framed");
    let mut writer = RecordingWriter::create(&framed, &Header::default()).expect("created");
    for some in calls.chunks(2_000) {
        writer.append_calls(some).expect("appended");
        writer.flush_now();
    }
    drop(writer);
    let sealed = place.path().join("sealed");
    write_whole(&sealed, &Recording { calls, ..Recording::default() }).expect("written");
    println!("{count} calls with {segments} segments");
    for (what, dir, file) in [("sealed", &sealed, "calls.parquet"), ("frames", &framed, "calls.frames")] {
        report(what, dir, file, count as usize);
    }
}

fn report(what: &str, dir: &Path, file: &str, count: usize) {
    let bytes = dir.join(file).metadata().expect("written").len();
    let (mut reading, mut explaining) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let recording = read(dir).expect("readable");
        assert_eq!(recording.calls.len(), count);
        reading.push(begin.elapsed().as_secs_f64());
        let begin = Instant::now();
        let explanation = explain(&recording);
        let text = render("text", &recording, &explanation, &Options::default()).expect("text needs nothing");
        assert!(text.contains("memcg-reclaim"), "{text}");
        explaining.push(begin.elapsed().as_secs_f64());
    }
    let spread = |seconds: &mut Vec<f64>| {
        seconds.sort_by(f64::total_cmp);
        format!("{:.2} s (median of {ROUNDS}, {:.2} to {:.2})", seconds[ROUNDS / 2], seconds[0], seconds[ROUNDS - 1])
    };
    println!(
        "{what}: {:.1} MB, read in {}, explained and printed in {}",
        bytes as f64 / 1e6,
        spread(&mut reading),
        spread(&mut explaining)
    );
}

/// A write() of 1 to 6 parts, as a busy journal has them.
fn call(number: u64, random: &mut rand_pcg::Pcg64) -> Call {
    let causes = [Cause::MemcgReclaim, Cause::JournalCommit, Cause::RunQueue, Cause::Lock, Cause::Unexplained];
    let mut duration_ns = 0;
    let segments = (0..1 + random.next_u64() % 6).map(|_| {
        let (offset_ns, ns) = (duration_ns, 1000 + random.next_u64() % 5_000_000);
        duration_ns += ns;
        let cause = causes[(random.next_u64() % 5) as usize];
        let stack = Some(StackId((random.next_u64() % 200) as u32));
        Segment::bracketed(offset_ns, ns, cause).with_stack(stack)
    });
    let segments = segments.collect();
    Call {
        pid: 4000 + (random.next_u64() % 4) as u32,
        tid: 4000 + (random.next_u64() % 32) as u32,
        thread: format!("writer-{}", random.next_u64() % 32),
        op: OpKind::Write,
        bytes: Some(220),
        offset_bytes: Some(number * 220),
        file: Some("/srv/data/journal".to_owned()),
        due_ns: Some(number * 3_600_000),
        start_ns: number * 3_600_000 + random.next_u64() % 100_000,
        duration_ns,
        segments,
        after_exit_ns: 0,
        damaged: false,
    }
}
