//! Finds the lines of an imported log that support a finding: the report of each waiting task with the frame that
//! names the cause, the kernel's line about a kill or a device, or the tables with the figures.

use flatwater_recording::{
    About, Cause, CauseBasis, EventKind, ImportSummary, Recording, SampledTask, SectionRead, Source,
};

use super::cause::CauseId;
use super::facts::Facts;
use super::{Finding, LogLines};

/// At most this many tasks, and places in total, are listed per finding.
const TASKS_MAX: usize = 20;
const PLACES_MAX: usize = 40;
/// A frame is printed at most this many lines below the line that names its task.
const FRAMES_BELOW: u32 = 80;

/// Adds its lines to a finding of an imported log.
pub fn attach(facts: &Facts<'_>, finding: &mut Finding) {
    let header = &facts.recording.header;
    let Some(import) = header.import.as_ref().filter(|_| header.source == Source::Import) else { return };
    let mut lines = of_tasks(facts.recording, import, finding);
    lines.extend(of_events(facts.recording, import, finding));
    if lines.is_empty() {
        lines = of_tables(facts.recording, import, finding);
    }
    lines.sort();
    lines.dedup();
    lines.truncate(PLACES_MAX);
    finding.log_lines = lines;
}

fn at(file: &str, first: u32, last: u32) -> LogLines {
    LogLines { file: file.to_owned(), first, last }
}

/// Whether a task's stack supports the finding.
fn shows(task: &SampledTask, finding: &Finding) -> bool {
    // Tasks that wait for a single request support `device-slow`.
    let stuck = finding.cause == CauseId::DeviceSlow && task.cause == Some(Cause::DeviceWait);
    task.cause.map(CauseId::from) == Some(finding.cause) || stuck
}

fn of_tasks(recording: &Recording, import: &ImportSummary, finding: &Finding) -> Vec<LogLines> {
    let tasks = recording.header.sampled_tasks.iter().filter(|task| shows(task, finding) && task.line > 0);
    let mut found = Vec::new();
    for task in tasks.take(TASKS_MAX) {
        found.push(at(&task.file, task.line, task.line));
        let Some(frame) = &task.frame else { continue };
        let mut near = import.text.iter().filter(|line| {
            line.file == task.file && (task.line..task.line.saturating_add(FRAMES_BELOW)).contains(&line.line)
        });
        let named = near.find(|line| names(&line.text, frame));
        found.extend(named.map(|line| at(&line.file, line.line, line.line)));
    }
    found
}

/// Whether the text contains this function as a word.
fn names(text: &str, function: &str) -> bool {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.'))).any(|word| word == function)
}

fn of_events(recording: &Recording, import: &ImportSummary, finding: &Finding) -> Vec<LogLines> {
    let kills = [CauseId::OutOfMemory, CauseId::LowmemExhausted, CauseId::CgroupLimitCache];
    let refusals = [CauseId::Fragmentation, CauseId::PageAllocation];
    let devices = [CauseId::DeviceSlow, CauseId::DeviceWait, CauseId::RequestQueue];
    let lines = recording.events.iter().filter_map(|event| match &event.kind {
        EventKind::OutOfMemory { line, .. } if kills.contains(&finding.cause) => Some(line),
        EventKind::AllocationFailure { line, .. } if refusals.contains(&finding.cause) => Some(line),
        EventKind::Device { line, .. } if devices.contains(&finding.cause) => Some(line),
        _ => None,
    });
    let mut found = Vec::new();
    for line in lines.take(TASKS_MAX) {
        let begun: String = line.chars().take(80).collect();
        let printed = import.text.iter().find(|kept| kept.text.contains(begun.trim_end()));
        found.extend(printed.map(|kept| at(&kept.file, kept.line, kept.line)));
    }
    found
}

/// What the tables with the figures of this cause are about; `None` if any table may contain them.
fn about(cause: CauseId) -> Option<About> {
    use CauseId as Id;
    Some(match cause {
        Id::DeviceQueueStarved
        | Id::DeviceSlow
        | Id::DeviceWait
        | Id::IoThrottle
        | Id::RequestQueue
        | Id::SynchronousRead => About::Devices,
        Id::SwapIn | Id::SwapStorm => About::Swap,
        Id::MemcgOverHigh | Id::MemcgReclaim | Id::CgroupLimitCache | Id::CpuQuota => About::Cgroups,
        Id::InodeCachePressure | Id::OrphanedBuffers | Id::Shrinker | Id::SlabLeak | Id::SlabRefill => About::Slabs,
        Id::DirectReclaim
        | Id::KswapdLate
        | Id::NodeReclaim
        | Id::ReclaimThrottle
        | Id::WatermarkTooLow
        | Id::ZoneReclaimDefault
        | Id::ZoneReclaimThrash => About::Reclaim,
        Id::Compaction | Id::Fragmentation | Id::ThpStall => About::Fragmentation,
        Id::CpuContention | Id::HypervisorNoise | Id::MonitorInterference | Id::RunQueue | Id::Steal => About::Cpus,
        Id::LowmemExhausted | Id::RemoteSpill => About::Nodes,
        Id::BlockAllocation
        | Id::CheckpointCriticalSection
        | Id::DirtyBurst
        | Id::DirtyThrottle
        | Id::JournalBuffer
        | Id::JournalCommit
        | Id::JournalFull
        | Id::Lock
        | Id::PageWriteback
        | Id::UnfairThrottling => About::Writeback,
        Id::OutOfMemory => About::Kills,
        Id::CacheDropped
        | Id::CompletionWait
        | Id::CompletionWork
        | Id::Compute
        | Id::FsFreeze
        | Id::Interrupt
        | Id::NotEnough
        | Id::NotObserved
        | Id::PageAllocation
        | Id::PageFault
        | Id::PageLeak
        | Id::Quiet
        | Id::StablePage
        | Id::Unexplained
        | Id::WorkerQueue => return None,
    })
}

/// Whether the table is about this; `unknown` in recordings of older builds, which do not say it.
fn is_about(section: &SectionRead, what: About, unknown: bool) -> bool {
    section.about.as_ref().map_or(unknown, |about| about.contains(&what))
}

/// The whole tables, if no single line names the cause.
fn of_tables(recording: &Recording, import: &ImportSummary, finding: &Finding) -> Vec<LogLines> {
    let known = about(finding.cause);
    let counted = matches!(finding.cause_basis, CauseBasis::Counters) || recording.calls.is_empty();
    let own = import.sections.iter().filter(|section| match known {
        Some(about) if counted => is_about(section, about, true),
        // Calls that a tool timed itself are in the tables that it printed.
        _ => !is_about(section, About::State, false),
    });
    own.map(|section| at(&section.file, section.first, section.last)).collect()
}

#[cfg(test)]
mod tests {
    use super::names;
    use crate::Finding;
    use crate::cause::CauseId;
    use crate::facts::Facts;
    use crate::testing::RecordingBuilder;
    use flatwater_recording::{About, Cause, ImportSummary, ReportedBy, SampledTask, Source};

    #[test]
    fn a_function_is_matched_as_a_whole_word() {
        assert!(names("[<0>] jbd2_log_wait_commit+0x12/0x34 [jbd2]", "jbd2_log_wait_commit"));
        assert!(!names("jbd2_log_wait_commit_slow+0x12/0x34", "jbd2_log_wait_commit"));
    }

    #[test]
    fn a_finding_from_counters_shows_the_tables_that_are_about_its_subject() {
        let mut import = ImportSummary::default();
        import.locate("a.txt", ("iostat", &[About::Devices, About::Cpus]), (1, 9));
        import.locate("a.txt", ("sysctl", &[About::State]), (11, 12));
        import.locate("a.txt", ("slabtop", &[About::Slabs]), (14, 30));
        let lines = |import: &ImportSummary, cause| {
            let import = Some(import.clone());
            let builder = RecordingBuilder::new().edit(|recording| {
                recording.header.source = Source::Import;
                recording.header.import = import;
            });
            let mut finding = Finding::inferred(cause, 0.5, "");
            super::attach(&Facts::of(&builder.done()), &mut finding);
            finding.log_lines.iter().map(|lines| lines.first).collect::<Vec<_>>()
        };
        assert_eq!(lines(&import, CauseId::DeviceSlow), [1]);
        assert_eq!(lines(&import, CauseId::SlabLeak), [14]);
        assert_eq!(lines(&import, CauseId::Unexplained), [1, 14], "any table with figures");
        import.sections.iter_mut().for_each(|section| section.about = None);
        assert_eq!(lines(&import, CauseId::SlabLeak), [1, 11, 14], "an older build does not say it");
    }

    #[test]
    fn a_task_is_shown_with_the_frame_that_names_its_cause() {
        let mut import = ImportSummary::default();
        for (line, text) in
            [(1, "INFO: task x:1 blocked"), (2, " schedule+0x1/0x2"), (3, " jbd2_log_wait_commit+0x1/0x2")]
        {
            let _ = import.keep("dmesg", line, text, 0);
        }
        let mut task = SampledTask::new(ReportedBy::HungTask);
        (task.cause, task.state, task.line) = (Some(Cause::JournalCommit), Some('D'), 1);
        "dmesg".clone_into(&mut task.file);
        task.frame = Some("jbd2_log_wait_commit".to_owned());
        let frames = ["schedule", "jbd2_log_wait_commit"].map(str::to_owned).to_vec();
        let explanation = RecordingBuilder::new()
            .edit(|recording| {
                recording.stacks.push(flatwater_recording::Stack { id: flatwater_recording::StackId(0), frames });
                task.stack = Some(flatwater_recording::StackId(0));
                recording.header.source = Source::Import;
                recording.header.import = Some(import);
                recording.header.sampled_tasks.push(task);
            })
            .explained();
        let lines: Vec<u32> = explanation.findings[0].log_lines.iter().map(|lines| lines.first).collect();
        assert_eq!(lines, [1, 3], "{:?}", explanation.findings[0]);
    }
}
