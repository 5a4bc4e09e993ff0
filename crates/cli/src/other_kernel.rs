//! Scenarios that are for another kernel than this machine's.

use super::common::Usage;
use flatwater_experiment::whatif::recorded::profile_of;
use flatwater_workload::scenario::Scenario;

/// The release of the running kernel.
#[must_use]
pub fn release() -> Option<String> {
    flatwater_host::machine::describe().kernel
}

/// Whether the profile is of a kernel that people run today. The others are those of published case studies.
fn is_modern(profile: &str) -> bool {
    let version = profile.trim_start_matches(|c: char| !c.is_ascii_digit());
    version.split('.').next().and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major >= 3)
}

/// Refuses a scenario for another kernel than this machine's, because it would measure this kernel under a name that
/// promises another one.
pub fn refuse(scenario: &Scenario, given: &str, release: Option<&str>) -> Result<(), Usage> {
    let Some(wanted) = &scenario.kernel else { return Ok(()) };
    let release = release.unwrap_or("an unknown kernel");
    let host = profile_of(release);
    // A modern kernel in a scenario is the model's default: such a scenario is for all modern kernels.
    if host == wanted || (is_modern(host) && is_modern(wanted)) {
        return Ok(());
    }
    Err(Usage::new(format!(
        "{} is for {wanted}, and this machine runs {release}: `flatwater run {given} --on sim` performs it in the model of \
         {wanted}; --on host performs its workload on this kernel",
        scenario.name
    )))
}

#[cfg(test)]
mod tests {
    use super::{Scenario, refuse};

    /// `run journal-2.6.32` measured the live host under the name of an old kernel.
    #[test]
    fn a_scenario_for_another_kernel_is_refused_with_the_right_command() {
        let old = Scenario::load("journal-2.6.32").expect("built in");
        let error = refuse(&old, "journal-2.6.32", Some("6.18.44-x")).expect_err("another kernel").to_string();
        assert!(error.contains("`flatwater run journal-2.6.32 --on sim`") && error.contains("6.18.44-x"), "{error}");
        assert!(refuse(&old, "journal-2.6.32", Some("2.6.32-754.el6")).is_ok(), "that kernel itself");
        assert!(refuse(&old, "journal-2.6.32", None).is_err());
        let spill = Scenario::load("numa-spill").expect("built in");
        assert!(refuse(&spill, "numa-spill", Some("5.14.0-427.el9")).is_ok(), "modelled on 6.1, for modern kernels");
        assert!(refuse(&spill, "numa-spill", Some("2.6.32-754.el6")).is_err());
        let any = Scenario::load("journal").expect("built in");
        assert!(refuse(&any, "journal", Some("6.18.44-x")).is_ok());
    }
}
