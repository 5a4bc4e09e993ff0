//! Reads events of Kubernetes (`kubectl get events`, the end of `kubectl describe`): OOM kills and evictions for lack
//! of memory.

use super::builder::Builder;
use super::error::ImportError;
use super::text::Cursor;
use super::{FormatKind, Importer};
use crate::anchors::Anchor;
use flatwater_recording::EventKind;

pub const IMPORTER: Importer = Importer {
    name: "kube-events",
    sentence: "kubectl get events, kubectl describe: OOM kills and evictions for lack of memory.",
    kind: FormatKind::Unjudged,
    anchors: &[Anchor::Table(&["REASON", "Reason", "Events:"]), Anchor::Common(&["Warning ", "Normal "])],
    detect: |cursor| match cursor.next_text() {
        text if is_header(text) => 90,
        text if is_row(text) => 70,
        _ => 0,
    },
    read,
};

/// Whether the line is `LAST SEEN  TYPE  REASON  OBJECT  MESSAGE`, or describe's `Events:` or
/// `Type  Reason  Age  From  Message`.
fn is_header(text: &str) -> bool {
    if !["REASON", "Reason", "Events:"].iter().any(|word| text.contains(word)) {
        return false;
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let has = |word: &str| words.iter().any(|known| known.eq_ignore_ascii_case(word));
    has("type") && has("reason") && has("message") && (has("object") || has("age") || has("from") || has("name"))
        || words == ["Events:"]
}

/// Whether the line is a row: it has a type and a reason, unlike a sentence that contains `Warning`.
fn is_row(text: &str) -> bool {
    if !(text.contains("Warning ") || text.contains("Normal ")) {
        return false;
    }
    let mut words = text.split_whitespace().take(4);
    let Some(at) = words.position(|word| word == "Warning" || word == "Normal") else { return false };
    let mut words = text.split_whitespace().skip(at + 1);
    let (reason, age) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    // `kubectl describe` prints the type first, and the age after the reason.
    (at > 0 || age.starts_with(|c: char| c.is_ascii_digit() || c == '<' || c == '('))
        && reason.len() >= 4
        && reason.starts_with(|c: char| c.is_ascii_uppercase())
        && reason.bytes().all(|c| c.is_ascii_alphanumeric())
        && reason.bytes().any(|c| c.is_ascii_lowercase())
}

fn for_memory(text: &str) -> bool {
    const SAYS: &[&str] = &[
        "OOMKilling",
        "SystemOOM",
        "System OOM encountered",
        "low on resource: memory",
        "Memory cgroup out of memory",
    ];
    let threshold = text.contains("EvictionThresholdMet") && text.contains("memory");
    threshold || SAYS.iter().any(|word| text.contains(word))
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("kube-events");
    while let Some(line) = cursor.peek() {
        let text = line.text.trim();
        let rule = !text.is_empty() && text.bytes().all(|c| c == b'-' || c == b' ');
        if !(is_header(text) || rule || is_row(text)) {
            break;
        }
        cursor.take();
        if for_memory(text) {
            let row = text.split_whitespace().collect::<Vec<_>>().join(" ");
            b.event(place, EventKind::report(format!("Out of memory: {row}")));
        } else {
            b.pass_over();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::import_texts;
    use flatwater_recording::EventKind;

    #[test]
    fn kills_and_evictions_are_events_and_other_rows_are_known() {
        let text = "LAST SEEN   TYPE      REASON        OBJECT        MESSAGE\n2m          Normal    Pulled        pod/web-1     Container image already present on machine\n1m          Warning   OOMKilling    node/n1       Memory cgroup out of memory: Killed process 1 (java)\n30s         Warning   Evicted       pod/web-1     The node was low on resource: memory. Container web was using 2Gi\n10s         Warning   Evicted       pod/log-1     The node was low on resource: ephemeral-storage.\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let kills = recording.events.iter().filter(|event| matches!(event.kind, EventKind::OutOfMemory { .. })).count();
        assert_eq!(kills, 2, "{:?}", recording.events);
        let described = "Events:\n  Type     Reason     Age   From     Message\n  ----     ------     ----  ----     -------\n  Warning  Unhealthy  5m    kubelet  Readiness probe failed: context deadline exceeded\n";
        let imported = import_texts(&[("f".to_owned(), described.into())]);
        assert!(imported.map_or(true, |imported| imported.recording.events.is_empty()));
    }
}
