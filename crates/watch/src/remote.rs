//! What scrapers on other machines get and give: TLS 1.3, and a token that they must know.
//!
//! Certificates are renewed while the daemon runs, so that the files are looked at again now and then; what cannot be read, or
//! makes no sense, leaves those of before in force.

use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::config::Remote;
use crate::http::Timed;

/// Why nobody on another machine can be answered.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    #[error("metrics.{key}: {why}")]
    Read { key: &'static str, why: String },
    #[error("metrics.{key}: no PEM {what}: {why}")]
    Pem { key: &'static str, what: &'static str, why: String },
    #[error("metrics.certificate and metrics.key: {0}")]
    Pair(#[from] rustls::Error),
    #[error(
        "metrics.token_file: one line of {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} printable characters; `openssl rand -hex 32` makes one"
    )]
    Token,
    #[error("metrics.{key}: others than its owner can read it; `chmod 600` it")]
    Shared { key: &'static str },
}

const FILE_BYTES_MAX: u64 = 1 << 20;
const TOKEN_BYTES_MIN: usize = 16;
const TOKEN_BYTES_MAX: usize = 512;
/// Between two looks at the files.
const FRESH: Duration = Duration::from_secs(60);

/// What the files hold.
struct Held {
    tls: Arc<ServerConfig>,
    token: String,
    read: Instant,
}

/// The certificate, its key and the token, as they are now.
pub struct Keys {
    files: Remote,
    held: Mutex<Held>,
}

impl std::fmt::Debug for Keys {
    /// Without what it keeps secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Keys {
    pub fn read(files: Remote) -> Result<Keys, RemoteError> {
        let held = Mutex::new(held(&files)?);
        Ok(Keys { files, held })
    }

    /// What a new connection is met with: TLS, and the token that it must send.
    pub fn now(&self) -> (Arc<ServerConfig>, String) {
        let mut known = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if known.read.elapsed() >= FRESH {
            match held(&self.files) {
                Ok(new) => *known = new,
                Err(_) => known.read = Instant::now(),
            }
        }
        (Arc::clone(&known.tls), known.token.clone())
    }
}

fn held(files: &Remote) -> Result<Held, RemoteError> {
    let pem = |key, what, error: rustls::pki_types::pem::Error| RemoteError::Pem { key, what, why: error.to_string() };
    let certificate = bytes(&files.certificate, "certificate")?;
    let chain: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
    let chain = chain.map_err(|error| pem("certificate", "certificate", error))?;
    let key = secret(&files.key, "key")?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| pem("key", "private key", error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    let token = secret(&files.token_file, "token_file")?;
    let token = std::str::from_utf8(&token).map_err(|_| RemoteError::Token)?.trim();
    let plain = token.bytes().all(|byte| byte.is_ascii_graphic());
    if !plain || !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len()) {
        return Err(RemoteError::Token);
    }
    Ok(Held { tls: Arc::new(tls), token: token.to_owned(), read: Instant::now() })
}

fn bytes(path: &Path, key: &'static str) -> Result<Vec<u8>, RemoteError> {
    let read = flatwater_safefs::read_believed(path, FILE_BYTES_MAX);
    read.map_err(|refusal| RemoteError::Read { key, why: refusal.to_string() })
}

/// A file that only its owner may read. Kubernetes gives secrets to a group, which is the pod's own.
fn secret(path: &Path, key: &'static str) -> Result<Vec<u8>, RemoteError> {
    use std::os::unix::fs::PermissionsExt;
    let read = bytes(path, key)?;
    let mode = std::fs::metadata(path).map(|metadata| metadata.permissions().mode()).unwrap_or(0o777);
    if mode & 0o007 != 0 {
        return Err(RemoteError::Shared { key });
    }
    Ok(read)
}

pub(crate) type TlsStream = StreamOwned<ServerConnection, Timed<TcpStream>>;

/// Meets a client that speaks TLS; it shakes hands with the first read, within the stream's time.
pub(crate) fn meet(stream: Timed<TcpStream>, tls: Arc<ServerConfig>) -> io::Result<TlsStream> {
    Ok(StreamOwned::new(ServerConnection::new(tls).map_err(io::Error::other)?, stream))
}

/// Takes as long for a guess that is nearly right as for one that is wrong from its first character on.
#[must_use]
pub fn is_token(token: &str, header: Option<&[u8]>) -> bool {
    let given = header.and_then(|header| header.strip_prefix(b"Bearer ")).unwrap_or_default();
    let differs =
        token.bytes().zip(given.iter().chain(std::iter::repeat(&0))).fold(0, |sum, (one, other)| sum | (one ^ other));
    given.len() == token.len() && differs == 0
}

#[cfg(test)]
mod tests {
    use super::is_token;

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = "0123456789abcdef";
        assert!(is_token(token, Some(b"Bearer 0123456789abcdef")));
        for wrong in [&b""[..], b"Bearer ", b"Bearer 0123456789abcde", b"Bearer 0123456789abcdefg", b"0123456789abcdef"]
        {
            assert!(!is_token(token, Some(wrong)), "{}", String::from_utf8_lossy(wrong));
        }
        assert!(!is_token(token, None));
    }
}
