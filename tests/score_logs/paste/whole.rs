//! Text around a paste, and missing parts of a paste.

use super::{Files, Paste};
use crate::score_logs::corpus::Kind;

/// Concatenates all files under the first name.
pub fn joined(paste: &Paste<'_>) -> Option<Files> {
    let (name, _) = paste.files.first().filter(|_| paste.files.len() > 1)?;
    let texts: Vec<&str> = paste.files.iter().map(|(_, text)| text.as_str()).collect();
    Some(vec![(name.clone(), texts.join("\n"))])
}

pub fn prompts(paste: &Paste<'_>) -> Option<Files> {
    paste.texts(|text| {
        format!("[root@db1 ~]# cat /tmp/out\n{}\n[root@db1 ~]# \n[root@db1 ~]# exit\n", text.trim_end_matches('\n'))
    })
}

const ABOVE: &str = "Hello all,\n\nour shop has been slow since last week, and the team is puzzled. Below is what we \
    collected;\nthe machine is in the second data centre, and the support contract has ended.\n";
const BELOW: &str = "Any hint is welcome, and I can send more on Monday.\n\nBest regards,\nJane\n";

pub fn prose(paste: &Paste<'_>) -> Option<Files> {
    paste.texts(|text| format!("{ABOVE}\n{}\n\n{BELOW}", text.trim_end_matches('\n')))
}

pub fn prose_tight(paste: &Paste<'_>) -> Option<Files> {
    paste.texts(|text| format!("{ABOVE}{}\n{BELOW}", text.trim_end_matches('\n')))
}

const TOOLS: &str = "$ lsblk\n\
    NAME   MAJ:MIN RM   SIZE RO TYPE MOUNTPOINTS\n\
    xvdq   202:256  0    20G  0 disk\n\
    `-xvdq1 202:257 0    20G  0 part /srv\n\
    $ df -h\n\
    Filesystem      Size  Used Avail Use% Mounted on\n\
    /dev/xvdq1       20G  7.1G   13G  36% /srv\n\
    $ hostname\n\
    db1\n";

pub fn other_tools(paste: &Paste<'_>) -> Option<Files> {
    paste.texts(|text| format!("{TOOLS}\n{text}"))
}

const IDLE: &str = "$ vmstat 1 4\n\
    procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----\n \
    r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st\n \
    0  0      0 6120344  81232 1203312    0    0     1     3   12   20  0  0 100  0  0\n \
    0  0      0 6120344  81232 1203312    0    0     0     0   98  160  0  0 100  0  0\n \
    0  0      0 6120312  81232 1203316    0    0     0     8  101  166  0  0 100  0  0\n \
    0  0      0 6120312  81232 1203316    0    0     0     0   95  158  0  0 100  0  0\n";

/// Only for logs with a cause: for a log that cannot be judged, an idle machine would be evidence.
pub fn idle_vmstat(paste: &Paste<'_>) -> Option<Files> {
    let counters = ["vmstat", "sar", "mpstat", "top", "iostat", "dstat", "atop", "collectl", "free", "meminfo"];
    if paste.log.kind() != Kind::Cause || paste.is_of(&counters) {
        return None;
    }
    let mut files = paste.files.to_vec();
    let (_, first) = files.first_mut()?;
    *first = format!("{IDLE}\n{first}");
    Some(files)
}

pub fn twice(paste: &Paste<'_>) -> Option<Files> {
    paste.texts(|text| format!("{text}\n{text}"))
}

/// Removes lines of a single-file log at its head or end, if none of them decided the answer.
fn lost(paste: &Paste<'_>, keep: impl Fn(usize, usize) -> std::ops::Range<usize>) -> Option<Files> {
    let [(name, text)] = paste.files else { return None };
    let count = text.lines().count();
    let left = keep(count, count / 10);
    let all_left = paste
        .decided
        .iter()
        .all(|(file, first, last)| file == name && *first as usize > left.start && (*last as usize) <= left.end);
    if paste.decided.is_empty() || !all_left {
        return None;
    }
    paste.kept(|at, _| left.contains(&at))
}

pub fn head_lost(paste: &Paste<'_>) -> Option<Files> {
    lost(paste, |count, tenth| tenth..count)
}

pub fn tail_lost(paste: &Paste<'_>) -> Option<Files> {
    lost(paste, |count, tenth| 0..count - tenth)
}

/// Removes the first matching line.
fn without_first(paste: &Paste<'_>, is: impl Fn(&str, &str) -> bool) -> Option<Files> {
    let files = paste.texts(|text| {
        let found = text.lines().position(|line| is(line, text));
        let left = text.lines().enumerate().filter(|(at, _)| Some(*at) != found);
        left.map(|(_, line)| format!("{line}\n")).collect()
    })?;
    let lines = |files: &[(String, String)]| files.iter().map(|(_, text)| text.lines().count()).sum::<usize>();
    (lines(&files) < lines(paste.files)).then_some(files)
}

pub fn no_banner(paste: &Paste<'_>) -> Option<Files> {
    without_first(paste, |line, _| {
        let line = line.trim_start();
        line.starts_with("Linux ") && line.contains('(') && line.contains('/')
            || ["procs -", "slabinfo - version", "top - "].iter().any(|start| line.starts_with(start))
    })
}

/// Removes a header that readers can do without: the rows of these tables are recognizable, and iostat and sar repeat
/// theirs.
pub fn no_header(paste: &Paste<'_>) -> Option<Files> {
    without_first(paste, |line, text| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let alone = [&["r", "b", "swpd"][..], &["#", "name"], &["OBJS", "ACTIVE"], &["USER", "PID"], &["PID", "USER"]];
        let later = text.lines().filter(|other| other.split_whitespace().eq(words.iter().copied())).count() > 1;
        alone.iter().any(|head| words.starts_with(head))
            || later && words.first().is_some_and(|first| first.trim_end_matches(':') == "Device")
    })
}

/// Moves every second timestamp that has a zone into a zone 5 h 30 min east.
pub fn two_zones(paste: &Paste<'_>) -> Option<Files> {
    paste.lines(|at, line| {
        let Some((word, rest)) = line.split_once(' ') else { return line.to_owned() };
        let zoned = ["+00:00", "+0000", "Z"].iter().find_map(|zone| word.strip_suffix(zone));
        let Some(local) = zoned.filter(|_| at % 2 == 1) else { return line.to_owned() };
        match chrono_like(local) {
            Some(east) => format!("{east}+05:30 {rest}"),
            None => line.to_owned(),
        }
    })
}

/// Adds 5 h 30 min to `2026-11-21T08:00:01.123`; `None` if that is on the next day.
fn chrono_like(local: &str) -> Option<String> {
    let (day, clock) = local.split_once('T')?;
    let (hour, rest) = clock.split_once(':')?;
    let (minute, rest) = rest.split_once(':')?;
    let minutes = hour.parse::<u32>().ok()? * 60 + minute.parse::<u32>().ok()? + 330;
    (minutes < 1440).then(|| format!("{day}T{:02}:{:02}:{rest}", minutes / 60, minutes % 60))
}

pub fn double_spaced(paste: &Paste<'_>) -> Option<Files> {
    paste.lines(|_, line| format!("{line}\n"))
}

pub fn no_blank_lines(paste: &Paste<'_>) -> Option<Files> {
    paste.kept(|_, line| !line.trim().is_empty())
}
