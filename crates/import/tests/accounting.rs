//! Each non-blank line of a text is used, not understood, or ignored for a reason; and what exceeds a limit is a gap.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use flatwater_import::import_texts;
use flatwater_recording::{ImportSummary, Recording};

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        if entry.path().is_dir() {
            files(&entry.path(), found);
        } else {
            found.push(entry.path());
        }
    }
}

fn written(text: &str) -> u64 {
    text.split('\n').filter(|line| !line.trim().is_empty()).count() as u64
}

fn decoded(bytes: &[u8]) -> String {
    let Some(wide) = bytes.strip_prefix(&[0xff, 0xfe]) else { return String::from_utf8_lossy(bytes).into_owned() };
    let units: Vec<u16> = wide.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    String::from_utf16_lossy(&units)
}

fn check(summary: &ImportSummary, text: &str) -> Result<(), String> {
    let parts = [summary.used_lines(), summary.not_understood_lines(), summary.ignored_lines()];
    let sum: u64 = parts.iter().sum();
    if sum != written(text) {
        return Err(format!("used, not understood, ignored {parts:?} are {sum} of {} lines", written(text)));
    }
    if summary.passed_over > summary.ignored_lines() {
        return Err(format!("{} passed over, {:?}", summary.passed_over, summary.ignored));
    }
    Ok(())
}

#[test]
fn the_lines_of_every_published_log_are_used_not_understood_or_ignored() {
    let mut paths = Vec::new();
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests"));
    files(&root.join("corpus/logs"), &mut paths);
    files(&root.join("golden/import"), &mut paths);
    paths.retain(|path| path.extension().is_none_or(|extension| extension != "expected"));
    let (mut wrong, mut counted) = (Vec::new(), 0);
    for path in &paths {
        let bytes = std::fs::read(path).expect("a log");
        let text = decoded(&bytes);
        let Ok(imported) = import_texts(&[("f".to_owned(), bytes)]) else { continue };
        counted += 1;
        if let Err(why) = check(&imported.recording.header.import.expect("a summary"), &text) {
            wrong.push(format!("{}: {why}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{} of {counted}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(counted * 10 >= paths.len() * 9, "{counted} of {} logs were read", paths.len());
}

#[test]
fn lines_outside_a_format_are_ignored_for_a_reason() {
    let log = "Dear list,\nour shop has been slow since last week, without a known cause\n\n> \n---------\n...\n```\n\
        MemTotal: 16384000 kB\nMemFree: 100 kB\nBuffers: 2 kB\nCached: 500 kB\n```\nfoo 12 bar 13\n";
    let recording = import_texts(&[("f".to_owned(), log.into())]).expect("read").recording;
    let summary = recording.header.import.expect("a summary");
    check(&summary, log).expect("all lines");
    let reasons: Vec<(&str, u64)> = summary.ignored.iter().map(|each| (each.reason.as_str(), each.lines)).collect();
    for (reason, lines) in [("sentences", 1), ("marks of mail", 3), ("separators", 1), ("omitted", 1)] {
        let found = reasons.iter().find(|(known, _)| known.contains(reason));
        assert_eq!(found.map(|(_, lines)| *lines), Some(lines), "{reason}: {reasons:?}");
    }
    assert_eq!((summary.used_lines(), summary.not_understood_lines()), (4, 2), "{summary:?}");
}

#[test]
fn the_second_copy_of_a_text_and_skimmed_lines_are_counted() {
    let paste = "MemTotal: 16384000 kB\nMemFree: 100 kB\nBuffers: 2 kB\nCached: 500 kB\n";
    let prose = "the quick brown fox jumps over the lazy dog and then it rests\n";
    let long = format!("{}{paste}{}", prose.repeat(50_000), prose.repeat(50_000));
    for text in [paste.repeat(2), long] {
        let recording = import_texts(&[("f".to_owned(), text.clone().into())]).expect("read").recording;
        check(&recording.header.import.expect("a summary"), &text).expect("all lines");
    }
}

fn read(log: &str) -> Recording {
    import_texts(&[("f".to_owned(), log.into())]).expect("read").recording
}

/// Logs that exceed one limit of an importer, and the gap.
fn beyond_limits() -> Vec<(&'static str, String)> {
    let mut logs = Vec::new();
    let mut log = String::new();
    for sector in 0..65_540 {
        let _ = writeln!(log, "  8,0    1        1     0.000000000   697  Q   W {sector} + 8 [db]");
    }
    logs.push(("4 open requests of blkparse", log));
    let mut log = "# Overhead  Command  Shared Object  Symbol\n".to_owned();
    for row in 0..10_003 {
        let _ = writeln!(log, "  0.01%  db  [kernel.kallsyms]  [k] function_{row}");
    }
    logs.push(("3 rows of a CPU profile", log));
    let mut log = String::new();
    for tid in 0..10_002 {
        let _ = writeln!(log, "0 java({tid}): -> vfs_write");
    }
    logs.push(("2 functions of further threads of a SystemTap trace", log));
    let deep = "0 java(7): -> vfs_write\n".repeat(300) + &"9 java(7): <- vfs_write (took 9 us)\n".repeat(300);
    logs.push(("44 function calls inside one call", deep));
    let orders = "5 ".repeat(70);
    logs.push(("numbers of free blocks of further orders", format!("Node 0, zone   Normal {orders}\n")));
    let mut log = "[   12.3] INFO: task db:4711 blocked for more than 120 seconds.\n[   12.3] Call Trace:\n".to_owned();
    for frame in 0..130 {
        let _ = writeln!(log, "[   12.3]  function_{frame}+0x46/0x70");
    }
    logs.push(("2 frames and locks of a task", log));
    let mut log = String::new();
    for sector in 0..100_001 {
        let _ = writeln!(log, "db-7 [001] 10.000000: block_rq_issue: 8,0 W 4096 () {sector} + 8 [db]");
    }
    logs.push(("1 open block requests", log));
    logs
}

#[test]
fn what_exceeds_a_limit_is_a_gap_that_counts_it() {
    for (gap, log) in beyond_limits() {
        let recording = read(&log);
        let found = recording.gaps.iter().any(|known| known.what.contains(gap) && known.why.contains("can hold"));
        assert!(found, "{gap}: {:?}", recording.gaps);
    }
}
