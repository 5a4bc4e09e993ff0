//! The list of all constants that a run uses, as text.

use std::fmt::Write;

use super::Provenance;
use super::inputs::{Input, of_scenario};
use crate::kernel::Profile;
use flatwater_workload::scenario::Scenario;

use crate::block;
use crate::block::drive;
use crate::block::requests;
use crate::block::wbt;
use crate::fs::journal;
use crate::fs::placement;
use crate::machine::bounds;
use crate::machine::build;
use crate::machine::knobs;
use crate::mm::anonymous;
use crate::mm::cpu_list;
use crate::mm::fault;
use crate::mm::kswapd_node;
use crate::mm::memcontrol;
use crate::mm::readahead;
use crate::mm::reclaim;
use crate::mm::shrink_node;
use crate::mm::shrinker;
use crate::mm::slab;
use crate::mm::super_cache;
use crate::mm::xarray;
use crate::mm::zone;
use crate::run;
use crate::run::precursor_steps;
use crate::run::prepare;
use crate::run::process;
use crate::v22;
use crate::writeback;
use crate::writeback::dirty_throttle;
use crate::writeback::flusher;
use crate::writeback::io_less;
use crate::writeback::proportions;

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
        precursor_steps::CONSTANTS,
        anonymous::CONSTANTS,
        block::CONSTANTS,
        block::deadline::CONSTANTS,
        block::tags::CONSTANTS,
        bounds::CONSTANTS,
        build::CONSTANTS,
        drive::CONSTANTS,
        fault::CONSTANTS,
        flusher::CONSTANTS,
        io_less::CONSTANTS,
        journal::CONSTANTS,
        knobs::CONSTANTS,
        placement::CONSTANTS,
        prepare::CONSTANTS,
        process::CONSTANTS,
        run::CONSTANTS,
        proportions::CONSTANTS,
        readahead::CONSTANTS,
        reclaim::CONSTANTS,
        requests::CONSTANTS,
        dirty_throttle::CONSTANTS,
        wbt::CONSTANTS,
        writeback::CONSTANTS,
        zone::CONSTANTS,
    ] {
        add(entries);
    }
    if profile.is_6() {
        add(slab::CONSTANTS);
    }
    if profile.is_6() {
        let of_6 = [shrink_node::CONSTANTS, kswapd_node::CONSTANTS, cpu_list::CONSTANTS];
        of_6.into_iter().for_each(&mut add);
        [super_cache::CONSTANTS, memcontrol::CONSTANTS, xarray::CONSTANTS].into_iter().for_each(add);
    } else {
        [cpu_list::CONSTANTS, shrinker::CONSTANTS].into_iter().for_each(add);
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
