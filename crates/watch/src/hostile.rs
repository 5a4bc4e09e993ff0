//! Attacks by other users of the machine: connections, names of control groups and programs, and files planted where
//! the daemon looks.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use needs::{UNPRIVILEGED_ID, as_unprivileged};

use crate::config::Config;
use crate::http::{Answer, Answerer, Asked, CONNECTIONS_MAX, Server, TEXT, ask};

fn answerer() -> Arc<Answerer> {
    Arc::new(|asked| match asked {
        Asked::Status => panic!("a fault of ours"),
        _ => Answer { status: 200, kind: TEXT, body: (*b"up 1\n").into() },
    })
}

fn server(socket: Option<&Path>) -> Server {
    Server::start(socket, Some("127.0.0.1:0".parse().expect("an address")), None, answerer()).expect("listens")
}

fn talk(server: &Server, request: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    let Ok(mut stream) = TcpStream::connect(server.listening.expect("listens")) else { return answer };
    let _ = stream.write_all(request);
    let _ = stream.read_to_end(&mut answer);
    answer
}

fn is_served(server: &Server) -> bool {
    talk(server, b"GET /metrics HTTP/1.1\r\n\r\n").starts_with(b"HTTP/1.1 200")
}

fn until_served(server: &Server) {
    let began = Instant::now();
    while !is_served(server) {
        assert!(began.elapsed() < Duration::from_secs(60), "no request is served any more");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn answering_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc").flatten();
    tasks
        .filter(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name == "fw-answer\n"))
        .count()
}

#[test]
fn ten_thousand_connections_of_one_user_leave_eight_threads_and_an_answer_for_others() {
    let server = server(None);
    let address = server.listening.expect("listens");
    let most = as_unprivileged(|| {
        let mut most = 0;
        let mut held = Vec::new();
        for number in 0..10_000 {
            // Up to 200 of them stay open; every third connection sends bytes that never end a line.
            let Ok(mut stream) = TcpStream::connect(address) else { continue };
            if number % 3 == 0 {
                let _ = stream.write_all(&[0xff; 512]);
            }
            held.push(stream);
            if held.len() > 200 {
                held.drain(..100);
                most = most.max(answering_threads());
            }
        }
        most
    });
    // Other tests of this process have answering threads of the same name.
    assert!((1..=8 * CONNECTIONS_MAX).contains(&most), "{most} threads");
    until_served(&server);
}

/// S4: a newcomer replaces a silent connection, although each of them has five seconds.
#[test]
fn s4_silent_connections_keep_no_one_out() {
    let server = server(None);
    let address = server.listening.expect("listens");
    let silent = as_unprivileged(|| {
        (0..3 * CONNECTIONS_MAX).filter_map(|_| TcpStream::connect(address).ok()).collect::<Vec<TcpStream>>()
    });
    assert_eq!(silent.len(), 3 * CONNECTIONS_MAX);
    assert!(is_served(&server), "another user is answered at once");
    // The user's own incomplete requests do not keep the user out either.
    let mut half: Vec<TcpStream> =
        (0..CONNECTIONS_MAX).map(|_| TcpStream::connect(address).expect("connects")).collect();
    half.iter_mut().for_each(|stream| _ = stream.write_all(b"GET /metr"));
    assert!(is_served(&server), "a complete request takes precedence over silent connections");
    drop((silent, half));
}

#[test]
fn s1_a_loop_of_requests_is_limited_and_others_are_always_answered() {
    let server = server(None);
    let began = Instant::now();
    let answered = as_unprivileged(|| {
        // The daemon refuses this many in less than a second.
        (0..1_000).filter(|_| is_served(&server)).count() as u64
    });
    let most = 20 + 5 * (began.elapsed().as_secs() + 1);
    assert!((1..=most).contains(&answered), "{answered} answers, at most {most}");
    assert!(is_served(&server), "another user is answered at once");
    assert!(server.answering_ns() > 0, "the cost of answers is counted separately");
}

#[test]
fn requests_that_are_rubbish_or_never_end_are_refused() {
    let server = server(None);
    let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "X-Header: y\r\n".repeat(1_000));
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(1 << 20));
    let rubbish: Vec<u8> = (0..4096_u32).map(|at| at.wrapping_mul(2_654_435_761) as u8).collect();
    for request in [many.as_bytes(), long.as_bytes(), &rubbish, b"\r\n\r\n", b"GET\0/metrics HTTP/1.1\r\n\r\n"] {
        let answer = talk(&server, request);
        // The client sees a reset if the server left bytes unread.
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&answer));
    }
    until_served(&server);
}

/// Otherwise eight such faults would end all answers for good.
#[test]
fn an_answer_that_panics_frees_its_place() {
    let server = server(None);
    for _ in 0..4 * CONNECTIONS_MAX {
        let _ = talk(&server, b"GET /status HTTP/1.1\r\n\r\n");
    }
    until_served(&server);
}

#[test]
fn other_users_cannot_open_or_replace_the_owners_socket() {
    let place = tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o755)).tempdir_in("/var/tmp");
    let place = place.expect("a directory");
    let path = place.path().join("run/watch.sock");
    let _server = server(Some(&path));
    as_unprivileged(|| {
        let refused = UnixStream::connect(&path).expect_err("not his");
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
        assert!(
            std::fs::remove_file(&path).is_err() && std::fs::rename(path.parent().expect("run"), "/var/tmp/x").is_err()
        );
    });
    assert_eq!(ask(&path, "GET", "/metrics").expect("answers").0, 200);
}

/// The configuration decides where root writes, and which recordings root removes.
#[test]
fn a_configuration_that_others_can_write_is_refused() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("watch.toml");
    std::fs::write(&path, "threshold = \"2ms\"\n").expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("chmod");
    Config::read(&path).expect("ours");
    for mode in [0o664, 0o646] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("chmod");
        let refused = Config::read(&path).expect_err("others can write it");
        assert!(refused.to_string().contains("chmod go-w"), "{refused}");
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("chmod");
    chown(&path, Some(UNPRIVILEGED_ID), None).expect("given away");
    let refused = Config::read(&path).expect_err("another's");
    assert!(refused.to_string().contains("belongs to uid 65534"), "{refused}");
    // A symbolic link is the administrator's choice; a FIFO is refused.
    std::fs::remove_file(&path).expect("removed");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a pipe");
    assert!(Config::read(&path).expect_err("a pipe").to_string().contains("named pipe"));
}
