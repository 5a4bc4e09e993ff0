//! The sources of the table: a running daemon, or hooks of this process.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};

use flatwater_recording::Gap;
use flatwater_watch::config::Config;
use flatwater_watch::http;
use flatwater_watch::lookback::LookBack;
use flatwater_watch::now::{self, Now};
use flatwater_watch::sight::Sight;

/// Why the table or the recording is missing.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("no flatwater watch answers at {}: {error}", socket.display())]
    NoDaemon { socket: PathBuf, error: io::Error },
    #[error("the daemon at {} answers: {answer}", socket.display())]
    Older { socket: PathBuf, answer: String },
    #[error("waiting for the daemon's next update")]
    NotYet,
    #[error("the daemon answers {status}: {answer}")]
    Refused { status: u16, answer: String },
    #[error("the daemon's answer cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("the daemon no longer answers: {0}")]
    Gone(#[from] io::Error),
    #[error("the daemon named no recording")]
    NoRecording,
    #[error("no hook is attached")]
    NoHook,
    #[error("{what}: {why}")]
    HookRefused { what: String, why: String },
    #[error("only a running daemon keeps the last minute: start `flatwater watch`, or use `flatwater record`")]
    HoldsNothing,
}

/// The table, or why there is none.
pub type Look = Result<Now, SourceError>;

/// A source of the table.
pub trait Source {
    /// Shown at the top of the screen.
    fn name(&self) -> String;
    fn now(&mut self) -> Look;
    /// Requests a recording of the last minute; `dumped` returns the result.
    fn dump(&mut self);
    /// The path of the requested recording, or why there is none; returned once.
    fn dumped(&mut self) -> Option<Result<String, SourceError>>;
    /// Called several times a second.
    fn idle(&mut self) {}
}

/// A daemon, over its socket.
#[derive(Debug)]
pub struct Attached {
    socket: PathBuf,
    /// The pending dump. It may take seconds, in which the screen must still be updated.
    asked: Option<Receiver<Result<String, SourceError>>>,
}

impl Attached {
    /// Connects to a daemon. Fails if no daemon answers, or one that is too old to serve `/now`.
    pub fn to(socket: &Path) -> Result<Attached, SourceError> {
        let at = socket.to_owned();
        match http::ask(socket, "GET", "/now") {
            // 503: the first request; the daemon has the table within a second.
            Ok((200 | 503, _)) => Ok(Attached { socket: at, asked: None }),
            Ok((_, body)) => Err(SourceError::Older { socket: at, answer: body.trim().to_owned() }),
            Err(error) => Err(SourceError::NoDaemon { socket: at, error }),
        }
    }
}

impl Source for Attached {
    fn name(&self) -> String {
        format!("attached to {}", self.socket.display())
    }

    fn now(&mut self) -> Look {
        match http::ask(&self.socket, "GET", "/now")? {
            (200, body) => Ok(serde_json::from_str(&body)?),
            (503, _) => Err(SourceError::NotYet),
            (status, body) => Err(SourceError::Refused { status, answer: body.trim().to_owned() }),
        }
    }

    fn dump(&mut self) {
        if self.asked.is_some() {
            return;
        }
        let (sender, receiver) = mpsc::sync_channel(1);
        let socket = self.socket.clone();
        let asked = std::thread::Builder::new().name("fw-dump".to_owned()).spawn(move || {
            // The receiver is gone if the user has quit.
            let _ = sender.send(dump(&socket));
        });
        self.asked = asked.is_ok().then_some(receiver);
    }

    fn dumped(&mut self) -> Option<Result<String, SourceError>> {
        let answer = self.asked.as_ref()?.try_recv().ok()?;
        self.asked = None;
        Some(answer)
    }
}

fn dump(socket: &Path) -> Result<String, SourceError> {
    let (status, body) = http::ask(socket, "POST", "/dump")?;
    if status != 200 {
        return Err(SourceError::Refused { status, answer: body.trim().to_owned() });
    }
    let answer: serde_json::Value = serde_json::from_str(&body)?;
    answer["recording"].as_str().map(str::to_owned).ok_or(SourceError::NoRecording)
}

/// Hooks of this process, attached while the screen is shown.
#[derive(Debug)]
pub struct Alone {
    sight: Sight,
    look_back: LookBack,
    threshold_ns: u64,
    asked: bool,
}

/// Limit for calls and their wait chains; the table covers a few seconds.
const LOOK_BACK_BYTES_MAX: u64 = 16 << 20;

impl Alone {
    /// Attaches the hooks that this kernel allows.
    #[must_use]
    pub fn start(config: &Config) -> Alone {
        let look_back = LookBack::new(now::SPAN_NS, LOOK_BACK_BYTES_MAX);
        Alone { sight: Sight::open(config), look_back, threshold_ns: config.threshold_ns, asked: false }
    }
}

impl Source for Alone {
    fn name(&self) -> String {
        "alone".to_owned()
    }

    fn now(&mut self) -> Look {
        let second = self.sight.take(false);
        let now_ns = second.end_ns;
        if !self.sight.is_attached() {
            let refused = |gap: &Gap| SourceError::HookRefused { what: gap.what.clone(), why: gap.why.clone() };
            return Err(second.gaps.first().map_or(SourceError::NoHook, refused));
        }
        self.look_back.push(second.into());
        let (rows, rows_left_out) = now::rows(self.look_back.seconds(), now_ns);
        let (calls_seen, exact) = (self.sight.is_attached(), self.sight.is_exact());
        let (threshold_ns, span_ns) = (self.threshold_ns, now::SPAN_NS);
        Ok(Now { version: 1, span_ns, threshold_ns, calls_seen, exact, rows, rows_left_out, ..Now::default() })
    }

    fn dump(&mut self) {
        self.asked = true;
    }

    fn dumped(&mut self) -> Option<Result<String, SourceError>> {
        std::mem::take(&mut self.asked).then_some(Err(SourceError::HoldsNothing))
    }

    fn idle(&mut self) {
        self.sight.pump();
    }
}
