//! Finds the path of a call's file, from a descriptor, path or address of another process.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::calls::{FileArg, TimedCall};
use super::layout::{CallState, text};

/// Paths read from /proc, cached for calls whose process or descriptor is gone when the call is resolved. The key is
/// the inode, because a descriptor can be reused for another file as soon as it is closed.
#[derive(Debug, Default)]
pub struct FileNames {
    known: HashMap<(u64, u64), String>,
}

/// The cache is cleared when it reaches this size.
const KNOWN_MAX: usize = 65_536;

impl FileNames {
    pub fn of_call(&mut self, call: &TimedCall, state: &CallState) -> Option<String> {
        match call.file {
            FileArg::Descriptor(index) => self.descriptor(state, &[index]),
            FileArg::Descriptors(first, second) => self.descriptor(state, &[first, second]),
            FileArg::Path(_) => absolute(state, None),
            FileArg::PathAt(index) => absolute(state, index.checked_sub(1)),
            FileArg::Address => self.address(state.tgid, state.arg[0]),
            FileArg::Nothing => None,
        }
    }

    /// The file of a call that has not returned: its descriptor is still open.
    pub fn open_now(&mut self, call: &TimedCall, state: &CallState) -> Option<String> {
        let open = |index: usize| {
            let link = fs::read_link(format!("/proc/{}/fd/{}", state.tgid, state.arg[index & 3] as u32)).ok()?;
            Some(link.to_string_lossy().into_owned()).filter(|path| path.starts_with('/'))
        };
        match call.file {
            FileArg::Descriptor(index) => open(index),
            FileArg::Descriptors(first, second) => open(first).or_else(|| open(second)),
            _ => self.of_call(call, state),
        }
    }

    /// The path of the call's file: from the descriptor if it still refers to the same inode, else from an earlier call
    /// on that inode, else only the last component of the name, which the BPF program read.
    fn descriptor(&mut self, state: &CallState, arguments: &[usize]) -> Option<String> {
        if state.file_named == 0 {
            return None;
        }
        let key = (state.device, state.inode_number);
        for &index in arguments {
            let link = format!("/proc/{}/fd/{}", state.tgid, state.arg[index & 3] as u32);
            let same = fs::metadata(&link).is_ok_and(|data| data.ino() == state.inode_number);
            if let (true, Ok(path)) = (same, fs::read_link(&link)) {
                let path = path.to_string_lossy().into_owned();
                if self.known.len() >= KNOWN_MAX {
                    self.known.clear();
                }
                self.known.insert(key, path.clone());
                return Some(path);
            }
        }
        let named = || Some(text(&state.name)).filter(|name| !name.is_empty());
        self.known.get(&key).cloned().or_else(named)
    }

    /// The file mapped at an address.
    pub fn address(&mut self, tgid: u32, address: u64) -> Option<String> {
        let maps = format!("/proc/{tgid}/maps");
        crate::proc::text::find_line(maps, |line| mapped_file(line, address)).ok().flatten()
    }
}

/// Parses `7f00-7f10 r--p 00000000 fe:00 123   /path`: the path, if the address is in the range.
fn mapped_file(line: &str, address: u64) -> Option<String> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let path = rest.find('/').map(|at| &rest[at..])?;
    (start <= address && address < end).then(|| path.to_owned())
}

/// The path argument, made absolute if possible.
fn absolute(state: &CallState, directory: Option<usize>) -> Option<String> {
    let path = text(&state.path);
    if path.is_empty() {
        return None;
    }
    if path.starts_with('/') {
        return Some(path);
    }
    let base = directory.map(|index| state.arg[index & 3]).filter(|base| *base as i32 != libc::AT_FDCWD);
    let directory = match base {
        None => format!("/proc/{}/cwd", state.tgid),
        Some(descriptor) => format!("/proc/{}/fd/{}", state.tgid, descriptor as u32),
    };
    match fs::read_link(directory) {
        Ok(base) => Some(Path::new(&base).join(&path).to_string_lossy().into_owned()),
        Err(_) => Some(path),
    }
}

#[cfg(test)]
mod tests {
    use super::mapped_file;

    #[test]
    fn an_address_names_the_file_mapped_there() {
        let line = "7f00-8f00 r--s 00000000 fe:00 77                   /srv/data/my file";
        assert_eq!(mapped_file(line, 0x8eff).as_deref(), Some("/srv/data/my file"));
        assert_eq!(mapped_file(line, 0x8f00), None);
        assert_eq!(mapped_file("7f00-8f00 rw-p 00000000 00:00 0", 0x7f00), None);
        assert_eq!(mapped_file("nonsense", 1), None);
    }
}
