//! /proc/pressure/{cpu,memory,io} and a cgroup's *.pressure.

use super::sheet::Sheet;
use super::text::Scan;
use flatwater_recording::ColumnKind;

/// Puts `some avg10=0.12 avg60=... total=345` into the open row as `some_avg10_centipercent` and `some_total_us`.
pub fn read(text: &[u8], sheet: &mut Sheet) {
    let mut scan = Scan::new(text);
    while !scan.is_empty() {
        let names = match scan.word() {
            b"some" => Some(("some_avg10_centipercent", "some_total_us")),
            b"full" => Some(("full_avg10_centipercent", "full_total_us")),
            _ => None,
        };
        if let Some((average_name, total_name)) = names {
            scan.blanks();
            let average = if scan.take(b"avg10=") { centi(&mut scan) } else { None };
            let line = scan.rest();
            let end = line.iter().position(|&byte| byte == b'\n').unwrap_or(line.len());
            let total = memchr::memmem::find(line.get(..end).unwrap_or_default(), b"total=")
                .and_then(|at| line.get(at + b"total=".len()..))
                .and_then(|digits| Scan::new(digits).number());
            sheet.put("pressure", average_name.as_bytes(), average, |name| (name.to_owned(), ColumnKind::Gauge));
            sheet.put("pressure", total_name.as_bytes(), total, |name| (name.to_owned(), ColumnKind::Counter));
        }
        scan.next_line();
    }
}

/// `12.34` as 1234.
fn centi(scan: &mut Scan<'_>) -> Option<i64> {
    let whole = scan.number()?;
    let hundredths = if scan.take(b".") { scan.number()? } else { 0 };
    whole.checked_mul(100)?.checked_add(hundredths)
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::proc::sheet::{Filled, Sheet};
    use flatwater_recording::{Entity, Table};

    #[test]
    fn both_lines_and_kernels_without_full() {
        let text =
            "some avg10=12.04 avg60=0.50 avg300=0.10 total=123456\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=99\n";
        let mut sheet = Sheet::new(Table::Pressure);
        sheet.open(1, None, b"memory");
        read(text.as_bytes(), &mut sheet);
        sheet.open(1, None, b"cpu");
        read(b"some avg10=0.07 avg60=0.00 avg300=0.00 total=5\n", &mut sheet);
        let mut filled = Filled::default();
        sheet.swap(&mut filled);
        let series = sheet.series(&filled);
        let memory = series.rows_of(&Entity::named("memory")).expect("rows");
        let cpu = series.rows_of(&Entity::named("cpu")).expect("rows");
        assert_eq!(memory.last("some_avg10_centipercent"), Some(1204));
        assert_eq!(memory.last("some_total_us"), Some(123_456));
        assert_eq!(memory.last("full_total_us"), Some(99));
        assert_eq!(cpu.last("some_avg10_centipercent"), Some(7));
        assert_eq!(cpu.last("full_total_us"), None);
    }
}
