//! The frame of the page: head, policy, order of the sections, and the script with its data.

use super::element::{Html, json_in_script};
use super::payload::{Palette, Payload};
use super::{log, machine, sampled, sections};
use crate::facts;
use flatwater_explain::Explanation;
use flatwater_recording::{Recording, Source};

/// The build script writes these; the script is empty if the build had no npm.
const SCRIPT: &str = include_str!(concat!(env!("OUT_DIR"), "/report.js"));
const STYLE: &str = include_str!(concat!(env!("OUT_DIR"), "/report.css"));
const POLICY: &str = include_str!(concat!(env!("OUT_DIR"), "/report.csp"));

pub fn page(recording: &Recording, explanation: &Explanation, payload: &Payload) -> String {
    let palette = Palette::of(explanation);
    let mut html = Html::default();
    html.raw("<!doctype html>\n");
    html.tag("html", &[("lang", "en")], |html| {
        head(html, recording);
        html.tag("body", &[], |html| {
            top(html, recording, explanation, payload);
            html.tag("main", &[("id", "main")], |html| {
                sections::lead(html, explanation);
                sections::key_figures(html, recording, explanation);
                let notes_first = facts::notes_first(&recording.header);
                if notes_first {
                    sections::notes(html, recording, explanation);
                }
                sections::victims(html, explanation);
                sections::findings(html, recording, explanation, &palette);
                log::section(html, recording, explanation);
                sampled::section(html, recording);
                let shown = Shown::of(recording, explanation, payload);
                if shown.time {
                    sections::where_time_went(html, recording, explanation, &palette);
                }
                sections::workload(html, recording, explanation);
                if shown.charts {
                    placed_by_script(html, "charts", "What happened when", SCRIPT.is_empty());
                }
                if shown.calls {
                    placed_by_script(html, "calls", "Slow calls", SCRIPT.is_empty());
                }
                if !notes_first {
                    sections::notes(html, recording, explanation);
                }
                machine::section(html, recording, explanation);
            });
            data(html, payload);
        });
    });
    html.finish()
}

/// Sections that every page has, except that of an imported log without data for them.
struct Shown {
    time: bool,
    charts: bool,
    calls: bool,
}

impl Shown {
    fn of(recording: &Recording, explanation: &Explanation, payload: &Payload) -> Shown {
        let own = recording.header.source != Source::Import;
        Shown {
            time: own || !explanation.operations.is_empty() || !explanation.slow.causes.is_empty(),
            charts: own || !payload.charts.is_empty(),
            calls: own || !payload.calls.rows.is_empty(),
        }
    }
}

fn head(html: &mut Html, recording: &Recording) {
    head_titled(html, &facts::subject(&recording.header).into_iter().next().unwrap_or_default());
}

/// The texts above the content of a page without a script.
pub struct Frame<'a> {
    /// In the title bar.
    pub title: &'a str,
    /// The verb, such as `probe`.
    pub brand: &'a str,
    pub heading: &'a str,
    /// A line below the heading.
    pub subject: Option<&'a str>,
}

impl Frame<'_> {
    /// The page with this content.
    pub fn page(&self, content: impl FnOnce(&mut Html)) -> String {
        let mut html = Html::default();
        html.raw("<!doctype html>\n");
        html.tag("html", &[("lang", "en")], |html| {
            head_titled(html, self.title);
            html.tag("body", &[], |html| {
                html.tag("header", &[("class", "top")], |html| {
                    html.leaf("p", &[("class", "brand")], &format!("flatwater {}", self.brand));
                    html.leaf("h1", &[], self.heading);
                    if let Some(subject) = self.subject {
                        html.leaf("p", &[("class", "subject")], subject);
                    }
                });
                html.tag("main", &[("id", "main")], content);
            });
        });
        html.finish()
    }
}

fn head_titled(html: &mut Html, what: &str) {
    html.tag("head", &[], |html| {
        html.open("meta", &[("charset", "utf-8")]);
        html.open("meta", &[("http-equiv", "Content-Security-Policy"), ("content", POLICY)]);
        html.open("meta", &[("name", "viewport"), ("content", "width=device-width, initial-scale=1")]);
        html.open("meta", &[("name", "color-scheme"), ("content", "light dark")]);
        html.open("meta", &[("name", "referrer"), ("content", "no-referrer")]);
        html.leaf("title", &[], &format!("{what} · flatwater"));
        html.tag("style", &[], |html| html.raw(STYLE));
    });
}

const LINKS: &[(&str, &str)] = &[
    ("#victims", "Who waited"),
    ("#findings", "Findings"),
    ("#log", "The log"),
    ("#tasks", "Tasks in the log"),
    ("#time", "Where the time went"),
    ("#workload", "Workload"),
    ("#charts", "Charts"),
    ("#calls", "Slow calls"),
    ("#machine", "Machine and gaps"),
];

fn top(html: &mut Html, recording: &Recording, explanation: &Explanation, payload: &Payload) {
    let mut parts = facts::subject(&recording.header).into_iter();
    html.leaf("a", &[("class", "skip"), ("href", "#main")], "Skip to the findings");
    html.tag("header", &[("class", "top")], |html| {
        html.leaf("p", &[("class", "brand")], "flatwater");
        html.leaf("h1", &[], &parts.next().unwrap_or_default());
        html.tag("p", &[("class", "subject")], |html| {
            for part in parts.chain(facts::wall_time(&recording.header)) {
                html.leaf("span", &[], &part);
            }
        });
        html.tag("nav", &[("aria-label", "Sections")], |html| {
            let has_victims = !explanation.victims.is_empty();
            let has_log = log::is_kept(recording);
            let has_workload = !recording.outcomes.is_empty();
            let of_script = Shown::of(recording, explanation, payload);
            let shown = |href: &str| match href {
                "#workload" => has_workload,
                "#victims" => has_victims,
                "#log" => has_log,
                "#tasks" => sampled::is_shown(recording),
                "#time" => of_script.time,
                "#charts" => of_script.charts,
                "#calls" => of_script.calls,
                _ => true,
            };
            for (href, name) in LINKS.iter().filter(|(href, _)| shown(href)) {
                html.leaf("a", &[("href", href)], name);
            }
        });
    });
}

/// A section that the script fills, with a text for readers without the script.
fn placed_by_script(html: &mut Html, id: &'static str, title: &str, no_script: bool) {
    html.tag("section", &[("id", id)], |html| {
        html.leaf("h2", &[], title);
        let place = if id == "charts" { "chart-board" } else { "call-table" };
        html.tag("div", &[("id", place)], |html| {
            let why = if no_script {
                "This flatwater was built without npm, so its report has no charts. All figures are in the recording: \
                 flatwater report REC --format csv --table latency, calls, zones, vmstat, ..."
            } else {
                "This part needs the page's script, which this browser does not run."
            };
            html.leaf("p", &[("class", "empty")], why);
        });
    });
}

fn data(html: &mut Html, payload: &Payload) {
    if SCRIPT.is_empty() {
        return;
    }
    let json = serde_json::to_string(payload).expect("a payload has string keys only");
    html.tag("script", &[("type", "application/json"), ("id", "payload")], |html| html.raw(&json_in_script(&json)));
    html.tag("script", &[], |html| html.raw(SCRIPT));
}
