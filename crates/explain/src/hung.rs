//! Devices with requests that had not completed when the recording ended.

use std::collections::BTreeMap;

use super::Evidence;
use super::facts::Facts;
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::units::Nanos;
use flatwater_recording::{Request, RequestOp};

/// A working device completes something within this time, however long its queue is.
const HUNG_NS_MIN: u64 = 1_000_000_000;

/// The outstanding requests of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hung {
    pub oldest_ns: u64,
    text: String,
}

impl Hung {
    #[must_use]
    pub fn evidence(&self) -> Evidence {
        Evidence::new(self.text.clone(), self.oldest_ns as f64, "ns")
    }
}

/// The devices that completed nothing for at least a second after their driver had received requests, longest wait
/// first. A device that completes other requests in that time is slow or has a long queue; it does not hang.
#[must_use]
pub fn devices(facts: &Facts<'_>) -> Vec<Hung> {
    let mut of_device: BTreeMap<&str, Vec<(u64, &Request)>> = BTreeMap::new();
    for request in facts.recording.requests.iter().filter(|request| request.still_under_way == Some(true)) {
        // A request that no driver has received waits behind others, or for a frozen queue.
        let Some(issue_ns) = request.issue_ns else { continue };
        let ns = request.complete_ns.saturating_sub(issue_ns);
        if ns >= HUNG_NS_MIN {
            of_device.entry(&request.device).or_default().push((ns, request));
        }
    }
    of_device.retain(|device, requests| {
        let since_ns = requests.iter().filter_map(|(_, request)| request.issue_ns).min().unwrap_or(u64::MAX);
        !answers(facts, device, since_ns.saturating_add(HUNG_NS_MIN / 2))
    });
    let mut found: Vec<Hung> = of_device.iter().filter_map(|(device, requests)| of(device, requests)).collect();
    found.sort_short_by_key(|hung| std::cmp::Reverse(hung.oldest_ns));
    found
}

/// Whether the device completed any requests in an interval that began after this instant.
fn answers(facts: &Facts<'_>, device: &str, after_ns: u64) -> bool {
    let owners = &facts.recording.queue_owners;
    owners.iter().any(|row| row.device == device && row.requests > 0 && row.start_ns >= after_ns)
}

fn of(device: &str, requests: &[(u64, &Request)]) -> Option<Hung> {
    let (oldest_ns, oldest) = requests.iter().max_by_key(|(ns, _)| *ns)?;
    let what = match oldest.op {
        RequestOp::Read => "a read",
        RequestOp::Write => "a write",
        RequestOp::Flush => "a write-cache flush",
        RequestOp::Discard => "a discard",
        _ => "a request",
    };
    let many = if requests.len() == 1 { "a request" } else { &format!("{} requests", requests.len()) };
    let text = format!(
        "{device} had not completed {many} when the recording ended: the oldest, {what} that {} submitted, was given \
         to its driver {} before",
        oldest.submitter.name,
        Nanos(*oldest_ns)
    );
    Some(Hung { oldest_ns: *oldest_ns, text })
}

#[cfg(test)]
mod tests {
    use flatwater_recording::{OpKind, QueueOwner, Request, RequestOp, Task};

    use crate::Finding;
    use crate::testing::{RecordingBuilder, START_NS, evidence_text};

    const S: u64 = 1_000_000_000;

    /// A write that has been at sda for 6 s when the recording ends; `other_s`: the second in which sda completed
    /// other requests.
    fn found(other_s: Option<u64>) -> Option<Finding> {
        let builder =
            RecordingBuilder::new().slow(OpKind::Fsync, &[(flatwater_recording::Cause::JournalCommit, 5_000.0)]);
        let builder = builder.edit(|recording| {
            recording.calls[0].still_under_way = true;
            recording.requests.push(Request {
                device: "sda".into(),
                op: RequestOp::Write,
                insert_ns: START_NS + S,
                issue_ns: Some(START_NS + 2 * S),
                complete_ns: START_NS + 8 * S,
                submitter: Task::new(9, 9, "jbd2/sda1-8"),
                still_under_way: Some(true),
                ..Request::default()
            });
            recording.queue_owners.extend(other_s.map(|at| QueueOwner {
                start_ns: START_NS + at * S,
                width_ns: S,
                device: "sda".into(),
                requests: 40,
                ..QueueOwner::default()
            }));
        });
        builder.found(&crate::cause::device_slow::ENTRY)
    }

    #[test]
    fn a_device_hangs_if_it_completes_nothing() {
        let finding = found(None).expect("a finding");
        assert!(
            evidence_text(&finding).contains("a write that jbd2/sda1-8 submitted, was given to its driver 6 s before"),
            "{finding:?}"
        );
        assert!(found(Some(2)).is_some(), "what it completed just then had been given to it before");
        assert!(found(Some(6)).is_none(), "it is slow, or has much to do");
    }
}
