//! Golden files: imports each input under tests/golden/import, and compares the result line by line with the file
//! beside it. `FLATWATER_BLESS=1 cargo test -p flatwater-import golden::` rewrites those files; review the difference
//! before you commit it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use flatwater_import::{IMPORTERS, Imported, import_texts};
use flatwater_recording::{Call, LatencyBucket, Recording, SampledTask, Series};

fn inputs() -> Vec<PathBuf> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/golden/import");
    let mut files = Vec::new();
    for folder in std::fs::read_dir(root).expect("the golden folder").flatten() {
        for file in std::fs::read_dir(folder.path()).expect("a format's folder").flatten() {
            if file.path().extension().is_none_or(|extension| extension != "expected") {
                files.push(file.path());
            }
        }
    }
    files.sort();
    files
}

fn import(bytes: &[u8]) -> Option<Imported> {
    import_texts(&[("input".to_owned(), bytes.to_vec())]).ok()
}

/// Everything in a recording that an importer can fill, as text for reviewers.
fn render(imported: &Imported) -> String {
    let Recording { header, latency, calls, series, events, gaps, outcomes, .. } = &imported.recording;
    let mut out = String::new();
    let formats: Vec<&str> = imported.formats.iter().map(|(_, format)| *format).collect();
    let _ = writeln!(out, "formats {formats:?}");
    let wall = header.clock.wall_offset_ns.map_or("unknown".to_owned(), |ns| format!("{} s", ns as f64 / 1e9));
    let _ = writeln!(out, "duration {} s, begins {wall}", header.duration_ns as f64 / 1e9);
    let _ = writeln!(out, "machine {:?}", header.machine);
    if let Some(summary) = &header.import {
        let _ = writeln!(
            out,
            "understood {} of {}, {} passed over",
            summary.understood, summary.lines, summary.passed_over
        );
        for ignored in &summary.ignored {
            let _ = writeln!(out, "ignored {}: {}", ignored.lines, ignored.reason);
        }
        for range in &summary.not_understood {
            let _ = writeln!(out, "not understood {}-{}: {}", range.first, range.last, range.shown);
        }
    }
    for task in &header.sampled_tasks {
        render_task(task, &imported.recording, &mut out);
    }
    for table in series {
        render_series(table, &mut out);
    }
    for call in calls {
        render_call(call, &imported.recording, &mut out);
    }
    for bucket in latency {
        render_latency(bucket, &mut out);
    }
    for event in events {
        let _ = writeln!(out, "event {} s {}: {}", event.at_ns as f64 / 1e9, event.kind.name(), event.kind);
    }
    for outcome in outcomes {
        let _ = writeln!(out, "outcome {}", serde_json::to_string(outcome).expect("an outcome"));
    }
    for (key, value) in header.setup.iter() {
        let _ = writeln!(out, "setup {key} = {value}");
    }
    for note in &header.notes {
        let _ = writeln!(out, "note {note}");
    }
    for gap in gaps {
        let _ = writeln!(out, "gap {}: {}", gap.what, gap.why);
    }
    out
}

fn render_task(task: &SampledTask, recording: &Recording, out: &mut String) {
    let stack = task.stack.and_then(|id| recording.stack(id)).map(|stack| stack.frames.join(" < ")).unwrap_or_default();
    let _ = write!(
        out,
        "task {:?} {} pid {:?} state {:?} x{}",
        task.reported_by, task.task, task.pid, task.state, task.count
    );
    let _ = write!(out, " line {} {}", task.line, task.cause.map_or("-", |cause| cause.name()));
    for (name, value) in [("waits for", &task.waits_for), ("owner", &task.owner)] {
        let _ = write!(out, "{}", value.as_ref().map_or(String::new(), |value| format!(" {name} {value}")));
    }
    let blocked = task.blocked_ns.map_or(String::new(), |ns| format!(" {} s", ns as f64 / 1e9));
    let _ = writeln!(
        out,
        "{blocked}{} {stack}",
        if task.holds.is_empty() { String::new() } else { format!(" holds {:?}", task.holds) }
    );
}

fn render_series(table: &Series, out: &mut String) {
    let _ = writeln!(out, "table {}", table.table.name());
    for (row, (at_ns, entity)) in table.at_ns().iter().zip(table.owners()).enumerate() {
        let entity = &table.entities()[*entity as usize];
        let node = entity.node.map_or(String::new(), |node| format!("node {node} "));
        let _ = write!(out, "  {} s {node}{}:", *at_ns as f64 / 1e9, entity.name);
        for column in &table.columns {
            if let Some(value) = column.values().get(row) {
                let _ = write!(out, " {}={value}", column.name);
            }
        }
        out.push('\n');
    }
}

fn render_call(call: &Call, recording: &Recording, out: &mut String) {
    assert!(call.tiles(), "the parts of every call tile it: {call:?}");
    let _ = write!(
        out,
        "call {} s {} {}/{} {}",
        call.start_ns as f64 / 1e9,
        call.thread,
        call.pid,
        call.tid,
        call.op.name()
    );
    let _ = write!(out, " {} us", call.duration_ns as f64 / 1e3);
    for (name, value) in [("bytes", call.bytes), ("offset", call.offset_bytes), ("after", Some(call.after_exit_ns))] {
        if let Some(value) = value.filter(|value| *value > 0) {
            let _ = write!(out, " {name} {value}");
        }
    }
    let _ = writeln!(
        out,
        "{}{}",
        call.file.as_deref().map_or(String::new(), |f| format!(" file {f}")),
        if call.damaged { " damaged" } else { "" }
    );
    for segment in &call.segments {
        let stack =
            segment.stack.and_then(|id| recording.stack(id)).map(|stack| stack.frames.join(" < ")).unwrap_or_default();
        let (at, us) = (segment.offset_ns as f64 / 1e3, segment.ns as f64 / 1e3);
        let _ = writeln!(
            out,
            "  {at} +{us} us {} {} {} {stack}",
            segment.cause.name(),
            segment.duration_basis.name(),
            segment.cause_basis.name()
        );
    }
}

fn render_latency(bucket: &LatencyBucket, out: &mut String) {
    let histogram = bucket.from_start.unpack();
    let _ = writeln!(
        out,
        "latency {} s +{} s {} '{}' n={} p50={} p99={} max={} worst={}",
        bucket.start_ns as f64 / 1e9,
        bucket.width_ns as f64 / 1e9,
        bucket.op.name(),
        bucket.thread,
        histogram.len(),
        histogram.value_at_quantile(0.5),
        histogram.value_at_quantile(0.99),
        histogram.max(),
        bucket.worst_from_start_ns
    );
}

#[test]
fn imports_match_the_golden_files() {
    let bless = std::env::var_os("FLATWATER_BLESS").is_some();
    let mut wrong = Vec::new();
    for path in inputs() {
        let bytes = std::fs::read(&path).expect("an input");
        let got = import(&bytes).map_or_else(|| "no known format\n".to_owned(), |imported| render(&imported));
        let expected = PathBuf::from(format!("{}.expected", path.display()));
        if bless {
            std::fs::write(&expected, &got).expect("the expected file");
        } else if std::fs::read_to_string(&expected).ok().as_deref() != Some(got.as_str()) {
            wrong.push(format!("{}:\n{got}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "not as expected:\n{}", wrong.join("\n"));
}

/// Every importer has an input in the folder with its name, and reads it.
#[test]
fn every_importer_has_a_golden_file_that_it_reads() {
    let inputs = inputs();
    for importer in IMPORTERS {
        let mut own = inputs.iter().filter(|path| path.parent().is_some_and(|folder| folder.ends_with(importer.name)));
        let read = own.any(|path| {
            let bytes = std::fs::read(path).expect("an input");
            import(&bytes).is_some_and(|imported| imported.formats.iter().any(|(_, name)| *name == importer.name))
        });
        assert!(read, "no input under tests/golden/import/{} that its importer reads", importer.name);
    }
}

fn items(imported: Option<Imported>) -> usize {
    let Some(Imported { recording, .. }) = imported else { return 0 };
    let rows: usize = recording.series.iter().map(Series::len).sum();
    for call in &recording.calls {
        assert!(call.tiles(), "{call:?}");
    }
    for series in &recording.series {
        assert!(series.at_ns().is_sorted(), "{:?} is not in the order of time", series.table);
    }
    let sampled = recording.header.sampled_tasks.iter().map(|task| task.count as usize).sum::<usize>();
    rows + sampled + recording.calls.len() + recording.latency.len() + recording.events.len()
}

/// A log that is cut anywhere yields everything before the cut. JSON gives its content only at the end of each branch,
/// so the result may only grow.
#[test]
fn logs_cut_at_any_byte_keep_everything_before_the_cut() {
    for path in inputs() {
        let bytes = std::fs::read(&path).expect("an input");
        let mut most = 0;
        let step = 1 + bytes.len() / places(1500, 30);
        let lines_step = 1 + bytes.iter().filter(|byte| **byte == b'\n').count() / places(1500, 60);
        let mut lines = 0;
        for end in 0..=bytes.len() {
            let ends_line = bytes.get(end.wrapping_sub(1)) == Some(&b'\n');
            lines += usize::from(ends_line);
            let whole_lines = end == bytes.len() || (ends_line && lines % lines_step == 0);
            if end % step != 0 && !whole_lines {
                continue;
            }
            let found = items(import(&bytes[..end]));
            if whole_lines {
                // The next bytes may turn one item into part of another. The only report of iostat counts as an
                // interval; when it becomes the first of several, it does not.
                let first_of_iostat = path.to_string_lossy().contains("/iostat/");
                assert!(
                    found + 2 >= most || first_of_iostat,
                    "{} cut at {end}: {found} items after {most}",
                    path.display()
                );
                most = most.max(found);
            }
        }
    }
}

/// How many places of each input to try: all in the long form (`make test-import`), else a sample.
fn places(long: usize, short: usize) -> usize {
    if std::env::var_os("FLATWATER_LONG").is_some() { long } else { short }
}

#[test]
fn junk_in_any_line_does_not_panic() {
    for path in inputs() {
        let bytes = std::fs::read(&path).expect("an input");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let whole = items(import(&bytes));
        for junk in ["x", "-1", "99999999999999999999999", "1e308", "\u{1f980}", "\0", "NaN", ":", "{", "("] {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            for at in (0..lines.len()).step_by(1 + lines.len() / places(40, 3)) {
                let old = lines[at].clone();
                let mut words: Vec<&str> = old.split_whitespace().collect();
                let place = words.len() / 2;
                if let Some(word) = words.get_mut(place) {
                    *word = junk;
                }
                let new = words.join(" ");
                lines[at] = new;
                items(import(lines.join("\n").as_bytes()));
                lines[at] = old;
            }
        }
        assert_eq!(items(import(text.as_bytes())), whole);
    }
}
