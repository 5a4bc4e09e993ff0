//! The built-in scenarios, embedded from `scenarios/*.toml`.

/// (name, text). To add a scenario, add its file and an entry here; `tests/tidy.rs` checks that all files are listed.
pub const BUILTIN: &[(&str, &str)] = &[
    ("journal", include_str!("../../../../scenarios/journal.toml")),
    ("full-cgroup", include_str!("../../../../scenarios/full-cgroup.toml")),
    ("dirty-slow-device", include_str!("../../../../scenarios/dirty-slow-device.toml")),
    ("dirty-bytes", include_str!("../../../../scenarios/dirty-bytes.toml")),
    ("journal-durable", include_str!("../../../../scenarios/journal-durable.toml")),
    ("journal-neighbours", include_str!("../../../../scenarios/journal-neighbours.toml")),
    ("bulk", include_str!("../../../../scenarios/bulk.toml")),
    ("graphdb", include_str!("../../../../scenarios/graphdb.toml")),
    ("maildir", include_str!("../../../../scenarios/maildir.toml")),
    ("sdet", include_str!("../../../../scenarios/sdet.toml")),
    ("checkpoint", include_str!("../../../../scenarios/checkpoint.toml")),
    ("inode-churn", include_str!("../../../../scenarios/inode-churn.toml")),
    ("journal-2.6.32", include_str!("../../../../scenarios/journal-2.6.32.toml")),
    ("journal-2.6.32-zone-reclaim", include_str!("../../../../scenarios/journal-2.6.32-zone-reclaim.toml")),
    ("journal-2.6.32-no-monitor", include_str!("../../../../scenarios/journal-2.6.32-no-monitor.toml")),
    ("journal-2.6.32-precursor", include_str!("../../../../scenarios/journal-2.6.32-precursor.toml")),
    ("bulk-2.6.17", include_str!("../../../../scenarios/bulk-2.6.17.toml")),
    ("bulk-2.6.17-ratelimit16", include_str!("../../../../scenarios/bulk-2.6.17-ratelimit16.toml")),
    ("sdet-2.2.3", include_str!("../../../../scenarios/sdet-2.2.3.toml")),
    ("sdet-2.2.3-proposed", include_str!("../../../../scenarios/sdet-2.2.3-proposed.toml")),
    ("sdet-2.2.5", include_str!("../../../../scenarios/sdet-2.2.5.toml")),
    ("graphdb-zone-reclaim", include_str!("../../../../scenarios/graphdb-zone-reclaim.toml")),
    ("maildir-pae-leak", include_str!("../../../../scenarios/maildir-pae-leak.toml")),
    ("maildir-pae", include_str!("../../../../scenarios/maildir-pae.toml")),
    ("maildir-pae-pressure", include_str!("../../../../scenarios/maildir-pae-pressure.toml")),
    ("maildir-x86_64", include_str!("../../../../scenarios/maildir-x86_64.toml")),
    ("numa-spill", include_str!("../../../../scenarios/numa-spill.toml")),
    ("numa-zone-reclaim", include_str!("../../../../scenarios/numa-zone-reclaim.toml")),
    ("numa-graphdb", include_str!("../../../../scenarios/numa-graphdb.toml")),
    ("bulk-slow-disk", include_str!("../../../../scenarios/bulk-slow-disk.toml")),
    ("maildir-pressure", include_str!("../../../../scenarios/maildir-pressure.toml")),
    ("numa-precursor", include_str!("../../../../scenarios/numa-precursor.toml")),
];

/// Text of the built-in scenario with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static str> {
    BUILTIN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
