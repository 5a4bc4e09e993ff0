//! Facts about a recording as a whole that both text and page print.

use std::collections::BTreeMap;

use super::numbers::{counted, quantity, share, size, time};
use super::rows;
use flatwater_explain::{Evidence, Explanation, Fix, Slow, Stage};
use flatwater_recording::printable::{self, shell_quoted};
use flatwater_recording::{
    Call, Cause, CauseBasis, DurationBasis, Gap, Header, HookState, Losses, Noise, Note, Recording, Source,
};

/// The fact's text, followed by its value unless the text already contains digits.
pub fn fact_text(fact: &Evidence) -> String {
    match fact.value {
        Some(value) if !fact.text.chars().any(|c| c.is_ascii_digit()) => {
            format!("{}: {}", fact.text, quantity(value, fact.unit))
        }
        _ => fact.text.clone(),
    }
}

/// States for which part of the recording the table of operations counts, unless every call was timed.
pub fn partly_timed(explanation: &Explanation) -> Option<String> {
    let partly = explanation.partly_timed.as_ref()?;
    let other_ns = partly.duration_ns.saturating_sub(partly.every_call_ns);
    let of_slow = |slow: &flatwater_explain::SlowOnly| {
        format!("{}() {}, longest {}", slow.name, counted(slow.calls, "call", "calls"), time(slow.max_ns))
    };
    let slow: Vec<String> = partly.slow_only.iter().map(of_slow).collect();
    let slow = if slow.is_empty() { "none".to_owned() } else { slow.join("; ") };
    Some(match partly.every_call_ns {
        0 if explanation.operations.is_empty() => format!("Only slow calls were found, in {}: {slow}.", time(other_ns)),
        ns => format!(
            "The table counts the {} in which every call was timed. Slow calls in the other {}: {slow}.",
            time(ns),
            time(other_ns)
        ),
    })
}

/// The stall time that shares of findings refer to: `stall time`, or `stall time of request threads`.
pub fn total(explanation: &Explanation) -> String {
    let total = &explanation.total;
    if total.stall_ns == explanation.slow.lost_ns {
        "stall time".to_owned()
    } else {
        format!("stall time of {}", total.of)
    }
}

/// The amount that the table of causes sums, if that is not the total of the findings.
pub fn sums_all(explanation: &Explanation) -> Option<String> {
    let (slow, total) = (&explanation.slow, &explanation.total);
    (total.stall_ns != slow.lost_ns).then(|| {
        format!(
            "all {}, {}; the findings' shares refer to the {} of {}",
            counted(slow.calls, "slow call", "slow calls"),
            time(slow.lost_ns),
            time(total.stall_ns),
            total.of
        )
    })
}

/// A cause with the same answer as its finding: `page-writeback, 117 ms, 57.6 % of the stall time: ...`.
pub fn stage(explanation: &Explanation, stage: &Stage) -> String {
    let lost = stage.lost_ns.filter(|ns| *ns > 0).map(|ns| format!(", {}", time(ns))).unwrap_or_default();
    let of = stage.share.map(|of| format!(", {} of the {}", share(of), total(explanation))).unwrap_or_default();
    format!("{}{lost}{of}: {}", stage.cause, stage.headline)
}

/// The first sentence of a report: the lead, else the first finding.
pub fn lead(explanation: &Explanation) -> Option<String> {
    let first = || explanation.findings.first().map(|finding| format!("{}: {}", finding.cause, finding.headline));
    explanation.lead.as_ref().map(ToString::to_string).or_else(first)
}

/// The first fix in a sentence, if the lead says who waited.
pub fn helps(explanation: &Explanation) -> Option<String> {
    explanation.lead.as_ref()?;
    let fix = explanation.findings.first()?.all_fixes().next()?;
    Some(format!("What helps: {} (fix {})", fix_text(fix), fix.number))
}

/// The parts of the first line: what ran, where, for how long, on which kernel.
pub fn subject(header: &Header) -> Vec<String> {
    let target = &header.target;
    let what = match (&header.scenario, target.what.as_str()) {
        (Some(scenario), _) => scenario.clone(),
        (None, "") => "a recording".to_owned(),
        (None, what) => what.to_owned(),
    };
    let mut parts = vec![match header.source {
        Source::Import => what,
        source => format!("{what} on {}", source.name()),
    }];
    if let Some(directory) = &target.directory {
        let on: Vec<&str> = [&target.file_system, &target.device].into_iter().filter_map(|x| x.as_deref()).collect();
        let on = if on.is_empty() { String::new() } else { format!(" ({})", on.join(", ")) };
        parts.push(format!("{directory}{on}"));
    }
    parts.push(time(header.duration_ns));
    let parameter = |key: &str| target.parameters.get(key);
    if let (Some(bytes), Some(interval)) = (parameter("journal.bytes"), parameter("journal.interval")) {
        let bytes = bytes.parse().map_or_else(|_| bytes.clone(), size);
        let interval =
            interval.parse().map_or_else(|_| interval.clone(), |ns: flatwater_recording::units::Nanos| ns.to_string());
        parts.push(format!("{bytes} every {interval}"));
    }
    if let Some(kernel) = &header.machine.kernel {
        parts.push(format!("kernel {kernel}"));
    }
    if header.source != Source::Import {
        parts.push(format!("seed {}", header.seed));
    }
    parts
}

/// Whether a reader needs the notes before the figures: nothing was traced, time is distorted, or the end is missing.
/// Other notes come last, so that a report begins with its answer.
#[must_use]
pub fn notes_first(header: &Header) -> bool {
    let untraced = !header.hooks.iter().any(|hook| hook.state != HookState::Unavailable);
    (header.source == Source::Host && (untraced || !header.complete)) || header.time_distorted
}

/// Notes about the recording: those of the header and of the explanation, each once.
pub fn notes(header: &Header, explanation: &Explanation) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    if header.time_distorted {
        notes.push(
            "virtual time runs unlike a real machine's here: latencies are not comparable with another source's; \
             counters are"
                .to_owned(),
        );
    }
    notes.extend(below_noise(&explanation.notes));
    for note in explanation.notes.iter().chain(&header.notes) {
        if matches!(note, Note::BelowNoise { .. }) {
            continue;
        }
        let again = header.time_distorted && *note == Note::TimeDistorted;
        let text = printable::without_error_numbers(&note.to_string()).into_owned();
        if !again && !notes.contains(&text) {
            notes.push(text);
        }
    }
    if !header.complete && header.source == Source::Host {
        notes.push(Note::CutShort.to_string());
    }
    notes
}

/// One note about all causes below the noise floor.
fn below_noise(notes: &[Note]) -> Option<String> {
    let below = notes.iter().filter_map(|note| match note {
        Note::BelowNoise { cause, worst_ns, noise_ns } => {
            Some((format!("{} (at most {})", cause.name(), time(*worst_ns)), *noise_ns))
        }
        _ => None,
    });
    let (causes, floors): (Vec<String>, Vec<u64>) = below.unzip();
    let floor_ns = floors.into_iter().max()?;
    let listed = causes.join(", ");
    Some(format!("below the noise floor of this machine ({}): {listed}", time(floor_ns)))
}

/// The noise floor, ns: the longest time that a thread without system calls lost, before or after the run.
pub fn floor_ns(header: &Header) -> Option<u64> {
    header.noise_before.iter().chain(&header.noise_after).map(|noise| noise.gap_ns_max).max()
}

pub fn noise_text(header: &Header) -> Option<String> {
    let floor = floor_ns(header)?;
    let one = |when: &str, noise: &Option<Noise>| {
        let noise = noise.as_ref()?;
        let steal = noise.steal_ns.map_or(String::new(), |ns| format!(", steal {}", time(ns)));
        Some(format!("{} {when}{steal}", time(noise.gap_ns_max)))
    };
    let each: Vec<String> =
        [one("before", &header.noise_before), one("after", &header.noise_after)].into_iter().flatten().collect();
    Some(format!("{}, longest delay of a thread without system calls ({})", time(floor), each.join("; ")))
}

/// (description, number) of each kind of loss that is not zero; empty if the explanation's notes already mention
/// losses.
pub fn losses(header: &Header, explanation: &Explanation) -> Vec<(&'static str, u64)> {
    let reported = explanation.notes.iter().any(|note| matches!(note, Note::Losses(_)));
    if reported { Vec::new() } else { counted_losses(&header.losses) }
}

fn counted_losses(losses: &Losses) -> Vec<(&'static str, u64)> {
    let Losses { lost, too_deep, segments_merged, stack_errors, unbalanced, no_state, samples_late } = *losses;
    let all = [
        ("events (ring buffer full)", lost),
        ("brackets nested too deep", too_deep),
        ("segments merged into others", segments_merged),
        ("kernel stacks", stack_errors),
        ("brackets with one end only", unbalanced),
        ("threads without room for state", no_state),
        ("samples taken late", samples_late),
    ];
    all.into_iter().filter(|(_, n)| *n > 0).collect()
}

/// The command that proves the first fix that changes a setting; `None` without a scenario, which alone can be run
/// again.
pub fn prove_command(header: &Header, fixes: &[Fix]) -> Option<String> {
    let scenario = header.scenario.as_ref()?;
    let (key, value) = fixes.iter().find_map(Fix::setting)?;
    Some(format!("flatwater verify {} --set {}={}", shell_quoted(scenario), key.name(), shell_quoted(value)))
}

/// The fix, the settings that no command changes, and the known effect.
pub fn fix_text(fix: &Fix) -> String {
    let mut text = fix.text.clone();
    if let Some((key, value)) = fix.setting().filter(|_| fix.steps.is_empty()) {
        text.push_str(&format!(" ({}={value})", key.name()));
    }
    match fix.measured {
        Some(measured) => text.push_str(&format!("; measured: {} ({})", measured.effect, measured.page)),
        None if !fix.steps.is_empty() => text.push_str("; effect not measured"),
        None => {}
    }
    text
}

/// The cost of flatwater itself in words; empty if it was not measured.
pub fn own_cost(explanation: &Explanation) -> String {
    let cost = &explanation.own_cost;
    let mut parts = Vec::new();
    if cost.rss_bytes > 0 {
        parts.push(format!("{} of a core, {}", share(cost.cpu_share), size(cost.rss_bytes)));
    }
    if let Some(ns) = cost.syscall_ns {
        parts.push(format!("{} added to every system call of the machine while it was traced", time(ns)));
    }
    parts.join("; ")
}

/// The reason why something is missing: the first gap whose `what` contains one of these words.
pub fn why_missing(gaps: &[Gap], words: &[&str]) -> String {
    let speaks = |gap: &&Gap| {
        let what = gap.what.to_lowercase();
        words.iter().any(|word| what.contains(word))
    };
    match gaps.iter().find(speaks) {
        Some(gap) if gap.remedy.is_empty() => format!("{}: {}", gap.what, gap.why),
        Some(gap) => format!("{}: {} ({})", gap.what, gap.why, gap.remedy),
        None => "no reason was recorded".to_owned(),
    }
}

/// How well a duration and its cause are known: the cause's basis alone if the time was measured, else both.
pub fn how_known(duration: DurationBasis, cause: CauseBasis) -> String {
    match (duration, cause) {
        (DurationBasis::Measured, cause) => cause.name().to_owned(),
        (duration, cause) => format!("{} {}", duration.name(), cause.name()),
    }
}

pub fn hook_state(state: HookState) -> &'static str {
    match state {
        HookState::Exact => "measured",
        HookState::Sampled => "sampled",
        HookState::Unavailable => "unavailable",
    }
}

/// `2026-11-21 07:30:00 UTC`; `None` if the wall time is unknown.
pub fn wall_time(header: &Header) -> Option<String> {
    let day = rows::day(header)?;
    let (month, rest) = day.split_once('/')?;
    let (day, year) = rest.split_once('/')?;
    Some(format!("{year}-{month}-{day} {} UTC", rows::clock(header, header.clock.start_ns)))
}

/// The cause with most of a call's time. Sums saturate, because a damaged recording may contain any number.
pub fn top_cause(call: &Call) -> Option<(Cause, u64)> {
    let mut sums: BTreeMap<Cause, u64> = BTreeMap::new();
    for segment in &call.segments {
        let sum = sums.entry(segment.cause).or_default();
        *sum = sum.saturating_add(segment.ns);
    }
    sums.into_iter().max_by_key(|(_, ns)| *ns)
}

/// How many slow calls had not returned when the recording ended; `None` if all had.
pub fn under_way(slow: &Slow) -> Option<String> {
    let longest = time(slow.under_way_ns_max);
    match slow.still_under_way {
        0 => None,
        1 => Some(format!("1 had not returned when the recording ended, after {longest}")),
        calls => Some(format!("{calls} had not returned when the recording ended, the longest after {longest}")),
    }
}

/// Whether calls were observed one by one. If so, a recording without calls means that none was made.
pub fn calls_were_seen(recording: &Recording) -> bool {
    let timed = !recording.latency.is_empty() || !recording.calls.is_empty();
    timed || recording.header.hooks.iter().any(|hook| hook.state == HookState::Exact)
}
