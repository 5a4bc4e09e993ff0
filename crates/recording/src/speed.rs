//! Durations of elementary operations on a machine, measured before a scenario begins.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Durations on one thread with no other load, page by page in order. Figures that could not be measured are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Speed {
    /// write() of one byte to a cached dirty page, ns.
    pub call_ns: Option<u64>,
    /// read() of cached bytes in large calls, ps per byte.
    pub copy_byte_ps: Option<u64>,
    /// Adding a page of zeros to the page cache by read(), without the copy to the caller, ns.
    pub cache_page_ns: Option<u64>,
    /// Removing a clean page from the page cache (POSIX_FADV_DONTNEED), ns.
    pub drop_page_ns: Option<u64>,
    /// write() of uncached pages in large calls, including the copy, ns per page.
    pub write_page_ns: Option<u64>,
    /// First touch of a mapped page that is in the page cache, ns per page.
    pub fault_page_ns: Option<u64>,
    /// Further touches of such pages, in order, ns per page.
    pub touch_ns: Option<u64>,
    /// munmap() of touched pages, ns per page.
    pub unmap_page_ns: Option<u64>,
    /// Reclaim of a clean page that one process has mapped (MADV_PAGEOUT), ns per page.
    pub pageout_page_ns: Option<u64>,
    /// One read of 4 KiB from the idle disk, bypassing the page cache (O_DIRECT), ns.
    pub disk_call_ns: Option<u64>,
    /// Operations on one of 64 names in a directory whose inodes and dentries are in memory, ns: stat(), open() of an
    /// existing file, close(), open() that creates a file, rename() within the directory, unlink() of an empty file.
    pub stat_ns: Option<u64>,
    pub open_ns: Option<u64>,
    pub close_ns: Option<u64>,
    pub create_ns: Option<u64>,
    pub rename_ns: Option<u64>,
    pub unlink_ns: Option<u64>,
    /// Opening such a directory, reading all entries and closing it, ns.
    pub list_ns: Option<u64>,
    /// Starting flatwater itself as a process and waiting for its exit, ns: the cost of each process of a scenario in
    /// addition to its operations.
    pub process_ns: Option<u64>,
    /// 64 read() calls of one byte of /dev/zero, ns: when the other figures were measured, and during the scenario
    /// (harmonic mean).
    pub pace_ns: Option<u64>,
    pub run_pace_ns: Option<u64>,
    /// Cost of an access to another node's memory, in percent of a local access. If absent, the distance of the nodes
    /// applies.
    pub remote_percent: Option<u64>,
}

/// Why a text is not a list of speeds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpeedError {
    #[error("'{0}' is not of the form NAME=NUMBER")]
    NoPair(String),
    #[error("'{name}' is not a speed; the speeds are {}", FIGURES.map(|(known, _)| known).join(", "))]
    NoSuch { name: String },
    #[error("'{value}' is not a whole number ({name})")]
    NoNumber { name: String, value: String },
}

type Slot = fn(&mut Speed) -> &mut Option<u64>;

const FIGURES: [(&str, Slot); 21] = [
    ("call_ns", |speed| &mut speed.call_ns),
    ("copy_byte_ps", |speed| &mut speed.copy_byte_ps),
    ("cache_page_ns", |speed| &mut speed.cache_page_ns),
    ("drop_page_ns", |speed| &mut speed.drop_page_ns),
    ("write_page_ns", |speed| &mut speed.write_page_ns),
    ("fault_page_ns", |speed| &mut speed.fault_page_ns),
    ("touch_ns", |speed| &mut speed.touch_ns),
    ("unmap_page_ns", |speed| &mut speed.unmap_page_ns),
    ("pageout_page_ns", |speed| &mut speed.pageout_page_ns),
    ("disk_call_ns", |speed| &mut speed.disk_call_ns),
    ("stat_ns", |speed| &mut speed.stat_ns),
    ("open_ns", |speed| &mut speed.open_ns),
    ("close_ns", |speed| &mut speed.close_ns),
    ("create_ns", |speed| &mut speed.create_ns),
    ("rename_ns", |speed| &mut speed.rename_ns),
    ("unlink_ns", |speed| &mut speed.unlink_ns),
    ("list_ns", |speed| &mut speed.list_ns),
    ("process_ns", |speed| &mut speed.process_ns),
    ("pace_ns", |speed| &mut speed.pace_ns),
    ("run_pace_ns", |speed| &mut speed.run_pace_ns),
    ("remote_percent", |speed| &mut speed.remote_percent),
];

impl Speed {
    /// Converts to the pace during the scenario, if it is known: scales all times by the ratio of the two `pace`
    /// figures.
    #[must_use]
    pub fn while_it_ran(mut self) -> Speed {
        let (before, during) = (self.pace_ns.take(), self.run_pace_ns.take());
        let Some((before, during)) = before.zip(during).filter(|(before, _)| *before > 0) else { return self };
        let remote_percent = self.remote_percent.take();
        for (_, slot) in FIGURES {
            if let Some(figure) = slot(&mut self) {
                *figure =
                    (u128::from(*figure) * u128::from(during) / u128::from(before)).try_into().unwrap_or(u64::MAX);
            }
        }
        Speed { remote_percent, ..self }
    }
}

/// Parses `call_ns=5200,touch_ns=140`; for speeds that are not listed, the model keeps its own.
impl FromStr for Speed {
    type Err = SpeedError;

    fn from_str(text: &str) -> Result<Speed, SpeedError> {
        let mut speed = Speed::default();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(|| SpeedError::NoPair(pair.to_owned()))?;
            let slot = FIGURES.iter().find(|(known, _)| *known == name).map(|(_, slot)| slot);
            let slot = slot.ok_or_else(|| SpeedError::NoSuch { name: name.to_owned() })?;
            let no_number = |_| SpeedError::NoNumber { name: name.to_owned(), value: value.to_owned() };
            *slot(&mut speed) = Some(value.parse().map_err(no_number)?);
        }
        Ok(speed)
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut copy = *self;
        let known: Vec<String> =
            FIGURES.iter().filter_map(|(name, slot)| slot(&mut copy).map(|value| format!("{name}={value}"))).collect();
        f.write_str(&known.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::Speed;

    /// A host on which other tasks took half of the CPU during the measurement and nothing afterwards.
    #[test]
    fn times_are_scaled_to_the_pace_of_the_run() {
        let measured = Speed { call_ns: Some(5_200), remote_percent: Some(100), ..Speed::default() };
        assert_eq!(measured.while_it_ran(), measured);
        let known = Speed { pace_ns: Some(400), run_pace_ns: Some(200), ..measured };
        assert_eq!(known.while_it_ran(), Speed { call_ns: Some(2_600), ..measured });
        let not_measured = Speed { pace_ns: Some(0), ..known };
        assert_eq!(not_measured.while_it_ran(), measured);
    }

    #[test]
    fn the_printed_form_parses_to_the_same_speeds() {
        let speed = Speed { call_ns: Some(5_200), touch_ns: Some(0), ..Speed::default() };
        assert_eq!(speed.to_string(), "call_ns=5200,touch_ns=0");
        assert_eq!("call_ns=5200, touch_ns=0".parse(), Ok(speed));
        assert!("calls=1".parse::<Speed>().is_err_and(|error| error.to_string().contains("call_ns")));
        assert!("call_ns=fast".parse::<Speed>().is_err() && "call_ns".parse::<Speed>().is_err());
    }
}
