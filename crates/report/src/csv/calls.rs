//! The tables of a recording that are not sampled: calls, their segments, stacks, events, gaps, settings, hooks.

use super::{Csv, facts};
use flatwater_recording::outcome::{BulkOutcome, WorkloadOutcome};
use flatwater_recording::{Basis, Recording};

pub fn calls(out: &mut Csv, recording: &Recording) {
    out.header(&[
        "call",
        "start_ns",
        "duration_ns",
        "due_ns",
        "pid",
        "tid",
        "thread",
        "op",
        "bytes",
        "offset_bytes",
        "file",
        "after_exit_ns",
        "damaged",
        "top_cause",
        "top_cause_ns",
        "still_under_way",
        "errno",
    ]);
    for (number, call) in recording.calls.iter().enumerate() {
        let top = facts::top_cause(call);
        out.number(number);
        out.number(call.start_ns);
        out.number(call.duration_ns);
        out.optional(call.due_ns);
        out.number(call.pid);
        out.number(call.tid);
        out.text(&call.thread);
        out.text(call.op.name());
        out.optional(call.bytes);
        out.optional(call.offset_bytes);
        out.text(call.file.as_deref().unwrap_or(""));
        out.number(call.after_exit_ns);
        out.number(u8::from(call.damaged));
        out.text(top.map_or("", |(cause, _)| cause.name()));
        out.optional(top.map(|(_, ns)| ns));
        out.number(u8::from(call.still_under_way));
        out.optional(call.errno);
        out.end();
    }
}

/// The column `call` is the row in the table `calls`.
pub fn segments(out: &mut Csv, recording: &Recording) {
    out.header(&["call", "offset_ns", "ns", "cause", "basis", "stack", "count", "cause_basis"]);
    for (number, call) in recording.calls.iter().enumerate() {
        for segment in &call.segments {
            out.number(number);
            out.number(segment.offset_ns);
            out.number(segment.ns);
            out.text(segment.cause.name());
            out.text(Basis::from(segment.duration_basis).name());
            out.optional(segment.stack.map(|stack| stack.0));
            out.number(segment.count);
            out.text(segment.cause_basis.name());
            out.end();
        }
    }
}

pub fn stacks(out: &mut Csv, recording: &Recording) {
    out.header(&["stack", "depth", "frame"]);
    for stack in &recording.stacks {
        for (depth, frame) in stack.frames.iter().enumerate() {
            out.number(stack.id.0);
            out.number(depth);
            out.text(frame);
            out.end();
        }
    }
}

pub fn events(out: &mut Csv, recording: &Recording) {
    out.header(&["at_ns", "kind", "text"]);
    for event in &recording.events {
        out.number(event.at_ns);
        out.text(event.kind.name());
        out.text(&event.kind.to_string());
        out.end();
    }
}

pub fn gaps(out: &mut Csv, recording: &Recording) {
    out.header(&["what", "why", "remedy", "at_ns"]);
    for gap in &recording.gaps {
        out.text(&gap.what);
        out.text(&gap.why);
        out.text(&gap.remedy);
        out.optional(gap.at_ns);
        out.end();
    }
}

pub fn setup(out: &mut Csv, recording: &Recording) {
    out.header(&["key", "value"]);
    for (key, value) in recording.header.setup.iter() {
        out.text(key);
        out.text(value);
        out.end();
    }
}

pub fn hooks(out: &mut Csv, recording: &Recording) {
    out.header(&["hook", "serves", "state", "reason"]);
    for hook in &recording.header.hooks {
        out.text(&hook.hook);
        out.text(&hook.serves.join(" "));
        out.text(facts::hook_state(hook.state));
        out.text(&hook.reason);
        out.end();
    }
}

/// The delays of the workload `bulk`: each call over its threshold.
pub fn delays(out: &mut Csv, recording: &Recording) {
    out.header(&["at_ns", "pid", "delay_ns"]);
    for delay in bulk(recording).into_iter().flat_map(|bulk| &bulk.delays) {
        out.number(delay.at_ns);
        out.number(delay.pid);
        out.number(delay.delay_ns);
        out.end();
    }
}

pub fn bulk(recording: &Recording) -> Option<&BulkOutcome> {
    recording.outcomes.iter().find_map(|outcome| match outcome {
        WorkloadOutcome::Bulk(bulk) => Some(bulk),
        _ => None,
    })
}
