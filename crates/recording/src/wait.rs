//! Why a sleep within a slow call ended: the wait chain, thread by thread.

use crate::call::named_enum;
use crate::store::flat::{named_cells, table};
use crate::{StackId, Task};

table! {
    /// One link of a wait chain: a sleep, and what ended it. The links of a call are those with its `call_tid` and
    /// `call_start_ns`. Depth 0 is a sleep of the call itself; depth 1 is a sleep of the thread that ended it, as far
    /// as both overlap; and so on, until a device interrupt, a timer or a running thread. If the `waker_kind` of a
    /// chain's last link is `task`, the waker did not sleep during that time: it ran, or waited for a CPU
    /// (`waker_ran_ns`).
    Wait = "waits" {
        /// The thread of the slow call (for an io_uring or libaio operation: the thread that submitted it).
        call_tid: u32,
        /// `start_ns` of the slow call.
        call_start_ns: u64,
        /// 0 for a sleep of the call, 1 for its waker's sleep, ...
        depth: u32,
        /// The sleeping thread.
        sleeper: Task,
        /// Activity of the sleeper: a system call (`fdatasync`), `page fault`, a work function of a kworker
        /// (`wb_workfn`), an io_uring opcode; null if the kernel does not report it.
        sleeper_doing: Option<String>,
        /// File of that system call, if known.
        sleeper_file: Option<String>,
        /// Start of the sleep.
        start_ns: u64,
        /// From the start of the sleep to the wake-up; excludes the wait for a CPU that follows.
        duration_ns: u64,
        /// Stack of the sleeper.
        stack: Option<StackId>,
        /// What ended the sleep.
        waker_kind: WakerKind,
        /// The thread that ended the sleep; null for interrupts and timers. If a device completed a request, it is the
        /// thread to which the interrupt passed the completion, if any.
        waker: Option<Task>,
        /// Activity of the waker at that moment, as in `sleeper_doing`.
        waker_doing: Option<String>,
        /// File of the waker's system call, if known.
        waker_file: Option<String>,
        /// Stack of the waker when it ended the sleep.
        waker_stack: Option<StackId>,
        /// Part of the sleep in which the waker ran or waited for a CPU; null if the waker was not followed.
        waker_ran_ns: Option<u64>,
        /// Holder of the lock when the wait for it began; null if no lock was observed or the holder is unknown.
        lock_holder: Option<Task>,
        /// `mutex`, `rwsem read`, `rwsem write`, `percpu rwsem`, `rt_mutex` (PREEMPT_RT: a mutex or a spinlock); null
        /// if no lock was observed.
        lock: Option<String>,
        /// The device request whose completion ended the sleep, or would have ended it; see `requests`.
        request: Option<u64>,
        /// Inode whose writeback the sleeper waited for.
        inode: Option<u64>,
        /// How well the waker is known.
        basis: WakerBasis,
    }
}

named_enum! {
    /// The kind of event that ended a sleep.
    #[derive(Default)]
    WakerKind {
        /// A thread: `waker`.
        Task => "task",
        /// Completion of a device request: `request`.
        Device => "device",
        /// Expiry of a timer: the sleep had a fixed length, as in balance_dirty_pages().
        Timer => "timer",
        /// Another hardware interrupt.
        Interrupt => "interrupt",
        /// A softirq without a device completion or a timer: RCU, network.
        SoftIrq => "softirq",
        /// The waker was not observed.
        #[default]
        Unknown => "unknown",
    }
}

named_enum! {
    /// How the waker is known.
    #[derive(Default)]
    WakerBasis {
        /// The scheduler reported the wake-up and the waker.
        Wakeup => "by-wakeup",
        /// The wake-up came from the completion of this request.
        Completion => "by-completion",
        /// The owner recorded in the lock; the wake-up was not observed, or came from elsewhere.
        LockOwner => "by-lock-owner",
        /// Neither the sleep nor this request, which the sleeper had submitted in the same call, had ended when the
        /// recording ended.
        OwnRequest => "by-own-request",
        /// Only one thread can do what the stack waits for (the journal's, the flusher's).
        Stack => "by-stack",
        #[default]
        Nothing => "not-known",
    }
}

named_cells!(WakerKind, WakerBasis);
