//! Prints the columns of procps' `vmstat`: KiB, 1 KiB blocks per second, percent of CPU time. A value that was not
//! recorded is `-`; vmstat itself would print 0.

use super::rows::{Interval, Readings, grid};
use super::{Format, Options, ReportError, facts};
use flatwater_explain::Explanation;
use flatwater_recording::schema::{Column, cpu, meminfo, vmstat};
use flatwater_recording::{Entity, Recording, Rows, Table};

pub const FORMAT: Format =
    Format { name: "vmstat", sentence: "procps' vmstat, one row per interval, from the samples.", render };

const TABLES: &[Table] = &[Table::Cpu, Table::Meminfo, Table::Vmstat];
const GROUPS: &str = "procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----";
const HEADING: &str = " r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st";
const WIDTHS: [usize; 17] = [2, 2, 6, 6, 6, 6, 4, 4, 5, 5, 4, 4, 2, 2, 2, 2, 2];

fn render(recording: &Recording, _explanation: &Explanation, options: &Options) -> Result<String, ReportError> {
    let intervals = grid(recording, TABLES, options.interval_ns);
    if intervals.is_empty() {
        return Err(ReportError::NotEnough {
            format: "vmstat",
            needs: "two readings of /proc/stat, /proc/meminfo or /proc/vmstat",
            why: facts::why_missing(&recording.gaps, &["stat", "meminfo"]),
        });
    }
    let sources = Sources::of(recording);
    let mut text = format!("{GROUPS}\n{HEADING}\n");
    for interval in intervals {
        let cells = sources.row(interval).map(|value| value.map_or_else(|| "-".to_owned(), |n| n.to_string()));
        let line: Vec<String> = cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:>width$}")).collect();
        text.push_str(&line.join(" "));
        text.push('\n');
    }
    Ok(text)
}

/// The readings behind the columns; empty if the recording lacks the table or the column.
struct Sources {
    page_kib: Option<i64>,
    running: Readings,
    blocked: Readings,
    swap_total: Readings,
    swap_free: Readings,
    free: Readings,
    free_pages: Readings,
    buffers: Readings,
    cached: Readings,
    reclaimable: Readings,
    swapped_in: Readings,
    swapped_out: Readings,
    paged_in: Readings,
    paged_out: Readings,
    interrupts: Readings,
    switches: Readings,
    cpu: [Readings; 8],
}

impl Sources {
    fn of(recording: &Recording) -> Sources {
        let all = entity(recording, Table::Cpu, &Entity::named("all"));
        let mem = entity(recording, Table::Meminfo, &Entity::default());
        let vm = entity(recording, Table::Vmstat, &Entity::default());
        let read = |rows: &Option<Rows<'_>>, column: Column| {
            rows.as_ref().map(|rows| Readings::of(rows, column)).unwrap_or_default()
        };
        let ns = |column: Column| read(&all, column);
        Sources {
            page_kib: recording.header.machine.page_bytes.and_then(|bytes| i64::try_from(bytes / 1024).ok()),
            running: ns(cpu::PROCS_RUNNING),
            blocked: ns(cpu::PROCS_BLOCKED),
            swap_total: read(&mem, meminfo::SWAP_TOTAL_BYTES),
            swap_free: read(&mem, meminfo::SWAP_FREE_BYTES),
            free: read(&mem, meminfo::MEM_FREE_BYTES),
            free_pages: read(&vm, vmstat::NR_FREE_PAGES),
            buffers: read(&mem, meminfo::BUFFERS_BYTES),
            cached: read(&mem, meminfo::CACHED_BYTES),
            reclaimable: read(&mem, meminfo::SRECLAIMABLE_BYTES),
            swapped_in: read(&vm, vmstat::PSWPIN),
            swapped_out: read(&vm, vmstat::PSWPOUT),
            paged_in: read(&vm, vmstat::PGPGIN),
            paged_out: read(&vm, vmstat::PGPGOUT),
            interrupts: ns(cpu::INTR),
            switches: ns(cpu::CTXT),
            cpu: [
                cpu::USER_NS,
                cpu::NICE_NS,
                cpu::SYSTEM_NS,
                cpu::IDLE_NS,
                cpu::IOWAIT_NS,
                cpu::IRQ_NS,
                cpu::SOFTIRQ_NS,
                cpu::STEAL_NS,
            ]
            .map(ns),
        }
    }

    fn row(&self, row: Interval) -> [Option<i64>; 17] {
        let kib = |readings: &Readings| readings.at(row.to_ns).map(|bytes| bytes / 1024);
        let rate = |readings: &Readings| readings.rate(row).map(|rate| rate.round() as i64);
        let pages = |readings: &Readings| {
            let page_kib = self.page_kib?;
            readings.rate(row).map(|rate| (rate * page_kib as f64).round() as i64)
        };
        let swapped = kib(&self.swap_total).zip(kib(&self.swap_free)).map(|(total, free)| total.saturating_sub(free));
        // procps counts reclaimable slab as cache since 3.3.10; kernels without SReclaimable have only the page cache.
        let cache = kib(&self.cached).map(|cached| cached.saturating_add(kib(&self.reclaimable).unwrap_or_default()));
        let free_pages = || Some(self.free_pages.at(row.to_ns)?.saturating_mul(self.page_kib?));
        let [us, sy, id, wa, st] = self.cpu_percent(row);
        [
            self.running.at(row.to_ns),
            self.blocked.at(row.to_ns),
            swapped,
            kib(&self.free).or_else(free_pages),
            kib(&self.buffers),
            cache,
            pages(&self.swapped_in),
            pages(&self.swapped_out),
            rate(&self.paged_in),
            rate(&self.paged_out),
            rate(&self.interrupts),
            rate(&self.switches),
            us,
            sy,
            id,
            wa,
            st,
        ]
    }

    fn cpu_percent(&self, row: Interval) -> [Option<i64>; 5] {
        let rises = self.cpu.each_ref().map(|readings| readings.rise(row));
        let total: i64 = rises.iter().flatten().fold(0, |sum: i64, ns| sum.saturating_add(*ns));
        let [user, nice, system, idle, iowait, irq, softirq, steal] = rises;
        let sum = |first: Option<i64>, more: &[Option<i64>]| {
            first.map(|n| more.iter().flatten().fold(n, |sum: i64, ns| sum.saturating_add(*ns)))
        };
        let percent =
            |ns: Option<i64>| ns.filter(|_| total > 0).map(|ns| (100.0 * ns as f64 / total as f64).round() as i64);
        [sum(user, &[nice]), sum(system, &[irq, softirq]), idle, iowait, steal].map(percent)
    }
}

/// The rows of this entity, or of the first one if the recording names it otherwise.
fn entity<'a>(recording: &'a Recording, table: Table, wanted: &Entity) -> Option<Rows<'a>> {
    let series = recording.table(table)?;
    series.rows_of(wanted).or_else(|| series.by_entity().next().map(|(_, rows)| rows))
}
