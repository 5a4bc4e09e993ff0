//! The data for the page's script, with the same fields as `web/src/payload.ts` (a test compares them). Times are
//! seconds since the recording's start, durations ns; `null` is a value that was not read.

use serde::{Serialize, Serializer};

use flatwater_explain::Explanation;
use flatwater_recording::Cause;

#[derive(Clone, Debug, Serialize)]
pub struct Payload {
    pub version: u32,
    pub duration_s: Figure,
    /// Milliseconds since the epoch at the recording's start.
    pub wall_start_ms: Option<Figure>,
    /// Names that `Line::cause` and parts refer to; the first eight have separate colours.
    pub causes: Vec<String>,
    pub charts: Vec<Chart>,
    pub marks: Vec<Mark>,
    pub calls: Calls,
}

/// A chart, or the reason why it is not drawn.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    pub id: &'static str,
    pub title: &'static str,
    /// How to read the chart, in one sentence.
    pub about: String,
    /// Label of the button that selects this chart. Charts with the same id share a place on the page.
    pub choice: String,
    pub unit: Unit,
    pub right_unit: Option<Unit>,
    pub scale: Scale,
    /// Why the chart is missing; shown instead of the chart.
    pub missing: Option<String>,
    /// What was read, if every reading is 0; shown instead of the chart.
    pub zero: Option<String>,
    /// Seconds since the start, rising; one for each value of every line.
    pub t: Vec<Figure>,
    /// Intervals without readings, seconds since the start.
    pub holes: Vec<(Figure, Figure)>,
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
    /// 0 to 1.
    Share,
    /// Milliseconds lost per second.
    MsPerS,
    Count,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    Linear,
    Log,
    /// Logarithmic on both sides of 0, linear around 0.
    SignedLog,
}

#[derive(Clone, Debug, Serialize)]
pub struct Line {
    pub name: String,
    pub look: Look,
    /// Index into `Payload::causes`, if the line is about a cause.
    pub cause: Option<usize>,
    /// Whether the line uses the right-hand axis.
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
    /// A value that must not be reached.
    Limit,
    /// The value is valid until the next instant.
    Step,
    StrongStep,
    FaintStep,
    DashedStep,
    Points,
    /// Bars on top of those of the previous line.
    Stack,
}

/// A horizontal line across the whole chart.
#[derive(Clone, Debug, Serialize)]
pub struct Level {
    pub name: String,
    pub value: Figure,
    /// Values below the line are shaded, because they mean nothing.
    pub shade_below: bool,
}

/// An event of the recording; a vertical line in every chart.
#[derive(Clone, Debug, Serialize)]
pub struct Mark {
    pub t: Figure,
    pub kind: String,
    pub text: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Calls {
    /// Why the table is missing; shown instead of the table.
    pub missing: Option<String>,
    /// Number of slow calls in the recording; `left_out` of them are not in `rows`.
    pub total: u64,
    pub left_out: u64,
    /// The part of `left_out` that is not of neighbours.
    pub own_left_out: u64,
    /// Duration of the longest call that was left out, ns.
    pub left_out_ns_max: Option<u64>,
    pub threads: Vec<String>,
    pub ops: Vec<String>,
    pub files: Vec<String>,
    /// Texts of the links of wait chains.
    pub texts: Vec<String>,
    /// Frames of `stacks`, each stored once.
    pub symbols: Vec<String>,
    /// Innermost frame first, as indices into `symbols`.
    pub stacks: Vec<Vec<usize>>,
    pub rows: Vec<CallRow>,
}

#[derive(Clone, Debug, Serialize)]
pub struct CallRow {
    pub t: Figure,
    pub ns: u64,
    /// From the instant at which the call was due to its start; null without a schedule.
    pub late_ns: Option<u64>,
    pub op: usize,
    pub thread: usize,
    pub tid: u32,
    pub file: Option<usize>,
    pub bytes: Option<u64>,
    pub offset_bytes: Option<u64>,
    /// The cause with most of the call's time.
    pub cause: usize,
    pub cause_ns: u64,
    pub after_exit_ns: u64,
    /// An event was lost: a part may have the wrong cause.
    pub damaged: bool,
    pub still_under_way: bool,
    /// The error of a failed call, in words.
    pub failed: Option<String>,
    /// The call is from a neighbour's thread.
    pub neighbour: bool,
    pub parts: Vec<PartRow>,
    /// Number of parts that are not in `parts`, all of them shorter.
    pub parts_left_out: u64,
    /// Why the call's sleeps ended: each link before those behind it.
    pub chain: Vec<LinkRow>,
}

/// Depth, offset from the call's start (ns, negative before it), ns, kind (0 thread, 1 device, 2 timer or interrupt, 3
/// unknown), text as an index into `Calls::texts`.
#[derive(Clone, Debug, Serialize)]
pub struct LinkRow(pub u32, pub i64, pub u64, pub u8, pub usize);

/// Offset (ns), ns, cause, basis (0 exact, 1 sampled, 2 inferred), stack or -1, number of merged intervals.
#[derive(Clone, Debug, Serialize)]
pub struct PartRow(pub u64, pub u64, pub usize, pub u8, pub i64, pub u32);

/// A number with as few characters as needed: whole numbers without a point, others with six digits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure(pub f64);

impl Figure {
    pub fn seconds(ns: u64) -> Figure {
        // Whole microseconds: finer than a pixel, and half as long in the page.
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

/// The colour of each cause: the causes with most time first, unexplained separately.
#[derive(Clone, Debug)]
pub struct Palette {
    order: Vec<&'static str>,
}

/// Causes with a separate colour; all others share one.
pub const COLOURS: usize = 8;

impl Palette {
    pub fn of(explanation: &Explanation) -> Palette {
        let unexplained = Cause::Unexplained.name();
        let mut order: Vec<&'static str> = explanation
            .slow
            .causes
            .iter()
            .map(|share| share.cause.name())
            .filter(|name| *name != unexplained)
            .collect();
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

    /// The CSS class with the colour of this cause.
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
