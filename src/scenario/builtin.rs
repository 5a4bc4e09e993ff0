//! The scenarios that come with flatwater, embedded from `scenarios/*.toml`.

/// (name, text). Adding one is its file and its line here; `tests/tidy.rs` checks that none is forgotten.
pub const BUILTIN: &[(&str, &str)] = &[
    ("journal", include_str!("../../scenarios/journal.toml")),
    ("full-cgroup", include_str!("../../scenarios/full-cgroup.toml")),
];

/// Text of the built-in scenario of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static str> {
    BUILTIN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
