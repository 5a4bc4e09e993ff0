//! /proc/meminfo, and each node's meminfo, which has `Node 1 ` before every line.

use super::sheet::Sheet;
use super::text::Scan;
use flatwater_recording::schema::stored;

/// Puts every line into the open row: sizes in bytes as `NAME_bytes`, page counts under their own names.
pub fn read(text: &[u8], from: &'static str, sheet: &mut Sheet) {
    let table = sheet.table();
    let mut scan = Scan::new(text);
    while !scan.is_empty() {
        if scan.take(b"Node ") {
            scan.number();
            scan.blanks();
        }
        let expected = sheet.expected(from).and_then(|key| scan.rest().strip_prefix(key));
        if let Some(after @ [b':', ..]) = expected {
            scan = Scan::new(after);
            scan.take(b":");
            let (value, _) = size(&mut scan);
            sheet.put_expected(value);
        } else if let Some(key) = scan.word().strip_suffix(b":") {
            let (value, in_bytes) = size(&mut scan);
            let suffix = if in_bytes { "_bytes" } else { "" };
            if value.is_some() {
                sheet.put_as(from, key, value, |name| stored(table, &format!("{name}{suffix}")));
            }
        }
        scan.next_line();
    }
}

/// The value, in bytes if it is a size, and whether it is a size.
fn size(scan: &mut Scan<'_>) -> (Option<i64>, bool) {
    let value = scan.number();
    scan.blanks();
    let in_kib = scan.take(b"kB");
    (value.map(|value| if in_kib { value.saturating_mul(1024) } else { value }), in_kib)
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::proc::sheet::{Filled, Sheet};
    use flatwater_recording::{Entity, Table};

    #[test]
    fn only_sizes_are_converted_to_bytes() {
        let machine = "MemTotal:       24684092 kB\nActive(anon):      1556 kB\nHugePages_Total:       3\nHugepagesize:       2048 kB\n";
        let node = "Node 1 MemFree:         3192188 kB\nNode 1 HugePages_Free:      7\n";
        let mut sheet = Sheet::new(Table::Nodes);
        for at_ns in [1, 2] {
            sheet.open(at_ns, Some(1), b"");
            read(machine.as_bytes(), "machine", &mut sheet);
            read(node.as_bytes(), "node", &mut sheet);
        }
        let mut filled = Filled::default();
        sheet.swap(&mut filled);
        let series = sheet.series(&filled);
        let rows = series.rows_of(&Entity::on_node(1, "")).expect("rows");
        for (column, value) in [
            ("MemTotal_bytes", 24_684_092 << 10),
            ("Active(anon)_bytes", 1556 << 10),
            ("HugePages_Total", 3),
            ("MemFree_bytes", 3_192_188 << 10),
            ("HugePages_Free", 7),
        ] {
            assert_eq!(rows.values(column).collect::<Vec<_>>(), [(1, value), (2, value)], "{column}");
        }
    }
}
