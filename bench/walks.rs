//! Measures what the kernel's walks over lists cost per page or slab: `cargo bench --bench walks`.
//!
//! Three constants of the model are such walks over memory that is in no CPU cache: `slab_walk_ns` (s_show visits each
//! slab of a list, mm/slab.c, 2.6.32), `pass_page_ns` (isolate_lru_folios moves a page that it may not take to another
//! list, mm/vmscan.c, 6.1) and `scan_mapped_ns` (shrink_page_list examines a mapped page and puts it back, 2.6.32).
//! Each walk runs here on synthetic structures of the kernel's sizes, on lists in address order and in random order.
//! Prints the median of five runs in ns of CPU time, with the range. `clear_huge_percent` is the time in which the
//! running kernel clears a huge page at its first touch, in per cent of copying cached bytes with read(), both per 4
//! KiB.

use std::hint::black_box;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// A slab's descriptor is at the beginning of the 4 KiB page (struct slab: list, colouroff, s_mem, inuse).
const SLABS: usize = 300_000;
const PAGE_WORDS: usize = 512;
/// 4 million struct page, a quarter of a GiB.
const PAGES: usize = 4_000_000;
/// zone->wait_table has one hash bucket per 256 pages, at most 4096 (wait_table_hash_nr_entries); a wait_queue_head_t
/// has 24 bytes.
const WAIT_BUCKETS: usize = 4096;
const RUNS: usize = 5;
const END: u32 = u32::MAX;

/// CPU time of this thread, which excludes the time of other threads on the CPU.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("/proc/thread-self/schedstat");
    text.split_whitespace().next().and_then(|first| first.parse().ok()).expect("CPU time in ns")
}

/// The order of a list of `count` elements: by address, or shuffled (with a linear congruential generator).
fn order(count: usize, random: bool) -> Vec<u32> {
    let mut all: Vec<u32> = (0..count as u32).collect();
    if random {
        let mut state = 88_172_645_463_325_252_u64;
        for place in (1..count).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            all.swap(place, (state >> 33) as usize % (place + 1));
        }
    }
    all
}

/// s_show: adds up the objects in use of each slab on the list.
fn slabs(random: bool) -> impl FnMut() -> f64 {
    let order = order(SLABS, random);
    let mut pages = vec![0_u64; SLABS * PAGE_WORDS];
    for pair in order.windows(2) {
        let at = pair[0] as usize * PAGE_WORDS;
        (pages[at], pages[at + 4]) = (u64::from(pair[1]), 37);
    }
    pages[order[SLABS - 1] as usize * PAGE_WORDS] = u64::from(END);
    let first = order[0];
    move || {
        let started_ns = cpu_ns();
        let (mut at, mut objects) = (u64::from(first), 0);
        while at != u64::from(END) {
            let slab = at as usize * PAGE_WORDS;
            objects += pages[slab + 4];
            at = pages[slab];
        }
        black_box(objects);
        (cpu_ns() - started_ns) as f64 / SLABS as f64
    }
}

/// struct page on x86-64: flags, count, mapcount, mapping and the links of the LRU list, in one cache line.
#[repr(align(64))]
#[derive(Debug)]
struct Page {
    flags: AtomicU64,
    count: AtomicU32,
    mapcount: AtomicU32,
    next: u32,
    previous: u32,
}

fn pages(random: bool) -> (Vec<Page>, u32) {
    let order = order(PAGES, random);
    let blank = || Page {
        flags: AtomicU64::new(1 << 5),
        count: AtomicU32::new(2),
        mapcount: AtomicU32::new(1),
        next: END,
        previous: END,
    };
    let mut all: Vec<Page> = std::iter::repeat_with(blank).take(PAGES).collect();
    for pair in order.windows(2) {
        all[pair[0] as usize].next = pair[1];
        all[pair[1] as usize].previous = pair[0];
    }
    (all, order[0])
}

/// Moves a page to the head of another list (list_move).
fn move_to(all: &mut [Page], at: u32, head: &mut u32) {
    if *head != END {
        all[*head as usize].previous = at;
    }
    let page = &mut all[at as usize];
    (page.next, page.previous) = (*head, END);
    *head = at;
}

/// isolate_lru_folios: skips pages of a zone or kind that the caller may not take.
fn pass(random: bool) -> impl FnMut() -> f64 {
    let (mut all, mut first) = pages(random);
    move || {
        let started_ns = cpu_ns();
        let (mut at, mut skipped) = (first, END);
        while at != END {
            let next = all[at as usize].next;
            if all[at as usize].mapcount.load(Ordering::Relaxed) > 0 {
                move_to(&mut all, at, &mut skipped);
            }
            at = next;
        }
        first = skipped;
        (cpu_ns() - started_ns) as f64 / PAGES as f64
    }
}

/// isolate_lru_pages, shrink_page_list and putback_lru_page for a page that is mapped and that the caller may not
/// unmap: get_page_unless_zero, ClearPageLRU, trylock_page, page_mapped, unlock_page with its bucket of the wait table,
/// SetPageLRU, put_page.
fn mapped(random: bool) -> impl FnMut() -> f64 {
    let (mut all, mut first) = pages(random);
    let waiting = vec![[0_u64; 3]; WAIT_BUCKETS];
    move || {
        let started_ns = cpu_ns();
        let (mut at, mut kept, mut waiters) = (first, END, 0);
        while at != END {
            let page = &all[at as usize];
            let next = page.next;
            page.count.fetch_add(1, Ordering::SeqCst);
            page.flags.fetch_and(!(1 << 5), Ordering::SeqCst);
            page.flags.fetch_or(1, Ordering::SeqCst);
            if page.mapcount.load(Ordering::Relaxed) > 0 {
                page.flags.fetch_and(!1, Ordering::SeqCst);
                let bucket = u64::from(at).wrapping_mul(0x9e37_ffff_fffc_0001) >> 52;
                waiters += waiting[bucket as usize % WAIT_BUCKETS][1];
            }
            page.flags.fetch_or(1 << 5, Ordering::SeqCst);
            page.count.fetch_sub(1, Ordering::SeqCst);
            move_to(&mut all, at, &mut kept);
            at = next;
        }
        black_box(waiters);
        first = kept;
        (cpu_ns() - started_ns) as f64 / PAGES as f64
    }
}

/// Size of the memory that is touched first, and of the file that is read.
const TOUCHED_BYTES: usize = 256 << 20;
const HUGE_BYTES: usize = 2 << 20;
const CALL_BYTES: usize = 1 << 20;

/// A new mapping with huge pages, and the offset of the first huge page in it.
fn huge_mapping() -> (*mut std::ffi::c_void, usize) {
    let (bytes, flags) = (TOUCHED_BYTES + HUGE_BYTES, MapFlags::PRIVATE);
    // SAFETY: a new mapping at an address that the kernel chooses overwrites nothing.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) };
    let start = start.expect("256 MiB of memory");
    // SAFETY: the range is the mapping made above; the advice changes no contents.
    unsafe { madvise(start, bytes, Advice::LinuxHugepage) }.expect("transparent huge pages");
    (start, start.align_offset(HUGE_BYTES))
}

/// Touches new memory with huge pages, which is unmapped after each run: clear_huge_page.
fn cleared() -> impl FnMut() -> f64 {
    move || {
        let (start, skip) = huge_mapping();
        let started_ns = cpu_ns();
        for at in (skip..skip + TOUCHED_BYTES).step_by(HUGE_BYTES) {
            // SAFETY: `at` is below `skip + TOUCHED_BYTES`, so inside the mapping, which only this function uses.
            unsafe { start.cast::<u8>().add(at).write_volatile(1) };
        }
        let ns = cpu_ns() - started_ns;
        // SAFETY: the mapping is unmapped once, and nothing refers to it any more.
        unsafe { munmap(start, TOUCHED_BYTES + HUGE_BYTES) }.expect("unmapped");
        ns as f64 / (TOUCHED_BYTES / 4096) as f64
    }
}

/// Reads a cached file into huge pages that are in use, so that source and destination are not in CPU caches.
fn read_again() -> impl FnMut() -> f64 {
    let mut file = tempfile::tempfile().expect("a file");
    let (start, skip) = huge_mapping();
    // SAFETY: the range lies in a mapping that is never unmapped and is used only here.
    let memory = unsafe { std::slice::from_raw_parts_mut(start.cast::<u8>().add(skip), TOUCHED_BYTES) };
    memory.fill(1);
    file.write_all(memory).expect("256 MiB of disk");
    move || {
        let started_ns = cpu_ns();
        for (number, part) in memory.chunks_mut(CALL_BYTES).enumerate() {
            file.read_exact_at(part, (number * CALL_BYTES) as u64).expect("cached bytes");
        }
        black_box(&memory);
        (cpu_ns() - started_ns) as f64 / (TOUCHED_BYTES / 4096) as f64
    }
}

fn report(name: &str, mut walk: impl FnMut() -> f64) {
    let mut took: Vec<f64> = (0..RUNS).map(|_| walk()).collect();
    took.sort_by(f64::total_cmp);
    println!("{name:<40} {:>7.1} ns ({:.1} to {:.1})", took[RUNS / 2], took[0], took[RUNS - 1]);
}

fn main() {
    report("4 KiB of a huge page cleared", cleared());
    report("4 KiB copied by read()", read_again());
    for (random, how) in [(false, "by address"), (true, "in random order")] {
        report(&format!("a slab of s_show, {how}"), slabs(random));
        report(&format!("a page passed over, {how}"), pass(random));
        report(&format!("a mapped page scanned, {how}"), mapped(random));
    }
}
