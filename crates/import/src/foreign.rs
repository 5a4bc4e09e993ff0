//! Recognizes files that cannot be imported directly, and says how to convert them.

/// What a file with this beginning is, and how to convert it.
#[must_use]
pub fn of_bytes(bytes: &[u8]) -> Option<&'static str> {
    // (offset, magic, what to do)
    let known: [(usize, &[u8], &str); 9] = [
        // sysstat's sa_sizes.h: SYSSTAT_MAGIC 0xd596, little-endian and big-endian.
        (0, b"\x96\xd5", "this is sar's binary file: `sadf -j FILE -- -A > FILE.json` makes it readable"),
        (0, b"\xd5\x96", "this is sar's binary file: `sadf -j FILE -- -A > FILE.json` makes it readable"),
        (0, b"PERFILE2", "this is perf's binary file: `perf script -i FILE` makes it readable"),
        (0, b"\x17\x08\x44tracing", "this is trace-cmd's binary file: `trace-cmd report FILE` makes it readable"),
        (0, b"LPKSHHRH", "this is a systemd journal: `journalctl -k --file FILE` makes it readable"),
        (0, b"\x1f\x8b", "it is compressed with gzip: `zcat FILE | flatwater import -`"),
        (0, b"\x28\xb5\x2f\xfd", "it is compressed with zstd: `zstdcat FILE | flatwater import -`"),
        (0, b"\xfd7zXZ", "it is compressed with xz: `xzcat FILE | flatwater import -`"),
        (0, b"BZh", "it is compressed with bzip2: `bzcat FILE | flatwater import -`"),
    ];
    let found = known.iter().find(|(at, magic, _)| bytes.get(*at..).is_some_and(|rest| rest.starts_with(magic)));
    found.map(|(_, _, say)| *say).or_else(|| is_binary(bytes).then_some("it is binary: only text can be imported"))
}

/// Whether the text is UTF-16, by its byte order mark.
#[must_use]
pub fn is_wide(bytes: &[u8]) -> bool {
    matches!(bytes, [0xff, 0xfe, ..] | [0xfe, 0xff, ..])
}

/// Whether the bytes are not text: they contain many control characters or invalid sequences.
#[must_use]
pub fn is_binary(bytes: &[u8]) -> bool {
    let head = bytes.get(..bytes.len().min(65_536)).unwrap_or_default();
    let odd = head.iter().filter(|byte| **byte == 0 || **byte < 8 || (14..27).contains(*byte)).count();
    // Compressed or encrypted bytes contain many invalid sequences, text in an older encoding a few.
    let garbled = String::from_utf8_lossy(head).chars().filter(|c| *c == char::REPLACEMENT_CHARACTER).count();
    !is_wide(bytes) && (odd * 10 > head.len() || garbled * 5 > head.len())
}

/// What a line shows about its file, and what to import instead.
#[must_use]
pub fn of_line(text: &str) -> Option<&'static str> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let fields = text.split(';').count();
    Some(match words.as_slice() {
        _ if text.starts_with("# hostname;") || (fields > 5 && text.contains(" UTC;")) => {
            "this is `sadf -d`: import `sadf -j` of the same file instead"
        }
        [_, _, _, _, "UTC", ..] if words.len() >= 8 => "this is `sadf -p`: import `sadf -j` of the same file instead",
        ["<?xml" | "<sysstat", ..] => "this is XML: import `sadf -j` of the same file instead",
        [_, "reads", "read", "sectors", ..] => "this is `vmstat -p`: import `vmstat -d` or `iostat -x` instead",
        [number, "disks"] | [number, "forks"] if number.parse::<u64>().is_ok() => {
            "this is `vmstat -D` or `-f`, sums since boot: import two outputs of `vmstat -s` or `-d` instead"
        }
        ["kthr" | "procs", ..] if text.contains("page") => "this is vmstat of an operating system other than Linux",
        [_, "UID", "PID", ..] | [_, "UID", "TGID", ..] => {
            "this is pidstat without -d: import `pidstat -d` (reads and writes of each process) instead"
        }
        ["top", "-", ..] => "this is top: import `vmstat -t 1`, `pidstat -d 1` or `sar` instead",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use crate::import_texts;

    #[test]
    fn files_that_cannot_be_read_are_refused_with_a_remedy() {
        let refuse = |bytes: &[u8]| import_texts(&[("f".to_owned(), bytes.to_vec())]).expect_err("refused").to_string();
        for (bytes, say) in [
            (&b"\x96\xd5\x75\x21\x0c\x06"[..], "sadf -j"),
            (b"\x1f\x8b\x08\0\0\0", "zcat"),
            (b"\xe1\x8f\xfb\x91\xd0\xa7\xc4\xee\x95\xb3", "binary"),
            (b"PERFILE2\x68\0\0", "perf script"),
            (b"# hostname;interval;timestamp;pgpgin/s\nvm;1;2026-11-21 11:29:18 UTC;3228.00;1;2;3\n", "`sadf -d`"),
            (b"vm\t1\t2026-11-21 11:29:18 UTC\t-\tpgpgin/s\t3228.00\n", "`sadf -p`"),
            (b"           10 disks\n            0 partitions\n", "`vmstat -D`"),
            (b"vda             reads      read sectors      writes  requested writes\n  1 2 3 4\n", "`vmstat -p`"),
        ] {
            assert!(refuse(bytes).contains(say), "{}", refuse(bytes));
        }
    }
}
