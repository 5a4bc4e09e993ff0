//! Reads the mounts of this process from /proc/self/mountinfo.
//!
//! In a path, the kernel writes a space, tab, newline or backslash (since 5.17 also `#`) as a backslash with three
//! octal digits (fs/proc_namespace.c: mangle). Only `decoded` reverses this; no other code parses this file.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A mount in this process's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    /// Number of the file system: `259:1`.
    pub number: String,
    /// The directory of the file system that is mounted.
    pub root: PathBuf,
    pub point: PathBuf,
    pub kind: String,
    /// A device, a server, or any word.
    pub source: OsString,
    /// The file system's options, separated by commas; each is still encoded.
    options: OsString,
    /// The options of this mount, likewise: `rw,noatime`.
    own_options: OsString,
}

impl Mount {
    /// Whether this option, a word, is set.
    #[must_use]
    pub fn has(&self, option: &str) -> bool {
        self.options.as_bytes().split(|byte| *byte == b',').any(|one| one == option.as_bytes())
    }

    /// The options of the mount and the file system, each once, as in `mount -o`.
    #[must_use]
    pub fn all_options(&self) -> String {
        let mut all: Vec<String> = Vec::new();
        let each = [&self.own_options, &self.options].into_iter();
        for option in each.flat_map(|options| options.as_bytes().split(|byte| *byte == b',')) {
            let option = decoded(option).to_string_lossy().into_owned();
            if !option.is_empty() && !all.contains(&option) {
                all.push(option);
            }
        }
        all.join(",")
    }

    /// The value of the option `key=value`.
    #[must_use]
    pub fn option(&self, key: &str) -> Option<OsString> {
        let mut options = self.options.as_bytes().split(|byte| *byte == b',');
        let value = options.find_map(|one| one.strip_prefix(key.as_bytes())?.strip_prefix(b"="));
        value.map(decoded)
    }
}

/// All mounts, oldest first.
pub fn read() -> io::Result<Vec<Mount>> {
    Ok(of_mountinfo(&std::fs::read("/proc/self/mountinfo")?))
}

/// The mount that contains this path: the deepest above it; of several at one mount point the last, which hides the
/// others.
#[must_use]
pub fn above<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    above.max_by_key(|mount| mount.point.components().count())
}

/// Parses lines `ID PARENT MAJ:MIN ROOT MOUNTPOINT OPTIONS [OPTIONAL]... - TYPE SOURCE SUPEROPTIONS` (proc(5)).
#[must_use]
pub fn of_mountinfo(text: &[u8]) -> Vec<Mount> {
    let mounts = text.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let number = String::from_utf8_lossy(fields.nth(2)?).into_owned();
        let (root, point, own_options) = (fields.next()?, fields.next()?, fields.next()?);
        // Optional fields follow up to the dash.
        fields.find(|field| *field == b"-")?;
        let (kind, source, options) = (fields.next()?, fields.next()?, fields.next().unwrap_or_default());
        Some(Mount {
            number,
            root: decoded(root).into(),
            point: decoded(point).into(),
            kind: String::from_utf8_lossy(kind).into_owned(),
            source: decoded(source),
            options: OsStr::from_bytes(options).to_owned(),
            own_options: OsStr::from_bytes(own_options).to_owned(),
        })
    });
    mounts.collect()
}

/// Decodes the kernel's `\NNN`.
fn decoded(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, after)) = rest.split_first() {
        match (byte, after) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                out.push(*byte);
                rest = after;
            }
        }
    }
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use super::{above, decoded, of_mountinfo};

    #[test]
    fn every_character_that_the_kernel_encodes_is_decoded_once() {
        for (encoded, plain) in [
            (&b"/a\\040b"[..], &b"/a b"[..]),
            (b"/a\\011b\\012c", b"/a\tb\nc"),
            (b"/a\\134b", b"/a\\b"),
            (b"/a\\134040", b"/a\\040"),
            (b"/a\\043", b"/a#"),
            (b"/\\303\\244\xff", b"/\xc3\xa4\xff"),
            (b"/a\\8", b"/a\\8"),
            (b"/a\\04", b"/a\\04"),
        ] {
            assert_eq!(decoded(encoded).as_bytes(), plain, "{}", String::from_utf8_lossy(encoded));
        }
    }

    #[test]
    fn the_deepest_and_last_mount_contains_a_path() {
        let text = b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
                     2 1 8:2 / /mnt/a\\134b rw shared:1 master:2 - ext4 /dev/sdb rw\n\
                     3 1 8:3 / /mnt/a\\134b rw - xfs /dev/sd\\040c rw,quota,upperdir=/u\\054v\nhalf a line\n";
        let mounts = of_mountinfo(text);
        let held = |path: &str| above(&mounts, Path::new(path)).expect("a mount");
        let last = held("/mnt/a\\b/c");
        assert_eq!((last.kind.as_str(), last.source.to_str()), ("xfs", Some("/dev/sd c")));
        assert!(last.has("quota") && !last.has("quot"));
        assert_eq!(last.option("upperdir").as_deref().and_then(std::ffi::OsStr::to_str), Some("/u,v"));
        assert_eq!(held("/mnt/a\\bc").kind, "ext4", "only the beginning of the name matches");
    }
}
