//! Jobs that do the same with fio, one file for the target and one for its neighbours.

use super::group::Group;
use super::words::Classes;
use flatwater_recording::{OperationKind, Recording};

pub fn jobs(recording: &Recording, victims: &[Group], neighbours: &[Group]) -> Vec<(String, String)> {
    let seconds = (recording.header.duration_ns / 1_000_000_000).clamp(5, 30);
    let file = |name: &str, groups: &[Group]| {
        let jobs: Vec<String> = groups.iter().filter_map(job).collect();
        (!jobs.is_empty()).then(|| {
            let head = format!(
                "; Written by `flatwater reproduce`. Run it in an empty directory: fio {name}\n[global]\n\
                 runtime={seconds}\ntime_based\nioengine=psync\nfallocate=none\n"
            );
            (name.to_owned(), format!("{head}\n{}", jobs.join("\n")))
        })
    };
    [file("target.fio", victims), file("neighbours.fio", neighbours)].into_iter().flatten().collect()
}

/// `None` for groups that fio cannot imitate (they compute, take memory, or create files).
fn job(group: &Group) -> Option<String> {
    let weight = |op: u64| group.mix.iter().find(|(known, _)| *known == op).map_or(0, |(_, count)| count);
    let (reads, writes) = (weight(0), weight(1));
    if reads + writes == 0 {
        return None;
    }
    let random = if group.sequential < 0.5 { "rand" } else { "" };
    let direction = match (reads, writes) {
        (0, _) => format!("{random}write"),
        (_, 0) => format!("{random}read"),
        _ => format!("{random}rw"),
    };
    let mut lines = vec![format!("[{}]", group.label), format!("rw={direction}")];
    if reads > 0 && writes > 0 {
        lines.push(format!("rwmixread={}", reads.saturating_mul(100) / (reads + writes)));
    }
    let split = |classes: &Classes| -> String {
        let total = classes.count().max(1);
        let words: Vec<String> = classes
            .iter()
            .filter_map(|(size, count)| {
                let percent = count.saturating_mul(100) / total;
                (percent > 0).then(|| format!("{}/{percent}", size.max(512)))
            })
            .collect();
        if words.is_empty() { "4096/100".to_owned() } else { words.join(":") }
    };
    lines.push(format!("bssplit={},{}", split(&group.read_bytes), split(&group.write_bytes)));
    let pause = if writes > 0 { &group.write_pause } else { &group.read_pause };
    let pause_us = (pause.mean() * 1.5 / 1000.0).round().min(60e6) as u64;
    if pause_us > 0 {
        lines.push(format!("thinktime={pause_us}"));
    }
    let every = group.sync_every.mean().round() as u64;
    match group.sync {
        Some(OperationKind::Fdatasync) if every > 0 => lines.push(format!("fdatasync={every}")),
        Some(_) if every > 0 => lines.push(format!("fsync={every}")),
        _ => {}
    }
    lines.push(format!("numjobs={}", group.threads));
    lines.push(format!("nrfiles={}", group.files.max(1)));
    lines.push(format!("filesize={}", group.file_bytes));
    for (line, on) in [("direct=1", group.direct), ("sync=dsync", group.data_sync), ("file_append=1", group.append)] {
        if on {
            lines.push(line.to_owned());
        }
    }
    Some(lines.join("\n") + "\n")
}
