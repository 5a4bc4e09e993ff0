//! The threads of the mail store: one fills it unmeasured, and the servers divide the mailboxes among them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Habits, Layout};
use crate::dice::Dice;
use crate::{Op, Role, Stream};

/// Interval at which servers check whether the store is filled.
const READY_POLL_NS: u64 = 1_000_000;

/// (name, role, stream) of each thread.
pub(super) fn actors(layout: Layout, threads: u64, habits: Habits) -> Vec<(String, Role, Box<dyn Stream>)> {
    let ready = Arc::new(AtomicBool::new(false));
    let fill =
        Fill { layout, ready: Arc::clone(&ready), begun: false, ended: false, mailbox: 0, todo: VecDeque::new() };
    let mut all: Vec<(String, Role, Box<dyn Stream>)> =
        vec![("maildir-fill".to_owned(), Role::Neighbour, Box::new(fill))];
    for thread in 0..threads {
        let own = (layout.mailboxes - thread).div_ceil(threads);
        let server = Server {
            layout,
            habits,
            ready: Arc::clone(&ready),
            dice: Dice::new(layout.seed, thread, "maildir actions"),
            thread,
            threads,
            held: vec![Held { oldest: 0, next: layout.messages as u32 }; own as usize],
            todo: VecDeque::new(),
        };
        all.push((format!("maildir-{thread}"), Role::Foreground, Box::new(server)));
    }
    all
}

/// Creates directories and messages, mailbox by mailbox.
#[derive(Debug)]
struct Fill {
    layout: Layout,
    ready: Arc<AtomicBool>,
    begun: bool,
    ended: bool,
    mailbox: u64,
    todo: VecDeque<Op>,
}

impl Fill {
    fn one_mailbox(&mut self) {
        let (layout, mailbox) = (self.layout, self.mailbox);
        if mailbox.is_multiple_of(super::MAILBOXES_A_DIRECTORY) {
            self.todo.push_back(Op::Mkdir { dir: layout.hashed(mailbox) });
        }
        for dir in [layout.mailbox(mailbox), layout.new_of(mailbox), layout.tmp_of(mailbox)] {
            self.todo.push_back(Op::Mkdir { dir });
        }
        for number in 0..layout.messages {
            let file = layout.message(mailbox, number);
            self.todo.push_back(Op::Create { file });
            self.todo.push_back(Op::Append { file, bytes: layout.size_bytes(file) });
            self.todo.push_back(Op::Close { file });
        }
        self.mailbox += 1;
    }
}

impl Stream for Fill {
    fn next(&mut self, _now_ns: u64) -> Option<Op> {
        if !std::mem::replace(&mut self.begun, true) {
            return Some(Op::Measure { on: false });
        }
        if self.todo.is_empty() && self.mailbox < self.layout.mailboxes {
            self.one_mailbox();
        }
        if let Some(op) = self.todo.pop_front() {
            return Some(op);
        }
        self.ready.store(true, Ordering::Release);
        (!std::mem::replace(&mut self.ended, true)).then_some(Op::Measure { on: true })
    }
}

/// The messages of one mailbox: numbers from `oldest` up to but excluding `next`.
#[derive(Clone, Copy, Debug)]
struct Held {
    oldest: u32,
    next: u32,
}

/// One server thread. It owns every mailbox whose number modulo the number of threads is the thread's number.
#[derive(Debug)]
struct Server {
    layout: Layout,
    habits: Habits,
    ready: Arc<AtomicBool>,
    dice: Dice,
    thread: u64,
    threads: u64,
    held: Vec<Held>,
    /// Remaining operations of the current action.
    todo: VecDeque<Op>,
}

impl Server {
    fn act(&mut self) {
        let own = self.dice.below(self.held.len() as u64);
        let mailbox = own * self.threads + self.thread;
        let Habits { deliver, expunge, list, pause_ns, .. } = self.habits;
        let kind = self.dice.share();
        if kind < deliver {
            self.deliver(own as usize, mailbox);
        } else if kind < deliver + expunge {
            self.expunge(own as usize, mailbox);
        } else if kind < deliver + expunge + list {
            self.list(own as usize, mailbox);
        } else {
            self.read(own as usize, mailbox);
        }
        if pause_ns > 0 || self.todo.is_empty() {
            // An action on an empty mailbox has no operations; the sleep prevents a busy loop.
            self.todo.push_back(Op::Sleep { ns: pause_ns.max(1_000) });
        }
    }

    fn deliver(&mut self, own: usize, mailbox: u64) {
        let number = u64::from(self.held[own].next);
        self.held[own].next = self.held[own].next.wrapping_add(1);
        let file = self.layout.message_in_tmp(mailbox, number);
        self.todo.extend([Op::Create { file }, Op::Append { file, bytes: self.layout.size_bytes(file) }]);
        if self.habits.fsync {
            self.todo.push_back(Op::Fsync { file });
        }
        let to = self.layout.message(mailbox, number);
        self.todo.extend([Op::Close { file }, Op::Rename { from: file, to }]);
    }

    fn expunge(&mut self, own: usize, mailbox: u64) {
        let held = &mut self.held[own];
        if held.oldest != held.next {
            let file = self.layout.message(mailbox, u64::from(held.oldest));
            held.oldest = held.oldest.wrapping_add(1);
            self.todo.push_back(Op::Unlink { file });
        }
    }

    fn list(&mut self, own: usize, mailbox: u64) {
        self.todo.push_back(Op::List { dir: self.layout.new_of(mailbox) });
        let Held { oldest, next } = self.held[own];
        let newest_first = (0..u64::from(next.wrapping_sub(oldest))).rev().take(self.habits.stats as usize);
        for place in newest_first {
            let file = self.layout.message(mailbox, u64::from(oldest) + place);
            self.todo.push_back(Op::Stat { file });
        }
    }

    fn read(&mut self, own: usize, mailbox: u64) {
        let Held { oldest, next } = self.held[own];
        let count = u64::from(next.wrapping_sub(oldest));
        let first = if count > 0 { self.dice.below(count) } else { 0 };
        for place in first..(first + self.habits.reads).min(count) {
            let file = self.layout.message(mailbox, u64::from(oldest) + place);
            let bytes = self.layout.size_bytes(file);
            self.todo.extend([Op::Read { file, offset_bytes: 0, bytes }, Op::Close { file }]);
        }
    }
}

impl Stream for Server {
    fn next(&mut self, _now_ns: u64) -> Option<Op> {
        if self.todo.is_empty() {
            if !self.ready.load(Ordering::Acquire) {
                return Some(Op::Sleep { ns: READY_POLL_NS });
            }
            self.act();
        }
        self.todo.pop_front()
    }
}
