//! Memory of processes that perform nothing of the scenario: a large one that starts on a machine whose memory is full of page
//! cache, before the scenario begins, and what others are known to take while it runs (`machine.grows`: a guest's recorder;
//! `machine.cgroup_grows`: a host's, in the workloads' memory cgroup).
//!
//! Models: their pages, taken one by one through the allocator on their own node's CPUs, so that the profile and
//! zone_reclaim_mode decide whose memory makes room: with mode 0 the two nodes in turn (each down to its low watermark,
//! then kswapd), with mode 1 the own node alone, whose page cache shrinks for it. Leaves out: swapping.

use std::rc::Rc;

use super::alloc::{self, Want};
use super::site::Site;
use super::slab::ListLock;
use super::task::Task;
use super::v6::buddy::{Frame, Kind};
use super::{Machine, anonymous, kswapd};
use crate::constant::constants;
use flatwater_workload::scenario::{Growth, MachineSpec};

constants! {
    /// How often other processes have something to do: a recorder samples.
    const OTHERS_PERIOD_NS: u64 = assumed(100_000_000, "the recorder's own period (crates/host/src/sampler)");
}

/// Takes `bytes` on `node` and lets the machine come to rest; virtual time begins after that.
pub fn start(m: &Rc<Machine>, node: usize, bytes: u64) {
    let node = node.min(m.mm.borrow().nodes - 1);
    m.clock.spawn(take(m.clone(), node, bytes / m.profile.page_bytes));
    m.clock.drain();
    m.clock.rewind();
    m.cpus.borrow_mut().forget_usage();
    let mut mm = m.mm.borrow_mut();
    for cache in &mut mm.caches {
        cache.locks.fill(ListLock::default());
    }
}

async fn take(m: Rc<Machine>, node: usize, pages: u64) {
    let mut task = task_on(&m, node);
    take_pages(&m, &mut task, pages, &mut Vec::new()).await;
}

fn task_on(m: &Machine, node: usize) -> Task {
    // Not the CPU of the scenario's first thread there, whose lists it would leave full.
    let cpu = m.cpus.borrow().pick(Some(node), 5);
    let mut task = Task::new(node, cpu);
    task.bound_node = Some(node);
    task
}

/// Takes pages and notes each.
async fn take_pages(m: &Machine, task: &mut Task, pages: u64, held: &mut Vec<Frame>) {
    for _ in 0..pages {
        task.work(Site::Work, m.costs.fault_ns() + m.costs.alloc_page_ns);
        let frame = match alloc::frame_now(m, task, Want::USER) {
            Some(frame) => Some(frame),
            None => alloc::frame_slow(m, task, Want::USER).await,
        };
        let Some(frame) = frame else { continue };
        m.mm.borrow_mut().zones[usize::from(frame.zone)].pinned += 1;
        held.push(frame);
        if task.pending_ns() > m.costs.burst_ns {
            task.run(m).await;
            task.begin();
        }
    }
    task.run(m).await;
    task.begin();
}

/// From the begin of the measured part on: what the machine's other processes take and give back, and their CPU time.
pub fn start_others(m: &Rc<Machine>, machine: &MachineSpec) {
    let grows = &machine.grows;
    if machine.own_cpu_percent > 0 {
        m.clock.spawn(compute(m.clone(), u64::from(machine.own_cpu_percent)));
    }
    let nodes = m.mm.borrow().nodes;
    for node in (0..nodes).filter(|_| !grows.is_empty()) {
        let page = m.profile.page_bytes;
        let on_node = |growth: &Growth| growth.node_bytes.get(node).map(|bytes| (growth.at.0, bytes / page));
        m.clock.spawn(grow(m.clone(), node, grows.iter().filter_map(on_node).collect()));
    }
}

/// So much of one CPU's time in each period, on whichever CPU is free.
async fn compute(m: Rc<Machine>, percent: u64) {
    let mut task = Task::new(0, m.cpus.borrow().pick(None, 0));
    loop {
        let next_ns = m.clock.now() + OTHERS_PERIOD_NS.get();
        task.begin();
        task.work(Site::Work, OTHERS_PERIOD_NS.get() * percent / 100);
        task.run(&m).await;
        m.clock.sleep_until(next_ns).await;
    }
}

async fn grow(m: Rc<Machine>, node: usize, steps: Vec<(u64, u64)>) {
    let mut task = task_on(&m, node);
    let mut held: Vec<Frame> = Vec::new();
    for (at_ns, pages) in steps {
        m.clock.sleep_until(m.start_ns.get() + at_ns).await;
        task.begin();
        let more = pages.saturating_sub(held.len() as u64);
        take_pages(&m, &mut task, more, &mut held).await;
        let mut mm = m.mm.borrow_mut();
        while held.len() as u64 > pages {
            let Some(frame) = held.pop() else { break };
            mm.zones[usize::from(frame.zone)].pinned -= 1;
            mm.give_frame(frame, task.cpu, 0, Kind::Movable);
        }
    }
}

/// Memory of the cgroup's processes that is none of the workloads' (`machine.cgroup_grows`): on a host the recorder performs the workloads
/// itself, and what it holds they have not. What it has from the begin is there before the set-up.
pub async fn grow_in_cgroup(m: Rc<Machine>, steps: Vec<Growth>) {
    let mut task = Task::new(0, m.cpus.borrow().pick(None, 0));
    task.in_cgroup = true;
    let page_bytes = m.profile.page_bytes;
    let (before, later): (Vec<_>, Vec<_>) = steps.into_iter().partition(|step| step.at.0 == 0);
    let mut held = before.iter().map(Growth::bytes).max().unwrap_or(0);
    anonymous::touch(&m, &mut task, 0, held, true).await;
    task.run(&m).await;
    if m.prepares && m.start_ns.get() == 0 {
        m.ready.borrow_mut().join(m.clock.current());
        m.clock.park(None).await;
    }
    for step in later {
        m.clock.sleep_until(m.start_ns.get() + step.at.0).await;
        task.begin();
        if step.bytes() > held {
            anonymous::touch(&m, &mut task, held, step.bytes() - held, true).await;
        } else {
            anonymous::give_back(&m, &mut task, step.bytes().div_ceil(page_bytes));
        }
        held = step.bytes();
        task.run(&m).await;
    }
}

/// kswapd of every node.
pub fn start_kswapds(m: &Rc<Machine>) {
    let nodes = m.mm.borrow().nodes;
    for node in 0..nodes {
        let cpu = m.cpus.borrow().pick(Some(node), 2);
        m.clock.spawn(kswapd::kswapd(m.clone(), node, cpu));
    }
}
