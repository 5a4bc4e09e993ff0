//! /proc/pressure/{cpu,memory,io}, and a cgroup's *.pressure.

use super::sheet::Sheet;
use super::text::Scan;
use flatwater_recording::schema::{Column, cgroup, pressure};

/// The columns of average and total, for the lines `some` and `full`.
pub type Columns = [[Column; 2]; 2];

pub const OF_MACHINE: Columns = [
    [pressure::SOME_AVG10_CENTIPERCENT, pressure::SOME_TOTAL_US],
    [pressure::FULL_AVG10_CENTIPERCENT, pressure::FULL_TOTAL_US],
];
pub const OF_CGROUP: Columns = [
    [cgroup::SOME_AVG10_CENTIPERCENT, cgroup::SOME_TOTAL_US],
    [cgroup::FULL_AVG10_CENTIPERCENT, cgroup::FULL_TOTAL_US],
];

/// Puts a line `some avg10=0.12 avg60=... total=345` into the open row, as `some_avg10_centipercent` and
/// `some_total_us`.
pub fn read(text: &[u8], sheet: &mut Sheet, &[some, full]: &Columns) {
    let mut scan = Scan::new(text);
    while !scan.is_empty() {
        let columns = match scan.word() {
            b"some" => Some(some),
            b"full" => Some(full),
            _ => None,
        };
        if let Some([average_column, total_column]) = columns {
            scan.blanks();
            let average = if scan.take(b"avg10=") { centi(&mut scan) } else { None };
            let line = scan.rest();
            let end = line.iter().position(|&byte| byte == b'\n').unwrap_or(line.len());
            let total = memchr::memmem::find(line.get(..end).unwrap_or_default(), b"total=")
                .and_then(|at| line.get(at + b"total=".len()..))
                .and_then(|digits| Scan::new(digits).number());
            sheet.put_column("pressure", average_column, average);
            sheet.put_column("pressure", total_column, total);
        }
        scan.next_line();
    }
}

/// Parses `12.34` as 1234.
fn centi(scan: &mut Scan<'_>) -> Option<i64> {
    let whole = scan.number()?;
    let hundredths = if scan.take(b".") { scan.number()? } else { 0 };
    whole.checked_mul(100)?.checked_add(hundredths)
}

#[cfg(test)]
mod tests {
    use super::{OF_MACHINE, read};
    use crate::proc::sheet::{Filled, Sheet};
    use flatwater_recording::{Entity, Table};

    #[test]
    fn both_lines_and_kernels_without_full() {
        let text =
            "some avg10=12.04 avg60=0.50 avg300=0.10 total=123456\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=99\n";
        let mut sheet = Sheet::new(Table::Pressure);
        sheet.open(1, None, b"memory");
        read(text.as_bytes(), &mut sheet, &OF_MACHINE);
        sheet.open(1, None, b"cpu");
        read(b"some avg10=0.07 avg60=0.00 avg300=0.00 total=5\n", &mut sheet, &OF_MACHINE);
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
