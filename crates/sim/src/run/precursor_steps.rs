//! The precursor in the model: the precursor crate's planner decides, this file performs its steps on the modelled
//! kernel.
//!
//! Models: a helper thread for each file that allocates, warms (reads before the writer needs the pages, or populates
//! and locks), flushes the ring and starts writeback of windows. Leaves out: back pressure of the ring, which is large
//! enough here, mlock limits, write-protection faults of the window mode.

use crate::constant::constants;
use crate::kernel::PAGE_BYTES;
use std::cell::RefCell;
use std::rc::Rc;

use precursor::plan::{Ledger, Mode, Planner, Step, Tuning, Which};

use crate::Machine;
use crate::fs::inode::{InodeId, KeyMap};
use crate::fs::vfs;
use crate::mm::chunk::WINDOW_PAGES;
use crate::mm::filemap_add;
use crate::sched::site::Site;
use crate::sched::task::Task;
use crate::writeback;

/// State that the writer and the helper of a file share.
#[derive(Debug)]
pub struct Ahead {
    mode: Mode,
    ledger: Ledger,
}

pub type Aheads = KeyMap<InodeId, Rc<RefCell<Ahead>>>;

constants! {
/// Memory that the helper may use, bytes.
    const AHEAD_BYTES_MAX: u64 = assumed(64 << 20, "ample on the machines modelled");
}

/// The requested mode; `auto` depends on the kernel of the profile.
fn mode(m: &Machine) -> Option<Mode> {
    let knobs = m.knobs.borrow();
    match knobs.precursor.as_str() {
        "off" | "" | "plain" => None,
        // Kernels without MADV_POPULATE_WRITE.
        "auto" => Some(if m.profile.is_6() { Mode::Window } else { Mode::Prefetch }),
        name => Mode::from_name(name).filter(|mode| *mode != Mode::Plain),
    }
}

/// Appends through the precursor; false if it is off and the caller has to write().
pub async fn append(m: &Rc<Machine>, task: &mut Task, inode: InodeId, offset: u64, bytes: u64) -> bool {
    if !m.precursor_used.get() {
        return false;
    }
    let Some(mode) = mode(m) else { return false };
    let known = m.aheads.borrow().get(&inode).cloned();
    let shared = match known {
        Some(shared) => shared,
        None => {
            let ledger = Ledger { position: offset, flushed: offset, allocated: offset, ..Ledger::default() };
            let shared = Rc::new(RefCell::new(Ahead { mode, ledger }));
            m.aheads.borrow_mut().insert(inode, shared.clone());
            m.clock.spawn(helper(m.clone(), inode, shared.clone(), task.node));
            shared
        }
    };
    {
        let mut ahead = shared.borrow_mut();
        ahead.ledger.position = offset + bytes;
        if ahead.mode != Mode::Ring {
            ahead.ledger.flushed = offset + bytes;
        }
    }
    match mode {
        Mode::Ring => {
            task.work(Site::Work, m.costs.store_ns + bytes * m.costs.copy_byte_ps / 1000);
            m.mm.borrow_mut().inodes.get_mut(inode).size = offset + bytes;
        }
        Mode::Window if warm(m, inode, offset, bytes) => {
            task.work(Site::Work, m.costs.store_ns + bytes * m.costs.copy_byte_ps / 1000);
            dirty(m, inode, offset, bytes);
        }
        _ => {
            if !m.append_in_place(task, inode, offset, bytes) {
                vfs::write(m, task, inode, offset, bytes).await;
            }
        }
    }
    true
}

fn warm(m: &Machine, inode: InodeId, offset: u64, bytes: u64) -> bool {
    let mm = m.mm.borrow();
    (offset / PAGE_BYTES..=(offset + bytes.max(1) - 1) / PAGE_BYTES).all(|page| mm.lookup(inode, page).is_some())
}

fn dirty(m: &Machine, inode: InodeId, offset: u64, bytes: u64) {
    for page in offset / PAGE_BYTES..=(offset + bytes.max(1) - 1) / PAGE_BYTES {
        let found = m.mm.borrow().lookup(inode, page);
        if let Some((id, bit)) = found {
            m.mark_dirty(id, bit);
        }
    }
    m.mm.borrow_mut().inodes.get_mut(inode).size = offset + bytes;
}

/// The helper: performs the planner's steps as long as the file is appended to.
async fn helper(m: Rc<Machine>, inode: InodeId, shared: Rc<RefCell<Ahead>>, node: usize) {
    let (mode, start) = {
        let ahead = shared.borrow();
        (ahead.mode, ahead.ledger.position)
    };
    let mut planner = Planner::new(Tuning::new(mode, AHEAD_BYTES_MAX.get(), PAGE_BYTES));
    let mut task = Task::new(node, m.cpus.borrow().pick(Some(node), 1));
    task.bound_node = Some(node);
    shared.borrow_mut().ledger.warm = start;
    loop {
        task.begin();
        let now = m.clock.now();
        let at = shared.borrow().ledger;
        planner.pace.on_position(now, at.position);
        match planner.next(now, &at) {
            Step::Nap(ns) => m.clock.sleep_until(now + ns.max(10_000)).await,
            Step::Allocate(which, span) => {
                crate::fs::journal::touch(&m, m.place_of(inode), &mut task).await;
                task.work(Site::Work, m.costs.write_base_ns * 4);
                task.run(&m).await;
                let mut ahead = shared.borrow_mut();
                let end = if which == Which::Current {
                    &mut ahead.ledger.allocated
                } else {
                    &mut ahead.ledger.next_allocated
                };
                *end = span.end();
            }
            Step::Warm(which, span) => {
                if which == Which::Current {
                    bring_in(&m, &mut task, inode, span.at, span.end()).await;
                }
                task.run(&m).await;
                planner.pace.on_warmed(m.clock.now() - now);
                let mut ahead = shared.borrow_mut();
                let end = if which == Which::Current { &mut ahead.ledger.warm } else { &mut ahead.ledger.next_warm };
                *end = span.end();
            }
            Step::Flush(span) => {
                vfs::write(&m, &mut task, inode, span.at, span.len).await;
                task.run(&m).await;
                shared.borrow_mut().ledger.flushed = span.end();
            }
            Step::WriteBack(span) => {
                writeback::write_pages(&m, &mut task, inode, span.len / PAGE_BYTES, Site::GetRequestWait).await;
                task.run(&m).await;
                shared.borrow_mut().ledger.written_back = span.end();
            }
            Step::Release(span) => shared.borrow_mut().ledger.released = span.end(),
            Step::Refresh(_) => m.clock.sleep_until(now + 100_000).await,
        }
    }
}

/// Adds pages with their buffer_heads on the helper's time; preallocated blocks are unwritten and not read.
async fn bring_in(m: &Machine, task: &mut Task, inode: InodeId, from: u64, to: u64) {
    for page in from / PAGE_BYTES..to.div_ceil(PAGE_BYTES) {
        let missing = m.mm.borrow().lookup(inode, page).is_none();
        if missing {
            // block_read_full_page makes the buffers.
            filemap_add::page(m, task, inode, page, true).await;
        }
        if page % WINDOW_PAGES == WINDOW_PAGES - 1 {
            task.run(m).await;
        }
    }
}
