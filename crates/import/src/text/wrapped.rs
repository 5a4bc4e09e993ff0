//! Recognizes rows and sentences that a mail program broke: whether a line continues with the next.

use crate::kernel_log::is_frame;

/// State of the table at the current line.
#[derive(Debug, Default)]
pub struct Joins {
    /// Words per row of the current table if its header was broken; 0 otherwise.
    columns: usize,
}

/// Wide tables: the first words of the header, and its possible last words.
const TABLES: &[(&str, &[&str])] = &[
    ("Device", &["%util", "svctm", "kB_wrtn", "Blk_wrtn", "MB_wrtn", "kB_dscd"]),
    ("avg-cpu:", &["%idle"]),
    ("r b swpd", &["wa", "st", "gu", "id"]),
    ("# name <active_objs>", &["<sharedavail>"]),
    ("OBJS ACTIVE", &["NAME"]),
    ("%Device", &["%util"]),
];

/// Mail programs do not break shorter lines.
const SHORTEST: usize = 40;
/// No row that is read here is longer.
const LONGEST: usize = 2000;

impl Joins {
    /// Whether `line` continues the line `above`.
    pub fn continues(&mut self, above: &str, line: &str) -> bool {
        if line.trim().is_empty() {
            self.columns = 0;
            return false;
        }
        if above.is_empty() || above.len() > LONGEST {
            return false;
        }
        self.of_header(above, line)
            || self.of_row(above, line)
            || of_slab(above, line)
            || of_node(above, line)
            || of_chain(above, line)
            || of_report(above, line)
    }

    /// Whether `line` is the second part of a table's header.
    fn of_header(&mut self, above: &str, line: &str) -> bool {
        let Some(ends) = table(above) else { return false };
        let whole = |text: &str| text.split_whitespace().last().is_some_and(|last| ends.contains(&last));
        let named = line.split_whitespace().all(|word| !word.starts_with(|c: char| c.is_ascii_digit()));
        if !whole(above) && whole(line) && named {
            self.columns = above.split_whitespace().count() + line.split_whitespace().count();
            // `avg-cpu:` names no column.
            self.columns -= usize::from(above.starts_with("avg-cpu:"));
            // slabtop's `OBJ SIZE` and `CACHE SIZE` are one column each.
            self.columns -= if above.trim_start().starts_with("OBJS") { 2 } else { 0 };
            return true;
        }
        false
    }

    /// Whether `line` is the second part of a row below a broken header.
    fn of_row(&mut self, above: &str, line: &str) -> bool {
        if self.columns == 0 {
            return false;
        }
        let (have, more) = (above.split_whitespace().count(), line.split_whitespace().count());
        // The row's name is first (iostat) or last (slabtop). If the words add up to a whole row, that is enough.
        let whole = have + more == self.columns && above.trim_start().starts_with(|c: char| c.is_ascii_digit());
        let numeric = whole
            || line
                .split_whitespace()
                .all(|word| word.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '.'));
        table(above).is_none() && numeric && have < self.columns && have + more <= self.columns
    }
}

/// The last columns of sar's headers, whose first word is a time.
fn of_sar(text: &str) -> Option<&'static [&'static str]> {
    let timed = text.starts_with(|c: char| c.is_ascii_digit()) && text.get(..8)?.matches(':').count() == 2;
    match () {
        () if !timed => None,
        () if text.contains(" DEV ") && text.contains(" tps ") => Some(&["%util"]),
        () if text.contains("pgpgin/s") => Some(&["%vmeff"]),
        () if text.contains("kbmemfree") => Some(&["kbdirty", "%commit", "kbvmused"]),
        () if text.contains(" CPU ") && text.contains("%user") => Some(&["%idle"]),
        () => None,
    }
}

fn table(text: &str) -> Option<&'static [&'static str]> {
    if let Some(ends) = of_sar(text) {
        return Some(ends);
    }
    if !text.trim_start().starts_with(['D', 'a', 'r', '#', '%', 'O']) {
        return None;
    }
    let mut words = text.split_whitespace();
    let first = words.next()?;
    let second = words.next();
    let found = TABLES.iter().find(|(begins, _)| {
        let mut known = begins.split(' ');
        known.next().is_some_and(|known| first.trim_end_matches(':') == known.trim_end_matches(':'))
            && known.next().is_none_or(|known| second == Some(known))
    });
    found.map(|(_, ends)| *ends)
}

/// Whether `line` continues a row of slabinfo: three groups of figures, separated by `: tunables` and `: slabdata`.
fn of_slab(above: &str, line: &str) -> bool {
    let line = line.trim_start();
    let slabdata = above.split_once(": slabdata").map(|(_, rest)| rest.split_whitespace().count());
    if slabdata.is_none() && !line.starts_with(": tunables") && !line.contains("slabdata") {
        return false;
    }
    let digits = |word: &str| word.bytes().all(|c| c.is_ascii_digit());
    let figures = above.split_whitespace().skip(1).take(4);
    let row = figures.clone().count() == 4 && figures.clone().all(digits);
    row && match slabdata {
        Some(figures) => figures < 3 && line.split_whitespace().all(digits),
        None => line.starts_with([':', 's']) || line.starts_with(|c: char| c.is_ascii_digit()),
    }
}

/// Whether `line` continues a row of buddyinfo (four words and 11 orders), a node's CPU list, or a histogram's bar.
fn of_node(above: &str, line: &str) -> bool {
    // `     2 -> 3     : 0        |` and the end of the bar.
    if line.ends_with('|') && above.contains(" -> ") && above.contains(" : ") {
        return line.trim().bytes().all(|c| matches!(c, b'|' | b'@' | b' ' | b'*'));
    }
    if above.starts_with('[') && line.trim_start().starts_with('|') {
        return line.trim().bytes().all(|c| matches!(c, b'|' | b'@' | b' ' | b'*')) && !above.contains('|');
    }
    if !above.trim_start().to_ascii_lowercase().starts_with("node ") {
        return false;
    }
    let digits = line.split_whitespace().all(|word| word.bytes().all(|c| c.is_ascii_digit()));
    let (have, more) = (above.split_whitespace().count(), line.split_whitespace().count());
    digits && (above.contains(" cpus:") || (above.contains(", zone") && have + more <= 15))
}

/// Whether `line` continues a stack that was broken at an arrow: `f+0x1/0x2 <=` and the next function, or the arrow
/// first.
fn of_chain(above: &str, line: &str) -> bool {
    let arrow = |word: Option<&str>| matches!(word, Some("<=" | "<-" | "->" | "=>"));
    let chain =
        |text: &str| text.contains("+0x") || text.split_whitespace().filter(|word| arrow(Some(word))).count() > 1;
    let (ends, begins) = (arrow(above.split_whitespace().next_back()), arrow(line.split_whitespace().next()));
    ends != begins && chain(above) && (chain(line) || line.split_whitespace().count() <= 2)
}

/// Broken sentences of logs: (how the second part begins, what the first part contains, what the first part lacks).
const SENTENCES: &[(&str, &str, &str)] = &[
    ("than ", "INFO: task ", "seconds"),
    ("more than ", "INFO: task ", "seconds"),
    ("seconds.", "INFO: task ", "seconds"),
    ("blocked for more than ", "INFO: task ", "blocked"),
    ("this message.", "hung_task_timeout_secs", "this message."),
    ("/proc/sys/kernel/hung_task_timeout_secs", "\"echo 0 >", "hung_task"),
    // `INFO: task a:1 is blocked on a mutex likely owned by task b:2.`
    ("mutex likely ", " is blocked on a", "mutex"),
    ("likely ", " blocked on a", "likely"),
    ("owned by task ", " likely", "owned by"),
    ("task ", " likely owned by", "by task"),
    ("disables this message.", "hung_task_timeout_secs", "this message."),
    ("flags:", " state:", "flags:"),
    ("task_flags:", " state:", "flags:"),
    ("ppid:", " state:", "ppid:"),
    ("pid:", " state:", " pid:"),
    ("tgid:", " state:", "tgid:"),
    ("([kernel.kallsyms])", "+0x", "("),
    ("took ", "fsync-ing the write ahead log", "took"),
    ("mode:", "page allocation failure", "mode:"),
    ("Not tainted", "PID:", "ainted"),
    ("Tainted:", "PID:", "ainted"),
];

/// Whether the text contains a held lock such as `#0: ffff888103b5f2f8`, also after a log's prefix.
fn is_held_lock(text: &str) -> bool {
    text.split_once('#').and_then(|(_, rest)| rest.split_once(": ")).is_some_and(|(number, lock)| {
        !number.is_empty()
            && number.bytes().all(|c| c.is_ascii_digit())
            && lock.starts_with(|c: char| c.is_ascii_hexdigit())
    })
}

/// Whether `line` continues a frame (address on one line, function or module on the next) or a sentence of a log.
fn of_report(above: &str, line: &str) -> bool {
    let line = line.trim();
    // crash on 32-bit ARM ends complete lines like this: `#0 [<c0b420ec>] (__schedule) from [<c0b423c8>]`.
    let numbered = above.trim_start().starts_with('#') && above.contains(" from [<");
    if !numbered && (above.ends_with(">]") || above.ends_with(">] ?")) {
        let address = above.rsplit("[<").next().unwrap_or_default().trim_end_matches([']', '>', ' ', '?']);
        return address.bytes().all(|c| c.is_ascii_hexdigit()) && is_frame(line) && !line.starts_with("[<");
    }
    // Only a prefix, in a log that was broken after it: `host kernel:`, `host kernel:  ?`.
    let prefix = above.trim_end_matches(['?', ' ']);
    if prefix.ends_with(" kernel:") || (prefix.len() < above.len() && prefix.ends_with(']') && prefix.starts_with('['))
    {
        return is_frame(line) || prefix.ends_with(" kernel:") && !line.contains(" kernel:") && !line.starts_with('[');
    }
    if above.ends_with("INFO: task") {
        return line.contains(" blocked for");
    }
    // A lock held in lockdep's list: `#2: ffff888103 (&sbi->s_writepages_rwsem){++++}-{0:0}, at:`, then the function.
    if is_held_lock(above) && !above.contains(", at: ") {
        return above.ends_with(", at:") && is_frame(line)
            || line.starts_with('(') && line.contains("){")
            || line.starts_with("at: ");
    }
    // `[ext4]` alone below a frame.
    if let Some(module) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let named = module.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
            && module.contains(|c: char| c.is_ascii_lowercase());
        return named && is_frame(above);
    }
    // A sentence broken before the path is shorter than the other broken lines.
    (above.len() >= SHORTEST || above.ends_with("\"echo 0 >"))
        && SENTENCES
            .iter()
            .any(|(rest, begun, end)| line.starts_with(rest) && above.contains(begun) && !above.contains(end))
}

#[cfg(test)]
mod tests {
    use super::Joins;

    fn joined(lines: &[&str]) -> Vec<String> {
        let (mut joins, mut whole): (Joins, Vec<String>) = (Joins::default(), Vec::new());
        for line in lines {
            let above = whole.last().cloned().unwrap_or_default();
            match whole.last_mut() {
                Some(last) if joins.continues(&above, line) => last.push_str(&format!(" {line}")),
                _ => whole.push((*line).to_owned()),
            }
        }
        whole
    }

    #[test]
    fn rows_frames_and_sentences_are_joined() {
        for (lines, left) in [
            (
                &["Device: rrqm/s wrqm/s r/s w/s", "await svctm %util", "sda 1 2 3 4", "5 6 7", "sdb 1 2 3 4", "5 6 7"]
                    [..],
                3,
            ),
            (&["dentry 10 20 192 21 1 : tunables 0 0 0 :", "slabdata 4 4 0"], 1),
            (&["dentry 10 20 192 21 1 : tunables 0 0 0", ": slabdata 4 4 0"], 1),
            (&["dentry 10 20 192 21 1", ": tunables 0 0 0 : slabdata 4 4 0"], 1),
            (&["[<ffffffff81>]", "io_schedule+0x73/0xc0", "[<ffffffff82>] f+0x1/0x2", "[ext4]"], 2),
            (&["#0 [<c0b420ec>] (__schedule) from [<c0b423c8>]", "#1 [<c0b423c8>] (schedule) from [<c0b459d4>]"], 2),
            (&["Nov 22 10:00:00 db1 kernel: INFO: task java:123 blocked for more", "than 120 seconds."], 1),
            (
                &[
                    "#0: ffff888103b5f2f8 (&journal->j_checkpoint_mutex){+.+.}-{3:3}, at:",
                    "jbd2_log_do_checkpoint+0x29a/0x300",
                ],
                1,
            ),
            (
                &[
                    "#2: ffff888103b5f2f8",
                    "(&sbi->s_writepages_rwsem){++++}-{0:0}, at: do_writepages+0xbe/0x190",
                    "f+0x1/0x2",
                ],
                2,
            ),
            (&["2025-12-03T15:57:25.4+00:00 h kernel:", "io_schedule+0x4c/0x80"], 1),
            (&["2025-12-03T15:57:25.4+00:00 h kernel:  ?", "__pfx_f+0x10/0x10", "text"], 2),
            (&["[ 1.234] INFO: task db:12 blocked for more than 122", "seconds."], 1),
            (&["[  242.821407][ T1645] INFO: task db:12 is blocked on a", "mutex likely owned by task db:13."], 1),
            (&["[ 242.821407] INFO: task db:12 is blocked on a mutex likely", "owned by task db:13."], 1),
            (
                &[
                    "[  242.829738][ T1645] \"echo 0 >",
                    "/proc/sys/kernel/hung_task_timeout_secs\" disables this message.",
                    "[  242.83] x",
                ],
                2,
            ),
            (&["Dec  3 15:57:25 h kernel: INFO: task", "db:171 blocked for more than 122 seconds."], 1),
            (
                &["[ 615.5]  #0: ffffffff824bd240 (rcu_read_lock){....}-{1:2}, at:", "debug_show_all_locks+0x2e/0x1e0"],
                1,
            ),
            (&["r b swpd free", "1 0 0 5", "2 0 0 6"], 3),
            (
                &["OBJS ACTIVE USE OBJ SIZE SLABS OBJ/SLAB CACHE SIZE", "NAME", "9 8 90% 0.19K 2 21 8K", "kmalloc-192"],
                2,
            ),
            (&["OBJS ACTIVE USE OBJ SIZE SLABS", "OBJ/SLAB CACHE SIZE NAME", "9 8 90% 0.19K 2", "21 8K dentry"], 2),
            (&["10:00:01 AM DEV tps rkB/s wkB/s areq-sz aqu-sz", "await %util", "10:00:02 AM sda 1 2 3 4 5", "6 7"], 2),
            (
                &[
                    "48 down+0x43/0x60 <= xfs_buf_lock+0x29/0xa0 <=",
                    "f+0x1/0x2 <= g+0x3/0x4",
                    "<= h+0x1/0x2",
                    "1 x_y+0x1/0x2 <= z+0x2/0x3",
                ],
                2,
            ),
            (&["         0 -> 1          : 0        |", "|", "  2 -> 3 : 65 |***", "|"], 2),
            (&["text without a table", "more text"], 2),
        ] {
            assert_eq!(joined(lines).len(), left, "{:?}", joined(lines));
        }
    }
}
