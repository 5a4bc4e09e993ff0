//! Replaces `remote` in a build without the cargo feature `tls`: no other machine is served.

use crate::config::{NO_TLS, Remote};

#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    #[error("{NO_TLS}")]
    NoTls,
}

/// Has no values: keys are useless without TLS.
#[derive(Debug)]
pub enum Keys {}

impl Keys {
    pub fn read(_: Remote) -> Result<Keys, RemoteError> {
        Err(RemoteError::NoTls)
    }

    pub fn expiry(&self, _: chrono::DateTime<chrono::Utc>) -> Option<String> {
        match *self {}
    }

    pub fn refused(&self) -> Option<RemoteError> {
        match *self {}
    }
}
