//! Attacks on the TLS of metrics, with a certificate that an authority has signed: by clients without the token, with
//! old protocols, with a slow or endless handshake, and with floods after it. `openssl` is the honest client.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use needs::as_unprivileged;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::config::Remote;
use crate::http::{Answer, Asked, CONNECTIONS_MAX, PATIENCE, Server, TEXT};
use crate::remote::Keys;

const TOKEN: &str = "the-token-of-the-scraper";
const CONFIG: &str = "[req]\ndistinguished_name=dn\nx509_extensions=ca\n[dn]\n[ca]\nbasicConstraints=critical,CA:TRUE\n\
                      [leaf]\nbasicConstraints=CA:FALSE\nsubjectAltName=DNS:watch.example\n\
                      extendedKeyUsage=serverAuth\n";

/// A server with a certificate for `watch.example`, valid for two days, and the files of the authority.
struct Site {
    folder: tempfile::TempDir,
    server: Server,
}

fn openssl(at: &Path, arguments: &str) {
    let made = Command::new("openssl").args(arguments.split(' ')).current_dir(at).output().expect("openssl");
    assert!(made.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&made.stderr));
}

impl Site {
    fn new() -> Site {
        let folder = tempfile::tempdir().expect("a directory");
        let at = folder.path();
        std::fs::write(at.join("cnf"), CONFIG).expect("written");
        let key = "-config cnf -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        openssl(at, &format!("req -x509 {key} -subj /CN=authority -keyout ca.key -out ca.pem -days 3650"));
        openssl(at, &format!("req -new {key} -subj /CN=watch -keyout key.pem -out leaf.csr"));
        let sign = "x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile cnf -extensions leaf";
        openssl(at, &format!("{sign} -out leaf.pem -days 2"));
        std::fs::write(at.join("token"), TOKEN).expect("written");
        for secret in ["key.pem", "token"] {
            std::fs::set_permissions(at.join(secret), std::fs::Permissions::from_mode(0o600)).expect("chmod");
        }
        let [certificate, key, token_file] = ["leaf.pem", "key.pem", "token"].map(|name| at.join(name));
        let keys = Keys::read(Remote { certificate, key, token_file }).expect("all is well");
        let answerer = |asked: Asked| match asked {
            Asked::Metrics(_) => Answer { status: 200, kind: TEXT, body: (*b"up 1\n").into() },
            _ => Answer { status: 404, kind: TEXT, body: [].into() },
        };
        let listen = Some("127.0.0.1:0".parse().expect("an address"));
        let server = Server::start(None, listen, Some(Arc::new(keys)), Arc::new(answerer)).expect("listens");
        Site { folder, server }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.server.listening.expect("listens")).expect("connects")
    }

    /// Asks with `openssl s_client` for the metrics. Further arguments are separated by blanks.
    fn ask(&self, token: &str, arguments: &str) -> Output {
        let address = self.server.listening.expect("listens").to_string();
        let mut client = Command::new("openssl")
            .args(["s_client", "-quiet", "-connect", &address, "-CAfile", "ca.pem", "-verify_return_error"])
            .args(arguments.split_whitespace())
            .current_dir(self.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("openssl");
        let request = format!("GET /metrics HTTP/1.1\r\nHost: watch.example\r\nAuthorization: Bearer {token}\r\n\r\n");
        // A client that refused the certificate has ended.
        let _ = client.stdin.take().expect("piped").write_all(request.as_bytes());
        client.wait_with_output().expect("it ends")
    }

    fn status(&self, token: &str, arguments: &str) -> Option<u16> {
        let answer = self.ask(token, &format!("-verify_hostname watch.example {arguments}"));
        let answer = String::from_utf8_lossy(&answer.stdout).into_owned();
        answer.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
    }

    fn assert_served(&self) {
        assert_eq!(self.status(TOKEN, ""), Some(200));
    }

    fn client(&self) -> ClientConnection {
        client(&self.config())
    }

    fn config(&self) -> Arc<ClientConfig> {
        let authority = CertificateDer::from_pem_file(self.folder.path().join("ca.pem")).expect("PEM");
        let mut roots = RootCertStore::empty();
        roots.add(authority).expect("an authority");
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("protocols")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Arc::new(config)
    }
}

fn client(config: &Arc<ClientConfig>) -> ClientConnection {
    let name = "watch.example".try_into().expect("a name");
    ClientConnection::new(Arc::clone(config), name).expect("a client")
}

#[test]
fn a_client_is_served_only_with_the_right_name_time_and_token() {
    let site = Site::new();
    site.assert_served();
    let refused = |arguments: &str, why: &str| {
        let output = site.ask(TOKEN, arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.stdout.is_empty() && errors.contains(why), "{arguments}: {errors}");
    };
    refused("-verify_hostname other.example", "hostname mismatch");
    let later = chrono::Utc::now().timestamp() + 10 * 86_400;
    refused(&format!("-verify_hostname watch.example -attime {later}"), "certificate has expired");
    for wrong in ["", "the-token-of-the-scrapex", "the-token-of-the-scraper2", "x"] {
        assert_eq!(site.status(wrong, ""), Some(401), "{wrong:?}");
    }
    // The server asks for no certificate: one of the same authority does not replace the token.
    assert_eq!(site.status("x", "-cert leaf.pem -key key.pem"), Some(401));
    assert_eq!(site.status(TOKEN, "-cert leaf.pem -key key.pem"), Some(200));
    site.assert_served();
}

#[test]
fn old_protocols_and_plain_http_get_no_answer() {
    let site = Site::new();
    for old in ["-tls1_2", "-tls1_1", "-tls1"] {
        let output = site.ask(TOKEN, &format!("{old} -cipher DEFAULT@SECLEVEL=0 -verify_hostname watch.example"));
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.stdout.is_empty() && !output.status.success(), "{old}: {errors}");
        assert!(old != "-tls1_2" || errors.contains("protocol version"), "{errors}");
    }
    let mut plain = site.connect();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    plain.write_all(request.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.windows(4).any(|part| part == b"HTTP"), "{}", String::from_utf8_lossy(&answer));
    site.assert_served();
}

/// Each byte arrives in time for a reader that starts its patience again with every byte.
#[test]
fn a_slow_handshake_ends_with_the_patience_and_keeps_no_one_out() {
    let site = Site::new();
    let mut hello = Vec::new();
    site.client().write_tls(&mut hello).expect("a hello");
    let pause = PATIENCE.mul_f64(1.5) / u32::try_from(hello.len()).expect("short");
    let answers: Vec<Vec<u8>> = std::thread::scope(|threads| {
        let slow = (0..2 * CONNECTIONS_MAX).map(|_| {
            threads.spawn(|| {
                let mut stream = site.connect();
                for byte in &hello {
                    if stream.write_all(&[*byte]).is_err() {
                        break;
                    }
                    std::thread::sleep(pause);
                }
                let mut answer = Vec::new();
                let _ = stream.read_to_end(&mut answer);
                answer
            })
        });
        let slow: Vec<_> = slow.collect();
        site.assert_served();
        slow.into_iter().map(|thread| thread.join().expect("ended")).collect()
    });
    // A handshake record, which begins with 22, would be the server's hello.
    let begun = answers.iter().filter(|answer| answer.first() == Some(&22)).count();
    assert_eq!(begun, 0, "handshakes that took longer than the patience went on");
    site.assert_served();
}

/// TLS 1.3 has no renegotiation; its successor is the update of keys, which a client may demand at any time.
#[test]
fn a_flood_of_key_updates_ends_the_connection() {
    let site = Site::new();
    let mut stream = StreamOwned::new(site.client(), site.connect());
    stream.conn.complete_io(&mut stream.sock).expect("a handshake");
    let most = 1_000_000;
    let sent = (0..most).find(|_| stream.conn.refresh_traffic_keys().is_err() || stream.flush().is_err());
    assert!(sent.is_some(), "{most} updates of keys were accepted");
    site.assert_served();
}

#[test]
fn a_flood_of_handshakes_is_limited_like_answers_and_others_are_served() {
    let site = Site::new();
    let (began, config) = (Instant::now(), site.config());
    let (tried, completed) = as_unprivileged(|| {
        let mut completed = 0;
        let tried = 400;
        for _ in 0..tried {
            let (mut client, mut stream) = (client(&config), site.connect());
            stream.set_read_timeout(Some(PATIENCE)).expect("set");
            // The server's last message of a handshake reaches the client only in a connection that it serves.
            completed += u64::from(client.complete_io(&mut stream).is_ok() && !client.is_handshaking());
        }
        (tried, completed)
    });
    site.assert_served();
    // BURST and PER_SECOND of `places`.
    let allowed = 20 + 5 * (began.elapsed() + Duration::from_secs(1)).as_secs();
    assert!(completed > 0 && completed <= allowed, "{completed} of {tried} handshakes, {allowed} allowed");
}

/// A daemon whose own certificate had expired served on without a word.
#[test]
fn the_end_of_the_own_certificate_is_announced_and_reported() {
    let site = Site::new();
    let at = site.folder.path();
    let files = || {
        let [certificate, key, token_file] = ["leaf.pem", "key.pem", "token"].map(|name| at.join(name));
        Remote { certificate, key, token_file }
    };
    let keys = Keys::read(files()).expect("all is well");
    let days = |days: i64| chrono::Utc::now() + chrono::TimeDelta::days(days);
    let soon = keys.expiry(days(0)).expect("it is valid for two days");
    assert!(soon.starts_with("metrics.certificate expires at 20"), "{soon}");
    assert_eq!(keys.expiry(days(1)), None, "reported already");
    let expired = keys.expiry(days(3)).expect("expired");
    assert!(expired.starts_with("metrics.certificate expired at 20"), "{expired}");
    assert_eq!((keys.expiry(days(4)), keys.expiry(days(-60))), (None, None), "reported already; long before");
    // The authority's certificate ends later, an intermediate one earlier than the server's own.
    let sign = "x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile cnf";
    openssl(at, &format!("{sign} -extensions leaf -out year.pem -days 365"));
    openssl(at, &format!("{sign} -extensions ca -out between.pem -days 30"));
    let chain = |names: &[&str]| {
        let pem: String = names.iter().map(|name| std::fs::read_to_string(at.join(name)).expect("PEM")).collect();
        std::fs::write(at.join("leaf.pem"), pem).expect("written");
        Keys::read(files()).expect("all is well").expiry(days(20))
    };
    assert_eq!(chain(&["year.pem", "ca.pem"]), None);
    assert!(chain(&["year.pem", "between.pem", "ca.pem"]).is_some_and(|soon| soon.contains("expires at")));
}

/// With a certificate that had expired when the daemon started.
#[test]
fn an_expired_certificate_is_reported_at_the_start() {
    let site = Site::new();
    let at = site.folder.path();
    std::fs::write(at.join("index.txt"), "").expect("written");
    let ca = "[ca]\ndefault_ca=c\n[c]\ndatabase=index.txt\nrand_serial=yes\ndefault_md=sha256\npolicy=p\n\
              new_certs_dir=.\n[p]\ncommonName=supplied\n";
    std::fs::write(at.join("ca.cnf"), ca).expect("written");
    let dates = "-startdate 20200101000000Z -enddate 20200201000000Z";
    let sign = "ca -batch -notext -config ca.cnf -in leaf.csr -cert ca.pem -keyfile ca.key -out leaf.pem";
    openssl(at, &format!("{sign} -extfile cnf -extensions leaf {dates}"));
    let [certificate, key, token_file] = ["leaf.pem", "key.pem", "token"].map(|name| at.join(name));
    let keys = Keys::read(Remote { certificate, key, token_file }).expect("it is served");
    let warning = keys.expiry(chrono::Utc::now()).expect("expired");
    assert!(warning.starts_with("metrics.certificate expired at 2020-02-01 00:00 UTC: "), "{warning}");
}
