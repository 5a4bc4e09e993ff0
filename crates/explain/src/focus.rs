//! The focus: the victims that findings are judged by.

use std::str::FromStr;

use serde::Serialize;
use wildmatch::WildMatch;

use super::role::Role;
use super::sums::add_to;
use super::victim::{Groups, Victim};
use flatwater_recording::{OpKind, Recording};

/// Victims that the user picked by conditions, all of which must hold. Without conditions, request threads are
/// judged if they waited.
#[derive(Clone, Debug, Default)]
pub struct Focus {
    conditions: Vec<Condition>,
    text: String,
}

#[derive(Clone, Debug)]
enum Condition {
    /// Program or thread.
    Name(WildMatch),
    Program(WildMatch),
    Thread(WildMatch),
    Container(WildMatch),
    Operation(&'static str),
    File(WildMatch),
    Role(Role),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FocusError {
    #[error(
        "unknown condition '{0}' in --focus; give program=, thread=, container=, op=, file= or role=, or a name alone"
    )]
    Key(String),
    #[error("unknown operation '{0}' in --focus; reports name operations (write, fsync, page-fault ...)")]
    Operation(String),
    #[error("unknown role '{0}' in --focus; use request, background or unknown")]
    Role(String),
    #[error("--focus: an empty condition; give for example thread=bio_aof,op=fdatasync")]
    Empty,
}

impl FromStr for Focus {
    type Err = FocusError;

    /// Parses `redis-server`, `op=fsync`, `program=postgres,file=*/pg_wal/*`. Patterns may contain `*` and `?`.
    fn from_str(text: &str) -> Result<Focus, FocusError> {
        let conditions = text.split(',').map(|part| condition(part.trim())).collect::<Result<_, _>>()?;
        Ok(Focus { conditions, text: text.to_owned() })
    }
}

fn condition(part: &str) -> Result<Condition, FocusError> {
    let (key, value) = match part.split_once('=') {
        Some((key, value)) => (key, value),
        None => ("", part),
    };
    if value.is_empty() {
        return Err(FocusError::Empty);
    }
    let operation = |name: &str| OpKind::from_name(name.trim_end_matches("()")).map(OpKind::name);
    let role = |name: &str| Role::ALL.iter().copied().find(|role| role.name() == name);
    let pattern = || WildMatch::new(value);
    Ok(match key {
        "program" => Condition::Program(pattern()),
        "thread" => Condition::Thread(pattern()),
        "container" => Condition::Container(WildMatch::new(&format!("*{value}*"))),
        "op" => Condition::Operation(operation(value).ok_or_else(|| FocusError::Operation(value.to_owned()))?),
        "file" => Condition::File(pattern()),
        "role" => Condition::Role(role(value).ok_or_else(|| FocusError::Role(value.to_owned()))?),
        "" if value.contains('/') => Condition::File(pattern()),
        "" => match (operation(value), role(value)) {
            (Some(name), _) => Condition::Operation(name),
            (None, Some(role)) => Condition::Role(role),
            (None, None) => Condition::Name(pattern()),
        },
        key => return Err(FocusError::Key(key.to_owned())),
    })
}

impl Condition {
    fn holds(&self, victim: &Victim, file: Option<&str>) -> bool {
        match self {
            Condition::Name(name) => name.matches(&victim.program) || name.matches(&victim.thread),
            Condition::Program(program) => program.matches(&victim.program),
            Condition::Thread(thread) => thread.matches(&victim.thread),
            Condition::Container(container) => victim.container.as_deref().is_some_and(|name| container.matches(name)),
            Condition::Operation(operation) => victim.operation == *operation,
            Condition::File(path) => file.is_some_and(|file| path.matches(file)),
            Condition::Role(role) => victim.role == *role,
        }
    }
}

/// The calls that findings were judged by, if these are not all slow calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Focused {
    /// In the syntax of `--focus`.
    pub on: String,
    /// Whether the user gave the focus; otherwise flatwater chose it.
    pub given: bool,
    pub calls: u64,
    pub stall_ns: u64,
    /// Number and time of the slow calls outside the focus.
    pub other_calls: u64,
    pub other_stall_ns: u64,
}

impl Focused {
    /// Whose calls are judged, in words.
    #[must_use]
    pub fn who(&self) -> String {
        if self.given { format!("--focus {}", self.on) } else { "request threads".to_owned() }
    }
}

/// The calls that findings are judged by, as indices into `Recording::calls`.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// `None`: every call.
    kept: Option<Vec<bool>>,
    pub focused: Option<Focused>,
}

impl Judged {
    #[must_use]
    pub fn keeps(&self, call: usize) -> bool {
        self.kept.as_ref().is_none_or(|kept| kept.get(call).copied().unwrap_or(false))
    }

    /// Picks the calls that the user asked for. Without conditions, picks those outside background threads if
    /// `hurt` (given their total and their longest time, ns) says that they lost enough; otherwise all calls are
    /// judged.
    #[must_use]
    pub fn choose(focus: &Focus, recording: &Recording, groups: &Groups, hurt: impl Fn(u64, u64) -> bool) -> Judged {
        if !focus.conditions.is_empty() {
            let picked = |victim: &Victim, file: Option<&str>| focus.conditions.iter().all(|it| it.holds(victim, file));
            return Judged::by(recording, groups, picked, &focus.text, true);
        }
        let felt = || groups.victims.iter().filter(|victim| victim.role != Role::Background);
        let stall_ns = felt().fold(0_u64, |sum, victim| sum.saturating_add(victim.stall_ns));
        let worst_ns = felt().map(|victim| victim.worst_ns).max().unwrap_or(0);
        if felt().count() == groups.victims.len() || !hurt(stall_ns, worst_ns) {
            return Judged::default();
        }
        Judged::by(recording, groups, |victim, _| victim.role != Role::Background, "role=request", false)
    }

    fn by(
        recording: &Recording,
        groups: &Groups,
        picked: impl Fn(&Victim, Option<&str>) -> bool,
        on: &str,
        given: bool,
    ) -> Judged {
        let mut focused = Focused { on: on.to_owned(), given, ..Focused::default() };
        let mut kept = Vec::with_capacity(recording.calls.len());
        for (place, call) in recording.calls.iter().enumerate() {
            let victim = groups.of(place);
            let keep = victim.is_some_and(|victim| picked(victim, call.file.as_deref()));
            kept.push(keep);
            let ns = call.duration_ns.saturating_add(call.after_exit_ns);
            let (calls, stall_ns) = match (keep, victim) {
                (true, _) => (&mut focused.calls, &mut focused.stall_ns),
                (false, Some(_)) => (&mut focused.other_calls, &mut focused.other_stall_ns),
                (false, None) => continue,
            };
            add_to(calls, 1);
            *stall_ns = stall_ns.saturating_add(ns);
        }
        Judged { kept: Some(kept), focused: Some(focused) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Focus, FocusError};
    use crate::testing::RecordingBuilder;
    use crate::{CauseId, Explanation, explain_focused};
    use flatwater_recording::{Cause, OpKind, Recording, WatchedProcess};

    /// The background thread loses nine times as much as the main thread.
    fn redis(main_ms: f64) -> Recording {
        let builder = RecordingBuilder::new()
            .slow_by("bio_aof", OpKind::Fdatasync, &[(Cause::PageWriteback, 900.0)])
            .slow_by("redis-server", OpKind::Write, &[(Cause::Lock, main_ms)]);
        let builder = builder.edit(|recording| {
            recording.calls[0].tid = 9;
            recording.calls[0].file = Some("/data/a.aof".to_owned());
            recording.header.target.processes.push(WatchedProcess::new(7, 1, "redis-server"));
        });
        builder.done()
    }

    fn judged(recording: &Recording, focus: &str) -> Explanation {
        let focus = if focus.is_empty() { Focus::default() } else { focus.parse().expect("a focus") };
        explain_focused(recording, &focus)
    }

    fn causes(explanation: &Explanation) -> Vec<CauseId> {
        explanation.findings.iter().map(|finding| finding.cause).collect()
    }

    #[test]
    fn a_background_thread_does_not_outrank_the_one_that_clients_wait_for() {
        let explanation = judged(&redis(102.0), "");
        assert_eq!(causes(&explanation), [CauseId::Lock]);
        let focused = explanation.focus.expect("judged by the main thread");
        assert!(!focused.given);
        assert_eq!((focused.calls, focused.other_calls, focused.other_stall_ns), (1, 1, 900_000_000));
        assert_eq!(explanation.slow.calls, 2, "the sums stay those of every slow call");
        let explanation = judged(&redis(1.5), "");
        assert_eq!(causes(&explanation)[0], CauseId::PageWriteback, "the main thread lost next to nothing");
        assert_eq!(explanation.focus, None);
    }

    #[test]
    fn the_user_picks_a_group() {
        for focus in
            ["bio_aof", "role=background", "background", "op=fdatasync", "fdatasync()", "/data/*", "file=*.aof"]
        {
            let explanation = judged(&redis(102.0), focus);
            assert_eq!(causes(&explanation), [CauseId::PageWriteback], "{focus}");
            assert_eq!((explanation.slow.calls, explanation.slow.lost_ns), (1, 900_000_000), "{focus}");
        }
        assert_eq!(causes(&judged(&redis(102.0), "program=redis-server,op=write")), [CauseId::Lock]);
        let none = judged(&redis(102.0), "program=postgres");
        assert!(none.notes.iter().any(|note| note.to_string().contains("no slow call matches")), "{:?}", none.notes);
    }

    #[test]
    fn an_invalid_focus_is_an_error() {
        let error = |text: &str| text.parse::<Focus>().map(|_| ()).unwrap_err();
        assert_eq!(error("tread=x"), FocusError::Key("tread".to_owned()));
        assert_eq!(error("op=wrote"), FocusError::Operation("wrote".to_owned()));
        assert_eq!(error("role=main"), FocusError::Role("main".to_owned()));
        assert_eq!(error("op=write,"), FocusError::Empty);
    }
}
