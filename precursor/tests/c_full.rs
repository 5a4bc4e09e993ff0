//! In C, an append that finds no room makes no allocation, since a full ring refuses many appends.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::CString;
use std::sync::atomic::{AtomicU64, Ordering};

use precursor::c::{
    PRECURSOR_FAIL, PRECURSOR_FULL, PRECURSOR_OK, PRECURSOR_RING, precursor_append, precursor_close,
    precursor_get_stats, precursor_open, precursor_options, precursor_options_default, precursor_stats,
};

struct Counting;

thread_local! {
    static MINE: AtomicU64 = const { AtomicU64::new(0) };
}

// SAFETY: every call goes to the system's allocator with unchanged arguments; the counter is a thread-local atomic that
// does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = MINE.try_with(|mine| mine.fetch_add(1, Ordering::Relaxed));
        // SAFETY: the caller keeps the contract of `alloc`, which is the same for `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and `System` has allocated the block.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_full_ring_is_answered_without_an_allocation() {
    let dir = tempfile::tempdir().unwrap();
    let path = CString::new(dir.path().join("log").to_str().unwrap()).unwrap();
    let (mut fulls, mut allocations) = (0u64, 0);
    // SAFETY: every pointer is to a local that outlives the call, or null where the interface allows it; `handle` is
    // open until `precursor_close` and used by this thread only.
    unsafe {
        let mut options: precursor_options = std::mem::zeroed();
        assert_eq!(precursor_options_default(&raw mut options, size_of::<precursor_options>()), PRECURSOR_OK);
        (options.mode, options.back_pressure, options.ring_bytes) = (PRECURSOR_RING, PRECURSOR_FAIL, 64 << 10);
        let mut handle = std::ptr::null_mut();
        let opened = precursor_open(path.as_ptr(), &raw const options, &raw mut handle, std::ptr::null_mut(), 0);
        assert_eq!(opened, PRECURSOR_OK);
        let record = [7; 4000];
        for _ in 0..2_000_000 {
            let before = MINE.with(|mine| mine.load(Ordering::Relaxed));
            let code = precursor_append(handle, record.as_ptr(), record.len(), std::ptr::null_mut());
            let after = MINE.with(|mine| mine.load(Ordering::Relaxed));
            allocations += after - before;
            assert!(code == PRECURSOR_OK || code == PRECURSOR_FULL, "{code}");
            fulls += u64::from(code == PRECURSOR_FULL);
            if fulls > 1000 {
                break;
            }
        }
        let mut stats = precursor_stats { size: size_of::<precursor_stats>(), ..Default::default() };
        assert_eq!(precursor_get_stats(handle, &raw mut stats), PRECURSOR_OK);
        assert!(stats.appends > 0);
        assert_eq!(precursor_close(handle, std::ptr::null_mut(), 0), PRECURSOR_OK);
    }
    assert!(fulls > 100, "the ring was hardly ever full: {fulls}");
    assert_eq!(allocations, 0, "of {fulls} refusals");
}
