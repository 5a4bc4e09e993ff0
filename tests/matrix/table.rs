//! target/kernels.md: the answers of all kernels as tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::asked::{Asked, Kernel, STALLS, Steps, meant, variant};
use flatwater_recording::schema::Column;
use flatwater_recording::{Cause, Table};

/// Footnotes, numbered in the order of their first use.
#[derive(Default)]
struct Notes(Vec<String>);

impl Notes {
    fn number(&mut self, why: &str) -> usize {
        let known = self.0.iter().position(|note| note == why);
        known.unwrap_or_else(|| {
            self.0.push(why.to_owned());
            self.0.len() - 1
        }) + 1
    }

    fn list(&self, out: &mut String) {
        for (at, note) in self.0.iter().enumerate() {
            let _ = writeln!(out, "{}. {}", at + 1, note.replace('|', "/"));
        }
        out.push('\n');
    }
}

fn header<'a>(out: &mut String, first: &str, all: impl IntoIterator<Item = &'a Asked>) {
    let names: Vec<&str> = all.into_iter().map(|asked| asked.kernel.name.as_str()).collect();
    let _ = writeln!(out, "| {first} | {} |\n|---|{}", names.join(" | "), "---|".repeat(names.len()));
}

const INTRODUCTION: &str = "# What each kernel shows

Each kernel booted with one build in QEMU (software emulation, two CPUs, two nodes) and ran `tests/matrix/guest.sh`: `flatwater
check`, three records of a foreign program, two scenarios, a `restore` after `kill -9`, and `watch` for a minute.

exact: the time in it is measured. sampled: estimated from stacks of running threads. counters only: no call's time, but the
machine's counters show that it happened. absent: nothing shows it.

";

/// The whole page. `others` are the kernels that cannot boot here.
pub fn document(all: &[Asked], others: &[Kernel]) -> String {
    let mut out = String::from(INTRODUCTION);
    machines(&mut out, all);
    for kernel in others {
        let _ = writeln!(out, "{} ({}) was not booted: {}.\n", kernel.name, kernel.package, kernel.missing());
    }
    stalls(&mut out, all);
    shares(&mut out, all);
    causes(&mut out, all);
    hooks(&mut out, all);
    counters(&mut out, all);
    out
}

fn machines(out: &mut String, all: &[Asked]) {
    out.push_str(
        "## The kernels\n\n| kernel | package | release | traced by | LRU | minutes |\n|---|---|---|---|---|---|\n",
    );
    for asked in all {
        let lru = match asked.text("lru_gen").as_str() {
            "absent" => "two lists (no MGLRU built)".to_owned(),
            "0x0000" => "two lists (MGLRU off)".to_owned(),
            bits => format!("MGLRU ({bits})"),
        };
        let (name, how) = variant(&asked.json("check.json")).unwrap_or_default();
        let _ = writeln!(
            out,
            "| {} | {} | {} | `{name}`: {} | {lru} | {:.1} |",
            asked.kernel.name,
            asked.kernel.package,
            asked.text("release"),
            how.replace('|', "/"),
            asked.minutes
        );
    }
    out.push('\n');
}

fn stalls(out: &mut String, all: &[Asked]) {
    out.push_str(
        "## Stalls made there, and what was named first\n\nThe first finding that is not processor time, which emulation \
         stretches out of proportion. In brackets: the share of\nthe stall time that has a name, and the stall time. \
         docs/kernels.md says why kernels differ.\n\n",
    );
    header(out, "stall", all);
    for (name, what, _) in STALLS {
        let _ = write!(out, "| {what} |");
        for asked in all {
            let cell = match asked.stall(name) {
                _ if !asked.steps.makes(name) => NOT_MADE.to_owned(),
                Some((first, named, lost_ns)) => {
                    let named = named.map_or("no slow call".to_owned(), |share| format!("{:.0} %", share * 100.0));
                    let meant = meant(name).iter().find(|cause| asked.names(name, cause));
                    let meant = meant.filter(|_| !meant_first(name, &first));
                    let meant = meant.map_or(String::new(), |cause| format!("; {cause} among the findings"));
                    format!("{first} ({named}, {:.2} s){meant}", lost_ns as f64 / 1e9)
                }
                None => {
                    format!("failed: {}", asked.text(&format!("{name}.json.log")).lines().last().unwrap_or("no output"))
                }
            };
            let _ = write!(out, " {cell} |");
        }
        out.push('\n');
    }
    out.push_str("| restore after kill -9 |");
    for asked in all {
        let done = match asked.status("restore") {
            _ if asked.steps != Steps::All => NOT_MADE,
            Some(0) => "restored",
            _ => "not restored",
        };
        let _ = write!(out, " {done} |");
    }
    out.push_str("\n| watch for a minute beside an fsync storm |");
    for asked in all {
        let _ = write!(out, " {} |", watched(asked));
    }
    out.push_str("\n\n");
}

fn meant_first(stall: &str, first: &str) -> bool {
    meant(stall).contains(&first)
}

/// The table leaves out a cause whose share is lower on every kernel.
const SHARE_MIN: f64 = 0.1;

/// A table of each stall's time by cause and kernel.
fn shares(out: &mut String, all: &[Asked]) {
    let all: Vec<&Asked> = all.iter().filter(|asked| asked.steps >= Steps::Stalls).collect();
    out.push_str("Share of the stall time, for each cause with at least a tenth of the time on one kernel:\n\n");
    header(out, "stall and cause", all.iter().copied());
    for (name, what, _) in STALLS.iter().filter(|(name, ..)| Steps::Stalls.makes(name)) {
        let explanations: Vec<_> = all.iter().map(|asked| asked.json(&format!("{name}.json"))).collect();
        let of = |explanation: &serde_json::Value| -> BTreeMap<String, f64> {
            let causes = explanation["slow"]["causes"].as_array().into_iter().flatten();
            let share =
                |cause: &serde_json::Value| Some((cause["cause"].as_str()?.to_owned(), cause["share"].as_f64()?));
            causes.filter_map(share).collect()
        };
        let of_each: Vec<BTreeMap<String, f64>> = explanations.iter().map(of).collect();
        let some = of_each.iter().flatten().filter(|(_, share)| **share >= SHARE_MIN);
        for cause in some.map(|(cause, _)| cause).collect::<BTreeSet<_>>() {
            let _ = write!(out, "| {what}: {cause} |");
            for shares in &of_each {
                let _ = write!(out, " {:.0} % |", shares.get(cause).copied().unwrap_or(0.0) * 100.0);
            }
            out.push('\n');
        }
    }
    out.push('\n');
}

/// The cell of a step that the kernel did not run.
const NOT_MADE: &str = "not made";

/// The result of the daemon's minute.
fn watched(asked: &Asked) -> String {
    if asked.steps != Steps::All {
        return NOT_MADE.to_owned();
    }
    if asked.status("watch.json") != Some(0) {
        return "failed".to_owned();
    }
    let captures = asked.text("watch.dump").lines().count();
    let lines = asked.text("watch.metrics").lines().filter(|line| line.starts_with("flatwater_")).count();
    format!("answered, {lines} metrics, {captures} recording sealed when asked, ended with 0")
}

fn causes(out: &mut String, all: &[Asked]) {
    out.push_str("## Causes\n\n");
    header(out, "cause", all);
    let mut notes = Notes::default();
    for cause in Cause::ALL.iter().filter(|cause| cause.name() != "unexplained") {
        let _ = write!(out, "| {} |", cause.name());
        for asked in all {
            let check = asked.json("check.json");
            let sights = check["sights"].as_array().cloned().unwrap_or_default();
            let cell = match sights.iter().find(|sight| sight["cause"] == cause.name()) {
                Some(sight) => {
                    let (seen, why) =
                        (sight["seen"].as_str().unwrap_or_default(), sight["why"].as_str().unwrap_or_default());
                    let seen = seen.replace('-', " ");
                    if why.is_empty() { seen } else { format!("{seen} [{}]", notes.number(why)) }
                }
                None => "not answered".to_owned(),
            };
            let _ = write!(out, " {cell} |");
        }
        out.push('\n');
    }
    out.push('\n');
    notes.list(out);
}

fn hooks(out: &mut String, all: &[Asked]) {
    out.push_str("## Hooks\n\n");
    header(out, "hook", all);
    // One row per tracepoint or function, for every program type that a variant attaches.
    let mut rows: BTreeMap<String, BTreeMap<usize, (String, String)>> = BTreeMap::new();
    for (at, asked) in all.iter().enumerate() {
        let check = asked.json("check.json");
        for hook in check["hooks"].as_array().into_iter().flatten() {
            let text = |key: &str| hook[key].as_str().unwrap_or_default().to_owned();
            let Some((kind, point)) =
                text("hook").split_once('/').map(|(kind, point)| (kind.to_owned(), point.to_owned()))
            else {
                continue;
            };
            let name = match kind.as_str() {
                "bpf" => continue,
                "tp_btf" | "raw_tp" => point,
                kind => format!("{point} ({kind})"),
            };
            let state = if text("state") == "unavailable" { "absent".to_owned() } else { text("state") };
            rows.entry(name).or_default().insert(at, (state, text("reason")));
        }
    }
    let mut notes = Notes::default();
    for (name, cells) in rows {
        let _ = write!(out, "| {name} |");
        for at in 0..all.len() {
            let cell = match cells.get(&at) {
                Some((state, _)) if state == "exact" => "exact".to_owned(),
                Some((state, why)) => format!("{state} [{}]", notes.number(why)),
                None => format!(
                    "absent [{}]",
                    notes.number("this kernel has the function by another name, which has another row")
                ),
            };
            let _ = write!(out, " {cell} |");
        }
        out.push('\n');
    }
    out.push('\n');
    notes.list(out);
}

/// The schema's columns in this kernel's recording of full-cgroup.
fn columns_of(asked: &Asked) -> BTreeSet<(Table, String)> {
    let read = asked.with_full(|recording| {
        let series = recording.series.iter();
        series.flat_map(|series| series.columns.iter().map(|column| (series.table, column.name.clone()))).collect()
    });
    read.unwrap_or_default()
}

fn counters(out: &mut String, all: &[Asked]) {
    let all: Vec<&Asked> = all.iter().filter(|asked| asked.steps == Steps::All).collect();
    let by_kernel: Vec<BTreeSet<(Table, String)>> = all.iter().map(|asked| columns_of(asked)).collect();
    let known: BTreeMap<(Table, String), Column> =
        flatwater_recording::schema::all().map(|column| ((column.table, column.name.to_owned()), column)).collect();
    let some: BTreeSet<&(Table, String)> = by_kernel.iter().flatten().collect();
    let by_all = |key: &(Table, String)| by_kernel.iter().all(|columns| columns.contains(key));
    out.push_str("## Counters\n\nColumns of a recording of full-cgroup. A counter is exact on each kernel that prints it.\n\n| table | on every kernel that made the stalls |\n|---|---|\n");
    for table in Table::ALL {
        let count = some.iter().filter(|key| key.0 == *table && by_all(key)).count();
        if count > 0 {
            let _ = writeln!(out, "| {} | {count} exact |", table.name());
        }
    }
    out.push_str("\nCounters that some kernels lack:\n\n");
    header(out, "counter", all.iter().copied());
    for key in some.into_iter().filter(|key| !by_all(key)) {
        let _ = write!(out, "| {}.{} |", key.0.name(), key.1);
        for columns in &by_kernel {
            let cell = match known.get(key) {
                _ if columns.contains(key) => "exact".to_owned(),
                Some(column) => format!("absent (since {}, or not in this configuration)", column.since),
                None => "absent (not printed by this kernel)".to_owned(),
            };
            let _ = write!(out, " {cell} |");
        }
        out.push('\n');
    }
}
