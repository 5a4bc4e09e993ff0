//! A large process that starts on a machine whose memory is full of page cache, before the scenario begins.
//!
//! Models: its pages, taken one by one through the allocator on its own node's CPUs, so that the profile and
//! zone_reclaim_mode decide whose memory makes room: with mode 0 the two nodes in turn (each down to its low watermark,
//! then kswapd), with mode 1 its own node alone, whose page cache shrinks for it. Leaves out: swapping, its later life.

use std::rc::Rc;

use super::alloc::{self, Want};
use super::site::Site;
use super::task::Task;
use super::{Machine, kswapd};

/// Takes `bytes` on `node` and lets the machine come to rest; virtual time begins after that.
pub fn start(m: &Rc<Machine>, node: usize, bytes: u64) {
    let node = node.min(m.mm.borrow().nodes - 1);
    m.clock.spawn(take(m.clone(), node, bytes / m.profile.page_bytes));
    m.clock.drain();
    m.clock.rewind();
    m.cpus.borrow_mut().forget_usage();
    let mut mm = m.mm.borrow_mut();
    for cache in &mut mm.caches {
        cache.locks.iter_mut().for_each(|lock| lock.free_at_ns = 0);
    }
}

async fn take(m: Rc<Machine>, node: usize, pages: u64) {
    // Not the CPU of the scenario's first thread there, whose lists it would leave full.
    let cpu = m.cpus.borrow().pick(Some(node), 5);
    let mut task = Task::new(node, cpu);
    task.bound_node = Some(node);
    for _ in 0..pages {
        task.work(Site::Work, m.costs.minor_fault_ns + m.costs.alloc_page_ns);
        let zone = match alloc::frame_now(&m, &task, Want::USER) {
            Some(zone) => Some(zone),
            None => alloc::frame_slow(&m, &mut task, Want::USER).await,
        };
        let Some(zone) = zone else { continue };
        m.mm.borrow_mut().zones[usize::from(zone)].pinned += 1;
        if task.pending_ns() > m.costs.burst_ns {
            task.run(&m).await;
            task.begin();
        }
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
