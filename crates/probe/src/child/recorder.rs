//! Records the victim's calls, as `flatwater record -p` does.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flatwater_host::record::{RecordOptions, record};
use flatwater_host::run::Progress;
use flatwater_host::tracer::DEFAULT_HZ;
use flatwater_safefs::Dir;

use super::{Command, DONE, READY, answer, next};

pub const DIRECTORY: &str = "recording";

pub fn serve(pid: u32, threshold_ns: u64) -> std::io::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let ending = stop.clone();
    std::thread::spawn(move || match next() {
        Some(Command::End) => ending.store(true, Ordering::Relaxed),
        _ => std::process::exit(1),
    });
    let out = Dir::claim(Path::new(DIRECTORY), None).map_err(std::io::Error::other)?;
    let options = RecordOptions {
        pids: vec![pid],
        threshold_ns,
        sample_hz: 2,
        stack_hz: DEFAULT_HZ,
        imitation: false,
        ..RecordOptions::new(out)
    };
    let mut begun = false;
    let mut tell = |progress: Progress<'_>| {
        if matches!(progress, Progress::Measuring { .. }) && !std::mem::replace(&mut begun, true) {
            answer(READY);
        }
    };
    record(&options, &stop, &mut tell).map_err(std::io::Error::other)?;
    answer(DONE);
    Ok(())
}
