//! The thread that hands what the writer has left to write-back.
//!
//! `sync_file_range` waits for a place in the device's queue. On a slow device that is a long time, and the thread that prepares
//! the writer's next window has none to lose.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};

use crate::core::DataFile;
use crate::plan::Span;
use crate::sys;

#[derive(Debug)]
pub(crate) struct Behind {
    work: Sender<(Arc<DataFile>, Span)>,
    busy: Arc<AtomicBool>,
}

impl Behind {
    /// The thread ends by itself once this is dropped and its last piece is handed over; nobody waits for it.
    pub(crate) fn start() -> io::Result<Behind> {
        let (work, pieces) = channel::<(Arc<DataFile>, Span)>();
        let busy = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&busy);
        std::thread::Builder::new().name("precursor-behind".to_owned()).spawn(move || {
            for (file, span) in pieces {
                // A hint: an error of the device comes back from the next sync, where it is reported.
                let _ = sys::start_write_back(&file.file, span.at, span.len);
                drop(file);
                seen.store(false, Ordering::Release);
            }
        })?;
        Ok(Behind { work, busy })
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    pub(crate) fn hand(&self, file: Arc<DataFile>, span: Span) {
        self.busy.store(true, Ordering::Release);
        if span.len == 0 || self.work.send((file, span)).is_err() {
            self.busy.store(false, Ordering::Release);
        }
    }
}
