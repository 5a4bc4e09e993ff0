//! Seeks with a whole, torn, stale or hostile index find what a scan finds.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use proptest::prelude::{ProptestConfig, Strategy, any, prop_oneof, proptest};

use crate::index::{POINT_LEN, Point, STEP_RECORDS, beginning, header_bytes};
use crate::{Framing, Mode, Options, ReadError, Reader, Seek, SeekCost};

fn write(path: &Path, mode: Mode, records: u64, len: impl Fn(u64) -> usize) {
    let mut log = Options::new(path).mode(mode).framing(Framing::Records).times(true).open().unwrap();
    for i in 0..records {
        log.append(&vec![i as u8; len(i)]).unwrap();
    }
    log.close().unwrap();
}

fn index_of(path: &Path) -> PathBuf {
    path.with_file_name(format!(".{}.index", path.file_name().unwrap().to_str().unwrap()))
}

/// A record as (number, time, position).
type Known = (u64, u64, u64);

fn all(path: &Path) -> Vec<Known> {
    let mut reader = Reader::open(path).unwrap();
    let mut known = Vec::new();
    while let Some(found) = reader.next().unwrap() {
        known.push((found.number, found.time_ns.unwrap(), found.position.bytes()));
    }
    known
}

/// The record that a seek finds, with its cost.
fn sought(path: &Path, to: Seek) -> (Option<Known>, SeekCost) {
    let mut reader = Reader::open(path).unwrap();
    reader.seek(to).unwrap();
    let cost = reader.seek_cost();
    let found = reader.next().unwrap();
    (found.map(|found| (found.number, found.time_ns.unwrap(), found.position.bytes())), cost)
}

/// Every kind of seek to a record finds it. Returns the sum of the costs.
fn seek_all_ways(path: &Path, known: &[Known], i: usize) -> SeekCost {
    let (number, time, position) = known[i];
    let first_at_time = known.iter().find(|(_, at, _)| *at == time).copied();
    let behind = known.get(i + 1).copied();
    let mut sum = SeekCost::default();
    for (to, wanted) in [
        (Seek::Number(number), Some(known[i])),
        (Seek::After(position - 1), Some(known[i])),
        (Seek::After(position), behind),
        (Seek::TimeNs(time), first_at_time),
        (Seek::End, None),
    ] {
        let (found, cost) = sought(path, to);
        assert_eq!(found, wanted, "{to:?}");
        sum.frames += cost.frames;
        sum.points += cost.points;
        sum.refused += cost.refused;
    }
    sum
}

#[test]
fn a_seek_in_a_million_records_reads_few_frames() {
    const RECORDS: u64 = 1_000_000;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    write(&path, Mode::Ring, RECORDS, |_| 8);
    // A search among the points, and at most a step behind the one that was found.
    let most = u64::from((RECORDS / STEP_RECORDS).ilog2()) + 1 + STEP_RECORDS + 2;
    let mut reader = Reader::open(&path).unwrap();
    for number in (0..RECORDS).step_by(77_777).chain([RECORDS - 1]) {
        reader.seek(Seek::Number(number)).unwrap();
        let cost = reader.seek_cost();
        assert!(cost.frames <= most && cost.refused == 0, "{number}: {cost:?}");
        let found = reader.next().unwrap().unwrap();
        let (time, position) = (found.time_ns.unwrap(), found.position.bytes());
        assert_eq!(found.number, number);
        reader.seek(Seek::After(position - 1)).unwrap();
        assert!(reader.seek_cost().frames <= most, "{:?}", reader.seek_cost());
        assert_eq!(reader.next().unwrap().unwrap().number, number);
        reader.seek(Seek::TimeNs(time)).unwrap();
        assert!(reader.seek_cost().frames <= most, "{:?}", reader.seek_cost());
        let found = reader.next().unwrap().unwrap();
        assert!(found.time_ns == Some(time) && found.number <= number);
    }
    reader.seek(Seek::End).unwrap();
    assert!(reader.next().unwrap().is_none() && reader.seek_cost().frames <= most);
    std::fs::remove_file(index_of(&path)).unwrap();
    reader.seek(Seek::Number(10_000)).unwrap();
    assert_eq!((reader.seek_cost().frames, reader.seek_cost().points), (10_001, 0));
}

#[test]
fn every_mode_keeps_an_index_and_the_next_appender_continues_it() {
    for mode in [Mode::Ring, Mode::Window, Mode::Prefetch, Mode::Plain] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        for _ in 0..3 {
            write(&path, mode, 900, |i| (i * 37 % 700) as usize);
        }
        let known = all(&path);
        assert_eq!(known.len(), 2_700);
        let points = std::fs::metadata(index_of(&path)).unwrap().len() / POINT_LEN as u64 - 1;
        assert!((2_700 / STEP_RECORDS..40).contains(&points), "{mode:?}: {points} points");
        for i in (0..known.len()).step_by(350) {
            let cost = seek_all_ways(&path, &known, i);
            assert!(cost.refused == 0 && cost.frames < 5 * 300, "{mode:?} {i}: {cost:?}");
        }
    }
}

#[test]
fn an_index_that_others_may_write_to_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    write(&path, Mode::Plain, 1_000, |_| 8);
    let known = all(&path);
    assert!(seek_all_ways(&path, &known, 900).points > 0);
    std::fs::set_permissions(index_of(&path), PermissionsExt::from_mode(0o666)).unwrap();
    assert_eq!(seek_all_ways(&path, &known, 900).points, 0);
    std::fs::set_permissions(index_of(&path), PermissionsExt::from_mode(0o644)).unwrap();
    std::fs::hard_link(index_of(&path), dir.path().join("second")).unwrap();
    assert_eq!(seek_all_ways(&path, &known, 900).points, 0);
}

/// After a power cut the file may be shorter than its index says, and other records follow the cut.
#[test]
fn points_behind_a_cut_are_refused_and_then_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    write(&path, Mode::Plain, 3_000, |_| 100);
    let (known, stale) = (all(&path), std::fs::read(index_of(&path)).unwrap());
    let (_, _, end) = known[999];
    OpenOptions::new().write(true).open(&path).unwrap().set_len(end).unwrap();
    let cost = seek_all_ways(&path, &known[..1000], 990);
    assert!(cost.refused > 0 && cost.points > cost.refused, "{cost:?}");
    // Other records behind the cut, appended by a program that leaves the index alone.
    write(&path, Mode::Plain, 2_000, |i| (i % 90) as usize);
    let fresh = std::fs::read(index_of(&path)).unwrap();
    std::fs::write(index_of(&path), &stale).unwrap();
    let known = all(&path);
    assert_eq!(known.len(), 3_000);
    for i in (900..3_000).step_by(300) {
        seek_all_ways(&path, &known, i);
    }
    // The next appender replaces what is stale.
    write(&path, Mode::Plain, 0, |_| 0);
    assert_eq!(std::fs::read(index_of(&path)).unwrap(), fresh);
    assert_eq!(seek_all_ways(&path, &known, 2_990).refused, 0);
}

#[test]
fn an_index_of_an_earlier_file_of_the_name_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    write(&path, Mode::Plain, 1_000, |_| 8);
    let old = std::fs::read(index_of(&path)).unwrap();
    std::fs::remove_file(&path).unwrap();
    write(&path, Mode::Plain, 1_000, |_| 8);
    std::fs::write(index_of(&path), old).unwrap();
    let known = all(&path);
    let cost = seek_all_ways(&path, &known, 900);
    assert!(cost.points > 0 && cost.refused == cost.points, "{cost:?}");
}

/// What is done to an index.
#[derive(Debug, Clone)]
enum Harm {
    Cut(usize),
    Flip(usize, u8),
    /// A point with a valid checksum.
    Point(usize, Point),
    /// The index continues with these bytes.
    Bytes(Vec<u8>),
}

fn harms() -> impl Strategy<Value = Harm> {
    let numbers = || prop_oneof![0u64..3_000, any::<u64>()];
    let offsets = prop_oneof![(0u64..40_000).prop_map(|word| word * 8), any::<u64>()];
    prop_oneof![
        (0usize..600).prop_map(Harm::Cut),
        (0usize..600, 1u8..=255).prop_map(|(at, bits)| Harm::Flip(at, bits)),
        (0usize..12, offsets, numbers(), numbers())
            .prop_map(|(at, offset, number, time)| Harm::Point(at, Point { offset, number, time })),
        proptest::collection::vec(any::<u8>(), 0..100).prop_map(Harm::Bytes),
    ]
}

fn harm(path: &Path, index: &mut Vec<u8>, harm: &Harm) {
    match harm {
        Harm::Cut(len) => index.truncate(*len),
        Harm::Flip(at, bits) => {
            if let Some(byte) = index.get_mut(*at) {
                *byte ^= bits;
            }
        }
        Harm::Point(i, point) => {
            let (header, _) = header_bytes(&File::open(path).unwrap()).unwrap();
            let at = (i + 1) * POINT_LEN;
            if index.len() < at + POINT_LEN {
                index.resize(at + POINT_LEN, 0);
            }
            index[at..at + POINT_LEN].copy_from_slice(&point.encode(&header));
        }
        Harm::Bytes(bytes) => index.extend(bytes),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

    /// Seeks find the same records; the next appender neither fails nor leaves an index that finds others.
    #[test]
    fn a_harmed_index_changes_no_result(harms in proptest::collection::vec(harms(), 1..6), at in 0usize..1_200) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        write(&path, Mode::Plain, 1_200, |i| (i * 13 % 200) as usize);
        let known = all(&path);
        let mut index = std::fs::read(index_of(&path)).unwrap();
        for each in &harms {
            harm(&path, &mut index, each);
        }
        std::fs::write(index_of(&path), &index).unwrap();
        seek_all_ways(&path, &known, at);
        write(&path, Mode::Plain, 600, |_| 40);
        let known = all(&path);
        assert_eq!(known.len(), 1_800);
        seek_all_ways(&path, &known, at + 500);
    }
}

/// The longest index that a sparse file can pretend to be costs a seek no memory and few reads.
#[test]
fn a_huge_sparse_index_is_refused_point_by_point() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    write(&path, Mode::Plain, 600, |_| 8);
    let known = all(&path);
    let index = OpenOptions::new().write(true).open(index_of(&path)).unwrap();
    index.write_all_at(&beginning(), 0).unwrap();
    index.set_len(8 << 40).unwrap();
    let cost = seek_all_ways(&path, &known, 500);
    assert!(cost.points <= 5 * 64, "{cost:?}");
}

/// A record behind a longer one is found, although the reader may not take the longer one into memory.
#[test]
fn a_seek_passes_a_record_that_is_too_long_for_the_reader() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    write(&path, Mode::Plain, 700, |i| if i == 300 { 100_000 } else { 8 });
    let mut reader = Reader::open(&path).unwrap();
    reader.record_bytes_max(1_000);
    reader.seek(Seek::Number(600)).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().number, 600);
    std::fs::remove_file(index_of(&path)).unwrap();
    assert!(matches!(reader.seek(Seek::Number(600)), Err(ReadError::TooLong { .. })));
}
