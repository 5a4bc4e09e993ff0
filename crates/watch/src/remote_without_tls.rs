//! Built without the feature `tls`: no other machine is answered.

use crate::config::{NO_TLS, Remote};

#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    #[error("{NO_TLS}")]
    NoTls,
}

/// Nothing can be read without TLS.
#[derive(Debug)]
pub enum Keys {}

impl Keys {
    pub fn read(_: Remote) -> Result<Keys, RemoteError> {
        Err(RemoteError::NoTls)
    }

    pub fn refused(&self) -> Option<RemoteError> {
        match *self {}
    }
}
