//! Where flatwater keeps what must outlive a kill -9: the journals of changed settings.

use std::io;
use std::path::PathBuf;

use flatwater_safefs::Dir;

/// Overrides every other place; the tests use it. Like every place it is used only where nobody but us (and root) had
/// a say in any part of its path.
pub const STATE_VARIABLE: &str = "FLATWATER_STATE";
/// Root's only place: HOME and the XDG variables are often those of whoever called sudo.
const OF_ROOT: &str = "/var/lib/flatwater";

/// Every place where an earlier run may have left a journal, best first.
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

/// The first place that can be used, made if it is missing.
pub fn directory() -> io::Result<Dir> {
    let mut last = io::Error::other("no directory for flatwater's state is known");
    for place in candidates() {
        match Dir::make_trusted(&place) {
            Ok(dir) => return Ok(dir),
            Err(refusal) => last = io::Error::other(refusal.to_string()),
        }
    }
    Err(last)
}
