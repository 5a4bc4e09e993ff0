//! The administrator's permissions, and the controller's times and limits.

use std::fmt;

use flatwater_recording::units::Nanos;
use wildmatch::WildMatch;

use crate::group::GroupPath;

/// The actions that the guard may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    Off,
    /// Says what would help, and changes nothing.
    #[default]
    Advise,
    Act,
}

/// A pattern for the paths of cgroups: `*` is any text, `?` one character. Its first part contains no wildcard, so that
/// no pattern covers the whole machine.
#[derive(Clone, PartialEq)]
pub struct Pattern {
    text: String,
    compiled: WildMatch,
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

/// Why a pattern is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatternError {
    /// It does not begin with `/` and a part without wildcards.
    TooWide,
    /// It covers groups of the system.
    System,
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PatternError::TooWide => {
                "give the path of a cgroup below /sys/fs/cgroup whose first part has no * or ?, such as /batch.slice/*"
            }
            PatternError::System => {
                "groups of the system (system.slice, init.scope, flatwater's own) are never limited: put the service \
                 into another slice (Slice=batch.slice)"
            }
        })
    }
}

impl std::error::Error for PatternError {}

impl Pattern {
    /// A pattern for groups that may be victims.
    pub fn of_victims(text: &str) -> Result<Pattern, PatternError> {
        let first = text.strip_prefix('/').ok_or(PatternError::TooWide)?.split('/').next().unwrap_or_default();
        if first.is_empty() || first.contains(['*', '?']) || text.split('/').any(|part| part == ".." || part == ".") {
            return Err(PatternError::TooWide);
        }
        Ok(Pattern { text: text.to_owned(), compiled: WildMatch::new(text.trim_end_matches('/')) })
    }

    /// A pattern for groups that may be limited.
    pub fn of_aggressors(text: &str) -> Result<Pattern, PatternError> {
        let pattern = Pattern::of_victims(text)?;
        // The first part has no wildcard, so that it decides.
        let first = GroupPath::new(&format!("/{}", text.split('/').nth(1).unwrap_or_default()));
        match first {
            Ok(first) if !first.is_of_the_system() => Ok(pattern),
            _ => Err(PatternError::System),
        }
    }

    #[must_use]
    pub fn matches(&self, group: &GroupPath) -> bool {
        self.compiled.matches(group.as_str())
    }

    /// Whether the pattern itself names users' sessions.
    #[must_use]
    pub fn names_sessions(&self) -> bool {
        self.text.starts_with("/user.slice/") || self.text == "/user.slice"
    }
}

/// The configuration of the controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub mode: Mode,
    /// Groups that the guard protects; only for `Act`.
    pub victims: Vec<Pattern>,
    /// Groups that the guard may limit; only for `Act`.
    pub allow: Vec<Pattern>,
    /// Each next limit is the previous one times this.
    pub step: f64,
    /// Attempts with a lower limit before the guard gives up.
    pub steps_max: u32,
    /// The probability of keeping a limit that has no effect, over all steps of an episode.
    pub error_rate: f64,
    /// A limit is kept only if the victim's stall time falls by at least this share.
    pub gain_min: f64,
    /// How long a proven limit stays.
    pub hold_ns: u64,
    /// After an episode its cgroup is left alone for this long.
    pub cool_off_ns: u64,
    /// Lowest limits.
    pub floor_bytes_per_s: u64,
    pub floor_memory_bytes: u64,
    pub floor_cpu_us: u64,
    /// Leave proven limits in force at an orderly end of the daemon, until `hold_ns` is over.
    pub keep_at_exit: bool,
    pub times: Times,
}

/// Times of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// From the request for a change until the window begins: requests that were queued before complete in it.
    pub settle_ns: u64,
    /// The measured time after that.
    pub window_ns: u64,
    /// A measure that comes later is not used.
    pub late_max_ns: u64,
    /// A change of the limit that is not confirmed within this time has failed.
    pub confirm_max_ns: u64,
    /// A limit whose lease is not renewed for this long is removed by the process that has the lease.
    pub lease_ns: u64,
}

const SECOND: u64 = 1_000_000_000;

impl Times {
    pub const DEFAULT: Times = Times {
        settle_ns: SECOND,
        window_ns: 2 * SECOND,
        late_max_ns: 10 * SECOND,
        // The first change is journalled, and the journal's disk may be the one that stalls.
        confirm_max_ns: 30 * SECOND,
        lease_ns: 7 * SECOND,
    };
}

/// Bounds of the times for slow devices.
const SETTLE_NS_MAX: u64 = 8 * SECOND;
const WINDOW_NS_MAX: u64 = 16 * SECOND;

impl Times {
    /// Times for a victim with calls of this length. A device with a long queue needs as long as the longest call
    /// waited to complete what was queued before a change.
    #[must_use]
    pub fn for_calls_of(self, worst_ns: u64) -> Times {
        let settle_ns = self.settle_ns.max(worst_ns.min(SETTLE_NS_MAX));
        let window_ns = self.window_ns.max(worst_ns.saturating_mul(2).min(WINDOW_NS_MAX));
        Times { settle_ns, window_ns, ..self }
    }
}

// A limit must end within 10 s of the daemon's death.
const _: () = assert!(Times::DEFAULT.lease_ns <= 8 * SECOND);

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            mode: Mode::Advise,
            victims: Vec::new(),
            allow: Vec::new(),
            step: 0.5,
            steps_max: 3,
            error_rate: 0.05,
            gain_min: 0.3,
            hold_ns: 600 * SECOND,
            cool_off_ns: 300 * SECOND,
            floor_bytes_per_s: 1 << 20,
            floor_memory_bytes: 64 << 20,
            floor_cpu_us: 10_000,
            keep_at_exit: false,
            times: Times::DEFAULT,
        }
    }
}

impl Policy {
    #[must_use]
    pub fn is_victim(&self, group: &GroupPath) -> bool {
        self.victims.iter().any(|pattern| pattern.matches(group))
    }

    /// Whether the group may be limited. Sessions must be named by the pattern itself.
    #[must_use]
    pub fn may_limit(&self, group: &GroupPath) -> bool {
        let session = group.is_user_session();
        let fits = |pattern: &&Pattern| pattern.matches(group) && (!session || pattern.names_sessions());
        !group.is_of_the_system() && self.allow.iter().find(fits).is_some()
    }

    /// The error rate of one step.
    #[must_use]
    pub fn error_rate_of_step(&self) -> f64 {
        self.error_rate / f64::from(self.steps_max.max(1))
    }

    /// One sentence for people: what the guard may do.
    #[must_use]
    pub fn summary(&self) -> String {
        match self.mode {
            Mode::Off => "off".to_owned(),
            Mode::Advise => "advise: says what would help, changes nothing".to_owned(),
            Mode::Act => format!(
                "act: protects {:?}, may limit {:?}, one at a time, for {} at most",
                self.victims,
                self.allow,
                Nanos(self.hold_ns)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Pattern, PatternError, Policy, SECOND, SETTLE_NS_MAX, Times, WINDOW_NS_MAX};
    use crate::group::GroupPath;

    fn group(path: &str) -> GroupPath {
        GroupPath::new(path).expect("a group")
    }

    #[test]
    fn a_pattern_that_covers_the_system_is_refused() {
        for text in ["/system.slice", "/system.slice/*", "/system.slice/cron.service", "/init.scope", "/flatwater-1-0"]
        {
            assert_eq!(Pattern::of_aggressors(text), Err(PatternError::System), "{text}");
        }
        for text in ["*", "/*", "", "/", "system.slice", "/?ystem.slice", "/s*/x", "batch.slice", "//a", "/a/../b"] {
            assert_eq!(Pattern::of_aggressors(text), Err(PatternError::TooWide), "{text}");
        }
        assert!(Pattern::of_victims("/system.slice/postgresql.service").is_ok(), "a service may be protected");
        assert_eq!(Pattern::of_victims("*"), Err(PatternError::TooWide));
    }

    #[test]
    fn slow_devices_get_longer_windows() {
        let of = |seconds: u64| Times::DEFAULT.for_calls_of(seconds * SECOND);
        assert_eq!(of(0), Times::DEFAULT);
        assert_eq!((of(3).settle_ns, of(3).window_ns), (3 * SECOND, 6 * SECOND));
        assert_eq!((of(900).settle_ns, of(900).window_ns), (SETTLE_NS_MAX, WINDOW_NS_MAX));
    }

    #[test]
    fn sessions_are_limited_only_if_the_pattern_names_them() {
        let allow = |texts: &[&str]| Policy {
            allow: texts.iter().map(|text| Pattern::of_aggressors(text).expect("valid")).collect(),
            ..Policy::default()
        };
        let session = group("/user.slice/user-1000.slice/session-1.scope");
        assert!(!allow(&["/jobs/*"]).may_limit(&session));
        assert!(allow(&["/user.slice/*"]).may_limit(&session));
        let jobs = allow(&["/jobs/*", "/batch.slice"]);
        assert!(jobs.may_limit(&group("/jobs/backup")) && jobs.may_limit(&group("/batch.slice")));
        assert!(!jobs.may_limit(&group("/jobs")) && !jobs.may_limit(&group("/batch.slice/x")));
        assert!(!jobs.may_limit(&group("/jobs/flatwater-1-0")), "its own groups");
    }
}
