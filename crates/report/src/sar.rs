//! Prints paging as `sar -B` does, with %vmeff, which sysstat 12.7.5 dropped. Each row has the time at its end, as in
//! sar.

use std::fmt::Write as _;

use super::counters::{Sum, efficiency_percent};
use super::rows::{Interval, clock, day, grid};
use super::{Format, Options, ReportError, facts};
use flatwater_explain::Explanation;
use flatwater_recording::schema::vmstat;
use flatwater_recording::{Entity, Header, Recording, Table, printable};

pub const FORMAT: Format =
    Format { name: "sar", sentence: "Paging as `sar -B` prints it, with %vmeff, from /proc/vmstat.", render };

const COLUMNS: [&str; 9] =
    ["pgpgin/s", "pgpgout/s", "fault/s", "majflt/s", "pgfree/s", "pgscank/s", "pgscand/s", "pgsteal/s", "%vmeff"];

type Row = [Option<f64>; 9];

fn render(recording: &Recording, _explanation: &Explanation, options: &Options) -> Result<String, ReportError> {
    let missing = || ReportError::NotEnough {
        format: "sar",
        needs: "two readings of /proc/vmstat",
        why: facts::why_missing(&recording.gaps, &["vmstat"]),
    };
    let series = recording.table(Table::Vmstat).ok_or_else(missing)?;
    let rows = series.rows_of(&Entity::default()).or_else(|| series.by_entity().next().map(|(_, rows)| rows));
    let rows = rows.ok_or_else(missing)?;
    let intervals = grid(recording, &[Table::Vmstat], options.interval_ns);
    let (Some(first), Some(last)) = (intervals.first(), intervals.last()) else { return Err(missing()) };
    let single = |column| Sum::of(series, &rows, &[column]);
    let plain = [vmstat::PGPGIN, vmstat::PGPGOUT, vmstat::PGFAULT, vmstat::PGMAJFAULT, vmstat::PGFREE].map(single);
    let (kswapd, direct) = (single(vmstat::PGSCAN_KSWAPD), single(vmstat::PGSCAN_DIRECT));
    let steals = Sum::steals(series, &rows);
    let row_of = |row: Interval| -> Row {
        let [pgpgin, pgpgout, fault, majflt, pgfree] = [0, 1, 2, 3, 4].map(|n: usize| plain[n].rate(row));
        let (scank, scand, steal) = (kswapd.rate(row), direct.rate(row), steals.rate(row));
        let vmeff = efficiency_percent(scank, scand, steal);
        [pgpgin, pgpgout, fault, majflt, pgfree, scank, scand, steal, vmeff]
    };
    let mut text = banner(&recording.header);
    heading(&mut text, &clock(&recording.header, first.from_ns));
    for interval in &intervals {
        line(&mut text, &clock(&recording.header, interval.to_ns), &row_of(*interval));
    }
    line(&mut text, "Average:", &row_of(Interval { from_ns: first.from_ns, to_ns: last.to_ns }));
    Ok(text)
}

/// The first line of sar, from which parsers take the date and the number of CPUs.
pub fn banner(header: &Header) -> String {
    let machine = &header.machine;
    let kernel = printable::line(machine.kernel.as_deref().unwrap_or("-"));
    let host = printable::line(machine.hostname.as_deref().unwrap_or("-"));
    let day = day(header).unwrap_or_else(|| "-".to_owned());
    let cpus = machine.cpus.map(|cpus| format!("\t({cpus} CPU)")).unwrap_or_default();
    format!("Linux {kernel} ({host}) \t{day}{cpus}\n\n")
}

fn heading(text: &mut String, time: &str) {
    text.push_str(&format!("{time:<11}"));
    for name in COLUMNS {
        let _ = write!(text, " {name:>9}");
    }
    text.push('\n');
}

fn line(text: &mut String, time: &str, row: &Row) {
    text.push_str(&format!("{time:<11}"));
    for value in row {
        match value {
            Some(value) => {
                let _ = write!(text, " {value:>9.2}");
            }
            None => text.push_str("         -"),
        }
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use flatwater_recording::Header;

    #[test]
    fn names_of_the_host_are_printed_without_control_characters() {
        let mut header = Header::default();
        header.machine.hostname = Some("a\u{1b}]0;owned\u{7}\nLinux".to_owned());
        header.machine.kernel = Some("6.1\u{1b}[8m".to_owned());
        let banner = super::banner(&header);
        assert!(!banner.contains(['\u{1b}', '\u{7}']) && banner.lines().count() == 2, "{banner:?}");
    }
}
