//! Readahead of files that are read with read().
//!
//! Models: ondemand_readahead (mm/readahead.c, 2.6.32 and 6.1; 2.6.17 has two windows to the same effect): the first
//! window of a sequential reader, doubling up to the limit, and that reaching the mark of one window submits the next
//! without waiting for it; a window that would hit its own mark; calls of more than
//! the limit (4.10); that cached pages split the read of a window into parts. Leaves out: context readahead
//! (2.6.31), a mark of another reader's window, a state for each open file (it is the file's).

use crate::kernel::PAGE_BYTES;
use std::collections::BTreeMap;

use crate::Machine;
use crate::block::{self, Done, Request};
use crate::constant::constants;
use crate::fs::inode::InodeId;
use crate::fs::vfs;
use crate::mm::chunk::{ChunkId, WINDOW_PAGES};
use crate::sched::site::Site;
use crate::sched::task::Task;
use crate::writeback;

constants! {
    /// Pages of the first window of a sequential reader.
    const FIRST_PAGES: u32 = kernel(4, "mm/readahead.c", "get_init_ra_size", "2.6.32");
    /// Up to this part of the limit a window becomes four times as long, beyond it twice.
    const FAST_PART: u32 = kernel(16, "mm/readahead.c", "get_next_ra_size", "2.6.32");
    /// Pages of a window below which folios are of one page.
    const FOLIO_WINDOW_MIN: u32 = kernel(4, "mm/readahead.c", "page_cache_ra_order", "5.18");
    const HUGE_ORDER: u32 = kernel(9, "include/linux/pagemap.h", "MAX_PAGECACHE_ORDER (HPAGE_PMD_ORDER)", "5.18");
}

/// The window of one file that is being read (`struct file_ra_state`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Ahead {
    pub start: u64,
    pub pages: u32,
    /// Pages of the window from the mark on, whose read submits the next window (async_size).
    pub left: u32,
    /// The page after the last one read (prev_pos).
    pub behind: u64,
    /// Order of the window's folios.
    pub order: u32,
    /// Faults that had to read, minus faults that did not (mmap_miss; up to 2.6.30 minus mmap_hit).
    pub misses: i32,
}

impl Ahead {
    fn end(&self) -> u64 {
        self.start + u64::from(self.pages)
    }

    /// get_next_ra_size.
    fn next_pages(&self, most: u32) -> u32 {
        let times = if self.pages < most / FAST_PART.get() { 4 } else { 2 };
        (self.pages * times).clamp(FIRST_PAGES.get().min(most), most)
    }

    /// The next window.
    fn pushed(self, most: u32) -> Ahead {
        let pages = self.next_pages(most);
        Ahead { start: self.end(), pages, left: pages, ..self }
    }

    /// ondemand_readahead for a page that is not in memory, of `asked` pages of the read; `None` if only those are to
    /// be read.
    fn missed(self, page: u64, asked: u32, rule: Rule) -> Option<Ahead> {
        let most = rule.most;
        let is_sequential = page == 0 || asked > most || page == self.behind || page + 1 == self.behind;
        // Its folios begin small.
        let own = Ahead { start: page, order: 0, ..self };
        let next = if page > 0 && self.expects(page) {
            Ahead { order: 0, ..self.pushed(most) }
        } else if is_sequential {
            let pages = first_pages(asked, most);
            Ahead { pages, left: if pages > asked { pages - asked } else { pages }, ..own }
        } else {
            return None;
        };
        // The read would hit its own mark: read the next window too.
        if next.left < next.pages {
            return Some(next);
        }
        let more = next.next_pages(most);
        Some(match (rule.ends_at_most, next.pages + more <= most) {
            (true, false) => Ahead { pages: most, left: most / 2, ..next },
            _ => Ahead { pages: next.pages + more, left: more, ..next },
        })
    }

    /// ondemand_readahead, "the expected callback index": the page of the mark, or the first after the window.
    fn expects(&self, page: u64) -> bool {
        self.pages > 0 && (page == self.end() || page + u64::from(self.left) == self.end())
    }

    /// ondemand_readahead for a page that carries the mark of this window.
    fn marked(self, page: u64, most: u32) -> Option<Ahead> {
        self.expects(page).then(|| self.pushed(most))
    }

    /// page_cache_ra_order: folios grow fourfold with each window, up to its size.
    fn next_order(order: u32, pages: u32) -> u32 {
        if pages < FOLIO_WINDOW_MIN.get() { 0 } else { (order + 2).min(HUGE_ORDER.get()).min(pages.ilog2()) }
    }
}

/// Pages of files under read without a waiting task: locked until the request is done.
#[derive(Debug, Default)]
pub struct Coming {
    requests: BTreeMap<InodeId, Vec<(u64, u64)>>,
}

impl Coming {
    fn is_on_its_way(&self, inode: InodeId, page: u64) -> bool {
        let own = self.requests.get(&inode);
        own.is_some_and(|own| own.iter().any(|&(from, to)| (from..to).contains(&page)))
    }

    /// Those pages of a window of 32, as bits.
    pub fn of_window(&self, inode: InodeId, window: u32) -> u32 {
        let first = u64::from(window) * WINDOW_PAGES;
        let inside = |at: u64| at.clamp(first, first + WINDOW_PAGES) - first;
        let own = self.requests.get(&inode).map_or(&[][..], Vec::as_slice);
        own.iter()
            .map(|&(from, to)| (inside(from), inside(to)))
            .fold(0, |bits, (from, to)| bits | (((1_u64 << to) - 1) & !((1_u64 << from) - 1)) as u32)
    }

    fn note(&mut self, inode: InodeId, from: u64, to: u64) {
        self.requests.entry(inode).or_default().push((from, to));
    }

    /// A request is done; `end` is the page after its last.
    pub fn arrived(&mut self, inode: InodeId, end: u64) {
        let Some(own) = self.requests.get_mut(&inode) else { return };
        own.retain(|(_, to)| *to != end);
        if own.is_empty() {
            self.requests.remove(&inode);
        }
    }
}

/// Limits of a window.
#[derive(Clone, Copy, Debug)]
struct Rule {
    most: u32,
    /// A window that includes the next one is not larger either ("mm: don't cap request size based on read-ahead setting", 4.10).
    ends_at_most: bool,
}

impl Rule {
    /// ondemand_readahead, 4.10 and later: a call of more than the limit may read as much as the device takes at once
    /// (io_pages).
    fn of(m: &Machine, inode: InodeId, asked: u64) -> Rule {
        let knobs = m.device_of(inode).knobs.borrow();
        let most = knobs.read_ahead_pages;
        let widens = m.profile.is_6();
        let most = if widens { most.max(asked.min(knobs.request_pages)) } else { most };
        Rule { most: most as u32, ends_at_most: widens }
    }
}

/// get_init_ra_size.
fn first_pages(asked: u32, most: u32) -> u32 {
    let rounded = asked.max(1).next_power_of_two();
    let times = match rounded {
        rounded if rounded <= most / 32 => 4,
        rounded if rounded <= most / 4 => 2,
        _ => return most,
    };
    rounded * times
}

/// page_cache_sync_readahead, for a page that is not cached. `last` is the last page of the read.
pub async fn miss(m: &Machine, task: &mut Task, inode: InodeId, page: u64, last: u64) {
    if m.device_of(inode).knobs.borrow().read_ahead_pages == 0 {
        // Without readahead each page is read alone (no_cached_page).
        return vfs::fetch(m, task, inode, (page, page + 1), 0, Site::ReadWait).await;
    }
    let asked = last + 1 - page;
    match window_of(m, inode, page, asked) {
        Some(window) => {
            submit(m, task, inode, window, last).await;
            wait_for(m, task, inode, page, Site::ReadWait).await;
        }
        None => {
            let size_pages = m.mm.borrow().inodes.get(inode).size.div_ceil(PAGE_BYTES).max(last + 1);
            let to = (page + asked).min(size_pages);
            vfs::fetch(m, task, inode, (page, to), 0, Site::ReadWait).await;
        }
    }
}

/// The window that begins at a missing page, of `asked` pages of the read.
pub fn window_of(m: &Machine, inode: InodeId, page: u64, asked: u64) -> Option<Ahead> {
    let rule = Rule::of(m, inode, asked);
    let asked = asked.min(1 << 20) as u32;
    let ahead = m.mm.borrow().inodes.get(inode).ahead;
    ahead.missed(page, asked, rule)
}

/// A read of a page that is cached or under read: submits the next window at a mark, and waits until the page has
/// arrived.
pub async fn hit(m: &Machine, task: &mut Task, inode: InodeId, page: u64, place: (ChunkId, u32), last: u64) {
    let (pages, marked) = {
        let mut mm = m.mm.borrow_mut();
        let ahead = &mut mm.inodes.get_mut(inode).ahead;
        ahead.behind = page + 1;
        (ahead.pages, mm.chunks.get(place.0).marked & place.1 != 0)
    };
    if pages == 0 {
        return;
    }
    if marked {
        reach_mark(m, task, inode, page, place, last).await;
    }
    wait_for(m, task, inode, page, Site::ReadWait).await;
}

/// page_cache_async_readahead.
pub async fn reach_mark(m: &Machine, task: &mut Task, inode: InodeId, page: u64, (id, bit): (ChunkId, u32), last: u64) {
    let asked = last + 1 - page;
    let most = Rule::of(m, inode, asked).most;
    let ahead = {
        let mut mm = m.mm.borrow_mut();
        mm.chunks.get_mut(id).marked &= !bit;
        mm.inodes.get(inode).ahead
    };
    if let Some(window) = ahead.marked(page, most) {
        submit(m, task, inode, window, last).await;
    }
}

/// Waits for the request of a page under read; false if there was none.
pub async fn wait_for(m: &Machine, task: &mut Task, inode: InodeId, page: u64, site: Site) -> bool {
    let mut waits = false;
    while m.coming.borrow().is_on_its_way(inode, page) {
        task.run(m).await;
        if !m.coming.borrow().is_on_its_way(inode, page) {
            break;
        }
        writeback::wait_for_pages(m, task, site).await;
        waits = true;
    }
    if waits {
        task.work(Site::Work, m.costs.wakeup_ns);
    }
    waits
}

/// ra_submit: reads the parts of a window that are not cached, without waiting.
pub async fn submit(m: &Machine, task: &mut Task, inode: InodeId, window: Ahead, last: u64) {
    let size_pages = m.mm.borrow().inodes.get(inode).size.div_ceil(PAGE_BYTES).max(last + 1);
    let (from, to) = (window.start, window.end().min(size_pages));
    let device = m.place_of(inode);
    let own = m.device(device);
    let largest = own.knobs.borrow().request_pages.max(1);
    let (order, pieces) = {
        let mut mm = m.mm.borrow_mut();
        let pieces = missing(from, to, largest, |page| mm.lookup(inode, page).is_none());
        let ahead = &mut mm.inodes.get_mut(inode).ahead;
        let order = if own.file_system.ahead_folios { Ahead::next_order(window.order, window.pages) } else { 0 };
        *ahead = Ahead { order, behind: ahead.behind, misses: ahead.misses, ..window };
        (order, pieces)
    };
    let parts: Vec<vfs::Part> = pieces.into_iter().flat_map(|piece| vfs::parts(m, inode, piece)).collect();
    parts.iter().for_each(|part| m.coming.borrow_mut().note(inode, part.from, part.to));
    for part in &parts {
        vfs::add_missing(m, task, inode, (part.from, part.to), order).await;
    }
    let mark = window.end() - u64::from(window.left);
    if parts.iter().any(|part| (part.from..part.to).contains(&mark)) {
        let mut mm = m.mm.borrow_mut();
        if let Some((id, bit)) = mm.lookup(inode, mark) {
            mm.chunks.get_mut(id).marked |= bit;
        }
    }
    for vfs::Part { from: at, to: end, reads } in parts {
        if !reads {
            task.work(Site::Work, (end - at) * m.costs.zero_page_ns());
            m.coming.borrow_mut().arrived(inode, end);
            m.wb.borrow_mut().waiting.wake_all(&m.clock);
            continue;
        }
        let (position, pages) = (m.position(inode, at, false), (end - at) as u32);
        m.mm.borrow_mut().events.pgpgin_kib += u64::from(pages) * 4;
        let request = Request::new(false, position, pages, Done::Ahead { inode, end }).on(device);
        block::submit(m, task, request, Site::GetRequestRead).await;
    }
}

/// The parts of [from, to) that are not cached, of at most `largest` pages each.
fn missing(from: u64, to: u64, largest: u64, is_missing: impl Fn(u64) -> bool) -> Vec<(u64, u64)> {
    let mut pieces: Vec<(u64, u64)> = Vec::new();
    for page in (from..to).filter(|page| is_missing(*page)) {
        match pieces.last_mut() {
            Some((at, end)) if *end == page && page - *at < largest => *end = page + 1,
            _ => pieces.push((page, page + 1)),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::{Ahead, Coming, Rule, first_pages, missing};
    use crate::Options;
    use crate::run_with;
    use flatwater_workload::scenario::Scenario;

    const OLD: Rule = Rule { most: 32, ends_at_most: false };
    const WIDE: Rule = Rule { most: 32, ends_at_most: true };

    fn window(ahead: Option<Ahead>) -> Option<(u64, u32, u32)> {
        ahead.map(|ahead| (ahead.start, ahead.pages, ahead.left))
    }

    #[test]
    fn a_first_window_is_the_longer_the_more_is_asked_for() {
        // get_init_ra_size: up to a 32nd of the limit four times as much, up to a quarter twice, else the whole limit.
        assert_eq!([1, 4, 5, 8, 9].map(|asked| first_pages(asked, 128)), [4, 16, 16, 16, 32]);
        assert_eq!(first_pages(40, 128), 128);
    }

    #[test]
    fn a_reader_from_the_start_has_windows_that_double_and_its_mark_behind_what_it_asked_for() {
        // Calls of a page: 4 pages, marked behind the first; then from each mark on 8, 16, 32, 32.
        let mut ahead = Ahead::default().missed(0, 1, OLD);
        assert_eq!(window(ahead), Some((0, 4, 3)));
        for next in [(4, 8, 8), (12, 16, 16), (28, 32, 32), (60, 32, 32)] {
            ahead = ahead.map(|ahead| ahead.pushed(32));
            assert_eq!(window(ahead), Some(next));
        }
        // A call of 32 pages of 32 would hit its own mark: the next window comes with it, from 4.10 on within the
        // limit.
        assert_eq!(window(Ahead::default().missed(0, 32, OLD)), Some((0, 64, 32)));
        assert_eq!(window(Ahead::default().missed(0, 32, WIDE)), Some((0, 32, 16)));
    }

    #[test]
    fn a_read_elsewhere_starts_no_stream_unless_it_exceeds_the_limit() {
        let ahead = Ahead { behind: 100, ..Ahead::default() };
        assert_eq!(window(ahead.missed(500, 4, OLD)), None);
        assert_eq!(window(ahead.missed(100, 4, OLD)), Some((100, 8, 4)), "right behind the last one read");
        assert_eq!(window(ahead.missed(500, 64, OLD)), Some((500, 64, 32)), "more than the limit");
    }

    #[test]
    fn windows_grow_fourfold_up_to_a_sixteenth_of_the_limit_then_twofold() {
        let mut ahead = Ahead { pages: 4, ..Ahead::default() };
        let mut sizes = Vec::new();
        for _ in 0..6 {
            ahead.pages = ahead.next_pages(1024);
            sizes.push(ahead.pages);
        }
        assert_eq!(sizes, [16, 64, 128, 256, 512, 1024]);
        assert_eq!(Ahead { pages: 32, ..ahead }.next_pages(32), 32);
    }

    #[test]
    fn a_window_is_read_in_parts_between_cached_pages() {
        let cached = [3_u64, 9];
        let parts = missing(0, 12, 4, |page| !cached.contains(&page));
        assert_eq!(parts, [(0, 3), (4, 8), (8, 9), (10, 12)], "no longer than 4");
    }

    #[test]
    fn folios_grow_with_the_windows_and_are_never_larger() {
        let mut order = 0;
        let orders = [32, 32, 32, 1024, 1024].map(|pages| {
            order = Ahead::next_order(order, pages);
            order
        });
        assert_eq!(orders, [2, 4, 5, 7, 9]);
        assert_eq!((Ahead::next_order(0, 2), Ahead::next_order(9, 2048)), (0, 9));
    }

    #[test]
    fn a_page_is_on_its_way_until_its_own_request_is_done() {
        let mut coming = Coming::default();
        coming.note(7, 100, 132);
        coming.note(7, 132, 164);
        coming.arrived(7, 164);
        let on_its_way = |coming: &Coming| [99, 100, 131, 132].map(|page| coming.is_on_its_way(7, page));
        assert_eq!(on_its_way(&coming), [false, true, true, false], "the second was done first");
        assert_eq!([2, 3, 4].map(|window| coming.of_window(7, window)), [0, u32::MAX << 4, 0xf]);
        coming.arrived(7, 132);
        assert!(!coming.is_on_its_way(7, 131) && coming.requests.is_empty());
    }

    /// Pages of holes are filled without a request, so that no completion would wake a waiter.
    #[test]
    fn who_waits_for_zeroed_pages_is_woken_once_they_are_there() {
        let text = "name = 'x'\nsentence = 'X.'\nkernel = 'linux-6.1'\nduration = '4s'\n[machine]\ncpus = 2\nnodes = ['256MiB']\n\
            cpu_speed_percent = 10\ndisk = { file_system = 'ext4' }\n[[workload]]\nuse = 'access'\nthreads = 2\nshared = 'yes'\n\
            file_size = '400MiB'\nbytes = '16KiB'\npattern = 'sequential'\nfill = 'allocate'\npause = '500us'\n";
        let scenario = Scenario::parse("x", text).expect("parses");
        let (recording, _) = run_with(&scenario, &Options::default(), |_| true).expect("runs");
        let longest_ns = recording.calls.iter().map(|call| call.duration_ns).max().unwrap_or(0);
        assert!(longest_ns < 100_000_000, "{longest_ns} ns");
    }
}
