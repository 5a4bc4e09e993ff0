//! Reading a long recording into little memory: fewer samples, all else whole.

use flatwater_recording::{
    ColumnKind, Entity, Header, Recording, RecordingWriter, Series, Table, read, read_thinned, write_whole,
};

const MOMENT_NS: u64 = 100_000_000;
const MOMENTS: u64 = 5_000;

fn long() -> Recording {
    let mut zones = Series::new(Table::Zones);
    for moment in 0..MOMENTS {
        for node in 0..2 {
            let free = Some(i64::try_from(moment * 10 + u64::from(node)).expect("small"));
            zones.push(moment * MOMENT_NS, &Entity::on_node(node, "Normal"), &[("free", ColumnKind::Counter, free)]);
        }
    }
    let header = Header { duration_ns: MOMENTS * MOMENT_NS, complete: true, ..Header::default() };
    Recording { header, series: vec![zones], ..Recording::default() }
}

fn check(thin: &Recording, whole: &Recording) {
    let (thin_zones, zones) = (thin.table(Table::Zones).expect("zones"), whole.table(Table::Zones).expect("zones"));
    assert_eq!(zones.len() as u64, 2 * MOMENTS);
    // 100 stretches of 50 moments: one of each but the first and the last, which are whole.
    assert_eq!(thin_zones.len(), 2 * (98 + 2 * 50));
    for node in 0..2 {
        let entity = Entity::on_node(node, "Normal");
        let (few, all) = (thin_zones.rows_of(&entity).expect("rows"), zones.rows_of(&entity).expect("rows"));
        assert_eq!(few.rise("free"), all.rise("free"));
        let known: Vec<(u64, i64)> = all.values("free").collect();
        assert!(few.values("free").all(|value| known.binary_search(&value).is_ok()), "values stay at their moments");
    }
    assert_eq!(thin.header.notes.len(), whole.header.notes.len() + 1, "{:?}", thin.header.notes);
}

#[test]
fn a_sealed_recording_is_thinned_evenly_and_says_so() {
    let place = tempfile::tempdir().expect("a directory");
    let dir = place.path().join("rec");
    write_whole(&dir, &long()).expect("written");
    check(&read_thinned(&dir, 100).expect("read"), &read(&dir).expect("read"));
}

#[test]
fn frames_are_thinned_alike() {
    let place = tempfile::tempdir().expect("a directory");
    let dir = place.path().join("rec");
    let recording = long();
    let mut writer = RecordingWriter::create(&dir, &recording.header).expect("created");
    for series in &recording.series {
        writer.append_series(series).expect("appended");
    }
    writer.flush_now();
    drop(writer);
    check(&read_thinned(&dir, 100).expect("read"), &read(&dir).expect("read"));
}

#[test]
fn a_short_recording_is_read_whole() {
    let place = tempfile::tempdir().expect("a directory");
    let dir = place.path().join("rec");
    write_whole(&dir, &long()).expect("written");
    let (thin, whole) = (read_thinned(&dir, MOMENTS).expect("read"), read(&dir).expect("read"));
    assert_eq!((thin.series, thin.header), (whole.series, whole.header));
}
