//! The machine of a scenario file: `[machine]`, its disk and its other devices.

use serde::Deserialize;
use toml::Spanned;

use super::parse::{Table, read_setup};
use super::place::Place;
use super::{ArraySpec, ControllerSpec, DeviceSpec, DiskSpec, FIRST_DEVICE, MachineSpec, ScenarioError};
use flatwater_recording::knob::{self, KnobPlace};
use flatwater_recording::units::{Bytes, Nanos};

/// The kernel's DISK_NAME_LEN without the terminator.
const NAME_MAX: usize = 31;
const DEVICES_MAX: usize = 15;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineText {
    cpus: Option<u32>,
    #[serde(default)]
    nodes: Vec<String>,
    distance: Option<u32>,
    #[serde(default)]
    reserved: Vec<String>,
    #[serde(default)]
    resident: Vec<String>,
    swap: Option<String>,
    cpu_speed_percent: Option<u32>,
    #[serde(default)]
    disk: DiskText,
    #[serde(default)]
    device: Vec<Spanned<DeviceText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceText {
    name: String,
    #[serde(default)]
    disk: DiskText,
    #[serde(default)]
    set: Table,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DiskText {
    size: Option<String>,
    write_bps: Option<String>,
    read_bps: Option<String>,
    iops: Option<u64>,
    latency: Option<String>,
    flush: Option<String>,
    queue_depth: Option<u32>,
    cache: Option<String>,
    write_cache: Option<bool>,
    seek: Option<String>,
    rotation: Option<String>,
    network_bps: Option<String>,
    network_rtt: Option<String>,
    file_system: Option<String>,
    array: Option<ArrayText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ArrayText {
    level: String,
    drives: u32,
    chunk: Option<String>,
    controller: Option<ControllerText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ControllerText {
    cache: Option<String>,
    command: Option<String>,
    link_bps: Option<String>,
}

pub fn read_machine(place: &Place<'_>, text: &MachineText) -> Result<MachineSpec, ScenarioError> {
    let from = place.of_table("[machine");
    let sizes = |key: &str, texts: &[String]| {
        let parsed = texts.iter().map(|text| text.parse::<Bytes>().map(|size| size.0));
        parsed.collect::<Result<Vec<u64>, _>>().map_err(|error| place.bad(place.of_key(from, key), error))
    };
    Ok(MachineSpec {
        cpus: text.cpus,
        node_bytes: sizes("nodes", &text.nodes)?,
        reserved_bytes: sizes("reserved", &text.reserved)?,
        resident_bytes: sizes("resident", &text.resident)?,
        distance: text.distance,
        swap_bytes: read_size(place, from, "swap", &text.swap)?.unwrap_or(0),
        cpu_speed_percent: text.cpu_speed_percent,
        buffers_bytes: Vec::new(),
        zone_min_bytes: Vec::new(),
        grows: Vec::new(),
        cgroup_grows: Vec::new(),
        own_cpu_percent: 0,
        disk: read_disk(place, from, &text.disk)?,
        devices: read_devices(place, &text.device)?,
    })
}

/// Devices other than the disk, each with a unique name.
fn read_devices(place: &Place<'_>, texts: &[Spanned<DeviceText>]) -> Result<Vec<DeviceSpec>, ScenarioError> {
    let mut devices: Vec<DeviceSpec> = Vec::new();
    for text in texts {
        let from = text.span().start;
        let text = text.get_ref();
        let bad = |key: &str, what: String| Err(place.bad(place.of_key(from, key), what));
        let name = text.name.as_str();
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(plain) {
            let what =
                format!("'{name}' cannot name a device: use up to {NAME_MAX} characters of a to z, 0 to 9 and '-'");
            return bad("name", what);
        }
        if name == FIRST_DEVICE || devices.iter().any(|known| known.name == name) {
            return bad("name", format!("two devices have the name '{name}' ('{FIRST_DEVICE}' is the disk)"));
        }
        let setup = read_setup(place, from, &text.set)?;
        if let Some((key, _)) = setup.iter().find(|(key, _)| !is_of_device(key)) {
            return bad(key, format!("{key} is not a setting of a device: move it to [setup]"));
        }
        devices.push(DeviceSpec { name: name.to_owned(), disk: read_disk(place, from, &text.disk)?, setup });
    }
    if devices.len() > DEVICES_MAX {
        return Err(place.bad(0, format!("a machine can have at most {DEVICES_MAX} devices in addition to its disk")));
    }
    Ok(devices)
}

/// Whether each device has its own value of this setting.
pub fn is_of_device(key: &str) -> bool {
    let places = [KnobPlace::Queue, KnobPlace::Bdi, KnobPlace::Mount];
    key == "journal_commit_interval" || knob::find(key).is_ok_and(|knob| places.contains(&knob.place))
}

fn read_disk(place: &Place<'_>, from: usize, text: &DiskText) -> Result<DiskSpec, ScenarioError> {
    let size = |key: &str, text: &Option<String>| read_size(place, from, key, text);
    let time = |key: &str, text: &Option<String>| {
        let parsed = text.as_ref().map(|text| text.parse::<Nanos>().map(|time| time.0)).transpose();
        parsed.map_err(|error| place.bad(place.of_key(from, key), error))
    };
    Ok(DiskSpec {
        bytes: size("size", &text.size)?,
        write_bytes_per_s: size("write_bps", &text.write_bps)?,
        read_bytes_per_s: size("read_bps", &text.read_bps)?,
        iops: text.iops,
        latency_ns: time("latency", &text.latency)?,
        flush_ns: time("flush", &text.flush)?,
        queue_depth: text.queue_depth,
        cache_bytes: size("cache", &text.cache)?,
        write_cache: text.write_cache,
        seek_ns: time("seek", &text.seek)?,
        rotation_ns: time("rotation", &text.rotation)?,
        network_bytes_per_s: size("network_bps", &text.network_bps)?,
        network_rtt_ns: time("network_rtt", &text.network_rtt)?,
        file_system: text.file_system.clone(),
        array: text.array.as_ref().map(|array| read_array(array, size, time)).transpose()?,
    })
}

fn read_size(place: &Place<'_>, from: usize, key: &str, text: &Option<String>) -> Read {
    let parsed = text.as_ref().map(|text| text.parse::<Bytes>().map(|size| size.0)).transpose();
    parsed.map_err(|error| place.bad(place.of_key(from, key), error))
}

type Read = Result<Option<u64>, ScenarioError>;

fn read_array(
    text: &ArrayText,
    size: impl Fn(&str, &Option<String>) -> Read,
    time: impl Fn(&str, &Option<String>) -> Read,
) -> Result<ArraySpec, ScenarioError> {
    let controller = |text: &ControllerText| -> Result<ControllerSpec, ScenarioError> {
        Ok(ControllerSpec {
            cache_bytes: size("cache", &text.cache)?,
            command_ns: time("command", &text.command)?,
            link_bytes_per_s: size("link_bps", &text.link_bps)?,
        })
    };
    Ok(ArraySpec {
        level: text.level.clone(),
        drives: text.drives,
        chunk_bytes: size("chunk", &text.chunk)?,
        controller: text.controller.as_ref().map(controller).transpose()?,
    })
}
