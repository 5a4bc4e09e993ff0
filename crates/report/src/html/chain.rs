//! The wait chain of a slow call for the page: for each link who slept, who ended the sleep, and what the device did.

use crate::numbers::{size, time};
use flatwater_explain::aggressor::Links;
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{Call, QueueAhead, Request, Task, Wait, WakerKind};

/// Links of a call that the page draws. A long call of many short sleeps has thousands.
const LINKS_MAX: usize = 24;
/// Owners that a link names for the requests queued before its own.
const AHEAD_MAX: usize = 3;

/// One link: its depth, the offset from the call's start (negative before it), its length, its kind (see `LinkRow`),
/// and its text.
pub struct Link {
    pub depth: u32,
    pub offset_ns: i64,
    pub ns: u64,
    pub kind: u8,
    pub text: String,
}

/// The longest links, each before those behind it in the chain.
pub fn of(links: &Links<'_>, call: &Call) -> Vec<Link> {
    let mut sleeps: Vec<&Wait> = links.sleeps(call).collect();
    sleeps.sort_short_by_key(|wait| (wait.start_ns, wait.depth));
    let mut ordered = Vec::new();
    for sleep in sleeps {
        behind(links, call, sleep, &mut ordered);
    }
    if ordered.len() > LINKS_MAX {
        let mut longest: Vec<u64> = ordered.iter().map(|wait| wait.duration_ns).collect();
        longest.sort_unstable_by(|a, b| b.cmp(a));
        let least_ns = longest.get(LINKS_MAX - 1).copied().unwrap_or(0);
        ordered.retain(|wait| wait.duration_ns >= least_ns);
        ordered.truncate(LINKS_MAX);
    }
    ordered.into_iter().map(|wait| link(links, call, wait)).collect()
}

fn behind<'a>(links: &Links<'a>, call: &Call, wait: &'a Wait, ordered: &mut Vec<&'a Wait>) {
    ordered.push(wait);
    if ordered.len() >= 100 * LINKS_MAX {
        return;
    }
    let end_ns = wait.start_ns.saturating_add(wait.duration_ns);
    let mut next: Vec<&Wait> = links.behind(call, wait).collect();
    next.retain(|link| link.start_ns < end_ns && link.start_ns.saturating_add(link.duration_ns) > wait.start_ns);
    next.sort_short_by_key(|link| link.start_ns);
    for link in next {
        // In a damaged recording a link may be part of several chains; only deeper links can be behind this one.
        if link.depth > wait.depth && !ordered.iter().any(|known| std::ptr::eq(*known, link)) {
            behind(links, call, link, ordered);
        }
    }
}

fn link(links: &Links<'_>, call: &Call, wait: &Wait) -> Link {
    let offset_ns = i64::try_from(i128::from(wait.start_ns) - i128::from(call.start_ns)).unwrap_or(0);
    let request = links.request(wait);
    let kind = match (request, wait.waker_kind) {
        (Some(_), _) | (None, WakerKind::Device) => 1,
        (None, WakerKind::Task) => 0,
        (None, WakerKind::Timer | WakerKind::Interrupt | WakerKind::SoftIrq) => 2,
        (None, _) => 3,
    };
    let mut text = text(links, wait, request);
    if wait.waker_kind == WakerKind::Unknown {
        let cut_off = call.still_under_way && wait.start_ns.saturating_add(wait.duration_ns) >= call.end_ns();
        text.push_str(if cut_off { "; it had not ended when the recording ended" } else { "; no waker was recorded" });
    }
    Link { depth: wait.depth, offset_ns, ns: wait.duration_ns, kind, text }
}

fn name(task: &Task) -> String {
    let cgroup = task.cgroup.as_deref().filter(|path| *path != "/").map(|path| format!(", {path}")).unwrap_or_default();
    format!("{} ({}{cgroup})", task.name, task.tid.max(task.pid))
}

fn doing(what: Option<&String>, file: Option<&String>) -> String {
    let what = what.map(|what| format!(" in {what}")).unwrap_or_default();
    let file = file.map(|file| format!(" of {file}")).unwrap_or_default();
    format!("{what}{file}")
}

fn text(links: &Links<'_>, wait: &Wait, request: Option<&Request>) -> String {
    let sleeper = format!("{}{}", name(&wait.sleeper), doing(wait.sleeper_doing.as_ref(), wait.sleeper_file.as_ref()));
    let mut text = format!("{sleeper} slept {}", time(wait.duration_ns));
    if let Some(stack) = links.stack(wait) {
        let idle =
            |frame: &&String| !matches!(frame.as_str(), "__schedule" | "schedule" | "io_schedule" | "schedule_timeout");
        let place: Vec<&str> = stack.frames.iter().filter(idle).take(2).map(String::as_str).collect();
        if !place.is_empty() {
            text.push_str(&format!(" in {}", place.join(" < ")));
        }
    }
    if let Some(lock) = &wait.lock {
        let holder = wait.lock_holder.as_ref().map(|task| format!(", held by {}", name(task))).unwrap_or_default();
        text.push_str(&format!(", for a {lock}{holder}"));
    }
    match (&wait.waker, wait.waker_kind) {
        (Some(waker), WakerKind::Task) => {
            let at = doing(wait.waker_doing.as_ref(), wait.waker_file.as_ref());
            text.push_str(&format!(", woken by {}{at}", name(waker)));
        }
        (_, WakerKind::Timer) => text.push_str(", until a timer expired"),
        (_, WakerKind::Device) if request.is_none() => text.push_str(", until a device finished"),
        _ => {}
    }
    if let Some(request) = request {
        text.push_str(&of_request(links, request));
    }
    text
}

/// Such as `: write of 64 KiB on vda, 92 ms in the queue, 6 ms at the device; queued before it: 38 MiB of dd`.
fn of_request(links: &Links<'_>, request: &Request) -> String {
    let mut text = format!(": {} of {} on {}", request.op.name(), size(request.bytes), request.device);
    if request.throttled == Some(true) {
        text.push_str(", held back by its cgroup's limit before it was inserted");
    }
    if let Some(issue_ns) = request.issue_ns {
        text.push_str(&format!(", {} in the queue", time(issue_ns.saturating_sub(request.insert_ns))));
        text.push_str(&format!(", {} at the device", time(request.complete_ns.saturating_sub(issue_ns))));
    } else {
        text.push_str(&format!(", {} in all", time(request.complete_ns.saturating_sub(request.insert_ns))));
    }
    let mut ahead: Vec<&QueueAhead> = links.ahead(request).collect();
    if !ahead.is_empty() {
        ahead.sort_short_by_key(|row| std::cmp::Reverse(row.device_ns));
        let one = |row: &&QueueAhead| {
            let owner = row.owner.as_ref().map_or("unknown", |task| task.name.as_str());
            format!("{} of {owner}", size(row.bytes))
        };
        let named: Vec<String> = ahead.iter().take(AHEAD_MAX).map(one).collect();
        text.push_str(&format!("; queued before it: {}", named.join(", ")));
    }
    text
}
