//! The model of the kernel, in builds that have it (feature `sim`).

use flatwater_recording::Recording;
use flatwater_workload::scenario::Scenario;

#[cfg(not(feature = "sim"))]
use super::common::Usage;

/// Performs a scenario in the model.
#[cfg(feature = "sim")]
pub fn run(scenario: &Scenario) -> anyhow::Result<Recording> {
    Ok(flatwater_sim::run(scenario).map(|(recording, _truth)| recording)?)
}

#[cfg(not(feature = "sim"))]
pub fn run(_scenario: &Scenario) -> anyhow::Result<Recording> {
    Err(absent())
}

/// Lists every constant of the model with its origin.
#[cfg(feature = "sim")]
pub fn constants(scenario: &Scenario) -> anyhow::Result<String> {
    Ok(flatwater_sim::constants(scenario)?)
}

#[cfg(not(feature = "sim"))]
pub fn constants(_scenario: &Scenario) -> anyhow::Result<String> {
    Err(absent())
}

/// Lists the model's kernels, and changes that the model does not have.
#[cfg(feature = "sim")]
pub fn kernels() -> anyhow::Result<String> {
    use flatwater_sim::kernel;
    let line = |make: &fn() -> kernel::Profile| format!("{}: {}\n", make().name, make().sentence);
    let mut text: String = kernel::PROFILES.iter().map(line).collect();
    text.push_str("\nChanges that the model does not have:\n");
    text.extend(kernel::ABSENT.iter().map(|title| format!("    {title}\n")));
    Ok(text)
}

#[cfg(not(feature = "sim"))]
pub fn kernels() -> anyhow::Result<String> {
    Err(absent())
}

#[cfg(not(feature = "sim"))]
fn absent() -> anyhow::Error {
    anyhow::Error::new(Usage::new("this build has no model of the kernel; `make build` builds it in (feature sim)"))
}
