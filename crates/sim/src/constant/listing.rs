//! The list of all constants that a run uses, as text.

use std::fmt::Write;

use super::Provenance;
use super::inputs::{Input, of_scenario};
use crate::kernel::Profile;
use flatwater_workload::scenario::Scenario;

use crate::{block, fs, machine, mm, run, v22, writeback};

/// One constant in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path of the module that declares it.
    pub module: &'static str,
    pub name: &'static str,
    pub value: u64,
    pub provenance: Provenance,
}

impl Entry {
    /// `block::deadline::FIFO_BATCH`.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}::{}", self.module.trim_start_matches("flatwater_sim::"), self.name)
    }
}

/// Every constant that a run of this profile uses: its table, and the mechanisms' constants.
#[must_use]
pub fn of_profile(profile: &Profile) -> Vec<Entry> {
    let mut all = profile.constants();
    let mut add = |entries: &[Entry]| all.extend_from_slice(entries);
    if profile.buffer_cache.is_some() {
        [v22::disk::CONSTANTS, v22::ext2::CONSTANTS].into_iter().for_each(add);
        return all;
    }
    for entries in [
        block::CONSTANTS,
        block::deadline::CONSTANTS,
        block::drive::CONSTANTS,
        block::requests::CONSTANTS,
        block::tags::CONSTANTS,
        block::wbt::CONSTANTS,
        fs::journal::CONSTANTS,
        fs::placement::CONSTANTS,
        machine::bounds::CONSTANTS,
        machine::build::CONSTANTS,
        machine::knobs::CONSTANTS,
        mm::anonymous::CONSTANTS,
        mm::cpu_list::CONSTANTS,
        mm::fault::CONSTANTS,
        mm::readahead::CONSTANTS,
        mm::reclaim::CONSTANTS,
        mm::zone::CONSTANTS,
        run::CONSTANTS,
        run::precursor_steps::CONSTANTS,
        run::prepare::CONSTANTS,
        run::process::CONSTANTS,
        writeback::CONSTANTS,
        writeback::dirty_throttle::CONSTANTS,
        writeback::flusher::CONSTANTS,
        writeback::io_less::CONSTANTS,
        writeback::proportions::CONSTANTS,
    ] {
        add(entries);
    }
    if profile.is_6() {
        for entries in [
            mm::kswapd_node::CONSTANTS,
            mm::memcontrol::CONSTANTS,
            mm::shrink_node::CONSTANTS,
            mm::slab::CONSTANTS,
            mm::super_cache::CONSTANTS,
            mm::xarray::CONSTANTS,
        ] {
            add(entries);
        }
    } else {
        add(mm::shrinker::CONSTANTS);
    }
    all
}

/// The list as text: one constant a line, and the number of each kind at the end.
#[must_use]
pub fn text(profile: &Profile, inputs: &[Input]) -> String {
    let entries = of_profile(profile);
    let mut text = format!("Constants of {}:\n", profile.name);
    for entry in &entries {
        let _ = writeln!(
            text,
            "  {:<34} {:>12}  {:<9}  {}",
            entry.path(),
            entry.value,
            entry.provenance.kind(),
            entry.provenance
        );
    }
    if !inputs.is_empty() {
        text.push_str("\nInputs of the scenario that no text states:\n");
    }
    for input in inputs {
        let from = input.provenance;
        let _ = writeln!(text, "  {:<34} {:>12}  {:<9}  {from}", input.key, input.value, from.kind());
    }
    let from = || entries.iter().map(|entry| entry.provenance).chain(inputs.iter().map(|input| input.provenance));
    let counts = ["kernel", "measured", "published", "fitted", "assumed"]
        .map(|kind| format!("{} {kind}", from().filter(|provenance| provenance.kind() == kind).count()));
    let _ = writeln!(text, "\n{}", counts.join(", "));
    text
}

/// A table of all fitted constants and inputs of scenarios, by the published row that each was fitted to.
#[must_use]
pub fn calibration(profiles: &[Profile], scenarios: &[Scenario]) -> String {
    let mut rows = std::collections::BTreeSet::new();
    for entry in profiles.iter().flat_map(of_profile) {
        if let Provenance::Fitted { row } = entry.provenance {
            rows.insert((row, format!("`{}` = {}", entry.path(), entry.value)));
        }
    }
    for scenario in scenarios {
        for input in of_scenario(scenario) {
            if let Provenance::Fitted { row } = input.provenance {
                rows.insert((row, format!("`{}` = {}", input.key, input.value)));
            }
        }
    }
    let mut table = "| calibrated row | by |\n|---|---|\n".to_owned();
    for (row, by) in rows {
        let _ = writeln!(table, "| {row} | {by} |");
    }
    table
}
