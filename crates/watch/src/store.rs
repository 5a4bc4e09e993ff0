//! Stores recordings within limits: total size, age, and free space of the disk.
//!
//! The directory is held open. Anything in it that does not look like a recording of flatwater is left alone: a
//! mistyped `directory` must not cost another person's data.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::{Duration, SystemTime};

use flatwater_recording::units::Bytes;
use flatwater_safefs::{Dir, Limited, Refusal};

use crate::account::Account;
use crate::config;

#[derive(Debug)]
pub struct Store {
    dir: Dir,
    limits: config::Store,
}

/// A stored recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub name: String,
    pub bytes: u64,
    pub changed: SystemTime,
    /// The account whose calls triggered it; empty if unknown.
    pub account: String,
}

/// Why no recording is possible now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Full {
    /// The file system has no free space beyond the share that `keep_free` reserves.
    Disk,
    /// The file system is read-only, or its state cannot be read.
    Unwritable,
}

const PREFIX: &str = "flatwater-";
/// A file in each recording: the account whose calls triggered it.
const ACCOUNT: &str = "set-off-by";
const ACCOUNT_BYTES_MAX: u64 = 4_096;
/// Space that is made free before a recording begins. A recording of a minute and a half takes a few MiB.
const ONE_RECORDING: Bytes = Bytes(16 << 20);
/// The end of an hourly summary's name; `flatwater-fleet push` recognizes summaries by it.
const SUMMARY: &str = "-hour.summary.parquet";
/// Maximum number of files counted per recording; a recording has about twenty.
const FILES_MAX: usize = 256;

impl Store {
    /// Opens the directory, or makes it. As root, refuses a directory that other users can write or replace.
    pub fn open(limits: &config::Store) -> Result<Store, Refusal> {
        let dir = Dir::make_trusted(&limits.directory)?;
        Ok(Store { dir, limits: limits.clone() })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Makes a directory named after the time and the trigger, with the account in it.
    pub fn begin(&self, trigger: &str, account: &Account, now: SystemTime) -> Result<(String, Dir), Refusal> {
        let stamp = stamp(now);
        let mut count = 1;
        loop {
            let tail = if count == 1 { String::new() } else { format!("-{count}") };
            let name = format!("{PREFIX}{stamp}-{trigger}{tail}");
            if !self.dir.exists(&name) {
                let dir = self.dir.make_dir(&name)?;
                dir.replace(ACCOUNT, account.as_str().as_bytes(), false)?;
                return Ok((name, dir));
            }
            count += 1;
        }
    }

    /// Stores an hour's summary beside the recordings, atomically.
    pub fn put_summary(&self, now: SystemTime, bytes: &[u8]) -> Result<(), Refusal> {
        let stamp = stamp(now);
        let name = |count: u32| match count {
            1 => format!("{PREFIX}{stamp}{SUMMARY}"),
            _ => format!("{PREFIX}{stamp}-{count}{SUMMARY}"),
        };
        let mut count = 1;
        while self.dir.exists(&name(count)) {
            count += 1;
        }
        self.dir.replace(&name(count), bytes, true)
    }

    /// Removes summaries that are too old. Their size is not limited: an hour takes a few KiB.
    fn prune_summaries(&self, now: SystemTime) -> Result<(), Refusal> {
        let names = self.dir.names()?;
        let names = names.iter().filter_map(|name| name.to_str());
        for name in names.filter(|name| name.starts_with(PREFIX) && name.ends_with(SUMMARY)) {
            let changed_s = self.dir.stat(name)?.st_mtime;
            let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(changed_s).unwrap_or(0));
            if now.duration_since(changed).is_ok_and(|age| age > Duration::from_nanos(self.limits.age_max_ns)) {
                self.dir.remove(name)?;
            }
        }
        Ok(())
    }

    /// The stored recordings, oldest first.
    pub fn kept(&self) -> Result<Vec<Kept>, Refusal> {
        let names = self.dir.names()?;
        let mut kept: Vec<Kept> = names.iter().filter_map(|name| self.look(name)).collect();
        kept.sort_by(|one, other| (one.changed, &one.name).cmp(&(other.changed, &other.name)));
        Ok(kept)
    }

    fn look(&self, name: &OsStr) -> Option<Kept> {
        let name = name.to_str().filter(|name| name.starts_with(PREFIX))?;
        // A directory of another owner or a link is refused here, and so never removed.
        let dir = self.dir.dir(name).ok()?;
        let files = dir.names().ok()?;
        let is_ours = |file: &OsString| file == "header.json" || file == ACCOUNT;
        if !files.is_empty() && !files.iter().any(is_ours) {
            return None;
        }
        let stats = files.iter().take(FILES_MAX).filter_map(|file| Some((file, dir.stat(file.to_str()?).ok()?)));
        let mut bytes = 0_u64;
        let mut changed_s = 0_i64;
        for (file, stat) in stats {
            bytes = bytes.saturating_add(u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512));
            if file != ACCOUNT {
                changed_s = changed_s.max(stat.st_mtime);
            }
        }
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(changed_s).unwrap_or(0));
        let mut account = Vec::new();
        let whole = dir.read(ACCOUNT).map(|file| Limited::new(file, ACCOUNT_BYTES_MAX).read_to_end(&mut account));
        let account = if matches!(whole, Ok(Ok(true))) { account } else { Vec::new() };
        Some(Kept { name: name.to_owned(), bytes, changed, account: String::from_utf8_lossy(&account).into_owned() })
    }

    /// Removes recordings that are too old. Then, until there is room for one more recording and `keep_free` is free,
    /// removes the oldest recording of the account that uses most bytes. Never removes `current`. Returns the removed
    /// recordings.
    pub fn prune(&self, now: SystemTime, current: Option<&str>) -> Result<Vec<Kept>, Refusal> {
        self.prune_summaries(now)?;
        let mut kept = self.kept()?;
        let mut sum: u64 = kept.iter().map(|one| one.bytes).fold(0, u64::saturating_add);
        let mut by_account: BTreeMap<String, u64> = BTreeMap::new();
        for one in &kept {
            *by_account.entry(one.account.clone()).or_default() += one.bytes;
        }
        kept.retain(|one| Some(one.name.as_str()) != current);
        let age_max = Duration::from_nanos(self.limits.age_max_ns);
        let is_old = |one: &Kept| now.duration_since(one.changed).is_ok_and(|age| age > age_max);
        let mut gone = Vec::new();
        loop {
            let much = sum.saturating_add(ONE_RECORDING.0.min(self.limits.bytes_max / 4)) > self.limits.bytes_max;
            let next = match kept.iter().position(is_old) {
                None if much || self.is_short() => largest(&kept, &by_account),
                old => old,
            };
            let Some(next) = next else { break };
            let one = kept.remove(next);
            self.dir.remove_tree(&one.name)?;
            sum = sum.saturating_sub(one.bytes);
            if let Some(bytes) = by_account.get_mut(&one.account) {
                *bytes = bytes.saturating_sub(one.bytes);
            }
            gone.push(one);
        }
        Ok(gone)
    }

    /// Whether a recording may begin or continue.
    pub fn room(&self) -> Result<(), Full> {
        match self.free_share() {
            None => Err(Full::Unwritable),
            Some(_) if self.is_short() => Err(Full::Disk),
            Some(_) => Ok(()),
        }
    }

    fn is_short(&self) -> bool {
        self.free_share().is_some_and(|share| share < self.limits.keep_free_share)
    }

    /// The free share of the file system; `None` if it is read-only or cannot be read.
    fn free_share(&self) -> Option<f64> {
        let stat = rustix::fs::statvfs(self.dir.proc_path()).ok()?;
        if stat.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) || stat.f_blocks == 0 {
            return None;
        }
        Some(stat.f_bavail as f64 / stat.f_blocks as f64)
    }

    /// Size of all stored recordings.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        Some(self.kept().ok()?.iter().map(|one| one.bytes).sum())
    }
}

/// The index of the oldest recording of the account that uses most bytes.
fn largest(kept: &[Kept], by_account: &BTreeMap<String, u64>) -> Option<usize> {
    let bytes = |one: &Kept| by_account.get(&one.account).copied().unwrap_or(0);
    let most = kept.iter().map(bytes).max()?;
    kept.iter().position(|one| bytes(one) == most)
}

/// `20261122-113340`, in UTC.
fn stamp(now: SystemTime) -> String {
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    chrono::DateTime::from_timestamp(i64::try_from(seconds).unwrap_or(0), 0)
        .map_or_else(|| seconds.to_string(), |time| time.format("%Y%m%d-%H%M%S").to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, SystemTime};

    use super::Store;
    use crate::account::Account;
    use crate::config::Config;

    /// Below the crate's directory: other users can write /tmp, so a store there is refused.
    fn store(change: impl Fn(&mut crate::config::Store)) -> (tempfile::TempDir, Store) {
        let place = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
        let mut limits = Config::default().store;
        limits.directory = place.path().join("recordings");
        limits.keep_free_share = 0.0;
        change(&mut limits);
        let store = Store::open(&limits).expect("opens");
        (place, store)
    }

    fn fill(store: &Store, trigger: &str, bytes: usize, age_s: u64) -> String {
        let (name, dir) = store.begin(trigger, &Account::machine(), SystemTime::now()).expect("begins");
        dir.replace("header.json", &vec![b' '; bytes], true).expect("written");
        let file = fs::File::open(dir.proc_path().join("header.json")).expect("there");
        file.set_modified(SystemTime::now() - Duration::from_secs(age_s)).expect("dated");
        name
    }

    #[test]
    fn the_oldest_are_removed_first_and_the_current_one_never() {
        let (_place, store) = store(|limits| limits.bytes_max = (4 << 20) + (64 << 10));
        let names: Vec<String> = (0..6).map(|at| fill(&store, "stall", 1 << 20, 1_000 - at * 100)).collect();
        let gone = store.prune(SystemTime::now(), Some(&names[0])).expect("prunes");
        assert_eq!(gone.iter().map(|one| one.name.clone()).collect::<Vec<_>>(), names[1..4]);
        assert_eq!(store.kept().expect("listed").len(), 3);
    }

    /// S9: fails on 9232d20c, where the recordings of one user's stalls pushed out older recordings of all others.
    #[test]
    fn s9_a_users_recordings_replace_the_same_users_recordings() {
        let (_place, store) = store(|limits| limits.bytes_max = 8 << 20);
        let fill = |account: &str, age_s: u64| {
            let account = Account::of(&format!("/system.slice/{account}.service"), Some(0));
            let (name, dir) = store.begin("stall", &account, SystemTime::now()).expect("begins");
            dir.replace("header.json", &vec![b' '; 1 << 20], true).expect("written");
            let file = fs::File::open(dir.proc_path().join("header.json")).expect("there");
            file.set_modified(SystemTime::now() - Duration::from_secs(age_s)).expect("dated");
            name
        };
        let database: Vec<String> = (0..2).map(|at| fill("postgresql", 9_000 - at)).collect();
        for at in 0..20 {
            fill("evil", 1_000 - at);
            store.prune(SystemTime::now(), None).expect("prunes");
        }
        let kept: Vec<String> = store.kept().expect("listed").into_iter().map(|one| one.name).collect();
        assert!(database.iter().all(|name| kept.contains(name)), "{kept:?}");
        assert!((3..8).contains(&kept.len()), "{kept:?}");
    }

    #[test]
    fn a_recording_that_is_too_old_is_removed_whatever_the_quota() {
        let (_place, store) = store(|limits| limits.age_max_ns = 3_600_000_000_000);
        let old = fill(&store, "stall", 10, 7_200);
        let new = fill(&store, "stall", 10, 60);
        store.prune(SystemTime::now(), None).expect("prunes");
        let kept = store.kept().expect("listed");
        assert_eq!(kept.iter().map(|one| &one.name).collect::<Vec<_>>(), [&new], "{old}");
    }

    #[test]
    fn summaries_are_stored_beside_recordings_and_removed_by_age_alone() {
        let (_place, store) = store(|limits| (limits.bytes_max, limits.age_max_ns) = (0, 3_600_000_000_000));
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000);
        for _ in 0..2 {
            store.put_summary(now, b"rows").expect("written");
        }
        fill(&store, "stall", 10, 60);
        let path = |name: &str| store.path().join(name);
        let first = path("flatwater-20261118-110640-hour.summary.parquet");
        let file = fs::File::options().write(true).open(&first).expect("there");
        file.set_modified(SystemTime::now() - Duration::from_secs(7_200)).expect("dated");
        store.prune(SystemTime::now(), None).expect("prunes");
        assert!(!first.exists() && path("flatwater-20261118-110640-2-hour.summary.parquet").exists());
        assert_eq!(store.kept().expect("listed").len(), 0, "the recording is removed for its size");
    }

    #[test]
    fn what_is_not_a_recording_is_left_alone() {
        let (_place, store) = store(|limits| (limits.bytes_max, limits.age_max_ns) = (0, 0));
        let path = store.path().to_owned();
        fs::create_dir(path.join("flatwater-thesis")).expect("made");
        fs::write(path.join("flatwater-thesis/chapter.tex"), "dear").expect("written");
        fs::write(path.join("notes"), "mine").expect("written");
        std::os::unix::fs::symlink("/etc", path.join("flatwater-link")).expect("linked");
        let ours = fill(&store, "stall", 10, 60);
        let gone = store.prune(SystemTime::now(), None).expect("prunes");
        assert_eq!(gone.len(), 1, "{gone:?} {ours}");
        assert!(path.join("flatwater-thesis/chapter.tex").exists() && path.join("notes").exists());
        assert!(std::path::Path::new("/etc/passwd").exists());
    }

    #[test]
    fn no_recording_begins_on_a_disk_that_is_nearly_full() {
        let (_place, store) = store(|limits| limits.keep_free_share = 0.95);
        assert_eq!(store.room(), Err(super::Full::Disk));
    }

    #[test]
    fn two_recordings_of_one_second_have_two_names() {
        let (_place, store) = store(|_| {});
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000);
        let one = store.begin("stall", &Account::machine(), now).expect("begins").0;
        let other = store.begin("stall", &Account::machine(), now).expect("begins").0;
        assert_eq!(
            (one.as_str(), other.as_str()),
            ("flatwater-20261118-110640-stall", "flatwater-20261118-110640-stall-2")
        );
    }
}
