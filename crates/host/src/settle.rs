//! How long each stage waits for records of the kernel that come later than the end of a call, and the order that these
//! times must keep.

/// An operation of io_uring or libaio is reported this long after its end: the worker's sleeps, from another CPU, have
/// arrived by then.
pub const OPERATION_NS: u64 = 100_000_000;
/// A call that hooks on system calls timed is reported this long after its end: a thread over memory.high waits after
/// its call has returned, and that wait belongs to the call.
pub const CALL_NS: u64 = 300_000_000;
/// A call that a workload of this process timed is attributed this long after its end. The tracers must have reported
/// by then what it waited for.
pub const OWN_CALL_NS: u64 = 500_000_000;
/// A call found by its sleeps is over if its thread has not slept in it for this long.
pub const SLEEPLESS_NS: u64 = 1_000_000_000;

const _: () = {
    assert!(OPERATION_NS < CALL_NS, "the waits of a call are joined when it is reported, so they must have arrived");
    assert!(CALL_NS < OWN_CALL_NS, "an own call is attributed once, so the waits after its return must have arrived");
    assert!(
        CALL_NS < SLEEPLESS_NS,
        "a call that is also timed by hooks must be known before it is found by its sleeps"
    );
};
