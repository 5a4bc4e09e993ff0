//! Whether the machine is as fast while a scenario runs as when its speed was measured. An emulated guest is as fast as its host, and a host
//! whose cores other machines share is twice as slow for seconds or minutes, without a trace in the guest.

use std::fs::File;
use std::io::{self, Read};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::timed;

/// Calls that take the kernel's code to make and end, and no page of the cache. Long ones would tell how fast memory is cleared.
const CALLS: usize = 64;
/// Of so many times the shortest: the others were interrupted, or their CPU had to wait for its turn.
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

    /// 64 read() calls of a zero each, ns.
    pub fn measure(&mut self) -> io::Result<u64> {
        let mut least = u64::MAX;
        for _ in 0..TIMES {
            least = least.min(timed(|| (0..CALLS).try_for_each(|_| self.zeros.read_exact(&mut [0])))?);
        }
        Ok(least)
    }
}

/// Measures again and again until it is asked for what it found.
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

    /// As long as one took that did as much in all; none if there was no time for any.
    pub fn finish(self) -> Option<u64> {
        drop(self.stop);
        self.measures.join().ok().and_then(|all| even_ns(&all))
    }
}

/// The harmonic mean: what a machine does in a time is the sum of its speeds.
fn even_ns(all: &[u64]) -> Option<u64> {
    let speeds: f64 = all.iter().map(|&ns| 1.0 / ns.max(1) as f64).sum();
    (!all.is_empty()).then(|| (all.len() as f64 / speeds).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::{Pace, Watch, even_ns};

    /// Half of the time at 100 ns and half at 200 ns: 10 and 5 in 1000 ns each, so 15 in 2000 ns.
    #[test]
    fn half_of_the_time_twice_as_slow_is_three_quarters_of_the_work() {
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
