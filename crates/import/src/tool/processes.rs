//! ps and top's list of processes: which tasks are in state D, and in which wait channel.
//!
//! Columns are found by the header's names; a list without a header is taken for `ps ax`. The other columns say nothing
//! about stalls.

use crate::Importer;
use crate::builder::Builder;
use crate::error::ImportError;
use crate::number::number;
use crate::text::{Cursor, Line};
use flatwater_recording::{ReportedBy, SampledTask};

pub const IMPORTER: Importer = Importer {
    name: "ps",
    sentence: "ps with STAT, S or WCHAN, and the processes of top.",
    detect: |cursor| match cursor.next_text() {
        text if header(text).is_some() => 88,
        text if of_ax(text).is_some() || of_aux(text).is_some() => 72,
        _ => 0,
    },
    read,
};

#[derive(Clone, Copy, Debug)]
struct Header {
    pid: usize,
    state: Option<usize>,
    channel: Option<usize>,
    /// Share of a processor (top).
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
    // A process list has little else than capitals over it; bcc's tools have COMM and PID too.
    ((header.state.is_some() || header.channel.is_some()) && upper * 4 >= words.len() * 3).then_some(header)
}

/// `  1348 pts/0    D      0:33 dd if=/dev/zero`: pid, state, command.
fn of_ax(text: &str) -> Option<(u32, char, &str)> {
    let mut words = text.split_whitespace();
    let (pid, terminal, state, time) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let known = terminal == "?" || terminal.starts_with("pts/") || terminal.starts_with("tty");
    let letter = state.chars().next().filter(|letter| is_state(*letter) && state.len() <= 5)?;
    (known && time.contains(':')).then_some(())?;
    Some((pid.parse().ok()?, letter, words.next()?))
}

/// `root  21629  0.0  0.0  42336  1784 ?  D  May15  0:00 /sbin/mount.nfs ...`, which `ps aux | grep` leaves without its header.
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

fn is_state(letter: char) -> bool {
    "RSDTtZXIWKP".contains(letter)
}

fn read(cursor: &mut Cursor<'_>, b: &mut Builder) -> Result<(), ImportError> {
    let place = b.snapshot("ps");
    let found = header(cursor.next_text());
    if found.is_some() {
        cursor.take();
    }
    while let Some(line) = cursor.peek().filter(|line| !line.is_blank()) {
        let task = match found {
            Some(header) => of_row(&line, header),
            None => of_ax(line.text)
                .or_else(|| of_aux(line.text))
                .map(|(pid, state, command)| (pid, Some(state), None, command)),
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

/// kswapd while it computes: how much of a processor reclaim in the background takes.
fn reclaimer(line: &Line<'_>, header: Header, pid: u32, command: &str) -> Option<SampledTask> {
    let name = command.trim_matches(['[', ']']);
    name.starts_with("kswapd").then_some(())?;
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
    use super::{header, of_aux, of_ax};

    #[test]
    fn headers_and_lists_without_one() {
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
}
