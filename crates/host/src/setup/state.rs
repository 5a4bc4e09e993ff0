//! Where flatwater keeps what must outlive a kill -9: the journals of changed settings.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Overrides every other place; the tests use it.
pub const STATE_VARIABLE: &str = "FLATWATER_STATE";

/// Every place where an earlier run may have left a journal, best first.
#[must_use]
pub fn candidates() -> Vec<PathBuf> {
    if let Some(given) = std::env::var_os(STATE_VARIABLE).filter(|given| !given.is_empty()) {
        return vec![PathBuf::from(given)];
    }
    let uid = rustix::process::geteuid();
    let mut places = Vec::new();
    if uid.is_root() {
        places.push(PathBuf::from("/var/lib/flatwater"));
    }
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute()).or(home);
    places.extend(state.map(|state| state.join("flatwater")));
    places.push(PathBuf::from(format!("/var/tmp/flatwater-{}", uid.as_raw())));
    places
}

/// The first place that can be used, made if it is missing.
pub fn directory() -> io::Result<PathBuf> {
    let mut last = io::Error::other("no place for flatwater's state is known");
    for place in candidates() {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&place);
        match made.and_then(|()| check_owner(&place)) {
            Ok(()) => return Ok(place),
            Err(error) => last = io::Error::new(error.kind(), format!("{}: {error}", place.display())),
        }
    }
    Err(last)
}

/// A journal says which files root writes: one in a directory that others can write is never believed.
pub fn check_owner(place: &Path) -> io::Result<()> {
    let meta = std::fs::symlink_metadata(place)?;
    let own = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw();
    if own && meta.permissions().mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "is not a directory that belongs to this user and that only this user can write",
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::check_owner;

    #[test]
    fn a_directory_that_others_can_write_is_not_believed() {
        let place = tempfile::tempdir().expect("a directory");
        assert!(check_owner(place.path()).is_ok());
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o777)).expect("chmod");
        assert!(check_owner(place.path()).is_err());
        assert!(check_owner(&place.path().join("missing")).is_err());
    }
}
