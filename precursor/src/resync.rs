//! Makes recovered data durable, also after a sync has failed.

use std::io;
use std::os::unix::fs::FileExt;

use crate::error::RecoverError;
use crate::files::{Names, read_full};
use crate::handles::identity;

/// Longer than any folio, of which the largest is a huge page of 2 MiB.
const PIECE_BYTES: usize = 4 << 20;
/// Alignment for O_DIRECT, at least the block size of the device.
const BLOCK_BYTES: usize = 4096;

/// Syncs every file from number `from` on, since files rolled in between may never have been synced.
pub(crate) fn sync_from(names: &Names, from: u64) -> Result<(), RecoverError> {
    let present = names.present().map_err(RecoverError::io("list", names.dir().path()))?;
    for seq in present.into_iter().filter(|seq| *seq >= from) {
        let path = names.path(seq);
        names.existing(seq).and_then(|file| file.sync_all()).map_err(RecoverError::io("sync", &path))?;
    }
    names.sync_dir().map_err(RecoverError::io("sync", names.dir().path()))
}

/// Reads the data from position `from` on and writes it again. After a failed sync the kernel marks the pages clean, so
/// without this the next sync would succeed and write nothing. The last file is number `seq` and begins at position
/// `base`.
pub(crate) fn rewrite_from(names: &Names, seq: u64, base: u64, from: u64) -> Result<(), RecoverError> {
    let (mut seq, mut base) = (seq, base);
    loop {
        let path = names.path(seq);
        rewrite(names, seq, from.saturating_sub(base)).map_err(RecoverError::io("write again", &path))?;
        let before = if base > from { seq.checked_sub(1) } else { None };
        let Some(before) = before else { return Ok(()) };
        let Ok(Some(there)) = names.dir().stat(&names.name(before)) else { return Ok(()) };
        (seq, base) = (before, base.saturating_sub(there.len));
    }
}

/// With O_DIRECT where possible. On 6.18, an ext4 page that was rewritten through the page cache after its write-back
/// had failed was synced without an error, and read as zeros after a remount. (Probably its extent stays unwritten,
/// since only the first write would have converted it, `fs/ext4/page-io.c: ext4_end_io_end`.)
///
/// Each direct write drops whole folios (`mm/filemap.c: kiocb_invalidate_pages`), which may extend beyond the piece and
/// hold the only copy of the data. So the next piece is read before a piece is written, and after a failure both are
/// written to the page cache.
fn rewrite(names: &Names, seq: u64, from: u64) -> io::Result<()> {
    let file = names.existing(seq)?;
    let len = file.metadata()?.len();
    let direct = names.dir().again(&names.name(seq), identity(&file)?, rustix::fs::OFlags::DIRECT);
    let mut memory = vec![0; 2 * PIECE_BYTES + BLOCK_BYTES];
    let skew = memory.as_ptr().align_offset(BLOCK_BYTES);
    let Some(held) = memory.get_mut(skew..).and_then(|m| m.get_mut(..2 * PIECE_BYTES)) else { return Ok(()) };
    let mut at = from / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
    let mut got = read_full(&file, held, at)?;
    while got > 0 {
        let piece = got.min(PIECE_BYTES);
        // Padded to a whole block with the buffer's old contents, which are cut off below.
        let whole = held.get(..piece.next_multiple_of(BLOCK_BYTES)).unwrap_or_default();
        match direct.as_ref().map(|d| d.write_all_at(whole, at)) {
            Some(Ok(())) => {}
            failed => {
                file.write_all_at(held.get(..got).unwrap_or_default(), at)?;
                // This file system has no O_DIRECT, or larger blocks: the write through the page cache remains.
                match failed {
                    Some(Err(e)) if e.raw_os_error() != Some(libc::EINVAL) => return Err(e),
                    _ => {}
                }
            }
        }
        held.copy_within(piece..got, 0);
        at += piece as u64;
        let kept = got - piece;
        let next = held.get_mut(kept..).map(|rest| read_full(&file, rest, at + kept as u64)).transpose()?;
        got = kept + if at + kept as u64 >= len { 0 } else { next.unwrap_or(0) };
    }
    // The last block was written whole.
    file.set_len(len)
}
