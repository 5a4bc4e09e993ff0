//! What the daemon's loop and the threads of its connections share, and the answers that those threads give.

use std::path::PathBuf;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flatwater_host::clock::monotonic_ns;

use crate::http::{self, Answer, Answerer, Asked, Form};
use crate::metrics::Metrics;
use crate::now::Now;

const DUMP_PATIENCE: Duration = Duration::from_secs(20);

/// Why a trigger or a dump has no recording.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotRecorded {
    #[error("{} cannot be used", .0.display())]
    Store(PathBuf),
    #[error("less than {:.0} % of the disk is free", 100.0 * keep_free_share)]
    Full { keep_free_share: f64 },
    #[error("the disk cannot be written")]
    Unwritable,
    #[error(transparent)]
    Begin(Box<dyn std::error::Error + Send + Sync>),
    #[error("the daemon did not answer")]
    NoAnswer,
}

impl NotRecorded {
    /// The label of the metric that counts it.
    pub fn reason(&self) -> &'static str {
        match self {
            NotRecorded::Store(_) => "store",
            NotRecorded::Full { .. } | NotRecorded::Unwritable | NotRecorded::Begin(_) => "disk",
            NotRecorded::NoAnswer => "answer",
        }
    }
}

/// What the connections' threads and the loop share.
pub(crate) struct Shared {
    pub metrics: Metrics,
    pub status: serde_json::Value,
    /// What `top` sees; computed while somebody asks.
    pub now: Option<Now>,
    pub now_asked_ns: u64,
    pub dump: Option<SyncSender<Result<String, NotRecorded>>>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers what the connections ask for.
pub(crate) fn answerer(shared: &Arc<Mutex<Shared>>) -> Arc<Answerer> {
    let shared = shared.clone();
    Arc::new(move |asked| match asked {
        Asked::Metrics(Form::Protobuf) => match lock(&shared).metrics.protobuf() {
            Some(body) => Answer { status: 200, kind: http::PROTOBUF, body },
            None => {
                let body =
                    b"the metrics cannot be encoded as protobuf: ask for application/openmetrics-text\n".to_vec();
                Answer { status: 500, kind: http::TEXT, body }
            }
        },
        Asked::Metrics(Form::OpenMetrics) => {
            Answer { status: 200, kind: http::OPENMETRICS, body: lock(&shared).metrics.text().into_bytes() }
        }
        Asked::Metrics(Form::Plain) => {
            Answer { status: 200, kind: http::PLAIN, body: lock(&shared).metrics.plain().into_bytes() }
        }
        // Until the hooks are attached there is nothing to say.
        Asked::Status if lock(&shared).status.is_null() => {
            Answer { status: 503, kind: http::TEXT, body: b"flatwater watch is starting\n".to_vec() }
        }
        Asked::Status => Answer { status: 200, kind: http::JSON, body: lock(&shared).status.to_string().into_bytes() },
        Asked::Now => {
            let mut shared = lock(&shared);
            shared.now_asked_ns = monotonic_ns();
            match &shared.now {
                Some(now) => match serde_json::to_vec(now) {
                    Ok(body) => Answer { status: 200, kind: http::JSON, body },
                    Err(error) => Answer { status: 500, kind: http::TEXT, body: format!("{error}\n").into_bytes() },
                },
                // The next second has one.
                None => Answer { status: 503, kind: http::TEXT, body: b"ask again in a second\n".to_vec() },
            }
        }
        Asked::Dump => {
            let (asker, answer) = mpsc::sync_channel(1);
            if lock(&shared).dump.replace(asker).is_some() {
                return Answer { status: 409, kind: http::TEXT, body: b"another dump is being made\n".to_vec() };
            }
            let answered = answer.recv_timeout(DUMP_PATIENCE).unwrap_or(Err(NotRecorded::NoAnswer));
            match answered {
                Ok(path) => {
                    let body = serde_json::json!({ "recording": path }).to_string().into_bytes();
                    Answer { status: 200, kind: http::JSON, body }
                }
                Err(why) => Answer { status: 500, kind: http::TEXT, body: format!("{why}\n").into_bytes() },
            }
        }
    })
}
