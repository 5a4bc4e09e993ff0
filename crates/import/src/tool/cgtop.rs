//! Reads systemd-cgtop: memory of each control group. It prints no limits and no waits, so it cannot exclude a cause.

use super::scaled;
use crate::anchors::Anchor;
use crate::builder::{Builder, Cell};
use crate::error::ImportError;
use crate::number::{number, rounded};
use crate::text::Cursor;
use crate::{FormatKind, Importer};
use flatwater_recording::schema::cgroup;
use flatwater_recording::{Entity, Table};

pub const IMPORTER: Importer = Importer {
    name: "systemd-cgtop",
    sentence: "systemd-cgtop: memory of each control group; its CPU and I/O rates are passed over.",
    kind: FormatKind::Unjudged,
    anchors: &[Anchor::Table(&["Control Group", "CGroup"])],
    detect: |cursor| if is_header(cursor.next_text()) { 94 } else { 0 },
    read,
};

fn is_header(text: &str) -> bool {
    let text = text.trim_start();
    (text.starts_with("Control Group") || text.starts_with("CGroup"))
        && text.contains("%CPU")
        && text.contains("Memory")
}

/// Group and memory of `/system.slice/db.service   33   70.2   1.0G   1.0M   86.0M`; `-` is unknown. Old versions call
/// the tasks `Proc` and omit the last columns.
fn row(text: &str) -> Option<(&str, Option<i64>)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [group, tasks, cpu, memory, ..] = *words.as_slice() else { return None };
    let plain = |word: &str| word == "-" || number(word).is_some();
    (words.len() <= 6 && plain(tasks) && plain(cpu)).then_some(())?;
    if memory == "-" {
        return Some((group, None));
    }
    Some((group, Some(rounded(scaled(memory, 1.0)?))))
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    cursor.take();
    let place = b.snapshot("systemd-cgtop");
    while let Some(line) = cursor.peek().filter(|line| !is_header(line.text)) {
        let Some((group, memory)) = row(line.text) else { break };
        cursor.take();
        match memory {
            Some(bytes) => {
                b.row(place, Table::Cgroup, &Entity::named(group), &[(cgroup::USAGE_BYTES, Cell::Gauge(bytes))]);
            }
            None => b.pass_over(),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::import_texts;
    use flatwater_recording::Table;
    use flatwater_recording::schema::cgroup;

    #[test]
    fn memory_of_groups_is_read() {
        let text = "Control Group                 Tasks   %CPU   Memory  Input/s Output/s\n/                      312   95.1     3.1G     1.2M    88.4M\n/init.scope              1      -        -        -        -\nsystem.slice/db.service 33   70.2     1.0G     1.0M    86.0M\n";
        let recording = import_texts(&[("f".to_owned(), text.into())]).expect("read").recording;
        let table = recording.table(Table::Cgroup).expect("a table");
        let found: Vec<_> =
            table.by_entity().map(|(entity, rows)| (entity.name.clone(), rows.last(cgroup::USAGE_BYTES))).collect();
        assert!(found.contains(&("system.slice/db.service".to_owned(), Some(1 << 30))), "{found:?}");
        assert_eq!(found.len(), 2, "unknown is not 0");
    }
}
