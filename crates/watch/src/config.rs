//! Reads and checks `watch.toml`. An error names the line and the key.
//!
//! Every key has a default, so an empty file is a valid configuration. Unknown keys are refused: a mistyped `keep_fre`
//! must not silently let a disk fill up.

mod guard;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use flatwater_host::tracer::Level;
use flatwater_recording::OpKind;
use flatwater_recording::units::{Bytes, Nanos};
use serde::Deserialize;
use toml::Spanned;

/// The daemon's configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Slow calls are recorded one by one from this duration on.
    pub threshold_ns: u64,
    /// The hooks that are always attached.
    pub level: Level,
    /// How far a recording reaches back before its trigger, and how long it continues after it.
    pub look_back_ns: u64,
    pub after_ns: u64,
    /// Samples of the kernel's counters per second: normally, and after a stall.
    pub sample_hz: u32,
    pub sample_hz_busy: u32,
    pub budget: Budget,
    pub store: Store,
    pub metrics: Metrics,
    pub triggers: Vec<Trigger>,
    pub guard: flatwater_guard::Policy,
}

/// The most that the daemon may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// CPU time of the daemon and its hooks, as a share of one core.
    pub cpu_share: f64,
    pub rss_bytes: u64,
    pub look_back_bytes: u64,
}

/// Where recordings are stored, and how many are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    pub directory: PathBuf,
    pub bytes_max: u64,
    pub age_max_ns: u64,
    /// The share of the file system that recordings leave free, whatever `bytes_max` allows.
    pub keep_free_share: f64,
    pub captures_per_hour_max: u32,
    /// A trigger does not fire again for the same account until this time has passed.
    pub cooldown_ns: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Metrics {
    pub socket: Option<PathBuf>,
    pub listen: Option<std::net::SocketAddr>,
    /// If absent, only loopback addresses are accepted in `listen`.
    pub remote: Option<Remote>,
    /// Maximum number of values of one label; further values are counted together as `other`.
    pub label_values_max: usize,
}

/// TLS certificate, key and token for scrapers on other machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// PEM file, the server's certificate first.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// A file with one line, which a scraper sends as its bearer token.
    pub token_file: PathBuf,
}

/// A condition that starts a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Trigger {
    pub name: String,
    pub when: When,
    pub scope: Scope,
}

#[derive(Clone, Debug, PartialEq)]
pub enum When {
    /// One call took at least this long.
    Stall { over_ns: u64 },
    /// The stall time of all calls per second, for this many seconds in a row.
    StallTime { per_second_ns: u64, seconds: u32 },
    /// Pressure stall information of the machine: `some avg10`, percent.
    Pressure { resource: String, some_avg10: f64 },
    /// This percentile of all calls within the look-back is at least this long. Requires level 2, which times every
    /// call.
    Percentile { percent: f64, over_ns: u64 },
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            When::Stall { over_ns } => write!(f, "a call of {}", Nanos(*over_ns)),
            When::StallTime { per_second_ns, seconds } => {
                write!(f, "{} of stall time a second for {seconds} s", Nanos(*per_second_ns))
            }
            When::Pressure { resource, some_avg10 } => write!(f, "{resource} pressure over {some_avg10} %"),
            When::Percentile { percent, over_ns } => write!(f, "a {percent} % percentile of {}", Nanos(*over_ns)),
        }
    }
}

/// The calls that a trigger considers: all, or those that match each pattern given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope {
    pub cgroup: Option<String>,
    pub program: Option<String>,
    pub operation: Option<OpKind>,
}

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{why}")]
    Read { why: String },
    #[error("{}: line {line}: {why}", path.display())]
    Wrong { path: PathBuf, line: usize, why: String },
}

/// Maximum size of the file, bytes.
const TEXT_BYTES_MAX: u64 = 1 << 20;
const DAY_NS: u64 = 24 * 3_600_000_000_000;
/// The error of a build without TLS.
pub(crate) const NO_TLS: &str = "certificate, key and token_file ask for TLS, and this flatwater was built without the cargo \
                                 feature `tls` of flatwater-watch: build it with that feature, or listen on loopback without them";
const PRESSURES: &[&str] = &["cpu", "memory", "io"];

impl Default for Config {
    fn default() -> Config {
        Config {
            threshold_ns: 5_000_000,
            level: Level::Sleeps,
            look_back_ns: 60_000_000_000,
            after_ns: 30_000_000_000,
            sample_hz: 1,
            sample_hz_busy: 10,
            budget: Budget { cpu_share: 0.005, rss_bytes: 64 << 20, look_back_bytes: 16 << 20 },
            store: Store {
                directory: PathBuf::from("/var/lib/flatwater/recordings"),
                bytes_max: 2 << 30,
                age_max_ns: 30 * DAY_NS,
                keep_free_share: 0.05,
                captures_per_hour_max: 6,
                cooldown_ns: 300_000_000_000,
            },
            metrics: Metrics {
                socket: Some(PathBuf::from("/run/flatwater/watch.sock")),
                listen: None,
                remote: None,
                label_values_max: 200,
            },
            triggers: vec![Trigger {
                name: "stall".to_owned(),
                when: When::Stall { over_ns: 100_000_000 },
                scope: Scope::default(),
            }],
            guard: flatwater_guard::Policy::default(),
        }
    }
}

impl Config {
    /// Reads the administrator's file. A file that other users can write is refused, because it decides where
    /// recordings of the whole machine go, and which recordings are removed.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let bytes = flatwater_safefs::read_believed(path, TEXT_BYTES_MAX);
        let bytes = bytes.map_err(|refusal| ConfigError::Read { why: refusal.to_string() })?;
        let text = String::from_utf8(bytes);
        let text =
            text.map_err(|error| ConfigError::Read { why: format!("{} is not UTF-8: {error}", path.display()) })?;
        Config::parse(&text).map_err(|(line, why)| ConfigError::Wrong { path: path.to_owned(), line, why })
    }

    /// Parses the text of a configuration. An error is the line, counted from 1, and the reason.
    pub fn parse(text: &str) -> Result<Config, (usize, String)> {
        let given: Text = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            (line, error.message().trim().to_owned())
        })?;
        given.checked(text)
    }
}

fn line_of(text: &str, byte: usize) -> usize {
    text.as_bytes().iter().take(byte).filter(|byte| **byte == b'\n').count() + 1
}

type Key<T> = Option<Spanned<T>>;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Text {
    threshold: Key<String>,
    level: Key<u32>,
    look_back: Key<String>,
    after: Key<String>,
    samples_per_s: Key<u32>,
    samples_per_s_busy: Key<u32>,
    budget: BudgetText,
    store: StoreText,
    metrics: MetricsText,
    trigger: Option<Vec<Spanned<TriggerText>>>,
    guard: guard::GuardText,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct BudgetText {
    cpu_share: Key<f64>,
    rss: Key<String>,
    look_back: Key<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct StoreText {
    directory: Option<PathBuf>,
    size: Key<String>,
    age_days: Key<f64>,
    keep_free: Key<f64>,
    captures_per_hour: Option<u32>,
    cooldown: Key<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct MetricsText {
    socket: Option<PathBuf>,
    listen: Key<String>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    token_file: Option<PathBuf>,
    label_values: Key<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TriggerText {
    name: Option<String>,
    stall: Key<String>,
    stall_time_per_s: Key<String>,
    seconds: Key<u32>,
    pressure: Key<String>,
    some_avg10: Key<f64>,
    percentile: Key<f64>,
    over: Key<String>,
    cgroup: Option<String>,
    program: Option<String>,
    operation: Key<String>,
}

/// Checks values, and names the line of a refused one.
struct Checker<'a> {
    text: &'a str,
}

type Checked<T> = Result<T, (usize, String)>;

impl Checker<'_> {
    fn refuse<T, V>(&self, at: &Spanned<V>, key: &str, why: impl std::fmt::Display) -> Checked<T> {
        Err((line_of(self.text, at.span().start), format!("{key}: {why}")))
    }

    /// Parses a quantity with its unit, or returns the default.
    fn quantity<Q: FromStr<Err: std::fmt::Display>>(&self, key: &str, given: &Key<String>, default: Q) -> Checked<Q> {
        let Some(given) = given else { return Ok(default) };
        given.get_ref().parse().or_else(|error| self.refuse(given, key, error))
    }

    fn ns(&self, key: &str, given: &Key<String>, default: u64, range: std::ops::RangeInclusive<u64>) -> Checked<u64> {
        let ns = self.quantity(key, given, Nanos(default))?.0;
        match given {
            Some(at) if !range.contains(&ns) => {
                let (least, most) = (Nanos(*range.start()), Nanos(*range.end()));
                self.refuse(at, key, format_args!("{} is not between {least} and {most}", Nanos(ns)))
            }
            _ => Ok(ns),
        }
    }

    fn number<N>(&self, key: &str, given: &Key<N>, default: N, range: std::ops::RangeInclusive<N>) -> Checked<N>
    where
        N: PartialOrd + Copy + std::fmt::Display,
    {
        let Some(at) = given else { return Ok(default) };
        if range.contains(at.get_ref()) {
            return Ok(*at.get_ref());
        }
        self.refuse(at, key, format_args!("{} is not between {} and {}", at.get_ref(), range.start(), range.end()))
    }
}

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const MIB: u64 = 1 << 20;

impl Text {
    fn checked(self, text: &str) -> Checked<Config> {
        let check = Checker { text };
        let known = Config::default();
        let level = match &self.level {
            None => known.level,
            Some(at) => match at.get_ref() {
                0 => Level::Sleeps,
                2 => Level::Calls,
                other => return check.refuse(at, "level", format_args!("{other} is neither 0 nor 2")),
            },
        };
        let triggers = match &self.trigger {
            None => known.triggers,
            Some(given) => {
                given.iter().map(|trigger| trigger_of(&check, trigger, level)).collect::<Checked<Vec<_>>>()?
            }
        };
        Ok(Config {
            threshold_ns: check.ns("threshold", &self.threshold, known.threshold_ns, MS..=60 * SECOND)?,
            level,
            look_back_ns: check.ns("look_back", &self.look_back, known.look_back_ns, SECOND..=3_600 * SECOND)?,
            after_ns: check.ns("after", &self.after, known.after_ns, SECOND..=3_600 * SECOND)?,
            sample_hz: check.number("samples_per_s", &self.samples_per_s, known.sample_hz, 1..=10)?,
            sample_hz_busy: check.number(
                "samples_per_s_busy",
                &self.samples_per_s_busy,
                known.sample_hz_busy,
                1..=100,
            )?,
            budget: self.budget.checked(&check, known.budget)?,
            store: self.store.checked(&check, known.store)?,
            metrics: self.metrics.checked(&check, known.metrics)?,
            triggers,
            guard: self.guard.checked(&check)?,
        })
    }
}

impl BudgetText {
    fn checked(&self, check: &Checker<'_>, known: Budget) -> Checked<Budget> {
        let look_back = check.quantity("budget.look_back", &self.look_back, Bytes(known.look_back_bytes))?.0;
        let rss = check.quantity("budget.rss", &self.rss, Bytes(known.rss_bytes))?.0;
        if let Some(at) = self.look_back.as_ref().filter(|_| look_back < MIB) {
            return check.refuse(at, "budget.look_back", "must be at least 1MiB, which one minute of counters takes");
        }
        if let Some(at) = self.rss.as_ref().filter(|_| rss < 32 * MIB) {
            return check.refuse(at, "budget.rss", "must be at least 32MiB, which the hooks and the look-back take");
        }
        Ok(Budget {
            cpu_share: check.number("budget.cpu_share", &self.cpu_share, known.cpu_share, 0.0005..=1.0)?,
            rss_bytes: rss,
            look_back_bytes: look_back,
        })
    }
}

impl StoreText {
    fn checked(self, check: &Checker<'_>, known: Store) -> Checked<Store> {
        let age_days = check.number("store.age_days", &self.age_days, 30.0, 0.01..=3650.0)?;
        let bytes_max = check.quantity("store.size", &self.size, Bytes(known.bytes_max))?.0;
        if let Some(at) = self.size.as_ref().filter(|_| bytes_max < 8 * MIB) {
            let why = format!("{} is less than one recording may take: use at least 8MiB", Bytes(bytes_max));
            return check.refuse(at, "store.size", why);
        }
        Ok(Store {
            directory: self.directory.unwrap_or(known.directory),
            bytes_max,
            age_max_ns: (age_days * DAY_NS as f64) as u64,
            keep_free_share: check.number("store.keep_free", &self.keep_free, known.keep_free_share, 0.0..=0.95)?,
            captures_per_hour_max: self.captures_per_hour.unwrap_or(known.captures_per_hour_max),
            cooldown_ns: check.ns("store.cooldown", &self.cooldown, known.cooldown_ns, 0..=7 * DAY_NS)?,
        })
    }
}

impl MetricsText {
    fn checked(self, check: &Checker<'_>, known: Metrics) -> Checked<Metrics> {
        let listen = self.listen.as_ref().map(|at| self.address(check, at)).transpose()?;
        let remote = match (self.certificate, self.key, self.token_file) {
            (Some(certificate), Some(key), Some(token_file)) => Some(Remote { certificate, key, token_file }),
            _ => None,
        };
        Ok(Metrics {
            socket: self.socket.or(known.socket).filter(|path| !path.as_os_str().is_empty()),
            listen,
            remote,
            label_values_max: check.number(
                "metrics.label_values",
                &self.label_values,
                known.label_values_max,
                1..=10_000,
            )?,
        })
    }

    /// The address to listen on. An address that other machines can reach requires a certificate, its key and a token.
    fn address(&self, check: &Checker<'_>, at: &Spanned<String>) -> Checked<std::net::SocketAddr> {
        let address: std::net::SocketAddr = match at.get_ref().parse() {
            Ok(address) => address,
            Err(error) => return check.refuse(at, "metrics.listen", format_args!("{error}: give 127.0.0.1:9177")),
        };
        let given = [self.certificate.is_some(), self.key.is_some(), self.token_file.is_some()];
        if given == [true; 3] && !cfg!(feature = "tls") {
            return check.refuse(at, "metrics.listen", NO_TLS);
        }
        if given == [true; 3] || (given == [false; 3] && address.ip().is_loopback()) {
            return Ok(address);
        }
        if given != [false; 3] {
            return check.refuse(at, "metrics.listen", "give certificate, key and token_file together, or none");
        }
        let port = address.port();
        let why = format!(
            "{address} can be reached from other machines: give certificate, key and token_file too, or 127.0.0.1:{port} \
             or [::1]:{port}"
        );
        check.refuse(at, "metrics.listen", why)
    }
}

/// The condition of a trigger, and its default name.
fn when_of(check: &Checker<'_>, text: &TriggerText, level: Level) -> Checked<Option<(&'static str, When)>> {
    if text.stall.is_some() {
        let over_ns = check.ns("trigger.stall", &text.stall, 0, MS..=3_600 * SECOND)?;
        return Ok(Some(("stall", When::Stall { over_ns })));
    }
    if text.stall_time_per_s.is_some() {
        let per_second_ns = check.ns("trigger.stall_time_per_s", &text.stall_time_per_s, 0, MS..=3_600 * SECOND)?;
        let seconds = check.number("trigger.seconds", &text.seconds, 1, 1..=60)?;
        return Ok(Some(("stall-time", When::StallTime { per_second_ns, seconds })));
    }
    if let Some(resource) = &text.pressure {
        if !PRESSURES.contains(&resource.get_ref().as_str()) {
            return check.refuse(resource, "trigger.pressure", "give cpu, memory or io");
        }
        let some_avg10 = check.number("trigger.some_avg10", &text.some_avg10, 20.0, 0.1..=100.0)?;
        return Ok(Some(("pressure", When::Pressure { resource: resource.get_ref().clone(), some_avg10 })));
    }
    let Some(at) = &text.percentile else { return Ok(None) };
    if level == Level::Sleeps {
        let why = "needs the latency of every call: set level = 2, which slows down every system call of the machine";
        return check.refuse(at, "trigger.percentile", why);
    }
    let percent = check.number("trigger.percentile", &text.percentile, 99.9, 1.0..=99.9999)?;
    let over_ns = check.ns("trigger.over", &text.over, 50 * MS, 1_000..=3_600 * SECOND)?;
    Ok(Some(("percentile", When::Percentile { percent, over_ns })))
}

fn trigger_of(check: &Checker<'_>, given: &Spanned<TriggerText>, level: Level) -> Checked<Trigger> {
    let text = given.get_ref();
    let ways =
        [text.stall.is_some(), text.stall_time_per_s.is_some(), text.pressure.is_some(), text.percentile.is_some()];
    if ways.iter().filter(|way| **way).count() != 1 {
        let why = "give exactly one of stall, stall_time_per_s, pressure and percentile";
        return check.refuse(given, "trigger", why);
    }
    let when = when_of(check, text, level)?;
    let operation = match &text.operation {
        None => None,
        Some(at) => match OpKind::from_name(at.get_ref()) {
            Some(op) => Some(op),
            None => return check.refuse(at, "trigger.operation", "unknown; give write, fsync, read, open ..."),
        },
    };
    let Some((name, when)) = when else {
        return check.refuse(given, "trigger", "give stall, stall_time_per_s, pressure or percentile");
    };
    // Pressure and the latency histograms cover the whole machine; a filter by cgroup or program would have no effect.
    let of_calls = matches!(when, When::Stall { .. } | When::StallTime { .. });
    if !of_calls && (text.cgroup.is_some() || text.program.is_some()) {
        let why = "cgroup and program apply to stall and stall_time_per_s only: remove them here";
        return check.refuse(given, "trigger", why);
    }
    let scope = Scope { cgroup: text.cgroup.clone(), program: text.program.clone(), operation };
    Ok(Trigger { name: plain(text.name.as_deref().unwrap_or(name)), when, scope })
}

/// Makes a trigger's name safe for the name of a directory.
fn plain(name: &str) -> String {
    let kept: String = name.chars().take(40).map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    if kept.is_empty() { "trigger".to_owned() } else { kept }
}

#[cfg(test)]
mod tests {
    use super::{Config, When};

    #[test]
    fn an_empty_file_is_a_configuration() {
        assert_eq!(Config::parse(""), Ok(Config::default()));
    }

    #[test]
    fn every_key_is_read() {
        let text = "threshold = \"2ms\"\nlook_back = \"2min\"\n[store]\nsize = \"64MiB\"\n\
                    [[trigger]]\nname = \"pg fsync\"\nstall = \"80ms\"\ncgroup = \"*postgres*\"\noperation = \"fsync\"\n\
                    [[trigger]]\npressure = \"io\"\nsome_avg10 = 30.0\n";
        let config = Config::parse(text).expect("right");
        assert_eq!((config.threshold_ns, config.look_back_ns), (2_000_000, 120_000_000_000));
        assert_eq!(config.store.bytes_max, 64 << 20);
        assert_eq!(config.triggers[0].name, "pg-fsync");
        assert_eq!(config.triggers[0].when, When::Stall { over_ns: 80_000_000 });
        assert_eq!(config.triggers[1].when, When::Pressure { resource: "io".to_owned(), some_avg10: 30.0 });
    }

    #[test]
    fn tls_is_accepted_or_refused_with_the_name_of_the_cargo_feature() {
        let text = "[metrics]\nlisten = \"0.0.0.0:9177\"\ncertificate = \"/c\"\nkey = \"/k\"\ntoken_file = \"/t\"\n";
        let parsed = Config::parse(text);
        if cfg!(feature = "tls") {
            assert!(parsed.is_ok_and(|config| config.metrics.remote.is_some()));
        } else {
            let (line, why) = parsed.expect_err("no TLS");
            assert!(line == 2 && why.contains("feature `tls` of flatwater-watch"), "{line}: {why}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line_and_key() {
        for (text, line, key) in [
            ("threshold = \"5ms\"\nlook_bak = \"60s\"\n", 2, "look_bak"),
            ("[store]\n\nsize = \"1MiB\"\n", 3, "store.size"),
            ("[store]\nkeep_free = 2.0\n", 2, "store.keep_free"),
            ("[metrics]\nlisten = \"0.0.0.0:9177\"\n", 2, "metrics.listen"),
            ("[metrics]\nlisten = \"9177\"\n", 2, "metrics.listen"),
            ("\n[[trigger]]\nname = \"x\"\n", 2, "trigger"),
            ("[[trigger]]\nstall = \"soon\"\n", 2, "trigger.stall"),
            ("[[trigger]]\nstall = \"1s\"\noperation = \"wirte\"\n", 3, "trigger.operation"),
            ("[[trigger]]\npressure = \"disk\"\n", 2, "trigger.pressure"),
            ("level = 2\n[[trigger]]\npercentile = 99.9\ncgroup = \"db\"\n", 2, "apply to stall"),
            ("level = 0\n[[trigger]]\npercentile = 99.9\n", 3, "set level = 2"),
            ("level = 1\n", 1, "neither 0 nor 2"),
            ("threshold = 5\n", 1, "invalid type"),
            ("[budget]\ncpu_share = 7.0", 2, "budget.cpu_share"),
        ] {
            let (found, why) = Config::parse(text).expect_err(text);
            assert_eq!(found, line, "{text}: {why}");
            assert!(why.contains(key), "{text}: {why}");
        }
    }
}
