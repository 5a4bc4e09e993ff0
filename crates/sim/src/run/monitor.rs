//! A monitor that reads /proc/slabinfo, and the scenario's timeline.
//!
//! The monitor is a hypothesis (a reader once a second); the case study does not mention one. Models: `s_show` of
//! mm/slab.c, 2.6.32, which takes each node's list lock with interrupts off and walks every slab of the lists, in a
//! time proportional to the number of slabs.

use std::rc::Rc;

use crate::Machine;
use crate::mm::slab::CACHES;
use crate::sched::task::Task;
use flatwater_recording::Event;
use flatwater_recording::EventKind;
use flatwater_workload::scenario::Change;

pub async fn slabinfo_reader(m: Rc<Machine>) {
    let cpu = m.cpus.borrow().pick(Some(0), 3);
    let mut task = Task::new(0, cpu);
    loop {
        let interval = m.knobs.borrow().slabinfo_interval_ns;
        if interval == 0 {
            m.clock.sleep_until(m.clock.now() + 1_000_000_000).await;
            continue;
        }
        // A few ms of slack, as with sleep 1 in a loop.
        let slack = (m.random() * 4e6) as u64;
        m.clock.sleep_until(m.clock.now() + interval + slack).await;
        task.begin();
        for kind in CACHES {
            let nodes = m.mm.borrow().nodes;
            for node in 0..nodes {
                let hold_ns = hold(&m, kind, node);
                task.work(crate::sched::site::Site::Work, hold_ns);
                task.run(&m).await;
            }
        }
    }
}

/// Takes the list lock of this cache and node for as long as the walk lasts.
fn hold(m: &Machine, kind: crate::mm::slab::CacheKind, node: usize) -> u64 {
    let mut mm = m.mm.borrow_mut();
    let slabs: u64 = (0..mm.zones.len())
        .filter(|&zone| mm.zones[zone].node == node)
        .map(|zone| mm.cache(kind).lists[zone].slabs)
        .sum();
    // SLUB's slabinfo walks only partial slabs, which are few.
    let walked = if !m.profile.is_6() { slabs } else { 0 };
    let hold_ns = walked * m.costs.slab_walk_ns;
    let now = m.clock.now();
    mm.cache_mut(kind).locks[node].queue_monitor(now, hold_ns);
    hold_ns
}

/// Applies the scenario's changes of settings at their times.
pub async fn timeline(m: Rc<Machine>, changes: Vec<Change>) {
    for change in changes {
        m.clock.sleep_until(change.at.0).await;
        let before = m.observed();
        m.apply(&change.set);
        for (key, value) in change.set.iter() {
            let (key, old, new) = (key.to_owned(), before.get(key).map(str::to_owned), value.to_owned());
            let event = Event::new(m.clock.now(), EventKind::SetupChange { key, old, new });
            m.recorder.borrow_mut().events.push(event);
        }
    }
}
