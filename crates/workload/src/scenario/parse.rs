//! Parses scenario files: TOML -> `Scenario`, with errors that name file, line and key.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::machine::{MachineText, read_machine};
use super::place::Place;
use super::set::MODEL;
use super::{Change, FIRST_DEVICE, MachineSpec, NamedFix, Scenario, WorkloadSpec, builtin};
use crate::{ParamError, Params, Role, WORKLOADS, WorkloadEntry};
use flatwater_recording::Setup;
use flatwater_recording::knob::{self, KnobPlace, nearest};
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::units::Nanos;

#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    #[error("unknown scenario '{name}'{}; `flatwater scenarios` lists the built-in ones, and a path of a .toml file works too", .nearest.as_ref().map(|n| format!(" (did you mean '{n}'?)")).unwrap_or_default())]
    NotFound { name: String, nearest: Option<String> },
    #[error("cannot read scenario {path}: {source}")]
    Unreadable { path: String, source: std::io::Error },
    #[error("{origin}:{line}: {what}")]
    Bad { origin: String, line: usize, what: String },
}

pub type Table = toml::Table;

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

    /// Parses a scenario's text; `origin` is its name in errors.
    pub fn parse(origin: &str, text: &str) -> Result<Scenario, ScenarioError> {
        let place = Place { origin, text };
        let file: FileText = toml::from_str(text).map_err(|error| place.unreadable(&error))?;
        let duration = spanned_time(&place, file.duration.as_ref(), Nanos::from_secs(30))?;
        if duration.0 == 0 {
            return Err(place.bad(
                place.of_key(0, "duration"),
                "a run without duration measures nothing: set duration to 1s or more",
            ));
        }
        if file.workload.is_empty() {
            return Err(place.bad(0, "a scenario needs at least one [[workload]]"));
        }
        let machine = read_machine(&place, &file.machine)?;
        let (model, knobs): (BTreeMap<_, _>, BTreeMap<_, _>) =
            flat(&file.setup).into_iter().partition(|(key, _)| key.starts_with(MODEL));
        let setup = setup_of(&place, place.of_table("[setup"), knobs)?;
        Ok(Scenario {
            name: file.name,
            sentence: file.sentence,
            text: text.to_owned(),
            duration,
            threshold: spanned_time(&place, file.threshold.as_ref(), Nanos::MILLISECOND)?,
            seed: file.seed.unwrap_or(1),
            workloads: read_workloads(&place, &machine, &file.workload)?,
            machine,
            kernel: file.kernel,
            judge: file.judge,
            block: file.block.as_ref().map(|text| spanned_time(&place, Some(text), Nanos(0))).transpose()?,
            settle: file.settle.as_ref().map(|text| spanned_time(&place, Some(text), Nanos(0))).transpose()?,
            fallback: file.fallback,
            setup,
            model,
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
            let what = format!("{key} cannot change during a run: move it to [setup]");
            return Err(place.bad(place.of_key(from, key), what));
        }
        timeline.push(Change { at, set });
    }
    timeline.sort_short_by_key(|change| change.at);
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

fn read_workloads(
    place: &Place<'_>,
    machine: &MachineSpec,
    tables: &[Spanned<Table>],
) -> Result<Vec<WorkloadSpec>, ScenarioError> {
    let mut workloads: Vec<WorkloadSpec> = Vec::new();
    for table in tables {
        let spec = read_workload(place, machine, table)?;
        if workloads.iter().any(|known| known.label == spec.label) {
            let what = format!("two workloads have the name '{}': add a `label` to one of them", spec.label);
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

/// The TOML value as it would be typed on the command line.
fn plain(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

pub fn read_setup(place: &Place<'_>, from: usize, table: &Table) -> Result<Setup, ScenarioError> {
    setup_of(place, from, flat(table))
}

fn setup_of(
    place: &Place<'_>,
    from: usize,
    pairs: impl IntoIterator<Item = (String, String)>,
) -> Result<Setup, ScenarioError> {
    let mut setup = Setup::default();
    for (key, value) in pairs {
        setup.set(&key, &value).map_err(|error| place.bad(place.of_key(from, &key), error))?;
    }
    Ok(setup)
}

/// In TOML, `vm.swappiness = 10` without quotes is a table in a table.
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

fn read_workload(
    place: &Place<'_>,
    machine: &MachineSpec,
    table: &Spanned<Table>,
) -> Result<WorkloadSpec, ScenarioError> {
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
        place.bad(place.of_key(from, "use"), format!("unknown workload '{name}'{hint}"))
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
            let what = format!("unknown role '{other}': use foreground or neighbour");
            return Err(place.bad(place.of_key(from, "role"), what));
        }
    };
    let device = take("device").map_or(Ok(0), |name| device_called(place, machine, from, &name))?;
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
    Ok(WorkloadSpec { label, entry, params, start, duration, role, device, cpu, node, fifo_priority })
}

/// Index of a device by its name; 0 is the scenario's disk.
fn device_called(place: &Place<'_>, machine: &MachineSpec, from: usize, name: &str) -> Result<usize, ScenarioError> {
    let names = || std::iter::once(FIRST_DEVICE).chain(machine.devices.iter().map(|device| device.name.as_str()));
    names().position(|known| known == name).ok_or_else(|| {
        let hint = nearest(name, names()).map(|meant| format!(" (did you mean '{meant}'?)")).unwrap_or_default();
        let known = names().collect::<Vec<_>>().join(", ");
        place.bad(place.of_key(from, "device"), format!("unknown device '{name}'{hint}; the machine has {known}"))
    })
}

/// Keys of every [[workload]] in addition to its parameters.
const WORKLOAD_KEYS: &[&str] = &["use", "label", "start", "duration", "role", "device", "cpu", "node", "fifo_priority"];

fn unknown_key(workload: &str, entry: &WorkloadEntry, key: &str) -> String {
    let params: Vec<&str> = entry.params.iter().map(|param| param.name).collect();
    let meant = nearest(key, params.iter().copied().chain(WORKLOAD_KEYS.iter().copied()));
    let hint = meant.map(|meant| format!(" (did you mean '{meant}'?)")).unwrap_or_default();
    format!(
        "workload '{workload}' has no '{key}'{hint}; it has {}, and like every workload {}",
        params.join(", "),
        WORKLOAD_KEYS.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::Scenario;
    use crate::scenario::builtin::BUILTIN;

    #[test]
    fn every_builtin_scenario_parses_and_is_named_like_the_file() {
        for (name, text) in BUILTIN {
            let scenario = Scenario::parse(name, text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(&scenario.name, name);
            assert!(scenario.sentence.ends_with(['.', '?']), "{name}: {}", scenario.sentence);
        }
    }
}
