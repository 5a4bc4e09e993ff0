//! Reads CPU profiles: perf top and perf report. Each row has the share of samples in one function or one call chain,
//! and becomes a running task with a count in 1/10 000 of the samples.

use super::builder::Builder;
use super::error::ImportError;
use super::kernel_log::identifier;
use super::number::number;
use super::text::Cursor;
use super::{FormatKind, Importer};
use crate::anchors::Anchor;
use flatwater_recording::symbol::cause_of;
use flatwater_recording::{Cause, ReportedBy, SampledTask};

pub const IMPORTER: Importer = Importer {
    name: "cpu-profile",
    sentence: "perf top and perf report: share of the samples by function or call chain.",
    kind: FormatKind::Unjudged,
    anchors: &[Anchor::Table(&["Overhead", "Shared Object", "pcnt", "PerfTop:", "Samples: "]), Anchor::Common(&["%"])],
    detect: |cursor| match cursor.next_text() {
        text if is_header(text) => 92,
        text if row(text).is_some() && cursor.ahead(1).is_some_and(|line| row(line.text).is_some()) => 62,
        _ => 0,
    },
    read,
};

/// Whether the line is `# Overhead  Command  Shared Object  Symbol`, `# Children  Self  Samples ...`,
/// `samples  pcnt function  DSO`, `PerfTop:   16096 irqs/sec  kernel:92.6%` or `Samples: 12K of event 'cycles'`.
fn is_header(text: &str) -> bool {
    let words = |all: &[&str]| all.iter().all(|word| text.contains(word));
    words(&["Symbol", "Overhead"])
        || words(&["Symbol", "Shared Object"])
        || words(&["samples", "pcnt", "function"])
        || words(&["PerfTop:", "irqs/sec"])
        || (text.contains("Samples: ") && text.contains(" of event"))
}

/// A share in percent, and its functions, innermost first.
struct Row<'a> {
    percent: f64,
    task: &'a str,
    frames: Vec<&'a str>,
    /// The first share of the row includes called functions.
    children: bool,
    /// The first share of the row, in percent.
    with_children: f64,
    /// Number of branches of the caller tree below the row so far.
    branches: u32,
}

/// Functions of idle CPUs.
const IDLE: &[&str] = &[
    "native_safe_halt",
    "pv_native_safe_halt",
    "default_idle",
    "intel_idle",
    "intel_idle_irq",
    "mwait_idle",
    "mwait_idle_with_hints",
    "poll_idle",
    "acpi_idle_enter",
    "acpi_idle_do_entry",
    "acpi_processor_ffh_cstate_enter",
    "cpu_idle",
    "cpu_idle_poll",
    "xen_hypercall_sched_op",
    "arch_cpu_idle",
    "cpu_do_idle",
    "plpar_hcall_norets",
    "snooze_loop",
];
/// Whether an idle CPU runs this function.
pub fn is_idle(function: &str) -> bool {
    IDLE.contains(&function)
}

/// The `count` of all samples of a profile.
pub const ALL: f64 = 10_000.0;

/// From this share on, idle time is excluded from the total.
const IDLE_MIN_PERCENT: f64 = 10.0;

/// Parses `24.91%  0.00%  0  exe  [kernel.kallsyms]  [k] try_charge`,
/// `223182.00 93.8% _spin_lock_irq  [kernel.kallsyms]` and `13.63% try_charge;try_to_free_mem_cgroup_pages;...`
/// (callers first).
fn row(text: &str) -> Option<Row<'_>> {
    if text.len() > 4096 {
        return None;
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let shares: Vec<(usize, f64)> = words
        .iter()
        .enumerate()
        .take(4)
        .filter_map(|(at, word)| Some((at, number(word.strip_suffix('%')?)?)))
        .filter(|(_, share)| (0.0..=100.0).contains(share))
        .collect();
    let (first, children) = (shares.first()?, shares.len() == 2);
    (first.0 <= 1).then_some(())?;
    let own = shares.last()?;
    let rest = words.get(own.0 + 1..)?;
    if let [chain] = rest
        && chain.contains(';')
    {
        let mut frames: Vec<&str> = chain.split(';').collect();
        frames.reverse();
        return frames.iter().all(|frame| identifier(frame).is_some()).then_some(Row {
            percent: first.1,
            task: "",
            frames,
            children: false,
            with_children: first.1,
            branches: 0,
        });
    }
    // Newer versions print `[k] f` and `[.] f`; older ones print the function before its image.
    let marked = rest.iter().position(|word| matches!(*word, "[k]" | "[.]" | "[g]" | "[u]" | "[H]"));
    let in_kernel = marked.map_or_else(
        || rest.iter().any(|word| word.contains("[kernel") || word.contains(".ko")),
        |at| rest.get(at) == Some(&"[k]"),
    );
    let name = marked.map_or_else(|| rest.first(), |at| rest.get(at + 1))?;
    let image = rest.iter().any(|word| word.starts_with('[') || word.contains(".so") || word.contains('/'));
    (image || marked.is_some()).then_some(())?;
    let frames = if in_kernel { identifier(name).into_iter().collect() } else { Vec::new() };
    let task = marked
        .filter(|_| !rest.first().is_some_and(|word| word.starts_with('[')))
        .and_then(|_| rest.iter().find(|word| number(word).is_none()));
    let with_children = first.1;
    let task = task.copied().unwrap_or_default();
    Some(Row { percent: own.1, task, frames, children, with_children, branches: 0 })
}

/// Adds the caller on a line of the tree below a row: `|--11.91%--ext4_mb_prefetch`, `---vfs_write`,
/// `|          ext4_map_blocks`, `- 71.14% shrink_inactive_list`. Follows only the first branch, which is the largest.
fn callers<'a>(row: &mut Row<'a>, text: &'a str) {
    let text = text.trim();
    let branch = text.contains("--");
    let name = text.trim_start_matches(['|', ' ', '-']);
    // perf top and the browser of perf report print `- 71.14% _raw_spin_lock_irq`.
    let name = name.split_once("%--").or_else(|| name.split_once("% ")).map_or(name, |(_, name)| name);
    let Some(name) = identifier(name) else { return };
    row.branches += u32::from(branch);
    if row.branches <= 1 && row.frames.len() < FRAMES_MAX {
        row.frames.push(name);
    }
}

const FRAMES_MAX: usize = 64;

/// Maximum rows; perf prints some thousands.
const ROWS_MAX: usize = 10_000;

/// Removes double counts from a table with children, where the share of a function includes the functions that it
/// calls. Of all functions with the same cause only the outermost counts, with its whole share.
fn inclusive(rows: &mut [(u32, Row<'_>)]) {
    let cause = |row: &Row<'_>| row.frames.first().and_then(|name| cause_of(name)).filter(|_| row.children);
    let mut largest: Vec<(Cause, f64)> = Vec::new();
    for (_, row) in rows.iter() {
        let Some(cause) = cause(row) else { continue };
        match largest.iter_mut().find(|(known, _)| *known == cause) {
            Some((_, most)) => *most = most.max(row.with_children),
            None => largest.push((cause, row.with_children)),
        }
    }
    for (_, row) in rows.iter_mut() {
        let Some(cause) = cause(row) else { continue };
        let Some((_, most)) = largest.iter_mut().find(|(known, _)| *known == cause) else { continue };
        row.percent =
            if (row.with_children - *most).abs() < f64::EPSILON { std::mem::replace(most, f64::INFINITY) } else { 0.0 };
    }
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("cpu-profile");
    let (mut any, mut kept, mut idle) = (false, false, 0.0);
    let mut rows: Vec<(u32, Row<'_>)> = Vec::new();
    while let Some(line) = cursor.peek() {
        let text = line.text;
        let Some(row) = row(text) else {
            if let Some((_, last)) = rows.last_mut().filter(|_| kept) {
                callers(last, text);
            }
            let ornament = text.trim().bytes().all(|c| b"#-_=. |+".contains(&c)) || text.trim_start().starts_with('#');
            if is_header(text) || ornament && (!any || !line.is_blank()) || text.trim_start().starts_with(['|', '-']) {
                cursor.take();
                continue;
            }
            break;
        };
        cursor.take();
        any = true;
        kept = false;
        if row.frames.first().is_some_and(|name| is_idle(name)) {
            idle += row.percent;
            b.pass_over();
        } else if row.frames.is_empty() {
            b.pass_over();
        } else if rows.len() < ROWS_MAX {
            rows.push((line.number, row));
            kept = true;
        } else {
            b.overflow("rows of a CPU profile");
        }
    }
    inclusive(&mut rows);
    // Shares refer to busy time: a machine with many CPUs is idle most of the time.
    let scale = if (IDLE_MIN_PERCENT..100.0).contains(&idle) { 100.0 / (100.0 - idle) } else { 1.0 };
    for (line, row) in rows {
        let count = ((row.percent * scale).min(100.0) * 100.0).round() as u32;
        if count == 0 {
            b.pass_over();
            continue;
        }
        let mut sample = SampledTask::new(ReportedBy::Traced);
        row.task.clone_into(&mut sample.task);
        (sample.state, sample.count, sample.line) = (Some('R'), count, line);
        b.sampled_task(place, sample, row.frames.iter().map(|frame| (*frame).to_owned()).collect());
    }
    b.note(
        "a CPU profile counts samples of running code: `count` of a sampled task is its share in hundredths of a percent",
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::row;
    use crate::import_texts;
    use flatwater_recording::Cause;

    #[test]
    fn rows_of_all_versions_parse() {
        for (text, percent, frames) in [
            ("223182.00 93.8% _spin_lock_irq    [kernel.kallsyms]", 93.8, &["_spin_lock_irq"][..]),
            ("  45.10%  [kernel]  [k] isolate_freepages_block", 45.1, &["isolate_freepages_block"]),
            ("  24.91%   0.00%   0  exe   [kernel.kallsyms]  [k] try_charge", 0.0, &["try_charge"]),
            ("  12.00%  java  libjvm.so  [.] SpinPause", 12.0, &[]),
            (
                "3.57% try_charge;try_to_free_mem_cgroup_pages;shrink_node",
                3.57,
                &["shrink_node", "try_to_free_mem_cgroup_pages", "try_charge"],
            ),
        ] {
            let found = row(text).unwrap_or_else(|| panic!("no row: {text}"));
            assert_eq!((found.percent, found.frames.as_slice()), (percent, frames), "{text}");
        }
        for text in ["100% of cases", "dentry 10% 0.19K", "/dev/sda1  20G  15G  5G  75% /", "%usr 12%"] {
            assert!(row(text).is_none(), "{text}");
        }
    }

    #[test]
    fn only_the_outermost_function_of_a_cause_counts_and_idle_time_is_excluded() {
        let text = "Samples: 1M of event 'cpu-clock', Event count (approx.): 3\n  Children      Self  Command  Shared Object  Symbol\n\
            +   80.00%    80.00%  swapper      [kernel.kallsyms]  [k] native_safe_halt\n\
            +   19.00%     0.00%  kworker/u16  [kernel.kallsyms]  [k] btrfs_reserve_extent\n\
            +   18.00%     4.00%  kworker/u16  [kernel.kallsyms]  [k] find_free_extent\n\
            +    7.00%     7.00%  kworker/u16  [kernel.kallsyms]  [k] _raw_spin_lock\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let counts: u32 = recording
            .header
            .sampled_tasks
            .iter()
            .filter(|task| task.cause == Some(Cause::BlockAllocation))
            .map(|task| task.count)
            .sum();
        assert!((9_000..=9_500).contains(&counts), "{counts}: 18 or 19 of the 20 % that were busy");
    }

    #[test]
    fn a_chain_is_a_stack_of_a_running_task() {
        let text = "# Overhead  Command  Shared Object  Symbol\n13.63% try_charge;try_to_free_mem_cgroup_pages;do_try_to_free_pages;shrink_node\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let task = recording.header.sampled_tasks.first().expect("a sample");
        assert_eq!((task.state, task.count, task.cause), (Some('R'), 1363, Some(Cause::MemcgReclaim)));
    }

    #[test]
    fn callers_below_a_row_extend_its_stack() {
        let text = "# Overhead  Command  Shared Object  Symbol\n# ........  .......  .............  ......\n#\n    32.09%  kworker/u400:20  [kernel.kallsyms]  [k] ext4_get_group_info\n            |          \n            |--11.91%--ext4_mb_prefetch\n            |          ext4_mb_regular_allocator\n            |          ext4_mb_new_blocks\n            |          \n            |--7.23%--other_caller\n            |          vfs_write\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let task = recording.header.sampled_tasks.first().expect("a sample");
        assert_eq!((task.count, task.cause), (3209, Some(Cause::BlockAllocation)));
        let stack = task.stack.and_then(|id| recording.stack(id)).expect("a stack");
        assert_eq!(stack.frames.len(), 4, "{:?}", stack.frames);
    }
}
