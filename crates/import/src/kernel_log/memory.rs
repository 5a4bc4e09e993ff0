//! The memory state that page allocation failures and out-of-memory reports print (mm/show_mem.c, once mm/page_alloc.c:
//! show_free_areas), and a cgroup's under its own.

use crate::builder::{Builder, Cell, Track};
use crate::error::ImportError;
use crate::number::{count, leading, number};
use crate::text::Line;
use flatwater_recording::schema::{cgroup, meminfo, vmstat};
use flatwater_recording::{Column, Entity, Table};

#[derive(Debug, Default)]
pub struct Memory {
    zones: Vec<(u32, String, Vec<(String, Cell)>)>,
    totals: Vec<(String, Cell)>,
    swap: Vec<(Column, Cell)>,
    cgroup: Option<String>,
    cgroup_cells: Vec<(String, Cell)>,
}

/// Lines that belong to such a report, for logs without prefixes.
#[must_use]
pub fn is_memory(message: &str) -> bool {
    let text = message.trim();
    text == "Mem-Info:"
        || zone(text).is_some()
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

/// A line of machine-wide totals. From 4.x on they are one message of several lines, so that all but the first
/// carry no time.
fn is_totals(text: &str) -> bool {
    const FIRST: [&str; 12] = [
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
    words.clone().next().and_then(pair).is_some_and(|(name, _, kib)| FIRST.contains(&name) && !kib)
        && words.all(|word| pair(word).is_some())
}

/// `Node 0 Normal free:1234kB min:...` and, before NUMA, `Normal free:...`.
fn zone(text: &str) -> Option<(u32, &str, &str)> {
    let (node, rest) = match text.strip_prefix("Node ") {
        Some(rest) => {
            let (node, rest) = leading(rest)?;
            (u32::try_from(node).ok()?, rest.trim_start())
        }
        None => (0, text),
    };
    let (name, fields) = rest.split_once(' ')?;
    let known = ["DMA", "DMA32", "Normal", "HighMem", "Movable", "Device"].contains(&name);
    (known && fields.trim_start().starts_with("free:")).then_some((node, name, fields))
}

/// `min:12kB`, `active_anon:34` -> name, value, whether it is in kB.
fn pair(word: &str) -> Option<(&str, i64, bool)> {
    let (name, value) = word.split_once(':')?;
    let kib = value.ends_with("kB") || value.ends_with("KB");
    let value = value.trim_end_matches("kB").trim_end_matches("KB");
    Some((name, count(value)?, kib))
}

impl Memory {
    /// A line of memory.stat under `Memory cgroup stats for`.
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
            let mut cells = Vec::new();
            for word in fields.split_whitespace() {
                let Some((field, value, kib)) = pair(word) else { continue };
                // Pages, as in /proc/zoneinfo, and under its names.
                let pages = if kib { value / 4 } else { value };
                let column = match field {
                    "free" | "boost" | "min" | "low" | "high" | "present" | "managed" | "spanned" => field.to_owned(),
                    "all_unreclaimable?" | "pages_scanned" => continue,
                    _ => format!("nr_{field}"),
                };
                cells.push((column, Cell::Gauge(pages)));
            }
            if cells.len() < 2 {
                return Err(ImportError::short(line, "free:NkB min:NkB low:NkB high:NkB"));
            }
            if self.zones.len() < 4096 {
                self.zones.push((node, name.to_owned(), cells));
            }
        } else if let Some(rest) = text.strip_prefix("Free swap") {
            self.swap.extend(after_equals(rest).map(|bytes| (meminfo::SWAP_FREE_BYTES, Cell::Gauge(bytes))));
        } else if let Some(rest) = text.strip_prefix("Total swap") {
            self.swap.extend(after_equals(rest).map(|bytes| (meminfo::SWAP_TOTAL_BYTES, Cell::Gauge(bytes))));
        } else if let Some(rest) = text.strip_prefix("memory: usage ") {
            self.usage(rest);
        } else if let Some(rest) = text.strip_prefix("Memory cgroup stats for ") {
            // Before 5.x the figures stand on the same line: `/jobs: cache:12KB rss:34KB`.
            let (name, fields) = rest.split_once(':').unwrap_or((rest, ""));
            self.cgroup = Some(name.trim().to_owned());
            for (field, value, kib) in fields.split_whitespace().filter_map(pair) {
                let value = if kib { value.saturating_mul(1024) } else { value };
                self.cgroup_cells.push((field.to_owned(), Cell::Gauge(value)));
            }
        } else if let Some((name, value)) = text.split_once(' ').filter(|_| self.cgroup.is_some()) {
            // From 5.x on memory.stat follows, a line each.
            let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            if let Some(value) = count(value.trim()).filter(|_| plain && self.cgroup_cells.len() < 256) {
                self.cgroup_cells.push((name.to_owned(), Cell::Gauge(value)));
            }
        } else if let Some((_, limit)) = text.split_once("killed as a result of limit of ") {
            self.cgroup = Some(limit.trim().to_owned());
        } else if text.contains(':') && self.totals.len() < 256 {
            self.totals(text);
        }
        Ok(())
    }

    /// `active_anon:12 inactive_anon:3 isolated_anon:0`: pages of the whole machine.
    fn totals(&mut self, text: &str) {
        let pairs: Vec<(&str, i64, bool)> = text.split_whitespace().filter_map(pair).collect();
        if pairs.len() != text.split_whitespace().count() || pairs.iter().any(|(_, _, kib)| *kib) {
            return;
        }
        for (name, value, _) in pairs {
            let column = match name {
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

    /// `524288kB, limit 524288kB, failcnt 123`.
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

    pub fn push(self, place: (Track, i64), b: &mut Builder) {
        for (node, name, cells) in &self.zones {
            b.node(*node);
            b.row(place, Table::Zones, &Entity::on_node(*node, name), cells);
        }
        b.row(place, Table::Vmstat, &Entity::default(), &self.totals);
        b.row(place, Table::Meminfo, &Entity::default(), &self.swap);
        if !self.cgroup_cells.is_empty() {
            let name = self.cgroup.as_deref().unwrap_or("unnamed");
            b.row(place, Table::Cgroup, &Entity::named(name), &self.cgroup_cells);
        }
    }
}

/// `  = 1234kB` -> bytes.
fn after_equals(text: &str) -> Option<i64> {
    let value = text.split_once('=')?.1.trim();
    let kib = number(value.trim_end_matches("kB").trim())?;
    Some((kib * 1024.0) as i64)
}
