//! TLS 1.3 and a bearer token, for scrapers on other machines.
//!
//! Certificates are renewed while the daemon runs, so the files are read again after a minute. If they cannot be read
//! or are invalid, the previous ones stay in use, and the error is reported once.

use std::io::{self, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::config::Remote;
use crate::http::{Stream, Timed};

/// Why scrapers on other machines cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    #[error("metrics.{key}: {why}")]
    Read { key: &'static str, why: String },
    #[error("metrics.{key}: the file has no PEM {what}: {why}")]
    Pem { key: &'static str, what: &'static str, why: String },
    #[error("metrics.certificate and metrics.key: {0}")]
    Pair(#[from] rustls::Error),
    #[error(
        "metrics.token_file: the file must have one line of {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} printable characters; `openssl rand -hex 32` makes one"
    )]
    Token,
}

const FILE_BYTES_MAX: u64 = 1 << 20;
const TOKEN_BYTES_MIN: usize = 16;
const TOKEN_BYTES_MAX: usize = 512;
/// Time after which the files are read again.
const FRESH: Duration = Duration::from_secs(60);
/// The end of a certificate is reported this long before.
const NOTICE: Duration = Duration::from_secs(14 * 24 * 3600);

/// The content of the files.
struct Held {
    tls: Arc<ServerConfig>,
    /// When the first certificate of the chain that ends expires; `None` if this cannot be read.
    not_after: Option<DateTime<Utc>>,
    token: String,
    read: Instant,
    /// Why the current files are not in use; `None` once this was reported.
    refused: Option<RemoteError>,
    /// The error reported last; the same error is not reported again.
    reported: Option<String>,
}

/// The certificate, its key and the token, read again after a minute.
pub struct Keys {
    files: Remote,
    held: Mutex<Held>,
    /// The last warning about the end of the certificate; the same one is not returned again.
    warned: Mutex<Option<String>>,
}

impl std::fmt::Debug for Keys {
    /// Without the secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Keys {
    pub fn read(files: Remote) -> Result<Keys, RemoteError> {
        let held = Mutex::new(held(&files)?);
        Ok(Keys { files, held, warned: Mutex::default() })
    }

    /// The TLS configuration for a new connection, and the token that it must send.
    pub fn now(&self) -> (Arc<ServerConfig>, String) {
        let known = self.fresh();
        (Arc::clone(&known.tls), known.token.clone())
    }

    fn fresh(&self) -> MutexGuard<'_, Held> {
        let mut known = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if known.read.elapsed() >= FRESH {
            self.look_again(&mut known);
        }
        known
    }

    /// A warning if the certificate has expired or soon expires; each warning is returned once.
    pub fn expiry(&self, now: DateTime<Utc>) -> Option<String> {
        let not_after = self.fresh().not_after;
        let new = not_after.and_then(|not_after| warning(not_after, now));
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = *warned != new;
        warned.clone_from(&new);
        new.filter(|_| is_new)
    }

    fn look_again(&self, known: &mut Held) {
        match held(&self.files) {
            Ok(new) => *known = new,
            Err(error) => (known.read, known.refused) = (Instant::now(), Some(error)),
        }
    }

    /// Why the current files are not in use; each error is returned once.
    pub fn refused(&self) -> Option<RemoteError> {
        let mut known = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let error = known.refused.take()?;
        let message = error.to_string();
        let news = known.reported.as_ref() != Some(&message);
        known.reported = Some(message);
        news.then_some(error)
    }
}

fn warning(not_after: DateTime<Utc>, now: DateTime<Utc>) -> Option<String> {
    let (left, day) = ((not_after - now).to_std().unwrap_or_default(), not_after.format("%Y-%m-%d %H:%M UTC"));
    let renew = "scrapers refuse an expired certificate; renew the file, which is read again within a minute";
    match left {
        Duration::ZERO => Some(format!("metrics.certificate expired at {day}: {renew}")),
        left if left <= NOTICE => Some(format!("metrics.certificate expires at {day}: {renew}")),
        _ => None,
    }
}

/// The earliest end of these certificates. rustls gives it as the reason for which it refuses a certificate in the far
/// future, before it checks signatures and names.
fn not_after(chain: &[CertificateDer<'static>]) -> Option<DateTime<Utc>> {
    const YEAR_9999_S: u64 = 253_402_300_000;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let end_of = |certificate: &CertificateDer<'static>| {
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).ok()?;
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().ok()?;
        let (name, then) =
            (ServerName::try_from("localhost").ok()?, UnixTime::since_unix_epoch(Duration::from_secs(YEAR_9999_S)));
        match verifier.verify_server_cert(certificate, &[], &name, &[], then) {
            Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
                DateTime::from_timestamp(i64::try_from(not_after.as_secs()).ok()?, 0)
            }
            _ => None,
        }
    };
    chain.iter().filter_map(end_of).min()
}

fn held(files: &Remote) -> Result<Held, RemoteError> {
    let pem = |key, what, error: rustls::pki_types::pem::Error| RemoteError::Pem { key, what, why: error.to_string() };
    let certificate = bytes(&files.certificate, "certificate")?;
    let chain: Result<Vec<CertificateDer<'static>>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
    let chain = chain.map_err(|error| pem("certificate", "certificate", error))?;
    let key = secret(&files.key, "key")?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| pem("key", "private key", error))?;
    let not_after = not_after(&chain);
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
    let token = token.to_owned();
    Ok(Held { tls: Arc::new(tls), not_after, token, read: Instant::now(), refused: None, reported: None })
}

fn bytes(path: &Path, key: &'static str) -> Result<Vec<u8>, RemoteError> {
    let read = flatwater_safefs::read_believed(path, FILE_BYTES_MAX);
    read.map_err(|refusal| RemoteError::Read { key, why: refusal.to_string() })
}

/// Reads a file that only its owner can read. Kubernetes gives secrets to the pod's own group, which is accepted.
fn secret(path: &Path, key: &'static str) -> Result<Vec<u8>, RemoteError> {
    let read = flatwater_safefs::read_secret(path, FILE_BYTES_MAX);
    read.map_err(|refusal| RemoteError::Read { key, why: refusal.to_string() })
}

pub(crate) type TlsStream = StreamOwned<ServerConnection, Timed<TcpStream>>;

impl Stream for TlsStream {
    fn until(&mut self, deadline: Instant) {
        self.sock.until(deadline);
    }

    fn end(&mut self) {
        self.conn.send_close_notify();
        // The client may have disconnected; the error does not matter.
        let _ = self.flush();
    }
}

/// A TLS connection; the handshake takes place at the first read, within the stream's deadline.
pub(crate) fn meet(stream: Timed<TcpStream>, tls: Arc<ServerConfig>) -> io::Result<TlsStream> {
    Ok(StreamOwned::new(ServerConnection::new(tls).map_err(io::Error::other)?, stream))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::process::Command;
    use std::sync::PoisonError;

    use super::Keys;
    use crate::config::Remote;

    fn write(path: &Path, text: &str, mode: u32) {
        std::fs::write(path, text).expect("a file");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
    }

    #[test]
    fn invalid_new_files_are_reported_once_and_the_previous_ones_stay_in_use() {
        let folder = tempfile::tempdir().expect("a directory");
        let [certificate, key, token_file] = ["cert.pem", "key.pem", "token"].map(|name| folder.path().join(name));
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-subj",
                "/CN=host",
            ])
            .arg("-keyout")
            .arg(&key)
            .arg("-out")
            .arg(&certificate)
            .output()
            .expect("openssl");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        write(&token_file, "the-token-of-yesterday", 0o600);
        let keys = Keys::read(Remote { certificate, key, token_file: token_file.clone() }).expect("all is well");
        let look = || keys.look_again(&mut keys.held.lock().unwrap_or_else(PoisonError::into_inner));

        write(&token_file, "the-token-of-today", 0o644);
        look();
        let message = keys.refused().expect("others can read it").to_string();
        assert!(message.contains("metrics.token_file") && message.contains("chmod 600"), "{message}");
        look();
        assert!(keys.refused().is_none(), "reported already");
        assert_eq!(keys.now().1, "the-token-of-yesterday");

        write(&token_file, "the-token-of-today", 0o600);
        look();
        assert_eq!(keys.now().1, "the-token-of-today");
    }
}
