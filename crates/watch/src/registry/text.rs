//! Encodes OpenMetrics 1.0 text, and Prometheus' text format 0.0.4 without the features of OpenMetrics.

use std::fmt::Write;

use super::{Families, Kind, Labels, Sample};

/// Encodes OpenMetrics 1.0 text.
#[must_use]
pub fn openmetrics(families: &Families<'_>) -> String {
    let mut out = encode(families, true);
    out.push_str("# EOF\n");
    out
}

/// Encodes Prometheus' text format 0.0.4: no exemplars and no units.
#[must_use]
pub fn plain(families: &Families<'_>) -> String {
    encode(families, false)
}

fn encode(families: &Families<'_>, is_openmetrics: bool) -> String {
    let mut out = String::new();
    for family in families {
        let (about, name) = (family.about(), family.about().full_name());
        let kind = match family.kind() {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        // Writing to a String cannot fail.
        let _ = write!(out, "# HELP {name} {}.\n# TYPE {name} {kind}\n", about.help);
        if let Some(unit) = about.unit.filter(|_| is_openmetrics) {
            let _ = writeln!(out, "# UNIT {name} {unit}");
        }
        family.each(&mut |labels, sample| series(&mut out, &name, labels, sample, is_openmetrics));
    }
    out
}

fn series(out: &mut String, name: &str, labels: &Labels, sample: Sample<'_>, is_openmetrics: bool) {
    let line = |out: &mut String, end: &str| head(out, name, end, None, labels);
    match sample {
        Sample::Count(count) | Sample::CountWithExemplar(count, None) => {
            line(out, "_total");
            let _ = writeln!(out, "{count}");
        }
        Sample::CountWithExemplar(count, Some(exemplar)) => {
            line(out, "_total");
            let _ = write!(out, "{count}");
            if is_openmetrics {
                out.push_str(" # ");
                braced(out, None, exemplar);
                out.push_str(" 1.0");
            }
            out.push('\n');
        }
        Sample::Sum(sum) => {
            line(out, "_total");
            let _ = writeln!(out, "{sum:?}");
        }
        Sample::Level(level) => {
            line(out, "");
            let _ = writeln!(out, "{level:?}");
        }
        Sample::Histogram(histogram) => {
            line(out, "_sum");
            let _ = writeln!(out, "{:?}", histogram.sum);
            line(out, "_count");
            let _ = writeln!(out, "{}", histogram.count);
            for (bound, count) in histogram.cumulative() {
                let bound = if bound.is_infinite() { "+Inf".to_owned() } else { format!("{bound:?}") };
                head(out, name, "_bucket", Some(("le", &bound)), labels);
                let _ = writeln!(out, "{count}");
            }
        }
    }
}

/// Writes the name and labels of a line, and a space.
fn head(out: &mut String, name: &str, end: &str, first: Option<(&str, &str)>, labels: &Labels) {
    out.push_str(name);
    out.push_str(end);
    if first.is_some() || !labels.is_empty() {
        braced(out, first, labels);
    }
    out.push(' ');
}

fn braced(out: &mut String, first: Option<(&str, &str)>, labels: &Labels) {
    let labels = labels.iter().map(|(key, value)| (*key, value.as_str()));
    for (place, (key, value)) in first.into_iter().chain(labels).enumerate() {
        out.push(if place == 0 { '{' } else { ',' });
        let _ = write!(out, "{key}=\"");
        for c in value.chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                '"' => out.push_str("\\\""),
                '\n' => out.push_str("\\n"),
                c => out.push(c),
            }
        }
        out.push('"');
    }
    out.push('}');
}
