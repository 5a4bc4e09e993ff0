//! The page allocator's paths: fast path with zone reclaim in it, slow path with kswapd, direct reclaim and waiting.
//!
//! Models: `get_page_from_freelist` and `__alloc_pages_slowpath` of 2.6.32 for single pages, with the refusal of
//! GFP_THISNODE requests, and the slab allocator on top (`cache_alloc_refill`, `cache_grow`,
//! `fallback_alloc`); the fair zone allocator of 3.12 to 4.7; dirty limits by zone and node (`node_dirty_limit`). Leaves out: higher
//! orders, compaction, the zonelist cache, fairness where zone_reclaim_mode is on, out-of-memory kills: a request that cannot
//! be met retries until reclaim succeeds, and the swarm fails a run in which one never does.

use super::Machine;
use super::kernel::SlabFallback;
use super::memory::Mm;
use super::node_dirty_limit::DirtyPart;
use super::reclaim;
use super::site::Site;
use super::slab::{CacheKind, Object};
use super::task::Task;
use super::v6::buddy::{Frame, Kind};
use super::v6::cgroup;
use super::v6::fallback::Wanted;
use super::zone::ZoneKind;

/// What a request for a page may do and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    pub kind: ZoneKind,
    /// GFP_THISNODE: this node or nothing, without reclaim.
    pub this_node: bool,
    /// May enter the file system while it reclaims.
    pub fs: bool,
    /// __GFP_WRITE: a page of a file that will be dirtied at once.
    pub write: bool,
    /// Of which kind its page block should be.
    pub mobility: Kind,
}

impl Want {
    pub const USER: Want =
        Want { kind: ZoneKind::HighMem, this_node: false, fs: true, write: false, mobility: Kind::Movable };
    pub const WRITE: Want = Want { write: true, ..Want::USER };
    /// Slabs that can be reclaimed (SLAB_RECLAIM_ACCOUNT).
    pub const KERNEL: Want = Want { kind: ZoneKind::Normal, mobility: Kind::Reclaimable, ..Want::USER };
    pub const NOFS: Want = Want { fs: false, ..Want::KERNEL };
    /// A page of a block device (fs/buffer.c: grow_dev_page, with __GFP_MOVABLE).
    pub const DEVICE: Want = Want { mobility: Kind::Movable, ..Want::NOFS };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Low,
    Min,
    None,
}

/// Zones of a zonelist that are looked at: of a node each, and two more of the first.
const ZONES_MAX: usize = 66;

/// Where a request from the task's node may look, in order.
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

/// A frame, from the first zone that can spare one.
fn try_zones(m: &Machine, task: &Task, zones: &[u8], want: Want, mark: Mark) -> Option<Frame> {
    let mut mm = m.mm.borrow_mut();
    for &zone in zones {
        let slot = &mut mm.zones[usize::from(zone)];
        let limit = match mark {
            Mark::Low => slot.low + slot.blocks.boost,
            Mark::Min => slot.min + slot.blocks.boost,
            Mark::None => 0,
        };
        if (mark == Mark::None || slot.admits(limit, want.kind))
            && let Some(frame) = mm.take_frame(zone, task.cpu, want)
        {
            return Some(frame);
        }
    }
    None
}

/// One page for the page cache, a slab or a process. `None` only for `this_node` requests.
pub async fn page(m: &Machine, task: &mut Task, want: Want) -> Option<Frame> {
    task.work(Site::Work, m.costs.alloc_page_ns);
    frame(m, task, want).await
}

/// The same without the time of a request of its own: a further page of a large folio.
pub async fn frame(m: &Machine, task: &mut Task, want: Want) -> Option<Frame> {
    match frame_now(m, task, want) {
        Some(frame) => Some(frame),
        None => frame_slow(m, task, want).await,
    }
}

/// The common case, which copies nothing and cannot sleep: a zone above its low watermark, where no zone before it would have been
/// reclaimed first.
#[inline]
pub fn frame_now(m: &Machine, task: &Task, want: Want) -> Option<Frame> {
    let most = if reclaims_zones(m, task) { 1 } else { ZONES_MAX };
    let part = if want.write { m.dirty_part() } else { None };
    let frame = m.mm.borrow_mut().low_choice((task.node, task.cpu), want, most, part)?;
    Some(counted(m, task, task.node, frame))
}

/// What `frame` does where `frame_now` found nothing.
pub async fn frame_slow(m: &Machine, task: &mut Task, want: Want) -> Option<Frame> {
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
    got.map(|frame| counted(m, task, node, frame))
}

impl Mm {
    /// A frame of the first zone above its low watermark, among so many.
    #[inline]
    fn low_choice(
        &mut self,
        (node, cpu): (usize, u16),
        want: Want,
        most: usize,
        part: Option<DirtyPart>,
    ) -> Option<Frame> {
        for place in 0..most {
            let list = if want.kind == ZoneKind::HighMem { &self.lists_any } else { &self.lists_normal };
            let zone = *list.get(node)?.get(place)?;
            let slot = &self.zones[usize::from(zone)];
            let of_node = slot.node == node;
            let allowed = (!want.this_node || of_node) && part.is_none_or(|part| self.dirty_ok(zone, part));
            let slot = &mut self.zones[usize::from(zone)];
            let is_above = allowed && slot.admits(slot.low + slot.blocks.boost, want.kind);
            if is_above && let Some(frame) = self.take_frame(zone, cpu, want) {
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

    /// The first zone that can spare so many frames together (__zone_watermark_ok).
    fn zone_for_many(&mut self, zones: &[u8], (kind, mark): (ZoneKind, Mark), frames: u64) -> Option<u8> {
        zones.iter().copied().find(|&zone| {
            let slot = &mut self.zones[usize::from(zone)];
            let limit = if mark == Mark::Low { slot.low } else { slot.min };
            let is_there = slot.blocks.buddy.as_ref().is_none_or(|buddy| buddy.has(frames.ilog2() as usize));
            is_there && slot.admits(limit + slot.blocks.boost + frames - 1, kind)
        })
    }
}

/// mm/page_alloc.c: __alloc_pages_slowpath, 2.6.32: "GFP_THISNODE ... should not cause reclaim": goto nopage.
fn refuses(m: &Machine, want: Want) -> bool {
    want.this_node && m.ablations.thisnode_refusal && m.profile.slab_fallback == SlabFallback::Refuses
}

/// Whether a zone below its low watermark is reclaimed on the spot.
fn reclaims_zones(m: &Machine, task: &Task) -> bool {
    m.knobs.borrow().zone_reclaim_mode != 0 && m.ablations.zone_reclaim && !task.memalloc
}

fn counted(m: &Machine, task: &Task, node: usize, frame: Frame) -> Frame {
    m.mm.borrow_mut().count_numa(node, frame.zone);
    m.note_boost(task, frame.zone);
    frame
}

/// mm/page_alloc.c: get_page_from_freelist, 2.6.32: a zone below its low watermark is reclaimed on the spot if
/// zone_reclaim_mode says so, and passed over otherwise.
async fn freelist_low(m: &Machine, task: &mut Task, zones: &[u8], want: Want) -> Option<Frame> {
    let part = if want.write { m.dirty_part() } else { None };
    for place in 0..zones.len() {
        let zone = zones[place];
        if part.is_some_and(|part| !m.mm.borrow().dirty_ok(zone, part)) {
            continue;
        }
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

async fn slow_path(m: &Machine, task: &mut Task, zones: &[u8], want: Want) -> Option<Frame> {
    if refuses(m, want) {
        return None;
    }
    m.wake_kswapd(task, zones, want.kind);
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
        // mm/page_alloc.c: __alloc_pages_direct_reclaim, 6.8: what was freed may lie on lists of CPUs, which hold much from 6.7 on.
        if freed > 0 && m.profile.scales_batches {
            m.mm.borrow_mut().drain_lists();
            if let Some(frame) = try_zones(m, task, zones, want, Mark::Min) {
                return Some(frame);
            }
        }
        if freed == 0 {
            m.congestion_wait(task, m.profile.jiffy_ns() * m.profile.hz.get() / 50).await;
        }
        m.wake_kswapd(task, zones, want.kind);
    }
}

/// Waits for the list lock of a node and holds it for as long as the work takes.
#[inline]
async fn lock_list(m: &Machine, task: &mut Task, kind: CacheKind, node: usize, site: Site, hold_ns: u64) {
    let now_ns = m.clock.now() + task.pending_ns();
    let waits = m.mm.borrow_mut().cache_mut(kind).locks[node].queue(now_ns, hold_ns);
    if let Some((free_at_ns, holder)) = waits {
        // A spinning waiter burns its CPU; what counts for its call is only how long.
        task.wait_until(m, free_at_ns, site, holder).await;
    }
    task.work(Site::SlabGrow(kind), hold_ns);
}

/// One object: from the CPU's array, from the node's slabs, from a new slab, from another node.
pub async fn object(m: &Machine, task: &mut Task, kind: CacheKind, want: Want) -> Object {
    match object_now(m, task, kind) {
        Some(object) => object,
        None => object_slow(m, task, kind, want).await,
    }
}

/// The common case, which cannot sleep: one of the CPU's array, charged to nobody. Where there is none, nothing has happened yet.
#[inline]
pub fn object_now(m: &Machine, task: &mut Task, kind: CacheKind) -> Option<Object> {
    if task.in_cgroup {
        return None;
    }
    let ready = m.mm.borrow_mut().cache_mut(kind).take_ready(usize::from(task.cpu))?;
    task.work(Site::Work, m.costs.slab_object_ns);
    Some(ready)
}

/// What `object` does where `object_now` found nothing.
pub async fn object_slow(m: &Machine, task: &mut Task, kind: CacheKind, want: Want) -> Object {
    task.work(Site::Work, m.costs.slab_object_ns);
    if task.in_cgroup {
        let bytes = m.mm.borrow().cache(kind).shape.bytes;
        cgroup::charge_object(m, task, bytes).await;
        let ready = m.mm.borrow_mut().cache_mut(kind).take_ready(usize::from(task.cpu));
        if let Some(object) = ready {
            return object;
        }
    }
    // mm/slub.c: new_slab, 6.1: with no node asked for, a slab of another node serves as well.
    if m.profile.is_6() {
        return slub_object(m, task, kind, want).await;
    }
    // mm/slab.c: cache_alloc_refill, 2.6.32: the list lock is taken before it is known whether a slab must be grown. Whoever waited
    // for it may be on another node by now (`retry:` asks numa_node_id() again).
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

/// mm/slab.c: cache_grow, 2.6.32: a slab of this node and of no other, or none.
async fn cache_grow(m: &Machine, task: &mut Task, kind: CacheKind, want: Want) -> bool {
    let this_node = m.mm.borrow().nodes > 1;
    let want = Want { this_node, ..want };
    task.work(Site::Work, m.costs.alloc_page_ns);
    let frame = match frame_now(m, task, want) {
        Some(frame) => frame,
        None if refuses(m, want) && !reclaims_zones(m, task) => return false,
        None => match frame_slow(m, task, want).await {
            Some(frame) => frame,
            None => return false,
        },
    };
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
        cache.refill(usize::from(task.cpu), frame.zone);
        if let Some(object) = cache.take_ready(usize::from(task.cpu)) {
            return object;
        }
    }
}

/// mm/slub.c: allocate_slab, 6.1: the frames of a slab of several pages are asked for without __GFP_RECLAIM: nobody reclaims for them, in
/// zone_reclaim neither, and kswapd is not woken, but for the tree's nodes, which are asked for with GFP_NOWAIT (lib/xarray.c: xas_alloc).
/// Where there are none, one page is asked for with all flags.
fn large_slab(m: &Machine, task: &mut Task, kind: CacheKind, want: Want) -> Option<Frame> {
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
            m.wake_kswapd(task, zones, want.kind);
        }
        above(Mark::Min)
    })?;
    let wanted = Wanted { order: frames.ilog2() as usize, kind: want.mobility, wakes };
    let frame = m.mm.borrow_mut().take_piece(zone, task.cpu, wanted)?;
    m.mm.borrow_mut().count_numa(task.node, zone);
    if wakes {
        m.note_boost(task, zone);
    }
    Some(frame)
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

/// mm/slab.c: fallback_alloc, 2.6.32: an object of any node, which does not fill this CPU's array, so that the
/// next request comes the same slow way.
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
