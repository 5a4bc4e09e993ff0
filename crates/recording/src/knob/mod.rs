//! The knobs: settings that flatwater reads or sets, each with type, range, unit, place and a sentence of description.
//!
//! The same table serves scenario files, `--set`, `check`, fixes, the simulator and the documentation.

mod registry;

pub use registry::KNOBS;
use strsim::levenshtein;

use crate::units::{Bytes, Nanos};

/// Whether this value of lru_gen.enabled enables the multi-generational LRU: bit 0 of a number in the kernel's format,
/// or y and n (mm/vmscan.c: enabled_store, 6.1). `None` for other values.
#[must_use]
pub fn lru_gen_runs(value: &str) -> Option<bool> {
    match value.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok().map(|bits| bits & 1 == 1),
        None => match value {
            "y" | "Y" => Some(true),
            "n" | "N" => Some(false),
            number => number.parse::<u64>().ok().map(|bits| bits & 1 == 1),
        },
    }
}

/// Where a knob is set. Only `host/src/setup` turns this into a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnobPlace {
    /// /proc/sys, with dots instead of slashes.
    Sysctl,
    /// /sys/kernel/mm/transparent_hugepage/...
    HugePages,
    /// /sys/kernel/mm/lru_gen/..., in kernels with the multi-generational LRU (6.1).
    LruGen,
    /// /sys/block/DEV/queue/... of the scenario's device.
    Queue,
    /// /sys/class/bdi/MAJ:MIN/... of the scenario's device.
    Bdi,
    /// The memory, cpu or blkio controller of the scenario's cgroup.
    Cgroup,
    /// The loop device, file system and mount options of the scenario.
    Mount,
    /// CPU, node and scheduling class of the workload's threads.
    Placement,
    /// How a workload appends: one of the precursor's modes.
    Precursor,
    /// No file of a running kernel sets it: a mount option, a constant of the kernel, another program. Runs on a host
    /// ignore it.
    NoFile,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the bounds of the values")]
pub enum KnobKind {
    Integer {
        min: i64,
        max: i64,
    },
    /// A size, set in bytes.
    Size {
        min: u64,
        max: u64,
    },
    /// Set in KiB, accepts any size (`min_free_kbytes`).
    SizeKib {
        min: u64,
        max: u64,
    },
    /// A duration, set in units of `unit_ns`; `max` counts units.
    Duration {
        unit_ns: u64,
        max: u64,
    },
    Choice(&'static [&'static str]),
    /// Space-separated integers.
    Integers {
        count_max: usize,
    },
    Text,
}

/// A setting that a scenario can change.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// The key in scenarios, as `vm.dirty_bytes`.
    pub key: &'static str,
    /// The knob's place in the kernel.
    pub place: KnobPlace,
    /// Which values it accepts.
    pub kind: KnobKind,
    /// Unit of the value as set: `bytes`, `KiB`, `%`, `centisecs`, or empty.
    pub unit: &'static str,
    /// What it does, in one sentence.
    pub sentence: &'static str,
}

/// The key of a knob in the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(&'static str);

impl Key {
    /// In a constant, a key without a knob does not compile:
    ///
    /// ```
    /// const SWAPPINESS: flatwater_recording::knob::Key = flatwater_recording::knob::Key::of("vm.swappiness");
    /// assert_eq!(SWAPPINESS.name(), "vm.swappiness");
    /// ```
    ///
    /// ```compile_fail
    /// const MISSPELT: flatwater_recording::knob::Key = flatwater_recording::knob::Key::of("vm.swapiness");
    /// ```
    ///
    /// # Panics
    /// If no knob has this key.
    #[must_use]
    pub const fn of(key: &'static str) -> Key {
        let mut at = 0;
        while at < KNOBS.len() {
            if is_same(KNOBS[at].key.as_bytes(), key.as_bytes()) {
                return Key(key);
            }
            at += 1;
        }
        panic!("no knob has this key");
    }

    /// The key of a knob that is known only at run time.
    pub fn find(key: &str) -> Result<Key, KnobError> {
        find(key).map(|knob| Key(knob.key))
    }

    /// The name in lists.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.0
    }
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants")]
pub enum KnobError {
    #[error("unknown knob '{key}'{}; `flatwater scenarios --knobs` lists them", hint(.nearest))]
    Unknown { key: String, nearest: Option<&'static str> },
    #[error("'{given}' is not a valid value of {key}: expected {wanted}")]
    BadValue { key: &'static str, given: String, wanted: String },
}

fn hint(nearest: &Option<&'static str>) -> String {
    nearest.map(|name| format!(" (did you mean '{name}'?)")).unwrap_or_default()
}

/// The knob with this key; the error suggests the most similar key.
pub fn find(key: &str) -> Result<&'static Knob, KnobError> {
    KNOBS.iter().find(|knob| knob.key == key).ok_or_else(|| KnobError::Unknown {
        key: key.to_owned(),
        nearest: nearest(key, KNOBS.iter().map(|knob| knob.key)),
    })
}

/// The most similar name, if its edit distance is at most 1 plus a third of the length of `given`.
#[must_use]
pub fn nearest<'a>(given: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let scored = names.map(|name| {
        // `swappiness` for `vm.swappiness`: a match of the part after the dot has distance 1.
        let tail = name.rsplit('.').next().unwrap_or(name);
        (levenshtein(given, name).min(1 + levenshtein(given, tail)), name)
    });
    scored.min().filter(|&(distance, _)| distance <= 1 + given.len() / 3).map(|(_, name)| name)
}

impl Knob {
    /// Converts a user's value to the kernel's spelling.
    pub fn parse(&self, given: &str) -> Result<String, KnobError> {
        let given = given.trim();
        let value = match self.kind {
            KnobKind::Integer { min, max } => {
                given.parse::<i64>().ok().filter(|value| (min..=max).contains(value)).map(|value| value.to_string())
            }
            KnobKind::Size { min, max } => in_range(given.parse::<Bytes>().ok().map(|size| size.0), min, max),
            KnobKind::SizeKib { min, max } => {
                // A bare number is in the knob's own unit, as for `sysctl`.
                let kib =
                    given.parse::<u64>().ok().or_else(|| given.parse::<Bytes>().ok().and_then(|size| kib(size.0)));
                in_range(kib, min, max)
            }
            KnobKind::Duration { unit_ns, max } => {
                let units = given
                    .parse::<u64>()
                    .ok()
                    .or_else(|| given.parse::<Nanos>().ok().and_then(|ns| whole(ns.0, unit_ns)));
                in_range(units, 0, max)
            }
            KnobKind::Choice(choices) => {
                let spelled = match given {
                    "on" | "true" if choices == ["0", "1"] => "1",
                    "off" | "false" if choices == ["0", "1"] => "0",
                    other => other,
                };
                choices.contains(&spelled).then(|| spelled.to_owned())
            }
            KnobKind::Integers { count_max } => {
                let numbers: Option<Vec<u64>> = given.split_whitespace().map(|word| word.parse().ok()).collect();
                numbers.filter(|n| (1..=count_max).contains(&n.len())).map(|_| given.to_owned())
            }
            KnobKind::Text => (!given.contains('\n') && given.len() <= 4096).then(|| given.to_owned()),
        };
        value.ok_or_else(|| KnobError::BadValue { key: self.key, given: given.to_owned(), wanted: self.wanted() })
    }

    /// The accepted values, in words.
    #[must_use]
    pub fn wanted(&self) -> String {
        match self.kind {
            KnobKind::Integer { min, max } => format!("a whole number from {min} to {max}"),
            KnobKind::Size { min, max } => format!("a size from {} to {}, such as 64MiB", Bytes(min), Bytes(max)),
            KnobKind::SizeKib { min, max } => {
                format!(
                    "a size from {} to {}, such as 256MiB (a bare number is KiB)",
                    Bytes(min << 10),
                    Bytes(max << 10)
                )
            }
            KnobKind::Duration { unit_ns, max } => {
                let most = Nanos(unit_ns.saturating_mul(max));
                format!("a duration up to {most}, in whole multiples of {}, such as 1s", Nanos(unit_ns))
            }
            KnobKind::Choice(choices) => format!("one of {}", choices.join(", ")),
            KnobKind::Integers { count_max } => format!("1 to {count_max} whole numbers separated by spaces"),
            KnobKind::Text => "one line of text".to_owned(),
        }
    }
}

/// A size in KiB, rounded down; `None` if a size above 0 would become 0.
fn kib(bytes: u64) -> Option<u64> {
    (bytes == 0 || bytes >= 1024).then_some(bytes / 1024)
}

/// `value` in units, unless a part of a unit would be lost.
fn whole(value: u64, unit: u64) -> Option<u64> {
    value.is_multiple_of(unit).then(|| value / unit)
}

fn in_range(value: Option<u64>, min: u64, max: u64) -> Option<String> {
    value.filter(|value| (min..=max).contains(value)).map(|value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::{KNOBS, KnobError, find, lru_gen_runs};

    #[test]
    fn bit_0_of_lru_gen_enabled_is_the_main_switch() {
        for on in ["0x0007", "7", "1", "y"] {
            assert_eq!(lru_gen_runs(on), Some(true), "{on}");
        }
        for off in ["0x0000", "0", "n", "6", "0x0006"] {
            assert_eq!(lru_gen_runs(off), Some(false), "{off}");
        }
        assert_eq!(["", "on", "0x", "-1"].map(lru_gen_runs), [None; 4]);
    }

    #[test]
    fn values_are_checked_and_converted_to_the_kernels_spelling() {
        for (key, given, set) in [
            ("vm.min_free_kbytes", "1GiB", "1048576"),
            ("vm.min_free_kbytes", "67584", "67584"),
            ("vm.dirty_bytes", "64M", "67108864"),
            ("bdi.strict_limit", "on", "1"),
            ("monitor.slabinfo_interval", "1s", "1000"),
            ("vm.lowmem_reserve_ratio", "256 256 32", "256 256 32"),
        ] {
            assert_eq!(find(key).and_then(|knob| knob.parse(given)).as_deref(), Ok(set), "{key}={given}");
        }
        for (key, given) in [("vm.swappiness", "201"), ("vm.zone_reclaim_mode", "-1"), ("thp.enabled", "maybe")]
            .into_iter()
            .chain([("monitor.slabinfo_interval", "500us"), ("vm.min_free_kbytes", "1B")])
        {
            assert!(find(key).expect(key).parse(given).is_err(), "{key}={given}");
        }
    }

    #[test]
    fn a_misspelt_knob_gets_the_nearest_one() {
        for (given, meant) in [("vm.swapiness", "vm.swappiness"), ("zone_reclaim_mode", "vm.zone_reclaim_mode")] {
            assert_eq!(find(given).err(), Some(KnobError::Unknown { key: given.into(), nearest: Some(meant) }));
        }
        assert!(matches!(find("colour"), Err(KnobError::Unknown { nearest: None, .. })));
    }

    #[test]
    fn every_knob_is_unique_and_has_a_sentence() {
        for knob in KNOBS {
            assert!(knob.sentence.ends_with('.') && knob.sentence.len() > 20, "{}", knob.key);
            assert_eq!(KNOBS.iter().filter(|other| other.key == knob.key).count(), 1, "{} is listed twice", knob.key);
        }
    }
}
