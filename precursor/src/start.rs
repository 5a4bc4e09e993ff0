//! Starts the ring, the windows and the helper threads of an opened appender.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::appender::{Appender, Side};
use crate::core::{Core, DataFile};
use crate::error::OpenError;
use crate::flush::{Flusher, grow};
use crate::frame;
use crate::helper::Helper;
use crate::hot::{Hot, HotPage};
use crate::keep::keep;
use crate::lane::Lane;
use crate::mode::Mode;
use crate::open::Plan;
use crate::options::{BackPressure, Durability, Framing, Options};
use crate::plan::Planner;
use crate::ring::{RingMemory, RingNeeds, RingSide, Spare};
use crate::stage::add_stage;
use crate::syncer::sync_every;
use crate::sys::{self, page_bytes};
use crate::timer::Timer;
use crate::window::WindowSide;
use crate::written::WrittenSide;

pub(crate) fn start(options: &Options, core: Arc<Core>, plan: Plan) -> Result<Appender, OpenError> {
    let path: &Path = &options.path;
    let cursor = plan.place.base + plan.place.len;
    let framed = options.framing == Framing::Records;
    let lane =
        Lane { base: std::ptr::null_mut(), mask: u64::MAX, cursor, limit: cursor, framed, number: plan.place.number };
    let hot = HotPage::new(Hot { lane, time: 0, worst_ticks: 0, appends: 0, reserved: None })
        .map_err(OpenError::io("create the writer's page of", path))?;
    let current = Arc::clone(&crate::core::lock(&core.files).current);
    let timer = Timer::calibrated();
    let mut appender = Appender {
        born: core.born,
        hot,
        measure: options.measure,
        timer,
        record_max: 0,
        side: Side::Written(WrittenSide::new(Arc::clone(&current), plan.place.base, timer)),
        core,
        threads: Vec::new(),
        keeper: None,
        reasons: plan.choice.reasons.clone(),
        durability: options.durability,
    };
    appender.record_max = record_max(&appender.core, u64::MAX);
    match plan.choice.mode {
        Mode::Plain => {}
        Mode::Ring => {
            start_ring(options, &mut appender, &plan, current).map_err(OpenError::io("create the ring of", path))?
        }
        Mode::Window | Mode::Prefetch => {
            start_ahead(options, &mut appender, &plan, current)
                .map_err(OpenError::io("prepare the first window of", path))?;
        }
    }
    if let Durability::Every(period) = options.durability {
        let core = Arc::clone(&appender.core);
        spawn(options, &mut appender, plan.node, "precursor-sync", move || sync_every(&core, period))
            .map_err(OpenError::io("start a thread for", path))?;
    }
    if options.keep.is_needed() || framed {
        let (core, limits) = (Arc::clone(&appender.core), options.keep);
        spawn(options, &mut appender, plan.node, "precursor-keep", move || keep(&core, limits))
            .map_err(OpenError::io("start a thread for", path))?;
        appender.keeper = appender.threads.pop();
    }
    Ok(appender)
}

fn start_ring(options: &Options, appender: &mut Appender, plan: &Plan, file: Arc<DataFile>) -> io::Result<()> {
    let core = Arc::clone(&appender.core);
    let asked = options.ring_bytes.max(page_bytes()).next_power_of_two();
    let most = plan.choice.budget.bytes.max(16 * page_bytes());
    let capacity = asked.min(1 << most.ilog2());
    if capacity < asked {
        appender.reasons.push(format!(
            "ring of {} KiB instead of {}: {}",
            capacity >> 10,
            asked >> 10,
            plan.choice.budget.bound.name()
        ));
    }
    if let Some(why) = core.live.nameless() {
        appender.reasons.push(format!(
            "no shared-memory file ({why}): the ring is lost with the process, and only sync_to protects its records"
        ));
    }
    let needs = RingNeeds { dir: core.named_shm(), stem: &core.stem, node: plan.node, locked: core.locked };
    let ring = Arc::new(RingMemory::create(&needs, 0, capacity)?);
    if let Some(entry) = core.live.rings.first() {
        entry.capacity.store(capacity, Ordering::Relaxed);
        entry.start.store(appender.hot.lane.cursor, Ordering::Relaxed);
        core.live.ring_count.store(1, Ordering::Release);
    }
    (appender.hot.lane.base, appender.hot.lane.mask) = (ring.base(), capacity - 1);
    appender.record_max = record_max(&core, capacity / 2);
    let spare = Arc::new(Spare::none());
    let side = RingSide::new(
        Arc::clone(&ring),
        Arc::clone(&spare),
        appender.hot.lane.cursor,
        (plan.place.seq, plan.place.base),
    );
    appender.side = Side::Ring(side);
    let mut made = None;
    if let BackPressure::Grow { .. } = options.back_pressure {
        let (send, receive) = std::sync::mpsc::channel();
        made = Some(receive);
        let (core, node) = (Arc::clone(&core), plan.node);
        spawn(options, appender, plan.node, "precursor-grow", move || grow(&core, &spare, &send, node, capacity))?;
    }
    let flusher = Flusher::new(Arc::clone(&core), Planner::new(plan.tuning), ring, made, file, plan.place.base);
    spawn(options, appender, plan.node, "precursor-flush", move || flusher.run())?;
    remember_helper(appender);
    Ok(())
}

fn start_ahead(options: &Options, appender: &mut Appender, plan: &Plan, file: Arc<DataFile>) -> io::Result<()> {
    let core = Arc::clone(&appender.core);
    if plan.choice.mode == Mode::Window {
        add_stage(options, appender, &plan.choice, plan.node);
    }
    let helper = Helper::new(core, Planner::new(plan.tuning), Arc::clone(&file), plan.place.base, plan.place.len)?;
    spawn(options, appender, plan.node, "precursor-ahead", move || helper.run())?;
    remember_helper(appender);
    await_first_window(appender, &file, plan)?;
    if plan.choice.mode == Mode::Window {
        let window = WindowSide::enter(&appender.core, file, plan.place.base, &mut appender.hot.lane);
        appender.side = Side::Window(window);
    }
    // What the helper prepares before a writer that waits. `prefetch` waits for its zeros.
    let t = &plan.tuning;
    let warm = t.ahead_bytes_min.saturating_sub(t.window_bytes).max(t.window_bytes / 2);
    let ring = appender.core.stage.get().map_or(u64::MAX, |stage| stage.ring.capacity / 2);
    appender.record_max = record_max(&appender.core, warm.min(ring));
    Ok(())
}

/// Longest record, bytes, if the mode takes `bytes_max` bytes at once, frame included. It must fit into one file, and
/// its length into a frame's word.
fn record_max(core: &Core, bytes_max: u64) -> usize {
    let head = if core.framing == Framing::Records { frame::FILE_HEADER_LEN as u64 } else { 0 };
    let file_max = if core.roll_bytes == 0 { u64::MAX } else { core.roll_room() - head };
    longest_record(bytes_max.min(file_max), core.framing)
}

fn longest_record(bytes_max: u64, framing: Framing) -> usize {
    let header = if framing == Framing::Records { frame::HEADER as u64 } else { 0 };
    // Frames are multiples of a word.
    let payload_max = bytes_max / frame::WORD as u64 * frame::WORD as u64 - header.min(bytes_max);
    usize::try_from(payload_max).map_or(frame::LEN_MAX, |len| len.min(frame::LEN_MAX))
}

/// Waits until the first append finds its window; further windows are prepared in the background. With a fallback ring,
/// waits at most 200 ms, since preparation is slow on a throttled device.
fn await_first_window(appender: &mut Appender, file: &DataFile, plan: &Plan) -> io::Result<()> {
    const PATIENCE: Duration = Duration::from_millis(200);
    let end = if plan.tuning.roll_bytes == 0 { u64::MAX } else { plan.tuning.roll_bytes };
    let enough = (plan.place.len + plan.tuning.window_bytes / 2).min(end);
    let core = &appender.core;
    let begun = Instant::now();
    while file.warm.load(Ordering::Acquire) < enough {
        if let Some(f) = core.failure.get() {
            return Err(io::Error::other(format!("{}: {}", f.what, f.message)));
        }
        if let Some(left) = core.space.exhausted() {
            let message = format!("out of space, {left} bytes left on the file system");
            return Err(io::Error::new(io::ErrorKind::StorageFull, message));
        }
        if core.stage.get().is_some() && begun.elapsed() > PATIENCE {
            let why = "the first window was not ready after 200 ms (a slow device, or no CPU for the helper): appends begin in the ring";
            appender.reasons.push(why.to_owned());
            break;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

fn remember_helper(appender: &Appender) {
    if let Some(last) = appender.threads.last() {
        // Set once per appender, here.
        let _ = appender.core.helper.set(last.thread().clone());
    }
}

/// Fails the appender if its thread panics, so that everyone who waits for the thread gets an error.
struct Watch(Arc<Core>);

impl Drop for Watch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let name = std::thread::current().name().unwrap_or("a helper thread").to_owned();
            self.0.fail("helper thread", &io::Error::other(format!("{name} panicked, a bug in the library")));
        }
    }
}

fn spawn(
    options: &Options,
    appender: &mut Appender,
    node: Option<u32>,
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let cpu = options.helper_cpu;
    let (pinned, outcome) = std::sync::mpsc::channel();
    let watch = Watch(Arc::clone(&appender.core));
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _watch = watch;
        if let Some(cpu) = cpu {
            // The opening thread waits for the result.
            let _ = pinned.send(sys::pin_here(cpu));
        }
        // A preference: without that node, the kernel chooses one.
        let _ = node.map(sys::prefer_node_here);
        work();
    })?;
    appender.threads.push(thread);
    if let Some(cpu) = cpu {
        let pinned = outcome.recv().unwrap_or_else(|_| Err(io::Error::other("the thread has ended")));
        appender.reasons.push(match pinned {
            Ok(()) => format!("{name} on CPU {cpu}"),
            Err(e) => format!("{name} not on CPU {cpu}: {e}"),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::longest_record;
    use crate::frame;
    use crate::options::Framing;

    /// A ring of 4 GiB takes records of up to half the capacity. A length that does not fit would set the bits of the
    /// frame's state.
    #[test]
    fn no_record_is_longer_than_a_frame_can_state() {
        for bytes_max in [1 << 30, 2 << 30, 1 << 39, u64::MAX] {
            for framing in [Framing::None, Framing::Records] {
                let len = longest_record(bytes_max, framing);
                assert!(len <= frame::LEN_MAX, "{len} of {bytes_max}");
                let whole = if framing == Framing::Records { frame::framed_len(len) } else { len };
                assert!(whole as u64 <= bytes_max);
                assert_eq!(frame::word(frame::reserved(len)), frame::Word::Reserved(len));
            }
        }
        assert_eq!(longest_record(4088, Framing::Records), 4064);
        assert_eq!(longest_record(4096, Framing::None), 4096);
    }
}
