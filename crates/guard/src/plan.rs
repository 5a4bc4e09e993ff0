//! Chooses the limit for a suspect, or the reason why there is none.

use crate::action::{Action, Direction, Setting, WEIGHT_DEFAULT};
use crate::observe::{Means, Suspect, VictimStall};
use crate::policy::Policy;
use crate::reason::Refusal;

/// A suspect is limited only if it answers for at least this share of the victim's stall time.
pub const SHARE_MIN: f64 = 0.5;
/// A process with a smaller share is not named at all, as in explanations.
pub const NAMED_SHARE_MIN: f64 = 0.2;
/// From this share on, the victim's own limit is the cause.
pub const OWN_LIMIT_SHARE_MIN: f64 = 0.3;
const PAGE_BYTES_MAX: u64 = 64 << 10;
/// Weights of a limited group.
const WEIGHT: u32 = 10;

/// The limits to try for a suspect.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// In the order of the attempts: at least one, and at most `policy.steps_max`.
    pub limits: Vec<Action>,
    /// Why flatwater cannot set them on this machine, although they would help.
    pub obstacle: Option<Refusal>,
}

/// Plans limits on a suspect. Checks the evidence and the machine, and not what the administrator permits
/// (`permitted`).
pub fn plan(stall: &VictimStall, suspect: &Suspect, policy: &Policy) -> Result<Plan, Refusal> {
    evidence(stall, suspect)?;
    let group = suspect.group.clone().ok_or(Refusal::GroupUnknown)?;
    let knobs = &suspect.knobs;
    let (settings, knob) = match suspect.means {
        Means::Device => (of_device(suspect, policy), &knobs.io_max),
        Means::DirtyPages | Means::Memory => (of_memory(suspect, policy), &knobs.memory_high),
        Means::Cpu => (of_cpu(suspect, policy), &knobs.cpu_max),
        Means::Lock => return Err(Refusal::LockHolder),
        Means::Journal => return Err(Refusal::SharedJournal),
        Means::Other => return Err(Refusal::MeansUnknown),
    };
    // On version 1, the use of a group is not read either.
    let (settings, obstacle) =
        settings.map_err(|why| if *knob == Err(Refusal::CgroupV1) { Refusal::CgroupV1 } else { why })?;
    let settings = settings.into_iter().take(policy.steps_max.max(1) as usize);
    Ok(Plan { limits: settings.map(|setting| Action { group: group.clone(), setting }).collect(), obstacle })
}

/// Whether the evidence supports any limit on the suspect.
fn evidence(stall: &VictimStall, suspect: &Suspect) -> Result<(), Refusal> {
    if stall.own_limit_share >= OWN_LIMIT_SHARE_MIN {
        return Err(Refusal::OwnLimit);
    }
    if suspect.is_in_root_group {
        return Err(Refusal::RootGroup);
    }
    let group = suspect.group.as_ref().ok_or(Refusal::GroupUnknown)?;
    let contains_victim = stall.victim.group.as_ref().is_some_and(|victim| group.contains(victim));
    if suspect.is_in_victims_group || contains_victim {
        return Err(Refusal::OwnGroup);
    }
    // The means decide before the share does: a lock's holder must not be limited, however large its share.
    match suspect.means {
        Means::Lock => return Err(Refusal::LockHolder),
        Means::Journal => return Err(Refusal::SharedJournal),
        Means::Other => return Err(Refusal::MeansUnknown),
        Means::Device => match suspect.same_file_system {
            Some(true) => return Err(Refusal::SharedJournal),
            None => return Err(Refusal::FileSystemUnknown),
            Some(false) => {}
        },
        Means::DirtyPages | Means::Memory | Means::Cpu => {}
    }
    if group.is_of_the_system() {
        return Err(Refusal::SystemGroup);
    }
    if !suspect.share.is_finite() || suspect.share < SHARE_MIN {
        return Err(Refusal::WeakEvidence);
    }
    if !suspect.is_measured {
        return Err(Refusal::NotMeasured);
    }
    if stall.is_incomplete {
        return Err(Refusal::Incomplete);
    }
    Ok(())
}

/// Whether the administrator permits limits on this suspect for this victim.
pub fn permitted(stall: &VictimStall, suspect: &Suspect, policy: &Policy) -> Result<(), Refusal> {
    let group = suspect.group.as_ref().ok_or(Refusal::GroupUnknown)?;
    let listed = stall.victim.group.as_ref().is_some_and(|victim| policy.is_victim(victim));
    if !listed {
        return Err(Refusal::VictimNotListed);
    }
    if !stall.victim.is_trusted {
        return Err(Refusal::VictimNotTrusted);
    }
    if group.is_of_the_system() {
        return Err(Refusal::SystemGroup);
    }
    if !policy.may_limit(group) {
        return Err(if group.is_user_session() { Refusal::UserSession } else { Refusal::NotAllowed });
    }
    if !suspect.is_trusted {
        return Err(Refusal::GroupNotTrusted);
    }
    Ok(())
}

/// `amount` times the step's power, for each step, while at least `floor`.
fn steps(amount: u64, floor: u64, policy: &Policy) -> Vec<u64> {
    let times = (1..=policy.steps_max).map(|power| policy.step.powi(power.cast_signed()));
    times.map(|times| (amount as f64 * times) as u64).take_while(|limit| *limit >= floor).collect()
}

/// Settings, and the obstacle that keeps flatwater from setting them.
type Settings = (Vec<Setting>, Option<Refusal>);

/// The settings whose knob has its default. If this machine does not let flatwater set any, all with the obstacle.
fn settable(suspect: &Suspect, wanted: Vec<Setting>) -> Result<Settings, Refusal> {
    let free = |setting: &Setting| {
        let value = setting.value_in(suspect.knobs.text(*setting)?).ok_or(Refusal::KnobUnreadable)?;
        if value == setting.default_value() { Ok(()) } else { Err(Refusal::KnobInUse) }
    };
    let first = wanted.first().ok_or(Refusal::BelowFloor)?;
    let usable: Vec<Setting> = wanted.iter().copied().filter(|setting| free(setting).is_ok()).collect();
    match free(first).err() {
        _ if !usable.is_empty() => Ok((usable, None)),
        Some(obstacle @ (Refusal::CgroupV1 | Refusal::NoController | Refusal::ReadOnly)) => {
            Ok((wanted, Some(obstacle)))
        }
        why => Err(why.unwrap_or(Refusal::KnobUnreadable)),
    }
}

fn of_device(suspect: &Suspect, policy: &Policy) -> Result<Settings, Refusal> {
    let device = suspect.amount.device.ok_or(Refusal::DeviceUnknown)?;
    let bytes_per_s = suspect.amount.bytes_per_s.filter(|bytes| *bytes > 0).ok_or(Refusal::RateUnknown)?;
    let direction = suspect.amount.direction.unwrap_or(Direction::Write);
    let limits = steps(bytes_per_s, policy.floor_bytes_per_s, policy);
    let limits = limits.into_iter().map(|bytes_per_s| Setting::IoMax { device, direction, bytes_per_s });
    // A weight costs the aggressor nothing while the device is free, so it is tried first. Without a scheduler that
    // uses weights the knob is absent.
    let weight = suspect.knobs.io_weight.is_ok().then_some(Setting::IoWeight { weight: WEIGHT });
    settable(suspect, weight.into_iter().chain(limits).collect())
}

/// memory.high below the present use makes the group reclaim, and far below it stops the group (Kubernetes withdrew
/// that use again). So the limit is never below half of the present use.
fn of_memory(suspect: &Suspect, policy: &Policy) -> Result<Settings, Refusal> {
    let used = suspect.amount.memory_bytes.filter(|bytes| *bytes > 0).ok_or(Refusal::RateUnknown)?;
    let floor = policy.floor_memory_bytes.max(used / 2);
    // The kernel rounds to whole pages, of at most 64 KiB.
    let whole = |bytes: u64| bytes.next_multiple_of(PAGE_BYTES_MAX);
    let limits = [used / 4 * 3, used / 2].into_iter().map(whole).filter(|bytes| *bytes >= floor);
    settable(suspect, limits.map(|bytes| Setting::MemoryHigh { bytes }).collect())
}

fn of_cpu(suspect: &Suspect, policy: &Policy) -> Result<Settings, Refusal> {
    let used_us = suspect.amount.cpu_us_per_s.filter(|us| *us > 0).ok_or(Refusal::RateUnknown)?;
    // Per period of 100 ms.
    let limits = steps(used_us / 10, policy.floor_cpu_us, policy);
    let limits = limits.into_iter().map(|quota_us| Setting::CpuMax { quota_us });
    let weight = (WEIGHT < WEIGHT_DEFAULT).then_some(Setting::CpuWeight { weight: WEIGHT });
    settable(suspect, weight.into_iter().chain(limits).collect())
}
