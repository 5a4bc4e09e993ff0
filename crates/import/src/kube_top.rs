//! Reads `kubectl top pods` and `kubectl top nodes`: the working set of each pod or node.
//!
//! The working set is used memory without inactive page cache. For a node it says neither how much memory is free nor
//! how much the kernel would have to reclaim, so rows of nodes are passed over, and a note says why.

use super::builder::{Builder, Cell};
use super::error::ImportError;
use super::number::size;
use super::text::Cursor;
use super::{FormatKind, Importer};
use crate::anchors::Anchor;
use flatwater_recording::schema::cgroup;
use flatwater_recording::{Entity, Table};

pub const IMPORTER: Importer = Importer {
    name: "kubectl-top",
    sentence: "kubectl top pods, with or without --containers and namespaces; top nodes is recognized, but is not evidence.",
    kind: FormatKind::Unjudged,
    anchors: &[Anchor::Table(&["CPU(cores)"])],
    detect: |cursor| if is_header(cursor.next_text()) { 94 } else { 0 },
    read,
};

fn is_header(text: &str) -> bool {
    text.contains("CPU(cores)") && text.contains("MEMORY(bytes)")
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let Some(header) = cursor.peek() else { return Ok(()) };
    let columns: Vec<&str> = header.text.split_whitespace().collect();
    let named = columns.iter().position(|column| *column == "CPU(cores)").unwrap_or(1);
    let memory = columns.iter().position(|column| *column == "MEMORY(bytes)").unwrap_or(2);
    let nodes = columns.contains(&"MEMORY%");
    cursor.take();
    let place = b.snapshot("kubectl-top");
    while let Some(line) = cursor.peek().filter(|line| !line.is_blank() && !is_header(line.text)) {
        let words: Vec<&str> = line.text.split_whitespace().collect();
        let cpu =
            words.get(named).is_some_and(|cpu| *cpu == "<unknown>" || cpu.starts_with(|c: char| c.is_ascii_digit()));
        if words.len() != columns.len() || !cpu {
            break;
        }
        cursor.take();
        match words.get(memory).and_then(|text| size(text, 1.0)).filter(|_| !nodes) {
            Some(bytes) => {
                let name = words.get(..named).unwrap_or_default().join("/");
                b.row(place, Table::Cgroup, &Entity::named(&name), &[(cgroup::USAGE_BYTES, Cell::Gauge(bytes))]);
            }
            None => b.pass_over(),
        }
    }
    b.note(if nodes {
        "kubectl top nodes prints the working set, which includes active page cache, and its share of the memory that \
             pods may use: free memory is unknown"
    } else {
        "kubectl top pods prints the working set, which includes active page cache, and no limit"
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::import_texts;
    use flatwater_recording::Table;
    use flatwater_recording::schema::cgroup;

    #[test]
    fn pods_are_groups_and_nodes_are_not_evidence() {
        let pods = "NAMESPACE   NAME      CPU(cores)   MEMORY(bytes)\nkafka       kafka-0   412m         1536Mi\nkafka       kafka-1   <unknown>    <unknown>\n";
        let recording = import_texts(&[("f".to_owned(), pods.into())]).expect("read").recording;
        let groups = recording.table(Table::Cgroup).expect("a table");
        let (entity, rows) = groups.by_entity().next().expect("a pod");
        assert_eq!((entity.name.as_str(), rows.last(cgroup::USAGE_BYTES)), ("kafka/kafka-0", Some(3 << 29)));
        assert_eq!(groups.by_entity().count(), 1, "unknown is not 0");
        let nodes = "NAME   CPU(cores)   CPU%   MEMORY(bytes)   MEMORY%\nn1     1072m        2%     127894Mi        100%\n$ nproc\n4\n";
        let recording = import_texts(&[("f".to_owned(), nodes.into())]).expect("read").recording;
        assert!(recording.table(Table::Cgroup).is_none());
    }
}
