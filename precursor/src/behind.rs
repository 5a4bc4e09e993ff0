//! The thread that hands what the writer has left to write-back.
//!
//! `sync_file_range` waits for a place in the device's queue. On a slow device that is a long time, and the thread that prepares
//! the writer's next window has none to lose.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use crate::core::DataFile;
use crate::plan::Span;
use crate::sys;

#[derive(Debug)]
pub(crate) struct Behind {
    /// `None` once it is to end.
    work: Option<Sender<(Arc<DataFile>, Span)>>,
    busy: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Behind {
    pub(crate) fn start() -> io::Result<Behind> {
        let (work, pieces) = channel::<(Arc<DataFile>, Span)>();
        let busy = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&busy);
        let thread = std::thread::Builder::new().name("precursor-behind".to_owned()).spawn(move || {
            for (file, span) in pieces {
                // A hint: an error of the device comes back from the next sync, where it is reported.
                let _ = sys::start_write_back(&file.file, span.at, span.len);
                drop(file);
                seen.store(false, Ordering::Release);
            }
        })?;
        Ok(Behind { work: Some(work), busy, thread: Some(thread) })
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    pub(crate) fn hand(&self, file: Arc<DataFile>, span: Span) {
        self.busy.store(true, Ordering::Release);
        let handed = span.len > 0 && self.work.as_ref().is_some_and(|work| work.send((file, span)).is_ok());
        if !handed {
            self.busy.store(false, Ordering::Release);
        }
    }
}

/// Waits until the last range is handed over: no thread outlives the appender, so that the program may unload the library. On a slow
/// device that takes no longer than the sync that follows at close.
impl Drop for Behind {
    fn drop(&mut self) {
        drop(self.work.take());
        // What it did was a hint, and so a panic of it changes nothing.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
