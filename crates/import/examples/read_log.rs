//! Reads logs as `flatwater import` does, and prints how much was understood, the time and the memory. `--lines` also
//! prints the lines that were not understood.
//!
//! `cargo run --release -p flatwater-import --example read_log -- [--lines] FILE...`

use std::path::PathBuf;
use std::time::Instant;

use flatwater_import::import_files;

fn main() {
    let (flags, files): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|word| word.starts_with("--"));
    let paths: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
    let bytes: u64 = paths.iter().filter_map(|path| std::fs::metadata(path).ok()).map(|meta| meta.len()).sum();
    let began = Instant::now();
    let imported = match import_files(&paths) {
        Ok(imported) => imported,
        Err(error) => {
            println!("refused after {:.3} s: {error}", began.elapsed().as_secs_f64());
            return;
        }
    };
    let seconds = began.elapsed().as_secs_f64();
    let recording = &imported.recording;
    let summary = recording.header.import.clone().unwrap_or_default();
    let mib = bytes as f64 / f64::from(1 << 20);
    println!(
        "{mib:.1} MiB in {seconds:.2} s ({:.0} MiB/s), peak {} MiB; {} of {} lines understood, {} of them passed over",
        mib / seconds,
        peak_mib().map_or("unknown".to_owned(), |mib| mib.to_string()),
        summary.understood,
        summary.lines,
        summary.passed_over
    );
    for format in &summary.formats {
        println!("  {}: {} {} lines", format.file, format.format, format.lines);
    }
    println!(
        "  {} calls, {} latency rows, {} sampled tasks, {} events, {} gaps; tables {}",
        recording.calls.len(),
        recording.latency.len(),
        recording.header.sampled_tasks.iter().map(|task| u64::from(task.count)).sum::<u64>(),
        recording.events.len(),
        recording.gaps.len(),
        recording
            .series
            .iter()
            .map(|table| format!("{} {}", table.table.name(), table.len()))
            .collect::<Vec<_>>()
            .join(", ")
    );
    if flags.iter().any(|flag| flag == "--lines") {
        for range in &summary.not_understood {
            println!("  {}:{}-{}: {}", range.file, range.first, range.last, range.shown);
        }
        for task in &recording.header.sampled_tasks {
            let (cause, frame) = (task.cause.map_or("-", |cause| cause.name()), task.frame.as_deref().unwrap_or("-"));
            println!("  {} x{} {:?}: {cause} by {frame}", task.task, task.count, task.state);
        }
    }
}

/// Peak resident size in MiB (VmHWM).
fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib / 1024)
}
