//! Push, compact, findings and ask against an S3 server over a network that fails: nothing is lost or doubled, and the
//! answers are those of a directory.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use flatwater_fleet::compact::{self, compact};
use needs::Need;

use crate::{made, options};

pub(crate) const PLACE: &str = "s3://fleet/below/this";

/// A moto server on loopback.
pub(crate) struct Server {
    child: Child,
    pub(crate) at: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts the server; `None`, with the reason printed, if `tools/setup.sh test` could not install it.
    pub(crate) fn start(test: &str) -> Option<Server> {
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/s3");
        if !place.join("moto/server.py").exists() {
            needs::skip(Need::S3, test, "tools/s3.sh has not put it there");
            return None;
        }
        // The port is free now. If another process takes it, the server ends, and another port is tried.
        for _ in 0..5 {
            let at = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr()).expect("a port");
            let mut command = Command::new("python3");
            command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &at.port().to_string()]);
            command.env("PYTHONPATH", &place).stdout(Stdio::null()).stderr(Stdio::null());
            let mut server = Server { child: command.spawn().expect("python3 starts"), at };
            while server.child.try_wait().expect("asked").is_none() {
                if let Ok(answer) = server.request("PUT /fleet") {
                    assert!(answer.starts_with("HTTP/1.1 200"), "no bucket: {answer}");
                    return Some(server);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        panic!("moto ends as soon as it starts: try `PYTHONPATH=target/s3 python3 -m moto.server`");
    }

    fn request(&self, what: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.at)?;
        write!(stream, "{what} HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", self.at)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

/// A proxy on which every third connection fails: refused with 503, cut before the answer, or cut within it.
struct Way {
    at: SocketAddr,
    failed: Arc<AtomicUsize>,
}

fn way_to(server: SocketAddr) -> Way {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let way = Way { at: listener.local_addr().expect("its address"), failed: Arc::default() };
    let failed = Arc::clone(&way.failed);
    // Ends with the test's process.
    std::thread::spawn(move || {
        for (number, client) in listener.incoming().flatten().enumerate() {
            let failed = Arc::clone(&failed);
            std::thread::spawn(move || {
                let limit = match number % 9 {
                    2 => {
                        failed.fetch_add(1, Ordering::Relaxed);
                        return refuse(client);
                    }
                    5 => Some(0),
                    8 => Some(200 + 977 * number % 9_000),
                    _ => None,
                };
                failed.fetch_add(usize::from(limit.is_some()), Ordering::Relaxed);
                let Ok(server) = TcpStream::connect(server) else { return };
                tunnel(client, server, limit);
            });
        }
    });
    way
}

fn refuse(mut client: TcpStream) {
    let _ = client.read(&mut [0; 4096]);
    let _ = client.write_all(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let _ = client.shutdown(Shutdown::Both);
}

/// Copies both ways; of the answer at most `limit` bytes. At that point the request has reached the server.
fn tunnel(client: TcpStream, server: TcpStream, limit: Option<usize>) {
    let (Ok(mut from), Ok(mut to)) = (client.try_clone(), server.try_clone()) else { return };
    let up = std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let (mut server, mut client) = (server, client);
    let (mut left, mut buffer) = (limit.unwrap_or(usize::MAX), [0; 8192]);
    while let Ok(got) = server.read(&mut buffer) {
        let sent = got.min(left);
        if got == 0 || client.write_all(&buffer[..sent]).is_err() || sent < got || sent == left {
            break;
        }
        left -= sent;
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
    let _ = up.join();
}

/// The server's address in the variables that the clouds' own tools read.
pub(crate) fn environment(at: SocketAddr) -> Vec<(String, String)> {
    let endpoint = format!("http://{at}");
    let all = [
        ("AWS_ENDPOINT", endpoint.as_str()),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", "x"),
        ("AWS_SECRET_ACCESS_KEY", "y"),
        ("AWS_REGION", "us-east-1"),
    ];
    all.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

fn run(at: SocketAddr, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatwater-fleet"));
    command.args(arguments).envs(environment(at)).output().expect("flatwater-fleet starts")
}

/// Repeats the command until it succeeds; a failure must say what failed.
pub(crate) fn run_until_done(at: SocketAddr, arguments: &[&str]) -> String {
    let began = Instant::now();
    loop {
        let output = run(at, arguments);
        if output.status.success() {
            return String::from_utf8(output.stdout).expect("text");
        }
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.starts_with("flatwater-fleet: ") && !message.contains("panicked"), "{arguments:?}: {message}");
        assert!(began.elapsed() < Duration::from_secs(300), "{arguments:?} does not end: {message}");
    }
}

/// The inputs of a fleet as files of a host before its push.
fn summaries_of(fleet: &Path, into: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(fleet).expect("listed").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(summaries_of(&path, into));
        } else if path.extension().is_some_and(|end| end == "parquet") {
            let name = entry.file_name().to_string_lossy().replace(".parquet", ".summary.parquet");
            std::fs::copy(&path, into.join(&name)).expect("copied");
            files.push(into.join(name));
        }
    }
    files
}

/// A copy of the directory without the list of pushed objects.
fn once_more(host: &Path) -> &Path {
    std::fs::remove_file(host.join(".flatwater-pushed")).expect("removed");
    host
}

#[tokio::test(flavor = "multi_thread")]
async fn push_compact_and_ask_over_s3_with_failures_answer_as_a_directory_does() {
    let Some(server) = Server::start("push_compact_and_ask_over_s3_with_failures_answer_as_a_directory_does") else {
        return;
    };
    let (folder, host) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let (fleet, truth) = made(folder.path(), &options(5, 3, false)).await;
    let summaries = summaries_of(&folder.path().join("v=1/in"), host.path());
    compact(&fleet, &compact::Options::default()).await.expect("compacted");
    let way = way_to(server.at);
    run_until_done(way.at, &["push", PLACE, &host.path().display().to_string()]);
    // As if the host had lost its list: the same objects again.
    let again = run_until_done(way.at, &["push", PLACE, &once_more(host.path()).display().to_string()]);
    assert!(again.contains(&format!("\"there\": {}", summaries.len())), "{again}");
    run_until_done(way.at, &["compact", PLACE]);
    let known = run_until_done(way.at, &["compact", PLACE]);
    assert!(known.contains("\"summaries\": 0"), "{known}");
    let directory = folder.path().display().to_string();
    let range = ["--from", "2026-11-20", "--to", "2026-11-21"];
    let found =
        |place: &str| run_until_done(way.at, &[&["findings", place, "--format", "json"][..], &range[..]].concat());
    assert_eq!(found(PLACE), found(&directory));
    // As if the same were pushed again after compaction: nothing is added.
    run_until_done(way.at, &["push", PLACE, &once_more(host.path()).display().to_string()]);
    let known = run_until_done(way.at, &["compact", PLACE]);
    assert!(known.contains("\"rows\": 0"), "{known}");
    assert_eq!(found(PLACE), found(&directory));
    if cfg!(feature = "ask") {
        let rows = |place: &str, question: &[&str]| {
            let arguments = [&[question[0], place][..], &question[1..], &range[..], &["--format", "csv"][..]].concat();
            run_until_done(way.at, &arguments)
        };
        let count = ["sql", "SELECT count(*) AS rows, count(DISTINCT host) AS hosts FROM summary"];
        assert_eq!(rows(PLACE, &count), format!("rows,hosts\n{},5\n", truth.rows));
        for question in ["causes", "coverage", "settings"] {
            assert_eq!(rows(PLACE, &["ask", question]), rows(&directory, &["ask", question]), "{question}");
        }
    }
    assert!(way.failed.load(Ordering::Relaxed) > 20, "{} failures", way.failed.load(Ordering::Relaxed));
}
