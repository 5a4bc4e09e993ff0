//! Memory of processes other than the workloads: a large process that starts before the scenario on a machine full of
//! page cache (`model.process_memory`), and memory that others take during the run (`machine.grows` for a guest's
//! recorder, `machine.cgroup_grows` for a host's, in the workloads' memory cgroup).
//!
//! Models: their pages, allocated one by one on a CPU of their node, so that the profile and zone_reclaim_mode decide
//! where they come from: with mode 0 from both nodes in turn (each down to its low watermark, then kswapd), with mode 1
//! from the own node, whose page cache shrinks. Leaves out: swapping.

use crate::kernel::PAGE_BYTES;
use std::rc::Rc;

use crate::Machine;
use crate::constant::constants;
use crate::mm::alloc::{self, Want};
use crate::mm::anonymous;
use crate::mm::kswapd;
use crate::mm::slab::ListLock;
use crate::sched::site::Site;
use crate::sched::task::Task;
use flatwater_workload::scenario::{Growth, MachineSpec};

constants! {
    /// Period of other processes' work: a recorder samples.
    const OTHERS_PERIOD_NS: u64 = assumed(100_000_000, "the recorder's own period (crates/host/src/sampler)");
}

/// Allocates `bytes` on `node` and runs until no event is left; virtual time begins after that.
pub fn start(m: &Rc<Machine>, node: usize, bytes: u64) {
    let node = node.min(m.mm.borrow().nodes - 1);
    m.clock.spawn(take(m.clone(), node, bytes / PAGE_BYTES));
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
    // Not the CPU of the scenario's first thread on the node, because that CPU's lists would be full afterwards.
    let cpu = m.cpus.borrow().pick(Some(node), 5);
    let mut task = Task::new(node, cpu);
    task.bound_node = Some(node);
    task
}

/// Allocates pages and appends their zones to `held`.
async fn take_pages(m: &Machine, task: &mut Task, pages: u64, held: &mut Vec<u8>) {
    for _ in 0..pages {
        task.work(Site::Work, m.costs.fault_ns() + m.costs.alloc_page_ns);
        let Some(frame) = alloc::frame(m, task, Want::USER).await else { continue };
        m.mm.borrow_mut().zones[usize::from(frame)].pinned += 1;
        held.push(frame);
        if task.pending_ns() > m.costs.burst_ns {
            task.run(m).await;
            task.begin();
        }
    }
    task.run(m).await;
    task.begin();
}

/// Starts the memory and CPU use of other processes in the measured part.
pub fn start_others(m: &Rc<Machine>, machine: &MachineSpec) {
    let grows = &machine.grows;
    if machine.own_cpu_percent > 0 {
        m.clock.spawn(compute(m.clone(), u64::from(machine.own_cpu_percent)));
    }
    let nodes = m.mm.borrow().nodes;
    for node in (0..nodes).filter(|_| !grows.is_empty()) {
        let page = PAGE_BYTES;
        let on_node = |growth: &Growth| growth.node_bytes.get(node).map(|bytes| (growth.at.0, bytes / page));
        m.clock.spawn(grow(m.clone(), node, grows.iter().filter_map(on_node).collect()));
    }
}

/// Uses `percent` of one CPU's time in each period, on any free CPU.
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
    let mut held: Vec<u8> = Vec::new();
    for (at_ns, pages) in steps {
        m.clock.sleep_until(m.start_ns.get() + at_ns).await;
        task.begin();
        let more = pages.saturating_sub(held.len() as u64);
        take_pages(&m, &mut task, more, &mut held).await;
        let mut mm = m.mm.borrow_mut();
        while held.len() as u64 > pages {
            let Some(frame) = held.pop() else { break };
            mm.zones[usize::from(frame)].pinned -= 1;
            mm.give_frames(frame, task.cpu, 1);
        }
    }
}

/// Memory of the cgroup's processes other than the workloads' (`machine.cgroup_grows`): on a host the recorder performs
/// the workloads in the cgroup. Memory at time 0 is allocated before the set-up.
pub async fn grow_in_cgroup(m: Rc<Machine>, steps: Vec<Growth>) {
    let mut task = Task::new(0, m.cpus.borrow().pick(None, 0));
    task.in_cgroup = true;
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
            anonymous::give_back(&m, &mut task, step.bytes().div_ceil(PAGE_BYTES));
        }
        held = step.bytes();
        task.run(&m).await;
    }
}

/// Starts kswapd of every node.
pub fn start_kswapds(m: &Rc<Machine>) {
    let nodes = m.mm.borrow().nodes;
    for node in 0..nodes {
        let cpu = m.cpus.borrow().pick(Some(node), 2);
        m.clock.spawn(kswapd::kswapd(m.clone(), node, cpu));
    }
}
