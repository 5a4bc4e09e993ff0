//! Reads files of `key value` lines: vmstat, numastat, memory.stat, memory.events, cpu.stat.

use super::sheet::Sheet;
use super::text::Scan;
use flatwater_recording::schema::stored;
use flatwater_recording::{ColumnKind, Table};

/// Puts every line into the open row. `from` distinguishes equal keys of files that share a row.
pub fn read(text: &[u8], from: &'static str, sheet: &mut Sheet) {
    read_as(text, from, sheet, stored);
}

/// Like `read`, with `describe` to name the columns.
pub fn read_as(text: &[u8], from: &'static str, sheet: &mut Sheet, describe: fn(Table, &str) -> (String, ColumnKind)) {
    let table = sheet.table();
    let mut scan = Scan::new(text);
    while !scan.is_empty() {
        let expected = sheet.expected(from).and_then(|key| scan.rest().strip_prefix(key));
        if let Some(after @ [b' ', ..]) = expected {
            scan = Scan::new(after);
            let value = scan.number();
            sheet.put_expected(value);
        } else {
            let key = scan.word();
            let value = scan.number();
            if !key.is_empty() && value.is_some() {
                sheet.put_as(from, key, value, |name| describe(table, name));
            }
        }
        scan.next_line();
    }
}
