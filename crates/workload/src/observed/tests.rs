//! Tests of the imitated operations.

use super::ENTRY;
use crate::{ActorStart, FileId, Op, OpenHow, Params, Workload};

fn built(given: &[(&str, &str)]) -> Box<dyn Workload> {
    let params = Params::check("observed", ENTRY.params, given.iter().copied()).expect("declared");
    (ENTRY.build)(&params, 1).expect("possible")
}

fn operations(given: &[(&str, &str)], actor: usize, count: usize) -> Vec<Op> {
    let mut actors = built(given).actors();
    (0..count).filter_map(|_| actors[actor].stream.next(1)).collect()
}

/// The operations after the preparation.
fn measured(given: &[(&str, &str)], count: usize) -> Vec<Op> {
    let all = operations(given, 0, count);
    let ready = all.iter().position(|op| *op == Op::Measure { on: true }).expect("it becomes ready");
    all[ready + 1..].to_vec()
}

#[test]
fn a_sync_follows_the_recorded_number_of_writes() {
    let given = [("sync", "fdatasync"), ("sync_every", "4:1"), ("file_size", "1MiB"), ("sequential", "1")];
    let ops = measured(&given, 60);
    let shown: String = ops.iter().map(|op| if matches!(op, Op::Fdatasync { .. }) { 's' } else { 'w' }).collect();
    assert!(shown.starts_with("wwwwswwwws"), "{shown}");
}

#[test]
fn sizes_offsets_and_pauses_are_drawn_from_the_histograms() {
    let given =
        [("write_size", "4KiB:1 16KiB:1"), ("write_pause", "1ms:1"), ("file_size", "64KiB"), ("sequential", "0")];
    let ops = measured(&given, 400);
    let writes: Vec<(u64, u64)> = ops
        .iter()
        .filter_map(|op| match op {
            Op::Write { offset_bytes, bytes, .. } => Some((*offset_bytes, *bytes)),
            _ => None,
        })
        .collect();
    assert!(writes.iter().all(|(at, bytes)| at % 4096 == 0 && at + bytes <= 64 << 10), "{writes:?}");
    assert!(writes.iter().any(|(_, bytes)| *bytes == 4096) && writes.iter().any(|(_, bytes)| *bytes == 16384));
    let sleeps = ops.iter().filter_map(|op| if let Op::Sleep { ns } = op { Some(*ns) } else { None });
    assert!(sleeps.clone().count() > 50 && sleeps.clone().all(|ns| (900_000..2_000_000).contains(&ns)));
}

#[test]
fn files_are_synced_before_the_measured_part_and_opened_with_their_flags() {
    let given = [("file_size", "1MiB"), ("files", "2"), ("direct", "true")];
    let all = operations(&given, 0, 12);
    let how = OpenHow { append: false, direct: true, data_sync: false };
    assert_eq!(all[0], Op::Measure { on: false });
    assert_eq!(all[3..5], [Op::Fsync { file: FileId(0) }, Op::Open { file: FileId(0), how }]);
    assert_eq!(all[9], Op::Measure { on: true }, "{all:?}");
}

#[test]
fn processes_are_started_after_their_files_are_made() {
    let given = [("process", "true"), ("threads", "2"), ("file_size", "1MiB")];
    let workload = built(&given);
    let actors = workload.actors();
    assert_eq!(actors.iter().filter(|actor| actor.start == ActorStart::OnSpawn).count(), 2);
    let all = operations(&given, 0, 20);
    let place = |wanted: &Op| all.iter().position(|op| op == wanted).expect("yielded");
    assert!(place(&Op::Measure { on: true }) < place(&Op::Spawn { actor: 1 }));
    assert_eq!(all[all.len() - 2..], [Op::Spawn { actor: 2 }, Op::WaitSpawned]);
    let child = operations(&given, 2, 2);
    assert!(matches!(child[..], [Op::Open { .. }, Op::Write { .. }]), "{child:?}");
}

#[test]
fn created_files_are_bounded_and_removed_oldest_first() {
    let given = [("mix", "5:1"), ("created_max", "3"), ("file_size", "64KiB"), ("create_writes", "2:1")];
    let ops = measured(&given, 100);
    let (mut live, mut most) = (0_i64, 0);
    for op in &ops {
        live += match op {
            Op::Create { .. } => 1,
            Op::Unlink { .. } => -1,
            _ => 0,
        };
        most = most.max(live);
    }
    assert_eq!(most, 3, "{ops:?}");
    assert_eq!(built(&given).footprint().files, 3);
}

#[test]
fn a_growing_file_begins_again_at_its_size() {
    let given = [("grow", "true"), ("file_size", "16KiB")];
    let ops = measured(&given, 20);
    let kinds: String = ops.iter().map(|op| if matches!(op, Op::Truncate { .. }) { 't' } else { 'w' }).collect();
    assert!(kinds.starts_with("wwwwtwwwwt"), "{kinds}");
}

#[test]
fn an_open_loop_catches_up() {
    let given = [("loop", "open"), ("write_pause", "1us:1"), ("file_size", "1MiB")];
    let mut actors = built(&given).actors();
    let stream = &mut actors[0].stream;
    let all: Vec<Op> = (0..5).filter_map(|_| stream.next(0)).collect();
    assert_eq!(all.last(), Some(&Op::Open { file: FileId(0), how: OpenHow::default() }));
    let late: Vec<Op> = (0..9).filter_map(|_| stream.next(1_000_000_000)).collect();
    assert!(late[1..].iter().all(|op| matches!(op, Op::Write { .. } | Op::SleepUntil { .. })), "{late:?}");
}

#[test]
fn hostile_parameters_are_refused() {
    for (key, value) in [
        ("files", "1000000"),
        ("file_size", "16EiB"),
        ("write_size", "9223372036854775808B:1"),
        ("write_pause", "9999h:1"),
        ("mix", "77:1"),
        ("threads", "100000"),
    ] {
        assert!(Params::check("observed", ENTRY.params, [(key, value)]).is_err(), "{key} {value}");
    }
    let params = Params::check("observed", ENTRY.params, [("mix", "")]).expect("read");
    assert!((ENTRY.build)(&params, 1).is_err(), "no operation");
}
