//! The thread that starts write-back behind the writer.
//!
//! `sync_file_range` waits for a free request in the device's queue. On a slow device that takes long, and the helper,
//! which prepares the writer's next window, must not wait for it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use crate::core::DataFile;
use crate::plan::Span;
use crate::sys;

#[derive(Debug)]
pub(crate) struct WriteBack {
    /// `None` tells the thread to end.
    work: Option<Sender<(Arc<DataFile>, Span)>>,
    busy: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl WriteBack {
    pub(crate) fn start() -> io::Result<WriteBack> {
        let (work, pieces) = channel::<(Arc<DataFile>, Span)>();
        let busy = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&busy);
        let thread = std::thread::Builder::new().name("precursor-behind".to_owned()).spawn(move || {
            for (file, span) in pieces {
                // A hint; the next sync reports an error of the device.
                let _ = file.file.get().and_then(|own| sys::start_write_back(own, span.at, span.len));
                drop(file);
                seen.store(false, Ordering::Release);
            }
        })?;
        Ok(WriteBack { work: Some(work), busy, thread: Some(thread) })
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

/// Waits for the last call, so that no thread outlives the appender and the program may unload the library. On a slow
/// device this takes no longer than the sync that follows in `close`.
impl Drop for WriteBack {
    fn drop(&mut self) {
        drop(self.work.take());
        // Write-back was only a hint, so a panic of the thread changes nothing.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
