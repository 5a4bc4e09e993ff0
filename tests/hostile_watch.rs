//! Attacks of an unprivileged user (uid 65534) on a daemon that listens on loopback: endless requests (S1), and silent
//! connections (S4). Needs root.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::exploit::{Yard, flatwater, text};
use needs::as_unprivileged;

/// The daemon checks its cost every 10 s and sheds after three checks; this is a little longer.
const ATTACK: Duration = Duration::from_secs(33);

/// A daemon that listens on a loopback port, killed on drop.
struct Daemon {
    child: Child,
    address: SocketAddr,
    yard: Yard,
}

impl Daemon {
    fn start() -> Daemon {
        let yard = Yard::new();
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("an address");
        drop(free);
        let (store, socket) = (yard.path().join("store"), yard.path().join("run/watch.sock"));
        // A test build is slow: a fifth of a core is more than it needs, and less than this attack once cost.
        let config = format!(
            "[budget]\ncpu_share = 0.2\n[store]\ndirectory = \"{}\"\nkeep_free = 0.0\n[metrics]\nsocket = \"{}\"\nlisten = \"{address}\"\n",
            store.display(),
            socket.display()
        );
        std::fs::write(yard.path().join("watch.toml"), config).expect("write");
        let log = std::fs::File::create(yard.path().join("log")).expect("a log");
        let mut command = flatwater();
        command.arg("watch").arg("-c").arg(yard.path().join("watch.toml")).stdout(Stdio::null()).stderr(log);
        let daemon = Daemon { child: command.spawn().expect("it starts"), address, yard };
        let until = Instant::now() + Duration::from_secs(60);
        while daemon.status().is_none() {
            assert!(Instant::now() < until, "no answer within 60 s: {}", daemon.log());
            std::thread::sleep(Duration::from_millis(100));
        }
        daemon
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.yard.path().join("log")).unwrap_or_default()
    }

    /// Asks through the daemon's socket, which other users cannot reach.
    fn status(&self) -> Option<serde_json::Value> {
        let mut command = flatwater();
        command.arg("watch").arg("-c").arg(self.yard.path().join("watch.toml")).arg("status");
        let asked = command.output().expect("it runs");
        asked.status.success().then(|| serde_json::from_str(&text(&asked.stdout)).expect("JSON"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_served(address: SocketAddr) -> bool {
    let mut answer = Vec::new();
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let _ = stream.read_to_end(&mut answer);
    answer.starts_with(b"HTTP/1.1 200")
}

/// S1: fails on 9232d20c, which shed every hook within 150 s of this attack.
#[test]
fn s1_a_loop_over_the_metrics_sheds_no_hook() {
    let daemon = Daemon::start();
    let (over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                as_unprivileged(|| {
                    while !over.load(Ordering::Relaxed) {
                        answered.fetch_add(u64::from(is_served(daemon.address)), Ordering::Relaxed);
                    }
                });
            });
        }
        let began = Instant::now();
        let mut refused = 0;
        while began.elapsed() < ATTACK {
            refused += u32::from(!is_served(daemon.address));
            std::thread::sleep(Duration::from_secs(3));
        }
        over.store(true, Ordering::Relaxed);
        assert_eq!(refused, 0, "every scrape of another client is answered");
    });
    let status = daemon.status().expect("it answers");
    assert_eq!(status["shed"], "nothing", "{status}\n{}", daemon.log());
    assert!(!daemon.log().contains("shed now"), "{}", daemon.log());
    let (answered, most) = (answered.load(Ordering::Relaxed), 20 + 5 * (ATTACK.as_secs() + 10));
    assert!(answered > 0 && answered <= most, "{answered} answers, at most {most}");
}

/// S4: fails on 9232d20c, where 24 such connections blocked every scraper.
#[test]
fn s4_silent_connections_block_no_scraper() {
    let daemon = Daemon::start();
    let silent: Vec<TcpStream> =
        as_unprivileged(|| (0..24).map(|_| TcpStream::connect(daemon.address).expect("connects")).collect());
    for _ in 0..10 {
        assert!(is_served(daemon.address));
    }
    drop(silent);
}
