//! Measures the victim's own calls, and what the aggressor gets, in the windows that the controller asks for.

use flatwater_guard::{Action, GroupPath, Measure, Sight, Window};
use flatwater_host::clock::monotonic_ns;
use flatwater_host::setup::lease::boottime_ns;
use flatwater_recording::CgroupFile;

use super::evidence::victim_group;
use super::machine::{cpu_us, io_bytes, number, read};
use crate::lookback::LookBack;
use crate::second::OwnedCall;

/// A call is reported up to this long after it returned.
const REPORTED_NS: u64 = 2_500_000_000;
/// With less CPU time in a window the victim did nothing.
const ACTIVE_US_MIN: u64 = 200;

/// A window that was asked for.
#[derive(Debug)]
pub struct OpenWindow {
    number: u64,
    /// On the clock of calls.
    from_ns: u64,
    to_ns: u64,
    victim: GroupPath,
    action: Action,
    victim_us: Option<u64>,
    used: Option<u64>,
    /// Readings at the end of the window.
    ended: Option<Ended>,
}

#[derive(Debug)]
struct Ended {
    victim_us: Option<u64>,
    is_populated: Option<bool>,
    used: Option<u64>,
    after_ns: u64,
}

/// Use of the limited resource since the group was created.
fn used(action: &Action) -> Option<u64> {
    match action.setting.file() {
        CgroupFile::CpuMax | CgroupFile::CpuWeight => cpu_us(&action.group),
        _ => io_bytes(&action.group),
    }
}

impl OpenWindow {
    /// Begins a window; `window` is on the controller's clock.
    pub fn begin(window: Window, victim: GroupPath, action: Action) -> OpenWindow {
        // Both clocks run at the same rate, and a suspension ends the episode.
        let offset_ns = boottime_ns().saturating_sub(monotonic_ns());
        OpenWindow {
            number: window.number,
            from_ns: window.from_ns.saturating_sub(offset_ns),
            to_ns: window.to_ns.saturating_sub(offset_ns),
            victim_us: cpu_us(&victim),
            used: used(&action),
            victim,
            action,
            ended: None,
        }
    }

    /// The measure, once all calls of the window have been reported. `is_incomplete`: events were lost or hooks shed.
    pub fn measure(&mut self, look_back: &LookBack, is_incomplete: bool) -> Option<Measure> {
        let now_ns = monotonic_ns();
        if now_ns < self.to_ns {
            return None;
        }
        let ended = self.ended.get_or_insert_with(|| Ended {
            victim_us: cpu_us(&self.victim),
            is_populated: read(&self.victim, "cgroup.events")
                .and_then(|text| number(&text, "populated"))
                .map(|n| n > 0),
            used: used(&self.action),
            after_ns: now_ns.saturating_sub(self.from_ns).max(1),
        });
        if now_ns < self.to_ns.saturating_add(REPORTED_NS) {
            return None;
        }
        let stalled_ns = stalled_ns(look_back, &self.victim, self.from_ns, self.to_ns);
        let active = ended.victim_us.zip(self.victim_us).map(|(after, before)| after.saturating_sub(before));
        let width_ns = self.to_ns.saturating_sub(self.from_ns).max(1);
        let victim = match (ended.is_populated, active) {
            (Some(false), _) => Sight::Gone,
            _ if is_incomplete => Sight::NotObserved,
            _ if stalled_ns > 0 => Sight::Stalled(stalled_ns as f64 / width_ns as f64),
            (None, _) | (_, None) => Sight::NotObserved,
            (_, Some(us)) if us < ACTIVE_US_MIN => Sight::Idle,
            _ => Sight::Stalled(0.0),
        };
        let grew = ended.used.zip(self.used).map(|(after, before)| after.saturating_sub(before));
        let aggressor_per_s = grew.map(|grew| grew as f64 * 1e9 / ended.after_ns as f64);
        Some(Measure { number: self.number, victim, aggressor_per_s })
    }
}

/// The time within the interval in which slow calls of the group were under way, summed over its calls.
fn stalled_ns(look_back: &LookBack, group: &GroupPath, from_ns: u64, to_ns: u64) -> u64 {
    let in_group = |owned: &&OwnedCall| victim_group(owned) == group.as_str();
    let within = |owned: &OwnedCall| {
        let (start_ns, end_ns) = (owned.call.start_ns.max(from_ns), owned.call.end_ns().min(to_ns));
        end_ns.saturating_sub(start_ns)
    };
    let late = look_back.seconds().rev().take_while(|second| second.end_ns >= from_ns);
    let ended: u64 = late.flat_map(|second| &second.calls).filter(in_group).map(within).fold(0, u64::saturating_add);
    let newest = look_back.seconds().next_back();
    let hanging = newest.into_iter().flat_map(|second| &second.under_way).filter(in_group).map(within);
    hanging.fold(ended, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flatwater_guard::GroupPath;

    use super::stalled_ns;
    use crate::lookback::LookBack;
    use crate::owner::Owner;
    use crate::second::{OwnedCall, Second};
    use crate::sight::tests::call;

    const S: u64 = 1_000_000_000;

    #[test]
    fn only_the_groups_time_within_the_window_counts() {
        let of = |group: &str, start_ns: u64, ns: u64| {
            let owner = Owner { cgroup: group.into(), ..Owner::default() };
            OwnedCall::new(call(start_ns, ns), owner)
        };
        let mut look_back = LookBack::new(60 * S, 1 << 24);
        // From 9 to 11, wholly within, of another group, and after the window.
        let calls =
            vec![of("/db", 9 * S, 2 * S), of("/db", 11 * S, S / 2), of("/jobs", 11 * S, S), of("/db", 13 * S, S)];
        let under_way = vec![of("/db", 12 * S - S / 4, 9 * S)];
        look_back.push(Arc::new(Second { start_ns: 13 * S, end_ns: 14 * S, calls, under_way, ..Second::default() }));
        let db = GroupPath::new("/db").expect("a group");
        assert_eq!(stalled_ns(&look_back, &db, 10 * S, 12 * S), S + S / 2 + S / 4);
        assert_eq!(stalled_ns(&look_back, &GroupPath::new("/x").expect("a group"), 10 * S, 12 * S), 0);
    }
}
