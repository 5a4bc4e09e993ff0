//! `--set KEY=VALUE`: a knob of the machine, a parameter of a workload, or a time of the scenario.

use super::machine::is_of_device;
use super::{Growth, Scenario, WorkloadSpec};
use crate::params::SCALE;
use crate::{ParamError, Params};
use flatwater_recording::knob::{self, KNOBS, KnobError, nearest};
use flatwater_recording::units::{Bytes, UnitError};

#[derive(Debug, thiserror::Error)]
pub enum SetError {
    #[error("'{0}' is not of the form KEY=VALUE")]
    NoValue(String),
    #[error("unknown setting '{key}'{}; use a knob (`flatwater scenarios --knobs`), LABEL.PARAMETER of a workload ({}), duration, threshold, seed, machine.reserved, machine.resident, machine.buffers, machine.zone_min, machine.grows, machine.cgroup_grows, machine.own_cpu_percent, machine.cpu_speed_percent or model.* (docs/simulator.md)", .meant.as_ref().map(|m| format!(" (did you mean '{m}'?)")).unwrap_or_default(), .labels.join(", "))]
    Unknown { key: String, meant: Option<String>, labels: Vec<String> },
    #[error(transparent)]
    Knob(#[from] KnobError),
    #[error(transparent)]
    Param(#[from] ParamError),
    #[error(transparent)]
    Unit(#[from] UnitError),
    #[error("'{given}' is not a seed: use a whole number")]
    Seed { given: String },
    #[error("'{given}' is not a percentage: use a whole number over 0")]
    Percent { given: String },
    #[error(
        "machine.grows or machine.cgroup_grows: '{given}' is not of the form TIME:SIZE,SIZE... with a size for each node, in order of time, separated by ';' (0s:1MiB,0;2s:4MiB,1MiB)"
    )]
    Growth { given: String },
    #[error(
        "scenario '{scenario}' has no workload with a scale: shorten the scenario with -t, or set its parameters one by one"
    )]
    NoScale { scenario: String },
}

/// Parses `48MiB,24MiB`: one size per node.
fn sizes(list: &str) -> Result<Vec<u64>, UnitError> {
    list.split(',').map(|size| size.trim().parse::<Bytes>().map(|size| size.0)).collect()
}

/// Parses `0s:1MiB,0;1500ms:8MiB,2MiB`: the memory of each node from each instant on.
fn growths(list: &str) -> Result<Vec<Growth>, SetError> {
    let growth = |step: &str| {
        let (at, bytes) = step.split_once(':').ok_or_else(|| SetError::Growth { given: step.to_owned() })?;
        Ok(Growth { at: at.parse()?, node_bytes: sizes(bytes)? })
    };
    let all: Vec<Growth> = list.split(';').map(growth).collect::<Result<_, SetError>>()?;
    if all.is_sorted_by_key(|growth| growth.at) { Ok(all) } else { Err(SetError::Growth { given: list.to_owned() }) }
}

/// Prefix of the simulator's own inputs.
pub(super) const MODEL: &str = "model.";

impl Scenario {
    /// Applies one `KEY=VALUE`. An assignment that is refused does not change the scenario.
    pub fn set(&mut self, assignment: &str) -> Result<(), SetError> {
        let (key, value) = assignment.split_once('=').ok_or_else(|| SetError::NoValue(assignment.to_owned()))?;
        let (key, value) = (key.trim(), value.trim());
        match key {
            "duration" => self.duration = value.parse()?,
            "threshold" => self.threshold = value.parse()?,
            "machine.reserved" => self.machine.reserved_bytes = sizes(value)?,
            "machine.resident" => self.machine.resident_bytes = sizes(value)?,
            "machine.buffers" => self.machine.buffers_bytes = sizes(value)?,
            "machine.zone_min" => {
                self.machine.zone_min_bytes = value.split(';').map(sizes).collect::<Result<_, _>>()?;
            }
            "machine.grows" => self.machine.grows = growths(value)?,
            "machine.cgroup_grows" => self.machine.cgroup_grows = growths(value)?,
            "machine.own_cpu_percent" => {
                self.machine.own_cpu_percent =
                    value.parse().map_err(|_| SetError::Percent { given: value.to_owned() })?;
            }
            "machine.cpu_speed_percent" => {
                let percent = value.parse().ok().filter(|percent| *percent > 0);
                let percent = percent.ok_or_else(|| SetError::Percent { given: value.to_owned() })?;
                self.machine.cpu_speed_percent = Some(percent);
            }
            // The model checks whether it has this kernel.
            "kernel" => self.kernel = Some(value.to_owned()),
            "seed" => self.seed = value.parse().map_err(|_| SetError::Seed { given: value.to_owned() })?,
            _ if key.starts_with(MODEL) => {
                self.model.insert(key.to_owned(), value.to_owned());
            }
            _ if KNOBS.iter().any(|knob| knob.key == key) => self.setup.set(key, value)?,
            _ => return self.set_param(key, value),
        }
        Ok(())
    }

    /// Labels of the workloads that have a scale.
    pub fn scalable(&self) -> impl Iterator<Item = &str> {
        let has = |spec: &&WorkloadSpec| spec.entry.params.iter().any(|param| param.name == SCALE.name);
        self.workloads.iter().filter(has).map(|spec| spec.label.as_str())
    }

    /// Applies `--scale` to all workloads that have a scale; an error if none has.
    pub fn set_scale(&mut self, share: &str) -> Result<(), SetError> {
        let labels: Vec<String> = self.scalable().map(str::to_owned).collect();
        if labels.is_empty() {
            return Err(SetError::NoScale { scenario: self.name.clone() });
        }
        labels.iter().try_for_each(|label| self.set(&format!("{label}.{}={share}", SCALE.name)))
    }

    fn set_param(&mut self, key: &str, value: &str) -> Result<(), SetError> {
        let Some((label, name)) = key.split_once('.') else { return Err(self.unknown(key)) };
        if let Some(device) = self.machine.devices.iter_mut().find(|device| device.name == label && is_of_device(name))
        {
            return Ok(device.setup.set(name, value)?);
        }
        let Some(spec) = self.workloads.iter_mut().find(|spec| spec.label == label) else {
            return Err(self.unknown(key));
        };
        let kept: Vec<(String, String)> =
            spec.params.iter().filter(|(known, _)| *known != name).map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        let pairs = kept.iter().map(|(k, v)| (k.as_str(), v.as_str())).chain([(name, value)]);
        spec.params = Params::check(label, spec.entry.params, pairs)?;
        Ok(())
    }

    fn unknown(&self, key: &str) -> SetError {
        let knob_names = KNOBS.iter().map(|knob| knob.key.to_owned());
        let param_names = self
            .workloads
            .iter()
            .flat_map(|spec| spec.entry.params.iter().map(move |param| format!("{}.{}", spec.label, param.name)));
        let names: Vec<String> = knob_names.chain(param_names).collect();
        let meant = match knob::find(key) {
            Err(KnobError::Unknown { nearest: Some(near), .. }) => Some(near.to_owned()),
            _ => nearest(key, names.iter().map(String::as_str)).map(str::to_owned),
        };
        SetError::Unknown {
            key: key.to_owned(),
            meant,
            labels: self.workloads.iter().map(|w| w.label.clone()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Scenario;

    #[test]
    fn set_scale_sets_all_workloads_with_a_scale() {
        let mut scenario = Scenario::load("inode-churn").expect("built in");
        scenario.set_scale("0.5").expect("maildir has a scale");
        assert_eq!(scenario.scalable().collect::<Vec<_>>(), ["maildir"]);
        assert_eq!(scenario.workloads[0].params.share("scale").to_bits(), 0.5_f64.to_bits());
        assert!(scenario.set_scale("big").is_err());
        assert!(Scenario::load("journal-neighbours").expect("built in").set_scale("0.5").is_err());
    }

    #[test]
    fn knobs_parameters_and_times_can_be_set_and_others_are_refused_with_a_hint() {
        let mut scenario = Scenario::load("full-cgroup").expect("built in");
        let good =
            ["journal.bytes=300", "cgroup.memory_limit=1GiB", "duration=5s", "seed=9", "machine.resident=1MiB,4096"];
        for assignment in good {
            scenario.set(assignment).unwrap_or_else(|error| panic!("{assignment}: {error}"));
        }
        assert_eq!(scenario.workloads[0].params.size_bytes("bytes"), 300);
        assert_eq!(scenario.workloads[0].params.duration_ns("interval"), 200_000);
        assert_eq!(scenario.setup.get("cgroup.memory_limit"), Some("1073741824"));
        assert_eq!((scenario.duration.0, scenario.seed), (5_000_000_000, 9));
        assert_eq!(scenario.machine.resident_bytes, [1 << 20, 4096]);
        scenario.set("machine.grows=0s:1MiB,0;1500ms:8MiB,2MiB").expect("two steps of two nodes");
        let [first, last] = &scenario.machine.grows[..] else { panic!("{:?}", scenario.machine.grows) };
        assert_eq!((first.at.0, first.node_bytes.as_slice()), (0, [1 << 20, 0].as_slice()));
        assert_eq!((last.at.0, last.node_bytes.as_slice()), (1_500_000_000, [8 << 20, 2 << 20].as_slice()));
        for wrong in ["machine.grows=1MiB", "machine.grows=2s:1MiB;1s:1MiB", "machine.grows=1s:many"] {
            assert!(scenario.set(wrong).is_err(), "{wrong}");
        }
        assert_eq!(scenario.machine.grows.len(), 2, "a refused assignment changes nothing");
        scenario.set("machine.cgroup_grows=0s:1MiB;1s:2MiB,1MiB").expect("two steps");
        assert_eq!(
            scenario.machine.cgroup_grows.iter().map(|step| step.bytes()).collect::<Vec<_>>(),
            [1 << 20, 3 << 20]
        );
        scenario.set("model.cache_percent=70").expect("the simulator checks it");
        assert_eq!(scenario.model.get("model.cache_percent").map(String::as_str), Some("70"));
        for (assignment, hint) in [("vm.swapiness=1", "vm.swappiness"), ("jurnal.bytes=1", "journal.bytes")] {
            let refusal = scenario.set(assignment).expect_err(assignment).to_string();
            assert!(refusal.contains(hint), "{refusal}");
        }
        assert!(scenario.set("journal.interval=soon").is_err() && scenario.set("duration").is_err());
    }
}
