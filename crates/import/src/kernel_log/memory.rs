//! Reads the memory state in page allocation failures and out-of-memory reports (mm/show_mem.c, earlier
//! mm/page_alloc.c: show_free_areas), and that of a cgroup in its reports.

use crate::builder::{Builder, Cell, Track};
use crate::error::ImportError;
use crate::number::{count, leading, number};
use crate::text::Line;
use flatwater_recording::schema::{Column, cgroup, meminfo, vmstat};
use flatwater_recording::{Entity, Table};

#[derive(Debug, Default)]
pub struct Memory {
    /// Size of a page, from the list of free blocks.
    page_kib: Option<i64>,
    zones: Vec<(u32, String, Vec<ZoneCell>)>,
    totals: Vec<(String, Cell)>,
    swap: Vec<(Column, Cell)>,
    /// Name of the current cgroup.
    cgroup: Option<String>,
    /// Values of the current cgroup, and of those before.
    cgroup_cells: Vec<(String, Cell)>,
    cgroups: Vec<(String, Vec<(String, Cell)>)>,
    /// Number of values beyond the limits.
    dropped: u64,
}

/// Maximum cgroups of one report.
const CGROUPS_MAX: usize = 4096;

/// Whether the line belongs to such a report, for logs without prefixes.
#[must_use]
pub fn is_memory(message: &str) -> bool {
    let text = message.trim();
    text.eq_ignore_ascii_case("Mem-Info:")
        || zone(text).is_some()
        || is_old(text)
        || is_zone_rest(text)
        || is_free_list(text)
        || text.starts_with("Free swap")
        || text.starts_with("lowmem_reserve[]:")
        || text.starts_with("Memory cgroup stats for")
        || ["memory: usage ", "swap: usage ", "kmem: usage ", "memory+swap: usage "]
            .iter()
            .any(|start| text.starts_with(start))
        || text.ends_with("pages RAM")
        || text.ends_with("total pagecache pages")
        || is_totals(text)
}

/// Whether kernels before 2.6.32 (mm/page_alloc.c: show_free_areas), including 2.4, print this line near the zones.
fn is_old(text: &str) -> bool {
    let per_cpu = ["hot:", "cold:", "hi:"].iter().any(|key| text.contains(key))
        && ["cpu ", "CPU "].iter().any(|start| text.starts_with(start));
    const ENDS: [&str; 7] = [
        "pages of RAM",
        "free pages",
        "reserved pages",
        "slab pages",
        "pages shared",
        "pages swap cached",
        "pages of HIGHMEM",
    ];
    per_cpu
        || text.ends_with("per-cpu:")
        || text.ends_with("per-cpu: empty")
        || text.starts_with("Free pages: ")
        || text.starts_with("Swap cache: add ")
        || text.starts_with("Swap cache stats: add ")
        || text.starts_with(|c: char| c.is_ascii_digit()) && ENDS.iter().any(|end| text.ends_with(end))
}

/// Whether the line is the second part of a zone's line that a mail program broke:
/// `present:16384kB pages_scanned:4446 all_unreclaimable? yes`.
fn is_zone_rest(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or_default();
    // Consoles cut lines at their width: `pages_scanned:1o`, `pages`.
    let last = text.split_whitespace().next_back().unwrap_or_default();
    let cut = |word: &str| {
        word == last && word.len() >= 4 && (word.starts_with("pages_s") || "pages_scanned:".starts_with(word))
    };
    let known = |word: &str| pair(word).is_some() || matches!(word, "all_unreclaimable?" | "yes" | "no") || cut(word);
    let of_zone = pair(first).is_some_and(|(_, _, kib)| kib)
        || first.starts_with("pages_scanned:")
        || matches!(text, "all_unreclaimable? yes" | "all_unreclaimable? no");
    of_zone && words.all(known)
}

/// Whether the line lists free blocks of a zone by order: `DMA: 1*4kB 0*8kB = 4kB`, `Normal: empty`, or the second part
/// of such a line.
fn is_free_list(text: &str) -> bool {
    let block = |word: &str| {
        word.split_once('*').is_some_and(|(count, size)| count.parse::<u64>().is_ok() && size.ends_with("kB"))
    };
    let other = |word: &str| word == "=" || word.starts_with('(') || word == "empty" || word.ends_with("kB");
    let rest = text.split_once(": ").filter(|(name, _)| is_zone_name(name)).map_or(text, |(_, rest)| rest);
    let named = rest.len() < text.len();
    let mut words = rest.split_whitespace();
    let Some(first) = words.next() else { return false };
    let begins = block(first) || named && first == "empty" || first == "=" && words.clone().count() == 1;
    begins && words.all(|word| block(word) || other(word))
}

/// The size of the smallest block in `Node 0 DMA: 3*64kB (U) 5*128kB (UM) = 832kB`.
fn page_kib(text: &str) -> Option<i64> {
    let (_, rest) = text.split_once(": ").filter(|(name, _)| is_zone_name(name))?;
    let (_, size) = rest.split_whitespace().next()?.split_once('*')?;
    count(size.strip_suffix("kB")?).filter(|kib| matches!(kib, 4 | 8 | 16 | 64))
}

/// Whether the text is `Node 0 Normal` or `HighMem`.
fn is_zone_name(text: &str) -> bool {
    let name = text.strip_prefix("Node ").and_then(|rest| rest.split_once(' ')).map_or(text, |(_, name)| name);
    ZONES.contains(&name)
}

const ZONES: [&str; 6] = ["DMA", "DMA32", "Normal", "HighMem", "Movable", "Device"];

/// Whether the line has machine-wide totals. Since 4.x they are one message of several lines, of which only the first
/// has a time.
fn is_totals(text: &str) -> bool {
    const FIRST: [&str; 18] = [
        "active",
        "inactive",
        "dirty",
        "slab",
        "inactive_anon",
        "inactive_file",
        "active_anon",
        "active_file",
        "unevictable",
        "slab_reclaimable",
        "mapped",
        "shmem",
        "free",
        "kernel_misc_reclaimable",
        "sec_pagetables",
        "pagetables",
        "bounce",
        "unstable",
    ];
    let mut words = text.split_whitespace();
    let first = words.clone().next().map(str::to_ascii_lowercase);
    first.as_deref().and_then(pair).is_some_and(|(name, _, kib)| FIRST.contains(&name) && !kib)
        && words.all(|word| pair(word).is_some())
}

/// Parses `Node 0 Normal free:1234kB min:...` and, before NUMA, `Normal free:...`.
fn zone(text: &str) -> Option<(u32, &str, &str)> {
    let (node, rest) = match text.strip_prefix("Node ") {
        Some(rest) => {
            let (node, rest) = leading(rest)?;
            (u32::try_from(node).ok()?, rest.trim_start())
        }
        None => (0, text),
    };
    let (name, fields) = rest.split_once(' ')?;
    (ZONES.contains(&name) && fields.trim_start().starts_with("free:")).then_some((node, name, fields))
}

/// Name, value, and whether it is in kB: `min:12kB`, `active_anon:34`.
fn pair(word: &str) -> Option<(&str, i64, bool)> {
    let (name, value) = word.split_once(':')?;
    let kib = value.ends_with("kB") || value.ends_with("KB");
    let value = value.trim_end_matches("kB").trim_end_matches("KB");
    Some((name, count(value)?, kib))
}

impl Memory {
    /// Whether a line of memory.stat is expected, below `Memory cgroup stats for`, and this is one.
    #[must_use]
    pub fn expects(&self, message: &str) -> bool {
        let mut words = message.split_whitespace();
        let name = words.next().unwrap_or_default();
        let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        self.cgroup.is_some()
            && plain
            && words.next().is_some_and(|value| count(value).is_some())
            && words.next().is_none()
    }

    pub fn line(&mut self, line: &Line<'_>, message: &str) -> Result<(), ImportError> {
        let text = message.trim();
        if let Some((node, name, fields)) = zone(text) {
            let cells = zone_cells(fields);
            if cells.len() < 2 {
                return Err(ImportError::short(line, "free:NkB min:NkB low:NkB high:NkB"));
            }
            if self.zones.len() < 4096 {
                self.zones.push((node, name.to_owned(), cells));
            } else {
                self.dropped += cells.len() as u64;
            }
        } else if is_zone_rest(text) {
            // No kernel prints more values of a zone: the line is repeated endlessly.
            let more = zone_cells(text);
            match self.zones.last_mut() {
                Some((_, _, cells)) if cells.len() < 128 => cells.extend(more),
                _ => self.dropped += more.len() as u64,
            }
        } else if let Some(kib) = page_kib(text) {
            self.page_kib = Some(kib);
        } else if is_old(text) || is_free_list(text) {
            // Known lines whose values are not used.
        } else if let Some(rest) = text.strip_prefix("Free swap").filter(|rest| rest.contains('=')) {
            self.swap.extend(after_equals(rest).map(|bytes| (meminfo::SWAP_FREE_BYTES, Cell::Gauge(bytes))));
        } else if let Some(rest) = text.strip_prefix("Total swap") {
            self.swap.extend(after_equals(rest).map(|bytes| (meminfo::SWAP_TOTAL_BYTES, Cell::Gauge(bytes))));
        } else if let Some(rest) = text.strip_prefix("memory: usage ") {
            self.usage(rest);
        } else if let Some(rest) = text.strip_prefix("Memory cgroup stats for ") {
            // Before 5.x the values are on the same line: `/jobs: cache:12KB rss:34KB`.
            let (name, fields) = rest.split_once(':').unwrap_or((rest, ""));
            self.begin_cgroup(name.trim());
            for (field, value, kib) in fields.split_whitespace().filter_map(pair) {
                let value = if kib { value.saturating_mul(1024) } else { value };
                self.cgroup_cells.push((field.to_owned(), Cell::Gauge(value)));
            }
        } else if let Some((name, value)) = text.split_once(' ').filter(|_| self.cgroup.is_some()) {
            // Since 5.x memory.stat follows, one value per line.
            let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            match count(value.trim()).filter(|_| plain) {
                Some(value) if self.cgroup_cells.len() < 256 => {
                    self.cgroup_cells.push((name.to_owned(), Cell::Gauge(value)));
                }
                Some(_) => self.dropped += 1,
                None => {}
            }
        } else if let Some((_, limit)) = text.split_once("killed as a result of limit of ") {
            self.begin_cgroup(limit.trim());
        } else if text.contains(':') && self.totals.len() < 256 {
            self.totals(text);
        }
        Ok(())
    }

    /// Begins the values of a cgroup. Values above the first name belong to it.
    fn begin_cgroup(&mut self, name: &str) {
        if let Some(before) = self.cgroup.replace(name.to_owned()).filter(|before| before != name)
            && !self.cgroup_cells.is_empty()
        {
            let cells = std::mem::take(&mut self.cgroup_cells);
            if self.cgroups.len() < CGROUPS_MAX {
                self.cgroups.push((before, cells));
            } else {
                self.dropped += cells.len() as u64;
            }
        }
    }

    /// Reads `active_anon:12 inactive_anon:3 isolated_anon:0`, pages of the whole machine.
    fn totals(&mut self, text: &str) {
        let pairs: Vec<(&str, i64, bool)> = text.split_whitespace().filter_map(pair).collect();
        if pairs.len() != text.split_whitespace().count() || pairs.iter().any(|(_, _, kib)| *kib) {
            return;
        }
        for (name, value, _) in pairs {
            let name = name.to_ascii_lowercase();
            let column = match name.as_str() {
                // Until 2.6.18 slab was one value.
                "slab" => vmstat::NR_SLAB.name.to_owned(),
                "free" => vmstat::NR_FREE_PAGES.name.to_owned(),
                "mapped" | "shmem" | "dirty" | "writeback" | "unstable" | "slab_reclaimable" | "slab_unreclaimable"
                | "bounce" => {
                    format!("nr_{name}")
                }
                _ if name.contains("_anon") || name.contains("_file") || name == "unevictable" => format!("nr_{name}"),
                _ => continue,
            };
            if !self.totals.iter().any(|(known, _)| *known == column) {
                self.totals.push((column, Cell::Gauge(value)));
            }
        }
    }

    /// Reads `524288kB, limit 524288kB, failcnt 123`.
    fn usage(&mut self, rest: &str) {
        let value = |text: &str| leading(text.trim()).and_then(|(value, _)| i64::try_from(value).ok());
        let mut push = |column: Column, value: Option<i64>| {
            self.cgroup_cells.extend(value.map(|value| (column.name.to_owned(), Cell::of(column.kind, value))));
        };
        let after = |key: &str| rest.split_once(key).and_then(|(_, rest)| value(rest));
        push(cgroup::USAGE_BYTES, value(rest).map(|kib| kib.saturating_mul(1024)));
        push(cgroup::LIMIT_BYTES, after("limit ").map(|kib| kib.saturating_mul(1024)));
        push(cgroup::EVENTS_MAX, after("failcnt "));
    }

    /// Whether lines of a Mem-Info report were parsed: zones, totals of the machine, or swap.
    fn is_reported(&self) -> bool {
        !(self.zones.is_empty() && self.totals.is_empty() && self.swap.is_empty())
    }

    pub fn push(self, place: (Track, i64), b: &mut Builder) {
        if self.is_reported() {
            b.memory_reported();
        }
        b.overflow_by("values of a kernel's report of memory", self.dropped);
        let page_kib = self.page_kib.unwrap_or_else(|| {
            if !self.zones.is_empty() {
                let why = "the report has no list of free blocks, which shows the size of a page: 4 KiB are assumed";
                b.gap("size of the pages in the kernel's report of memory", why, "paste the whole report");
            }
            4
        });
        for (node, name, cells) in &self.zones {
            b.node(*node);
            let pages: Vec<(&str, Cell)> =
                cells.iter().map(|zone| (zone.name.as_str(), zone.pages(page_kib))).collect();
            b.row(place, Table::Zones, &Entity::on_node(*node, name), &pages);
        }
        b.row(place, Table::Vmstat, &Entity::default(), &self.totals);
        b.row(place, Table::Meminfo, &Entity::default(), &self.swap);
        let last = (self.cgroup.unwrap_or_else(|| "unnamed".to_owned()), self.cgroup_cells);
        for (name, cells) in self.cgroups.iter().chain([&last]) {
            b.row(place, Table::Cgroup, &Entity::named(name), cells);
        }
    }
}

/// A value of a zone.
#[derive(Debug)]
struct ZoneCell {
    name: String,
    value: i64,
    /// The value is in KiB, not pages.
    kib: bool,
}

impl ZoneCell {
    fn pages(&self, page_kib: i64) -> Cell {
        Cell::Gauge(if self.kib { self.value / page_kib } else { self.value })
    }
}

/// Reads `free:1234kB min:12kB ...`, with the names of /proc/zoneinfo.
fn zone_cells(fields: &str) -> Vec<ZoneCell> {
    let mut cells = Vec::new();
    for word in fields.split_whitespace() {
        let Some((field, value, kib)) = pair(word) else { continue };
        let name = match field {
            "free" | "boost" | "min" | "low" | "high" | "present" | "managed" | "spanned" => field.to_owned(),
            "all_unreclaimable?" | "pages_scanned" => continue,
            _ => format!("nr_{field}"),
        };
        cells.push(ZoneCell { name, value, kib });
    }
    cells
}

/// The bytes in `  = 1234kB`.
fn after_equals(text: &str) -> Option<i64> {
    let value = text.split_once('=')?.1.trim();
    let kib = number(value.trim_end_matches("kB").trim())?;
    Some((kib * 1024.0) as i64)
}

#[cfg(test)]
mod tests {
    use super::{Memory, is_memory};
    use crate::text::{Cursor, Text};

    /// Output of 2.6.10, broken by a mail program.
    const OLD: [&str; 11] = [
        "DMA per-cpu:",
        "cpu 0 hot: low 2, high 6, batch 1",
        "HighMem per-cpu: empty",
        "Free pages:        7260kB (0kB HighMem)",
        "Active:62385 inactive:850 dirty:0 writeback:0 unstable:0 free:1815 slab:120136",
        "mapped:62334 pagetables:2110",
        "Normal free:4184kB min:3468kB low:4332kB high:5200kB active:246212kB",
        "inactive:3400kB present:769472kB pages_scanned:3834 all_unreclaimable? no",
        "DMA: 1*4kB 0*8kB 0*16kB 0*32kB 0*64kB 0*128kB 0*256kB 0*512kB 1*1024kB",
        "1*2048kB 0*4096kB = 3076kB",
        "HighMem: empty",
    ];

    #[test]
    fn all_lines_of_an_old_kernels_report_are_known() {
        let mut memory = Memory::default();
        let text = Text::new(OLD.join("\n").as_bytes());
        let mut cursor = Cursor::new(&text);
        while let Some(line) = cursor.take() {
            assert!(is_memory(line.text), "{}", line.text);
            memory.line(&line, line.text).expect("a line of the report");
        }
        let cell = |cells: &[(String, crate::builder::Cell)], name: &str| cells.iter().any(|(known, _)| known == name);
        assert!(cell(&memory.totals, "nr_slab") && cell(&memory.totals, "nr_dirty"));
        let (_, name, zone) = &memory.zones[0];
        let has = |name: &str| zone.iter().any(|cell| cell.name == name);
        assert!(name == "Normal" && has("present") && has("nr_inactive") && memory.zones.len() == 1);
    }

    #[test]
    fn lines_that_a_console_cut_are_read_up_to_the_cut() {
        let text =
            Text::new(b"Normal free:21604kB min:3756kB active:276kB\ninactive:188kB present:901120kB pages_scanned:1o");
        let (mut memory, mut cursor) = (Memory::default(), Cursor::new(&text));
        while let Some(line) = cursor.take() {
            assert!(is_memory(line.text), "{}", line.text);
            memory.line(&line, line.text).expect("a line of the report");
        }
        assert!(memory.zones[0].2.iter().any(|cell| cell.name == "present"));
        assert!(!is_memory("inactive:188kB present:901120kB words"));
    }

    #[test]
    fn prose_is_not_a_memory_report() {
        for text in ["yes we can", "no", "DMA: a zone", "12 pages of RAM disks", "Active: yes", "a 4*4kB table"] {
            assert!(!is_memory(text), "{text}");
        }
    }
}
