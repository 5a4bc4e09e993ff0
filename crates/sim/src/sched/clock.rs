//! Virtual time and its tasks.
//!
//! One clock in nanoseconds and one event queue. Tasks are futures, so that a kernel path reads from top to bottom as
//! in the kernel. Events of one instant run in the order of posting. A task runs alone until it sleeps, without
//! parallelism inside an instant, and without data races.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

pub type TaskId = u32;

/// (at, order of posting, task, token). The token of a task changes whenever it wakes; an event with an older token is
/// obsolete.
type Event = Reverse<(u64, u64, TaskId, u32)>;

struct Slot {
    future: Option<Pin<Box<dyn Future<Output = ()>>>>,
    token: u32,
    done: bool,
}

pub struct Clock {
    now: Cell<u64>,
    end: Cell<u64>,
    posted: Cell<u64>,
    queue: RefCell<BinaryHeap<Event>>,
    tasks: RefCell<Vec<Slot>>,
    current: Cell<TaskId>,
    /// Number of events handled.
    pub events: Cell<u64>,
}

impl Clock {
    #[must_use]
    pub fn new(end_ns: u64) -> Clock {
        Clock {
            now: Cell::new(0),
            end: Cell::new(end_ns),
            posted: Cell::new(0),
            queue: RefCell::new(BinaryHeap::with_capacity(256)),
            tasks: RefCell::new(Vec::new()),
            current: Cell::new(0),
            events: Cell::new(0),
        }
    }

    #[inline]
    pub fn now(&self) -> u64 {
        self.now.get()
    }

    pub fn set_end(&self, end_ns: u64) {
        self.end.set(end_ns);
    }

    pub fn current(&self) -> TaskId {
        self.current.get()
    }

    /// Starts a task at this instant, after those already posted.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) -> TaskId {
        let id = {
            let mut tasks = self.tasks.borrow_mut();
            // Places of ended tasks are reused.
            let free = if tasks.len() > 512 { tasks.iter().position(|slot| slot.done) } else { None };
            let slot = Slot { future: Some(Box::pin(future)), token: 0, done: false };
            match free {
                Some(place) => {
                    let token = tasks[place].token;
                    tasks[place] = Slot { token, ..slot };
                    place
                }
                None => {
                    tasks.push(slot);
                    tasks.len() - 1
                }
            }
        };
        let id = id as TaskId;
        self.post(self.now(), id);
        id
    }

    fn post(&self, at: u64, task: TaskId) {
        let token = self.tasks.borrow()[task as usize].token;
        let order = self.posted.get();
        self.posted.set(order + 1);
        self.queue.borrow_mut().push(Reverse((at, order, task, token)));
    }

    /// Wakes a parked task. Waking another task has no effect, because its token changes first.
    pub fn wake(&self, task: TaskId) {
        self.post(self.now(), task);
    }

    /// Sleeps until the instant; returns at once if it has passed.
    pub fn sleep_until(&self, at: u64) -> Sleep<'_> {
        Sleep { clock: self, at, posted: false }
    }

    /// Sleeps until woken, or until the deadline.
    pub fn park(&self, deadline: Option<u64>) -> Park<'_> {
        Park { clock: self, deadline, posted: false }
    }

    /// Runs until the end time or until no event is left. Calls `watch` now and then, which may end the run.
    pub fn run(&self, mut watch: impl FnMut(u64) -> bool) {
        self.pump(self.end.get(), &mut watch);
        // The next event is after the end.
        if self.queue.borrow().peek().is_some_and(|Reverse((at, ..))| *at > self.end.get()) {
            self.now.set(self.now().max(self.end.get()));
        }
        // The futures own the machine, which owns this clock: drop them, or neither is freed.
        let left: Vec<_> = self.tasks.borrow_mut().drain(..).collect();
        drop(left);
    }

    /// Runs until that instant and sets the time to it. Waiting tasks keep waiting.
    pub fn run_up_to(&self, at: u64) {
        self.pump(at, &mut |_| true);
        self.now.set(self.now().max(at));
    }

    /// Runs until no event is left; parked tasks stay parked.
    pub fn drain(&self) {
        self.pump(u64::MAX, &mut |_| true);
    }

    /// Runs event by event as long as `going` returns true.
    pub fn run_while(&self, going: impl Fn() -> bool) {
        while going() {
            let Some(at) = self.queue.borrow().peek().map(|Reverse((at, ..))| *at) else { break };
            self.pump(at, &mut |_| true);
        }
    }

    /// Sets the time to 0. Only after `drain`: old events would run again.
    pub fn rewind(&self) {
        debug_assert!(self.queue.borrow().is_empty());
        self.now.set(0);
        self.events.set(0);
    }

    fn pump(&self, end: u64, watch: &mut impl FnMut(u64) -> bool) {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if self.queue.borrow().peek().is_none_or(|Reverse((at, ..))| *at > end) {
                break;
            }
            let Some(Reverse((at, _, task, token))) = self.queue.borrow_mut().pop() else { break };
            let Some(mut future) = self.take(task, token) else { continue };
            debug_assert!(at >= self.now(), "time never runs backwards");
            self.now.set(at);
            self.current.set(task);
            let events = self.events.get() + 1;
            self.events.set(events);
            if events.is_multiple_of(4096) && !watch(at) {
                break;
            }
            match future.as_mut().poll(&mut context) {
                Poll::Pending => self.tasks.borrow_mut()[task as usize].future = Some(future),
                Poll::Ready(()) => self.tasks.borrow_mut()[task as usize].done = true,
            }
        }
    }

    fn take(&self, task: TaskId, token: u32) -> Option<Pin<Box<dyn Future<Output = ()>>>> {
        let mut tasks = self.tasks.borrow_mut();
        let slot = tasks.get_mut(task as usize).filter(|slot| slot.token == token)?;
        let future = slot.future.take()?;
        slot.token = slot.token.wrapping_add(1);
        Some(future)
    }

    /// Advances the time to `at` if no event is due up to then; the running task continues there.
    #[inline]
    pub fn run_ahead(&self, at: u64) -> bool {
        let next = self.queue.borrow().peek().map_or(u64::MAX, |event| event.0.0);
        let free = next > at && at < self.end.get();
        if free {
            self.now.set(at);
        }
        free
    }
}

pub struct Sleep<'a> {
    clock: &'a Clock,
    at: u64,
    posted: bool,
}

impl Future for Sleep<'_> {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.posted || self.at <= self.clock.now() || self.clock.run_ahead(self.at) {
            return Poll::Ready(());
        }
        self.posted = true;
        self.clock.post(self.at, self.clock.current());
        Poll::Pending
    }
}

pub struct Park<'a> {
    clock: &'a Clock,
    deadline: Option<u64>,
    posted: bool,
}

impl Future for Park<'_> {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.posted {
            return Poll::Ready(());
        }
        self.posted = true;
        if let Some(at) = self.deadline {
            self.clock.post(at, self.clock.current());
        }
        Poll::Pending
    }
}

/// Tasks that wait for one thing, first come first served.
#[derive(Debug, Default)]
pub struct WaitQueue(VecDeque<TaskId>);

impl WaitQueue {
    pub fn join(&mut self, task: TaskId) {
        self.0.push_back(task);
    }

    pub fn leave(&mut self, task: TaskId) {
        self.0.retain(|waiting| *waiting != task);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn wake_one(&mut self, clock: &Clock) {
        if let Some(task) = self.0.pop_front() {
            clock.wake(task);
        }
    }

    pub fn wake_all(&mut self, clock: &Clock) {
        while let Some(task) = self.0.pop_front() {
            clock.wake(task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Clock;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[test]
    fn tasks_interleave_in_order_of_time_and_posting() {
        let clock = Rc::new(Clock::new(1_000));
        let seen = Rc::new(RefCell::new(Vec::new()));
        for (name, step) in [("a", 30), ("b", 20)] {
            let (clock2, seen) = (clock.clone(), seen.clone());
            clock.spawn(async move {
                for turn in 1..=2 {
                    clock2.sleep_until(turn * step).await;
                    seen.borrow_mut().push((clock2.now(), name));
                }
            });
        }
        clock.run(|_| true);
        assert_eq!(*seen.borrow(), [(20, "b"), (30, "a"), (40, "b"), (60, "a")]);
    }

    #[test]
    fn a_parked_task_wakes_once_and_its_old_deadline_does_nothing() {
        let clock = Rc::new(Clock::new(1_000));
        let seen = Rc::new(RefCell::new(Vec::new()));
        let (clock2, seen2) = (clock.clone(), seen.clone());
        let sleeper = clock.spawn(async move {
            clock2.park(Some(500)).await;
            seen2.borrow_mut().push(clock2.now());
            clock2.sleep_until(700).await;
            seen2.borrow_mut().push(clock2.now());
        });
        let clock3 = clock.clone();
        clock.spawn(async move {
            clock3.sleep_until(100).await;
            clock3.wake(sleeper);
        });
        clock.run(|_| true);
        assert_eq!(*seen.borrow(), [100, 700]);
    }
}
