//! Notes about slow calls that returned an error.

use std::collections::BTreeMap;
use std::io::Error;

use super::facts::Facts;
use super::sums::{add_to, total};
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{Note, OpKind};

/// Errors after which data may be lost or cannot reach its destination: EIO, ENXIO, ENOMEM, ENODEV, ENOSPC, EROFS,
/// ETIMEDOUT, ESTALE, EDQUOT (include/uapi/asm-generic/errno.h). Other errors are normal for programs.
const GRAVE: [u32; 9] = [5, 6, 12, 19, 28, 30, 110, 116, 122];
const KINDS_MAX: usize = 4;

/// A note with the failed calls, counted by operation and error.
pub fn notes(facts: &Facts<'_>) -> Option<Note> {
    let mut kinds: BTreeMap<(OpKind, u32), u64> = BTreeMap::new();
    for call in facts.recording.foreground_calls() {
        if let Some(errno) = call.errno.filter(|errno| GRAVE.contains(errno)) {
            add_to(kinds.entry((call.op, errno)).or_default(), 1);
        }
    }
    let all = total(kinds.values().copied());
    let mut kinds: Vec<((OpKind, u32), u64)> = kinds.into_iter().collect();
    kinds.sort_short_by_key(|(_, calls)| std::cmp::Reverse(*calls));
    let more = if kinds.len() > KINDS_MAX { ", and others" } else { "" };
    let listed = kinds.iter().take(KINDS_MAX).map(|((op, errno), calls)| {
        format!("{calls} {}() with {}", op.name(), Error::from_raw_os_error(errno.cast_signed()))
    });
    let listed = listed.collect::<Vec<_>>().join(", ");
    (all > 0).then(|| Note::Text(format!("of the slow calls {all} failed in the end: {listed}{more}")))
}

#[cfg(test)]
mod tests {
    use crate::testing::RecordingBuilder;
    use flatwater_recording::{Cause, OpKind};

    #[test]
    fn failed_calls_are_counted_by_kind_and_error() {
        let noted = |errno: Option<u32>| {
            let builder = RecordingBuilder::new().slow(OpKind::Fsync, &[(Cause::DeviceSlow, 900.0)]);
            let builder = builder.edit(|recording| recording.calls[0].errno = errno);
            let notes: Vec<String> = builder.explained().notes.iter().map(ToString::to_string).collect();
            notes.into_iter().find(|note| note.contains("failed in the end"))
        };
        let failed = noted(Some(5)).expect("EIO");
        assert!(failed.contains("1 fsync() with Input/output error (os error 5)"), "{failed}");
        assert_eq!(noted(None), None);
        assert_eq!(noted(Some(4)), None, "a signal is nothing grave");
    }
}
