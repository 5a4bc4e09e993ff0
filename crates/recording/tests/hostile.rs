//! Reads recordings that were damaged on purpose: the reader never panics, and reports what is missing.

use std::fs;
use std::path::Path;

use flatwater_recording::{
    Call, Cause, ColumnKind, Entity, Header, LatencyBucket, OpKind, PackedHistogram, ReadError, Recording,
    RecordingWriter, Segment, Series, Stack, StackId, Table, read, write_whole,
};
use proptest::prelude::{any, prop, proptest};

fn recording() -> Recording {
    let mut zones = Series::new(Table::Zones);
    for moment in 0..50 {
        zones.push(moment, &Entity::on_node(0, "Normal"), &[("free", ColumnKind::Gauge, Some(moment as i64))]);
    }
    let segment = Segment::bracketed(0, 9, Cause::Lock).with_stack(Some(StackId(0)));
    let call =
        |start_ns| Call::new(OpKind::Write, start_ns, 9, vec![segment]).by(1, 2, "journal").on(None, Some(220), None);
    let mut counting = flatwater_recording::histogram();
    counting.record_n(5000, 3).expect("in range");
    let bucket = LatencyBucket {
        start_ns: 0,
        width_ns: 1000,
        op: OpKind::Write,
        thread: String::new(),
        bytes: 1,
        from_start: PackedHistogram::pack(&counting),
        from_due: None,
        worst_from_start_ns: 5000,
        worst_from_due_ns: None,
    };
    Recording {
        header: Header { duration_ns: 50, ..Header::default() },
        latency: vec![bucket],
        calls: (0..50).map(call).collect(),
        stacks: vec![Stack { id: StackId(0), frames: vec!["vfs_write".to_owned(), "ksys_write".to_owned()] }],
        series: vec![zones],
        ..Recording::default()
    }
}

fn framed(dir: &Path) {
    let recording = recording();
    let mut writer = RecordingWriter::create(dir, &recording.header).expect("created");
    for calls in recording.calls.chunks(5) {
        writer.append_calls(calls).expect("appended");
    }
    writer.append_latency(&recording.latency).expect("appended");
    writer.append_stacks(&recording.stacks).expect("appended");
    writer.append_series(&recording.series[0]).expect("appended");
    writer.flush_now();
}

/// What later stages do first with a recording.
fn use_all(recording: &Recording) {
    assert!(recording.calls.iter().all(Call::tiles));
    assert!(recording.calls.windows(2).all(|pair| pair[0].start_ns <= pair[1].start_ns));
    for series in &recording.series {
        assert!(series.columns.iter().all(|column| [0, series.len()].contains(&column.values().len())));
        assert!(series.owners().iter().all(|&entity| usize::from(entity) < series.entities().len()));
        assert!(series.at_ns().windows(2).all(|pair| pair[0] <= pair[1]));
    }
    let sum: u64 = recording.latency.iter().map(|bucket| bucket.from_start.count()).fold(0, u64::saturating_add);
    assert!(sum > 0 || recording.latency.iter().all(|bucket| bucket.from_start.is_empty()));
}

fn config() -> proptest::test_runner::Config {
    proptest::test_runner::Config { cases: 200, failure_persistence: None, ..Default::default() }
}

/// Flips bytes of a file and truncates it.
fn damage(path: &Path, places: &[(prop::sample::Index, u8)], cut: Option<prop::sample::Index>) {
    let mut bytes = fs::read(path).expect("read");
    for (place, change) in places {
        let at = place.index(bytes.len());
        bytes[at] ^= change;
    }
    if let Some(cut) = cut {
        bytes.truncate(cut.index(bytes.len() + 1));
    }
    fs::write(path, bytes).expect("written");
}

/// Updates the manifest's checksum for a damaged Parquet file, as an attacker would.
fn vouch(dir: &Path, table: &str) {
    let path = dir.join("sealed.json");
    let text = fs::read_to_string(&path).expect("read");
    let bytes = fs::read(dir.join(format!("{table}.parquet"))).expect("read");
    let start = text.find(&format!("\"{table}\"")).expect("listed");
    let crc = start + text[start..].find("\"crc32\": ").expect("a checksum") + 9;
    let end = crc + text[crc..].find(|c: char| !c.is_ascii_digit()).expect("ends");
    fs::write(&path, format!("{}{}{}", &text[..crc], crc32fast::hash(&bytes), &text[end..])).expect("written");
}

const TABLES: [&str; 4] = ["calls", "latency", "stacks", "zones"];

proptest! {
    #![proptest_config(config())]

    #[test]
    fn damaged_frames(
        table in prop::sample::select(TABLES.to_vec()),
        places in prop::collection::vec((any::<prop::sample::Index>(), 1..=255_u8), 0..4),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let place = tempfile::tempdir().expect("temporary directory");
        let dir = place.path().join("rec");
        framed(&dir);
        damage(&dir.join(format!("{table}.frames")), &places, cut);
        use_all(&read(&dir).expect("still a recording"));
    }

    #[test]
    fn damaged_parquet_that_passes_for_sealed(
        table in prop::sample::select(TABLES.to_vec()),
        places in prop::collection::vec((any::<prop::sample::Index>(), 1..=255_u8), 1..4),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let place = tempfile::tempdir().expect("temporary directory");
        let dir = place.path().join("rec");
        write_whole(&dir, &recording()).expect("written");
        damage(&dir.join(format!("{table}.parquet")), &places, cut);
        vouch(&dir, table);
        use_all(&read(&dir).expect("still a recording"));
    }

    #[test]
    fn damaged_words(
        file in prop::sample::select(vec!["header.json", "sealed.json", "outcomes.json"]),
        text: String,
        keep in any::<prop::sample::Index>(),
    ) {
        let place = tempfile::tempdir().expect("temporary directory");
        let dir = place.path().join("rec");
        write_whole(&dir, &recording()).expect("written");
        let old = fs::read_to_string(dir.join(file)).unwrap_or_default();
        let kept: String = old.chars().take(keep.index(old.len() + 1)).collect();
        fs::write(dir.join(file), kept + &text).expect("written");
        use_all(&read(&dir).expect("still a recording"));
    }
}

#[test]
fn one_flipped_byte_in_a_sealed_table_becomes_a_gap() {
    let place = tempfile::tempdir().expect("temporary directory");
    let dir = place.path().join("rec");
    write_whole(&dir, &recording()).expect("written");
    let path = dir.join("calls.parquet");
    let mut bytes = fs::read(&path).expect("read");
    bytes[100] ^= 1;
    fs::write(&path, bytes).expect("written");
    let read = read(&dir).expect("a recording");
    assert!(read.gaps.iter().any(|gap| gap.what == "table calls" && gap.why.contains("differs")), "{:?}", read.gaps);
    assert_eq!(read.series.len(), 1, "the other tables are whole");
}

#[test]
fn a_missing_table_and_a_missing_header_become_gaps() {
    let place = tempfile::tempdir().expect("temporary directory");
    let dir = place.path().join("rec");
    write_whole(&dir, &recording()).expect("written");
    fs::remove_file(dir.join("calls.parquet")).expect("removed");
    fs::remove_file(dir.join("header.json")).expect("removed");
    let read = read(&dir).expect("a recording");
    let what: Vec<&str> = read.gaps.iter().map(|gap| gap.what.as_str()).collect();
    assert!(what.contains(&"table calls") && what.contains(&"header.json"), "{what:?}");
}

/// The error must say that the directory is not readable, not that it is empty.
#[test]
fn an_unreadable_recording_of_another_user_is_reported_as_private() {
    use std::os::unix::fs::PermissionsExt;
    // SAFETY: takes no arguments and returns a number.
    assert_eq!(unsafe { libc::geteuid() }, 0, "changing the user needs root");
    let place = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().expect("a directory");
    let dir = place.path().join("recording");
    write_whole(&dir, &recording()).expect("written");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).expect("chmod");
    let thread = std::thread::spawn(move || {
        // SAFETY: the raw system call changes only this thread (libc's function would change all threads).
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) }, 0);
        Recording::open(&dir).expect_err("private")
    });
    let error = thread.join().expect("opened or refused");
    assert!(error.to_string().contains("Permission denied") && error.to_string().contains("--group"), "{error}");
}

#[test]
fn a_newer_format_is_refused_with_its_version() {
    let place = tempfile::tempdir().expect("temporary directory");
    let dir = place.path().join("rec");
    write_whole(&dir, &recording()).expect("written");
    let newer = r#"{"format_version": 7, "written_by": "3.1.0", "machine": "no longer an object"}"#;
    fs::write(dir.join("header.json"), newer).expect("written");
    let refusal = read(&dir).expect_err("refused");
    assert!(matches!(refusal, ReadError::TooNew { found: 7, .. }));
    let words = refusal.to_string();
    assert!(words.contains("format 7") && words.contains("flatwater 3.1.0"), "{words}");
}

#[test]
fn unknown_and_missing_fields_of_the_header_are_accepted() {
    let place = tempfile::tempdir().expect("temporary directory");
    let dir = place.path().join("rec");
    write_whole(&dir, &recording()).expect("written");
    fs::write(dir.join("header.json"), r#"{"format_version": 0, "complete": true, "seed": 5, "mood": "calm"}"#)
        .expect("written");
    let read = read(&dir).expect("a recording");
    assert_eq!((read.header.seed, &read.gaps[..]), (5, &[][..]));
}

/// Regenerates the seeds of the fuzzer after a change of the format: `cargo test -p flatwater-recording hostile:: --
/// --ignored`.
#[test]
#[ignore = "writes fuzz/corpus"]
fn writes_the_fuzz_corpus() {
    let place = tempfile::tempdir().expect("temporary directory");
    let (open, sealed) = (place.path().join("open"), place.path().join("sealed"));
    framed(&open);
    write_whole(&sealed, &recording()).expect("written");
    let corpus = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("fuzz/corpus/reader");
    let tables = [("calls", 0_u8), ("latency", 1), ("stacks", 2), ("zones", 5)];
    for (table, number) in tables {
        let frames = fs::read(open.join(format!("{table}.frames"))).expect("read");
        let parquet = fs::read(sealed.join(format!("{table}.parquet"))).expect("read");
        let seeds = [(0, "frames", frames.clone()), (1, "payloads", payloads(&frames)), (2, "parquet", parquet)];
        for (kind, name, body) in seeds {
            let seed = [vec![6 * kind + number], body].concat();
            fs::write(corpus.join(format!("{name}-{table}")), seed).expect("written");
        }
    }
    for (kind, name, file) in [(18, "header", "header.json"), (24, "manifest", "sealed.json")] {
        let seed = [vec![kind], fs::read(sealed.join(file)).expect("read")].concat();
        fs::write(corpus.join(name), seed).expect("written");
    }
}

/// The decompressed payloads of frames, each preceded by its length in 16 bits.
fn payloads(mut frames: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while frames.len() >= 20 {
        let number = |at: usize| u32::from_le_bytes(frames[at..at + 4].try_into().expect("four bytes")) as usize;
        let (stored, plain) = (number(4), number(12));
        let body = &frames[20..20 + stored];
        let payload = if plain == 0 { body.to_vec() } else { zstd::bulk::decompress(body, plain).expect("ours") };
        out.extend((payload.len() as u16).to_le_bytes());
        out.extend(&payload);
        frames = &frames[20 + stored..];
    }
    out
}
