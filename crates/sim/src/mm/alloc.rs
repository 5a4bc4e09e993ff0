//! The page allocator: the fast path with zone reclaim, the slow path with kswapd, direct reclaim and waiting.
//!
//! Models: `get_page_from_freelist` and `__alloc_pages_slowpath` of 2.6.32 for single pages, the refusal of
//! GFP_THISNODE requests, and the slab allocator's slow paths (`cache_alloc_refill`, `cache_grow`, `fallback_alloc`).
//! Leaves out: higher orders but for slabs, compaction, the zonelist cache, dirty limits by node, out-of-memory kills.
//! A request that cannot be satisfied retries until reclaim succeeds; the swarm (tests/swarm.rs) fails a run in which
//! one never does.

use crate::Machine;
use crate::kernel::SlabFallback;
use crate::mm::memcontrol;
use crate::mm::memory::Mm;
use crate::mm::reclaim;
use crate::mm::slab::{CacheKind, Object};
use crate::mm::zone::ZoneKind;
use crate::sched::site::Site;
use crate::sched::task::Task;

/// Flags of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    pub kind: ZoneKind,
    /// GFP_THISNODE: this node or nothing, without reclaim.
    pub this_node: bool,
    /// May enter the file system during reclaim (__GFP_FS).
    pub fs: bool,
}

impl Want {
    pub const USER: Want = Want { kind: ZoneKind::HighMem, this_node: false, fs: true };
    /// For reclaimable slabs (SLAB_RECLAIM_ACCOUNT).
    pub const KERNEL: Want = Want { kind: ZoneKind::Normal, ..Want::USER };
    pub const NOFS: Want = Want { fs: false, ..Want::KERNEL };
    /// A page of a block device (fs/buffer.c: grow_dev_page, with __GFP_MOVABLE).
    pub const DEVICE: Want = Want::NOFS;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Low,
    Min,
    None,
}

/// Longest zonelist that is used: a zone of each node, and two more of the first.
const ZONES_MAX: usize = 66;

/// The zones of the zonelist that a request may use, in order.
fn zones_for(m: &Machine, node: usize, want: Want) -> ([u8; ZONES_MAX], usize) {
    let mm = m.mm.borrow();
    let list = if want.kind == ZoneKind::HighMem { &mm.lists_any[node] } else { &mm.lists_normal[node] };
    let mut zones = [0; ZONES_MAX];
    let mut count = 0;
    for &zone in list {
        if count < zones.len() && (!want.this_node || mm.zones[usize::from(zone)].node == node) {
            zones[count] = zone;
            count += 1;
        }
    }
    (zones, count)
}

/// Takes a frame from the first zone above its watermark.
fn try_zones(m: &Machine, task: &Task, zones: &[u8], want: Want, mark: Mark) -> Option<u8> {
    let mut mm = m.mm.borrow_mut();
    for &zone in zones {
        let slot = &mut mm.zones[usize::from(zone)];
        let limit = match mark {
            Mark::Low => slot.low,
            Mark::Min => slot.min,
            Mark::None => 0,
        };
        if (mark == Mark::None || slot.admits(limit, want.kind))
            && let Some(frame) = mm.take_frames(zone, task.cpu, 0)
        {
            return Some(frame);
        }
    }
    None
}

/// Allocates one page; returns its zone. `None` only for `this_node` requests.
pub async fn page(m: &Machine, task: &mut Task, want: Want) -> Option<u8> {
    task.work(Site::Work, m.costs.alloc_page_ns);
    frame(m, task, want).await
}

/// As `page`, without the time of a call: for further pages of a large folio.
pub async fn frame(m: &Machine, task: &mut Task, want: Want) -> Option<u8> {
    match frame_now(m, task, want) {
        Some(frame) => Some(frame),
        None => frame_slow(m, task, want).await,
    }
}

/// The common case, which cannot sleep: the first zone above its low watermark, unless a zone before it would be
/// reclaimed.
#[inline]
fn frame_now(m: &Machine, task: &Task, want: Want) -> Option<u8> {
    let most = if reclaims_zones(m, task) { 1 } else { ZONES_MAX };
    let frame = m.mm.borrow_mut().low_choice((task.node, task.cpu), want, most)?;
    Some(counted(m, task.node, frame))
}

/// The slow part of `frame`, after `frame_now` found no zone.
async fn frame_slow(m: &Machine, task: &mut Task, want: Want) -> Option<u8> {
    let (node, reclaims) = (task.node, reclaims_zones(m, task));
    if !reclaims && refuses(m, want) {
        return None;
    }
    let (zones, count) = zones_for(m, node, want);
    let got = if reclaims { freelist_low(m, task, &zones[..count], want).await } else { None };
    let got = match got {
        Some(frame) => Some(frame),
        None => slow_path(m, task, &zones[..count], want).await,
    };
    got.map(|frame| counted(m, node, frame))
}

impl Mm {
    /// A frame of the first zone above its low watermark, among the first `most` zones.
    #[inline]
    fn low_choice(&mut self, (node, cpu): (usize, u16), want: Want, most: usize) -> Option<u8> {
        for place in 0..most {
            let list = if want.kind == ZoneKind::HighMem { &self.lists_any } else { &self.lists_normal };
            let zone = *list.get(node)?.get(place)?;
            let slot = &self.zones[usize::from(zone)];
            let of_node = slot.node == node;
            let allowed = !want.this_node || of_node;
            let slot = &mut self.zones[usize::from(zone)];
            let is_above = allowed && slot.admits(slot.low, want.kind);
            if is_above && let Some(frame) = self.take_frames(zone, cpu, 0) {
                return Some(frame);
            }
        }
        None
    }

    fn count_numa(&mut self, node: usize, zone: u8) {
        let got = self.zones[usize::from(zone)].node;
        if got == node {
            self.events.numa_hit[got] += 1;
        } else {
            self.events.numa_miss[got] += 1;
            self.events.numa_foreign[node] += 1;
        }
    }

    /// The first zone that can spare `frames` frames (__zone_watermark_ok).
    fn zone_for_many(&mut self, zones: &[u8], (kind, mark): (ZoneKind, Mark), frames: u64) -> Option<u8> {
        zones.iter().copied().find(|&zone| {
            let slot = &mut self.zones[usize::from(zone)];
            let limit = if mark == Mark::Low { slot.low } else { slot.min };
            slot.admits(limit + frames - 1, kind)
        })
    }
}

/// mm/page_alloc.c: __alloc_pages_slowpath, 2.6.32: "GFP_THISNODE ... should not cause reclaim": goto nopage.
fn refuses(m: &Machine, want: Want) -> bool {
    want.this_node && m.ablations.thisnode_refusal && m.profile.slab_fallback == SlabFallback::Refuses
}

/// Whether the allocation reclaims a zone below its low watermark at once.
fn reclaims_zones(m: &Machine, task: &Task) -> bool {
    m.knobs.borrow().zone_reclaim_mode != 0 && m.ablations.zone_reclaim && !task.memalloc
}

fn counted(m: &Machine, node: usize, zone: u8) -> u8 {
    m.mm.borrow_mut().count_numa(node, zone);
    zone
}

/// mm/page_alloc.c: get_page_from_freelist, 2.6.32: with zone_reclaim_mode a zone below its low watermark is reclaimed
/// at once, without it the zone is skipped.
async fn freelist_low(m: &Machine, task: &mut Task, zones: &[u8], want: Want) -> Option<u8> {
    for place in 0..zones.len() {
        let zone = zones[place];
        if let Some(frame) = try_zones(m, task, &zones[place..=place], want, Mark::Low) {
            return Some(frame);
        }
        // The mode may have changed while the zone before was reclaimed.
        let mode = m.knobs.borrow().zone_reclaim_mode;
        if mode == 0 {
            continue;
        }
        let enough = reclaim::zone_reclaim(m, task, zone, mode, want.fs).await;
        if enough && let Some(frame) = try_zones(m, task, &zones[place..=place], want, Mark::Low) {
            return Some(frame);
        }
    }
    None
}

async fn slow_path(m: &Machine, task: &mut Task, zones: &[u8], want: Want) -> Option<u8> {
    if refuses(m, want) {
        return None;
    }
    m.wake_kswapd(zones, want.kind);
    if let Some(frame) = try_zones(m, task, zones, want, Mark::Min) {
        return Some(frame);
    }
    if want.this_node {
        return None;
    }
    if task.memalloc {
        return try_zones(m, task, zones, want, Mark::None);
    }
    loop {
        m.mm.borrow_mut().events.allocstall += 1;
        let freed = reclaim::direct(m, task, zones, want).await;
        if let Some(frame) = try_zones(m, task, zones, want, Mark::Min) {
            return Some(frame);
        }
        // mm/page_alloc.c: __alloc_pages_direct_reclaim, 6.8: freed pages may be on the CPUs' lists, which are long
        // from 6.7 on.
        if freed > 0 && m.profile.pcp_auto_tuning {
            m.mm.borrow_mut().drain_lists();
            if let Some(frame) = try_zones(m, task, zones, want, Mark::Min) {
                return Some(frame);
            }
        }
        if freed == 0 {
            m.congestion_wait(task, m.profile.jiffy_ns() * m.profile.hz.get() / 50).await;
        }
        m.wake_kswapd(zones, want.kind);
    }
}

/// Waits for the list lock of a node and holds it for `hold_ns`.
#[inline]
async fn lock_list(m: &Machine, task: &mut Task, kind: CacheKind, node: usize, site: Site, hold_ns: u64) {
    let now_ns = m.clock.now() + task.pending_ns();
    let waits = m.mm.borrow_mut().cache_mut(kind).locks[node].queue(now_ns, hold_ns);
    if let Some((free_at_ns, holder)) = waits {
        // A spinning waiter keeps its CPU busy; only the length matters to its call.
        task.wait_until(m, free_at_ns, site, holder).await;
    }
    task.work(Site::SlabGrow(kind), hold_ns);
}

/// Allocates one object: from the CPU's array, the node's slabs, a new slab, or another node.
pub async fn object(m: &Machine, task: &mut Task, kind: CacheKind, want: Want) -> Object {
    match object_now(m, task, kind) {
        Some(object) => object,
        None => object_slow(m, task, kind, want).await,
    }
}

/// The common case, which cannot sleep: an object of the CPU's array, not charged to a cgroup. Without side effects if
/// the array is empty.
#[inline]
fn object_now(m: &Machine, task: &mut Task, kind: CacheKind) -> Option<Object> {
    if task.in_cgroup {
        return None;
    }
    let ready = m.mm.borrow_mut().cache_mut(kind).take_ready(usize::from(task.cpu))?;
    task.work(Site::Work, m.costs.slab_object_ns);
    Some(ready)
}

/// The slow part of `object`, after `object_now` found none.
async fn object_slow(m: &Machine, task: &mut Task, kind: CacheKind, want: Want) -> Object {
    task.work(Site::Work, m.costs.slab_object_ns);
    if task.in_cgroup {
        let bytes = m.mm.borrow().cache(kind).shape.bytes;
        memcontrol::charge_object(m, task, bytes).await;
        let ready = m.mm.borrow_mut().cache_mut(kind).take_ready(usize::from(task.cpu));
        if let Some(object) = ready {
            return object;
        }
    }
    // mm/slub.c: new_slab, 6.1: without a requested node, a slab of any node is used.
    if m.profile.is_6() {
        return slub_object(m, task, kind, want).await;
    }
    // mm/slab.c: cache_alloc_refill, 2.6.32: the list lock is taken before it is known whether a slab must be grown. A
    // task that waited for it may be on another node by now (`retry:` asks numa_node_id() again).
    loop {
        let node = task.node;
        let hold_ns = m.costs.slab_step_ns * m.mm.borrow().cache(kind).batch;
        lock_list(m, task, kind, node, Site::SlabListLock(kind), hold_ns).await;
        if let Some(object) = refill(m, task.cpu, kind, task.node) {
            return object;
        }
        if !cache_grow(m, task, kind, want).await {
            break;
        }
    }
    // mm/slab.c: __do_cache_alloc asks ____cache_alloc_node for the same node, which takes the same lock again.
    loop {
        let node = task.node;
        lock_list(m, task, kind, node, Site::SlabNodeLock(kind), m.costs.slab_step_ns).await;
        if let Some(object) = take_one_of(m, kind, task.node) {
            return object;
        }
        if !cache_grow(m, task, kind, want).await {
            break;
        }
    }
    fallback(m, task, kind, want).await
}

/// mm/slab.c: cache_grow, 2.6.32: a new slab of this node only; false if that failed.
async fn cache_grow(m: &Machine, task: &mut Task, kind: CacheKind, want: Want) -> bool {
    let this_node = m.mm.borrow().nodes > 1;
    let want = Want { this_node, ..want };
    task.work(Site::Work, m.costs.alloc_page_ns);
    let Some(frame) = frame(m, task, want).await else { return false };
    task.work(Site::SlabGrow(kind), m.costs.cache_grow_ns);
    m.mm.borrow_mut().add_slab(kind, frame, true);
    true
}

/// mm/slub.c: ___slab_alloc, 6.1: a partial slab of the node, else a new slab wherever a page is found.
async fn slub_object(m: &Machine, task: &mut Task, kind: CacheKind, want: Want) -> Object {
    loop {
        let hold_ns = m.costs.slab_step_ns * m.mm.borrow().cache(kind).batch;
        lock_list(m, task, kind, task.node, Site::SlabListLock(kind), hold_ns).await;
        if let Some(object) = refill(m, task.cpu, kind, task.node) {
            return object;
        }
        let large = large_slab(m, task, kind, want);
        let frame = match large {
            Some(frame) => frame,
            None => match page(m, task, Want { this_node: false, ..want }).await {
                Some(frame) => frame,
                None => continue,
            },
        };
        task.work(Site::SlabGrow(kind), m.costs.cache_grow_ns);
        let mut mm = m.mm.borrow_mut();
        mm.add_slab(kind, frame, large.is_some());
        let cache = mm.cache_mut(kind);
        cache.refill(usize::from(task.cpu), frame);
        if let Some(object) = cache.take_ready(usize::from(task.cpu)) {
            return object;
        }
    }
}

/// mm/slub.c: allocate_slab, 6.1: a slab of several pages is allocated without __GFP_RECLAIM: no reclaim, also not of
/// the local node, and kswapd is woken only for tree nodes, which use GFP_NOWAIT (lib/xarray.c: xas_alloc). If that
/// fails, one page is allocated with all flags.
fn large_slab(m: &Machine, task: &mut Task, kind: CacheKind, want: Want) -> Option<u8> {
    let frames = m.mm.borrow().cache(kind).shape.pages;
    if frames == 1 {
        return None;
    }
    task.work(Site::Work, m.costs.alloc_page_ns);
    let (zones, count) = zones_for(m, task.node, Want { this_node: false, ..want });
    let zones = &zones[..count];
    let wakes = kind == CacheKind::RadixNode;
    let above = |mark| m.mm.borrow_mut().zone_for_many(zones, (want.kind, mark), frames);
    let zone = above(Mark::Low).or_else(|| {
        if wakes {
            m.wake_kswapd(zones, want.kind);
        }
        above(Mark::Min)
    })?;
    let zone = m.mm.borrow_mut().take_frames(zone, task.cpu, frames.ilog2())?;
    m.mm.borrow_mut().count_numa(task.node, zone);
    Some(zone)
}

/// mm/slab.c: ____cache_alloc_node, 2.6.32: one object of the node's slabs, past the CPU's array.
fn take_one_of(m: &Machine, kind: CacheKind, node: usize) -> Option<Object> {
    let mut mm = m.mm.borrow_mut();
    let zones = 0..mm.zones.len() as u8;
    zones.into_iter().find_map(|zone| {
        let of_node = mm.zones[usize::from(zone)].node == node;
        if of_node { mm.cache_mut(kind).take_one(zone) } else { None }
    })
}

fn refill(m: &Machine, cpu: u16, kind: CacheKind, node: usize) -> Option<Object> {
    let mut mm = m.mm.borrow_mut();
    for zone in 0..mm.zones.len() as u8 {
        if mm.zones[usize::from(zone)].node == node && mm.cache_mut(kind).refill(usize::from(cpu), zone) > 0 {
            return mm.cache_mut(kind).take_ready(usize::from(cpu));
        }
    }
    None
}

/// mm/slab.c: fallback_alloc, 2.6.32: an object of any node. It does not fill this CPU's array, so that the next
/// request takes the same slow path.
async fn fallback(m: &Machine, task: &mut Task, kind: CacheKind, want: Want) -> Object {
    let (zones, count) = zones_for(m, task.node, want);
    loop {
        for &zone in &zones[..count] {
            let (node, has) = {
                let mm = m.mm.borrow();
                (mm.zones[usize::from(zone)].node, mm.cache(kind).lists[usize::from(zone)].free > 0)
            };
            if has {
                lock_list(m, task, kind, node, Site::SlabRemoteLock(kind), m.costs.slab_step_ns).await;
                let taken = m.mm.borrow_mut().cache_mut(kind).take_one(zone);
                if let Some(object) = taken {
                    return object;
                }
            }
        }
        if let Some(frame) = page(m, task, want).await {
            task.work(Site::SlabGrow(kind), m.costs.cache_grow_ns);
            m.mm.borrow_mut().add_slab(kind, frame, true);
        }
    }
}
