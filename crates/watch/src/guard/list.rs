//! What `flatwater guard list` and `show` print, as JSON from the daemon.

use flatwater_guard::{Advice, Controller, Report};
use flatwater_recording::printable;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The guard's state. `docs/guard.md` describes it.
#[derive(Debug, Serialize)]
struct State<'a> {
    version: u32,
    mode: &'static str,
    policy: String,
    acting: Option<Acting>,
    advices: Vec<&'a Advice>,
    episodes: Vec<&'a Report>,
    left_alone: Vec<(String, &'static str)>,
}

#[derive(Debug, Serialize)]
struct Acting {
    id: u64,
    group: String,
    setting: String,
    proven: bool,
}

pub fn state(controller: &Controller) -> Value {
    let mode = match controller.policy().mode {
        flatwater_guard::Mode::Off => "off",
        flatwater_guard::Mode::Advise => "advise",
        flatwater_guard::Mode::Act => "act",
    };
    let acting = controller.acting().map(|(id, action, proven)| Acting {
        id: id.0,
        group: action.group.to_string(),
        setting: action.setting.text(),
        proven,
    });
    let state = State {
        version: 1,
        mode,
        policy: controller.policy().summary(),
        acting,
        advices: controller.advices().collect(),
        episodes: controller.reports().collect(),
        left_alone: controller.left_alone().map(|(group, why)| (group.to_string(), why.name())).collect(),
    };
    serde_json::to_value(&state).unwrap_or(Value::Null)
}

/// The parts of the state that the command prints as a table.
#[derive(Debug, Deserialize)]
pub struct Listed {
    pub mode: String,
    pub policy: String,
    acting: Option<Value>,
    advices: Vec<Value>,
    episodes: Vec<Value>,
    left_alone: Vec<(String, String)>,
}

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or("-")
}

impl Listed {
    /// Parses the daemon's answer.
    pub fn parse(body: &str) -> Result<Listed, serde_json::Error> {
        serde_json::from_str(body)
    }

    /// One line for each advice, the newest last.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = format!("guard: {}\n", self.policy);
        if let Some(acting) = &self.acting {
            let proven = if acting["proven"] == true { "proven" } else { "on trial" };
            let (group, setting) = (text(acting, "/group"), text(acting, "/setting"));
            out += &format!("in force: {}: {setting} of {group}, {proven}\n", acting["id"]);
        }
        for advice in &self.advices {
            let share = advice.pointer("/aggressor/share").and_then(Value::as_f64).unwrap_or(0.0);
            let help = match advice["command"].as_str() {
                Some(command) => command.to_owned(),
                None => format!("no limit: {}", text(advice, "/refusal")),
            };
            out += &format!(
                "{:>4}  {}  <- {:.0} % {} in {}  {help}\n",
                advice["id"],
                text(advice, "/victim/group"),
                share * 100.0,
                text(advice, "/aggressor/program"),
                text(advice, "/aggressor/group"),
            );
        }
        if self.advices.is_empty() {
            out += "no advice: no group has lost 500 ms in ten seconds because of another group\n";
        }
        for (group, why) in &self.left_alone {
            out += &format!("left alone: {group}: {why}\n");
        }
        // Users choose the names of groups and programs.
        out.lines().map(|line| format!("{}\n", printable::line(line))).collect()
    }

    /// All facts of one advice and the episode; `None` if no advice has this number.
    #[must_use]
    pub fn show(&self, id: u64) -> Option<String> {
        let advice = self.advices.iter().find(|advice| advice["id"].as_u64() == Some(id))?;
        let mut out = serde_json::to_string_pretty(advice).unwrap_or_default();
        out.push('\n');
        for episode in self.episodes.iter().filter(|episode| episode["episode"].as_u64() == Some(id)) {
            out += &serde_json::to_string_pretty(episode).unwrap_or_default();
            out.push('\n');
        }
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use flatwater_guard::{Controller, Policy};

    use super::{Listed, state};

    #[test]
    fn an_empty_list_is_printed() {
        let listed = Listed::parse(&state(&Controller::new(Policy::default(), 1)).to_string()).expect("parses");
        assert_eq!(listed.mode, "advise");
        assert!(listed.table().contains("no advice"), "{}", listed.table());
        assert!(listed.show(1).is_none());
    }
}
