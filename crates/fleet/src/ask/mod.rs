//! Named questions: SQL files with a line that says what they answer, and parameters.
//!
//! ```text
//! -- Which causes cost most stall time, and on how many hosts.
//! -- range 192h
//! -- limit int 20: maximum number of rows
//! SELECT ... LIMIT {limit}
//! ```
//!
//! `{name}` in the SQL is replaced by a literal, so that the same text runs on every engine. `{from}` and `{to}` are
//! always defined.

#[cfg(feature = "ballista")]
mod cluster;
mod render;
#[cfg(feature = "ask")]
mod session;
#[cfg(feature = "ask")]
mod sum;

use std::collections::BTreeMap;
use std::path::Path;

use chrono::{DateTime, Utc};

use crate::FleetError;
use crate::template::{self, Literal};
use crate::time::{self, Range};

#[cfg(feature = "ballista")]
pub use cluster::Cluster;
pub(crate) use render::escaped;
pub use render::{Answer, Format, human, json_for_terminals};
#[cfg(feature = "ask")]
pub use session::{Limits, Session};

/// The built-in questions, by name.
const BUILT_IN: &[(&str, &str)] = &[
    ("causes", include_str!("../../questions/causes.sql")),
    ("hosts", include_str!("../../questions/hosts.sql")),
    ("kernels", include_str!("../../questions/kernels.sql")),
    ("settings", include_str!("../../questions/settings.sql")),
    ("aggressors", include_str!("../../questions/aggressors.sql")),
    ("devices", include_str!("../../questions/devices.sql")),
    ("new", include_str!("../../questions/new.sql")),
    ("host", include_str!("../../questions/host.sql")),
    ("dark", include_str!("../../questions/dark.sql")),
    ("coverage", include_str!("../../questions/coverage.sql")),
    ("twins", include_str!("../../questions/twins.sql")),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Int,
    Text,
    Time,
}

/// A parameter of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    pub name: String,
    kind: Kind,
    /// `None` if the user must give a value.
    pub default: Option<String>,
    pub meaning: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub name: String,
    pub about: String,
    /// Default range, hours before the end; a day if absent.
    pub range_hours: Option<i64>,
    pub parameters: Vec<Parameter>,
    sql: String,
}

impl Question {
    /// The built-in questions and those of a directory, which replace built-in ones of the same name.
    pub fn all(folder: Option<&Path>) -> Result<Vec<Question>, FleetError> {
        let mut all: BTreeMap<String, Question> = BTreeMap::new();
        let mut names = Vec::new();
        for (name, text) in BUILT_IN {
            all.insert((*name).to_owned(), Question::parse(name, text)?);
            names.push((*name).to_owned());
        }
        if let Some(folder) = folder {
            let mut found = Vec::new();
            for entry in std::fs::read_dir(folder).map_err(FleetError::file(folder))? {
                found.push(entry.map_err(FleetError::file(folder))?.path());
            }
            found.sort();
            for path in found.into_iter().filter(|path| path.extension().is_some_and(|end| end == "sql")) {
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                let text = std::fs::read_to_string(&path).map_err(FleetError::file(&path))?;
                let question = Question::parse(&name, &text)?;
                if all.insert(name.clone(), question).is_none() {
                    names.push(name);
                }
            }
        }
        Ok(names.iter().filter_map(|name| all.remove(name)).collect())
    }

    pub fn find(name: &str, folder: Option<&Path>) -> Result<Question, FleetError> {
        let all = Question::all(folder)?;
        if let Some(found) = all.iter().find(|question| question.name == name) {
            return Ok(found.clone());
        }
        let known = all.iter().map(|question| question.name.as_str()).collect::<Vec<_>>().join(", ");
        let nearest =
            all.iter().map(|question| (strsim::damerau_levenshtein(&question.name, name), &question.name)).min();
        // The same limit of wrong letters as clap's.
        let meant = nearest.filter(|(wrong, meant)| wrong * 3 <= meant.len().max(3)).map(|(_, meant)| meant.clone());
        Err(FleetError::NoQuestion { name: name.to_owned(), meant, known })
    }

    /// Parses the text of a question's file.
    pub fn parse(name: &str, text: &str) -> Result<Question, FleetError> {
        let wrong = |why: String| FleetError::Question { name: name.to_owned(), why };
        let mut head = text.lines().map_while(|line| line.strip_prefix("--")).map(str::trim);
        let about = head.next().filter(|line| !line.is_empty());
        let about = about
            .ok_or_else(|| wrong("its first line must say what it answers, as in `-- Which hosts stall.`".to_owned()))?
            .to_owned();
        let (mut range_hours, mut parameters) = (None, Vec::new());
        for line in head {
            if let Some(hours) = line.strip_prefix("range ") {
                let hours = hours.strip_suffix('h').and_then(|hours| hours.parse().ok());
                range_hours = Some(hours.ok_or_else(|| wrong(format!("'{line}': give hours, as in 'range 192h'")))?);
            } else {
                parameters.push(
                    Parameter::parse(line)
                        .ok_or_else(|| wrong(format!("'{line}' is not a parameter, as in `n int 20: rows`")))?,
                );
            }
        }
        let sql: Vec<&str> = text.lines().skip_while(|line| line.starts_with("--")).collect();
        let sql = sql.join("\n").trim().trim_end_matches(';').to_owned();
        for parameter in &parameters {
            if !sql.contains(&format!("{{{}}}", parameter.name)) {
                return Err(wrong(format!("it does not use its parameter {}", parameter.name)));
            }
        }
        Ok(Question { name: name.to_owned(), about, range_hours, parameters, sql })
    }

    /// The SQL with these values; `given` are `name=value`.
    pub fn sql(&self, given: &[(String, String)], range: Range) -> Result<String, FleetError> {
        let unknown = given.iter().find(|(name, _)| !self.parameters.iter().any(|parameter| parameter.name == *name));
        if let Some((name, value)) = unknown {
            let known: Vec<&str> = self.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
            let why = format!("the question '{}' has no such parameter; it has: {}", self.name, known.join(", "));
            return Err(FleetError::Parameter { name: name.clone(), given: value.clone(), why });
        }
        let hour = |hour| Literal::timestamp(time::sql(hour));
        let mut values = vec![("from", hour(range.from)), ("to", hour(range.to))];
        for parameter in &self.parameters {
            let value = given.iter().rev().find(|(name, _)| *name == parameter.name).map(|(_, value)| value.as_str());
            values.push((&parameter.name, parameter.literal(value, range)?));
        }
        Ok(template::sql(&self.sql, &values))
    }
}

impl Parameter {
    /// Parses `limit int 20: maximum number of rows` or `host text: its name`.
    fn parse(line: &str) -> Option<Parameter> {
        let (head, meaning) = line.split_once(':')?;
        let mut words = head.split_whitespace();
        let name = words.next()?.to_owned();
        let kind = match words.next()? {
            "int" => Kind::Int,
            "text" => Kind::Text,
            "time" => Kind::Time,
            _ => return None,
        };
        let default = words.next().map(|word| word.trim_matches('\'').to_owned());
        Some(Parameter { name, kind, default, meaning: meaning.trim().to_owned() })
    }

    fn literal(&self, given: Option<&str>, range: Range) -> Result<Literal, FleetError> {
        let value = given.or(self.default.as_deref());
        let wrong = |given: &str, why: &str| FleetError::Parameter {
            name: self.name.clone(),
            given: given.to_owned(),
            why: why.to_owned(),
        };
        let value = value.ok_or_else(|| wrong("", &format!("must be given: {}", self.meaning)))?;
        match self.kind {
            Kind::Int => {
                let number: i64 = value.parse().map_err(|_| wrong(value, "must be a whole number"))?;
                Ok(Literal::int(number))
            }
            Kind::Text => Literal::text(value).ok_or_else(|| wrong(value, "must not have a backslash")),
            Kind::Time => {
                let end = DateTime::<Utc>::from_timestamp(range.to.epoch_s(), 0).unwrap_or_default();
                Ok(Literal::timestamp(time::parse(value, end)?.format("%Y-%m-%d %H:%M:%S")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Question, Range};
    use flatwater_recording::summary::HourStart;

    fn range() -> Range {
        Range { from: HourStart::of_hours(498_698), to: HourStart::of_hours(498_722) }
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn every_built_in_question_says_what_it_answers_and_uses_only_its_parameters() {
        let all = Question::all(None).expect("well formed");
        assert!(all.len() >= 11);
        for question in all {
            assert!(question.about.ends_with('.') && question.about.len() < 150, "{}", question.about);
            let given: Vec<_> = question
                .parameters
                .iter()
                .filter(|parameter| parameter.default.is_none())
                .map(|parameter| pair(&parameter.name, "x"))
                .collect();
            let sql = question.sql(&given, range()).expect("SQL");
            assert!(!sql.contains('{'), "{}: {sql}", question.name);
        }
    }

    #[test]
    fn a_value_cannot_leave_its_quotes() {
        let hosts = Question::find("hosts", None).expect("known");
        let sql = hosts.sql(&[pair("cause", "x' OR '1'='1")], range()).expect("SQL");
        assert!(sql.contains("cause = 'x'' OR ''1''=''1'"), "{sql}");
        // S2: fails on 9232d20c, which replaced the second parameter within the value of the first.
        let sql = hosts.sql(&[pair("cause", "{limit}' {to} {from}"), pair("limit", "5")], range()).expect("SQL");
        assert!(sql.contains("cause = '{limit}'' {to} {from}'"), "{sql}");
        assert!(hosts.sql(&[pair("limit", "1; DROP TABLE x")], range()).is_err());
        assert!(hosts.sql(&[pair("cause", "a\\' x")], range()).is_err());
        let unknown = hosts.sql(&[pair("cuase", "x")], range()).expect_err("misspelt");
        assert!(unknown.to_string().contains("cause, limit"), "{unknown}");
        let refused = |name: &str| Question::find(name, None).expect_err(name).to_string();
        assert!(refused("cuases").contains("did you mean 'causes'?"), "{}", refused("cuases"));
        assert!(refused("weather").contains("the questions are causes, hosts"), "{}", refused("weather"));
        assert!(!refused("weather").contains("mean"), "{}", refused("weather"));
    }

    #[test]
    fn times_count_back_from_the_end_of_the_range() {
        let new = Question::find("new", None).expect("known");
        assert_eq!(new.range_hours, Some(192));
        let sql = new.sql(&[], range()).expect("SQL");
        assert!(sql.contains("TIMESTAMP '2026-11-22 02:00:00'"), "{sql}");
    }

    #[test]
    fn a_malformed_question_is_refused_with_the_reason() {
        for (text, why) in [
            ("SELECT 1", "first line"),
            ("-- It counts.\n-- n float 3: x\nSELECT {n}", "not a parameter"),
            ("-- It counts.\n-- n int 3: x\nSELECT 1", "does not use"),
            ("-- It counts.\n-- range 8d\nSELECT 1", "give hours"),
        ] {
            let error = Question::parse("mine", text).expect_err(text).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
