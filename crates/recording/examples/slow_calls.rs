//! Prints the slow calls of a recording, slowest first, with their segments: `cargo run -p flatwater-recording
//! --example slow_calls -- RECORDING [HOW_MANY]`.

use std::io::{self, Write};
use std::process::ExitCode;

use flatwater_recording::Recording;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let Some(path) = words.next() else {
        eprintln!("usage: slow_calls RECORDING [HOW_MANY]");
        return ExitCode::from(2);
    };
    let most = words.next().and_then(|word| word.parse().ok()).unwrap_or(10);
    let recording = match Recording::open(&path) {
        Ok(recording) => recording,
        Err(error) => {
            eprintln!("slow_calls: {error}");
            return ExitCode::FAILURE;
        }
    };
    match print_slow_calls(&recording, most, &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

pub fn print_slow_calls(recording: &Recording, most: usize, out: &mut impl Write) -> io::Result<()> {
    let mut calls: Vec<_> = recording.calls.iter().collect();
    calls.sort_by_key(|call| std::cmp::Reverse(call.duration_ns));
    for call in calls.into_iter().take(most) {
        writeln!(out, "{} of {} took {} ns", call.op.name(), call.thread, call.duration_ns)?;
        for segment in &call.segments {
            writeln!(out, "  {} ns {}", segment.ns, segment.cause.name())?;
        }
    }
    for gap in recording.gaps_found() {
        writeln!(out, "not recorded: {}: {}", gap.what, gap.why)?;
    }
    Ok(())
}
