//! The HTML page of a fleet: a heat map of hosts by hour, causes over time, a rollout with its interval, and recordings.
//!
//! The page has no link into the store: hosts push any content, and a browser would run the scripts of such a page with
//! the rights of the bucket's origin.

use std::collections::BTreeMap;
use std::fmt::Write;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flatwater_experiment::verdict::Ratio;
use flatwater_recording::printable;
use flatwater_recording::summary::HourStart;

use crate::ask::{escaped, human};
use crate::judge::facts::{HostFacts, HourFacts, Kept};
use crate::judge::rollout::Line;
use crate::judge::{Changed, Facts, Findings, Rollout, findings, rollout};
use crate::store::Fleet;
use crate::template::{self, Markup};
use crate::time::{self, Range};

/// Causes with a colour of their own; the rest share one.
const CAUSES_MAX: usize = 8;
const COLOURS: [&str; 9] =
    ["#3b6ea5", "#c8553d", "#588157", "#e0a526", "#7b5ea7", "#2a9d8f", "#b56576", "#6d6875", "#b8bec6"];
/// The map's value for an hour without observation.
const NOT_OBSERVED: u8 = 255;
/// Maximum number of listed recordings.
const RECORDINGS_MAX: usize = 200;
/// The chart limits a host with this many times the stall time of any other host in an hour.
const DOMINANCE: f64 = 10.0;

/// The page of a range; with a rollout if one is given.
#[must_use]
pub fn page(fleet: &Fleet, facts: &Facts, change: Option<(Changed, HourStart)>) -> String {
    let judged = change.map(|(changed, at)| rollout(facts, &changed, at));
    rendered(fleet, facts.range, &map(facts), &causes(facts), &recordings(facts), &findings(facts), judged.as_ref())
}

/// One cell per host and hour: the logarithm of stall time per observed second.
struct Map {
    hosts: Vec<String>,
    hours: usize,
    cells: Vec<u8>,
}

fn hours_of(facts: &Facts) -> usize {
    facts.range.hours().clamp(1, 24 * 366) as usize
}

/// The index of the hour in the range.
fn place(facts: &Facts, hour: i64) -> Option<usize> {
    usize::try_from(hour - facts.range.from.hours()).ok().filter(|place| *place < hours_of(facts))
}

fn map(facts: &Facts) -> Map {
    let hours = hours_of(facts);
    let mut rows: Vec<(i64, &String, Vec<u8>)> = Vec::with_capacity(facts.hosts.len());
    for (name, host) in &facts.hosts {
        let (mut sum, mut cells) = (0_i64, vec![NOT_OBSERVED; hours]);
        // An hour without observation is not 0.
        for (hour, of) in host.hours.iter().filter(|(_, of)| of.observed_ms > 0) {
            let stall_ns = of.by_cause.iter().fold(0_i64, |sum, (_, ns)| sum.saturating_add(*ns));
            if let Some(cell) = place(facts, *hour).and_then(|place| cells.get_mut(place)) {
                *cell = shade(stall_ns as f64 / (of.observed_ms as f64 / 1_000.0));
                sum = sum.saturating_add(stall_ns);
            }
        }
        rows.push((sum, name, cells));
    }
    rows.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(other.1)));
    let cells = rows.iter().flat_map(|(.., cells)| cells.iter().copied()).collect();
    Map { hosts: rows.into_iter().map(|(_, name, _)| name.clone()).collect(), hours, cells }
}

/// 0 for none, then 1 to 250 for 1 us to 1 s per second, on a logarithmic scale.
fn shade(ns_per_s: f64) -> u8 {
    if ns_per_s < 1_000.0 {
        u8::from(ns_per_s > 0.0)
    } else {
        ((ns_per_s / 1_000.0).log10() / 6.0 * 249.0 + 1.0).min(250.0) as u8
    }
}

/// Stall time of each cause in each hour, s; the largest causes first.
struct Causes {
    names: Vec<String>,
    by_hour: Vec<Vec<f64>>,
    /// The host that is limited to the others, and its number of hours.
    limited: Option<(String, usize)>,
}

/// The host with the hour of most stall time, and that of the worst hour of any other host, ns: if the first is far
/// above, a chart would show nothing but that host.
fn dominant(facts: &Facts) -> Option<(&String, f64)> {
    let stall_ns = |hour: &HourFacts| hour.by_cause.values().map(|ns| *ns as f64).sum::<f64>();
    let worst = |host: &HostFacts| host.hours.values().map(stall_ns).fold(0.0, f64::max);
    let mut all: Vec<(f64, &String)> = facts.hosts.iter().map(|(name, host)| (worst(host), name)).collect();
    all.sort_unstable_by(|one, other| other.0.total_cmp(&one.0));
    let [(most, host), (next, _), ..] = all.as_slice() else { return None };
    (*next > 0.0 && *most > DOMINANCE * next).then_some((*host, *next))
}

fn causes(facts: &Facts) -> Causes {
    let hours = hours_of(facts);
    let dominant = dominant(facts);
    let mut limited = 0;
    let mut all = vec![vec![0.0; hours]; facts.causes.len()];
    for (name, host) in &facts.hosts {
        for (hour, of) in &host.hours {
            let stall_ns: f64 = of.by_cause.values().map(|ns| *ns as f64).sum();
            let most_ns = dominant.filter(|(host, _)| *host == name).map_or(f64::INFINITY, |(_, most_ns)| most_ns);
            let factor = if stall_ns > most_ns { most_ns / stall_ns } else { 1.0 };
            limited += usize::from(factor < 1.0);
            for (cause, ns) in &of.by_cause {
                let cell = all.get_mut(*cause as usize).zip(place(facts, *hour));
                if let Some(cell) = cell.and_then(|(of, place)| of.get_mut(place)) {
                    *cell += *ns as f64 / 1e9 * factor;
                }
            }
        }
    }
    let sum = |hours: &Vec<f64>| hours.iter().sum::<f64>();
    let mut sorted: Vec<(String, Vec<f64>)> = facts.causes.iter().cloned().zip(all).collect();
    sorted.sort_by(|one, other| sum(&other.1).total_cmp(&sum(&one.1)));
    if sorted.len() > CAUSES_MAX {
        let rest = sorted.split_off(CAUSES_MAX);
        let together = (0..hours).map(|at| rest.iter().map(|(_, of)| of[at]).sum()).collect();
        sorted.push(("others".to_owned(), together));
    }
    let (names, by_hour) = sorted.into_iter().unzip();
    Causes { names, by_hour, limited: dominant.map(|(host, _)| (host.clone(), limited)) }
}

/// The listed recordings, those with the most stall time first, and the number of the others. The worst recording of
/// each host comes before the second one of any host, so that no host fills the list.
fn worst_kept(facts: &Facts) -> (Vec<&Kept>, usize) {
    let most_first =
        |one: &&Kept, other: &&Kept| other.stall_ns.cmp(&one.stall_ns).then_with(|| one.place.cmp(&other.place));
    let mut all: Vec<&Kept> = facts.recordings.values().collect();
    all.sort_by(most_first);
    let mut of_host: BTreeMap<&str, usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, &Kept)> = all
        .into_iter()
        .map(|kept| {
            let rank = of_host.entry(&kept.host).or_default();
            *rank += 1;
            (*rank, kept)
        })
        .collect();
    // The sort is stable.
    ranked.sort_by_key(|(rank, _)| *rank);
    let others = ranked.len().saturating_sub(RECORDINGS_MAX);
    let mut listed: Vec<&Kept> = ranked.into_iter().take(RECORDINGS_MAX).map(|(_, kept)| kept).collect();
    listed.sort_by(most_first);
    (listed, others)
}

/// The rows of the table: host, hour, stall time and key. Then the number of recordings that are not listed.
fn recordings(facts: &Facts) -> String {
    let (listed, others) = worst_kept(facts);
    let mut out = String::new();
    for kept in listed {
        let _ = write!(
            out,
            "<tr data-host=\"{}\"><td>{}</td><td>{}</td><td class=\"n\">{}</td><td><code>{}</code></td></tr>",
            escaped(&kept.host),
            escaped(&printable::line(&kept.host)),
            time::sql(HourStart::of_hours(kept.hour)),
            human("stall_ns", &kept.stall_ns.to_string()),
            escaped(&printable::line(&kept.place))
        );
    }
    if others > 0 {
        let _ = write!(out, "<tr><td colspan=\"4\">{others} more recordings are not listed</td></tr>");
    }
    out
}

/// Size of the chart of causes, and the space for its axes on the left and below.
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 56.0;
const BELOW: f64 = 20.0;

/// The chart of causes as stacked areas.
fn areas(causes: &Causes, range: Range) -> String {
    let hours = causes.by_hour.first().map_or(0, Vec::len);
    let total = |at: usize| causes.by_hour.iter().map(|of| of[at]).sum::<f64>();
    let most = (0..hours).map(total).fold(1e-9, f64::max);
    let x = |at: usize| LEFT + (WIDTH - LEFT) * at as f64 / (hours.max(2) - 1) as f64;
    let y = |value: f64| (HEIGHT - BELOW) * (1.0 - value / most);
    let mut out = format!(
        "<svg viewBox=\"0 -8 {WIDTH} {}\" role=\"img\" aria-label=\"Stall time by cause and hour\">{}",
        HEIGHT + 8.0,
        axes(hours, range, most, &x, &y)
    );
    let mut below = vec![0.0; hours];
    for (place, (name, of)) in causes.names.iter().zip(&causes.by_hour).enumerate() {
        let above: Vec<f64> = below.iter().zip(of).map(|(low, own)| low + own).collect();
        let mut points = String::new();
        for (at, value) in above.iter().enumerate() {
            let _ = write!(points, "{:.1},{:.1} ", x(at), y(*value));
        }
        for (at, value) in below.iter().enumerate().rev() {
            let _ = write!(points, "{:.1},{:.1} ", x(at), y(*value));
        }
        let colour = COLOURS[place.min(COLOURS.len() - 1)];
        let sum: f64 = of.iter().sum();
        let _ = write!(
            out,
            "<polygon points=\"{points}\" fill=\"{colour}\"><title>{}: {sum:.0} s</title></polygon>",
            escaped(&printable::line(name))
        );
        below = above;
    }
    out.push_str("</svg><p class=\"key\">");
    for (place, (name, of)) in causes.names.iter().zip(&causes.by_hour).enumerate() {
        let colour = COLOURS[place.min(COLOURS.len() - 1)];
        let sum: f64 = of.iter().sum();
        let _ = write!(
            out,
            "<span><i style=\"background:{colour}\"></i>{} {sum:.0} s</span> ",
            escaped(&printable::line(name))
        );
    }
    out.push_str("</p><p>Seconds of stall time per hour, summed over all hosts.");
    if let Some((host, hours)) = &causes.limited {
        let host = escaped(&printable::line(host));
        let _ = write!(
            out,
            " In {hours} hours {host} is drawn no higher than the other hosts: it has far more stall time."
        );
    }
    out.push_str("</p>");
    out
}

/// Lines at round numbers of seconds, and the times below.
fn axes(hours: usize, range: Range, most: f64, x: &impl Fn(usize) -> f64, y: &impl Fn(f64) -> f64) -> String {
    let mut out = String::new();
    let power = 10_f64.powf((most / 4.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|step| most / step <= 5.0);
    let step = step.unwrap_or(most);
    for line in 0..=(most / step) as u32 {
        let value = f64::from(line) * step;
        let at = y(value);
        let _ = write!(
            out,
            "<path d=\"M{LEFT} {at:.1}H{WIDTH}\" stroke=\"#dfe4e9\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{} s</text>",
            LEFT - 6.0,
            at + 4.0,
            if step < 1.0 { format!("{value:.2}") } else { format!("{value:.0}") }
        );
    }
    let every = [1, 3, 6, 12, 24, 48, 168, 336].into_iter().find(|every| hours / every <= 8).unwrap_or(720);
    for at in 0..hours {
        let hour = range.from.hours() + at as i64;
        let text = time::sql(HourStart::of_hours(hour));
        if hour.rem_euclid(every as i64) == 0 && x(at) < WIDTH - 60.0 {
            let text = if every < 24 { &text[5..16] } else { &text[..10] };
            let _ = write!(out, "<text x=\"{:.1}\" y=\"{:.1}\">{text}</text>", x(at), HEIGHT - 4.0);
        }
    }
    out
}

/// A line of a rollout, with the interval on a scale from a quarter to four times.
fn whisker(line: &Line) -> String {
    let Ratio { value, low, high } = line.ratio;
    let x = |ratio: f64| 150.0 + 75.0 * ratio.max(1e-9).log2().clamp(-2.0, 2.0);
    format!(
        "<tr><td>{}</td><td class=\"n\">{value:.2}x</td><td class=\"n\">{low:.2} to {high:.2}</td><td>{}</td>\
         <td><svg class=\"w\" viewBox=\"0 0 300 16\"><path d=\"M150 0V16\" stroke=\"#999\"/><path d=\"M{:.1} 8H{:.1}\" \
         stroke=\"#234\" stroke-width=\"2\"/><circle cx=\"{:.1}\" cy=\"8\" r=\"4\" fill=\"#234\"/></svg></td></tr>",
        escaped(&printable::line(line.cause.as_deref().unwrap_or("all causes"))),
        line.verdict.name(),
        x(low),
        x(high),
        x(value)
    )
}

fn rollout_html(judged: &Rollout) -> String {
    let mut out = format!(
        "<h2>Rollout: {} at {}</h2><p>{} changed hosts, compared with {} others, in {} strata of kernel and shape.</p>\
         <table><tr><th>stall time of</th><th>after to before</th><th>interval</th><th>verdict</th><th>a quarter to four times</th></tr>",
        escaped(&judged.what),
        judged.at,
        judged.changed,
        judged.others,
        judged.strata
    );
    for line in judged.total.iter().chain(&judged.by_cause) {
        out.push_str(&whisker(line));
    }
    let _ = write!(
        out,
        "</table><p>Not observed: {} host-hours of these hosts; {} hosts not observed before or not after; {} changed otherwise; {} without \
         a similar host.</p>",
        judged.hours_not_observed, judged.not_observed, judged.otherwise, judged.without_control
    );
    out
}

fn rendered(
    fleet: &Fleet,
    range: Range,
    map: &Map,
    causes: &Causes,
    recordings: &str,
    found: &Findings,
    judged: Option<&Rollout>,
) -> String {
    let missing = map.cells.iter().filter(|cell| **cell == NOT_OBSERVED).count();
    let mut facts = String::new();
    for finding in &found.found {
        let _ = write!(facts, "<li>{}</li>", escaped(&finding.to_string()));
    }
    let data = serde_json::json!({
        "hours": map.hours, "from": range.from.epoch_s(), "hosts": map.hosts, "cells": BASE64_STANDARD.encode(&map.cells),
    });
    let compared = format!("{} hosts, {} comparisons", found.hosts, found.comparisons);
    template::page(
        include_str!("report.html"),
        &[
            ("policy", Markup::own(policy())),
            ("range", Markup::text(&format!("{} to {} UTC", time::sql(range.from), time::sql(range.to)))),
            ("fleet", Markup::text(fleet.shown())),
            ("hosts_count", Markup::text(&map.hosts.len().to_string())),
            ("missing", Markup::text(&missing.to_string())),
            ("cells_count", Markup::text(&map.cells.len().to_string())),
            ("facts", Markup::own(facts)),
            ("compared", Markup::text(&compared)),
            ("areas", Markup::own(areas(causes, range))),
            ("rollout", Markup::own(judged.map(rollout_html).unwrap_or_default())),
            ("recordings", Markup::own(recordings)),
            ("left_out", Markup::text(&found.left_out.to_string())),
            ("data", Markup::json(&data)),
            ("script", Markup::own(SCRIPT)),
        ],
    )
}

const SCRIPT: &str = include_str!("report.js");
/// SHA-256 of `report.js` in base64: the policy allows no other script. A test recomputes it.
const SCRIPT_SHA256: &str = "dH4bHDPFIIXcyplRjgXw0+Brnt6SDo82C9R7BKg7vnU=";

fn policy() -> String {
    format!(
        "default-src 'none'; script-src 'sha256-{SCRIPT_SHA256}'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    )
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use flatwater_recording::summary::HourStart;

    use super::{NOT_OBSERVED, shade};
    use crate::judge::Facts;
    use crate::judge::facts::Kept;
    use crate::store::Fleet;
    use crate::time::Range;

    #[test]
    fn shades_rise_and_not_observed_has_its_own_value() {
        let shades = [0.0, 10.0, 1e3, 1e5, 1e7, 1e9, 1e12].map(shade);
        assert!(shades.is_sorted() && shades[0] == 0 && shades[6] < NOT_OBSERVED, "{shades:?}");
    }

    /// The hash in the policy must be that of the page's script.
    #[test]
    fn the_policy_allows_only_the_pages_script() {
        let place = tempfile::tempdir().expect("a directory");
        let script = place.path().join("report.js");
        std::fs::write(&script, super::SCRIPT).expect("written");
        let hashed = std::process::Command::new("openssl").args(["dgst", "-sha256", "-binary"]).arg(&script).output();
        let hashed = hashed.expect("openssl");
        assert!(hashed.status.success(), "{}", String::from_utf8_lossy(&hashed.stderr));
        assert_eq!(BASE64_STANDARD.encode(hashed.stdout), super::SCRIPT_SHA256, "put this into SCRIPT_SHA256");
    }

    /// S2: fails on 9232d20c, where a mark in one host's name was replaced by the names of all hosts, inside an
    /// attribute.
    #[test]
    fn s2_a_name_that_looks_like_a_mark_stays_text() {
        let place = tempfile::tempdir().expect("a directory");
        let fleet = Fleet::directory(place.path().to_owned()).expect("a directory");
        let range = Range { from: HourStart::of_hours(498_698), to: HourStart::of_hours(498_722) };
        let names =
            ["{{hosts}}", "{{data}}", "x onmouseover=alert(1) y", "</script><script>alert(1)</script>", "a\"'b"];
        let kept =
            |host: &&str| Kept { place: format!("v=1/recordings/{host}"), host: (*host).to_owned(), ..Kept::default() };
        let facts = Facts {
            range,
            hosts: names.iter().map(|host| ((*host).to_owned(), Default::default())).collect(),
            configs: Vec::new(),
            causes: names.iter().map(|cause| (*cause).to_owned()).collect(),
            aggressors: Vec::new(),
            recordings: names.iter().map(|host| ((*host).to_owned(), kept(host))).collect(),
            left_out: Default::default(),
            waiting: 0,
        };
        let page = super::page(&fleet, &facts, None);
        for host in names {
            assert!(page.contains(&format!("<tr data-host=\"{}\">", super::escaped(host))), "{host}");
        }
        assert!(!page.contains("=\"["), "JSON opened an attribute");
        assert_eq!(page.matches("<script").count(), 2, "the data and the page's own");
        assert!(!page.contains("<script>alert"));
        // The browser must read the names unchanged.
        let (_, data) = page.split_once("id=\"data\">").expect("data");
        let (data, _) = data.split_once("</script>").expect("its end");
        let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
        let hosts: Vec<&str> =
            data["hosts"].as_array().expect("names").iter().filter_map(|name| name.as_str()).collect();
        assert!(names.iter().all(|name| hosts.contains(name)), "{hosts:?}");
        assert!(page.contains("Content-Security-Policy") && page.contains(super::SCRIPT_SHA256));
    }
}
