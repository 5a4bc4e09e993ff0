//! Inputs of the case studies' scenarios that no published text states.
//!
//! An input chosen so that a published row results is `Fitted` to that row like any other constant. The list has the
//! keys of the scenario file as in `flatwater run --set`; the values are read from the scenario.

use super::Provenance;
use flatwater_workload::scenario::Scenario;

/// One assumption of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    pub key: &'static str,
    pub value: String,
    pub provenance: Provenance,
}

const fn fitted(key: &'static str, row: &'static str) -> (&'static str, Provenance) {
    (key, Provenance::Fitted { row })
}

const fn published(key: &'static str, text: &'static str) -> (&'static str, Provenance) {
    (key, Provenance::Published { text })
}

const fn assumed(key: &'static str, reason: &'static str) -> (&'static str, Provenance) {
    (key, Provenance::Assumed { reason })
}

const JOURNAL: &[(&str, Provenance)] = &[
    fitted("model.process_memory", "journal-2.6.32-zone-reclaim: the longest write"),
    assumed(
        "model.cache_percent",
        "long uptime: page cache of old journals fills the memory that processes leave \
        free",
    ),
    assumed("model.pinned_percent", "held by small processes"),
    assumed("monitor.slabinfo_interval", "a monitor that reads /proc/slabinfo once a second: a hypothesis of ours"),
];

const GRAPHDB: &[(&str, Provenance)] = &[
    assumed("graphdb.files", "the most that fit: of 40 more, 0.2 %, some are read from the disk again"),
    published(
        "graphdb.burst_pause",
        "sar -B with mode 0: 26 138 kB/s were written on average, here by ten writers, 1 MiB each time",
    ),
    assumed("model.pinned_percent", "held by processes"),
    assumed("model.active_percent", "files that were read more than once: more than min_unmapped_ratio's 1 %"),
    assumed("model.mapped_percent", "files mapped and read for hours"),
    assumed("journal_commit_interval", "a journal with the usual five seconds"),
];

const MAILDIR: &[(&str, Provenance)] = &[
    assumed("model.pinned_percent", "1750 processes of 350 KiB each"),
    assumed(
        "maildir.mailboxes",
        "part of a store of fifty million messages; with twice as many 16 % more inodes and 14 % less cache",
    ),
    assumed(
        "maildir.messages",
        "six million messages in all; of 200 in 30 000 mailboxes the model holds within 4 % as many",
    ),
    assumed("maildir.message_size", "a mail of 11 KiB on average"),
    assumed("maildir.deliver", "as much mail comes as is expunged"),
    assumed("maildir.expunge", "as much mail comes as is expunged"),
    assumed("maildir.list", "one login for a hundred other actions"),
    fitted("maildir.reads", "maildir-pae: cached"),
    assumed("maildir.pause", "everything takes a tenth of the server's time"),
];

const LEAK: &[(&str, Provenance)] = &[
    assumed("model.pinned_percent", "1750 processes of 350 KiB each"),
    assumed("maildir.mailboxes", "as many as on the other servers"),
    assumed("maildir.messages", "what comes between two logins, each of which empties the mailbox"),
    assumed("maildir.message_size", "a mail of 11 KiB on average"),
];

const BULK: &[(&str, Provenance)] = &[assumed("queue.max_sectors_kb", "a disk of 28-bit commands: 256 sectors each")];

const SDET: &[(&str, Provenance)] = &[
    published("sdet.sources", "vmstat before the first run: buff 74 064 kB"),
    fitted("sdet.intermediates", "sdet-2.2.3: bi"),
    fitted("sdet.compute", "sdet-2.2.3: idle"),
    assumed("sdet.units", "four sources a compiler command"),
    assumed("sdet.programs", "programs in use"),
];

/// The table of a built-in scenario, by its name; empty for any other.
fn table(scenario: &str) -> &'static [(&'static str, Provenance)] {
    match scenario {
        "maildir-pae-leak" => LEAK,
        name if name.starts_with("journal-2.6.32") => JOURNAL,
        "graphdb-zone-reclaim" => GRAPHDB,
        name if name.starts_with("maildir-") => MAILDIR,
        name if name.starts_with("bulk-2.6.17") => BULK,
        name if name.starts_with("sdet-2.2") => SDET,
        _ => &[],
    }
}

/// The assumptions of a scenario with their present values.
#[must_use]
pub fn of_scenario(scenario: &Scenario) -> Vec<Input> {
    let value_of = |key: &str| -> Option<String> {
        if key == "seed" {
            return Some(scenario.seed.to_string());
        }
        if let Some(value) = scenario.setup.get(key).or(scenario.model.get(key).map(String::as_str)) {
            return Some(value.to_owned());
        }
        let (label, parameter) = key.split_once('.')?;
        let spec = scenario.workloads.iter().find(|spec| spec.label == label)?;
        spec.params.iter().find(|(name, _)| *name == parameter).map(|(_, value)| value.to_owned())
    };
    let present = table(&scenario.name).iter();
    present.filter_map(|&(key, provenance)| Some(Input { key, value: value_of(key)?, provenance })).collect()
}

#[cfg(test)]
mod tests {
    use super::{of_scenario, table};
    use flatwater_workload::scenario::Scenario;

    #[test]
    fn every_listed_input_exists_in_its_scenario() {
        for name in
            ["journal-2.6.32", "graphdb-zone-reclaim", "maildir-pae", "maildir-pae-leak", "bulk-2.6.17", "sdet-2.2.3"]
        {
            let listed = table(name);
            let found = of_scenario(&Scenario::load(name).expect(name));
            assert!(!listed.is_empty() && found.len() == listed.len(), "{name}: {found:?}");
        }
    }
}
