//! Why a file or directory is not touched.

use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    #[error("{} is a symbolic link, which another user may have made: give the path that it points to", path.display())]
    Link { path: PathBuf },
    #[error("{} is {found}, and {wanted} is needed", path.display())]
    Kind { path: PathBuf, found: &'static str, wanted: &'static str },
    #[error("{} belongs to uid {owner}, not to you (uid {own}): give one of your own", path.display())]
    Owner { path: PathBuf, owner: u32, own: u32 },
    #[error("{} can be written by others (mode {mode:04o}): chmod go-w it, or give another directory", path.display())]
    Writable { path: PathBuf, mode: u32 },
    #[error("{} can be read by others (mode {mode:04o}): chmod 600 it", path.display())]
    Readable { path: PathBuf, mode: u32 },
    #[error("{} has {links} hard links, which another user may have made: its content cannot be trusted", path.display())]
    Names { path: PathBuf, links: u64 },
    #[error("{} is not empty: give another directory, or empty it", path.display())]
    NotEmpty { path: PathBuf },
    #[error("{} is shared with others (mode {mode:04o}): give a new directory in it", path.display())]
    Shared { path: PathBuf, mode: u32 },
    #[error(
        "{} is there already and not of group {group} alone (it has group {has}): give a directory that is not there yet",
        path.display()
    )]
    Group { path: PathBuf, group: u32, has: u32 },
    #[error("{} holds more than {most} bytes", path.display())]
    TooLong { path: PathBuf, most: u64 },
    #[error("'{name}' is no plain name of a file in {}", path.display())]
    Name { path: PathBuf, name: String },
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

impl Refusal {
    pub(crate) fn io<E: Into<io::Error>>(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(E) -> Refusal {
        let path = path.as_ref().to_owned();
        move |source| Refusal::Io { action, path, source: source.into() }
    }

    /// There is nothing of that name.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Refusal::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// The system's own error where it was one, so that its kind and number are kept.
impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> io::Error {
        match refusal {
            Refusal::Io { source, .. } => source,
            refusal @ (Refusal::Kind { .. } | Refusal::TooLong { .. } | Refusal::Name { .. }) => {
                io::Error::new(io::ErrorKind::InvalidInput, refusal)
            }
            refusal => io::Error::new(io::ErrorKind::PermissionDenied, refusal),
        }
    }
}
