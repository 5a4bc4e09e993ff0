//! Readahead of files that are read with read().
//!
//! Models: ondemand_readahead (mm/readahead.c, 2.6.23 and later; 2.6.17 has two windows to the same effect): the first window
//! of a sequential reader, doubling up to the limit, and that reaching the mark of one window submits the next without
//! waiting for it; context readahead (2.6.31). Leaves out: interleaved readers of one file, thrashing.

use super::Machine;
use super::block::{self, Done, Request};
use super::constant::constants;
use super::inode::InodeId;
use super::kernel::ContextReadahead;
use super::site::Site;
use super::task::{Culprit, Task};
use super::vfs;

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
    /// Its pages and the one that submits the next (PG_readahead).
    start: u64,
    pages: u32,
    mark: Option<u64>,
    /// Pages of it that are not read yet begin here.
    arrived: u64,
    next_read: u64,
    /// Of its folios, where the file system has large ones.
    order: u32,
}

impl Ahead {
    fn end(&self) -> u64 {
        self.start + u64::from(self.pages)
    }

    fn is_on_its_way(&self, page: u64) -> bool {
        (self.arrived..self.end()).contains(&page)
    }

    /// get_next_ra_size.
    fn next_pages(&self, most: u32) -> u32 {
        let times = if self.pages < most / FAST_PART.get() { 4 } else { 2 };
        (self.pages * times).clamp(FIRST_PAGES.get().min(most), most)
    }

    /// page_cache_ra_order: folios grow fourfold with each window, up to its size.
    fn next_order(order: u32, pages: u32) -> u32 {
        if pages < FOLIO_WINDOW_MIN.get() { 0 } else { (order + 2).min(HUGE_ORDER.get()).min(pages.ilog2()) }
    }

    /// A request of it is done.
    pub fn note_arrived(&mut self, end: u64) {
        if (self.start..=self.end()).contains(&end) || end > self.arrived {
            self.arrived = self.arrived.max(end);
        }
    }
}

/// count_history_pages: cached pages right before this one.
fn history(m: &Machine, inode: InodeId, page: u64, most: u32) -> u32 {
    let mm = m.mm.borrow();
    (1..=u64::from(most).min(page)).take_while(|back| mm.lookup(inode, page - back).is_some()).count() as u32
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

/// try_context_readahead: what a sequential reader would have left behind makes a random read one; 0 where nothing does.
fn context_pages(rule: ContextReadahead, history: u32, asked: u32, most: u32) -> u32 {
    match rule {
        ContextReadahead::Never => 0,
        _ if history == 0 => 0,
        ContextReadahead::AnyHistory => first_pages(history + asked, most),
        // 3.12: "readahead: make context readahead more conservative".
        ContextReadahead::MoreThanAsked if history <= asked => 0,
        ContextReadahead::MoreThanAsked => (history + asked).min(most),
    }
}

/// page_cache_sync_readahead: nothing of this page is in memory. `last` is the last page that is asked for.
pub async fn miss(m: &Machine, task: &mut Task, inode: InodeId, page: u64, last: u64) {
    let most = m.knobs.borrow().read_ahead_pages.max(1) as u32;
    let size_pages = m.mm.borrow().inodes.get(inode).size.div_ceil(4096).max(last + 1);
    let history =
        if m.profile.context_readahead == ContextReadahead::Never { 0 } else { history(m, inode, page, most) };
    let (from, to) = {
        let mut mm = m.mm.borrow_mut();
        let ahead = &mut mm.inodes.get_mut(inode).ahead;
        let asked = (last + 1 - page).min(u64::from(most)) as u32;
        let context =
            if page == ahead.next_read { 0 } else { context_pages(m.profile.context_readahead, history, asked, most) };
        let sequential = page == ahead.next_read || context > 0;
        let pages = match (context, sequential) {
            (0, true) => ahead.next_pages(most),
            (0, false) => 1,
            _ => context,
        };
        let to = (page + u64::from(pages)).max((last + 1).min(page + u64::from(most))).min(size_pages).max(page + 1);
        let pages = (to - page) as u32;
        *ahead = Ahead {
            start: page,
            pages,
            order: if m.profile.ahead_folios { Ahead::next_order(0, pages) } else { 0 },
            // A read of its own, at random, leaves no mark; one of more than the limit is a stream (ondemand_readahead).
            mark: (sequential || last + 1 - page > u64::from(most)).then_some(page),
            arrived: page,
            next_read: to,
        };
        (page, to)
    };
    let order = m.mm.borrow().inodes.get(inode).ahead.order;
    vfs::fetch(m, task, inode, (from, to), order, Site::ReadWait).await;
    let mut mm = m.mm.borrow_mut();
    mm.inodes.get_mut(inode).ahead.note_arrived(to);
}

/// A page that is in memory or on its way there: what its mark asks for, then the wait until it has arrived.
pub async fn hit(m: &Machine, task: &mut Task, inode: InodeId, page: u64, last: u64) {
    let ahead = m.mm.borrow().inodes.get(inode).ahead;
    if ahead.pages == 0 {
        return;
    }
    if ahead.mark == Some(page) {
        next_window(m, task, inode, last).await;
    }
    while m.mm.borrow().inodes.get(inode).ahead.is_on_its_way(page) {
        task.run(m).await;
        if !m.mm.borrow().inodes.get(inode).ahead.is_on_its_way(page) {
            break;
        }
        m.wb.borrow_mut().waiting.join(m.clock.current());
        task.park(m, None, Site::ReadWait, Culprit::Device).await;
    }
}

/// page_cache_async_readahead: the window behind the present one.
async fn next_window(m: &Machine, task: &mut Task, inode: InodeId, last: u64) {
    let most = m.knobs.borrow().read_ahead_pages.max(1) as u32;
    let size_pages = m.mm.borrow().inodes.get(inode).size.div_ceil(4096).max(last + 1);
    let (from, to, order) = {
        let mut mm = m.mm.borrow_mut();
        let ahead = &mut mm.inodes.get_mut(inode).ahead;
        let from = ahead.end();
        let to = (from + u64::from(ahead.next_pages(most))).min(size_pages);
        ahead.mark = None;
        if to <= from {
            return;
        }
        let arrived = ahead.arrived;
        let pages = (to - from) as u32;
        let order = if m.profile.ahead_folios { Ahead::next_order(ahead.order, pages) } else { 0 };
        *ahead = Ahead { start: from, pages, mark: Some(from), arrived, next_read: to, order };
        (from, to, order)
    };
    // Where the next part of the file is cached there is nothing to read.
    let missing = (from..to).any(|page| m.mm.borrow().lookup(inode, page).is_none());
    if missing {
        vfs::add_missing(m, task, inode, (from, to), order).await;
    }
    if !missing || vfs::zero_hollow(m, task, inode, to - from) {
        return m.mm.borrow_mut().inodes.get_mut(inode).ahead.note_arrived(to);
    }
    let largest = m.knobs.borrow().request_pages.max(1);
    let mut at = from;
    while at < to {
        let end = (at + largest).min(to);
        let (position, pages) = (m.position(inode, at, false), (end - at) as u32);
        let done = Done::Ahead { inode, end };
        m.mm.borrow_mut().events.pgpgin_kib += u64::from(pages) * 4;
        let request = Request::new(false, position, pages, done);
        block::submit(m, task, request, Site::GetRequestRead).await;
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::{Ahead, context_pages, first_pages};
    use crate::kernel::ContextReadahead::{AnyHistory, MoreThanAsked, Never};

    #[test]
    fn a_cached_page_before_it_made_a_random_read_a_sequential_one_until_3_12() {
        // 16 pages asked, 1 cached before: 17 -> 32, which is all of a limit of 32 pages.
        assert_eq!([Never, AnyHistory, MoreThanAsked].map(|rule| context_pages(rule, 1, 16, 32)), [0, 32, 0]);
        assert_eq!([AnyHistory, MoreThanAsked].map(|rule| context_pages(rule, 0, 16, 32)), [0, 0]);
        assert_eq!(context_pages(MoreThanAsked, 17, 4, 32), 21);
        // get_init_ra_size: up to a 32nd of the limit four times as much, up to a quarter twice, else all of it.
        assert_eq!([1, 4, 5, 8, 9].map(|asked| first_pages(asked, 128)), [4, 16, 16, 16, 32]);
        assert_eq!(first_pages(40, 128), 128);
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
    fn a_page_is_on_its_way_until_a_request_that_ends_behind_it_is_done() {
        let mut ahead = Ahead { start: 100, pages: 64, mark: None, arrived: 100, next_read: 164, order: 0 };
        ahead.note_arrived(132);
        assert_eq!(
            (ahead.is_on_its_way(131), ahead.is_on_its_way(132), ahead.is_on_its_way(164)),
            (false, true, false)
        );
        ahead.note_arrived(164);
        assert!(!ahead.is_on_its_way(163));
    }
}
