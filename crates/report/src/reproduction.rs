//! Prints a recording and its reproduction side by side.

use std::path::Path;

use super::numbers::time;
use flatwater_experiment::reproduce::{Reproduction, Side};

/// The comparison as text; `fix` is a fix of the scenario in `directory`.
#[must_use]
pub fn text(found: &Reproduction, directory: &Path, fix: Option<&str>) -> String {
    let verdict = if found.is_reproduced() { "reproduced" } else { "not reproduced" };
    let mut text = format!("{verdict}\n{:<24} {:>24} {:>24}\n", "", "recorded", "reproduced");
    let operation = &found.operation;
    let known = |ns: Option<u64>| ns.map_or_else(|| "not observed".to_owned(), time);
    let rows: [(String, fn(&Side) -> String); 3] = [
        ("top cause".to_owned(), |side| side.cause.map_or_else(|| "none".to_owned(), |cause| cause.name().to_owned())),
        ("kind of aggressor".to_owned(), |side| side.aggressor.name().to_owned()),
        ("aggressor".to_owned(), |side| if side.program.is_empty() { "-".to_owned() } else { side.program.clone() }),
    ];
    let mut line = |name: &str, of: &dyn Fn(&Side) -> String| {
        text.push_str(&format!("{name:<24} {:>24} {:>24}\n", of(&found.recorded), of(&found.reproduced)));
    };
    for (name, of) in &rows {
        line(name, of);
    }
    line(&format!("{operation} calls"), &|side| side.operations.to_string());
    line(&format!("p50 of {operation}"), &|side| known(side.p50_ns));
    line(&format!("p99 of {operation}"), &|side| known(side.p99_ns));
    line(&format!("p99.9 of {operation}"), &|side| known(side.p999_ns));
    line("stall time per second", &|side| time(side.stall_ns_per_s.max(0.0) as u64));
    line("device time of a write", &|side| known(side.device_write_ns));
    let sign = |same: bool| if same { "same" } else { "different" };
    let p99 = match found.p99_within_2 {
        Some(true) => "within a factor of 2",
        Some(false) => "further apart than a factor of 2",
        None => "not comparable",
    };
    text.push_str(&format!(
        "\ntop cause {}, kind of aggressor {}, p99 {p99}\n",
        sign(found.same_cause),
        sign(found.same_kind)
    ));
    if let Some(fix) = fix {
        let scenario = directory.join("scenario.toml");
        text.push_str(&format!("prove a fix on it: flatwater verify {} --fix {fix}\n", scenario.display()));
    }
    text
}
