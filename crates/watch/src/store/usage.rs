//! Which recording goes first when there are too many bytes.

use std::collections::{BTreeMap, BTreeSet};

use super::StoredRecording;

/// Bytes by account. A recording for several accounts counts for each of them in equal parts.
#[derive(Debug)]
pub(super) struct Usage(BTreeMap<String, u64>);

impl Usage {
    pub(super) fn of(stored: &[StoredRecording]) -> Usage {
        let mut usage = BTreeMap::new();
        for recording in stored {
            for account in &recording.accounts {
                *usage.entry(account.clone()).or_default() += recording.bytes / recording.accounts.len() as u64;
            }
        }
        Usage(usage)
    }

    pub(super) fn subtract(&mut self, recording: &StoredRecording) {
        for account in &recording.accounts {
            if let Some(bytes) = self.0.get_mut(account) {
                *bytes = bytes.saturating_sub(recording.bytes / recording.accounts.len() as u64);
            }
        }
    }

    /// The index of the oldest recording of the account that uses most bytes. A recording for several accounts counts
    /// for the one that uses least: a user's stall within a recording of another is not removed for the other's bytes.
    pub(super) fn oldest_of_largest(
        &self,
        stored: &[StoredRecording],
        may_go: impl Fn(&StoredRecording) -> bool,
    ) -> Option<usize> {
        let bytes = |recording: &StoredRecording| {
            recording.accounts.iter().map(|account| self.0.get(account).copied().unwrap_or(0)).min().unwrap_or(0)
        };
        let most = stored.iter().filter(|recording| may_go(recording)).map(bytes).max()?;
        stored.iter().position(|recording| may_go(recording) && bytes(recording) == most)
    }
}

/// The names of the newest recording of each account. `stored` is sorted, the oldest first.
pub(super) fn newest_of_each_account(stored: &[StoredRecording]) -> BTreeSet<String> {
    let each =
        stored.iter().flat_map(|recording| recording.accounts.iter().map(move |account| (account, &recording.name)));
    let newest: BTreeMap<&String, &String> = each.collect();
    newest.into_values().cloned().collect()
}
