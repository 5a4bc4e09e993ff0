//! State shared by the daemon's loop and the connection threads, and the answers to HTTP requests.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flatwater_guard::{EpisodeId, Order};
use flatwater_host::clock::monotonic_ns;

use crate::http::{self, Answer, Answerer, Asked, Form};
use crate::metrics::Metrics;
use crate::now::Now;

/// Orders of one second; further ones repeat these.
const ORDERS_MAX: usize = 64;
const DUMP_PATIENCE: Duration = Duration::from_secs(20);

/// Why a trigger or a dump made no recording.
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
    /// The value of the label `reason` in `captures_skipped`.
    pub fn reason(&self) -> &'static str {
        match self {
            NotRecorded::Store(_) => "store",
            NotRecorded::Full { .. } | NotRecorded::Unwritable | NotRecorded::Begin(_) => "disk",
            NotRecorded::NoAnswer => "answer",
        }
    }
}

/// State shared by the connection threads and the loop.
pub(crate) struct Shared {
    pub metrics: Metrics,
    pub status: serde_json::Value,
    /// The table for `top`; kept up to date only while someone requests it.
    pub now: Option<Now>,
    pub now_asked_ns: u64,
    pub dump: Option<SyncSender<Result<String, NotRecorded>>>,
    /// The guard's state as JSON; empty until its first second.
    pub guard: Arc<[u8]>,
    /// For the guard's next second.
    pub orders: Vec<Order>,
    /// The metrics of the current second, in each format requested so far.
    rendered: BTreeMap<Form, Arc<[u8]>>,
}

impl Shared {
    pub fn new(metrics: Metrics) -> Shared {
        let status = serde_json::Value::Null;
        Shared {
            metrics,
            status,
            now: None,
            now_asked_ns: 0,
            dump: None,
            guard: Arc::default(),
            orders: Vec::new(),
            rendered: BTreeMap::new(),
        }
    }

    /// Drops the encoded metrics; the next request encodes the new values.
    pub fn next_second(&mut self) {
        self.rendered.clear();
    }

    /// The metrics in this format, encoded at most once a second.
    fn rendered(&mut self, form: Form) -> Arc<[u8]> {
        let metrics = &self.metrics;
        let body = self.rendered.entry(form).or_insert_with(|| {
            let bytes = match form {
                Form::Protobuf => metrics.protobuf(),
                Form::OpenMetrics => metrics.text().into_bytes(),
                Form::Plain => metrics.plain().into_bytes(),
            };
            bytes.into()
        });
        Arc::clone(body)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The function that answers requests.
pub(crate) fn answerer(shared: &Arc<Mutex<Shared>>) -> Arc<Answerer> {
    let shared = shared.clone();
    Arc::new(move |asked| match asked {
        Asked::Metrics(form) => {
            let kind = match form {
                Form::Protobuf => http::PROTOBUF,
                Form::OpenMetrics => http::OPENMETRICS,
                Form::Plain => http::PLAIN,
            };
            Answer { status: 200, kind, body: lock(&shared).rendered(form) }
        }
        // The status is null until the hooks are attached.
        Asked::Status if lock(&shared).status.is_null() => {
            Answer { status: 503, kind: http::TEXT, body: (*b"flatwater watch is starting\n").into() }
        }
        Asked::Status => {
            Answer { status: 200, kind: http::JSON, body: lock(&shared).status.to_string().into_bytes().into() }
        }
        Asked::Now => {
            let mut shared = lock(&shared);
            shared.now_asked_ns = monotonic_ns();
            match &shared.now {
                Some(now) => match serde_json::to_vec(now) {
                    Ok(body) => Answer { status: 200, kind: http::JSON, body: body.into() },
                    Err(error) => {
                        Answer { status: 500, kind: http::TEXT, body: format!("{error}\n").into_bytes().into() }
                    }
                },
                // The loop fills in the table within a second.
                None => Answer { status: 503, kind: http::TEXT, body: (*b"ask again in a second\n").into() },
            }
        }
        Asked::Guard => {
            let body = Arc::clone(&lock(&shared).guard);
            match body.is_empty() {
                true => Answer { status: 503, kind: http::TEXT, body: (*b"flatwater watch is starting\n").into() },
                false => Answer { status: 200, kind: http::JSON, body },
            }
        }
        Asked::Release(id) => {
            let mut shared = lock(&shared);
            if shared.orders.len() < ORDERS_MAX {
                shared.orders.push(id.map_or(Order::ReleaseAll, |id| Order::Release(EpisodeId(id))));
            }
            Answer { status: 200, kind: http::TEXT, body: (*b"released within a second\n").into() }
        }
        Asked::Dump => {
            let (asker, answer) = mpsc::sync_channel(1);
            {
                let mut shared = lock(&shared);
                // The first dump is still in progress: refuse the second.
                if shared.dump.is_some() {
                    return Answer { status: 409, kind: http::TEXT, body: (*b"another dump is in progress\n").into() };
                }
                shared.dump = Some(asker);
            }
            let answered = answer.recv_timeout(DUMP_PATIENCE).unwrap_or(Err(NotRecorded::NoAnswer));
            match answered {
                Ok(path) => {
                    let body = serde_json::json!({ "recording": path }).to_string().into_bytes();
                    Answer { status: 200, kind: http::JSON, body: body.into() }
                }
                Err(why) => Answer { status: 500, kind: http::TEXT, body: format!("{why}\n").into_bytes().into() },
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::{Shared, answerer, lock};
    use crate::http::{Asked, Form};
    use crate::metrics::Metrics;

    /// S1: the answers of one second are one encoding of the metrics.
    #[test]
    fn s1_metrics_are_encoded_at_most_once_a_second() {
        let shared = Arc::new(Mutex::new(Shared::new(Metrics::new(10))));
        let answerer = answerer(&shared);
        for form in [Form::Protobuf, Form::OpenMetrics, Form::Plain] {
            let first = answerer(Asked::Metrics(form)).body;
            assert!(Arc::ptr_eq(&first, &answerer(Asked::Metrics(form)).body), "{form:?}");
            lock(&shared).metrics.skipped("disk");
            lock(&shared).next_second();
            let next = answerer(Asked::Metrics(form)).body;
            assert!(next != first && String::from_utf8_lossy(&next).contains("disk"), "{form:?}");
        }
    }

    /// S11: the second request is refused, and the first gets its answer.
    #[test]
    fn s11_a_second_dump_does_not_replace_the_first() {
        let shared = Arc::new(Mutex::new(Shared::new(Metrics::new(10))));
        let answerer = answerer(&shared);
        let first = std::thread::spawn({
            let answerer = Arc::clone(&answerer);
            move || answerer(Asked::Dump)
        });
        while lock(&shared).dump.is_none() {
            std::thread::yield_now();
        }
        assert_eq!(answerer(Asked::Dump).status, 409);
        let asker = lock(&shared).dump.take().expect("the first request waits");
        asker.send(Ok("/var/one".to_owned())).expect("the thread still waits");
        let answer = first.join().expect("answered");
        assert_eq!((answer.status, &*answer.body), (200, &b"{\"recording\":\"/var/one\"}"[..]));
    }
}
