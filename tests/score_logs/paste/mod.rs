//! The ways in which people paste a log. A change affects the look of a text, not its content.

mod characters;
mod kernel;
mod margin;
mod prefix;
mod whole;
mod wrap;

use crate::score_logs::corpus::Log;

/// The files of a paste: name and text.
pub type Files = Vec<(String, String)>;

/// A log from the corpus, or the result of an earlier step.
pub struct Paste<'a> {
    pub log: &'a Log,
    pub files: &'a [(String, String)],
    /// The lines that decided the answer: file, first and last line (from 1).
    pub decided: &'a [(String, u32, u32)],
}

/// One step of a change; `None` if it does not apply to this log.
type Step = fn(&Paste<'_>) -> Option<Files>;

/// A change that people, mail programs or collectors make to a log.
pub struct Change {
    pub name: &'static str,
    /// Description in the table.
    pub say: &'static str,
    pub steps: &'static [Step],
}

const fn change(name: &'static str, say: &'static str, steps: &'static [Step]) -> Change {
    Change { name, say, steps }
}

/// All changes, in groups.
pub const CHANGES: &[Change] = &[
    change("joined", "several files in one paste", &[whole::joined]),
    change("prompts", "a prompt and a command before each file, a prompt after it", &[whole::prompts]),
    change("prose", "sentences before and after, blank lines between", &[whole::prose]),
    change("prose-tight", "the same without blank lines", &[whole::prose_tight]),
    change("other-tools", "`lsblk`, `df -h` and `uname` in front", &[whole::other_tools]),
    change("idle-vmstat", "an idle `vmstat` in front of logs without one", &[whole::idle_vmstat]),
    change("twice", "pasted twice", &[whole::twice]),
    change("head-lost", "the first 10 % of the lines are lost", &[whole::head_lost]),
    change("tail-lost", "the last 10 % of the lines are lost", &[whole::tail_lost]),
    change("no-banner", "the line above a table's header is lost", &[whole::no_banner]),
    change("no-header", "a table's first header is lost", &[whole::no_header]),
    change("two-zones", "every second timestamp is in another time zone", &[whole::two_zones]),
    change("double-spaced", "a blank line after each line", &[whole::double_spaced]),
    change("no-blank-lines", "blank lines are lost", &[whole::no_blank_lines]),
    change("quote", "`> `", &[margin::quote]),
    change("quote-2", "`>> `", &[margin::quote_twice]),
    change("quote-spaced", "`> > `", &[margin::quote_spaced]),
    change("quote-bare", "`>` without a space", &[margin::quote_bare]),
    change("quote-bar", "`| `", &[margin::quote_bar]),
    change("indent-2", "2 spaces", &[margin::indent_2]),
    change("indent-4", "4 spaces (Markdown)", &[margin::indent_4]),
    change("indent-tab", "a tab", &[margin::indent_tab]),
    change("comment", "`# `", &[margin::comment]),
    change("comment-slashes", "`// `", &[margin::comment_slashes]),
    change("fence", "```` ``` ````", &[margin::fence]),
    change("details", "HTML's details with a fence inside", &[margin::details]),
    change("noformat", "Jira's {noformat}", &[margin::noformat]),
    change("jira-code", "Jira's {code}", &[margin::jira_code]),
    change("bbcode", "[code] and [/code] on the lines themselves", &[margin::bbcode]),
    change("pre", "HTML's pre on the lines themselves", &[margin::pre]),
    change("break-tags", "<br> at each line's end", &[margin::break_tags]),
    change("backticks", "each line in backticks", &[margin::backticks]),
    change("bold", "each line between `**`", &[margin::bold]),
    change("jira-mono", "each line between {{ and }}", &[margin::jira_mono]),
    change("bullets", "each line an item of a list", &[margin::bullets]),
    change("journald", "`Nov 21 08:00:01 db1 kernel: `", &[kernel::journald]),
    change("journald-iso", "`2026-11-21T08:00:01.123456+00:00 db1 kernel: `", &[kernel::journald_iso]),
    change("levels", "`<4>[   12.345678] `", &[kernel::levels]),
    change("dmesg-x", "`kern  :warn  : [   12.345678] `", &[kernel::decoded]),
    change("dmesg-T", "`[Sat Nov 21 08:00:01 2026] `", &[kernel::human]),
    change("dmesg-t", "times since boot are removed", &[kernel::untimed]),
    change("kmsg", "`4,1234,12345678,-;` (/dev/kmsg)", &[kernel::records]),
    change("caller", "`[   12.345678][ T1234] `", &[kernel::caller]),
    change("addresses-32", "addresses of 32 bits", &[kernel::short_addresses]),
    change("addresses-arm64", "addresses of arm64", &[kernel::arm_addresses]),
    change("addresses-hidden", "`[<0>]`", &[kernel::hidden_addresses]),
    change("addresses-none", "frames without addresses", &[kernel::no_addresses]),
    change("suffix", "functions with a compiler's suffix (`.isra.0`)", &[kernel::suffixes]),
    change("dots", "functions with a leading dot (PowerPC)", &[kernel::dots]),
    change("unit", "`Nov 21 08:00:01 db1 collect[123]: `", &[prefix::unit]),
    change("kubernetes", "`2026-11-21T08:00:01.123456789Z stderr F `", &[prefix::kubernetes]),
    change("docker-t", "`2026-11-21T08:00:01.123456789Z `", &[prefix::docker]),
    change("compose", "`web-1  | `", &[prefix::compose]),
    change("pod", "`[pod/web-0/app] `", &[prefix::pod]),
    change("grep-n", "`12:`", &[prefix::grep_n]),
    change("grep-R", "`./dir/messages:`", &[prefix::grep_r]),
    change("grep-Rn", "`messages.log:12:`", &[prefix::grep_rn]),
    change("ts", "`Nov 21 08:00:01 `", &[prefix::ts]),
    change("ts-date", "`[2026-11-21 08:00:01.123456] `", &[prefix::ts_date]),
    change("ts-clock", "`08:00:01 `", &[prefix::ts_clock]),
    change("ts-epoch", "`1795248001.123456 `", &[prefix::ts_epoch]),
    change("cat-n", "`    12<tab>`", &[prefix::cat_n]),
    change("numbers", "`12: `", &[prefix::numbers]),
    change("pdsh", "`node01: `", &[prefix::pdsh]),
    change("crlf", "Windows line ends", &[characters::crlf]),
    change("trailing", "spaces at the ends of lines", &[characters::trailing]),
    change("bom", "a byte order mark", &[characters::bom]),
    change("ansi", "colours", &[characters::ansi]),
    change("nbsp", "no-break spaces", &[characters::nbsp]),
    change("wide-margin", "U+2003 for each leading pair of spaces", &[characters::wide_margin]),
    change("zero-width", "U+200B at the beginning of each line", &[characters::zero_width]),
    change("unexpand", "tabs for spaces (`unexpand -a`)", &[characters::unexpand]),
    change("expand", "spaces for tabs (`expand`)", &[characters::expand]),
    change("tab-separated", "one tab for each run of two or more spaces", &[characters::tab_separated]),
    change("collapsed", "one space for each run of spaces, no margin", &[characters::collapsed]),
    change("entities", "&gt; &lt; &amp; &quot;", &[characters::entities]),
    change("entities-nbsp", "&nbsp; for each second space", &[characters::entities_nbsp]),
    change("typographic", "an editor's quotes, dashes and dots", &[characters::typographic]),
    change("printable", "quoted-printable", &[characters::printable]),
    change("decimal-comma", "a decimal comma (sysstat, top)", &[characters::decimal_comma]),
    change("thousands", "commas between thousands (files of /proc)", &[characters::thousands]),
    change("wrap-72", "lines broken before column 72", &[wrap::at_72]),
    change("wrap-76", "before column 76", &[wrap::at_76]),
    change("wrap-78", "before column 78", &[wrap::at_78]),
    change("terminal-80", "broken at column 80, within words too", &[wrap::terminal]),
    change("wrap-quote", "broken at 72, then quoted", &[wrap::at_72, margin::quote]),
    change("quote-wrap", "quoted, then broken at 72: the rest unquoted", &[margin::quote, wrap::at_72]),
    change("journald-wrap", "journald, then broken at 78", &[kernel::journald, wrap::at_78]),
    change("unit-wrap", "a unit's lines, then broken at 78", &[prefix::unit, wrap::at_78]),
    change("quote-fence", "a fence, quoted, in prose", &[margin::fence, margin::quote, whole::prose]),
    change("quote-entities", "quoted, as entities", &[margin::quote, characters::entities]),
    change("unit-quote", "a unit's lines, quoted twice", &[prefix::unit, margin::quote_twice]),
    change("kubernetes-indent", "Kubernetes' lines as a block of Markdown", &[prefix::kubernetes, margin::indent_4]),
    change("grep-ts", "`ts`, then `grep -R`", &[prefix::ts, prefix::grep_r]),
    change("prompts-numbers", "prompts, then line numbers, CRLF", &[whole::prompts, prefix::cat_n, characters::crlf]),
    change("prose-indent", "an indented block in prose", &[margin::indent_4, whole::prose]),
    change("collapsed-prose", "spaces collapsed, prose around it", &[characters::collapsed, whole::prose_tight]),
    change("ansi-prompts-crlf", "a terminal's session", &[whole::prompts, characters::ansi, characters::crlf]),
];

impl Change {
    /// The changed files; `None` if a step does not apply or changes nothing.
    pub fn of(&self, paste: &Paste<'_>) -> Option<Files> {
        let mut files = paste.files.to_vec();
        for step in self.steps {
            files = step(&Paste { files: &files, log: paste.log, decided: paste.decided })?;
        }
        (files != paste.files).then_some(files)
    }
}

impl Paste<'_> {
    /// Whether the corpus lists one of these formats for the log.
    fn is_of(&self, formats: &[&str]) -> bool {
        self.log.formats.iter().any(|format| formats.contains(&format.as_str()))
    }

    /// Applies `change` to each file; `None` if nothing changes.
    fn texts(&self, change: impl Fn(&str) -> String) -> Option<Files> {
        let files: Files = self.files.iter().map(|(name, text)| (name.clone(), change(text))).collect();
        (files != self.files).then_some(files)
    }

    /// Applies `change` to each line with its number (from 0). JSON files are skipped, because they have no lines.
    fn lines(&self, change: impl Fn(usize, &str) -> String) -> Option<Files> {
        self.timed_lines(|_, at, line| change(at, line))
    }

    /// Like `lines`, with the number of the file, so that each file can have a timestamp one minute after the previous
    /// one.
    fn timed_lines(&self, change: impl Fn(usize, usize, &str) -> String) -> Option<Files> {
        let mut files = self.files.to_vec();
        for (file, (_, text)) in files.iter_mut().enumerate().filter(|(_, (_, text))| !is_json(text)) {
            let lines = text.lines().enumerate();
            *text = lines.map(|(at, line)| change(file, at, line) + "\n").collect();
        }
        (files != self.files).then_some(files)
    }

    /// Like `lines`, but skips blank lines.
    fn written(&self, change: impl Fn(usize, &str) -> String) -> Option<Files> {
        self.lines(|at, line| if line.trim().is_empty() { line.to_owned() } else { change(at, line) })
    }

    /// Removes lines; `None` if none is removed or a file becomes empty.
    fn kept(&self, keep: impl Fn(usize, &str) -> bool) -> Option<Files> {
        let files = self.texts(|text| {
            let lines = text.lines().enumerate().filter(|(at, line)| keep(*at, line));
            lines.map(|(_, line)| format!("{line}\n")).collect()
        })?;
        files.iter().all(|(_, text)| !text.trim().is_empty()).then_some(files)
    }
}

fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[']) && text.trim_end().ends_with(['}', ']']) && text.contains("\": ")
}
