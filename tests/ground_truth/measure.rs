//! One run of one recipe: the stage, the program under test, and its conclusion.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ground_truth::act::Actor;
use crate::ground_truth::recipe::{RECIPES, Recipe};
use crate::ground_truth::stage::Set;

/// Recorded time of a control, and of a stall, which needs less.
const CONTROL_RECORDED: Duration = Duration::from_secs(5);
const STALL_RECORDED: Duration = Duration::from_secs(3);
/// A run that takes longer hangs. Also the maximum life of an actor, which normally ends with its run.
const PATIENCE: Duration = Duration::from_secs(60);
const THRESHOLD: &str = "500us";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    Foreign,
    Own,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::Foreign => "foreign",
            Mode::Own => "own",
        }
    }
}

/// One run and its conclusions. The recipe knows which are right.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    pub recipe: String,
    pub mode: Mode,
    /// The causes of the findings, in the order of the explanation.
    pub findings: Vec<String>,
    pub slow_calls: u64,
    pub lost_ns: u64,
    pub named_share: Option<f64>,
    /// For readers of the log: the five largest causes with their time, notes, and evidence.
    pub parts: String,
    /// Why the run failed.
    pub failure: Option<String>,
}

impl Outcome {
    pub fn failed(recipe: &Recipe, mode: Mode, why: String) -> Outcome {
        Outcome {
            recipe: recipe.name.to_owned(),
            mode,
            findings: Vec::new(),
            slow_calls: 0,
            lost_ns: 0,
            named_share: None,
            parts: String::new(),
            failure: Some(why),
        }
    }

    pub fn top(&self) -> &str {
        self.findings.first().map_or("none", String::as_str)
    }

    fn right(&self) -> &'static [&'static str] {
        RECIPES.iter().find(|recipe| recipe.name == self.recipe).map_or(&[], |recipe| recipe.right)
    }

    pub fn is_control(&self) -> bool {
        self.right() == ["quiet"]
    }

    pub fn is_right(&self) -> bool {
        self.right().contains(&self.top())
    }

    pub fn line(&self) -> String {
        let named = self.named_share.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0));
        let verdict = if self.is_right() { "right" } else { "WRONG" };
        format!(
            "{verdict} {:16} {}: {} slow, {:.1} ms, named {named}: {} ({})",
            self.recipe,
            self.mode.name(),
            self.slow_calls,
            self.lost_ns as f64 / 1e6,
            self.findings.join(", "),
            self.parts
        )
    }
}

/// The program under test: `FLATWATER_BIN` (`make score` sets it to the release build), or the one that cargo built.
fn flatwater() -> PathBuf {
    std::env::var_os("FLATWATER_BIN").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_flatwater")), PathBuf::from)
}

pub fn once(recipe: &'static Recipe, mode: Mode) -> Result<Outcome, String> {
    let time = PATIENCE;
    let recorded = recipe.recorded();
    let mut set = Set::up(recipe, time)?;
    let out = set.outside().join("recorded");
    let message = match mode {
        Mode::Foreign => {
            let mut victim = Actor::start(recipe.victim, &set.path().join("data"), time, recipe.realtime);
            set.enter(victim.pid())?;
            set.begin();
            victim.release();
            // Skip the opening of files, to measure the steady state.
            std::thread::sleep(Duration::from_millis(700));
            let pid = victim.pid().to_string();
            let seconds = format!("{}s", recorded.as_secs());
            finish(
                Command::new(flatwater())
                    .args(["record", "-p", &pid, "-t", &seconds, "-m", THRESHOLD, "--format", "json", "-o"])
                    .arg(&out),
                |_| Ok(()),
            )?
        }
        Mode::Own => {
            let scenario = set.outside().join("scenario.toml");
            std::fs::write(&scenario, scenario_text(recipe)).map_err(|error| error.to_string())?;
            set.begin();
            let directory = set.path();
            let mut command = Command::new(flatwater());
            command.arg("run").arg(&scenario).args(["--format", "json", "-d"]).arg(&directory).arg("-o").arg(&out);
            finish(&mut command, |pid| set.enter(pid))?
        }
    };
    read(recipe, mode, &message)
}

impl Recipe {
    fn recorded(&self) -> Duration {
        if self.right == ["quiet"] { CONTROL_RECORDED } else { STALL_RECORDED }
    }
}

fn scenario_text(recipe: &Recipe) -> String {
    let priority = if recipe.realtime { "[setup]\n\"placement.fifo_priority\" = \"10\"\n" } else { "" };
    format!(
        "name = \"journal\"\nsentence = \"A journal.\"\nduration = \"{}s\"\nthreshold = \"{THRESHOLD}\"\n{priority}\n[[workload]]\nuse = \"journal\"\n{}\n",
        recipe.recorded().as_secs(),
        recipe.own.unwrap_or_default()
    )
}

/// Runs a command to its end and returns its standard output. Calls `started` with its pid.
fn finish(command: &mut Command, started: impl Fn(u32) -> Result<(), String>) -> Result<String, String> {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null()).spawn();
    let mut child = child.map_err(|error| format!("{}: {error}", flatwater().display()))?;
    started(child.id())?;
    let (out, err) = (drain(child.stdout.take()), drain(child.stderr.take()));
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            break status;
        }
        if begun.elapsed() > PATIENCE {
            end(&mut child);
            return Err(format!("took longer than {} s", PATIENCE.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let (message, complaint) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
    if status.success() { Ok(message) } else { Err(format!("{status}: {}", complaint.trim())) }
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn drain(from: Option<impl std::io::Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        if let Some(mut from) = from {
            let _ = from.read_to_string(&mut text);
        }
        text
    })
}

fn read(recipe: &Recipe, mode: Mode, message: &str) -> Result<Outcome, String> {
    let json: Value = serde_json::from_str(message).map_err(|error| format!("no JSON: {error}"))?;
    let findings = json["findings"].as_array().into_iter().flatten();
    Ok(Outcome {
        recipe: recipe.name.to_owned(),
        mode,
        findings: findings.filter_map(|finding| finding["cause"].as_str().map(str::to_owned)).collect(),
        slow_calls: json["slow"]["calls"].as_u64().unwrap_or(0),
        lost_ns: json["slow"]["lost_ns"].as_u64().unwrap_or(0),
        named_share: json["slow"]["named_share"].as_f64(),
        parts: parts(&json),
        failure: None,
    })
}

fn parts(json: &Value) -> String {
    let causes = json["slow"]["causes"].as_array().into_iter().flatten();
    let part = |cause: &Value| Some(format!("{} {:.1} ms", cause["cause"].as_str()?, cause["lost_ns"].as_f64()? / 1e6));
    let mut parts: Vec<String> = causes.filter_map(part).take(5).collect();
    parts.extend(json["notes"].as_array().into_iter().flatten().filter_map(|note| note.as_str().map(str::to_owned)));
    let evidence = json["findings"][0]["evidence"].as_array().into_iter().flatten();
    parts.extend(evidence.filter_map(|evidence| evidence["text"].as_str().map(str::to_owned)));
    // Hide the local path of the stage.
    parts.join("; ").replace(env!("CARGO_TARGET_TMPDIR"), "STAGE")
}

/// The kernel's release.
#[must_use]
pub fn kernel() -> String {
    std::fs::read_to_string(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default().trim().to_owned()
}
