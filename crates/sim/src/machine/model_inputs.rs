//! The simulator's own inputs, `model.*`: what the machine contains when a run begins. No kernel has such a setting.

use crate::machine::bounds::Bound;
use flatwater_recording::units::Bytes;
use flatwater_workload::scenario::Scenario;

/// Checked values of `Scenario::model`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelInputs {
    /// Memory of processes, % of memory.
    pub pinned_percent: u64,
    /// Page cache on the active lists, % of the free memory above the high watermark.
    pub active_percent: u64,
    /// Page cache of old files, % of what `active_percent` leaves.
    pub cache_percent: u64,
    /// Share of each file that a workload maps from its start on which is in memory, mapped and referenced.
    pub mapped_percent: u64,
    /// Memory that a process takes page by page before the run, bytes, and the process's node.
    pub process_memory: u64,
    pub process_node: u64,
    /// Version of the memory cgroup: under version 1 the dirty limits are the machine's, and reclaim waits for
    /// writeback.
    pub cgroup_version: u64,
}

impl Default for ModelInputs {
    fn default() -> ModelInputs {
        ModelInputs {
            pinned_percent: 0,
            active_percent: 0,
            cache_percent: 0,
            mapped_percent: 0,
            process_memory: 0,
            process_node: 0,
            cgroup_version: 2,
        }
    }
}

/// Names of the inputs, each with its largest value.
const INPUTS: [(&str, u64); 7] = [
    ("model.pinned_percent", 90),
    ("model.active_percent", 100),
    ("model.cache_percent", 100),
    ("model.mapped_percent", 100),
    ("model.process_memory", 1 << 44),
    ("model.process_node", 63),
    ("model.cgroup_version", 2),
];

impl ModelInputs {
    pub fn of(scenario: &Scenario) -> Result<ModelInputs, Bound> {
        let mut inputs = ModelInputs::default();
        for (key, text) in &scenario.model {
            let most = INPUTS.iter().find(|(name, _)| name == key).map(|(_, most)| *most);
            let most = most.ok_or_else(|| Bound::UnknownInput(key.clone(), INPUTS.map(|(name, _)| name).join(", ")))?;
            let value = text.parse::<Bytes>().ok().map(|bytes| bytes.0).filter(|value| *value <= most);
            let value = value.ok_or_else(|| Bound::Input { key: key.clone(), value: text.clone(), most })?;
            *inputs.slot(key) = value;
        }
        Ok(inputs)
    }

    fn slot(&mut self, key: &str) -> &mut u64 {
        match key {
            "model.pinned_percent" => &mut self.pinned_percent,
            "model.active_percent" => &mut self.active_percent,
            "model.cache_percent" => &mut self.cache_percent,
            "model.mapped_percent" => &mut self.mapped_percent,
            "model.process_memory" => &mut self.process_memory,
            "model.process_node" => &mut self.process_node,
            _ => &mut self.cgroup_version,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ModelInputs;
    use flatwater_workload::scenario::Scenario;

    #[test]
    fn inputs_are_checked_by_name_and_range() {
        let mut scenario = Scenario::load("journal").expect("built in");
        scenario.set("model.process_memory=2MiB").expect("taken");
        scenario.set("model.cgroup_version=1").expect("taken");
        let expected = ModelInputs { process_memory: 2 << 20, cgroup_version: 1, ..ModelInputs::default() };
        assert_eq!(ModelInputs::of(&scenario), Ok(expected));
        for wrong in ["model.cache_percent=101", "model.cache_percent=many", "model.cash_percent=1"] {
            let mut scenario = scenario.clone();
            scenario.set(wrong).expect("the simulator checks it");
            let why = ModelInputs::of(&scenario).expect_err(wrong).to_string();
            assert!(why.contains(wrong.split('=').next().unwrap_or_default()), "{why}");
        }
    }
}
