//! Reads stacks that people write in one line: `io_schedule <- wbt_wait <- submit_bio`,
//! `vfs_write -> ext4_file_write_iter -> ...`.

use super::builder::Builder;
use super::error::ImportError;
use super::kernel_log::identifier;
use super::text::Cursor;
use super::{FormatKind, Importer};
use crate::anchors::Anchor;
use flatwater_recording::symbol::cause_of;
use flatwater_recording::{ReportedBy, SampledTask};

pub const IMPORTER: Importer = Importer {
    name: "stack-chain",
    sentence: "Stacks in one line: functions with arrows between them.",
    kind: FormatKind::Judged,
    anchors: &[Anchor::Common(&["->", "<-", "=>", "<=", "\u{2190}", "\u{2192}"])],
    detect: |cursor| if chain(cursor.next_text()).is_some() { 90 } else { 0 },
    read,
};

/// Arrows between callee and caller, and between caller and callee.
const OUTWARDS: &[&str] = &["\u{2190}", "<-", "<="];
const INWARDS: &[&str] = &["\u{2192}", "->", "=>"];
const FRAMES_MIN: usize = 3;

/// Splits off the leading number of tasks with this stack: `336 flush_work+0x5c/0x80 <= ...`.
fn counted(text: &str) -> (u32, &str) {
    let text = text.trim();
    let split = text.split_once([' ', '\t']).and_then(|(count, rest)| Some((count.parse().ok()?, rest.trim_start())));
    split.filter(|(count, _)| *count > 0).unwrap_or((1, text))
}

/// The functions, innermost first. `None` unless all parts are function names and at least one of them implies a cause.
fn chain(text: &str) -> Option<Vec<&str>> {
    // Every arrow contains one of these bytes, and few lines do.
    if !text.bytes().any(|byte| matches!(byte, b'<' | b'>') || byte >= 0x80) {
        return None;
    }
    let text = counted(text).1.trim_start_matches(['-', '*', '\u{2022}']).trim();
    let split =
        |arrows: &[&'static str]| arrows.iter().copied().find(|arrow| text.matches(arrow).count() + 1 >= FRAMES_MIN);
    let (arrow, inwards) = match (split(OUTWARDS), split(INWARDS)) {
        (Some(arrow), None) => (arrow, false),
        (None, Some(arrow)) => (arrow, true),
        _ => return None,
    };
    let names: Option<Vec<&str>> = text
        .split(arrow)
        .map(|part| {
            let part = part.trim().trim_matches(['`', '\'']).trim_end_matches("()");
            identifier(part.split_once('+').map_or(part, |(name, _)| name))
        })
        .collect();
    let mut names = names?;
    if inwards {
        names.reverse();
    }
    let of_kernel = names.iter().filter(|name| name.contains('_')).count() * 2 >= names.len();
    (of_kernel && names.iter().any(|name| cause_of(name).is_some())).then_some(names)
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("stack-chain");
    while let Some(line) = cursor.peek() {
        let Some(names) = chain(line.text) else { break };
        cursor.take();
        let mut sample = SampledTask::new(ReportedBy::BareFrames);
        sample.line = line.number;
        sample.count = counted(line.text).0;
        b.sampled_task(place, sample, names.into_iter().map(str::to_owned).collect());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::chain;
    use crate::import_texts;
    use flatwater_recording::Cause;

    #[test]
    fn arrows_in_both_directions_are_read() {
        let out = ["io_schedule", "wbt_wait", "submit_bio"];
        assert_eq!(chain("- io_schedule <- wbt_wait <- submit_bio").as_deref(), Some(&out[..]));
        assert_eq!(chain("submit_bio -> wbt_wait -> io_schedule()").as_deref(), Some(&out[..]));
        assert_eq!(chain("`io_schedule` \u{2190} `wbt_wait` \u{2190} `submit_bio+0x9`").as_deref(), Some(&out[..]));
        let wrapped = "336 flush_work+0x5c/0x80 <= xfs_inodegc_flush.part.0+0x3b/0x90 <=\nxfs_buf_lock+0x29/0xa0 <= x_y+0x1/0x2\n";
        let recording = import_texts(&[("f".to_owned(), wrapped.as_bytes().to_vec())]).expect("read").recording;
        assert_eq!(recording.header.sampled_tasks.iter().map(|task| task.count).collect::<Vec<_>>(), [336]);
        for text in [
            "a -> b -> c",
            "client -> proxy -> server_one",
            "x <- y",
            "if (a->b_c->d_e->f_g) {",
            "std_err -> log_file -> disk_one",
        ] {
            assert_eq!(chain(text), None, "{text}");
        }
    }

    #[test]
    fn a_chain_is_a_stack() {
        let imported = import_texts(&[(
            "f".to_owned(),
            b"io_schedule <- wbt_wait <- submit_bio <- ext4_do_writepages\n".to_vec(),
        )]);
        let recording = imported.expect("read").recording;
        assert_eq!(recording.header.sampled_tasks.first().and_then(|task| task.cause), Some(Cause::RequestQueue));
    }
}
