//! Charts of imported logs only: processors, tasks, devices, memory, swapping. A chart needs at least two readings in
//! the log.

use super::super::payload::{Chart, Look, Scale, Unit};
use super::{Frame, Plot};
use flatwater_recording::schema::{Column, cpu, disks, meminfo, vmstat};
use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::{Entity, Recording, Rows, Table};

/// Devices with a line of their own.
const DEVICES_MAX: usize = 7;

pub fn charts(recording: &Recording) -> Vec<Chart> {
    let each = [processors(recording), tasks(recording), swapping(recording), memory(recording)];
    devices(recording).into_iter().chain(each.into_iter().flatten()).collect()
}

/// A line to draw: column, name, look.
type Drawn = (Column, &'static str, Look);

fn processors(recording: &Recording) -> Option<Chart> {
    let series = recording.table(Table::Cpu)?;
    let rows = series.rows_of(&Entity::named("all"))?;
    let mut plot = Plot::over(recording, series);
    let columns: [Drawn; 5] = [
        (cpu::USER_NS, "programs", Look::Plain),
        (cpu::SYSTEM_NS, "kernel", Look::Plain),
        (cpu::IOWAIT_NS, "idle, waiting for I/O", Look::Strong),
        (cpu::IDLE_NS, "idle", Look::Faint),
        (cpu::STEAL_NS, "stolen by the host", Look::Dashed),
    ];
    for (column, name, look) in columns {
        let values = plot.rate(&rows, column, 1e-9);
        plot.add(name, look, values);
    }
    plot.into_chart(Frame {
        id: "processors",
        title: "Processor time",
        about: "Shares of the time of all processors together.",
        unit: Unit::Share,
        scale: Scale::Linear,
    })
}

fn tasks(recording: &Recording) -> Option<Chart> {
    let series = recording.table(Table::Cpu)?;
    let rows = series.rows_of(&Entity::named("all"))?;
    let columns: [Drawn; 2] =
        [(cpu::PROCS_RUNNING, "running or ready", Look::Plain), (cpu::PROCS_BLOCKED, "blocked", Look::Strong)];
    let mut plot = Plot::over(recording, series);
    levels(&mut plot, &rows, &columns);
    plot.into_chart(Frame {
        id: "tasks",
        title: "Tasks that run or are blocked",
        about: "If more tasks are ready than there are processors, tasks wait for one. Blocked tasks wait for a device, or for a task that does.",
        unit: Unit::Count,
        scale: Scale::Linear,
    })
}

fn swapping(recording: &Recording) -> Option<Chart> {
    let series = recording.table(Table::Vmstat)?;
    let (_, rows) = series.by_entity().next()?;
    let mut plot = Plot::over(recording, series);
    for (column, name, look) in [
        (vmstat::PSWPIN, "from swap", Look::Strong),
        (vmstat::PSWPOUT, "to swap", Look::Plain),
        (vmstat::PGMAJFAULT, "major faults", Look::Dashed),
    ] {
        let values = plot.rate(&rows, column, 1.0);
        plot.add(name, look, values);
    }
    plot.into_chart(Frame {
        id: "swapping",
        title: "Swapping",
        about: "Pages per second. Tasks wait for pages read from swap, but not for pages written to it.",
        unit: Unit::PerSecond,
        scale: Scale::Linear,
    })
}

fn memory(recording: &Recording) -> Option<Chart> {
    let series = recording.table(Table::Meminfo)?;
    let (_, rows) = series.by_entity().next()?;
    let mut plot = Plot::over(recording, series);
    let columns: [Drawn; 6] = [
        (meminfo::MEM_FREE_BYTES, "free", Look::Strong),
        (meminfo::CACHED_BYTES, "page cache", Look::Plain),
        (meminfo::BUFFERS_CACHED_BYTES, "page cache", Look::Plain),
        (meminfo::BUFFERS_BYTES, "buffers", Look::Plain),
        (meminfo::SLAB_BYTES, "slab", Look::Plain),
        (meminfo::SWAP_USED_BYTES, "swap in use", Look::Dashed),
    ];
    levels(&mut plot, &rows, &columns);
    plot.into_chart(Frame {
        id: "memory",
        title: "Memory",
        about: "Free memory is low on every machine that has run for long: the rest is page cache.",
        unit: Unit::Bytes,
        scale: Scale::Linear,
    })
}

fn levels(plot: &mut Plot, rows: &Rows<'_>, columns: &[Drawn]) {
    for &(column, name, look) in columns {
        let values = plot.level(rows, column, 1.0);
        plot.add(name, look, values);
    }
}

/// Time per request, queue and busy time of the devices: one chart each, which share a place on the page.
fn devices(recording: &Recording) -> Vec<Chart> {
    let Some(series) = recording.table(Table::Disks) else { return Vec::new() };
    let measures: [(&str, Unit, fn(&Plot, &Rows<'_>) -> Vec<Option<f64>>); 3] = [
        ("time per request", Unit::Ns, |plot, rows| ratio(&time(plot, rows), &requests(plot, rows))),
        ("queue", Unit::Count, |plot, rows| {
            let queue = plot.rate(rows, disks::QUEUE_NS, 1e-9);
            if queue.iter().any(Option::is_some) { queue } else { scaled(&time(plot, rows), 1e-9) }
        }),
        ("busy", Unit::Share, |plot, rows| plot.rate(rows, disks::IO_NS, 1e-9)),
    ];
    let mut charts = Vec::new();
    for (choice, unit, measure) in measures {
        let mut plot = Plot::over(recording, series);
        let mut lines: Vec<(String, Vec<Option<f64>>)> =
            series.by_entity().map(|(entity, rows)| (entity.name.clone(), measure(&plot, &rows))).collect();
        let most = |line: &[Option<f64>]| line.iter().flatten().copied().fold(0.0, f64::max);
        lines.sort_short_by(|a, b| most(&b.1).total_cmp(&most(&a.1)));
        for (name, values) in lines.into_iter().take(DEVICES_MAX) {
            plot.add(name, Look::Plain, values);
        }
        let frame = Frame {
            id: "devices",
            title: "Devices",
            about: "The devices with the highest values. A device is slow if requests take long while its queue is short.",
            unit,
            scale: Scale::Linear,
        };
        charts.extend(plot.into_chart(frame).map(|chart| Chart { choice: choice.to_owned(), ..chart }));
    }
    charts
}

fn requests(plot: &Plot, rows: &Rows<'_>) -> Vec<Option<f64>> {
    let rate = |column| plot.rate(rows, column, 1.0);
    total(&rate(disks::REQUESTS), &[rate(disks::READS), rate(disks::WRITES)])
}

fn time(plot: &Plot, rows: &Rows<'_>) -> Vec<Option<f64>> {
    let rate = |column| plot.rate(rows, column, 1.0);
    total(&rate(disks::REQUEST_NS), &[rate(disks::READ_NS), rate(disks::WRITE_NS)])
}

/// The whole where the log gives it, else the sum of the parts: some tools print all three.
fn total(whole: &[Option<f64>], parts: &[Vec<Option<f64>>]) -> Vec<Option<f64>> {
    let sums = super::summed(parts);
    let length = whole.len().max(sums.len());
    let at = |values: &[Option<f64>], place: usize| values.get(place).copied().flatten();
    (0..length).map(|place| at(whole, place).or_else(|| at(&sums, place))).collect()
}

fn scaled(values: &[Option<f64>], factor: f64) -> Vec<Option<f64>> {
    values.iter().map(|value| value.map(|value| value * factor)).collect()
}

/// Quotients; missing where the count is missing or 0.
fn ratio(sums: &[Option<f64>], counts: &[Option<f64>]) -> Vec<Option<f64>> {
    let each = |(sum, count): (&Option<f64>, &Option<f64>)| Some((*sum)? / (*count).filter(|count| *count > 0.0)?);
    sums.iter().zip(counts).map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::total;

    /// iostat with tps beside r/s and w/s: each request was counted twice, so that each seemed to take half its time.
    #[test]
    fn requests_are_counted_once_if_a_log_gives_the_sum_and_its_parts() {
        let (reads, writes) = (vec![Some(30.0), Some(1.0), None], vec![Some(70.0), Some(2.0), None]);
        let parts = [reads, writes];
        assert_eq!(total(&[Some(100.0), None, None], &parts), [Some(100.0), Some(3.0), None]);
        assert_eq!(total(&[], &parts), [Some(100.0), Some(3.0), None]);
        assert_eq!(total(&[Some(5.0)], &[]), [Some(5.0)]);
    }
}
