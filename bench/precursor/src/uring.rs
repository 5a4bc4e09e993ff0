//! io_uring: the kernel's threads write, and the writer pays for the submission.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use anyhow::{Result, ensure};
use io_uring::{IoUring, opcode, squeue, types};

use crate::rivals::Writer;

const DEPTH: u32 = 4096;
const SLOT: usize = 256;

pub struct Uring {
    ring: IoUring,
    file: File,
    /// One slot per request; free again once the request has completed.
    slots: Vec<[u8; SLOT]>,
    free: Vec<u32>,
    at: u64,
}

impl Uring {
    pub fn open(path: &Path) -> Result<Uring> {
        let ring = IoUring::new(DEPTH)?;
        Ok(Uring {
            ring,
            file: File::create(path)?,
            slots: vec![[0; SLOT]; DEPTH as usize],
            free: (0..DEPTH).collect(),
            at: 0,
        })
    }

    fn reap(&mut self) -> Result<()> {
        for done in self.ring.completion() {
            ensure!(done.result() >= 0, "io_uring write: {}", std::io::Error::from_raw_os_error(-done.result()));
            self.free.push(u32::try_from(done.user_data())?);
        }
        Ok(())
    }
}

impl Writer for Uring {
    fn append(&mut self, record: &[u8]) -> Result<()> {
        self.reap()?;
        while self.free.is_empty() {
            self.ring.submit_and_wait(1)?;
            self.reap()?;
        }
        let slot = self.free.pop().unwrap_or(0);
        let bytes = &mut self.slots[slot as usize][..record.len()];
        bytes.copy_from_slice(record);
        let write = opcode::Write::new(types::Fd(self.file.as_raw_fd()), bytes.as_ptr(), u32::try_from(record.len())?)
            .offset(self.at)
            .build()
            .flags(squeue::Flags::ASYNC)
            .user_data(u64::from(slot));
        // SAFETY: the slot is not reused before its completion, and `slots` is never resized and lives as long as the
        // ring.
        unsafe { self.ring.submission().push(&write) }?;
        self.ring.submit()?;
        self.at += record.len() as u64;
        Ok(())
    }
}
