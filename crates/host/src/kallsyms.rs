//! Maps kernel addresses to symbol names, from /proc/kallsyms.

use std::io::{BufRead, BufReader, Read};

/// Why addresses cannot be named.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KallsymsError {
    #[error("/proc/kallsyms: {0}")]
    Unreadable(#[from] std::io::Error),
    #[error("/proc/kallsyms hides kernel addresses (run as root, or lower kernel.kptr_restrict)")]
    Hidden,
}

/// Function symbols, sorted by address.
#[derive(Debug, Default)]
pub struct Kallsyms {
    addresses: Vec<u64>,
    /// The offset of each name in `names`, and one more for the end of the last.
    starts: Vec<u32>,
    names: String,
}

impl Kallsyms {
    /// Reads /proc/kallsyms. Fails if the file cannot be read, or if it hides the addresses: without the right to see
    /// them (`kernel.kptr_restrict`) they are all 0.
    pub fn read() -> Result<Kallsyms, KallsymsError> {
        let table = Kallsyms::parse(std::fs::File::open("/proc/kallsyms")?)?;
        if table.addresses.is_empty() {
            return Err(KallsymsError::Hidden);
        }
        Ok(table)
    }

    /// Parses the format of /proc/kallsyms. Lines that do not name a code symbol are skipped.
    pub fn parse(text: impl Read) -> std::io::Result<Kallsyms> {
        let mut found: Vec<(u64, u32, u32)> = Vec::new();
        let mut names = String::new();
        let mut reader = BufReader::new(text);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            if let Some((address, name)) = std::str::from_utf8(&line).ok().and_then(code_symbol) {
                let start = names.len() as u32;
                names.push_str(name);
                found.push((address, start, names.len() as u32));
            }
            line.clear();
        }
        found.sort_by_key(|&(address, ..)| address);
        let mut table = Kallsyms::default();
        for (address, start, end) in found {
            table.addresses.push(address);
            table.starts.push(table.names.len() as u32);
            table.names.push_str(&names[start as usize..end as usize]);
        }
        table.starts.push(table.names.len() as u32);
        Ok(table)
    }

    /// The start address of a function; `None` if no function or more than one has this name.
    #[must_use]
    pub fn address_of(&self, function: &str) -> Option<u64> {
        let mut found = self.addresses.iter().filter(|&&address| self.name_of(address) == Some(function));
        found.next().copied().filter(|_| found.next().is_none())
    }

    /// The function that contains an address; `None` below the first symbol.
    #[must_use]
    pub fn name_of(&self, address: u64) -> Option<&str> {
        let after = self.addresses.partition_point(|&start| start <= address);
        let index = after.checked_sub(1)?;
        let (start, end) = (*self.starts.get(index)?, *self.starts.get(index + 1)?);
        self.names.get(start as usize..end as usize)
    }
}

/// Parses `ffffffff81000000 T _text` or `... t name [module]` into address and name, for code symbols only.
fn code_symbol(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok().filter(|&address| address != 0)?;
    let kind = words.next()?;
    let name = words.next()?;
    matches!(kind, "t" | "T" | "w" | "W").then_some((address, name))
}

#[cfg(test)]
mod tests {
    use super::Kallsyms;

    const TEXT: &str = "ffffffff81000300 t third [ext4]\nffffffff81000100 T first\nffffffff81000180 d data\n\
                        ffffffff81000200 W second\nnonsense\n";

    #[test]
    fn an_address_lies_in_the_function_that_begins_before_it() {
        let table = Kallsyms::parse(TEXT.as_bytes()).expect("reads");
        assert_eq!(table.name_of(0xffff_ffff_8100_0100), Some("first"));
        assert_eq!(table.name_of(0xffff_ffff_8100_01ff), Some("first"));
        assert_eq!(table.name_of(0xffff_ffff_8100_0210), Some("second"));
        assert_eq!(table.name_of(0xffff_ffff_ffff_ffff), Some("third"));
        assert_eq!(table.name_of(5), None);
    }

    #[test]
    fn hidden_addresses_leave_nothing() {
        let table = Kallsyms::parse("0000000000000000 T first\n".as_bytes()).expect("reads");
        assert_eq!(table.name_of(0), None);
        assert_eq!(table.name_of(u64::MAX), None);
    }
}
