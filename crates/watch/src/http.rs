//! Serves metrics, status and dumps over a Unix socket, loopback or TLS, with the part of HTTP/1.1 that a scraper
//! needs.
//!
//! Each connection gets a thread, at most eight at a time per listening socket. It has seconds to send its request and
//! to read the answer, and is then closed. Connections and answers are divided among peers (`places`). The CPU time of
//! answers is counted separately (`answering_ns`) and sheds no hooks.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use flatwater_host::own_cost::thread_cpu_ns;
use flatwater_safefs::Dir;

use crate::peer::{Peer, Peers};
use crate::places::{Close, NoPlace, Place, Places};
use crate::remote::{self, Keys};
pub use crate::request::{Asked, Form};
use crate::request::{Asker, HEADERS_MAX, question};

/// The answer to a request.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub kind: &'static str,
    /// Shared by all requests of one second.
    pub body: Arc<[u8]>,
}

/// Answers requests; runs on the connection's thread.
pub type Answerer = dyn Fn(Asked) -> Answer + Send + Sync;

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot listen on {at}: {source}{remedy}")]
    Listen { at: String, source: io::Error, remedy: &'static str },
    #[error(transparent)]
    Remote(#[from] remote::RemoteError),
}

pub const TEXT: &str = "text/plain; charset=utf-8";
pub const JSON: &str = "application/json";
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
pub const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";
pub const PROTOBUF: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// Connections served at a time, per listening socket.
pub(crate) const CONNECTIONS_MAX: usize = 8;
/// Time limit for reading a request, and again for writing the answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// Rate at which connections are accepted: `PACE_UNITS` in each `PACE`. A connection that is answered takes
/// `ANSWERED_UNITS`, a refused one takes one. Further connections wait in the kernel's queue, so that a program that
/// connects in a loop costs little.
const PACE: Duration = Duration::from_millis(32);
const PACE_UNITS: u32 = 64;
const ANSWERED_UNITS: u32 = 8;
/// Length of the kernel's queue of connections.
const WAITING_MAX: i32 = 4_096;

/// The listening sockets. The threads end with the process; dropping the server removes the Unix socket's file.
#[derive(Debug)]
pub struct Server {
    socket: Option<PathBuf>,
    /// The bound address: port 0 is replaced by the port that the kernel chose.
    pub listening: Option<SocketAddr>,
    answering_ns: Arc<AtomicU64>,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(path) = &self.socket {
            let _ = fs::remove_file(path);
        }
    }
}

impl Server {
    /// Listens on the socket and the address. Only the socket's owner can open it. With `keys`, the address speaks TLS
    /// and requires a token.
    pub fn start(
        socket: Option<&Path>,
        listen: Option<SocketAddr>,
        keys: Option<Arc<Keys>>,
        answerer: Arc<Answerer>,
    ) -> Result<Server, ServeError> {
        let mut server = Server { socket: None, listening: None, answering_ns: Arc::default() };
        if let Some(address) = listen {
            let failed = |source: io::Error| {
                let used = source.kind() == io::ErrorKind::AddrInUse;
                let remedy = if used { ": another program uses that port; give another in metrics.listen" } else { "" };
                ServeError::Listen { at: address.to_string(), source, remedy }
            };
            let listener = TcpListener::bind(address).map_err(failed)?;
            server.listening = Some(listener.local_addr().map_err(failed)?);
            // The standard library listens with a queue of 128, which a program that connects in a loop can fill.
            rustix::net::listen(&listener, WAITING_MAX).map_err(|error| failed(error.into()))?;
            let mut door = Door::new(&server.answering_ns);
            let (answerer, peers) = (answerer.clone(), Peers::open());
            spawn("fw-http", failed, move || {
                for stream in listener.incoming() {
                    let (answerer, keys) = (answerer.clone(), keys.clone());
                    let peer = |stream: &TcpStream| peers.of(stream);
                    door.serve(stream, peer, move |stream, place| {
                        let _ = over_tcp(stream, place, &*answerer, keys.as_deref());
                    });
                }
            })?;
        }
        if let Some(path) = socket {
            let failed = |source| ServeError::Listen { at: path.display().to_string(), source, remedy: "" };
            let listener = bind(path).map_err(failed)?;
            server.socket = Some(path.to_owned());
            // The socket has its own places: connections to loopback, which any user can make, take none of them.
            let mut door = Door::new(&server.answering_ns);
            spawn("fw-socket", failed, move || {
                for stream in listener.incoming() {
                    let answerer = answerer.clone();
                    door.serve(
                        stream,
                        |_| Peer::Owner,
                        move |mut stream, place| {
                            let _ = converse(&mut stream, place, &*answerer, &Asker::Owner);
                        },
                    );
                }
            })?;
        }
        Ok(server)
    }

    /// CPU time of all answers so far, ns.
    #[must_use]
    pub fn answering_ns(&self) -> u64 {
        self.answering_ns.load(Ordering::Relaxed)
    }
}

fn spawn(
    name: &str,
    failed: impl Fn(io::Error) -> ServeError,
    work: impl FnOnce() + Send + 'static,
) -> Result<(), ServeError> {
    let thread = std::thread::Builder::new().name(name.to_owned()).stack_size(128 << 10).spawn(work);
    thread.map(drop).map_err(failed)
}

/// Binds the socket. Replaces a socket on which no daemon answers, but neither another kind of file nor the socket of a
/// running daemon.
fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(above) = path.parent() {
        // No other user may be able to replace part of the path: clients trust what is answered there.
        Dir::make_trusted(above).map_err(|refusal| io::Error::other(refusal.to_string()))?;
    }
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket()) {
        if UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another flatwater watch runs; stop it first"));
        }
        fs::remove_file(path)?;
    }
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(before);
    listener
}

/// A stream whose reads and writes all end by one deadline, however slow the peer is.
#[derive(Debug)]
pub(crate) struct Timed<S> {
    stream: S,
    deadline: Instant,
}

/// Operations that TCP and Unix sockets share.
pub(crate) trait Socket: Read + Write {
    fn timeouts(&self, left: Duration) -> io::Result<()>;
    /// A function that closes the connection from another thread.
    fn close(&self) -> io::Result<Close>;
}

impl Socket for TcpStream {
    fn timeouts(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left)).and_then(|()| self.set_write_timeout(Some(left)))
    }

    fn close(&self) -> io::Result<Close> {
        let twin = self.try_clone()?;
        Ok(Box::new(move || _ = twin.shutdown(Shutdown::Both)))
    }
}

impl Socket for UnixStream {
    fn timeouts(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left)).and_then(|()| self.set_write_timeout(Some(left)))
    }

    fn close(&self) -> io::Result<Close> {
        let twin = self.try_clone()?;
        Ok(Box::new(move || _ = twin.shutdown(Shutdown::Both)))
    }
}

impl<S: Socket> Timed<S> {
    fn of(stream: S) -> Timed<S> {
        Timed { stream, deadline: Instant::now() + PATIENCE }
    }

    fn arm(&self) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { self.stream.timeouts(left) }
    }
}

impl<S: Socket> Read for Timed<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.arm()?;
        self.stream.read(into)
    }
}

impl<S: Socket> Write for Timed<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.arm()?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// A connection for one request and its answer, with or without TLS.
pub(crate) trait Stream: Read + Write {
    fn until(&mut self, deadline: Instant);
    /// Called after the last byte of the answer.
    fn end(&mut self) {}
}

impl<S: Socket> Stream for Timed<S> {
    fn until(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }
}

/// Accepts the connections of one listening socket.
struct Door {
    places: Arc<Places>,
    answering_ns: Arc<AtomicU64>,
    /// The part of this thread's CPU time that is already counted, ns.
    counted_ns: u64,
    /// Start of the current step; `units` were used since then.
    step: Instant,
    units: u32,
}

impl Door {
    fn new(answering_ns: &Arc<AtomicU64>) -> Door {
        Door {
            places: Places::new(CONNECTIONS_MAX),
            answering_ns: Arc::clone(answering_ns),
            counted_ns: 0,
            step: Instant::now(),
            units: 0,
        }
    }

    /// Answers a connection on a new thread, if there is a place for it.
    fn serve<S: Socket + Send + 'static>(
        &mut self,
        stream: io::Result<S>,
        peer: impl FnOnce(&S) -> Peer,
        answer: impl FnOnce(Timed<S>, &Place) + Send + 'static,
    ) {
        let Ok(stream) = stream else {
            // Out of file descriptors: retrying at once would spin.
            std::thread::sleep(Duration::from_millis(100));
            return;
        };
        let place = match stream.close() {
            Ok(close) => self.places.take(peer(&stream), Instant::now(), close),
            Err(_) => Err(NoPlace::Full),
        };
        let units = if place.is_ok() { ANSWERED_UNITS } else { 1 };
        match place {
            Ok(place) => {
                let answering_ns = Arc::clone(&self.answering_ns);
                let talk = move || {
                    answer(Timed::of(stream), &place);
                    answering_ns.fetch_add(thread_cpu_ns(), Ordering::Relaxed);
                };
                // If no thread can be started, the connection is closed and its place freed. TLS requires the larger
                // stack.
                let _ = std::thread::Builder::new().name("fw-answer".to_owned()).stack_size(256 << 10).spawn(talk);
            }
            Err(why) => refuse(stream, why),
        }
        self.pace(units);
    }

    fn pace(&mut self, units: u32) {
        let used_ns = thread_cpu_ns();
        self.answering_ns.fetch_add(used_ns - self.counted_ns, Ordering::Relaxed);
        self.counted_ns = used_ns;
        self.units += units;
        if self.units >= PACE_UNITS {
            std::thread::sleep(PACE.saturating_sub(self.step.elapsed()));
            (self.step, self.units) = (Instant::now(), 0);
        }
    }
}

fn refuse<S: Socket>(stream: S, why: NoPlace) {
    let status = match why {
        NoPlace::Full => "503 Service Unavailable",
        NoPlace::TooOften => "429 Too Many Requests\r\nRetry-After: 1",
    };
    let mut stream = Timed { stream, deadline: Instant::now() + Duration::from_millis(100) };
    let _ = stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").as_bytes());
}

#[cfg(feature = "tls")]
fn over_tcp(mut stream: Timed<TcpStream>, place: &Place, answerer: &Answerer, keys: Option<&Keys>) -> io::Result<()> {
    let Some(keys) = keys else { return converse(&mut stream, place, answerer, &Asker::Local) };
    let (tls, token) = keys.now();
    converse(&mut remote::meet(stream, tls)?, place, answerer, &Asker::Remote(token))
}

/// `Keys` has no values in this build.
#[cfg(not(feature = "tls"))]
fn over_tcp(mut stream: Timed<TcpStream>, place: &Place, answerer: &Answerer, _keys: Option<&Keys>) -> io::Result<()> {
    converse(&mut stream, place, answerer, &Asker::Local)
}

/// Answers one request. Any user of the machine may read metrics and status over loopback; `dump`, which writes to
/// disk, `now` and the guard are only for the socket's owner.
fn converse(stream: &mut impl Stream, place: &Place, answerer: &Answerer, asker: &Asker) -> io::Result<()> {
    let asked = question(stream, asker)?;
    if asked.is_ok() {
        place.has_asked();
    }
    let answer = match asked {
        Ok(Asked::Dump | Asked::Now | Asked::Guard | Asked::Release(_)) if !matches!(asker, Asker::Owner) => {
            refusal(403, "dump, now and guard are available only over the Unix socket")
        }
        Ok(asked) => answerer(asked),
        Err((status, why)) => refusal(status, why),
    };
    let reason = match answer.status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        503 => "Service Unavailable",
        _ => "Error",
    };
    let challenge = if answer.status == 401 { "WWW-Authenticate: Bearer\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{challenge}Connection: close\r\n\r\n",
        answer.status,
        answer.kind,
        answer.body.len()
    );
    stream.until(Instant::now() + PATIENCE);
    stream.write_all(head.as_bytes())?;
    stream.write_all(&answer.body)?;
    stream.end();
    Ok(())
}

fn refusal(status: u16, why: &str) -> Answer {
    Answer { status, kind: TEXT, body: format!("{why}\n").into_bytes().into() }
}

/// Sends one request to a daemon over its socket, for `flatwater watch dump` and similar. Returns the status and the
/// body.
pub fn ask(socket: &Path, method: &str, path: &str) -> io::Result<(u16, String)> {
    const ANSWER_BYTES_MAX: u64 = 16 << 20;
    if let Some(above) = socket.parent() {
        // As in `bind`: elsewhere another user could answer in the daemon's name.
        Dir::trusted(above).map_err(|refusal| match refusal.is_missing() {
            true => io::Error::new(io::ErrorKind::NotFound, "the socket does not exist"),
            false => io::Error::other(refusal.to_string()),
        })?;
    }
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(
        format!("{method} {path} HTTP/1.1\r\nHost: flatwater\r\nAccept: application/openmetrics-text\r\n\r\n")
            .as_bytes(),
    )?;
    let mut held = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut held)?;
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(&held).map_err(io::Error::other)?;
    let (httparse::Status::Complete(body), Some(status)) = (parsed, response.code) else {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the answer is cut short"));
    };
    Ok((status, String::from_utf8_lossy(&held[body..]).into_owned()))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::{Answer, Answerer, Asked, CONNECTIONS_MAX, Form, JSON, Server, TEXT, ask};

    fn answerer() -> Arc<Answerer> {
        Arc::new(|asked| match asked {
            Asked::Metrics(form) => {
                let body = if form == Form::Protobuf { vec![b'p'; 32 << 20] } else { b"up 1\n".to_vec() };
                Answer { status: 200, kind: TEXT, body: body.into() }
            }
            Asked::Dump => Answer { status: 200, kind: JSON, body: (*b"{}").into() },
            Asked::Status | Asked::Now | Asked::Guard | Asked::Release(_) => {
                Answer { status: 409, kind: TEXT, body: [].into() }
            }
        })
    }

    fn talk(server: &Server, request: &str) -> String {
        let mut stream = TcpStream::connect(server.listening.expect("listens")).expect("connects");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        answer
    }

    fn on_loopback() -> Server {
        Server::start(None, Some("127.0.0.1:0".parse().expect("an address")), None, answerer()).expect("listens")
    }

    #[test]
    fn each_request_has_its_answer() {
        let server = on_loopback();
        for (request, status) in [
            ("GET /metrics HTTP/1.1\r\nHost: localhost:9177\r\n\r\n", "200"),
            ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"),
            ("GET /metrics?name=x HTTP/1.1\r\n\r\n", "200"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /dump HTTP/1.1\r\n\r\n", "403"),
            ("GET /guard HTTP/1.1\r\n\r\n", "403"),
            ("POST /guard/release/all HTTP/1.1\r\n\r\n", "403"),
            ("\u{1}\u{2}\r\n\r\n", "400"),
        ] {
            let answer = talk(&server, request);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
        }
        let endless = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(20_000));
        let mut stream = TcpStream::connect(server.listening.expect("listens")).expect("connects");
        let _ = stream.write_all(endless.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400"), "{}", String::from_utf8_lossy(&answer));
    }

    #[test]
    fn a_client_that_never_reads_does_not_keep_others_out_for_long() {
        let server = on_loopback();
        let address = server.listening.expect("listens");
        let accept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        let deaf: Vec<TcpStream> = (0..2 * CONNECTIONS_MAX)
            .map(|_| {
                let mut stream = TcpStream::connect(address).expect("connects");
                let asked = format!("GET /metrics HTTP/1.1\r\nAccept: {accept}\r\n\r\n");
                let _ = stream.write_all(asked.as_bytes());
                stream
            })
            .collect();
        let began = Instant::now();
        while !talk_or_refused(&server).starts_with("HTTP/1.1 200") {
            assert!(began.elapsed() < Duration::from_secs(20), "no request is served");
            std::thread::sleep(Duration::from_millis(200));
        }
        drop(deaf);
    }

    /// Any user can hold every connection of loopback; the owner's socket still answers.
    #[test]
    fn a_user_who_holds_loopback_does_not_keep_the_owner_out() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("run/watch.sock");
        let loopback = Some("127.0.0.1:0".parse().expect("an address"));
        let server = Server::start(Some(&path), loopback, None, answerer()).expect("listens");
        let address = server.listening.expect("listens");
        let silent: Vec<TcpStream> =
            (0..2 * CONNECTIONS_MAX).map(|_| TcpStream::connect(address).expect("connects")).collect();
        assert_eq!(ask(&path, "POST", "/dump").expect("answers"), (200, "{}".to_owned()));
        drop(silent);
    }

    fn talk_or_refused(server: &Server) -> String {
        let mut answer = Vec::new();
        let mut stream = TcpStream::connect(server.listening.expect("listens")).expect("connects");
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[test]
    fn the_socket_is_private_and_replaces_only_a_dead_socket() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("run/watch.sock");
        let server = Server::start(Some(&path), None, None, answerer()).expect("listens");
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(ask(&path, "POST", "/dump").expect("answers"), (200, "{}".to_owned()));
        let second = Server::start(Some(&path), None, None, answerer()).expect_err("one daemon is enough");
        assert!(second.to_string().contains("another flatwater watch"), "{second}");
        drop(server);
        assert!(!path.exists());
        let gone = ask(&place.path().join("nowhere/watch.sock"), "GET", "/status").expect_err("no daemon");
        assert_eq!(gone.kind(), std::io::ErrorKind::NotFound);
        // No request is sent to a directory in which other users could create a socket.
        let public = place.path().join("public");
        std::fs::create_dir(&public).expect("made");
        std::fs::set_permissions(&public, std::fs::Permissions::from_mode(0o1777)).expect("opened to all");
        let _theirs = std::os::unix::net::UnixListener::bind(public.join("watch.sock")).expect("bound");
        let refused = ask(&public.join("watch.sock"), "GET", "/status").expect_err("refused");
        assert!(refused.to_string().contains("public"), "{refused}");
        std::fs::write(&path, "a file").expect("written");
        assert!(Server::start(Some(&path), None, None, answerer()).is_err());
        assert_eq!(std::fs::read(&path).expect("there"), b"a file", "another file is left alone");
    }

    #[test]
    fn a_port_in_use_is_an_error_that_names_the_setting() {
        let server = on_loopback();
        let error = Server::start(None, server.listening, None, answerer()).expect_err("in use");
        assert!(error.to_string().contains("give another in metrics.listen"), "{error}");
    }
}
