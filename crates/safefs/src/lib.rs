//! Directory handles: the only access to files that other users of the machine can influence.
//!
//! flatwater runs as root beside users who may rename, replace and link whatever is in their own directories while it
//! works. So a directory is resolved once and held open; everything in it is named by one plain name below that handle;
//! what is opened is judged on its descriptor (kind, owner, mode, number of names), never on its path; and what is made
//! is made with `O_EXCL`, for its owner alone.
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
