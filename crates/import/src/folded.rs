//! Reads folded stacks, one line a stack with its count (stackcollapse, `offcputime -f`, `profile -f`, bpftrace): the
//! callers first. Running stacks become a CPU profile. Of sleeping stacks, the largest of each cause becomes a task.

use std::collections::BTreeMap;

use super::builder::{Builder, Track};
use super::error::ImportError;
use super::kernel_log::identifier;
use super::profile;
use super::text::Cursor;
use super::{FormatKind, Importer};
use crate::anchors::Anchor;
use flatwater_recording::symbol::meaning;
use flatwater_recording::{Cause, ReportedBy, SampledTask};

pub const IMPORTER: Importer = Importer {
    name: "folded-stacks",
    sentence: "Folded stacks with counts: stackcollapse-perf.pl, offcputime -f and profile -f of bcc.",
    kind: FormatKind::Unjudged,
    anchors: &[Anchor::Common(&[";"])],
    detect: |cursor| match row(cursor.next_text()) {
        Some(_) if cursor.ahead(1).is_some_and(|line| row(line.text).is_some()) => 68,
        _ => 0,
    },
    read,
};

/// Frames in which user code enters the kernel, and in which threads of the kernel begin.
const ENTRIES: &[&str] = &[
    "entry_SYSCALL",
    "entry_INT80",
    "do_syscall_64",
    "do_int80",
    "system_call",
    "tracesys",
    "sysret_",
    "el0_",
    "el0t_",
    "asm_",
    "page_fault",
    "do_page_fault",
    "common_interrupt",
    "apic_timer_interrupt",
    "ret_from_",
    "kthread",
    "secondary_startup",
    "start_secondary",
    "cpu_startup_entry",
    "do_idle",
];
/// The innermost frames of a thread off its CPU.
const OFF_CPU: &[&str] = &["finish_task_switch", "schedule", "__schedule", "schedule_timeout", "io_schedule"];
const FRAMES_MAX: usize = 1024;
const STACKS_MAX: usize = 10_000;
/// Share of all sleeping time with a cause from which a cause counts.
const SLEEPING_SHARE_MIN: f64 = 0.1;

struct Row<'a> {
    task: &'a str,
    /// Kernel functions, innermost first.
    frames: Vec<&'a str>,
    count: u64,
}

/// Whether a frame is the end of one line with its count, joined to the begin of the next: `shrink_node 300java`. In C++
/// a number follows a comma: `array<char, 16>`.
fn holds_a_count(frame: &str) -> bool {
    let after_name = |(name, rest): (&str, &str)| {
        name.ends_with(|last: char| last.is_alphanumeric() || last == '_')
            && rest.starts_with(|first: char| first.is_ascii_digit())
    };
    frame.match_indices(' ').any(|(at, _)| after_name((&frame[..at], &frame[at + 1..])))
}

/// `java;write;entry_SYSCALL_64_after_hwframe;do_syscall_64;vfs_write 812`.
fn row(text: &str) -> Option<Row<'_>> {
    let (stack, count) = text.trim().rsplit_once(' ')?;
    let count = count.parse().ok()?;
    let words: Vec<&str> = stack.split(';').collect();
    let (task, frames) = words.split_first()?;
    let is_frame = |frame: &&str| !frame.trim().is_empty() && !holds_a_count(frame);
    let is_stack = (2..=FRAMES_MAX).contains(&frames.len()) && frames.iter().all(is_frame);
    let of_kernel = |frame: &&str| ENTRIES.iter().any(|entry| frame.starts_with(entry));
    let from = frames.iter().position(of_kernel).unwrap_or(frames.len());
    // stackcollapse-perf.pl --kernel marks kernel functions.
    let plain = frames.iter().skip(from).map(|frame| frame.strip_suffix("_[k]").unwrap_or(frame));
    let mut kernel: Vec<&str> = plain.filter_map(identifier).collect();
    kernel.reverse();
    is_stack.then_some(Row { task, frames: kernel, count })
}

/// Sums of counts by task and kernel stack, with the first line of each.
type Stacks<'a> = BTreeMap<(&'a str, Vec<&'a str>), (u64, u32)>;

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("folded-stacks");
    let (mut running, mut sleeping) = (Stacks::new(), Stacks::new());
    let mut all = 0_u64;
    while let Some(line) = cursor.peek() {
        let Some(row) = row(line.text) else { break };
        cursor.take();
        let innermost = row.frames.first().copied();
        if innermost.is_some_and(profile::is_idle) {
            b.pass_over();
            continue;
        }
        let off_cpu = innermost.is_some_and(|frame| OFF_CPU.contains(&frame));
        let stacks = if off_cpu { &mut sleeping } else { &mut running };
        all = all.saturating_add(if off_cpu { 0 } else { row.count });
        if row.frames.is_empty() {
            b.pass_over();
        } else if stacks.len() < STACKS_MAX || stacks.contains_key(&(row.task, row.frames.clone())) {
            let sum = stacks.entry((row.task, row.frames)).or_insert((0, line.number));
            sum.0 = sum.0.saturating_add(row.count);
        } else {
            b.overflow("folded stacks");
        }
    }
    for ((task, frames), (count, line)) in running {
        let share = (count as f64 / all.max(1) as f64 * profile::ALL).round() as u32;
        if share > 0 {
            push(b, place, (task, line), 'R', (share, &frames));
        }
    }
    largest_sleeps(sleeping, place, b);
    Ok(())
}

/// The sleeps of one cause, with the stack that has most of their time.
#[derive(Default)]
struct Sleeps<'a> {
    all: u64,
    largest: u64,
    task: (&'a str, u32),
    frames: Vec<&'a str>,
}

/// A task for each cause with a large share of the sleeping time, most time first. Sleeps without a cause are those of
/// threads that wait for work.
fn largest_sleeps(sleeping: Stacks<'_>, place: (Track, i64), b: &mut Builder) {
    let mut causes: BTreeMap<Cause, Sleeps<'_>> = BTreeMap::new();
    for ((task, frames), (count, line)) in sleeping {
        let Some(cause) = meaning(&frames).map(|known| known.cause) else { continue };
        let sleeps = causes.entry(cause).or_default();
        sleeps.all = sleeps.all.saturating_add(count);
        if count >= sleeps.largest {
            (sleeps.largest, sleeps.task, sleeps.frames) = (count, (task, line), frames);
        }
    }
    let all = causes.values().fold(0_u64, |all, sleeps| all.saturating_add(sleeps.all));
    let mut causes: Vec<Sleeps<'_>> = causes.into_values().collect();
    causes.sort_by_key(|sleeps| std::cmp::Reverse(sleeps.all));
    for sleeps in causes {
        if sleeps.all as f64 >= SLEEPING_SHARE_MIN * all as f64 {
            push(b, place, sleeps.task, 'D', (1, &sleeps.frames));
        }
    }
}

fn push(b: &mut Builder, place: (Track, i64), (task, line): (&str, u32), state: char, (count, frames): (u32, &[&str])) {
    let mut sample = SampledTask::new(ReportedBy::Traced);
    task.clone_into(&mut sample.task);
    (sample.state, sample.count, sample.line) = (Some(state), count, line);
    b.sampled_task(place, sample, frames.iter().map(|frame| (*frame).to_owned()).collect());
}

#[cfg(test)]
mod tests {
    use super::row;
    use crate::import_texts;
    use flatwater_recording::Cause;

    const WRITE: &str = "java;write;entry_SYSCALL_64_after_hwframe;do_syscall_64;vfs_write;ext4_buffered_write_iter";

    fn tasks(text: &str) -> Vec<(Option<char>, u32, Option<Cause>)> {
        let recording = import_texts(&[("f".to_owned(), text.as_bytes().to_vec())]).expect("read").recording;
        assert!(recording.gaps.is_empty(), "{:?}", recording.gaps);
        recording.header.sampled_tasks.iter().map(|task| (task.state, task.count, task.cause)).collect()
    }

    #[test]
    fn a_row_gives_the_kernel_functions_and_the_count() {
        let found = row("a b;main;fsync;entry_SYSCALL_64;ext4_sync_file_[k];schedule_[k] 7").expect("a stack");
        assert_eq!((found.task, found.count), ("a b", 7));
        assert_eq!(found.frames, ["schedule", "ext4_sync_file", "entry_SYSCALL_64"]);
        assert_eq!(row("java;[libjvm.so];G1ParTask::work 633").map(|row| row.frames.len()), Some(0));
        for text in ["a;b 7", "SELECT a; b; c", "x;;y 3", "sda;1;2"] {
            assert!(row(text).is_none(), "{text}");
        }
    }

    #[test]
    fn shares_are_of_all_running_samples_and_idle_cpus_do_not_count() {
        let text = format!(
            "{WRITE};try_to_free_pages;shrink_node 300\n{WRITE};try_to_free_pages;shrink_node 300\n\
             java;Interpreter;sort 400\nswapper;do_idle;cpuidle_enter;intel_idle 9000\n"
        );
        assert_eq!(tasks(&text), [(Some('R'), 6000, Some(Cause::DirectReclaim))]);
    }

    #[test]
    fn the_causes_with_most_sleeping_time_come_first() {
        let text = format!(
            "{WRITE};balance_dirty_pages;io_schedule_timeout;schedule_timeout;schedule 900\n\
             db;fsync;entry_SYSCALL_64;ext4_sync_file;jbd2_log_wait_commit;schedule 70000\n\
             db;poll;entry_SYSCALL_64;do_sys_poll;schedule_hrtimeout_range;schedule 900000\n\
             db;fsync;entry_SYSCALL_64;ext4_sync_file;jbd2_log_wait_commit;schedule 12000\n\
             {WRITE};balance_dirty_pages;io_schedule_timeout;schedule_timeout;schedule 20000\n"
        );
        assert_eq!(
            tasks(&text),
            [(Some('D'), 1, Some(Cause::JournalCommit)), (Some('D'), 1, Some(Cause::DirtyThrottle))]
        );
    }
}
