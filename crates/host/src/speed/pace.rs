//! Measures whether the machine is as fast during a scenario as when its speed was measured. An emulated guest is as
//! fast as its host, and a host that shares its cores can be twice as slow for seconds or minutes, invisibly to the
//! guest.

use std::fs::File;
use std::io::{self, Read};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::timed;

/// Short system calls that touch no page of the cache. Long reads would measure how fast memory is cleared.
const CALLS: usize = 64;
/// Takes the minimum of this many passes: the others were interrupted, or waited for a CPU.
const TIMES: usize = 5;
const INTERVAL: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub struct Pace {
    zeros: File,
}

impl Pace {
    pub fn open() -> io::Result<Pace> {
        Ok(Pace { zeros: File::open("/dev/zero")? })
    }

    /// The time of 64 read() calls of one byte from /dev/zero, ns.
    pub fn measure(&mut self) -> io::Result<u64> {
        let mut least = u64::MAX;
        for _ in 0..TIMES {
            least = least.min(timed(|| (0..CALLS).try_for_each(|_| self.zeros.read_exact(&mut [0])))?);
        }
        Ok(least)
    }
}

/// Repeats the measurement on a thread until `finish`.
#[derive(Debug)]
pub struct Watch {
    stop: Sender<()>,
    measures: JoinHandle<Vec<u64>>,
}

impl Watch {
    pub fn start(mut pace: Pace) -> io::Result<Watch> {
        let (stop, stopped) = channel::<()>();
        let measures = thread::Builder::new().name("pace".to_owned()).spawn(move || {
            let mut all = Vec::new();
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                all.extend(pace.measure());
            }
            all
        })?;
        Ok(Watch { stop, measures })
    }

    /// Stops, and returns the average time of a measurement (see `even_ns`); `None` if there was time for none.
    pub fn finish(self) -> Option<u64> {
        drop(self.stop);
        self.measures.join().ok().and_then(|all| even_ns(&all))
    }
}

/// The harmonic mean, ns: the average speed over the time.
fn even_ns(all: &[u64]) -> Option<u64> {
    let speeds: f64 = all.iter().map(|&ns| 1.0 / ns.max(1) as f64).sum();
    (!all.is_empty()).then(|| (all.len() as f64 / speeds).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::{Pace, Watch, even_ns};

    /// Half of the time at 100 ns and half at 200 ns: 10 and 5 in 1000 ns each, so 15 in 2000 ns.
    #[test]
    fn the_mean_is_harmonic() {
        assert_eq!(even_ns(&[100, 200]), Some(133));
        assert_eq!(even_ns(&[]), None);
    }

    #[test]
    fn a_watch_measures_until_it_is_asked() {
        let alone = Pace::open().and_then(|mut pace| pace.measure()).expect("/dev/zero");
        let watch = Watch::start(Pace::open().expect("/dev/zero")).expect("a thread");
        std::thread::sleep(super::INTERVAL * 3);
        assert!(alone > 0 && watch.finish().is_some_and(|ns| ns > 0));
    }
}
