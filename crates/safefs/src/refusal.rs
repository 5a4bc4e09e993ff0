//! Why a file or directory was refused.

use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    #[error("{} is a symbolic link, which another user may have made: give the path that it points to", path.display())]
    Link { path: PathBuf },
    #[error("{} is {found}; expected {wanted}", path.display())]
    Kind { path: PathBuf, found: &'static str, wanted: &'static str },
    #[error("{} belongs to uid {owner}, not to you (uid {own}): use one of your own", path.display())]
    Owner { path: PathBuf, owner: u32, own: u32 },
    #[error("{} can be written by others (mode {mode:04o}): run chmod go-w on it, or use another directory", path.display())]
    Writable { path: PathBuf, mode: u32 },
    #[error("{} can be read by others (mode {mode:04o}): run chmod 600 on it", path.display())]
    Readable { path: PathBuf, mode: u32 },
    #[error("{} has {links} hard links, which another user may have made: its content cannot be trusted", path.display())]
    Names { path: PathBuf, links: u64 },
    #[error("{} is not empty: use another directory, or empty this one", path.display())]
    NotEmpty { path: PathBuf },
    #[error("{} is shared with others (mode {mode:04o}): use a new directory inside it", path.display())]
    Shared { path: PathBuf, mode: u32 },
    #[error(
        "{} exists and is not only accessible to group {group} (its group is {has}): use a new directory",
        path.display()
    )]
    Group { path: PathBuf, group: u32, has: u32 },
    #[error("{} has more than {most} bytes", path.display())]
    TooLong { path: PathBuf, most: u64 },
    #[error("'{name}' is not a plain file name in {}", path.display())]
    Name { path: PathBuf, name: String },
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

impl Refusal {
    pub(crate) fn io<E: Into<io::Error>>(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(E) -> Refusal {
        let path = path.as_ref().to_owned();
        move |source| Refusal::Io { action, path, source: source.into() }
    }

    /// Whether the reason is that the name does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Refusal::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Keeps an error of the operating system, with its kind and number.
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
