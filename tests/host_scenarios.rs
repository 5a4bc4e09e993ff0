//! Short, small runs of every host scenario: each ends, reports its results, and leaves nothing behind. Without root
//! the tests are skipped.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use flatwater_recording::outcome::WorkloadOutcome;
use flatwater_recording::{Wait, read};
use needs::{Need, skip};

/// Each run measures for one or two seconds; the rest allows for other tests on the machine.
const LONGEST: Duration = Duration::from_secs(120);

struct Case {
    scenario: &'static str,
    options: &'static [&'static str],
    story: fn(&WorkloadOutcome) -> bool,
}

const CASES: &[Case] = &[
    Case {
        scenario: "graphdb",
        options: &["--scale", "0.004", "--set", "graphdb.file_size=1MiB"],
        story: |outcome| matches!(outcome, WorkloadOutcome::Graphdb(reported) if reported.reads > 0),
    },
    Case {
        scenario: "maildir",
        options: &["--scale", "0.00002", "--set", "mount.size=128MiB"],
        story: |outcome| matches!(outcome, WorkloadOutcome::Maildir(reported) if reported.reads > 0),
    },
    Case {
        scenario: "inode-churn",
        options: &["--scale", "0.05", "--set", "stream.file_size=32MiB", "--set", "mount.size=256MiB"],
        story: |outcome| matches!(outcome, WorkloadOutcome::Maildir(reported) if reported.reads > 0),
    },
    Case {
        scenario: "sdet",
        options: &["--scale", "0.01", "--set", "sdet.runs=2", "-t", "15s"],
        story: |outcome| matches!(outcome, WorkloadOutcome::Sdet(reported) if reported.scripts > 0),
    },
    Case {
        scenario: "checkpoint",
        options: &["--scale", "0.1", "--set", "checkpoint.interval=500ms", "--set", "mount.size=128MiB"],
        story: |outcome| matches!(outcome, WorkloadOutcome::Checkpoint(reported) if !reported.checkpoints.is_empty()),
    },
    Case {
        scenario: "bulk",
        options: &["--scale", "0.02", "--set", "mount.size=128MiB"],
        story: |outcome| matches!(outcome, WorkloadOutcome::Bulk(reported) if reported.writers.len() == 10),
    },
    Case {
        scenario: "dirty-slow-device",
        options: &["--scale", "0.1", "--set", "mount.size=256MiB", "--set", "bdi.max_bytes=16MiB"],
        story: |outcome| matches!(outcome, WorkloadOutcome::Bulk(reported) if reported.fairness_throughput.is_some()),
    },
];

fn run(dir: &Path, out: &Path, scenario: &str, options: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatwater"));
    command.args(["run", scenario, "-t", "2s", "-d"]).arg(dir).arg("-o").arg(out);
    if options.contains(&"-t") {
        command = Command::new(env!("CARGO_BIN_EXE_flatwater"));
        command.args(["run", scenario, "-d"]).arg(dir).arg("-o").arg(out);
    }
    let begun = Instant::now();
    let output = command.args(options).output().expect("the command runs");
    // Status 4: a run this short may be too little to judge.
    assert!(
        matches!(output.status.code(), Some(0 | 4)),
        "{scenario}: {} {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(begun.elapsed() < LONGEST, "{scenario} took {:?}", begun.elapsed());
}

fn left_behind(dir: &Path) -> Vec<String> {
    let place = dir.display().to_string();
    let files =
        std::fs::read_dir(dir).expect("the directory").flatten().map(|entry| entry.path().display().to_string());
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    let mounts = mounts.lines().filter(|line| line.contains(&place)).map(str::to_owned).collect::<Vec<_>>();
    let loops = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let loops = loops.filter_map(|entry| std::fs::read_to_string(entry.path().join("loop/backing_file")).ok());
    let loops = loops.filter(|file| file.contains(&place)).collect::<Vec<_>>();
    files.chain(mounts).chain(loops).collect()
}

#[test]
fn each_scenario_reports_its_results_and_leaves_nothing() {
    if !rustix::process::geteuid().is_root() {
        return skip(Need::Root, "host scenarios", "not root");
    }
    for case in CASES {
        let (work, outs) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let out = outs.path().join("out");
        run(work.path(), &out, case.scenario, case.options);
        let recording = read(&out).expect("a sealed recording");
        assert!(
            recording.outcomes.iter().any(case.story),
            "{}: no such outcome in {:?}",
            case.scenario,
            recording.outcomes
        );
        let own = recording.header.target.pids.clone();
        assert!(
            recording.calls.iter().all(|call| own.contains(&call.pid)),
            "{}: calls of processes outside the target",
            case.scenario
        );
        let name = case.scenario;
        assert_eq!(left_behind(work.path()), Vec::<String>::new(), "{name} left something");
    }
}

#[test]
fn the_journal_beside_neighbours_is_measured_and_its_volume_removed() {
    if !rustix::process::geteuid().is_root() {
        return skip(Need::Root, "host scenarios", "not root");
    }
    let (work, outs) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let out = outs.path().join("out");
    run(work.path(), &out, "journal-neighbours", &["--set", "mount.size=256MiB"]);
    let recording = read(&out).expect("a sealed recording");
    assert!(recording.latency.iter().any(|bucket| bucket.from_due.is_some()), "no latency of the journal");
    // The neighbours' syncs wait for jbd2, which waits for the device. The recording has both links.
    let of_slow_call = |wait: &&Wait| {
        recording.calls.iter().any(|call| (call.tid, call.start_ns) == (wait.call_tid, wait.call_start_ns))
    };
    let names_journal = |wait: &Wait| wait.waker.as_ref().is_some_and(|waker| waker.name.starts_with("jbd2/"));
    let waits: Vec<&Wait> = recording.waits.iter().filter(of_slow_call).collect();
    assert!(waits.iter().any(|wait| wait.depth == 0 && names_journal(wait)), "{} waits", waits.len());
    assert!(waits.iter().any(|wait| wait.depth == 1 && wait.request.is_some()), "{} waits", waits.len());
    assert!(recording.requests.iter().any(|request| request.file_system.is_some()), "no request shows its file system");
    assert_eq!(left_behind(work.path()), Vec::<String>::new());
}
