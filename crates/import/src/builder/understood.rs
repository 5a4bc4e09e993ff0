//! Counts how much of the text was understood, and collects sampled tasks.

use std::collections::HashMap;

use super::place::Places;
use super::{Builder, Placed, STUMBLED_MAX, Track};
use crate::about;
use crate::text::{Line, LineCounts, Text, shown};
use flatwater_recording::symbol::meaning;
use flatwater_recording::{FormatKind, ImportSummary, SAMPLED_TASKS_MAX, SampledTask, TEXT_BYTES_MAX};

/// Why a line outside the sections of formats is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    Break,
    Marks,
    Status,
    Prose,
    Copy,
    Skimmed,
    Full,
}

impl Ignored {
    pub fn reason(self) -> &'static str {
        match self {
            Ignored::Break => "they mark omitted lines",
            Ignored::Marks => "they hold only marks of mail, markup or a collector",
            Ignored::Status => "they are separators and status lines of tools",
            Ignored::Prose => "they are sentences around the log",
            Ignored::Copy => "they repeat the first half of the text",
            Ignored::Skimmed => "they hold no word of a known format",
            Ignored::Full => "the recording is full",
        }
    }
}

impl Builder {
    /// Counts lines outside the sections of formats that are ignored.
    pub fn ignore(&mut self, why: Ignored, lines: u64) {
        self.summary.ignore(why.reason(), lines);
    }

    /// Counts a line that is not a row but informs the importers: a time, a prompt, a file's name.
    pub fn understood_line(&mut self, line: &Line<'_>) {
        self.summary.understand(&self.file, None, u64::from(line.lines));
        self.end_passed("settings", u64::from(line.lines));
    }

    /// Counts the lines of a section that the importer `format` consumed, and those of them that did not parse.
    pub fn end_section(&mut self, (format, kind): (&str, FormatKind), lines: LineCounts, (first, last): (u32, u32)) {
        self.summary.understand(&self.file, Some((format, kind)), lines.text);
        self.ignore(Ignored::Break, lines.breaks);
        self.ignore(Ignored::Marks, lines.marks);
        self.summary.locate(&self.file, (format, about::of(format)), (first, last));
        let stumbled = std::mem::take(&mut self.stumbled);
        let more = std::mem::take(&mut self.stumbled_more).min(lines.text.saturating_sub(stumbled.len() as u64));
        self.end_passed(format, lines.text.saturating_sub(stumbled.len() as u64).saturating_sub(more));
        for (line, found) in stumbled {
            self.summary.stumble(&self.file, line, &found);
        }
        self.summary.stumble_more(more);
    }

    /// Counts the lines that were passed over since the last section: at most `most`, the lines that parsed.
    fn end_passed(&mut self, format: &str, most: u64) {
        let passed = std::mem::take(&mut self.passed).min(most);
        if passed > 0 {
            self.summary.pass_over(&format!("they say nothing about stalls ({format})"), passed);
        }
    }

    /// Counts a line as not understood although an importer consumed it.
    pub fn stumble(&mut self, line: u32, found: &str) {
        if self.stumbled.len() < STUMBLED_MAX {
            self.stumbled.entry(line).or_insert_with(|| shown(found));
        } else if !self.stumbled.contains_key(&line) {
            self.stumbled_more += 1;
        }
    }

    /// Counts a line that no importer knows. `blank_from` is the first of the blank lines directly above it, or its own
    /// number.
    pub fn missed_line(&mut self, line: &Line<'_>, blank_from: u32) {
        self.summary.miss(&self.file, line.number, blank_from, &shown(line.text));
        self.summary.lines = self.summary.lines.saturating_add(u64::from(line.lines.saturating_sub(1)));
    }

    /// Keeps the beginning of the text for reports.
    pub fn keep_text(&mut self, text: &Text) {
        for line in (0..text.len()).map_while(|at| text.line(at)) {
            if self.kept_bytes >= TEXT_BYTES_MAX {
                return;
            }
            self.kept_bytes = self.summary.keep(&self.file, line.number, line.text, self.kept_bytes);
        }
    }

    /// Records that the log contains a Mem-Info report.
    pub fn memory_reported(&mut self) {
        self.summary.memory_reported = true;
    }

    /// Counts a line of a known log that was consumed without adding data.
    pub fn pass_over(&mut self) {
        self.passed += 1;
    }

    /// Counts lines of a long log that skimming dropped.
    pub fn skimmed_lines(&mut self, why: Ignored, lines: u64) {
        self.summary.understand(&self.file, None, lines);
        self.summary.pass_over(why.reason(), lines);
    }

    /// Counts skimmed lines of a file without a known format, the first of which is shown.
    pub fn missed_lines(&mut self, number: u32, found: &str, lines: u64) {
        if lines > 0 {
            self.summary.miss(&self.file, number, number, found);
            self.summary.miss_more(lines - 1);
        }
    }

    #[must_use]
    pub fn summary(&self) -> &ImportSummary {
        &self.summary
    }

    /// Adds a task at one moment, with its stack (innermost frame first, may be empty).
    pub fn sampled_task(&mut self, (track, at): (Track, i64), mut task: SampledTask, frames: Vec<String>) {
        if let Some(meaning) = meaning(&frames) {
            (task.cause, task.frame) = (Some(meaning.cause), Some(meaning.frame.to_owned()));
        }
        if !frames.is_empty() {
            task.stack = Some(self.stack(frames));
        }
        self.file.clone_into(&mut task.file);
        let placed = Placed { track, at, item: task };
        self.limits.push(&mut self.sampled, placed, "sampled tasks");
    }
}

/// The samples in the order of the log. Samples with the same name, state, stack and report are merged and counted.
pub fn sampled_tasks(builder: &mut Builder, places: &Places) -> Vec<SampledTask> {
    let mut tasks: Vec<SampledTask> = Vec::new();
    let mut known: HashMap<(String, Option<char>, u32, u8), usize> = HashMap::new();
    for placed in std::mem::take(&mut builder.sampled) {
        let mut task = placed.item;
        task.at_ns = Some(places.at_ns(placed.track, placed.at));
        // Tasks that hold or wait for a named lock are not merged.
        let plain = task.holds.is_empty() && task.waits_for.is_none() && task.owner.is_none();
        let key = (task.task.clone(), task.state, task.stack.map_or(u32::MAX, |id| id.0), task.reported_by as u8);
        let same = known.get(&key).copied().filter(|_| plain && !task.task.is_empty());
        if let Some(first) = same.and_then(|at| tasks.get_mut(at)) {
            first.count = first.count.saturating_add(1);
            first.blocked_ns = first.blocked_ns.max(task.blocked_ns);
        } else if tasks.len() < SAMPLED_TASKS_MAX {
            if plain {
                known.insert(key, tasks.len());
            }
            tasks.push(task);
        } else {
            builder.overflow("sampled tasks");
        }
    }
    tasks
}
