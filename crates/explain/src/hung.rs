//! Devices that had not completed what they were given when the recording ended.

use std::collections::BTreeMap;

use super::Evidence;
use super::facts::Facts;
use flatwater_recording::units::Nanos;
use flatwater_recording::{Request, RequestOp};

/// A device that works answers within it, whatever its queue.
const HUNG_NS_MIN: u64 = 1_000_000_000;

/// What a device has not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hung {
    pub requests: usize,
    pub oldest_ns: u64,
    text: String,
}

impl Hung {
    #[must_use]
    pub fn evidence(&self) -> Evidence {
        Evidence::new(self.text.clone(), self.oldest_ns as f64, "ns")
    }
}

/// Of each device that its driver has given requests and that has not completed them for long, the one that has waited longest
/// first.
#[must_use]
pub fn devices(facts: &Facts<'_>) -> Vec<Hung> {
    let mut of_device: BTreeMap<&str, Vec<(u64, &Request)>> = BTreeMap::new();
    for request in facts.recording.requests.iter().filter(|request| request.still_under_way == Some(true)) {
        // A request that no driver has got waits for those before it, or for the queue to be thawed.
        let Some(issue_ns) = request.issue_ns else { continue };
        let ns = request.complete_ns.saturating_sub(issue_ns);
        if ns >= HUNG_NS_MIN {
            of_device.entry(&request.device).or_default().push((ns, request));
        }
    }
    let mut found: Vec<Hung> = of_device.iter().filter_map(|(device, requests)| of(device, requests)).collect();
    found.sort_by_key(|hung| std::cmp::Reverse(hung.oldest_ns));
    found
}

fn of(device: &str, requests: &[(u64, &Request)]) -> Option<Hung> {
    let (oldest_ns, oldest) = requests.iter().max_by_key(|(ns, _)| *ns)?;
    let what = match oldest.op {
        RequestOp::Read => "a read",
        RequestOp::Write => "a write",
        RequestOp::Flush => "a flush of its write cache",
        RequestOp::Discard => "a discard",
        _ => "a request",
    };
    let many = if requests.len() == 1 { "a request" } else { &format!("{} requests", requests.len()) };
    let text = format!(
        "{device} had not completed {many} when the recording ended: the oldest, {what} that {} submitted, was given to \
         its driver {} before",
        oldest.submitter.name,
        Nanos(*oldest_ns)
    );
    Some(Hung { requests: requests.len(), oldest_ns: *oldest_ns, text })
}
