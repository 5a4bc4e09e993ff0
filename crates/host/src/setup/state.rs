//! The directories that keep the journals of changes, which must survive kill -9.

use std::io;
use std::path::PathBuf;

use flatwater_safefs::Dir;

/// Replaces all other candidates; for tests. Like every candidate it is used only if no part of the path is under the
/// control of another user (except root).
pub const STATE_VARIABLE: &str = "FLATWATER_STATE";
/// Root's only candidate: with sudo, HOME and the XDG variables often belong to the calling user.
const OF_ROOT: &str = "/var/lib/flatwater";

/// All directories in which an earlier run may have left a journal, best first.
#[must_use]
pub fn candidates() -> Vec<PathBuf> {
    if let Some(given) = std::env::var_os(STATE_VARIABLE).filter(|given| !given.is_empty()) {
        return vec![PathBuf::from(given)];
    }
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return vec![PathBuf::from(OF_ROOT)];
    }
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute()).or(home);
    let mut places: Vec<PathBuf> = state.into_iter().map(|state| state.join("flatwater")).collect();
    places.push(PathBuf::from(format!("/var/tmp/flatwater-{}", uid.as_raw())));
    places
}

/// The first usable candidate, created if necessary.
pub fn directory() -> io::Result<Dir> {
    let mut last = io::Error::other("flatwater has no directory for its state");
    for place in candidates() {
        match Dir::make_trusted(&place) {
            Ok(dir) => return Ok(dir),
            Err(refusal) => last = io::Error::other(refusal.to_string()),
        }
    }
    Err(last)
}
