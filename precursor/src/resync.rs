//! Makes durable what recovery has found, also where an earlier sync had failed.

use std::io;
use std::os::unix::fs::FileExt;

use crate::error::RecoverError;
use crate::files::{Names, read_full};

/// No folio is larger: the largest is a huge page of 2 MiB.
const PIECE_BYTES: usize = 4 << 20;
/// Large enough for the blocks of any device that O_DIRECT meets.
const BLOCK_BYTES: usize = 4096;

/// Syncs every file from number `from` on: of those that were rolled in between nothing may ever have been synced.
pub(crate) fn sync_from(names: &Names, from: u64) -> Result<(), RecoverError> {
    let present = names.present().map_err(RecoverError::io("list", names.dir().path()))?;
    for seq in present.into_iter().filter(|seq| *seq >= from) {
        let path = names.path(seq);
        names.existing(seq).and_then(|file| file.sync_all()).map_err(RecoverError::io("sync", &path))?;
    }
    names.sync_dir().map_err(RecoverError::io("sync", names.dir().path()))
}

/// Writes the bytes from position `from` on once more, as they can be read now. After a failed sync the kernel calls their pages
/// clean, so that without this the next sync would succeed and write nothing. `(seq, base)` is the last file.
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

/// Past the page cache where that can be had: on 6.18 an ext4 page written again in place after its write-back had failed was synced
/// without an error and read back as zeros after a remount. (Our reading: its extent stays unwritten, since only the first write
/// would have converted it, `fs/ext4/page-io.c: ext4_end_io_end`.)
///
/// Every attempt drops whole folios (`mm/filemap.c: kiocb_invalidate_pages`), beyond the piece too, and they may hold the only copy. So
/// the piece that follows is in memory before a piece is written, and after a failure both go back into the page cache.
fn rewrite(names: &Names, seq: u64, from: u64) -> io::Result<()> {
    let file = names.existing(seq)?;
    let len = file.metadata()?.len();
    let direct = names.dir().again(&names.name(seq), &file, rustix::fs::OFlags::DIRECT);
    let mut memory = vec![0; 2 * PIECE_BYTES + BLOCK_BYTES];
    let skew = memory.as_ptr().align_offset(BLOCK_BYTES);
    let Some(held) = memory.get_mut(skew..).and_then(|m| m.get_mut(..2 * PIECE_BYTES)) else { return Ok(()) };
    let mut at = from / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
    let mut got = read_full(&file, held, at)?;
    while got > 0 {
        let piece = got.min(PIECE_BYTES);
        // Up to a whole block, with what lay there before: it is cut off below.
        let whole = held.get(..piece.next_multiple_of(BLOCK_BYTES)).unwrap_or_default();
        match direct.as_ref().map(|d| d.write_all_at(whole, at)) {
            Some(Ok(())) => {}
            failed => {
                file.write_all_at(held.get(..got).unwrap_or_default(), at)?;
                // No O_DIRECT on this file system, or other blocks: then that must do.
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
