//! Recordings whose shape costs a careless reader minutes: each opens within seconds, and refused data becomes a gap.
//! The bounds are ten times the time of a linear reader and a tenth of the time of a quadratic one.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flatwater_recording::{
    Call, Cause, ColumnKind, Entity, Header, OpKind, Recording, RecordingWriter, Segment, Series, Table, write_whole,
};
use parquet::basic::Type as Physical;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

fn within_seconds<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let begin = needs::cpu_time();
    let done = work();
    let spent = needs::cpu_time() - begin;
    assert!(spent < Duration::from_secs(15), "{what} took {spent:?} of CPU time");
    done
}

fn call() -> Call {
    Call::new(OpKind::Write, 1, 9, vec![Segment::bracketed(0, 9, Cause::Lock)]).by(1, 2, "journal")
}

/// Writes a Parquet file without rows and with this many columns in its footer.
fn wide(path: &Path, columns: usize) {
    let of_name =
        |name: String| Arc::new(Type::primitive_type_builder(&name, Physical::INT64).build().expect("a type"));
    let names = ["at_ns".to_owned()].into_iter().chain((0..columns).map(|column| format!("counter_{column}")));
    let schema =
        Type::group_type_builder("schema").with_fields(names.map(of_name).collect()).build().expect("a schema");
    let file = File::create(path).expect("made");
    let properties = Arc::new(WriterProperties::default());
    SerializedFileWriter::new(file, Arc::new(schema), properties).expect("a writer").close().expect("closed");
}

#[test]
fn a_footer_of_two_hundred_thousand_columns_is_read_quickly() {
    let place = tempfile::tempdir().expect("a directory");
    for table in ["calls", "vmstat", "waits"] {
        let dir = place.path().join(table);
        write_whole(&dir, &Recording { header: Header::default(), calls: vec![call()], ..Recording::default() })
            .expect("written");
        wide(&dir.join(format!("{table}.parquet")), 200_000);
        let read = within_seconds(table, || Recording::open(&dir).expect("opens"));
        assert!(read.gaps_found().len() < 40, "{table}: {} gaps", read.gaps_found().len());
        let named = read.gaps_found().iter().filter(|gap| gap.what.contains(&format!("table {table}"))).count();
        assert!(named > 0 || table == "vmstat", "{table}: {:?}", read.gaps_found());
    }
}

#[test]
fn entities_beyond_the_limit_become_a_gap_and_change_no_other_entity() {
    let place = tempfile::tempdir().expect("a directory");
    let written = |dir: &Path| {
        let mut writer = RecordingWriter::create(dir, &Header::default()).expect("created");
        for (at_ns, first) in [(1, 0), (2, 40_000)] {
            let mut slabs = Series::new(Table::Slabs);
            for cache in first..first + 40_000_i64 {
                let value = [("active_objs", ColumnKind::Gauge, Some(cache))];
                slabs.push(at_ns, &Entity::named(&format!("cache-{cache:05}")), &value);
            }
            writer.append_series(&slabs).expect("appended");
        }
        writer.flush_now();
        writer
    };
    let check = |dir: &Path| {
        let read = within_seconds("entities", || Recording::open(dir).expect("opens"));
        let slabs = read.table(Table::Slabs).expect("a table");
        assert_eq!(slabs.entities().len(), 65_535);
        for (entity, rows) in slabs.by_entity() {
            let values: Vec<String> =
                rows.values("active_objs").map(|(_, value)| format!("cache-{value:05}")).collect();
            assert_eq!(values, std::slice::from_ref(&entity.name));
        }
        let gaps = read.gaps_found();
        assert!(gaps.iter().any(|gap| gap.why.starts_with("14465 rows of entities beyond the limit")), "{gaps:?}");
    };
    let (open, sealed) = (place.path().join("open"), place.path().join("sealed"));
    drop(written(&open));
    check(&open);
    written(&sealed).finish(&Header::default()).expect("sealed");
    check(&sealed);
}

#[test]
fn an_overlong_name_becomes_a_gap() {
    let place = tempfile::tempdir().expect("a directory");
    let long = "x".repeat(100_000);
    let calls = vec![call().on(Some(long), None, None)];
    write_whole(place.path(), &Recording { calls, ..Recording::default() }).expect("written");
    let read = Recording::open(place.path()).expect("opens");
    assert!(read.calls.is_empty());
    assert!(read.gaps.iter().any(|gap| gap.why.contains("a name of more than")), "{:?}", read.gaps);
}
