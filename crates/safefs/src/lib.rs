//! Directory handles: the only access to files that other users of the machine can influence.
//!
//! flatwater runs as root while users can rename, replace and link anything in their own directories. Therefore a
//! directory is resolved once and kept open, and its content is accessed by one plain name relative to the handle.
//! Checks (kind, owner, mode, number of links) use the open descriptor, never the path. New files are created with
//! `O_EXCL`, for their owner only.
//!
//! - [`Dir`] is a directory handle: [`Dir::claim`] opens an output directory, [`Dir::trusted`] one whose content is
//!   acted upon.
//! - [`Pending`] is a file that gets its name when it is complete.
//! - [`read_regular`], [`read_believed`] and [`read_secret`] read files that the user named.
//! - [`Refusal`] says why a file or directory was refused.
//!
//! ```
//! # let place = tempfile::tempdir()?;
//! let out = flatwater_safefs::Dir::claim(&place.path().join("recording"), None)?;
//! out.replace("header.json", b"{}", false)?;
//! assert_eq!(std::io::read_to_string(out.read("header.json")?)?, "{}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod dir;
mod refusal;
mod regular;
mod replace;
mod resolve;
mod trusted;

pub use dir::Dir;
pub use refusal::Refusal;
pub use regular::{Limited, open_regular, read_believed, read_regular, read_secret};
pub use replace::{Pending, write_output};
