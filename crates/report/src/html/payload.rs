//! What the page's script reads, field by field the same as `web/src/payload.ts` (a test compares them).
//! Times are seconds since the recording's start, durations ns; `null` is a value that was not read.

use serde::{Serialize, Serializer};

use flatwater_explain::Explanation;
use flatwater_recording::Cause;

#[derive(Clone, Debug, Serialize)]
pub struct Payload {
    pub version: u32,
    pub duration_s: Figure,
    /// Milliseconds since the epoch at the recording's start.
    pub wall_start_ms: Option<Figure>,
    /// Names that `Line::cause` and parts refer to; the first eight have colours of their own.
    pub causes: Vec<String>,
    pub charts: Vec<Chart>,
    pub marks: Vec<Mark>,
    pub calls: Calls,
}

/// One chart, or the reason why there is none.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    pub id: &'static str,
    pub title: &'static str,
    /// How to read it, one sentence.
    pub about: String,
    /// Charts of one id share a place on the page; this names each on its button.
    pub choice: String,
    pub unit: Unit,
    pub right_unit: Option<Unit>,
    pub scale: Scale,
    /// Shown instead of the chart.
    pub missing: Option<String>,
    /// Seconds since the start, rising; one for each value of every line.
    pub t: Vec<Figure>,
    pub lines: Vec<Line>,
    pub levels: Vec<Level>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    Ns,
    Bytes,
    Pages,
    PerSecond,
    BytesPerSecond,
    /// Of 1.
    Share,
    /// Milliseconds lost in each second.
    MsPerS,
    Count,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    Linear,
    Log,
    /// Logarithmic away from 0 on both sides, linear around it.
    SignedLog,
}

#[derive(Clone, Debug, Serialize)]
pub struct Line {
    pub name: String,
    pub look: Look,
    /// Index into `Payload::causes`, for lines that are about one.
    pub cause: Option<usize>,
    /// On the right-hand axis.
    pub right: bool,
    pub y: Vec<Option<Figure>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Look {
    Plain,
    Strong,
    Faint,
    Dashed,
    /// What must not be reached.
    Limit,
    /// Holds from its instant to the next.
    Step,
    StrongStep,
    FaintStep,
    DashedStep,
    Points,
    /// Bars upon those of the line before.
    Stack,
}

/// A horizontal line across the whole chart.
#[derive(Clone, Debug, Serialize)]
pub struct Level {
    pub name: String,
    pub value: Figure,
    /// What is below it is not to be read.
    pub shade_below: bool,
}

/// Something that happened at one moment; a vertical line in every chart.
#[derive(Clone, Debug, Serialize)]
pub struct Mark {
    pub t: Figure,
    pub kind: String,
    pub text: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Calls {
    /// Shown instead of the table.
    pub missing: Option<String>,
    /// Slow calls of the recording, and how many of them are not in `rows`.
    pub total: u64,
    pub left_out: u64,
    /// The longest that was left out, ns.
    pub left_out_ns_max: Option<u64>,
    pub threads: Vec<String>,
    pub ops: Vec<String>,
    pub files: Vec<String>,
    /// What the links of wait chains say.
    pub texts: Vec<String>,
    /// Frames of `stacks`, each once.
    pub symbols: Vec<String>,
    /// Innermost first, as indices into `symbols`.
    pub stacks: Vec<Vec<usize>>,
    pub rows: Vec<CallRow>,
}

#[derive(Clone, Debug, Serialize)]
pub struct CallRow {
    pub t: Figure,
    pub ns: u64,
    /// From when it was due to its start; null for closed loops.
    pub late_ns: Option<u64>,
    pub op: usize,
    pub thread: usize,
    pub tid: u32,
    pub file: Option<usize>,
    pub bytes: Option<u64>,
    pub offset_bytes: Option<u64>,
    /// The cause with most of its time.
    pub cause: usize,
    pub cause_ns: u64,
    pub after_exit_ns: u64,
    /// An event was lost: a part may carry the wrong name.
    pub damaged: bool,
    pub still_under_way: bool,
    /// What it failed with, in words.
    pub failed: Option<String>,
    /// Of a thread that is there to make trouble.
    pub neighbour: bool,
    pub parts: Vec<PartRow>,
    /// Parts that are not in `parts`, all of them shorter.
    pub parts_left_out: u64,
    /// Why its sleeps ended, thread by thread: each link before those behind it.
    pub chain: Vec<LinkRow>,
}

/// depth, offset ns from the call's begin (before it where negative), ns, kind (0 thread, 1 device, 2 timer or interrupt,
/// 3 not known), text as an index into `Calls::texts`.
#[derive(Clone, Debug, Serialize)]
pub struct LinkRow(pub u32, pub i64, pub u64, pub u8, pub usize);

/// offset ns, ns, cause, basis (0 exact, 1 sampled, 2 inferred), stack or -1, intervals merged.
#[derive(Clone, Debug, Serialize)]
pub struct PartRow(pub u64, pub u64, pub usize, pub u8, pub i64, pub u32);

/// A number in as few characters as it needs: whole numbers without a point, the rest to six digits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure(pub f64);

impl Figure {
    pub fn seconds(ns: u64) -> Figure {
        // Whole microseconds: finer than any pixel, and half as long in the page.
        Figure((ns as f64 / 1e3).round() / 1e6)
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = self.0;
        if !value.is_finite() {
            return serializer.serialize_none();
        }
        if value.fract() == 0.0 && value.abs() < 9e15 {
            return serializer.serialize_i64(value as i64);
        }
        if value.abs() >= 1e5 {
            return serializer.serialize_i64(value.round() as i64);
        }
        let digits = (5.0 - value.abs().log10().floor()).clamp(0.0, 12.0) as i32;
        let power = 10_f64.powi(digits);
        serializer.serialize_f64((value * power).round() / power)
    }
}

/// Which cause has which colour: most time first, what nobody could name last.
#[derive(Clone, Debug)]
pub struct Palette {
    order: Vec<&'static str>,
}

/// Causes with a colour of their own; the ones after share one.
pub const COLOURS: usize = 8;

impl Palette {
    pub fn of(explanation: &Explanation) -> Palette {
        let unexplained = Cause::Unexplained.name();
        let mut order: Vec<&'static str> =
            explanation.slow.causes.iter().map(|share| share.cause).filter(|name| *name != unexplained).collect();
        let known: Vec<&'static str> = order.clone();
        order.extend(Cause::ALL.iter().map(|cause| cause.name()).filter(|name| !known.contains(name)));
        Palette { order }
    }

    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.order.iter().copied()
    }

    pub fn index(&self, name: &str) -> usize {
        self.order.iter().position(|known| *known == name).unwrap_or_default()
    }

    /// The class that gives something this cause's colour; causes that are not of time have none.
    pub fn class(&self, name: &str) -> &'static str {
        const CLASSES: [&str; COLOURS] = ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"];
        if name == Cause::Unexplained.name() {
            return "ku";
        }
        match self.order.iter().position(|known| *known == name) {
            Some(place) => CLASSES.get(place).copied().unwrap_or("ko"),
            None => "ko",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Figure;

    #[test]
    fn figures_are_short() {
        let shown = |value| serde_json::to_string(&Figure(value)).expect("a number");
        assert_eq!(shown(41_200_000.0), "41200000");
        assert_eq!(shown(0.123_456_789), "0.123457");
        assert_eq!(shown(123_456.789), "123457");
        assert_eq!(shown(-2.5), "-2.5");
        assert_eq!(shown(f64::NAN), "null");
        assert_eq!(serde_json::to_string(&Figure::seconds(1_500_000_400)).expect("a number"), "1.5");
    }
}
