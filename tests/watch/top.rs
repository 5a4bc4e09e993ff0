//! `flatwater top` on the screen of a terminal multiplexer.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Daemon, can_trace, stall, until};
use crate::common::loopdisk::LoopDisk;
use crate::common::{Scratch, alone, tool};
use needs::{Need, skip};

/// A separate tmux server, killed on drop.
struct Screen {
    socket: String,
}

impl Screen {
    fn start(socket: &std::path::Path, columns: u32, rows: u32, command: &str) -> Screen {
        let screen = Screen { socket: socket.display().to_string() };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        screen.tmux(&["-f", "/dev/null", "new-session", "-d", "-s", "top", "-x", &columns, "-y", &rows, command]);
        screen
    }

    fn tmux(&self, words: &[&str]) -> String {
        let mut all = vec!["-S", self.socket.as_str()];
        all.extend(words);
        tool("tmux", &all).unwrap_or_default()
    }

    fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-t", "top"])
    }

    fn press(&self, key: &str) {
        self.tmux(&["send-keys", "-t", "top", key]);
    }

    fn shows(&self, words: &[&str]) {
        let mut last = String::new();
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while std::time::Instant::now() < end {
            last = self.text();
            if words.iter().all(|word| last.contains(word)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        panic!("{words:?} never on the screen:\n{last}");
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

fn has_tmux(test: &str) -> bool {
    let has = tool("tmux", &["-V"]).is_ok();
    if !has {
        skip(Need::Tmux, test, "tmux is not installed");
    }
    has
}

#[test]
fn the_screen_shows_stalls_and_the_keys_work() {
    if !has_tmux("top on a screen") || !can_trace("top on a screen") {
        return;
    }
    let _alone = alone();
    let disk = LoopDisk::ext4("watch-top", 64).expect("a disk");
    disk.slow_writes(4 << 20).expect("limit");
    let place = Scratch::new("watch-top");
    let daemon = Daemon::start(place.path(), "after = \"1s\"\n---\n");
    let command = format!("{} top -c {}", env!("CARGO_BIN_EXE_flatwater"), daemon.config.display());
    let screen = Screen::start(&place.path().join("tmux"), 80, 24, &command);
    screen.shows(&["attached to", "CALLS", "MADE BY", "q"]);
    // Rows cover the last ten seconds, so more than one stall is needed.
    let mut loads = Vec::new();
    let mut keep_stalling = || {
        let file = format!("of={}", disk.path().join(format!("v{}", loads.len())).display());
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/zero", &file, "bs=64k", "count=32", "conv=fsync"]);
        loads.push(dd.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("dd starts"));
    };
    stall(&disk);
    keep_stalling();
    screen.press("p");
    screen.shows(&["PROGRAM", "dd", "fsync"]);
    // A call under way does not show its device yet, so freeze the screen after one has returned.
    screen.press("d");
    screen.shows(&["DEVICE", "loop"]);
    screen.press("f");
    screen.shows(&["FROZEN", "loop"]);
    screen.press("p");
    screen.shows(&["FROZEN", "dd"]);
    screen.press("d");
    screen.shows(&["DEVICE", "loop"]);
    // Any device may be at the top on a busy machine.
    screen.press("Enter");
    screen.shows(&["device = "]);
    screen.press("BSpace");
    screen.press("u");
    screen.shows(&["by cause"]);
    screen.press("?");
    screen.shows(&["keys", "Backspace: back"]);
    screen.press("?");
    screen.press("D");
    screen.shows(&["recording "]);
    until("dumped", Duration::from_secs(30), || !daemon.recordings().is_empty());
    screen.tmux(&["resize-window", "-t", "top", "-x", "40", "-y", "12"]);
    screen.shows(&["MADE BY"]);
    screen.tmux(&["resize-window", "-t", "top", "-x", "20", "-y", "5"]);
    screen.shows(&["at least"]);
    screen.press("q");
    until("left", Duration::from_secs(20), || screen.tmux(&["list-sessions"]).is_empty());
    for mut load in loads {
        let _ = load.wait();
    }
    daemon.stop();
}

#[test]
fn top_runs_without_a_daemon_but_not_without_a_terminal() {
    let output = Command::new(env!("CARGO_BIN_EXE_flatwater"))
        .args(["top", "--socket", "/nonexistent/watch.sock"])
        .stdin(Stdio::null())
        .output()
        .expect("runs");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("no flatwater watch answers"), "{message}");
    if !has_tmux("top alone") || !can_trace("top alone") {
        return;
    }
    let _alone = alone();
    let place = Scratch::new("watch-top-alone");
    let command = format!("{} top --alone", env!("CARGO_BIN_EXE_flatwater"));
    let screen = Screen::start(&place.path().join("tmux"), 80, 24, &command);
    screen.shows(&["alone", "calls over", "by sleeps"]);
    screen.press("D");
    screen.shows(&["only a running daemon"]);
    screen.press("q");
    until("left", Duration::from_secs(20), || screen.tmux(&["list-sessions"]).is_empty());
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatwater"));
    let output = command.args(["top", "--alone"]).stdin(Stdio::null()).output().expect("runs");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && message.contains("requires a terminal"), "{message}");
}
