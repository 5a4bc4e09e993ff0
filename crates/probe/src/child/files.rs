//! Files without names in the probe's directory.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use flatwater_safefs::Dir;
use rustix::fs::{Advice, fadvise};

pub const BLOCK: usize = 4096;
pub const CHUNK: usize = 256 << 10;

/// A new file whose name is removed at once, so that it disappears with the process.
pub fn nameless(dir: &Dir, name: &str) -> io::Result<File> {
    let name = format!("{name}-{}", std::process::id());
    let file = dir.create(&name).map_err(io::Error::other)?;
    dir.remove(&name).map_err(io::Error::other)?;
    Ok(file)
}

/// Writes the file's content and waits until it is on the device. The data cannot be compressed.
pub fn fill(file: &File, bytes: u64, seed: u64) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    let mut at = 0;
    while at < bytes {
        scramble(&mut chunk, seed ^ at);
        let length = chunk.len().min(usize::try_from(bytes - at).unwrap_or(usize::MAX));
        file.write_all_at(chunk.get(..length).unwrap_or_default(), at)?;
        at += length as u64;
    }
    file.sync_data()
}

/// Fills the buffer with bytes that a compressing file system cannot make smaller.
pub fn scramble(buffer: &mut [u8], seed: u64) {
    let mut state = seed | 1;
    for word in buffer.chunks_mut(8) {
        // Xorshift (Marsaglia 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        for (byte, random) in word.iter_mut().zip(state.to_le_bytes()) {
            *byte = random;
        }
    }
}

/// Removes the clean pages of this range from the page cache.
pub fn forget(file: &File, offset: u64, bytes: u64) {
    // Only advice: a file system in memory keeps its pages.
    let _ = fadvise(file, offset, std::num::NonZeroU64::new(bytes), Advice::DontNeed);
}

/// Reads page by page, without readahead.
pub fn read_singly(file: &File) {
    let _ = fadvise(file, 0, None, Advice::Random);
}

/// Starts the writeback of a range; `wait` for an earlier writeback first.
pub fn start_writeback(file: &File, offset: u64, bytes: u64, wait: bool) -> io::Result<()> {
    let flags = if wait { libc::SYNC_FILE_RANGE_WAIT_BEFORE } else { 0 } | libc::SYNC_FILE_RANGE_WRITE;
    let (offset, bytes) = (offset.cast_signed(), bytes.cast_signed());
    // SAFETY: takes a descriptor and numbers, no memory of this process.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), offset, bytes, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
