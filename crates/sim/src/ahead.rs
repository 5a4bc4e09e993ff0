//! The precursor in the model: the crate's own planner decides, this file performs its steps on the modelled kernel.
//!
//! Models: a helper thread a file that allocates, warms (reads ahead of the writer, or populates and locks),
//! flushes the ring and hands windows to write-back. Leaves out: the ring's back pressure (the model's is large
//! enough), mlock limits, write-protection faults of the window mode.

use super::constant::constants;
use std::cell::RefCell;
use std::rc::Rc;

use precursor::plan::{Ledger, Mode, Planner, Step, Tuning, Which};

use super::Machine;
use super::alloc::Want;
use super::chunk::WINDOW_PAGES;
use super::device::DeviceId;
use super::inode::{InodeId, KeyMap};
use super::site::Site;
use super::task::Task;
use super::{filemap_add, vfs, writeback};

/// What writer and helper share about one file.
#[derive(Debug)]
pub struct Ahead {
    mode: Mode,
    ledger: Ledger,
}

pub type Aheads = KeyMap<InodeId, Rc<RefCell<Ahead>>>;

const PAGE: u64 = 4096;

constants! {
    /// Memory the helper may hold, bytes.
    const AHEAD_BYTES_MAX: u64 = assumed(64 << 20, "ample on the machines modelled");
}

/// The mode asked for; `auto` takes what the kernel of the profile could have run.
fn mode(m: &Machine) -> Option<Mode> {
    let knobs = m.knobs.borrow();
    match knobs.precursor.as_str() {
        "off" | "" | "plain" => None,
        // Kernels without MADV_POPULATE_WRITE get the cure of their time.
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

/// What an append into a page that is there and dirty already takes; `None` where the precursor has yet to take the file over.
pub fn append_ns(m: &Machine, device: DeviceId, inode: InodeId, bytes: u64) -> Option<u64> {
    let copy_ns = bytes * m.costs.copy_byte_ps / 1000;
    let mode = if m.precursor_used.get() { mode(m) } else { None };
    if mode.is_some() && !m.aheads.borrow().contains_key(&inode) {
        return None;
    }
    match mode {
        Some(Mode::Ring | Mode::Window) => Some(m.costs.store_ns + copy_ns),
        _ if m.device(device).journal.borrow().is_blocked() => None,
        _ => Some(m.costs.write_base_ns + m.device(device).file_system.handle_ns(&m.costs) + copy_ns),
    }
}

/// The file was appended to up to this position, without the kernel's doing.
pub fn appended(m: &Machine, inode: InodeId, position: u64) {
    if !m.precursor_used.get() {
        return;
    }
    if let Some(shared) = m.aheads.borrow().get(&inode) {
        let mut ahead = shared.borrow_mut();
        ahead.ledger.position = position;
        if ahead.mode != Mode::Ring {
            ahead.ledger.flushed = position;
        }
    }
}

fn warm(m: &Machine, inode: InodeId, offset: u64, bytes: u64) -> bool {
    let mm = m.mm.borrow();
    (offset / 4096..=(offset + bytes.max(1) - 1) / 4096).all(|page| mm.lookup(inode, page).is_some())
}

fn dirty(m: &Machine, inode: InodeId, offset: u64, bytes: u64) {
    for page in offset / 4096..=(offset + bytes.max(1) - 1) / 4096 {
        let found = m.mm.borrow().lookup(inode, page);
        if let Some((id, bit)) = found {
            m.mark_dirty(id, bit);
        }
    }
    m.mm.borrow_mut().inodes.get_mut(inode).size = offset + bytes;
}

/// The helper: asks the planner what to do and does it, for as long as the file is appended to.
async fn helper(m: Rc<Machine>, inode: InodeId, shared: Rc<RefCell<Ahead>>, node: usize) {
    let (mode, start) = {
        let ahead = shared.borrow();
        (ahead.mode, ahead.ledger.position)
    };
    let mut planner = Planner::new(Tuning::new(mode, AHEAD_BYTES_MAX.get(), PAGE));
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
                super::journal::touch(&m, m.place_of(inode), &mut task).await;
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
                writeback::write_pages(&m, &mut task, inode, span.len / 4096, Site::GetRequestWait).await;
                task.run(&m).await;
                shared.borrow_mut().ledger.written_back = span.end();
            }
            Step::Release(span) => shared.borrow_mut().ledger.released = span.end(),
            Step::Refresh(_) => m.clock.sleep_until(now + 100_000).await,
        }
    }
}

/// Pages with their buffer_heads, on the helper's time; preallocated blocks are unwritten, so nothing is read.
async fn bring_in(m: &Machine, task: &mut Task, inode: InodeId, from: u64, to: u64) {
    for page in from / 4096..to.div_ceil(4096) {
        let missing = m.mm.borrow().lookup(inode, page).is_none();
        if missing {
            // block_read_full_page makes the buffers.
            filemap_add::page(m, task, inode, page, Want::USER, true).await;
        }
        if page % WINDOW_PAGES == WINDOW_PAGES - 1 {
            task.run(m).await;
        }
    }
}
