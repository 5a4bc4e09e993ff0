//! Why a sleep within a slow call ended: the wait chain, thread by thread.

use crate::call::named_enum;
use crate::store::flat::{named_cells, table};
use crate::{StackId, Task};

table! {
    /// One link of a wait chain: a sleep, and what ended it. The links of a call are those with its `call_tid` and
    /// `call_start_ns`. Depth 0 is a sleep of the call itself; depth 1 is a sleep of the thread that ended it, as far as both
    /// overlap; and so on, until a device's interrupt, a timer or a thread that was running. Where a chain ends although the
    /// last `waker_kind` is `task`, that thread did not sleep meanwhile: it ran, or waited for a CPU (`waker_ran_ns`).
    Wait = "waits" {
        /// The thread of the slow call (of an io_uring or libaio operation: the thread that submitted it).
        call_tid: u32,
        /// `start_ns` of the slow call.
        call_start_ns: u64,
        /// 0 for the call's own sleep, 1 for that of its waker, ...
        depth: u32,
        /// Who slept.
        sleeper: Task,
        /// What the sleeper was doing: a system call (`fdatasync`), `page fault`, a work function of a kworker (`wb_workfn`),
        /// an io_uring opcode; null where the kernel does not tell.
        sleeper_doing: Option<String>,
        /// File of that system call, where it was found out.
        sleeper_file: Option<String>,
        /// When the sleep began.
        start_ns: u64,
        /// From falling asleep to being woken; waiting for a CPU after that is not in it.
        duration_ns: u64,
        /// Where it slept.
        stack: Option<StackId>,
        /// What ended the sleep.
        waker_kind: WakerKind,
        /// The thread that ended it; null for interrupts and timers. For a device's completion it is the thread that the
        /// interrupt handed it to, if any.
        waker: Option<Task>,
        /// What the waker was doing at that moment, as `sleeper_doing`.
        waker_doing: Option<String>,
        /// File of the waker's system call, where it was found out.
        waker_file: Option<String>,
        /// Where the waker was when it ended the sleep.
        waker_stack: Option<StackId>,
        /// Of this sleep, how long the waker was on a CPU, or waited for one; null where it was not followed.
        waker_ran_ns: Option<u64>,
        /// Who held the lock that was waited for when the wait began; null where no lock was seen, or its holder is unknown.
        lock_holder: Option<Task>,
        /// `mutex`, `rwsem read`, `rwsem write`, `percpu rwsem`, `rt_mutex` (PREEMPT_RT: a mutex or a spinlock); null where no lock
        /// was seen.
        lock: Option<String>,
        /// The device request whose completion ended the sleep, or would have, as in `requests`.
        request: Option<u64>,
        /// Inode whose writeback was waited for.
        inode: Option<u64>,
        /// How well the waker is known.
        basis: WakerBasis,
    }
}

named_enum! {
    /// What ends a sleep.
    #[derive(Default)]
    WakerKind {
        /// A thread: `waker`.
        Task => "task",
        /// A request to a device completed: `request`.
        Device => "device",
        /// A timer expired: the sleep had a length of its own, as of balance_dirty_pages().
        Timer => "timer",
        /// Another hardware interrupt.
        Interrupt => "interrupt",
        /// A softirq that no device's completion and no timer explains: RCU, network.
        SoftIrq => "softirq",
        /// Nobody was seen.
        #[default]
        Unknown => "unknown",
    }
}

named_enum! {
    /// How well it is known who ended a sleep.
    #[derive(Default)]
    WakerBasis {
        /// The scheduler reported the wake-up, and who made it.
        Wakeup => "by-wakeup",
        /// The wake-up came from the completion of this request.
        Completion => "by-completion",
        /// The owner that the lock names; the wake-up was not seen, or came from elsewhere.
        LockOwner => "by-lock-owner",
        /// It had not ended with the recording, nor had this request, which the sleeper had submitted in the same call.
        OwnRequest => "by-own-request",
        /// What the stack waits for can be done by one thread only (the journal's, the flusher's).
        Stack => "by-stack",
        #[default]
        Nothing => "not-known",
    }
}

named_cells!(WakerKind, WakerBasis);
