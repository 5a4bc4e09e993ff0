//! A slow call of which a log tells only how long it took, and perhaps why.

use flatwater_recording::{Basis, Call, Cause, CauseBasis, OpKind, Segment, StackId};

/// One segment over the whole call.
#[must_use]
pub fn single_call(pid: u32, thread: &str, op: OpKind, ns: u64, cause: Cause, basis: Basis) -> Call {
    Call {
        pid,
        tid: pid,
        thread: thread.to_owned(),
        op,
        bytes: None,
        offset_bytes: None,
        file: None,
        due_ns: None,
        start_ns: 0,
        duration_ns: ns,
        segments: vec![Segment::new(0, ns, cause, basis.into(), CauseBasis::of_basis(basis, cause))],
        after_exit_ns: 0,
        damaged: false,
    }
}

/// Names where the thread was in the whole of such a call.
pub fn set_stack(call: &mut Call, stack: StackId) {
    for segment in &mut call.segments {
        segment.stack = Some(stack);
        if segment.cause != Cause::Unexplained {
            segment.cause_basis = CauseBasis::Stack;
        }
    }
}
