//! Kills `flatwater run` at random instants: the recording opens and lacks at most the last writes. The size of the
//! journal's file, which survives the kill, is the number of writes.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flatwater_recording::{OpKind, read};
use rand_core::{Rng, SeedableRng};

const KILLS: u64 = 4;
const RECORD_BYTES: u64 = 220;
const WRITES_PER_S: u64 = 5_000;
/// The goal is less than 1 s; the rest allows for other tests on the machine.
const LACKING_S_MAX: u64 = 3;

/// The number of writes in the journal's files below this directory.
fn written(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => written(&entry.path()),
        Ok(metadata) => metadata.len() / RECORD_BYTES,
        Err(_) => 0,
    });
    sizes.sum()
}

#[test]
fn a_killed_run_loses_at_most_its_last_seconds() {
    let mut random = rand_pcg::Pcg64::seed_from_u64(3);
    for kill in 0..KILLS {
        let (work, outs) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let out = outs.path().join("out");
        let mut child = Command::new(env!("CARGO_BIN_EXE_flatwater"))
            .args(["run", "-t", "60s", "-d"])
            .arg(work.path())
            .arg("-o")
            .arg(&out)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the command runs");
        let begun = Instant::now();
        while written(work.path()) < WRITES_PER_S {
            assert!(begun.elapsed() < Duration::from_secs(60), "kill {kill}: the run writes nothing");
            std::thread::sleep(Duration::from_millis(20));
        }
        // At any distance from the last flush, which comes once a second.
        std::thread::sleep(Duration::from_millis(random.next_u64() % 1_500));
        child.kill().expect("kill");
        child.wait().expect("wait");
        let recording = read(&out).expect("a recording");
        let writes = recording.latency.iter().filter(|bucket| bucket.op == OpKind::Write);
        let recorded: u64 = writes.map(|bucket| bucket.from_start.count()).sum();
        let done = written(work.path());
        eprintln!("kill {kill}: {recorded} of {done} writes are recorded");
        assert!(recorded <= done, "kill {kill}: {recorded} writes recorded, but only {done} made");
        assert!(done - recorded <= LACKING_S_MAX * WRITES_PER_S, "kill {kill}: {recorded} of {done} are recorded");
        let starts: Vec<(u64, OpKind)> = recording.latency.iter().map(|bucket| (bucket.start_ns, bucket.op)).collect();
        assert!(starts.windows(2).all(|pair| pair[0] < pair[1]), "duplicate bucket: {starts:?}");
        assert!(recording.gaps.iter().any(|gap| gap.what.contains("end of this recording")), "{:?}", recording.gaps);
        for arguments in [&["explain"][..], &["restore"]] {
            let mut next = Command::new(env!("CARGO_BIN_EXE_flatwater"));
            next.args(arguments).current_dir(work.path());
            if arguments == ["explain"] {
                next.arg(&out);
            }
            let next = next.output().expect("the command runs");
            // 4: a run that was killed after half a second may be too little to judge.
            let ended = next.status.code();
            let fits = ended == Some(0) || (arguments == ["explain"] && ended == Some(4));
            assert!(fits, "kill {kill}: {arguments:?}: {}", String::from_utf8_lossy(&next.stderr));
        }
        let left: Vec<_> = std::fs::read_dir(work.path()).expect("readable").flatten().collect();
        assert!(left.is_empty(), "kill {kill}: `restore` left {left:?}");
    }
}
