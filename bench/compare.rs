//! `compare` of two recordings of 28 hours each: `cargo bench --bench compare -- [--hz N] [--beside FLATWATER] [--prepared]`,
//! as root for slabinfo.
//!
//! The first compares a quiet day with one whose slow calls take half as long. By default they have a sample a second.

mod made;
mod measured;

use std::path::PathBuf;
use std::process::Command;

const CASE: &str = "FLATWATER_BENCH_COMPARE";
const SECONDS: u64 = 28 * 3600;
const ROUNDS: usize = 5;

fn main() {
    let hz = std::env::args().skip_while(|word| word != "--hz").nth(1).map_or(1, |word| word.parse().expect("--hz N"));
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("compare-{hz}"));
    let dirs = [100, 50].map(|percent| (percent, place.join(format!("slow-{percent}"))));
    if let Ok(percent) = std::env::var(CASE) {
        let (slow_percent, dir) = dirs.iter().find(|(of, _)| of.to_string() == percent).expect("one of ours");
        return made::make(dir, made::Wanted { seconds: SECONDS, hz, calls: 100_000, slow_percent: *slow_percent });
    }
    if !std::env::args().any(|word| word == "--prepared") {
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir_all(&place).expect("a directory under the build's");
        for (percent, _) in &dirs {
            let me = std::env::current_exe().expect("this program");
            let mut made = Command::new(me);
            made.args(["--hz", &hz.to_string()]).env(CASE, percent.to_string());
            assert!(made.status().expect("started").success());
        }
    }
    let [a, b] = dirs.each_ref().map(|(_, dir)| dir.to_str().expect("a path of ours"));
    let out = place.join("out");
    measured::beside("compare of 28 hours with 28 hours", ROUNDS, &["compare", a, b], &out);
    let shown = std::fs::read_to_string(&out).expect("its output");
    println!("{}", shown.lines().take(6).collect::<Vec<_>>().join("\n"));
}
