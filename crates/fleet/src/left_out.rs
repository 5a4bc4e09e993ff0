//! Objects and hosts that are left out of an answer or limited in it, with reasons. Every answer lists them.

use std::collections::BTreeMap;
use std::fmt;

use flatwater_recording::printable;

/// Why an object, or the rows of a host, are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The object is not valid Parquet, or not a summary.
    Damaged,
    /// A newer flatwater wrote it.
    Newer,
    /// The host's clock was wrong by more than ten minutes when it pushed, or the rows are of the future.
    Clock,
    /// Two machines have this hostname: their times since boot overlap.
    TwoOfOneName,
    /// A host claims or pushes more than an hour can have; the excess is not counted.
    Excess,
    /// Another summary with this name was merged before.
    Contradicts,
    /// The host names causes that this flatwater does not know; they are counted together.
    UnknownCause,
    /// Another user made or could have made it: a link, a pipe, or a file that others can write.
    Foreign,
}

impl Why {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Why::Damaged => "damaged",
            Why::Newer => "newer",
            Why::Clock => "clock",
            Why::TwoOfOneName => "two-of-one-name",
            Why::Excess => "excess",
            Why::Contradicts => "contradicts",
            Why::UnknownCause => "unknown-cause",
            Why::Foreign => "foreign",
        }
    }

    /// What happens with it.
    fn treatment(self) -> &'static str {
        match self {
            Why::Excess => "limited",
            Why::UnknownCause => "counted together",
            _ => "not used",
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            Why::Damaged => "cannot be read",
            Why::Newer => "written by a newer flatwater: update this one",
            Why::Clock => "from hosts whose clock is wrong: correct the clock; new summaries are accepted",
            Why::TwoOfOneName => "two machines share this hostname: rename one",
            Why::Excess => "in excess of what an hour can have; look at these hosts",
            Why::Contradicts => {
                "contradict a summary of the same name: two machines share a hostname, or one took another's"
            }
            Why::UnknownCause => "with causes that this flatwater does not know, as unknown-cause; update it",
            Why::Foreign => "made by another user, or writable by others: push as the owner",
        }
    }
}

/// Everything that is left out, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LeftOut {
    /// The object's key or the host, and what exactly is wrong.
    found: BTreeMap<Why, BTreeMap<String, String>>,
}

/// Maximum number of names per reason in text; JSON has all of them.
const NAMED_MAX: usize = 3;

impl LeftOut {
    pub fn put(&mut self, why: Why, what: impl Into<String>, exactly: impl Into<String>) {
        self.found.entry(why).or_default().insert(what.into(), exactly.into());
    }

    /// Like `put`, but keeps the first reason for the same thing.
    pub fn put_first(&mut self, why: Why, what: &str, exactly: String) {
        let found = self.found.entry(why).or_default();
        if !found.contains_key(what) {
            found.insert(what.to_owned(), exactly);
        }
    }

    /// Like `put`, but adds to a reason that is there.
    pub fn put_also(&mut self, why: Why, what: &str, exactly: &str) {
        let reason = self.found.entry(why).or_default().entry(what.to_owned()).or_default();
        if !reason.is_empty() {
            reason.push_str("; ");
        }
        reason.push_str(exactly);
    }

    pub fn absorb(&mut self, other: LeftOut) {
        for (why, found) in other.found {
            self.found.entry(why).or_default().extend(found);
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    #[must_use]
    pub fn count(&self, why: Why) -> usize {
        self.found.get(&why).map_or(0, BTreeMap::len)
    }

    /// The object that is left out for this reason, and the exact error.
    pub fn named(&self, why: Why) -> impl Iterator<Item = (&str, &str)> {
        self.found.get(&why).into_iter().flatten().map(|(what, exactly)| (what.as_str(), exactly.as_str()))
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (why, found) in &self.found {
            write!(f, "{}: {} {}: ", why.treatment(), found.len(), why.sentence())?;
            let named = of_each_host(found)
                .into_iter()
                .take(NAMED_MAX)
                .map(|(what, exactly)| printable::line(&format!("{what} ({exactly})")).into_owned());
            f.write_str(&named.collect::<Vec<_>>().join("; "))?;
            f.write_str(if found.len() > NAMED_MAX { "; ...\n" } else { "\n" })?;
        }
        Ok(())
    }
}

/// The first object of each host, then the second ones: a host with many does not hide the others.
fn of_each_host(found: &BTreeMap<String, String>) -> Vec<(&String, &String)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let ranked = found.iter().map(|(what, exactly)| {
        // The name of an object is HOST+BOOT+SEQUENCE.
        let host = what.rsplit('/').next().and_then(|name| name.split('+').next()).unwrap_or_default();
        let count = counts.entry(host).or_default();
        *count += 1;
        (*count, (what, exactly))
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by_key(|(count, _)| *count);
    ranked.into_iter().map(|(_, named)| named).collect()
}

#[cfg(test)]
mod tests {
    use super::{LeftOut, Why};

    /// The three named objects are not simply the first ones.
    #[test]
    fn a_host_with_many_objects_does_not_hide_the_others() {
        let mut left_out = LeftOut::default();
        for sequence in 0..100 {
            left_out.put(Why::Damaged, format!("v=1/in/shard=00/evil+b+{sequence}.parquet"), "torn");
        }
        left_out.put(Why::Damaged, "v=1/in/shard=63/good+b+7.parquet", "torn");
        let text = left_out.to_string();
        assert!(
            text.contains("good+b+7") && text.contains("evil+b+0") && text.contains("101 cannot be read"),
            "{text}"
        );
    }
}
