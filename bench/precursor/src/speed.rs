//! Measures an uncontended append, and the sustained rate of one producer.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use precursor::{Existing, Framing, Mode, Options};

const ROUNDS: usize = 5;
/// Appends timed together, since a clock reading costs as much as an append.
const BATCH: u32 = 64;
/// Pause between batches, so that the writer never waits for the helper.
const PAUSE: Duration = Duration::from_micros(300);

pub fn run(dir: &Path) -> Result<()> {
    println!("median over batches of {BATCH} appends of 220 B, ns an append; then its spread over {ROUNDS} rounds");
    for (label, mode, framing, measure) in [
        ("ring", Mode::Ring, Framing::None, true),
        ("ring, untimed", Mode::Ring, Framing::None, false),
        ("ring, framed", Mode::Ring, Framing::Records, true),
        ("window", Mode::Window, Framing::None, true),
        ("window, untimed", Mode::Window, Framing::None, false),
        ("window, framed", Mode::Window, Framing::Records, true),
        ("plain (pwrite)", Mode::Plain, Framing::None, true),
    ] {
        let mut medians: Vec<u64> = Vec::new();
        for _ in 0..ROUNDS {
            medians.push(uncontended(&options(dir, mode).framing(framing).measure(measure))?);
        }
        medians.sort_unstable();
        println!("  {label:<16} {:>5}  ({}..{})", medians[ROUNDS / 2], medians[0], medians[ROUNDS - 1]);
    }
    println!("one producer, back to back, 64 MiB ring or run-ahead, MB/s: median and spread over {ROUNDS} rounds");
    for (label, mode, record) in [
        ("ring, 220 B", Mode::Ring, 220),
        ("ring, 4 KiB", Mode::Ring, 4096),
        ("window, 220 B", Mode::Window, 220),
        ("window, 4 KiB", Mode::Window, 4096),
        ("plain, 220 B", Mode::Plain, 220),
        ("plain, 4 KiB", Mode::Plain, 4096),
    ] {
        let mut rates = Vec::new();
        for _ in 0..ROUNDS {
            rates.push(sustained(&options(dir, mode).ring_bytes(64 << 20), record)?);
        }
        rates.sort_unstable();
        println!("  {label:<16} {:>5}  ({}..{})", rates[ROUNDS / 2], rates[0], rates[ROUNDS - 1]);
    }
    println!("producers of 220 B, framed, MB/s together: on one file of `open_many`, and each on a file");
    for producers in [1, 2, 4] {
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            rates[0].push(together(dir, producers, true)?);
            rates[1].push(together(dir, producers, false)?);
        }
        rates.iter_mut().for_each(|rates| rates.sort_unstable());
        let shown = rates.map(|rates| format!("{} ({}..{})", rates[ROUNDS / 2], rates[0], rates[ROUNDS - 1]));
        println!("  {producers}: {}, {}", shown[0], shown[1]);
    }
    for number in 0..4 {
        std::fs::remove_file(dir.join(format!("speed{number}")))?;
    }
    std::fs::remove_file(dir.join("speed"))?;
    Ok(())
}

/// Rate of several producers that append 128 MiB, on one file or each on a file.
fn together(dir: &Path, producers: usize, shared: bool) -> Result<u64> {
    const BYTES: usize = 128 << 20;
    let options = |number: usize| {
        let path = dir.join(format!("speed{number}"));
        Options::new(path).mode(Mode::Ring).framing(Framing::Records).existing(Existing::Replace).ring_bytes(16 << 20)
    };
    let mut logs = vec![options(0).open_many()?];
    for number in 1..producers {
        logs.push(if shared { logs[0].clone() } else { options(number).open_many()? });
    }
    let begun = Instant::now();
    std::thread::scope(|scope| -> Result<()> {
        let append = |log: &precursor::ManyAppender| -> Result<()> {
            for _ in 0..BYTES / 220 / producers {
                log.append(&[0x61; 220])?;
            }
            Ok(())
        };
        let threads: Vec<_> = logs.iter().map(|log| scope.spawn(move || append(log))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("a producer panicked"))?)
    })?;
    let rate = BYTES as u128 * 1000 / begun.elapsed().as_nanos();
    logs.truncate(if shared { 1 } else { producers });
    logs.into_iter().try_for_each(|log| log.close().map(drop))?;
    Ok(u64::try_from(rate)?)
}

fn options(dir: &Path, mode: Mode) -> Options {
    Options::new(dir.join("speed")).mode(mode).existing(Existing::Replace)
}

fn uncontended(options: &Options) -> Result<u64> {
    let mut log = options.clone().open()?;
    let record = [0x61; 220];
    let mut batches = Vec::with_capacity(1000);
    for _ in 0..1000 {
        let begun = Instant::now();
        for _ in 0..BATCH {
            log.append(std::hint::black_box(&record))?;
        }
        batches.push(u64::try_from(begun.elapsed().as_nanos())? / u64::from(BATCH));
        std::thread::sleep(PAUSE);
    }
    log.close()?;
    batches.sort_unstable();
    Ok(crate::cell::at(&batches, 0.5))
}

/// Appends 512 MiB: well below the dirty limit of a machine with a few GiB, so that the page cache is measured and not
/// the device.
fn sustained(options: &Options, record: usize) -> Result<u64> {
    const BYTES: usize = 512 << 20;
    let mut log = options.clone().open()?;
    let record = vec![0x61; record];
    let begun = Instant::now();
    for _ in 0..BYTES / record.len() {
        log.append(&record)?;
    }
    // Until every byte is in the file, not only in the ring.
    while log.stats().flusher_lag_bytes > 0 {
        std::thread::sleep(Duration::from_micros(100));
    }
    let rate = BYTES as u128 * 1000 / begun.elapsed().as_nanos();
    log.close()?;
    Ok(u64::try_from(rate)?)
}
