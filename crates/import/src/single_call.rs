//! Builds a slow call from a log that states only its duration, and perhaps its cause.

use flatwater_recording::{Basis, Call, Cause, CauseBasis, OpKind, Segment, StackId};

/// A call with one segment over its whole duration.
#[must_use]
pub fn single_call(pid: u32, thread: &str, op: OpKind, ns: u64, cause: Cause, basis: Basis) -> Call {
    let segment = Segment::new(0, ns, cause, basis.into(), CauseBasis::of_basis(basis, cause));
    Call::new(op, 0, ns, vec![segment]).by(pid, pid, thread)
}

/// Sets the stack of the whole call.
pub fn set_stack(call: &mut Call, stack: StackId) {
    for segment in &mut call.segments {
        segment.stack = Some(stack);
        if segment.cause != Cause::Unexplained {
            segment.cause_basis = CauseBasis::Stack;
        }
    }
}
