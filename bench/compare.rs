//! Measures `flatwater compare` on two recordings of 28 hours each: `cargo bench --bench compare -- [--build FLATWATER]
//! [--beside FLATWATER] [--prepared]`.
//!
//! In the second recording the slow calls take half as long. Both have a synthetic sample per second of every counter
//! of /proc/vmstat.

mod made;
mod measured;

use std::path::PathBuf;
use std::process::Command;

const CASE: &str = "FLATWATER_BENCH_COMPARE";
const SECONDS: u64 = 28 * 3600;
const ROUNDS: usize = 5;

fn main() {
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("compare");
    let dirs = [100, 50].map(|percent| (percent, place.join(format!("slow-{percent}"))));
    if let Ok(percent) = std::env::var(CASE) {
        let (slow_percent, dir) = dirs.iter().find(|(of, _)| of.to_string() == percent).expect("a known percentage");
        let samples = made::Samples::Made;
        return made::make(
            dir,
            made::Wanted { seconds: SECONDS, samples, calls: 100_000, slow_percent: *slow_percent },
        );
    }
    if !std::env::args().any(|word| word == "--prepared") {
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir_all(&place).expect("a directory under the build's");
        for (percent, _) in &dirs {
            let me = std::env::current_exe().expect("this program");
            let mut made = Command::new(me);
            made.env(CASE, percent.to_string());
            assert!(made.status().expect("started").success());
        }
    }
    let [a, b] = dirs.each_ref().map(|(_, dir)| dir.to_str().expect("a path in UTF-8"));
    let out = place.join("out");
    measured::beside("compare of 28 hours with 28 hours", ROUNDS, &["compare", a, b], &out);
    let shown = std::fs::read_to_string(&out).expect("its output");
    println!("{}", shown.lines().take(6).collect::<Vec<_>>().join("\n"));
}
