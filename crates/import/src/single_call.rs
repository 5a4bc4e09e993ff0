//! A slow call of which a log tells only how long it took, and perhaps why.

use flatwater_recording::{Basis, Call, Cause, CauseBasis, OpKind, Segment, StackId};

/// One segment over the whole call.
#[must_use]
pub fn single_call(pid: u32, thread: &str, op: OpKind, ns: u64, cause: Cause, basis: Basis) -> Call {
    let segment = Segment::new(0, ns, cause, basis.into(), CauseBasis::of_basis(basis, cause));
    Call::new(op, 0, ns, vec![segment]).by(pid, pid, thread)
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
