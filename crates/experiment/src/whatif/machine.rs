//! `--machine KEY=VALUE`: properties of the machine that a recording does not contain, or that differ from the
//! scenario.

use flatwater_recording::units::{Bytes, Nanos};
use flatwater_workload::scenario::{DiskSpec, MachineSpec};

/// The disk of the model if nothing describes it: 80 MB/s, 8 ms mean seek, 7200 rpm.
pub const DEFAULT_DISK: DiskSpec = DiskSpec {
    bytes: None,
    write_bytes_per_s: Some(80_000_000),
    read_bytes_per_s: None,
    iops: None,
    latency_ns: None,
    flush_ns: None,
    queue_depth: None,
    cache_bytes: None,
    write_cache: None,
    seek_ns: Some(8_000_000),
    rotation_ns: Some(8_300_000),
    network_bytes_per_s: None,
    network_rtt_ns: None,
    file_system: None,
    array: None,
};

const KEYS: &str = "cpus, nodes (64GiB,64GiB), distance, disk.write_bps, disk.read_bps, disk.iops (a flash device), \
    disk.seek, disk.rotation";

/// Why a `--machine KEY=VALUE` is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    #[error("'{0}' does not describe a machine: give KEY=VALUE, where KEY is one of {KEYS}")]
    Unknown(String),
    #[error("{given}: {why}")]
    Value { given: String, why: String },
}

/// Sets one property of the machine. Setting `disk.iops` makes the disk a flash device without seeks.
pub fn set(machine: &mut MachineSpec, given: &str) -> Result<(), MachineError> {
    let bad = || MachineError::Unknown(given.to_owned());
    let wrong = |why: String| MachineError::Value { given: given.to_owned(), why };
    let (key, value) = given.split_once('=').ok_or_else(bad)?;
    let size = |text: &str| text.trim().parse::<Bytes>().map(|bytes| bytes.0).map_err(|why| wrong(why.to_string()));
    let time = |text: &str| text.trim().parse::<Nanos>().map(|time| time.0).map_err(|why| wrong(why.to_string()));
    let whole = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong("give a whole number".to_owned()));
    match key.trim() {
        "cpus" => machine.cpus = Some(whole(value)?),
        "distance" => machine.distance = Some(whole(value)?),
        "nodes" => machine.node_bytes = value.split(',').map(size).collect::<Result<_, _>>()?,
        "disk.write_bps" => machine.disk.write_bytes_per_s = Some(size(value)?),
        "disk.read_bps" => machine.disk.read_bytes_per_s = Some(size(value)?),
        "disk.iops" => {
            (machine.disk.seek_ns, machine.disk.rotation_ns) = (None, None);
            machine.disk.iops = Some(u64::from(whole(value)?));
        }
        "disk.seek" => machine.disk.seek_ns = Some(time(value)?),
        "disk.rotation" => machine.disk.rotation_ns = Some(time(value)?),
        _ => return Err(bad()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::set;
    use flatwater_workload::scenario::MachineSpec;

    #[test]
    fn known_keys_are_set_and_others_refused() {
        let mut machine = MachineSpec::default();
        for given in ["cpus=8", "nodes=1GiB,2GiB", "disk.write_bps=200MB", "disk.iops=5000"] {
            set(&mut machine, given).expect(given);
        }
        assert_eq!((machine.cpus, machine.node_bytes.as_slice()), (Some(8), [1 << 30, 2 << 30].as_slice()));
        assert_eq!((machine.disk.iops, machine.disk.write_bytes_per_s), (Some(5000), Some(200_000_000)));
        for bad in ["disk.speed=1", "cpus", "cpus=many", "nodes=1GiB,x"] {
            assert!(set(&mut machine, bad).is_err(), "{bad}");
        }
    }
}
