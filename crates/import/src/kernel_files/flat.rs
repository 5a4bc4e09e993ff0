//! Reads files of `name value` lines: /proc/vmstat, and memory.stat and memory.events of a cgroup.

use std::collections::HashSet;

use super::without_path;
use crate::anchors::Anchor;
use crate::builder::{Builder, Cell};
use crate::error::ImportError;
use crate::number::count;
use crate::text::{Cursor, Line};
use crate::{FormatKind, Importer};
use flatwater_recording::schema::{cgroup, stored};
use flatwater_recording::{Entity, Table};

pub const VMSTAT_FILE: Importer = Importer {
    name: "proc-vmstat",
    sentence: "/proc/vmstat from 2.6 on, complete or in parts.",
    kind: FormatKind::Unjudged,
    anchors: &[Anchor::Table(&[
        "nr_",
        "numa_",
        "allocstall",
        "kswapd_",
        "thp_",
        "compact_",
        "workingset_",
        "zone_reclaim_",
        "pgpg",
        "pgalloc",
        "pgfree",
        "pgactivate",
        "pgdeactivate",
        "pgfault",
        "pgmajfault",
        "pgrefill",
        "pgsteal",
        "pgscan",
        "pginodesteal",
        "pgrotated",
        "pgmigrate",
        "pgreuse",
        "pglazyfree",
        "pgskip",
        "pgdemote",
        "pgpromote",
        "pswp",
        "pageoutrun",
        "drop_pagecache",
        "drop_slab",
        "slabs_scanned",
        "unevictable_pgs",
    ])],
    detect: |cursor| if parse(cursor.next_text()).is_some_and(|(_, name, _)| is_vmstat(name)) { 70 } else { 0 },
    read: |cursor, b| read(cursor, b, File::Vmstat),
};

pub const CGROUP: Importer = Importer {
    name: "cgroup",
    sentence: "A cgroup's memory.stat, memory.events and limits, v1 and v2.",
    kind: FormatKind::Group,
    anchors: &[
        Anchor::Table(&[
            "/memory.",
            "inactive_anon",
            "active_anon",
            "inactive_file",
            "active_file",
            "hierarchical_memory_limit",
            "total_",
        ]),
        Anchor::Common(&[
            "anon ", "anon\t", "anon=", "anon:", "cache ", "cache\t", "cache=", "cache:", "low ", "low\t", "low=",
            "low:",
        ]),
    ],
    detect: |cursor| match parse(cursor.next_text()) {
        Some((path, _, _)) if path.contains("/memory.") => 90,
        Some((_, name, _)) if begins_stat(cursor, name) || begins_events(cursor, name) => 80,
        None if path_line(cursor.next_text()).is_some_and(|path| path.contains("/memory.")) => 90,
        _ => 0,
    },
    read: |cursor, b| read(cursor, b, File::Cgroup),
};

#[derive(Clone, Copy, PartialEq)]
enum File {
    Vmstat,
    Cgroup,
}

/// Parses `pgfault 12`, also after `/proc/vmstat:`, as path, name and value.
fn parse(text: &str) -> Option<(&str, &str, &str)> {
    let (path, text) = without_path(text.trim());
    // People write `key = 12 # note`, and `key: 12`.
    let text = super::without_remark(text);
    let mut words = text.split([' ', '\t', '=']).filter(|word| !word.is_empty());
    let (name, value) = (words.next()?, words.next().unwrap_or_default());
    let name = name.strip_suffix(':').unwrap_or(name);
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    (plain && words.next().is_none() && value.starts_with(|c: char| c.is_ascii_digit())).then_some((path, name, value))
}

fn is_vmstat(name: &str) -> bool {
    let families =
        ["nr_", "pg", "psw", "numa_", "allocstall", "kswapd_", "thp_", "compact_", "workingset_", "zone_reclaim_"];
    families.iter().any(|family| name.starts_with(family))
        || matches!(
            name,
            "slabs_scanned"
                | "pageoutrun"
                | "drop_pagecache"
                | "drop_slab"
                | "kswapd_steal"
                | "unevictable_pgs_scanned"
        )
}

/// Whether memory.stat begins here, with `anon` (v2) or `cache` (v1). The second line excludes other files of two-word
/// lines.
fn begins_stat(cursor: &Cursor<'_>, name: &str) -> bool {
    let second = cursor.ahead(1).and_then(|line| parse(line.text).map(|(_, name, _)| name));
    match name {
        "anon" => second == Some("file"),
        "cache" => second == Some("rss"),
        "inactive_anon" | "active_anon" | "inactive_file" | "active_file" | "hierarchical_memory_limit" => true,
        _ => name.starts_with("total_") && name != "total_swap",
    }
}

fn begins_events(cursor: &Cursor<'_>, name: &str) -> bool {
    name == "low" && cursor.ahead(1).is_some_and(|line| line.text.trim().starts_with("high "))
}

/// The path in `==> /sys/fs/cgroup/jobs/memory.stat <==` of head and tail, `/sys/fs/cgroup/jobs/memory.stat:`, or
/// alone.
pub fn path_line(text: &str) -> Option<&str> {
    let inner = text.trim().trim_start_matches("==>").trim_end_matches("<==").trim().trim_end_matches(':');
    (inner.starts_with('/') && !inner.contains(char::is_whitespace) && inner.contains("/memory.")).then_some(inner)
}

/// The cgroup of a path: `/sys/fs/cgroup/memory/jobs/feed/memory.stat` is in `/jobs/feed`.
fn cgroup_of(path: &str) -> String {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let inner = folder.strip_prefix("/sys/fs/cgroup").unwrap_or(folder);
    let inner = inner.strip_prefix("/memory").or(inner.strip_prefix("/unified")).unwrap_or(inner);
    if inner.is_empty() { "/".to_owned() } else { inner.to_owned() }
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder, file: File) -> Result<(), ImportError> {
    let place = b.snapshot(if file == File::Vmstat { "proc-vmstat" } else { "cgroup" });
    let mut path: String = b.context().command.as_deref().and_then(path_of_command).unwrap_or_default();
    let mut cells: Vec<(String, Cell)> = Vec::new();
    let mut names: HashSet<String> = HashSet::new();
    let flush = |b: &mut Builder, path: &str, cells: &mut Vec<(String, Cell)>| {
        let entity = if file == File::Vmstat { Entity::default() } else { Entity::named(&cgroup_of(path)) };
        let table = if file == File::Vmstat { Table::Vmstat } else { Table::Cgroup };
        b.row(place, table, &entity, &std::mem::take(cells));
    };
    while let Some(line) = cursor.peek() {
        let below = cursor.ahead(1).and_then(|line| path_line(line.text));
        if line.is_blank() && below.is_some_and(|below| cgroup_of(below) == cgroup_of(&path)) {
            cursor.take();
            continue;
        }
        if let Some(next) = path_line(line.text).filter(|_| file == File::Cgroup) {
            cursor.take();
            if cgroup_of(next) != cgroup_of(&path) {
                flush(b, &path, &mut cells);
            }
            next.clone_into(&mut path);
            if let Some(cell) = limit(cursor, &path) {
                cells.push(cell);
            }
            continue;
        }
        let Some((own_path, name, value)) = parse(line.text) else {
            let single = without_path(line.text.trim());
            if file == File::Cgroup && single.0.contains("/memory.") {
                cursor.take();
                cells.extend(limit_cell(single.0, single.1));
                continue;
            }
            break;
        };
        if !own_path.is_empty() && own_path != path {
            if cgroup_of(own_path) != cgroup_of(&path) && !path.is_empty() {
                flush(b, &path, &mut cells);
            }
            own_path.clone_into(&mut path);
        }
        let column = if is_event(name, &cells, &path) { format!("events_{name}") } else { name.to_owned() };
        // A repeated name begins the next snapshot.
        if cells.is_empty() {
            names.clear();
        }
        if !names.insert(column.clone()) {
            break;
        }
        cursor.take();
        match cell(&line, name, value, file) {
            Ok(cell) => cells.push((column, cell)),
            Err(error) => b.problem(error),
        }
    }
    flush(b, &path, &mut cells);
    Ok(())
}

fn path_of_command(command: &str) -> Option<String> {
    command.split_whitespace().find(|word| word.starts_with('/')).map(str::to_owned)
}

fn is_event(name: &str, cells: &[(String, Cell)], path: &str) -> bool {
    let known = matches!(name, "low" | "high" | "max" | "oom" | "oom_kill" | "oom_group_kill" | "sock_throttled");
    known && (path.contains("memory.events") || name == "low" || cells.iter().any(|(known, _)| known == "events_low"))
}

/// Reads the value of a limit file, on the line below its path.
fn limit(cursor: &mut Cursor<'_>, path: &str) -> Option<(String, Cell)> {
    let line = cursor.peek()?;
    let cell = limit_cell(path, line.text.trim())?;
    cursor.take();
    Some(cell)
}

fn limit_cell(path: &str, value: &str) -> Option<(String, Cell)> {
    let column = match path.rsplit_once('/')?.1 {
        "memory.max" | "memory.limit_in_bytes" => cgroup::LIMIT_BYTES,
        "memory.current" | "memory.usage_in_bytes" => cgroup::USAGE_BYTES,
        "memory.high" => cgroup::HIGH_BYTES,
        "memory.max_usage_in_bytes" | "memory.peak" => cgroup::PEAK_BYTES,
        "memory.failcnt" => cgroup::EVENTS_MAX,
        _ => return None,
    };
    // `max` means no limit, and so does the largest number of pages in v1.
    let value = count(value).filter(|value| *value < i64::MAX - (1 << 20))?;
    Some((column.name.to_owned(), Cell::of(column.kind, value)))
}

fn cell(line: &Line<'_>, name: &str, value: &str, file: File) -> Result<Cell, ImportError> {
    let token = crate::text::Token { text: value, column: line.column_of(value) };
    let value = count(value).ok_or_else(|| ImportError::at(line, token, format!("a number for '{name}'")))?;
    let table = if file == File::Vmstat { Table::Vmstat } else { Table::Cgroup };
    Ok(Cell::of(stored(table, name).1, value))
}
