//! /proc/kpageflags: which page frames are free, and therefore which page blocks are partly free. The file has one word
//! of flags per frame (Documentation/admin-guide/mm/pagemap.rst); /proc/zoneinfo has the boundaries of zones.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::text::Scan;
use super::zoneinfo::zone_header;
use flatwater_recording::{PartialBlock, ZoneBlocks};

/// include/uapi/linux/kernel-page-flags.h: KPF_LRU, KPF_BUDDY (set on every frame of a free piece: fs/proc/page.c,
/// stable_page_flags).
const LISTED: u64 = 1 << 5;
const FREE: u64 = 1 << 10;

const BLOCK_ORDER: u32 = 9;
const BLOCK_FRAMES: u64 = 1 << BLOCK_ORDER;
const WORD_BYTES: usize = size_of::<u64>();
/// 64 GiB of 4 KiB pages, more memory than any guest that is compared with the simulator.
const FRAMES_MAX: u64 = 16 << 20;

/// The frames of a zone, from `start` up to but not including `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    node: u32,
    zone: Vec<u8>,
    start: u64,
    end: u64,
}

/// Adds to each zone its partly free blocks. Fails if a zone ends above `FRAMES_MAX`.
pub fn read(flags: &File, zoneinfo: &[u8], zones: &mut [ZoneBlocks]) -> io::Result<()> {
    let spans = spans(zoneinfo);
    if let Some(beyond) = spans.iter().find(|span| span.end > FRAMES_MAX) {
        let zone = String::from_utf8_lossy(&beyond.zone);
        return Err(io::Error::other(format!("zone {zone} ends at page {}, above page {FRAMES_MAX}", beyond.end)));
    }
    for span in spans {
        let known = zones.iter_mut().find(|zone| zone.node == span.node && zone.zone.as_bytes() == span.zone);
        let Some(known) = known else { continue };
        let first = span.start - span.start % BLOCK_FRAMES;
        for block in (first..span.end).step_by(BLOCK_FRAMES as usize) {
            let mut bytes = [0; BLOCK_FRAMES as usize * WORD_BYTES];
            // The file ends with the last frame of memory, which may be in the middle of a block.
            let read = flags.read_at(&mut bytes, block * WORD_BYTES as u64)?;
            let words = bytes[..read].as_chunks::<WORD_BYTES>().0.iter().map(|word| u64::from_ne_bytes(*word));
            let own = |frame: &(u64, u64)| (span.start..span.end).contains(&frame.0);
            let frames: Vec<(u64, u64)> = (block..).zip(words).filter(own).collect();
            known.partial.extend(partial(&frames));
        }
    }
    Ok(())
}

/// The partly free block of these frames; `None` if none of them or all of them are free.
fn partial(frames: &[(u64, u64)]) -> Option<PartialBlock> {
    let free: Vec<u64> = frames.iter().filter(|(_, flags)| flags & FREE != 0).map(|(frame, _)| *frame).collect();
    if free.is_empty() || free.len() as u64 == BLOCK_FRAMES {
        return None;
    }
    let mut pieces = vec![0; BLOCK_ORDER as usize];
    for run in free.chunk_by(|one, next| one + 1 == *next) {
        let (mut frame, mut left) = (run[0], run.len() as u64);
        while left > 0 {
            // Free neighbours are merged as far as their address allows (mm/page_alloc.c: __free_one_page).
            let order = frame.trailing_zeros().min(left.ilog2());
            pieces[order as usize] += 1;
            (frame, left) = (frame + (1 << order), left - (1 << order));
        }
    }
    let listed = frames.iter().filter(|(_, flags)| flags & LISTED != 0).count();
    let whole = frames.len() as u64 == BLOCK_FRAMES;
    Some(PartialBlock { free: pieces, listed_pages: listed as u64, whole })
}

/// The frames of each zone; an empty zone has an empty span.
fn spans(zoneinfo: &[u8]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let (mut scan, mut spanned) = (Scan::new(zoneinfo), 0);
    let mut zone = None;
    while !scan.is_empty() {
        if let Some(found) = zone_header(&mut scan) {
            (zone, spanned) = (Some(found), 0);
        }
        scan.blanks();
        if scan.take(b"spanned ") {
            spanned = scan.number().and_then(|frames| u64::try_from(frames).ok()).unwrap_or(0);
        } else if scan.take(b"start_pfn:")
            && let Some(start) = scan.number().and_then(|frame| u64::try_from(frame).ok())
            && let Some((node, name)) = zone.take()
        {
            // An empty zone may start anywhere.
            let end = if spanned == 0 { start } else { start.saturating_add(spanned) };
            spans.push(Span { node, zone: name.to_vec(), start, end });
        }
        scan.next_line();
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::{BLOCK_FRAMES, FRAMES_MAX, FREE, LISTED, Span, partial, read, spans};
    use flatwater_recording::{PartialBlock, ZoneBlocks};
    use std::io::Write;

    const ZONEINFO: &[u8] =
        b"Node 0, zone      DMA\n  pages free     3\n        spanned  4095\n  start_pfn:           1\n\
        Node 0, zone    DMA32\n        spanned  0\n  start_pfn:           0\n\
        Node 1, zone    DMA32\n        spanned  700\n  pagesets\n    cpu: 0\n  start_pfn:           4096\n";

    #[test]
    fn the_boundaries_of_zones_are_read() {
        let dma = Span { node: 0, zone: b"DMA".to_vec(), start: 1, end: 4096 };
        let none = Span { node: 0, zone: b"DMA32".to_vec(), start: 0, end: 0 };
        let normal = Span { node: 1, zone: b"DMA32".to_vec(), start: 4096, end: 4796 };
        assert_eq!(spans(ZONEINFO), [dma, none, normal]);
        let hostile = b"Node 0, zone x\n spanned 9223372036854775807\n start_pfn: 9223372036854775807\n start_pfn: 1\n";
        assert_eq!(spans(hostile).iter().map(|span| span.end - span.start).collect::<Vec<_>>(), [i64::MAX as u64]);
        assert!(spans(b"").is_empty() && spans(b"start_pfn: 3\nNode 0, zone DMA\n start_pfn: x\n").is_empty());
    }

    /// Frames from 8192 on, of which those in the given runs are free.
    fn frames(free: &[(u64, u64)], end: u64) -> Vec<(u64, u64)> {
        let is_in = |at: u64| free.iter().any(|(from, to)| (*from..*to).contains(&at));
        let flags = |at: u64| if is_in(at) { FREE } else { LISTED };
        (0..end).map(|at| (8192 + at, flags(at))).collect()
    }

    #[test]
    fn runs_of_free_frames_are_pieces_by_address() {
        // Pieces: 3; 4 to 7; 8 to 9; 256 to 511.
        let block = partial(&frames(&[(3, 10), (256, 512)], BLOCK_FRAMES)).expect("free in part");
        assert_eq!(block.free, [1, 1, 1, 0, 0, 0, 0, 0, 1]);
        assert_eq!((block.listed_pages, block.whole), (512 - 7 - 256, true));
        assert_eq!(partial(&frames(&[(0, 512)], BLOCK_FRAMES)), None);
        assert_eq!(partial(&frames(&[], BLOCK_FRAMES)), None);
    }

    #[test]
    fn a_short_last_block_is_not_whole_even_if_all_frames_are_free() {
        let block = partial(&frames(&[(0, 464)], 464)).expect("free in part");
        assert_eq!(block, PartialBlock { free: vec![0, 0, 0, 0, 1, 0, 1, 1, 1], listed_pages: 0, whole: false });
    }

    /// H7: frames above the limit were left out silently.
    #[test]
    fn more_memory_than_the_limit_is_an_error() {
        let file = tempfile::tempfile().expect("a file");
        let zone = |start: u64| format!("Node 0, zone Normal\n spanned 512\n start_pfn: {start}\n");
        let read = |start| read(&file, zone(start).as_bytes(), &mut []).map_err(|error| error.to_string());
        assert_eq!(read(FRAMES_MAX - 512), Ok(()));
        assert_eq!(read(FRAMES_MAX), Err("zone Normal ends at page 16777728, above page 16777216".to_owned()));
    }

    #[test]
    fn each_zone_gets_its_own_blocks_from_the_file() {
        let mut file = tempfile::tempfile().expect("a file");
        let mut words = vec![0_u64; 4796];
        words[4000] = FREE;
        words[4700..4796].fill(FREE);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        file.write_all(&bytes).expect("written");
        let zone = |node, zone: &str| ZoneBlocks { node, zone: zone.to_owned(), ..ZoneBlocks::default() };
        let mut zones = [zone(0, "DMA"), zone(1, "DMA32"), zone(2, "DMA32")];
        read(&file, ZONEINFO, &mut zones).expect("read");
        let free = |at: usize| -> Vec<Vec<u64>> { zones[at].partial.iter().map(|block| block.free.clone()).collect() };
        assert_eq!(free(0), [vec![1, 0, 0, 0, 0, 0, 0, 0, 0]]);
        // Free: 4700 to 4795, in pieces of 4 + 32 + 32 + 16 + 8 + 4.
        assert_eq!(free(1), [vec![0, 0, 2, 1, 1, 2, 0, 0, 0]]);
        assert!(!zones[1].partial[0].whole && zones[2].partial.is_empty());
    }
}
