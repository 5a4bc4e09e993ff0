//! Draws columns of a recording's tables, or its slow calls, over time as a small SVG, with horizontal lines for
//! comparison, such as a published value beside a model's curve.

use std::fmt::Write as _;

use flatwater_recording::{Entity, Recording, Table};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 30.0;
const COLOURS: [&str; 4] = ["#1f5fa8", "#c8501e", "#2c8a4b", "#7a4fa3"];
const LEVEL_COLOUR: &str = "#b01818";

/// What to draw, as given on the command line.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// `calls`, `TABLE:COLUMN`, or `TABLE@ENTITY:COLUMN` with a node's number or a name. `/s` after a counter draws its
    /// rate, `*FACTOR` scales the values.
    pub curves: Vec<String>,
    /// `NAME=VALUE`: a horizontal line, in the curves' unit.
    pub levels: Vec<String>,
    pub title: String,
    /// Logarithmic scale.
    pub log: bool,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ChartError {
    #[error(
        "'{0}' is not a curve: give calls, TABLE:COLUMN or TABLE@ENTITY:COLUMN, with /s after a counter for its rate"
    )]
    Curve(String),
    #[error("'{0}' is not a level: give NAME=VALUE")]
    Level(String),
    #[error("{0} is not in this recording")]
    Missing(String),
}

struct Curve {
    name: String,
    /// (s, value)
    points: Vec<(f64, f64)>,
    dots: bool,
}

/// Draws the curves and levels as an SVG.
pub fn svg(recording: &Recording, wanted: &Wanted) -> Result<String, ChartError> {
    let curves = wanted.curves.iter().map(|spec| curve(recording, spec)).collect::<Result<Vec<_>, _>>()?;
    let levels = wanted.levels.iter().map(|spec| level(spec)).collect::<Result<Vec<_>, _>>()?;
    let values = curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.1));
    let top = values.chain(levels.iter().map(|level| level.1)).fold(0.0_f64, f64::max).max(1e-9);
    let scale = Scale::new(top, recording.header.duration_ns as f64 / 1e9, wanted.log);
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">
<style>text {{ font: 12px sans-serif; fill: #222 }} .head {{ font-weight: bold }} .small {{ font-size: 10px; fill: #555 }}</style>
<rect width="100%" height="100%" fill="#fff"/>
<text x="{LEFT}" y="16" class="head">{}</text>
"##,
        escaped(&wanted.title)
    );
    axes(&mut svg, &scale);
    for (place, curve) in curves.iter().enumerate() {
        draw(&mut svg, curve, &scale, COLOURS[place % COLOURS.len()], place);
    }
    for (name, value) in &levels {
        let y = scale.y(*value);
        let _ = writeln!(
            svg,
            r##"<line x1="{LEFT}" y1="{y:.1}" x2="{:.1}" y2="{y:.1}" stroke="{LEVEL_COLOUR}" stroke-dasharray="5 3"/><text x="{:.1}" y="{:.1}" text-anchor="end" style="font-size:10px;fill:{LEVEL_COLOUR}">{}</text>"##,
            WIDTH - RIGHT,
            WIDTH - RIGHT - 2.0,
            y - 3.0,
            escaped(name)
        );
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

struct Scale {
    top: f64,
    bottom: f64,
    seconds: f64,
    log: bool,
}

impl Scale {
    fn new(top: f64, seconds: f64, log: bool) -> Scale {
        // A small picture has room for four decades.
        let bottom = if log { 10f64.powf(top.log10().ceil() - 4.0) } else { 0.0 };
        Scale { top: if log { top * 1.3 } else { top * 1.08 }, bottom, seconds: seconds.max(1e-9), log }
    }

    fn x(&self, at_s: f64) -> f64 {
        LEFT + at_s / self.seconds * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.bottom) / self.bottom).log10() / (self.top / self.bottom).log10()
        } else {
            value / self.top
        };
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.log {
            return (0..6).map(|power| self.bottom * 10f64.powi(power)).filter(|tick| *tick <= self.top).collect();
        }
        let rough = self.top / 4.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        (0..=8).map(|place| f64::from(place) * step).filter(|tick| *tick <= self.top).collect()
    }
}

fn axes(svg: &mut String, scale: &Scale) {
    let right = WIDTH - RIGHT;
    for tick in scale.ticks() {
        let y = scale.y(tick);
        let _ = writeln!(
            svg,
            r##"<line x1="{LEFT}" y1="{y:.1}" x2="{right}" y2="{y:.1}" stroke="#ddd"/><text x="{:.1}" y="{:.1}" text-anchor="end" class="small">{}</text>"##,
            LEFT - 4.0,
            y + 3.0,
            short(tick)
        );
    }
    for quarter in 0..=4 {
        let at_s = scale.seconds * f64::from(quarter) / 4.0;
        let _ = writeln!(
            svg,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="{}" class="small">{at_s:.0} s</text>"#,
            scale.x(at_s),
            HEIGHT - BOTTOM + 14.0,
            if quarter == 4 { "end" } else { "middle" }
        );
    }
}

/// 12,500,000 as `12.5 M`.
fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, " G"),
        size if size >= 1e6 => (value / 1e6, " M"),
        size if size >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{unit}")
}

fn draw(svg: &mut String, curve: &Curve, scale: &Scale, colour: &str, place: usize) {
    if curve.dots {
        for (at_s, value) in &curve.points {
            let (x, y) = (scale.x(*at_s), scale.y(*value));
            let _ = writeln!(svg, r#"<circle cx="{x:.1}" cy="{y:.1}" r="1.6" fill="{colour}" fill-opacity="0.5"/>"#);
        }
    } else {
        let points: Vec<String> =
            curve.points.iter().map(|(at_s, value)| format!("{:.1},{:.1}", scale.x(*at_s), scale.y(*value))).collect();
        let _ = writeln!(
            svg,
            r#"<polyline points="{}" fill="none" stroke="{colour}" stroke-width="1.4"/>"#,
            points.join(" ")
        );
    }
    let x = LEFT + 190.0 * place as f64;
    let _ = writeln!(svg, r#"<text x="{x}" y="34" style="fill:{colour}">{}</text>"#, escaped(&curve.name));
}

fn level(spec: &str) -> Result<(String, f64), ChartError> {
    let wrong = || ChartError::Level(spec.to_owned());
    let (name, value) = spec.rsplit_once('=').ok_or_else(wrong)?;
    let value: f64 = value.trim().parse().map_err(|_| wrong())?;
    if value.is_finite() { Ok((name.to_owned(), value)) } else { Err(wrong()) }
}

fn curve(recording: &Recording, spec: &str) -> Result<Curve, ChartError> {
    if spec == "calls" {
        let points = recording.calls.iter().map(|call| (call.start_ns as f64 / 1e9, call.duration_ns as f64 / 1e6));
        return Ok(Curve { name: "slow calls, ms".to_owned(), points: points.collect(), dots: true });
    }
    let wrong = || ChartError::Curve(spec.to_owned());
    let (plain, factor) = match spec.split_once('*') {
        Some((plain, factor)) => (plain, factor.parse::<f64>().map_err(|_| wrong())?),
        None => (spec, 1.0),
    };
    let (place, column) = plain.split_once(':').ok_or_else(wrong)?;
    let (table, entity) = match place.split_once('@') {
        Some((table, entity)) => {
            (table, entity.parse().map_or_else(|_| Entity::named(entity), |n| Entity::on_node(n, "")))
        }
        None => (place, Entity::default()),
    };
    let table = Table::from_name(table).ok_or_else(wrong)?;
    let missing = || ChartError::Missing(spec.to_owned());
    let rows = recording.table(table).and_then(|series| series.rows_of(&entity)).ok_or_else(missing)?;
    let points: Vec<(f64, f64)> = match column.strip_suffix("/s") {
        Some(counter) => rows.rates_per_s(counter).map(|(_, to, rate)| (to as f64 / 1e9, rate * factor)).collect(),
        None => rows.values(column).map(|(at, value)| (at as f64 / 1e9, value as f64 * factor)).collect(),
    };
    if points.is_empty() { Err(missing()) } else { Ok(Curve { name: plain.to_owned(), points, dots: false }) }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::{ChartError, Wanted, short, svg};
    use flatwater_recording::{ColumnKind, Entity, Recording, Series, Table};

    fn recording() -> Recording {
        let mut vmstat = Series::new(Table::Vmstat);
        for second in 0..4u64 {
            let value = Some((second * second * 100) as i64);
            vmstat.push(second * 1_000_000_000, &Entity::default(), &[("pgscan_direct", ColumnKind::Counter, value)]);
        }
        let mut recording = Recording { series: vec![vmstat], ..Recording::default() };
        recording.header.duration_ns = 3_000_000_000;
        recording
    }

    #[test]
    fn a_rate_and_a_level_are_drawn_on_one_scale() {
        let wanted = Wanted {
            curves: vec!["vmstat:pgscan_direct/s".to_owned()],
            levels: vec!["published <= 1000=1000".to_owned()],
            title: "a & b".to_owned(),
            log: false,
        };
        let picture = svg(&recording(), &wanted).expect("drawn");
        assert!(picture.contains("a &amp; b") && picture.contains("published &lt;= 1000"), "{picture}");
        let line = picture.lines().find(|line| line.starts_with("<polyline")).expect("a curve");
        assert_eq!(line.matches(',').count(), 3, "three rates of four readings: {line}");
        let logarithmic = svg(&recording(), &Wanted { log: true, ..wanted }).expect("drawn");
        assert!(logarithmic.contains("<polyline") && !logarithmic.contains("NaN"), "{logarithmic}");
    }

    #[test]
    fn unknown_curves_and_levels_are_refused() {
        let ask = |curve: &str, level: &str| {
            svg(
                &recording(),
                &Wanted { curves: vec![curve.to_owned()], levels: vec![level.to_owned()], ..Wanted::default() },
            )
        };
        assert!(matches!(ask("vmstat:nothing", "a=1"), Err(ChartError::Missing(_))));
        assert!(matches!(ask("nothing", "a=1"), Err(ChartError::Curve(_))));
        assert!(matches!(ask("vmstat:pgscan_direct", "a"), Err(ChartError::Level(_))));
        assert!(matches!(ask("vmstat:pgscan_direct", "a=inf"), Err(ChartError::Level(_))));
    }

    #[test]
    fn large_numbers_are_short() {
        assert_eq!([0.5, 400.0, 20_000.0, 2.5e6, 1e9].map(short), ["0.5", "400", "20 k", "2.5 M", "1 G"]);
    }
}
