//! Scenario files: TOML -> `Scenario`, with errors that name file, line and key.

use serde::Deserialize;
use toml::Spanned;

use super::{Change, DiskSpec, MachineSpec, NamedFix, Scenario, WorkloadSpec, builtin};
use crate::recording::knob::nearest;
use crate::recording::{KnobError, Setup};
use crate::units::{Bytes, Nanos};
use crate::workload::{self, ParamError, Params, WORKLOADS};

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
    seek: Option<String>,
    rotation: Option<String>,
    file_system: Option<String>,
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

/// Where in the text an error is said to be.
struct Place<'a> {
    origin: &'a str,
    text: &'a str,
}

impl Place<'_> {
    fn bad(&self, offset: usize, what: impl ToString) -> ScenarioError {
        let line = self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1;
        ScenarioError::Bad { origin: self.origin.to_owned(), line, what: what.to_string() }
    }

    /// Offset of a key's first mention after `from`, for errors about one key of a table.
    fn of_key(&self, from: usize, key: &str) -> usize {
        self.text.get(from..).and_then(|rest| rest.find(key)).map_or(from, |found| from + found)
    }
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
        let file: FileText = toml::from_str(text)
            .map_err(|error| place.bad(error.span().map_or(0, |span| span.start), error.message()))?;
        let setup_at = text.find("[setup]").unwrap_or(0);
        let mut timeline = Vec::new();
        for change in &file.timeline {
            let from = change.span().start;
            let change = change.get_ref();
            let at = change.at.parse().map_err(|error| place.bad(place.of_key(from, "at"), error))?;
            timeline.push(Change { at, set: read_setup(&place, from, &change.set)? });
        }
        timeline.sort_by_key(|change| change.at);
        let mut fixes = Vec::new();
        for fix in &file.fix {
            let from = fix.span().start;
            let fix = fix.get_ref();
            let set = read_setup(&place, from, &fix.set)?;
            fixes.push(NamedFix { name: fix.name.clone(), sentence: fix.sentence.clone(), set });
        }
        if file.workload.is_empty() {
            return Err(place.bad(0, "a scenario needs at least one [[workload]]"));
        }
        Ok(Scenario {
            name: file.name,
            sentence: file.sentence,
            text: text.to_owned(),
            duration: spanned_time(&place, file.duration.as_ref(), Nanos::from_secs(30))?,
            threshold: spanned_time(&place, file.threshold.as_ref(), Nanos::MILLISECOND)?,
            seed: file.seed.unwrap_or(1),
            machine: read_machine(&place, &file.machine)?,
            kernel: file.kernel,
            judge: file.judge,
            fallback: file.fallback,
            setup: read_setup(&place, setup_at, &file.setup)?,
            workloads: file.workload.iter().map(|table| read_workload(&place, table)).collect::<Result<_, _>>()?,
            timeline,
            expect: file.expect.map(|expect| expect.text).unwrap_or_default(),
            fixes,
        })
    }
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
    for (key, value) in table {
        setup.set(key, &plain(value)).map_err(|error: KnobError| place.bad(place.of_key(from, key), error))?;
    }
    Ok(setup)
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
    let entry = workload::find(&name).ok_or_else(|| {
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
    let params = Params::check(&name, entry.params, pairs).map_err(|error| {
        let at = match &error {
            ParamError::Unknown { name, .. } | ParamError::BadValue { name, .. } => place.of_key(from, name),
            ParamError::Impossible { .. } => from,
        };
        place.bad(at, error)
    })?;
    let [cpu, node, fifo_priority] = placement;
    Ok(WorkloadSpec { label, entry, params, start, duration, cpu, node, fifo_priority })
}

fn read_machine(place: &Place<'_>, text: &MachineText) -> Result<MachineSpec, ScenarioError> {
    let from = place.text.find("[machine").unwrap_or(0);
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
        cpu_speed_percent: text.cpu_speed_percent,
        disk: DiskSpec {
            bytes: size("size", &text.disk.size)?,
            write_bytes_per_s: size("write_bps", &text.disk.write_bps)?,
            read_bytes_per_s: size("read_bps", &text.disk.read_bps)?,
            iops: text.disk.iops,
            seek_ns: time("seek", &text.disk.seek)?,
            rotation_ns: time("rotation", &text.disk.rotation)?,
            file_system: text.disk.file_system.clone(),
        },
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

    #[test]
    fn errors_name_the_line_and_the_nearest_key() {
        let text = "name = 'x'\nsentence = 'X.'\n[setup]\n'vm.swapiness' = 10\n[[workload]]\nuse = 'journal'\n";
        let error = Scenario::parse("x.toml", text).expect_err("misspelt knob").to_string();
        assert!(error.starts_with("x.toml:4:") && error.contains("vm.swappiness"), "{error}");
        let text = "name = 'x'\nsentence = 'X.'\n[[workload]]\nuse = 'journal'\nintervall = '1s'\n";
        let error = Scenario::parse("x.toml", text).expect_err("misspelt parameter").to_string();
        assert!(error.starts_with("x.toml:5:") && error.contains("'interval'"), "{error}");
    }
}
