//! A what-if as a page: the choice, heat maps by the last two knobs, the table of all runs.

use super::element::Html;
use super::page::Frame;
use crate::numbers::time;
use crate::whatif::{COLUMNS, Knob, Run, Whatif};

#[must_use]
pub fn page(found: &Whatif) -> String {
    let frame = Frame {
        title: &format!("what if: {}", found.what),
        brand: "what-if",
        heading: &found.what,
        subject: Some(&format!("on a model of {}", found.kernel)),
    };
    frame.page(|html| {
        html.tag("div", &[("class", "notes")], |html| {
            found.notes().iter().for_each(|note| html.leaf("p", &[], note));
        });
        verdict(html, found);
        maps(html, found);
        table(html, found);
    })
}

fn verdict(html: &mut Html, found: &Whatif) {
    html.tag("section", &[("id", "choice")], |html| {
        html.leaf("h2", &[], "What to choose");
        found.verdict().iter().for_each(|message| html.leaf("p", &[], message));
        for knob in &found.knobs {
            let now = knob.now.as_deref().unwrap_or("unknown to the model");
            html.leaf("p", &[("class", "basis")], &format!("{} now: {now}", knob.key));
        }
    });
}

/// Draws a map by the last two knobs for each combination of the others; a single knob gives a map of one row.
fn maps(html: &mut Html, found: &Whatif) {
    let Some((across, rest)) = found.knobs.split_last() else { return };
    html.tag("section", &[("id", "map")], |html| {
        html.leaf("h2", &[], &format!("{} by setting", found.goal));
        let (down, others) = match rest.split_last() {
            Some((down, others)) => (Some(down), others),
            None => (None, rest),
        };
        for held in held(others) {
            if !held.is_empty() {
                let pairs = others.iter().zip(&held).map(|(knob, value)| format!("{}={value}", knob.key));
                html.leaf("h3", &[], &pairs.collect::<Vec<_>>().join(" "));
            }
            map(html, found, &held, down, across);
        }
        html.leaf(
            "p",
            &[("class", "about")],
            "Pale is low, dark is high, on a scale of powers from the lowest to the highest goal of all runs. \
             The framed cell is the choice; an empty cell was not run.",
        );
    });
}

/// All combinations of the knobs' values; a single empty one without knobs.
fn held(knobs: &[Knob]) -> Vec<Vec<&str>> {
    knobs.iter().fold(vec![Vec::new()], |all, knob| {
        let longer = all.iter().flat_map(|held: &Vec<&str>| {
            knob.values.iter().map(move |value| held.iter().copied().chain([value.as_str()]).collect())
        });
        longer.collect()
    })
}

const CELL: [usize; 2] = [104, 44];
const LEFT: usize = 150;
const TOP: usize = 44;

fn map(html: &mut Html, found: &Whatif, held: &[&str], down: Option<&Knob>, across: &Knob) {
    let rows: Vec<Option<&str>> =
        down.map_or_else(|| vec![None], |knob| knob.values.iter().map(|value| Some(value.as_str())).collect());
    let size = [LEFT + CELL[0] * across.values.len() + 8, TOP + CELL[1] * rows.len() + 8];
    let view = format!("0 0 {} {}", size[0], size[1]);
    let (width, height) = (size[0].to_string(), size[1].to_string());
    let label = format!("{} by {}", found.goal, across.key);
    let svg: [(&str, &str); 6] = [
        ("viewBox", &view),
        ("width", &width),
        ("height", &height),
        ("role", "img"),
        ("aria-label", &label),
        ("font-size", "13"),
    ];
    html.tag("svg", &svg, |html| {
        words(html, [LEFT, 14], "start", "currentColor", &across.key);
        if let Some(down) = down {
            words(html, [LEFT - 10, 14], "end", "currentColor", &down.key);
        }
        for (column, value) in across.values.iter().enumerate() {
            words(html, [LEFT + column * CELL[0] + CELL[0] / 2, 34], "middle", "currentColor", value);
        }
        for (row, value) in rows.iter().enumerate() {
            let top = TOP + row * CELL[1];
            words(html, [LEFT - 10, top + CELL[1] / 2 + 4], "end", "currentColor", value.unwrap_or(""));
            for (column, other) in across.values.iter().enumerate() {
                let values: Vec<&str> = held.iter().copied().chain(*value).chain([other.as_str()]).collect();
                cell(html, found, &values, [LEFT + column * CELL[0], top]);
            }
        }
    });
}

fn words(html: &mut Html, at: [usize; 2], anchor: &str, fill: &str, text: &str) {
    let [x, y] = at.map(|place| place.to_string());
    html.leaf("text", &[("x", &x), ("y", &y), ("text-anchor", anchor), ("fill", fill)], text);
}

fn cell(html: &mut Html, found: &Whatif, values: &[&str], at: [usize; 2]) {
    let Some((place, run)) = found.run_at(values) else { return };
    let level = level(&found.runs, run);
    let fill = colour(level);
    let [x, y] = at.map(|place| (place + 2).to_string());
    let [width, height] = CELL.map(|side| (side - 4).to_string());
    let frame = if found.chosen == Some(place) { "currentColor" } else { "none" };
    let [title] = [format!("{}: {} {}", found.settings(run), found.goal, time(run.goal_ns))];
    let rect = [
        ("x", x.as_str()),
        ("y", &y),
        ("width", &width),
        ("height", &height),
        ("rx", "3"),
        ("fill", &fill),
        ("stroke", frame),
        ("stroke-width", "3"),
    ];
    html.tag("rect", &rect, |html| html.leaf("title", &[], &title));
    let ink = if level > 0.55 { "#ffffff" } else { "#14181f" };
    words(html, [at[0] + CELL[0] / 2, at[1] + CELL[1] / 2 + 4], "middle", ink, &time(run.goal_ns));
}

/// Position of the run between the lowest goal (0) and the highest (1), on a logarithmic scale.
fn level(runs: &[Run], run: &Run) -> f64 {
    let log = |ns: u64| (ns.max(1) as f64).ln();
    let goals = runs.iter().map(|run| log(run.goal_ns));
    let (low, high) = goals.fold((f64::MAX, f64::MIN), |(low, high), goal| (low.min(goal), high.max(goal)));
    if high - low < 0.01 { 0.0 } else { (log(run.goal_ns) - low) / (high - low) }
}

/// From pale yellow over orange to dark red. The lightness falls steadily, so the map can be read without colour.
fn colour(level: f64) -> String {
    const STOPS: [[f64; 3]; 4] =
        [[255.0, 245.0, 205.0], [254.0, 190.0, 96.0], [217.0, 83.0, 30.0], [110.0, 16.0, 28.0]];
    let place = level.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let from = (place.floor() as usize).min(STOPS.len() - 2);
    let part = place - from as f64;
    let [red, green, blue] = [0, 1, 2].map(|i| (STOPS[from][i] + (STOPS[from + 1][i] - STOPS[from][i]) * part) as u8);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn table(html: &mut Html, found: &Whatif) {
    html.tag("section", &[("id", "runs")], |html| {
        html.leaf("h2", &[], "All runs");
        html.tag("table", &[], |html| {
            html.tag("thead", &[], |html| {
                html.tag("tr", &[], |html| {
                    let heads = ["settings", found.goal.as_str()].into_iter().chain(COLUMNS);
                    heads.for_each(|head| html.leaf("th", &[], head));
                });
            });
            html.tag("tbody", &[], |html| {
                for (place, run) in found.runs.iter().enumerate() {
                    html.tag("tr", &[], |html| {
                        let chosen = if found.chosen == Some(place) { " (the choice)" } else { "" };
                        html.leaf("th", &[], &format!("{}{chosen}", found.settings(run)));
                        html.leaf("td", &[], &time(run.goal_ns));
                        run.cells().iter().for_each(|cell| html.leaf("td", &[], cell));
                    });
                }
            });
        });
    });
}

#[cfg(test)]
mod tests {
    use super::{colour, held, page};
    use crate::whatif::Knob;
    use crate::whatif::tests::two_knobs;

    #[test]
    fn the_page_has_choice_map_and_table_but_no_script() {
        let page = page(&two_knobs());
        assert_eq!(page.matches("<rect").count(), 2, "a cell for each run that was made");
        for wanted in ["What to choose", "currentColor\" stroke-width", "instead of 40 ms", "(the choice)"] {
            assert!(page.contains(wanted), "{wanted}");
        }
        assert!(!page.contains("<script") && !page.contains(" style=\""), "the policy allows neither");
    }

    #[test]
    fn colours_darken_and_further_knobs_give_further_maps() {
        assert_eq!((colour(0.0), colour(1.0)), ("#fff5cd".to_owned(), "#6e101c".to_owned()));
        let knob = |values: &[&str]| Knob {
            key: "k".to_owned(),
            values: values.iter().map(|&value| value.to_owned()).collect(),
            now: None,
        };
        assert_eq!(held(&[]), [Vec::<&str>::new()]);
        assert_eq!(held(&[knob(&["a", "b"]), knob(&["c"])]), [vec!["a", "c"], vec!["b", "c"]]);
    }
}
