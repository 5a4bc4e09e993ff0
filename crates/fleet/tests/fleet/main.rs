//! End-to-end tests of a fleet: planted facts are found and nothing else, a killed compactor neither loses nor doubles
//! a row, and damaged files are reported while the others answer.

mod bad_input;
#[cfg(feature = "ballista-cluster")]
mod ballista;
mod crash;
mod faulty;
mod hostile;
mod hostile_host;
mod page;
#[cfg(feature = "ask")]
mod questions;
mod s3;
mod truth;

use std::path::Path;

use flatwater_fleet::Fleet;
use flatwater_fleet::generate::{Options, Truth, generate};
use flatwater_fleet::judge::Facts;
use flatwater_fleet::time::Range;
use flatwater_recording::summary::HourStart;

/// 2026-11-20 00:00.
const FROM: HourStart = HourStart::of_hours(498_648);

fn day(first: i64, hours: i64) -> Range {
    Range { from: HourStart::of_hours(FROM.hours() + first), to: HourStart::of_hours(FROM.hours() + first + hours) }
}

fn options(hosts: u32, hours: i64, compacted: bool) -> Options {
    Options { hosts, hours, from: FROM, seed: 7, compacted, like: Vec::new() }
}

async fn made(at: &Path, options: &Options) -> (Fleet, Truth) {
    let fleet = Fleet::directory(at.to_owned()).expect("a directory");
    let truth = generate(&fleet, options).await.expect("generated");
    (fleet, truth)
}

async fn facts(fleet: &Fleet, range: Range) -> Facts {
    Facts::read(fleet, range).await.expect("read")
}
