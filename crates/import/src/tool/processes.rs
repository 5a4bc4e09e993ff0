//! Reads the process lists of ps and top: tasks in state D, and their wait channels.
//!
//! Columns are found by the names in the header; a list without a header is read as `ps ax`, `ps aux`, top or `ps -o`.
//! Other columns contain nothing about stalls.

use crate::anchors::Anchor;
use crate::builder::Builder;
use crate::error::ImportError;
use crate::number::number;
use crate::text::{Cursor, Line};
use crate::{FormatKind, Importer};
use flatwater_recording::{ReportedBy, SampledTask};

pub const IMPORTER: Importer = Importer {
    name: "ps",
    sentence: "ps with STAT, S or WCHAN, and the processes of top.",
    kind: FormatKind::Averages,
    anchors: &[
        Anchor::Line(&["PID", "TID", "LWP"]),
        Anchor::Start("D0123456789"),
        Anchor::Common(&[" ? ", " ?\t", " pts/", " tty", " D ", " D+", " D<", " Ds", " DN", " DL", " Dl", "\tD"]),
    ],
    detect: |cursor| match cursor.next_text() {
        text if header(text).is_some() => 88,
        text if of_ax(text).is_some() || of_aux(text).is_some() || is_of_top(text) => 72,
        text if of_shape(text).is_some() => 66,
        _ => 0,
    },
    read,
};

#[derive(Clone, Copy, Debug)]
struct Header {
    pid: usize,
    state: Option<usize>,
    channel: Option<usize>,
    /// CPU usage in percent (top).
    share: Option<usize>,
    command: usize,
}

fn header(text: &str) -> Option<Header> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = |names: &[&str]| words.iter().position(|word| names.contains(word));
    let header = Header {
        pid: at(&["PID", "TID", "LWP", "SPID"])?,
        state: at(&["STAT", "S", "ST"]),
        channel: at(&["WCHAN"]),
        share: at(&["%CPU"]),
        command: at(&["COMMAND", "CMD", "COMM", "Command"])?,
    };
    let upper = words.iter().filter(|word| word.chars().all(|c| c.is_ascii_uppercase() || "%+_/".contains(c))).count();
    // Headers of process lists are mostly capitals; tools of bcc print COMM and PID too.
    ((header.state.is_some() || header.channel.is_some()) && upper * 4 >= words.len() * 3).then_some(header)
}

/// Pid, state and command of `  1348 pts/0    D      0:33 dd if=/dev/zero`.
fn of_ax(text: &str) -> Option<(u32, char, &str)> {
    let mut words = text.split_whitespace();
    let (pid, terminal, state, time) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let known = terminal == "?" || terminal.starts_with("pts/") || terminal.starts_with("tty");
    let letter = state.chars().next().filter(|letter| is_state(*letter) && state.len() <= 5)?;
    (known && time.contains(':')).then_some(())?;
    Some((pid.parse().ok()?, letter, words.next()?))
}

/// Pid, state and command of `root  21629  0.0  0.0  42336  1784 ?  D  May15  0:00 /sbin/mount.nfs ...`:
/// `ps aux | grep` drops the header.
fn of_aux(text: &str) -> Option<(u32, char, &str)> {
    let words: Vec<&str> = text.split_whitespace().take(11).collect();
    let [_, pid, cpu, memory, virtual_kib, resident_kib, terminal, state, _, time, command] = words.as_slice() else {
        return None;
    };
    let figures = [cpu, memory, virtual_kib, resident_kib].iter().all(|word| number(word).is_some());
    let known = *terminal == "?" || terminal.starts_with("pts/") || terminal.starts_with("tty");
    let letter = state.chars().next().filter(|letter| is_state(*letter) && state.len() <= 5)?;
    (figures && known && time.contains(':')).then_some(())?;
    Some((pid.parse().ok()?, letter, command))
}

/// The default columns of top: PID USER PR NI VIRT RES SHR S %CPU %MEM TIME+ COMMAND.
const OF_TOP: Header = Header { pid: 0, state: Some(7), channel: None, share: Some(8), command: 11 };

/// Whether the line is `3326 root  20  0  0  0  0 R 100.0  0.0  0:16.40 kswapd4`, a row of top without its header.
fn is_of_top(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().take(12).collect();
    let [pid, _, priority, nice, virtual_kib, resident_kib, shared_kib, state, cpu, memory, time, _] = words.as_slice()
    else {
        return false;
    };
    let sizes =
        [virtual_kib, resident_kib, shared_kib].iter().all(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    let ranks = (*priority == "rt" || priority.parse::<i32>().is_ok()) && nice.parse::<i32>().is_ok();
    let shares = [cpu, memory].iter().all(|word| number(word).is_some());
    let letter = state.len() == 1 && state.chars().all(is_state);
    pid.parse::<u32>().is_ok() && sizes && ranks && shares && letter && time.contains(':') && time.contains('.')
}

/// State, pid, wait channel and command of a row of `ps -o` without a header, with its columns in any order: a task in
/// D, its pid, and a kernel function in which it sleeps.
fn of_shape(text: &str) -> Option<(u32, char, &str, &str)> {
    let words: Vec<&str> = text.split_whitespace().take(WORDS_MAX + 1).collect();
    if !(4..=WORDS_MAX).contains(&words.len()) {
        return None;
    }
    let is_waiting =
        |word: &str| word.starts_with('D') && word.len() <= 4 && word.chars().skip(1).all(|c| "+<NLsl".contains(c));
    let is_channel = |word: &str| word.contains('_') && flatwater_recording::symbol::meaning(&[word]).is_some();
    let state = words.iter().position(|word| is_waiting(word))?;
    let channel = words.iter().position(|word| is_channel(word))?;
    let pid = words.iter().find_map(|word| word.parse::<u32>().ok())?;
    // Arguments are last if ps prints them; a name is before or after the numbers.
    let is_name =
        |at: usize, word: &str| at != state && at != channel && word.starts_with(|c: char| c.is_ascii_alphabetic());
    let command = words.iter().enumerate().rev().find(|(at, word)| is_name(*at, word) && !word.contains('='))?.1;
    Some((pid, 'D', *words.get(channel)?, command))
}

/// Maximum words of a row with unknown columns.
const WORDS_MAX: usize = 16;

fn is_state(letter: char) -> bool {
    "RSDTtZXIWKP".contains(letter)
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("ps");
    let mut found = header(cursor.next_text());
    if found.is_some() {
        cursor.take();
    } else if is_of_top(cursor.next_text()) {
        found = Some(OF_TOP);
    }
    while let Some(line) = cursor.peek().filter(|line| !line.is_blank()) {
        let task = match found {
            Some(header) => of_row(&line, header),
            None => of_ax(line.text)
                .or_else(|| of_aux(line.text))
                .map(|(pid, state, command)| (pid, Some(state), None, command))
                .or_else(|| of_shape(line.text).map(|(pid, state, at, command)| (pid, Some(state), Some(at), command))),
        };
        let Some((pid, state, channel, command)) = task else { break };
        cursor.take();
        if let Some(sample) = found.and_then(|header| reclaimer(&line, header, pid, command)) {
            b.sampled_task(place, sample, Vec::new());
            continue;
        }
        let waits = channel.filter(|channel| channel.len() > 1 && !channel.bytes().all(|c| c.is_ascii_hexdigit()));
        if state != Some('D') && waits.is_none() {
            continue;
        }
        let mut sample = SampledTask::new(ReportedBy::WaitChannel);
        command.trim_matches(['[', ']', '<', '>', '(', ')']).clone_into(&mut sample.task);
        (sample.pid, sample.state, sample.line) = (Some(pid), state, line.number);
        b.sampled_task(place, sample, waits.into_iter().map(str::to_owned).collect());
    }
    Ok(())
}

/// A sample of kswapd or ksoftirqd while it runs: the CPU usage of background reclaim or of soft interrupts.
fn reclaimer(line: &Line<'_>, header: Header, pid: u32, command: &str) -> Option<SampledTask> {
    let name = command.trim_matches(['[', ']']);
    (name.starts_with("kswapd") || name.starts_with("ksoftirqd")).then_some(())?;
    let percent = number(line.words().get(header.share?)?).filter(|percent| (1.0..=100.0).contains(percent))?;
    let mut sample = SampledTask::new(ReportedBy::Traced);
    name.clone_into(&mut sample.task);
    (sample.pid, sample.state, sample.line) = (Some(pid), Some('R'), line.number);
    sample.count = (percent * 100.0).round() as u32;
    Some(sample)
}

fn of_row<'a>(line: &Line<'a>, header: Header) -> Option<(u32, Option<char>, Option<&'a str>, &'a str)> {
    let words = line.words();
    let pid = words.get(header.pid)?.parse().ok()?;
    let state = header.state.and_then(|at| words.get(at)).and_then(|word| word.chars().next());
    state.is_none_or(is_state).then_some(())?;
    Some((pid, state, header.channel.and_then(|at| words.get(at)).copied(), words.get(header.command).copied()?))
}

#[cfg(test)]
mod tests {
    use super::{header, is_of_top, of_aux, of_ax, of_shape};

    #[test]
    fn headers_and_rows_of_ps_without_header_parse() {
        for text in [
            "  PID STAT WCHAN  COMMAND",
            "USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND",
            "F S UID PID PPID C PRI NI ADDR SZ WCHAN TTY TIME CMD",
            "    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND",
        ] {
            assert!(header(text).is_some(), "{text}");
        }
        assert!(header("TIME(s)     COMM           PID    DISK    T SECTOR     BYTES   LAT(ms)").is_none());
        assert_eq!(of_ax("   1348 pts/0    D      0:33 dd if=/dev/zero"), Some((1348, 'D', "dd")));
        assert_eq!(of_ax("1348 1 D 0:33 dd"), None);
        let aux = "root  21629  0.0  0.0  42336  1784 ?        Ds+  May15   0:00 /sbin/mount.nfs filer:/ /mnt";
        assert_eq!(of_aux(aux), Some((21629, 'D', "/sbin/mount.nfs")));
        assert_eq!(of_aux("a b c d e f g D h 0:00 i"), None);
    }

    #[test]
    fn rows_of_top_and_of_unknown_columns_parse() {
        assert!(is_of_top("   41 root      20   0       0      0      0 R  97.0   0.0   3:16.40 kswapd0"));
        assert!(is_of_top("  912 db        20   0   12.3g   9.1g   4096 S   1.3  55.0  99:16.40 mysqld"));
        assert!(!is_of_top("  912 db 20 0 12.3g 9.1g 4096 sda 1.3 55.0 99 mysqld"));
        assert_eq!(of_shape("D mysqld 811 io_schedule"), Some((811, 'D', "io_schedule", "mysqld")));
        let grepped = "811 811 TS - 0 19 2 0.2 D+ balance_dirty_pages.isra.24 1:name=systemd:/a.slice cp";
        assert_eq!(
            of_shape(grepped).map(|(pid, _, at, name)| (pid, at, name)),
            Some((811, "balance_dirty_pages.isra.24", "cp"))
        );
        for line in ["D a 1 b", "io_schedule 12 34", "S mysqld 811 io_schedule", "D 1 2 io_schedule"] {
            assert_eq!(of_shape(line), None, "{line}");
        }
    }
}
