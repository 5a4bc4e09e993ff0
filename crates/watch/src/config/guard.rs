//! The section `[guard]`.

use flatwater_guard::{Mode, Pattern, PatternError, Policy};
use flatwater_recording::units::Bytes;
use serde::Deserialize;
use toml::Spanned;

use super::{Checked, Checker, Key, MIB, SECOND};

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct GuardText {
    mode: Key<String>,
    victims: Vec<Spanned<String>>,
    allow: Vec<Spanned<String>>,
    step: Key<f64>,
    steps: Key<u32>,
    error_rate: Key<f64>,
    gain_min: Key<f64>,
    hold: Key<String>,
    cool_off: Key<String>,
    floor_io: Key<String>,
    floor_memory: Key<String>,
    floor_cpu: Key<f64>,
    at_exit: Key<String>,
}

impl GuardText {
    pub fn checked(&self, check: &Checker<'_>) -> Checked<Policy> {
        let known = Policy::default();
        let mode = match self.mode.as_ref().map(|at| (at, at.get_ref().as_str())) {
            None => known.mode,
            Some((_, "off")) => Mode::Off,
            Some((_, "advise")) => Mode::Advise,
            Some((_, "act")) => Mode::Act,
            Some((at, other)) => {
                return check.refuse(at, "guard.mode", format_args!("'{other}' is neither off, advise nor act"));
            }
        };
        let keep_at_exit = match self.at_exit.as_ref().map(|at| (at, at.get_ref().as_str())) {
            None | Some((_, "release")) => false,
            Some((_, "keep")) => true,
            Some((at, other)) => {
                return check.refuse(at, "guard.at_exit", format_args!("'{other}' is neither release nor keep"));
            }
        };
        let victims = patterns(check, "guard.victims", &self.victims, Pattern::of_victims)?;
        let allow = patterns(check, "guard.allow", &self.allow, Pattern::of_aggressors)?;
        if let Some(at) = self.mode.as_ref().filter(|_| mode == Mode::Act && (victims.is_empty() || allow.is_empty())) {
            let why = "\"act\" needs guard.victims, the cgroups to protect, and guard.allow, those that may be limited";
            return check.refuse(at, "guard.mode", why);
        }
        let cpu_share = check.number("guard.floor_cpu", &self.floor_cpu, 0.1, 0.01..=1_024.0)?;
        Ok(Policy {
            mode,
            victims,
            allow,
            step: check.number("guard.step", &self.step, known.step, 0.1..=0.9)?,
            steps_max: check.number("guard.steps", &self.steps, known.steps_max, 1..=5)?,
            error_rate: check.number("guard.error_rate", &self.error_rate, known.error_rate, 0.001..=0.2)?,
            gain_min: check.number("guard.gain_min", &self.gain_min, known.gain_min, 0.05..=0.95)?,
            hold_ns: check.ns("guard.hold", &self.hold, known.hold_ns, 10 * SECOND..=86_400 * SECOND)?,
            cool_off_ns: check.ns("guard.cool_off", &self.cool_off, known.cool_off_ns, 0..=86_400 * SECOND)?,
            floor_bytes_per_s: self.size(check, "guard.floor_io", &self.floor_io, known.floor_bytes_per_s, 64 << 10)?,
            floor_memory_bytes: self.size(
                check,
                "guard.floor_memory",
                &self.floor_memory,
                known.floor_memory_bytes,
                16 * MIB,
            )?,
            floor_cpu_us: (cpu_share * 100_000.0) as u64,
            keep_at_exit,
            times: known.times,
        })
    }

    fn size(&self, check: &Checker<'_>, key: &str, given: &Key<String>, default: u64, least: u64) -> Checked<u64> {
        let bytes = check.quantity(key, given, Bytes(default))?.0;
        match given {
            Some(at) if bytes < least => check.refuse(at, key, format_args!("must be at least {}", Bytes(least))),
            _ => Ok(bytes),
        }
    }
}

fn patterns(
    check: &Checker<'_>,
    key: &str,
    given: &[Spanned<String>],
    parse: fn(&str) -> Result<Pattern, PatternError>,
) -> Checked<Vec<Pattern>> {
    let one = |at: &Spanned<String>| {
        parse(at.get_ref()).or_else(|error| check.refuse(at, key, format_args!("'{}': {error}", at.get_ref())))
    };
    given.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use flatwater_guard::Mode;

    use crate::config::Config;

    #[test]
    fn the_default_is_to_advise() {
        assert_eq!(Config::parse("").map(|config| config.guard.mode), Ok(Mode::Advise));
    }

    #[test]
    fn every_key_of_the_guard_is_read() {
        let text = "[guard]\nmode = \"act\"\nvictims = [\"/system.slice/postgresql.service\"]\nallow = [\"/batch.slice/*\"]\n\
                    step = 0.25\nsteps = 2\nerror_rate = 0.01\ngain_min = 0.5\nhold = \"30min\"\ncool_off = \"1min\"\n\
                    floor_io = \"4MiB\"\nfloor_memory = \"128MiB\"\nfloor_cpu = 0.5\nat_exit = \"keep\"\n";
        let guard = Config::parse(text).expect("valid").guard;
        assert_eq!((guard.mode, guard.steps_max, guard.floor_cpu_us), (Mode::Act, 2, 50_000));
        assert_eq!((guard.hold_ns, guard.floor_bytes_per_s), (1_800_000_000_000, 4 << 20));
        assert!(guard.keep_at_exit && guard.step < 0.3 && guard.gain_min > 0.4);
    }

    #[test]
    fn a_configuration_that_could_limit_the_system_is_refused_with_its_line() {
        let act = "[guard]\nmode = \"act\"\nvictims = [\"/db\"]\n";
        for (allow, why) in [
            ("\"/system.slice\"", "system.slice"),
            ("\"/system.slice/cron.service\"", "never limited"),
            ("\"/init.scope\"", "never limited"),
            ("\"/jobs/*\", \"*\"", "first part"),
            ("\"/\"", "first part"),
            ("\"system.slice\"", "first part"),
        ] {
            let (line, found) = Config::parse(&format!("{act}allow = [{allow}]\n")).expect_err(allow);
            assert!(line == 4 && found.contains("guard.allow") && found.contains(why), "{allow}: {line}: {found}");
        }
        for (text, key) in [
            ("[guard]\nmode = \"act\"\n", "guard.mode"),
            ("[guard]\nmode = \"act\"\nvictims = [\"/db\"]\n", "guard.mode"),
            ("[guard]\nmode = \"acts\"\n", "guard.mode"),
            ("[guard]\nvictims = [\"*\"]\n", "guard.victims"),
            ("[guard]\nfloor_io = \"1KiB\"\n", "guard.floor_io"),
            ("[guard]\nat_exit = \"reflex\"\n", "guard.at_exit"),
            ("[guard]\nerror_rate = 1.0\n", "guard.error_rate"),
        ] {
            let (line, why) = Config::parse(text).expect_err(text);
            assert!(line == 2 && why.contains(key), "{text}: {line}: {why}");
        }
    }
}
