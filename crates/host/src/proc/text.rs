//! Scans the text of kernel files: words, integers, lines.

use std::io::{self, BufRead, Read};
use std::path::Path;

/// Longer files are an error. The longest ones that are read whole list the control groups of a process.
const READ_BYTES_MAX: usize = 1 << 20;

/// Reads a file of /proc that contains names chosen by other processes. The name of a process, file or cgroup may
/// contain any bytes; invalid UTF-8 becomes U+FFFD, and the rest of the text is kept.
pub fn read(path: impl AsRef<Path>) -> io::Result<String> {
    let path = path.as_ref();
    let bytes = read_first(path, READ_BYTES_MAX + 1)?;
    if bytes.len() > READ_BYTES_MAX {
        let why = format!("{} has more than {} KiB", path.display(), READ_BYTES_MAX >> 10);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

/// Reads the first bytes of a file whose length another user decides: any process may declare gigabytes of address
/// space to be its command line (PR_SET_MM_MAP), and have tens of thousands of mappings with long names.
pub fn read_first(path: impl AsRef<Path>, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(bytes_max as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a file line by line until `found` returns a value.
pub fn find_line<T>(path: impl AsRef<Path>, mut found: impl FnMut(&str) -> Option<T>) -> io::Result<Option<T>> {
    let mut lines = io::BufReader::new(std::fs::File::open(path)?);
    let mut line = Vec::new();
    while lines.by_ref().take(READ_BYTES_MAX as u64).read_until(b'\n', &mut line)? > 0 {
        if let Some(value) = found(String::from_utf8_lossy(&line).trim_end_matches('\n')) {
            return Ok(Some(value));
        }
        line.clear();
    }
    Ok(None)
}

/// A number with this many digits always fits into an i64.
const DIGITS_SAFE: usize = 18;

/// A position in a text.
#[derive(Clone, Copy, Debug)]
pub struct Scan<'a> {
    rest: &'a [u8],
}

impl<'a> Scan<'a> {
    #[must_use]
    pub fn new(text: &'a [u8]) -> Scan<'a> {
        Scan { rest: text }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Skips spaces and tabs.
    #[inline]
    pub fn blanks(&mut self) {
        while let [b' ' | b'\t', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// Skips these bytes if they come next.
    #[inline]
    pub fn take(&mut self, expected: &[u8]) -> bool {
        match self.rest.strip_prefix(expected) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// The bytes up to a blank or the end of the line.
    #[inline]
    pub fn word(&mut self) -> &'a [u8] {
        let end = self.rest.iter().position(|byte| matches!(byte, b' ' | b'\t' | b'\n')).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, &[]));
        self.rest = rest;
        word
    }

    /// An integer, after blanks. A number above 63 bits is returned as `i64::MAX`.
    #[inline]
    pub fn number(&mut self) -> Option<i64> {
        self.blanks();
        let negative = self.take(b"-");
        let (mut value, mut digits) = (0_i64, 0);
        while let Some(digit @ 0..=9) = self.rest.get(digits).map(|byte| byte.wrapping_sub(b'0')) {
            value = value.wrapping_mul(10).wrapping_add(i64::from(digit));
            digits += 1;
        }
        let (number, rest) = self.rest.split_at_checked(digits)?;
        if digits == 0 {
            return None;
        }
        self.rest = rest;
        if digits > DIGITS_SAFE {
            // Rare enough to parse again.
            value = std::str::from_utf8(number).ok()?.parse().unwrap_or(i64::MAX);
        }
        Some(if negative { -value } else { value })
    }

    /// Moves to the start of the next line.
    #[inline]
    pub fn next_line(&mut self) {
        self.rest = match self.rest {
            [b'\n', rest @ ..] => rest,
            rest => memchr::memchr(b'\n', rest).and_then(|at| rest.get(at + 1..)).unwrap_or(&[]),
        };
    }

    /// Moves to the next line that starts with the bytes after the newline in `start`, or to the end.
    pub fn next_line_with(&mut self, start: &[u8]) {
        let at = memchr::memmem::find(self.rest, start);
        self.rest = at.and_then(|at| self.rest.get(at + 1..)).unwrap_or(&[]);
    }
}

/// Whether two words are equal. Avoids memcmp for empty words, whose slices point to no mapped memory: there memcmp of
/// glibc 2.36 (`__memcmp_evex_movbe`, masked loads) took 206 to 237 ns, against 1.3 to 3.4 ns for 13 equal bytes. In a
/// profile of the sampler a fifth of the time was in memcmp.
#[inline]
#[must_use]
pub fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && (one.is_empty() || std::ptr::eq(one, other) || one == other)
}

/// The bytes as UTF-8, for names; invalid bytes become U+FFFD.
#[must_use]
pub fn name_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The number in a file like `memory.current`; `None` for `max` and the like.
#[must_use]
pub fn single_number(text: &[u8]) -> Option<i64> {
    Scan::new(text).number()
}

#[cfg(test)]
mod tests {
    use super::Scan;

    #[test]
    fn numbers_of_any_length() {
        for (text, number) in [
            ("  42 x", Some(42)),
            ("-7", Some(-7)),
            ("999999999999999999", Some(999_999_999_999_999_999)),
            ("9223372036854771712\n", Some(9_223_372_036_854_771_712)),
            ("18446744073709551615", Some(i64::MAX)),
            ("00000000000000000000000000012", Some(12)),
            ("max", None),
            ("", None),
            ("-", None),
        ] {
            assert_eq!(Scan::new(text.as_bytes()).number(), number, "{text}");
        }
        let mut scan = Scan::new(b"12 kB\n34");
        assert_eq!((scan.number(), scan.rest()), (Some(12), &b" kB\n34"[..]));
    }

    #[test]
    fn files_of_other_users_are_read_up_to_a_limit() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let lines = format!("{}\nlast [aio]\n", "a name \n".repeat(200_000));
        std::fs::write(file.path(), &lines).expect("written");
        let refused = super::read(file.path()).expect_err("more than a MiB").to_string();
        assert!(refused.contains("has more than 1024 KiB"), "{refused}");
        assert_eq!(super::read_first(file.path(), 6).expect("read"), b"a name");
        let found = |part: &str| {
            super::find_line(file.path(), |line| line.contains(part).then(|| line.to_owned())).expect("read")
        };
        assert_eq!(found("[aio]").as_deref(), Some("last [aio]"));
        assert_eq!(found("[none]"), None);
    }

    #[test]
    fn the_next_line_with_a_start() {
        let mut scan = Scan::new(b"pagesets Node \n  cpu: 0\nNode 1, zone\n");
        scan.next_line_with(b"\nNode ");
        assert!(scan.rest().starts_with(b"Node 1"));
        scan.next_line_with(b"\nNode ");
        assert!(scan.is_empty());
    }
}
