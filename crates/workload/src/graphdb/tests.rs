//! Tests of the graphdb workload.

use super::{ENTRY, FileId, MAPPINGS, Op, Params, Workload};

fn small() -> Box<dyn Workload> {
    let given = [("files", "6"), ("live", "2"), ("file_size", "64KiB"), ("readers", "1"), ("writers", "1")];
    let params = Params::check("graphdb", ENTRY.params, given).expect("parameters");
    (ENTRY.build)(&params, 1).expect("workload")
}

#[test]
fn readers_and_writers_wait_for_the_loader() {
    let mut actors = small().actors();
    assert!(matches!(actors[1].stream.next(0), Some(Op::Sleep { .. })));
    let loaded: Vec<Op> = std::iter::from_fn(|| actors[0].stream.next(0)).collect();
    let mapped: Vec<u64> =
        loaded.iter().filter_map(|op| if let Op::Map { file, .. } = op { Some(file.0) } else { None }).collect();
    assert_eq!(mapped, [4, 5], "the last files are the live ones");
    assert_eq!(actors[1].stream.next(0), Some(Op::Lock { lock: MAPPINGS, exclusive: false }));
}

#[test]
fn a_reader_touches_only_mapped_files_while_it_holds_the_lock() {
    let workload = small();
    let mut actors = workload.actors();
    while actors[0].stream.next(0).is_some() {}
    let mut mapped: std::collections::BTreeSet<FileId> = [FileId(4), FileId(5)].into();
    let mut touched = std::collections::BTreeSet::new();
    for turn in 0..4_000 {
        // In turns. The holder of the lock continues until it unlocks, because the other would have to wait.
        let mut locked = false;
        loop {
            match actors[1 + turn % 2].stream.next(0).expect("they never end") {
                Op::Lock { .. } => locked = true,
                Op::Unlock { .. } => locked = false,
                Op::Unmap { file } => assert!(locked && mapped.remove(&file), "unmapped a file that was not mapped"),
                Op::Map { file, .. } => assert!(locked && mapped.insert(file)),
                Op::Touch { file, bytes, .. } => {
                    assert!(mapped.contains(&file) && locked && bytes <= 64 << 10, "{file:?}");
                    touched.insert(file);
                }
                _ => {}
            }
            if !locked {
                break;
            }
        }
    }
    assert_eq!(mapped.len(), 2);
    assert!(touched.len() > 10, "new files replace old ones: {}", touched.len());
}

#[test]
fn paths_distinguish_loaded_and_written_files() {
    let workload = small();
    assert_eq!(workload.path(FileId(3)), "data-3");
    assert_eq!(workload.path(FileId((1 << 32) + 7)), "new-0-7");
    assert_eq!(workload.footprint().disk_bytes, 6 * (64 << 10));
}
