//! Scenario files: TOML -> `Scenario`, with errors that name file, line and key.

use serde::Deserialize;
use toml::Spanned;

use super::place::Place;
use super::{ArraySpec, Change, ControllerSpec, DiskSpec, MachineSpec, NamedFix, Scenario, WorkloadSpec, builtin};
use crate::{ParamError, Params, Role, WORKLOADS, WorkloadEntry};
use flatwater_recording::knob::nearest;
use flatwater_recording::units::{Bytes, Nanos};
use flatwater_recording::{KnobPlace, Setup, knob};

#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    #[error("there is no scenario '{name}'{}; `flatwater scenarios` lists the built-in ones, and a path to a .toml file works too", .nearest.as_ref().map(|n| format!(" (did you mean '{n}'?)")).unwrap_or_default())]
    NotFound { name: String, nearest: Option<String> },
    #[error("cannot read scenario {path}: {source}")]
    Unreadable { path: String, source: std::io::Error },
    #[error("{origin}:{line}: {what}")]
    Bad { origin: String, line: usize, what: String },
}

type Table = toml::Table;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    name: String,
    sentence: String,
    duration: Option<Spanned<String>>,
    threshold: Option<Spanned<String>>,
    seed: Option<u64>,
    kernel: Option<String>,
    judge: Option<String>,
    block: Option<Spanned<String>>,
    settle: Option<Spanned<String>>,
    fallback: Option<String>,
    #[serde(default)]
    machine: MachineText,
    #[serde(default)]
    setup: Table,
    #[serde(default)]
    workload: Vec<Spanned<Table>>,
    #[serde(default)]
    timeline: Vec<Spanned<ChangeText>>,
    #[serde(default)]
    fix: Vec<Spanned<FixText>>,
    expect: Option<ExpectText>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineText {
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
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DiskText {
    size: Option<String>,
    write_bps: Option<String>,
    read_bps: Option<String>,
    iops: Option<u64>,
    latency: Option<String>,
    queue_depth: Option<u32>,
    cache: Option<String>,
    write_cache: Option<bool>,
    seek: Option<String>,
    rotation: Option<String>,
    network_bps: Option<String>,
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeText {
    at: String,
    set: Table,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FixText {
    name: String,
    sentence: String,
    set: Table,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectText {
    text: Vec<String>,
}

impl Scenario {
    /// A built-in scenario by name, or a file by path.
    pub fn load(name_or_path: &str) -> Result<Scenario, ScenarioError> {
        if let Some(text) = builtin::find(name_or_path) {
            return Scenario::parse(name_or_path, text);
        }
        let looks_like_path = name_or_path.contains('/') || name_or_path.ends_with(".toml");
        if !looks_like_path {
            let nearest = nearest(name_or_path, builtin::BUILTIN.iter().map(|(name, _)| *name)).map(str::to_owned);
            return Err(ScenarioError::NotFound { name: name_or_path.to_owned(), nearest });
        }
        let text = std::fs::read_to_string(name_or_path)
            .map_err(|source| ScenarioError::Unreadable { path: name_or_path.to_owned(), source })?;
        Scenario::parse(name_or_path, &text)
    }

    /// Reads a scenario's text; `origin` is what errors call it.
    pub fn parse(origin: &str, text: &str) -> Result<Scenario, ScenarioError> {
        let place = Place { origin, text };
        let file: FileText = toml::from_str(text).map_err(|error| place.unreadable(&error))?;
        let duration = spanned_time(&place, file.duration.as_ref(), Nanos::from_secs(30))?;
        if duration.0 == 0 {
            return Err(
                place.bad(place.of_key(0, "duration"), "a run of no length measures nothing: duration is 1s or more")
            );
        }
        if file.workload.is_empty() {
            return Err(place.bad(0, "a scenario needs at least one [[workload]]"));
        }
        Ok(Scenario {
            name: file.name,
            sentence: file.sentence,
            text: text.to_owned(),
            duration,
            threshold: spanned_time(&place, file.threshold.as_ref(), Nanos::MILLISECOND)?,
            seed: file.seed.unwrap_or(1),
            machine: read_machine(&place, &file.machine)?,
            kernel: file.kernel,
            judge: file.judge,
            block: file.block.as_ref().map(|text| spanned_time(&place, Some(text), Nanos(0))).transpose()?,
            settle: file.settle.as_ref().map(|text| spanned_time(&place, Some(text), Nanos(0))).transpose()?,
            fallback: file.fallback,
            setup: read_setup(&place, place.of_table("[setup"), &file.setup)?,
            workloads: read_workloads(&place, &file.workload)?,
            timeline: read_timeline(&place, duration, &file.timeline)?,
            expect: file.expect.map(|expect| expect.text).unwrap_or_default(),
            fixes: read_fixes(&place, &file.fix)?,
        })
    }
}

fn read_timeline(
    place: &Place<'_>,
    duration: Nanos,
    changes: &[Spanned<ChangeText>],
) -> Result<Vec<Change>, ScenarioError> {
    let mut timeline = Vec::new();
    for change in changes {
        let from = change.span().start;
        let change = change.get_ref();
        let at: Nanos = change.at.parse().map_err(|error| place.bad(place.of_key(from, "at"), error))?;
        if at >= duration {
            let what = format!("{} is after the end: the scenario lasts {duration}", change.at);
            return Err(place.bad(place.of_key(from, "at"), what));
        }
        let set = read_setup(place, from, &change.set)?;
        let fixed = |key: &str| {
            let made_once = [KnobPlace::Mount, KnobPlace::Placement, KnobPlace::Precursor];
            knob::find(key).is_ok_and(|knob| made_once.contains(&knob.place))
        };
        if let Some((key, _)) = set.iter().find(|(key, _)| fixed(key)) {
            let what = format!("{key} cannot change in the middle of a run: it belongs in [setup]");
            return Err(place.bad(place.of_key(from, key), what));
        }
        timeline.push(Change { at, set });
    }
    timeline.sort_by_key(|change| change.at);
    Ok(timeline)
}

fn read_fixes(place: &Place<'_>, texts: &[Spanned<FixText>]) -> Result<Vec<NamedFix>, ScenarioError> {
    let mut fixes: Vec<NamedFix> = Vec::new();
    for fix in texts {
        let from = fix.span().start;
        let fix = fix.get_ref();
        if fixes.iter().any(|known| known.name == fix.name) {
            return Err(place.bad(place.of_key(from, "name"), format!("the fix '{}' is defined twice", fix.name)));
        }
        let set = read_setup(place, from, &fix.set)?;
        fixes.push(NamedFix { name: fix.name.clone(), sentence: fix.sentence.clone(), set });
    }
    Ok(fixes)
}

fn read_workloads(place: &Place<'_>, tables: &[Spanned<Table>]) -> Result<Vec<WorkloadSpec>, ScenarioError> {
    let mut workloads: Vec<WorkloadSpec> = Vec::new();
    for table in tables {
        let spec = read_workload(place, table)?;
        if workloads.iter().any(|known| known.label == spec.label) {
            let what = format!("two workloads are called '{}': give one of them a `label`", spec.label);
            return Err(place.bad(table.span().start, what));
        }
        workloads.push(spec);
    }
    Ok(workloads)
}

fn spanned_time(place: &Place<'_>, text: Option<&Spanned<String>>, default: Nanos) -> Result<Nanos, ScenarioError> {
    let Some(text) = text else { return Ok(default) };
    text.get_ref().parse().map_err(|error| place.bad(text.span().start, error))
}

/// TOML values as people would have typed them on the command line.
fn plain(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn read_setup(place: &Place<'_>, from: usize, table: &Table) -> Result<Setup, ScenarioError> {
    let mut setup = Setup::default();
    for (key, value) in flat(table) {
        setup.set(&key, &value).map_err(|error| place.bad(place.of_key(from, &key), error))?;
    }
    Ok(setup)
}

/// To TOML, `vm.swappiness = 10` without quotes is a table within a table.
fn flat(table: &Table) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for (key, value) in table {
        match value {
            toml::Value::Table(inner) => {
                pairs.extend(flat(inner).into_iter().map(|(tail, value)| (format!("{key}.{tail}"), value)));
            }
            value => pairs.push((key.clone(), plain(value))),
        }
    }
    pairs
}

fn read_workload(place: &Place<'_>, table: &Spanned<Table>) -> Result<WorkloadSpec, ScenarioError> {
    let from = table.span().start;
    let mut given: Vec<(String, String)> =
        table.get_ref().iter().map(|(key, value)| (key.clone(), plain(value))).collect();
    let mut take = |key: &str| {
        let found = given.iter().position(|(name, _)| name == key)?;
        Some(given.swap_remove(found).1)
    };
    let name = take("use").ok_or_else(|| place.bad(from, "a [[workload]] needs `use = \"NAME\"`"))?;
    let entry = crate::find(&name).ok_or_else(|| {
        let meant = nearest(&name, WORKLOADS.iter().map(|entry| entry.name));
        let hint = meant.map(|meant| format!(" (did you mean '{meant}'?)")).unwrap_or_default();
        place.bad(place.of_key(from, "use"), format!("there is no workload '{name}'{hint}"))
    })?;
    let label = take("label").unwrap_or_else(|| name.clone());
    let (start, duration) = (take("start"), take("duration"));
    let time = |key: &str, text: Option<String>| {
        let parsed = text.map(|text| text.parse::<Nanos>()).transpose();
        parsed.map_err(|error| place.bad(place.of_key(from, key), error))
    };
    let start = time("start", start)?.unwrap_or_default();
    let duration = time("duration", duration)?;
    let role = match take("role").as_deref() {
        None => None,
        Some("foreground") => Some(Role::Foreground),
        Some("neighbour") => Some(Role::Neighbour),
        Some(other) => {
            let what = format!("there is no role '{other}': it is foreground or neighbour");
            return Err(place.bad(place.of_key(from, "role"), what));
        }
    };
    let numbers = ["cpu", "node", "fifo_priority"].map(|key| (key, take(key)));
    let mut placement = [None; 3];
    for (slot, (key, text)) in placement.iter_mut().zip(&numbers) {
        *slot = text
            .as_ref()
            .map(|text| text.parse::<u32>())
            .transpose()
            .map_err(|_| place.bad(place.of_key(from, key), format!("{key} takes a whole number")))?;
    }
    let pairs = given.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let params = Params::check(&name, entry.params, pairs).map_err(|error| match &error {
        ParamError::Unknown { name: key, .. } => place.bad(place.of_key(from, key), unknown_key(&name, entry, key)),
        ParamError::BadValue { name: key, .. } => place.bad(place.of_key(from, key), error),
        ParamError::Impossible { .. } => place.bad(from, error),
    })?;
    let [cpu, node, fifo_priority] = placement;
    Ok(WorkloadSpec { label, entry, params, start, duration, role, cpu, node, fifo_priority })
}

/// What every [[workload]] may have beside its parameters.
const WORKLOAD_KEYS: &[&str] = &["use", "label", "start", "duration", "role", "cpu", "node", "fifo_priority"];

fn unknown_key(workload: &str, entry: &WorkloadEntry, key: &str) -> String {
    let params: Vec<&str> = entry.params.iter().map(|param| param.name).collect();
    let meant = nearest(key, params.iter().copied().chain(WORKLOAD_KEYS.iter().copied()));
    let hint = meant.map(|meant| format!(" (did you mean '{meant}'?)")).unwrap_or_default();
    format!(
        "workload '{workload}' has no '{key}'{hint}; it has {}, and as every workload {}",
        params.join(", "),
        WORKLOAD_KEYS.join(", ")
    )
}

fn read_machine(place: &Place<'_>, text: &MachineText) -> Result<MachineSpec, ScenarioError> {
    let from = place.of_table("[machine");
    let size = |key: &str, text: &Option<String>| {
        let parsed = text.as_ref().map(|text| text.parse::<Bytes>().map(|size| size.0)).transpose();
        parsed.map_err(|error| place.bad(place.of_key(from, key), error))
    };
    let time = |key: &str, text: &Option<String>| {
        let parsed = text.as_ref().map(|text| text.parse::<Nanos>().map(|time| time.0)).transpose();
        parsed.map_err(|error| place.bad(place.of_key(from, key), error))
    };
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
        swap_bytes: size("swap", &text.swap)?.unwrap_or(0),
        cpu_speed_percent: text.cpu_speed_percent,
        speed: None,
        grows: Vec::new(),
        own_cpu_percent: 0,
        disk: DiskSpec {
            bytes: size("size", &text.disk.size)?,
            write_bytes_per_s: size("write_bps", &text.disk.write_bps)?,
            read_bytes_per_s: size("read_bps", &text.disk.read_bps)?,
            iops: text.disk.iops,
            latency_ns: time("latency", &text.disk.latency)?,
            queue_depth: text.disk.queue_depth,
            cache_bytes: size("cache", &text.disk.cache)?,
            write_cache: text.disk.write_cache,
            seek_ns: time("seek", &text.disk.seek)?,
            rotation_ns: time("rotation", &text.disk.rotation)?,
            network_bytes_per_s: size("network_bps", &text.disk.network_bps)?,
            file_system: text.disk.file_system.clone(),
            array: text.disk.array.as_ref().map(|array| read_array(array, size, time)).transpose()?,
        },
    })
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

#[cfg(test)]
mod tests {
    use super::Scenario;
    use crate::scenario::builtin::BUILTIN;

    #[test]
    fn every_builtin_scenario_reads_and_is_named_as_its_file() {
        for (name, text) in BUILTIN {
            let scenario = Scenario::parse(name, text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(&scenario.name, name);
            assert!(scenario.sentence.ends_with(['.', '?']), "{name}: {}", scenario.sentence);
        }
    }
}
