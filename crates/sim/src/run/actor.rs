//! The actors of the workloads: each performs a stream of operations on the modelled kernel.
//!
//! Operations before `Measure on` are skipped unless `prepare` performs the set-up: their files are on the disk, and
//! not in memory, as after a reboot.

use crate::kernel::PAGE_BYTES;
use std::rc::Rc;

use crate::Machine;
use crate::fs::inode::{FileKey, InodeId, Place};
use crate::fs::namei;
use crate::fs::vfs;
use crate::mm::anonymous;
use crate::mm::mapped;
use crate::mm::slab::CacheKind;
use crate::run::precursor_steps;
use crate::run::prepare;
use crate::run::recorder::Ended;
use crate::sched::clock::TaskId;
use crate::sched::site::Site;
use crate::sched::task::Task;
use crate::sched::user_lock::{self, UserLock};
use crate::v22;
use flatwater_workload::{Actor, FileId, LockId, Mark, Op, Role};

/// State that the actors of one workload share.
#[derive(Default)]
pub struct Shared {
    /// Actors that wait to be spawned, by index, and the tasks that wait for their end.
    pub dormant: Vec<Option<(Actor, Task)>>,
    pub locks: Vec<(LockId, UserLock)>,
}

/// Running children of an actor.
#[derive(Default)]
pub struct Children {
    running: u32,
    waiting: Option<TaskId>,
}

/// An actor's identity.
#[derive(Clone)]
pub struct Who {
    pub workload: u32,
    pub actor: u32,
    pub name: Rc<str>,
    pub foreground: bool,
    pub start_ns: u64,
    pub end_ns: u64,
}

/// A thread and its unfinished call: dropping it at the end of the run records that call.
struct Running {
    m: Rc<Machine>,
    who: Who,
    task: Task,
    call: Option<Ended>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(mut call) = self.call.take() else { return };
        call.end_ns = self.m.clock.now();
        self.task.cut_off(call.start_ns, call.end_ns);
        // A run that panics has no recording.
        if let Ok(mut recorder) = self.m.recorder.try_borrow_mut() {
            recorder.still_under_way(&self.who, &call, &self.task);
        }
    }
}

/// Runs one actor to its end.
pub async fn run(
    m: Rc<Machine>,
    who: Who,
    mut actor: Actor,
    mut task: Task,
    parent: Option<Rc<std::cell::RefCell<Children>>>,
) {
    let own = Rc::new(std::cell::RefCell::new(Children::default()));
    let setup = m.skips_setup;
    let (mut measured, mut due): (bool, Option<u64>) = (true, None);
    let (who, mut first) = prepare::ahead(&m, who, &mut actor, &mut task).await;
    m.clock.sleep_until(who.start_ns).await;
    let pages = v22::enter(&m, &mut task).await;
    let mut running = Running { m: m.clone(), who, task, call: None };
    let Running { who, task, call, .. } = &mut running;
    loop {
        let now = m.clock.now();
        if now >= who.end_ns {
            break;
        }
        let Some(op) = first.take().or_else(|| actor.stream.next(now - who.start_ns)) else { break };
        match op {
            Op::Measure { on } => measured = on,
            // A modelled run ends when its duration is over.
            Op::KeepRunning { .. } => {}
            _ if !measured && setup => {
                skip(&m, who, op).await;
                continue;
            }
            Op::SleepUntil { at_ns } => {
                due = Some(who.start_ns + at_ns);
                m.nap(who.start_ns + at_ns).await;
                continue;
            }
            Op::Sleep { ns } => m.nap(now + ns).await,
            Op::Compute { ns } => {
                task.begin();
                task.work(Site::Work, m.scaled(ns));
                task.run(&m).await;
                m.cpus.borrow_mut().charge_user(task.cpu, m.scaled(ns));
            }
            Op::Mark { mark, value } => m.mark(who, mark, value),
            _ => {
                task.begin();
                *call = Some(Ended { op, start_ns: now, end_ns: now, due_ns: due.take(), bytes: 0, measured });
                let bytes = perform(&m, task, who, op, &own).await;
                if !task.run_now(&m) {
                    task.run(&m).await;
                }
                if let Some(begun) = call.take() {
                    let ended = Ended { end_ns: m.clock.now(), bytes, ..begun };
                    m.recorder.borrow_mut().ended(who, &ended, task);
                }
            }
        }
        if matches!(op, Op::Mark { .. } | Op::Unlock { .. }) {
            m.recorder.borrow_mut().observe_only(who, op, now, measured);
        }
    }
    v22::leave(&m, &pages);
    if let Some(parent) = parent {
        let mut parent = parent.borrow_mut();
        parent.running -= 1;
        if let Some(task) = parent.waiting.take() {
            m.clock.wake(task);
        }
    }
}

/// Notes an operation of a skipped set-up.
async fn skip(m: &Machine, who: &Who, op: Op) {
    match op {
        Op::Sleep { ns } => m.clock.sleep_until(m.clock.now() + ns).await,
        // Mapped from the start: its inode is in use, without a page in memory.
        Op::Map { file, bytes } => m.hold_mapped((who.workload, file.0), bytes),
        Op::Create { file } => m.name_made((who.workload, file.0)),
        Op::Allocate { file, offset_bytes, bytes } => {
            let inodes = &mut m.mm.borrow_mut().inodes;
            inodes.preallocated((who.workload, file.0), offset_bytes, offset_bytes + bytes);
            inodes.made((who.workload, file.0), offset_bytes + bytes);
        }
        Op::Write { file, offset_bytes, bytes } => {
            m.mm.borrow_mut().inodes.made((who.workload, file.0), offset_bytes + bytes);
        }
        // Without effect on the measured part: names, the thread's memory, marks and waits.
        Op::Open { .. }
        | Op::Close { .. }
        | Op::Append { .. }
        | Op::Read { .. }
        | Op::ReadKept { .. }
        | Op::DropKept
        | Op::TouchOwn { .. }
        | Op::Touch { .. }
        | Op::Unmap { .. }
        | Op::Fsync { .. }
        | Op::Fdatasync { .. }
        | Op::Syncfs
        | Op::Truncate { .. }
        | Op::Rename { .. }
        | Op::Unlink { .. }
        | Op::Stat { .. }
        | Op::Mkdir { .. }
        | Op::Rmdir { .. }
        | Op::List { .. }
        | Op::SleepUntil { .. }
        | Op::Compute { .. }
        | Op::Lock { .. }
        | Op::Unlock { .. }
        | Op::Spawn { .. }
        | Op::WaitSpawned
        | Op::Measure { .. }
        | Op::KeepRunning { .. }
        | Op::Mark { .. } => {}
    }
}

impl Machine {
    /// clock_nanosleep().
    pub async fn nap(&self, until_ns: u64) {
        self.clock.sleep_until(until_ns).await;
    }

    fn hold_mapped(&self, key: FileKey, bytes: u64) {
        let mut mm = self.mm.borrow_mut();
        let zone = mm.lists_normal[0][0];
        // If memory is full, the file's first user looks it up.
        let Some(object) = crate::machine::build::add_object(&mut mm, CacheKind::Inode, zone) else { return };
        let Some(dentry) = crate::machine::build::add_object(&mut mm, CacheKind::Dentry, zone) else {
            return mm.free_object(CacheKind::Inode, object, 0);
        };
        let id = mm.inodes.add(key, object, false);
        let inode = mm.inodes.get_mut(id);
        (inode.size, inode.mapped, inode.opens) = (bytes, true, 1);
        (inode.dentry, inode.pinned_dentry, inode.referenced) = (dentry, true, true);
        let pages = bytes / PAGE_BYTES * self.inputs.mapped_percent / 100;
        crate::machine::build::warm(&mut mm, id, pages, key.1 as usize);
    }

    fn mark(&self, who: &Who, mark: Mark, value: u64) {
        if matches!(mark, Mark::RunBegin | Mark::RunEnd) {
            self.recorder.borrow_mut().event(self.clock.now(), format!("{} {mark:?} {value}", who.name));
        }
    }
}

/// Performs one operation; returns the bytes it moved.
pub async fn perform(
    m: &Rc<Machine>,
    task: &mut Task,
    who: &Who,
    op: Op,
    own: &Rc<std::cell::RefCell<Children>>,
) -> u64 {
    let key = |file: FileId| -> FileKey { (who.workload, file.0) };
    let of_actors = matches!(op, Op::Spawn { .. } | Op::WaitSpawned | Op::Lock { .. } | Op::Unlock { .. });
    if m.old.is_some() && !of_actors {
        return v22::perform(m, task, who, op).await;
    }
    match op {
        Op::Append { file, bytes } => {
            let inode = match still_held(m, task, key(file)) {
                Some(id) => id,
                None => held(m, task, key(file), false).await,
            };
            let offset = m.mm.borrow().inodes.get(inode).size;
            if m.precursor_used.get() && precursor_steps::append(m, task, inode, offset, bytes).await {
                return bytes;
            }
            if !m.append_in_place(task, inode, offset, bytes) {
                vfs::write(m, task, inode, offset, bytes).await;
            }
            return bytes;
        }
        Op::Write { file, offset_bytes, bytes } => {
            let inode = held(m, task, key(file), false).await;
            vfs::write(m, task, inode, offset_bytes, bytes).await;
            return bytes;
        }
        Op::Read { file, offset_bytes, bytes } => {
            let inode = held(m, task, key(file), false).await;
            vfs::read(m, task, inode, offset_bytes, bytes).await;
            return bytes;
        }
        Op::ReadKept { file, offset_bytes, bytes } => {
            let inode = held(m, task, key(file), false).await;
            anonymous::read_kept(m, task, inode, offset_bytes, bytes).await;
            return bytes;
        }
        Op::TouchOwn { offset_bytes, bytes, write } => {
            anonymous::touch(m, task, offset_bytes, bytes, write).await;
            return bytes;
        }
        Op::DropKept => anonymous::drop_own(m, task),
        Op::Touch { file, offset_bytes, bytes, write } => {
            let inode = held(m, task, key(file), false).await;
            mapped::touch_mapped(m, task, inode, offset_bytes, bytes, write).await;
            return bytes;
        }
        Op::Syncfs => crate::writeback::sync::sync_all(m, task).await,
        Op::Lock { lock, exclusive } => user_lock::lock(m, task, who, lock, exclusive).await,
        Op::Unlock { lock } => user_lock::unlock(m, who, lock),
        Op::Spawn { actor } => spawn(m, task, who, actor, own),
        Op::WaitSpawned => {
            while own.borrow().running > 0 {
                own.borrow_mut().waiting = Some(m.clock.current());
                m.clock.park(None).await;
            }
        }
        other => names(m, task, who, other).await,
    }
    0
}

/// Operations on names and whole files.
async fn names(m: &Rc<Machine>, task: &mut Task, who: &Who, op: Op) {
    let key = |file: FileId| -> FileKey { (who.workload, file.0) };
    let more_ns = m.costs.of_name(&op);
    if more_ns > 0 {
        task.work(Site::Work, more_ns);
    }
    match op {
        Op::Create { file } => {
            let inode = held(m, task, key(file), true).await;
            m.mm.borrow_mut().inodes.get_mut(inode).size = 0;
            m.mm.borrow_mut().inodes.convert(inode, 0, u64::MAX);
            crate::fs::journal::touch(m, m.place_of(inode), task).await;
            crate::fs::journal::note_change(m, inode, true);
        }
        Op::Open { file, .. } => {
            held(m, task, key(file), false).await;
        }
        Op::Close { file } => close(m, task, key(file)),
        Op::Map { file, bytes } => {
            let inode = held(m, task, key(file), false).await;
            let mut mm = m.mm.borrow_mut();
            let inode = mm.inodes.get_mut(inode);
            inode.size = inode.size.max(bytes);
            inode.mapped = true;
        }
        Op::Unmap { file } => {
            let found = m.mm.borrow().inodes.find(key(file));
            if let Some(inode) = found {
                mapped::unmap(m, task, inode);
                m.mm.borrow_mut().inodes.get_mut(inode).mapped = false;
                close(m, task, key(file));
            }
        }
        Op::Fsync { file } | Op::Fdatasync { file } => {
            let inode = held(m, task, key(file), false).await;
            vfs::sync(m, task, inode, matches!(op, Op::Fdatasync { .. })).await;
        }
        Op::Truncate { file, bytes } => truncate(m, task, key(file), bytes).await,
        Op::Allocate { file, offset_bytes, bytes } => allocate(m, task, key(file), (offset_bytes, bytes)).await,
        Op::Rename { from, to } => rename(m, task, key(from), key(to)).await,
        Op::Unlink { file } => unlink(m, task, key(file)).await,
        Op::Stat { file } => {
            vfs::lookup(m, task, key(file), false).await;
        }
        // Both change the block that holds the directory's inode.
        Op::Mkdir { dir } | Op::Rmdir { dir } => {
            vfs::metadata(m, task, namei::directory_key(who.workload, dir), true).await;
        }
        Op::List { dir } => namei::list(m, task, namei::directory_key(who.workload, dir)).await,
        // `perform` and the actor's loop perform these.
        Op::Append { .. }
        | Op::Write { .. }
        | Op::Read { .. }
        | Op::ReadKept { .. }
        | Op::DropKept
        | Op::TouchOwn { .. }
        | Op::Touch { .. }
        | Op::Syncfs
        | Op::SleepUntil { .. }
        | Op::Sleep { .. }
        | Op::Compute { .. }
        | Op::Lock { .. }
        | Op::Unlock { .. }
        | Op::Spawn { .. }
        | Op::WaitSpawned
        | Op::Measure { .. }
        | Op::KeepRunning { .. }
        | Op::Mark { .. } => unreachable!("{op:?} is not an operation on names"),
    }
}

async fn truncate(m: &Machine, task: &mut Task, key: FileKey, bytes: u64) {
    let inode = held(m, task, key, false).await;
    let mut mm = m.mm.borrow_mut();
    let freed = mm.invalidate(inode, bytes.div_ceil(PAGE_BYTES), true, task.cpu);
    mm.inodes.get_mut(inode).size = bytes;
    task.work(Site::Work, freed * m.costs.free_page_ns);
}

async fn allocate(m: &Machine, task: &mut Task, key: FileKey, (offset_bytes, bytes): (u64, u64)) {
    let inode = held(m, task, key, false).await;
    crate::fs::journal::touch(m, m.place_of(inode), task).await;
    let mut mm = m.mm.borrow_mut();
    let size = mm.inodes.get(inode).size;
    mm.inodes.preallocated(key, offset_bytes.max(size), offset_bytes + bytes);
    mm.inodes.get_mut(inode).size = size.max(offset_bytes + bytes);
}

async fn rename(m: &Machine, task: &mut Task, from: FileKey, to: FileKey) {
    let above = namei::walk(m, task, to).await;
    let inode = vfs::lookup(m, task, from, false).await;
    {
        let mut mm = m.mm.borrow_mut();
        mm.inodes.rename(inode, to);
        mm.move_dentry(inode, above);
    }
    namei::change(m, task, from, false).await;
    namei::change(m, task, to, true).await;
    crate::fs::journal::touch(m, m.place_of(inode), task).await;
}

/// Most threads use one file: no search by name for it.
#[inline]
fn still_held(m: &Machine, task: &Task, key: FileKey) -> Option<InodeId> {
    task.last_file.filter(|&id| m.mm.borrow().inodes.is_open(id, key))
}

/// Opens the file, which cannot be pruned until it is closed.
async fn held(m: &Machine, task: &mut Task, key: FileKey, create: bool) -> InodeId {
    if let Some(id) = still_held(m, task, key) {
        return id;
    }
    let id = find_open(m, task, key, create).await;
    task.last_file = Some(id);
    id
}

async fn find_open(m: &Machine, task: &mut Task, key: FileKey, create: bool) -> InodeId {
    let found = m.mm.borrow().inodes.find(key);
    if let Some(id) = found.filter(|&id| m.mm.borrow().inodes.get(id).opens > 0) {
        return id;
    }
    let id = vfs::lookup(m, task, key, create).await;
    let mut mm = m.mm.borrow_mut();
    let had_dentry = mm.inodes.get(id).place == Place::Dentry;
    mm.inodes.get_mut(id).opens = 1;
    // Its dentry stays on the list while it is used, until the shrinker removes it.
    if !had_dentry {
        mm.inodes.put(id, Place::Held);
    }
    id
}

fn close(m: &Machine, task: &mut Task, key: FileKey) {
    task.work(Site::Work, m.costs.lookup_ns / 2);
    let mut mm = m.mm.borrow_mut();
    let Some(id) = mm.inodes.find(key) else { return };
    let inode = mm.inodes.get_mut(id);
    if inode.opens == 0 || inode.mapped {
        return;
    }
    inode.opens = 0;
    if inode.place == Place::Dentry {
        return;
    }
    mm.let_inode_go(id);
}

async fn unlink(m: &Machine, task: &mut Task, key: FileKey) {
    let id = vfs::lookup(m, task, key, false).await;
    crate::fs::journal::touch(m, m.place_of(id), task).await;
    namei::change(m, task, key, false).await;
    let mut mm = m.mm.borrow_mut();
    // The inode may have been pruned while the task waited.
    if mm.inodes.find(key) != Some(id) {
        return;
    }
    if m.profile.leaks_journalled_pages {
        mm.leak_written(id, task.cpu);
    }
    let freed = mm.invalidate(id, 0, true, task.cpu);
    task.work(Site::Work, freed * m.costs.free_page_ns);
    let inode = mm.inodes.get_mut(id);
    inode.dead = true;
    let pages = inode.pages;
    if std::mem::take(&mut inode.pinned_dentry) {
        mm.free_dentry(id, task.cpu);
    }
    if pages == 0 {
        mm.free_inode(id, task.cpu);
    } else {
        if mm.inodes.get(id).place == Place::Dentry {
            mm.free_dentry(id, task.cpu);
        }
        mm.inodes.forget_name(id);
        mm.inodes.put(id, Place::Held);
    }
}

fn spawn(m: &Rc<Machine>, task: &mut Task, who: &Who, actor: usize, own: &Rc<std::cell::RefCell<Children>>) {
    task.work(Site::Work, m.costs.fork_ns);
    let taken = m.shared[who.workload as usize].borrow_mut().dormant.get_mut(actor).and_then(Option::take);
    let Some((actor_made, child_task)) = taken else { return };
    own.borrow_mut().running += 1;
    let child = Who {
        actor: actor as u32,
        name: actor_made.name.as_str().into(),
        foreground: actor_made.role == Role::Foreground,
        start_ns: who.start_ns,
        ..who.clone()
    };
    m.clock.spawn(run(m.clone(), child, actor_made, child_task, Some(own.clone())));
}
