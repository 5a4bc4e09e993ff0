//! Takes one sample: reads each file and fills the rows of the file's table.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::Drained;
use super::options::SamplerOptions;
use super::sources::{self, Reads, Source};
use crate::proc::sheet::{Filled, Sheet};
use crate::proc::text::single_number;
use crate::proc::{
    KernelFile, bdi, buddyinfo, cgroup, disk, flat, meminfo, pressure, slabinfo, stat, vmstat, zoneinfo,
};
use flatwater_recording::{Gap, Series, Table};

const BEYOND: &str = "values near 2^64, as from a counter that fell below zero; they are ignored";
/// With more CPUs than this, the line of each CPU is read once a second instead of in every sample.
const CPUS_EACH_TIME: usize = 16;

#[derive(Debug)]
pub struct Probe {
    sources: Vec<Source>,
    slabinfo: Option<KernelFile>,
    buffer: Vec<u8>,
    sheets: Sheets,
    /// Columns for which values near 2^64 have been reported.
    beyond: BTreeSet<(Table, String)>,
    pub(super) gaps: Vec<Gap>,
    samples: u64,
    rate: u64,
    cpus: usize,
    page_bytes: u64,
    tick_ns: i64,
}

/// Emptied rows, whose memory the next drain reuses.
#[derive(Debug, Default)]
pub struct Spare {
    filled: [Filled; SHEETS],
}

const SHEETS: usize = 11;

#[derive(Debug)]
struct Sheets {
    zones: Sheet,
    vmstat: Sheet,
    meminfo: Sheet,
    nodes: Sheet,
    slabs: Sheet,
    pressure: Sheet,
    cgroup: Sheet,
    disks: Sheet,
    writeback: Sheet,
    cpu: Sheet,
    buddy: Sheet,
}

impl Sheets {
    fn new() -> Sheets {
        Sheets {
            zones: Sheet::new(Table::Zones),
            vmstat: Sheet::new(Table::Vmstat),
            meminfo: Sheet::new(Table::Meminfo),
            nodes: Sheet::new(Table::Nodes),
            slabs: Sheet::new(Table::Slabs),
            pressure: Sheet::new(Table::Pressure),
            cgroup: Sheet::new(Table::Cgroup),
            disks: Sheet::new(Table::Disks),
            writeback: Sheet::new(Table::Writeback),
            cpu: Sheet::new(Table::Cpu),
            buddy: Sheet::new(Table::Buddy),
        }
    }

    fn all(&mut self) -> [&mut Sheet; SHEETS] {
        [
            &mut self.zones,
            &mut self.vmstat,
            &mut self.meminfo,
            &mut self.nodes,
            &mut self.slabs,
            &mut self.pressure,
            &mut self.cgroup,
            &mut self.disks,
            &mut self.writeback,
            &mut self.cpu,
            &mut self.buddy,
        ]
    }
}

impl Probe {
    /// Opens all files that this machine has.
    #[must_use]
    pub fn open(options: &SamplerOptions) -> Probe {
        let (sources, mut gaps) = sources::open(options);
        let slabs = options.root.join("proc/slabinfo");
        let slabinfo = KernelFile::open(&slabs);
        if let Err(error) = &slabinfo {
            gaps.push(Gap::new(slabs.display().to_string(), error.to_string(), "run as root"));
        }
        Probe {
            sources,
            slabinfo: slabinfo.ok(),
            buffer: Vec::new(),
            sheets: Sheets::new(),
            beyond: BTreeSet::new(),
            gaps,
            samples: 0,
            rate: u64::from(options.rate()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            page_bytes: rustix::param::page_size() as u64,
            tick_ns: 1_000_000_000 / i64::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100).max(1),
        }
    }

    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The files that are read in every sample.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.sources.iter().map(|source| source.file.path().to_owned()).collect()
    }

    /// Reads all files but slabinfo. All rows of a sample have the same time.
    pub fn sample(&mut self, at_ns: u64) {
        let each_cpu = self.cpus <= CPUS_EACH_TIME || self.samples.is_multiple_of(self.rate);
        self.samples += 1;
        for source in &mut self.sources {
            let text = source.file.read(&mut self.buffer).and_then(|text| match text {
                [] => Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof)),
                _ => Ok(text),
            });
            match text {
                Ok(text) => {
                    let moment = Moment { at_ns, each_cpu, page_bytes: self.page_bytes, tick_ns: self.tick_ns };
                    fill(&source.reads, text, &moment, &mut self.sheets);
                }
                Err(error) if !source.failing => {
                    source.failing = true;
                    let gap = sources::gap(source.file.path(), &source.reads, &error);
                    self.gaps.push(gap.since(at_ns));
                }
                Err(_) => {}
            }
        }
    }

    pub fn sample_slabs(&mut self, at_ns: u64) {
        let Some(file) = &mut self.slabinfo else { return };
        match file.read(&mut self.buffer) {
            Ok(text) => slabinfo::read(text, at_ns, &mut self.sheets.slabs),
            Err(error) => {
                self.gaps.push(Gap::new(file.path().display().to_string(), error.to_string(), "run as root"));
                self.slabinfo = None;
            }
        }
    }

    /// Reserves memory for this many samples like those taken so far.
    pub fn reserve(&mut self, spare: &mut Spare, samples: usize) {
        for (sheet, filled) in self.sheets.all().into_iter().zip(&mut spare.filled) {
            sheet.reserve(filled, samples);
        }
    }

    /// Whether fewer than `moments` samples wait to be drained.
    #[must_use]
    pub fn has_room(&self, moments: usize) -> bool {
        self.sheets.meminfo.len().max(self.sheets.vmstat.len()) < moments
    }

    /// Returns the rows and gaps since the last call.
    pub fn drain(&mut self, spare: &mut Spare) -> Drained {
        let mut series: Vec<Series> = Vec::new();
        for (sheet, filled) in self.sheets.all().into_iter().zip(&mut spare.filled) {
            if !sheet.is_empty() {
                sheet.swap(filled);
                series.push(sheet.series(filled));
            }
            let table = sheet.table();
            self.gaps.extend(sheet.take_reached().into_iter().map(|limit| limit.gap(table)));
            for column in sheet.take_beyond() {
                // Once per column: a counter that fell below zero usually stays there.
                if self.beyond.insert((table, column.clone())) {
                    self.gaps.push(Gap::new(format!("{}: {column}", table.name()), BEYOND, ""));
                }
            }
        }
        Drained { series, gaps: std::mem::take(&mut self.gaps) }
    }
}

/// The values that all readers of one sample share.
struct Moment {
    at_ns: u64,
    each_cpu: bool,
    page_bytes: u64,
    tick_ns: i64,
}

fn fill(reads: &Reads, text: &[u8], moment: &Moment, sheets: &mut Sheets) {
    let at_ns = moment.at_ns;
    match reads {
        Reads::Zoneinfo => zoneinfo::read(text, at_ns, &mut sheets.zones, &mut sheets.nodes),
        Reads::Vmstat => vmstat::read(text, at_ns, moment.page_bytes, &mut sheets.vmstat, &mut sheets.writeback),
        Reads::Meminfo => {
            sheets.meminfo.open(at_ns, None, b"");
            meminfo::read(text, "", &mut sheets.meminfo);
        }
        Reads::Stat => stat::read(text, at_ns, moment.tick_ns, moment.each_cpu, &mut sheets.cpu),
        Reads::Buddyinfo => buddyinfo::read(text, at_ns, &mut sheets.buddy),
        Reads::Pressure(resource) => {
            sheets.pressure.open(at_ns, None, resource.as_bytes());
            pressure::read(text, &mut sheets.pressure, &pressure::OF_MACHINE);
        }
        Reads::Numastat(node) => {
            sheets.nodes.open(at_ns, Some(*node), b"");
            flat::read(text, "numastat", &mut sheets.nodes);
        }
        Reads::NodeMeminfo(node) => {
            sheets.nodes.open(at_ns, Some(*node), b"");
            meminfo::read(text, "meminfo", &mut sheets.nodes);
        }
        Reads::Disk(name) => {
            sheets.disks.open(at_ns, None, name.as_bytes());
            disk::read(text, &mut sheets.disks);
        }
        Reads::BdiStats(number) => {
            sheets.writeback.open(at_ns, None, number.as_bytes());
            bdi::read(text, &mut sheets.writeback);
        }
        Reads::BdiSize(number, column) => {
            sheets.writeback.open(at_ns, None, number.as_bytes());
            sheets.writeback.put_column("bdi", *column, single_number(text));
        }
        Reads::Cgroup(name, file) => {
            sheets.cgroup.open(at_ns, None, name.as_bytes());
            cgroup::read(text, *file, &mut sheets.cgroup);
        }
    }
}
