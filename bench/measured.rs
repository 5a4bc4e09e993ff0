//! Shared by the benches of reading: runs a flatwater binary, measures its time and memory, and compares it with the
//! binary of an earlier build (`--beside PATH`).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// One run of a program.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub wall_s: f64,
    /// User and system time.
    pub cpu_s: f64,
    pub resident_mib_max: f64,
}

fn given(option: &str) -> Option<PathBuf> {
    std::env::args().skip_while(|word| word != option).nth(1).map(PathBuf::from)
}

/// This build's binary, and the one to compare it with, if given. `--build` replaces the first, so that an unoptimised
/// build of this bench can make the recordings.
pub fn binaries() -> Vec<(&'static str, PathBuf)> {
    let own = given("--build").unwrap_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_flatwater")));
    let mut all = vec![("this build", own)];
    all.extend(given("--beside").map(|path| ("beside", path)));
    all
}

/// Runs the program to its end, with standard output to `out`.
pub fn run(program: &Path, arguments: &[&str], out: &Path) -> Run {
    let out = std::fs::File::create(out).expect("a file under the build's");
    let begin = Instant::now();
    // wait4 below waits for the child, and returns its resource usage.
    #[allow(clippy::zombie_processes)]
    let child = Command::new(program).args(arguments).stdin(Stdio::null()).stdout(out).spawn().expect("started");
    let pid = i32::try_from(child.id()).expect("a process id");
    let mut status = 0;
    // SAFETY: rusage consists of integers, for which zero is valid; wait4 fills it in.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `pid` is a child that nothing else waits for, and both pointers are to locals that outlive the call.
    let waited = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut used) };
    assert_eq!(waited, pid, "{}", std::io::Error::last_os_error());
    // 3 and 4 are results: not proven, not enough observed.
    let code = libc::WEXITSTATUS(status);
    assert!(libc::WIFEXITED(status) && matches!(code, 0 | 3 | 4), "{program:?} {arguments:?}: status {status:#x}");
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Run {
        wall_s: begin.elapsed().as_secs_f64(),
        cpu_s: seconds(used.ru_utime) + seconds(used.ru_stime),
        resident_mib_max: used.ru_maxrss as f64 / 1024.0,
    }
}

/// Runs the binaries alternately, `rounds` times each, and prints the medians, and the ratios of the second to the
/// first.
pub fn beside(what: &str, rounds: usize, arguments: &[&str], out: &Path) -> Vec<Run> {
    let binaries = binaries();
    let mut runs: Vec<Vec<Run>> = vec![Vec::new(); binaries.len()];
    for _ in 0..rounds {
        for ((_, program), runs) in binaries.iter().zip(&mut runs) {
            runs.push(run(program, arguments, out));
        }
    }
    let medians: Vec<Run> = runs.iter().map(|runs| median(runs)).collect();
    for ((name, _), (runs, median)) in binaries.iter().zip(runs.iter().zip(&medians)) {
        let least = runs.iter().map(|run| run.wall_s).fold(f64::INFINITY, f64::min);
        let most = runs.iter().map(|run| run.wall_s).fold(0.0, f64::max);
        println!(
            "  {what}, {name}: {:.2} s (median of {rounds}, {least:.2} to {most:.2}), CPU {:.2} s, {:.0} MiB",
            median.wall_s, median.cpu_s, median.resident_mib_max
        );
    }
    if let [ours, theirs] = medians[..] {
        let ratio = |of: fn(&Run) -> f64| of(&theirs) / of(&ours);
        println!(
            "  {what}: beside takes {:.1} times the time, {:.1} times the CPU, {:.1} times the memory",
            ratio(|run| run.wall_s),
            ratio(|run| run.cpu_s),
            ratio(|run| run.resident_mib_max)
        );
    }
    medians
}

fn median(runs: &[Run]) -> Run {
    let middle = |of: fn(&Run) -> f64| {
        let mut values: Vec<f64> = runs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    Run {
        wall_s: middle(|run| run.wall_s),
        cpu_s: middle(|run| run.cpu_s),
        resident_mib_max: middle(|run| run.resident_mib_max),
    }
}
