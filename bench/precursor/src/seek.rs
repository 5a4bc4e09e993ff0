//! Compares seeks with the index of a file to seeks that scan it.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use precursor::{Existing, Framing, Mode, Options, Reader, Seek};

/// Seeks of each kind, evenly over the records.
const SEEKS: u64 = 25;

pub fn run(dir: &Path, records: u64) -> Result<()> {
    let path = dir.join("seek");
    let options = Options::new(&path).mode(Mode::Ring).framing(Framing::Records).times(true);
    let mut log = options.existing(Existing::Replace).open()?;
    for _ in 0..records {
        log.append(&[0x61; 220])?;
    }
    log.close()?;
    println!("a file of {records} records of 220 B, {SEEKS} seeks of each kind: median us; most frames read");
    let indexed = kinds(&path, records)?;
    std::fs::remove_file(dir.join(".seek.index")).context("the index")?;
    let scanned = kinds(&path, records)?;
    for (with, without) in indexed.iter().zip(&scanned) {
        let ratio = without.1 / with.1;
        println!(
            "  {:<7} indexed {:>8.1}; {:>7}   scanned {:>10.1}; {:>9}   ratio {ratio:.0}",
            with.0, with.1, with.2, without.1, without.2
        );
    }
    std::fs::remove_file(path)?;
    Ok(())
}

/// Name, median duration in us, and most frames of each kind of seek.
fn kinds(path: &Path, records: u64) -> Result<Vec<(&'static str, f64, u64)>> {
    let mut reader = Reader::open(path)?;
    let mut sought = Vec::new();
    for i in 0..SEEKS {
        let number = records * (2 * i + 1) / (2 * SEEKS);
        reader.seek(Seek::Number(number))?;
        let found = reader.next()?.context("a record")?;
        let time = found.time_ns.context("a time")?;
        sought.push([Seek::Number(number), Seek::After(found.position.bytes()), Seek::TimeNs(time)]);
    }
    let mut results = Vec::new();
    for (kind, name) in ["number", "after", "time"].into_iter().enumerate() {
        let (mut times, mut frames) = (Vec::new(), 0);
        for to in &sought {
            let begun = Instant::now();
            reader.seek(to[kind])?;
            times.push(begun.elapsed().as_secs_f64() * 1e6);
            frames = frames.max(reader.seek_cost().frames);
        }
        times.sort_unstable_by(f64::total_cmp);
        results.push((name, times[times.len() / 2], frames));
    }
    Ok(results)
}
