//! Stores recordings within limits: total size, age, and free space of the disk.
//!
//! The directory is held open. Anything in it that does not look like a recording of flatwater is left alone: a
//! mistyped `directory` must not cost another person's data.
//!
//! A recording is made below a name with `MAKING` and removed below a name with `GONE`. A directory whose name starts
//! with `PREFIX` therefore has a header at every instant, and the next start removes what a kill left.

mod making;
mod usage;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::{Duration, SystemTime};

use flatwater_recording::short_sort::ShortSort;
use flatwater_recording::units::Bytes;
use flatwater_safefs::{Dir, Limited, Refusal};

pub use self::making::Making;
use self::making::{GONE, MAKING, numbered, remove};
use self::usage::{Usage, newest_of_each_account};
use crate::account::Account;
use crate::config;

#[derive(Debug)]
pub struct Store {
    dir: Dir,
    limits: config::Store,
}

/// A stored recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecording {
    pub name: String,
    pub bytes: u64,
    pub changed: SystemTime,
    /// The accounts whose calls it was made for; one empty name if unknown.
    pub accounts: Vec<String>,
}

/// The result of `Store::prune`.
#[derive(Debug, Default)]
pub struct Pruned {
    pub removed: Vec<StoredRecording>,
    /// Recordings and files that could not be removed, each with the reason.
    pub failed: Vec<Refusal>,
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
const HEADER: &str = "header.json";
/// A file in each recording: the accounts that it was made for, one a line.
const ACCOUNTS: &str = "set-off-by";
const ACCOUNTS_BYTES_MAX: u64 = 64 << 10;
/// Space that is made free before a recording begins. A recording of a minute and a half takes a few MiB.
const ONE_RECORDING: Bytes = Bytes(16 << 20);
/// The end of an hourly summary's name; `flatwater-fleet push` recognizes summaries by it.
const SUMMARY: &str = "-hour.summary.parquet";
/// Maximum number of files counted per recording; a recording has about twenty.
const FILES_MAX: usize = 256;

/// Writes the accounts that a recording is made for.
pub fn write_accounts(dir: &Dir, accounts: &[Account]) -> Result<(), Refusal> {
    let lines: String = accounts.iter().map(|account| format!("{}\n", account.as_str())).collect();
    dir.replace(ACCOUNTS, lines.as_bytes(), true)
}

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

    /// Makes a directory for a recording with the account in it, and with a temporary name. The recording's name has
    /// the time and the trigger.
    pub fn begin(&self, trigger: &str, account: &Account, now: SystemTime) -> Result<Making, Refusal> {
        let stem = format!("{PREFIX}{}-{trigger}", stamp(now));
        let making = Making::begin(&self.dir, stem)?;
        write_accounts(making.dir(), std::slice::from_ref(account))?;
        Ok(making)
    }

    /// Removes what a killed daemon left. Call it while no recording is being begun; one that was published is not
    /// touched. Returns what could not be removed.
    #[must_use]
    pub fn remove_leftovers(&self) -> Vec<Refusal> {
        let names = match self.dir.names() {
            Ok(names) => names,
            Err(refusal) => return vec![refusal],
        };
        let names = names.iter().filter_map(|name| name.to_str());
        let is_leftover = |name: &&str| {
            let of_ours = |prefix: &str| name.strip_prefix(prefix).is_some_and(|name| name.starts_with(PREFIX));
            of_ours(MAKING) || of_ours(GONE) || self.is_headless(name)
        };
        names.filter(is_leftover).filter_map(|name| remove(&self.dir, name).err()).collect()
    }

    /// Whether this is a directory that an earlier version named after a time and left without a header, when it was
    /// killed while it made or removed a recording.
    fn is_headless(&self, name: &str) -> bool {
        let is_stamped = name.strip_prefix(PREFIX).is_some_and(|rest| {
            let mut shape = rest.bytes().zip("00000000-000000-".bytes());
            rest.len() > 16
                && shape.all(|(byte, shape)| if shape == b'0' { byte.is_ascii_digit() } else { byte == shape })
        });
        let of_a_recording = |file: &OsString| {
            let Some(file) = file.to_str() else { return false };
            [ACCOUNTS, "reserve", "sealed.json", "outcomes.json"].contains(&file)
                || [".frames", ".parquet", ".tmp"].iter().any(|end| file.ends_with(end))
        };
        is_stamped && self.dir.dir(name).and_then(|dir| dir.names()).is_ok_and(|files| files.iter().all(of_a_recording))
    }

    /// Stores an hour's summary beside the recordings, atomically. Returns its name.
    pub fn put_summary(&self, now: SystemTime, bytes: &[u8]) -> Result<String, Refusal> {
        let stamp = stamp(now);
        let name = |count: u32| format!("{}{SUMMARY}", numbered(&format!("{PREFIX}{stamp}"), count));
        let mut count = 1;
        while self.dir.exists(&name(count)) {
            count += 1;
        }
        self.dir.replace(&name(count), bytes, true)?;
        Ok(name(count))
    }

    /// Removes summaries that are too old. Their size is not limited: an hour takes a few KiB.
    fn prune_summaries(&self, now: SystemTime, pruned: &mut Pruned) -> Result<(), Refusal> {
        let names = self.dir.names()?;
        let names = names.iter().filter_map(|name| name.to_str());
        for name in names.filter(|name| name.starts_with(PREFIX) && name.ends_with(SUMMARY)) {
            let Ok(stat) = self.dir.stat(name) else { continue };
            let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
            if now.duration_since(changed).is_ok_and(|age| age > Duration::from_nanos(self.limits.age_max_ns)) {
                pruned.failed.extend(self.dir.remove(name).err());
            }
        }
        Ok(())
    }

    /// The stored recordings, oldest first.
    pub fn recordings(&self) -> Result<Vec<StoredRecording>, Refusal> {
        let names = self.dir.names()?;
        let mut stored: Vec<StoredRecording> = names.iter().filter_map(|name| self.look(name)).collect();
        stored.sort_short_by(|one, other| (one.changed, &one.name).cmp(&(other.changed, &other.name)));
        Ok(stored)
    }

    fn look(&self, name: &OsStr) -> Option<StoredRecording> {
        let name = name.to_str().filter(|name| name.starts_with(PREFIX))?;
        // A directory of another owner or a link is refused here, and so never removed.
        let dir = self.dir.dir(name).ok()?;
        let files = dir.names().ok()?;
        if !files.iter().any(|file| file == HEADER) {
            return None;
        }
        let stats = files.iter().take(FILES_MAX).filter_map(|file| Some((file, dir.stat(file.to_str()?).ok()?)));
        let mut bytes = 0_u64;
        let mut changed_s = 0_i64;
        for (file, stat) in stats {
            bytes = bytes.saturating_add(u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512));
            if file != ACCOUNTS {
                changed_s = changed_s.max(stat.st_mtime);
            }
        }
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(changed_s).unwrap_or(0));
        let mut text = Vec::new();
        let whole = dir.read(ACCOUNTS).map(|file| Limited::new(file, ACCOUNTS_BYTES_MAX).read_to_end(&mut text));
        let text = if matches!(whole, Ok(Ok(true))) { String::from_utf8_lossy(&text) } else { "".into() };
        let mut accounts: Vec<String> = text.lines().map(str::to_owned).collect();
        if accounts.is_empty() {
            accounts.push(String::new());
        }
        Some(StoredRecording { name: name.to_owned(), bytes, changed, accounts })
    }

    /// Removes recordings that are too old. While the size has no room for one more recording, also removes the oldest
    /// recording of the account that uses most bytes. While less than `keep_free` is free, does the same, but keeps the
    /// newest recording of each account: otherwise a user who fills the file system would erase all of them. Never
    /// removes `current`.
    pub fn prune(&self, now: SystemTime, current: Option<&str>) -> Result<Pruned, Refusal> {
        let mut pruned = Pruned::default();
        self.prune_summaries(now, &mut pruned)?;
        let mut stored = self.recordings()?;
        let mut sum: u64 = stored.iter().map(|recording| recording.bytes).fold(0, u64::saturating_add);
        let mut usage = Usage::of(&stored);
        let newest = newest_of_each_account(&stored);
        stored.retain(|recording| Some(recording.name.as_str()) != current);
        let age_max = Duration::from_nanos(self.limits.age_max_ns);
        let is_old = |recording: &StoredRecording| now.duration_since(recording.changed).is_ok_and(|age| age > age_max);
        loop {
            let much = sum.saturating_add(ONE_RECORDING.0.min(self.limits.bytes_max / 4)) > self.limits.bytes_max;
            let next = match stored.iter().position(is_old) {
                None if much => usage.oldest_of_largest(&stored, |_| true),
                None if self.is_short() => {
                    usage.oldest_of_largest(&stored, |recording| !newest.contains(&recording.name))
                }
                old => old,
            };
            let Some(next) = next else { break };
            let recording = stored.remove(next);
            sum = sum.saturating_sub(recording.bytes);
            usage.subtract(&recording);
            match remove(&self.dir, &recording.name) {
                Ok(()) => pruned.removed.push(recording),
                // Other recordings do not make room for one that cannot be removed.
                Err(refusal) => pruned.failed.push(refusal),
            }
        }
        Ok(pruned)
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
        Some(self.recordings().ok()?.iter().map(|recording| recording.bytes).sum())
    }
}

/// `20261122-113340`, in UTC.
fn stamp(now: SystemTime) -> String {
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    chrono::DateTime::from_timestamp(i64::try_from(seconds).unwrap_or(0), 0)
        .map_or_else(|| seconds.to_string(), |time| time.format("%Y%m%d-%H%M%S").to_string())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    use flatwater_safefs::Dir;
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

    use super::{Making, Store, write_accounts};
    use crate::account::Account;
    use crate::config::Config;

    /// Below the crate's directory: other users can write /tmp, so a store there is refused.
    pub(crate) fn store(change: impl Fn(&mut crate::config::Store)) -> (tempfile::TempDir, Store) {
        let place = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
        let mut limits = Config::default().store;
        limits.directory = place.path().join("recordings");
        limits.keep_free_share = 0.0;
        change(&mut limits);
        let store = Store::open(&limits).expect("opens");
        (place, store)
    }

    fn account(unit: &str) -> Account {
        Account::of(&format!("/system.slice/{unit}.service"), Some(0))
    }

    fn age(dir: &Dir, age_s: u64) {
        let file = fs::File::open(dir.proc_path().join("header.json")).expect("there");
        file.set_modified(SystemTime::now() - Duration::from_secs(age_s)).expect("dated");
    }

    fn fill_for(store: &Store, accounts: &[Account], bytes: usize, age_s: u64) -> String {
        let mut making = store.begin("stall", &accounts[0], SystemTime::now()).expect("begins");
        write_accounts(making.dir(), accounts).expect("written");
        making.dir().replace("header.json", &vec![b' '; bytes], true).expect("written");
        age(making.dir(), age_s);
        making.publish().expect("named");
        making.keep().0
    }

    fn fill(store: &Store, bytes: usize, age_s: u64) -> String {
        fill_for(store, &[Account::machine()], bytes, age_s)
    }

    fn names(store: &Store) -> Vec<String> {
        store.recordings().expect("listed").into_iter().map(|recording| recording.name).collect()
    }

    fn entries(store: &Store) -> Vec<String> {
        let entries = fs::read_dir(store.path()).expect("listed").flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_oldest_are_removed_first_and_the_current_one_never() {
        let (_place, store) = store(|limits| limits.bytes_max = (4 << 20) + (64 << 10));
        let names: Vec<String> = (0..6).map(|at| fill(&store, 1 << 20, 1_000 - at * 100)).collect();
        let pruned = store.prune(SystemTime::now(), Some(&names[0])).expect("prunes");
        assert_eq!(pruned.removed.iter().map(|recording| recording.name.clone()).collect::<Vec<_>>(), names[1..4]);
        assert_eq!(store.recordings().expect("listed").len(), 3);
    }

    #[test]
    fn s9_a_users_recordings_replace_the_same_users_recordings() {
        let (_place, store) = store(|limits| limits.bytes_max = 8 << 20);
        let fill = |unit: &str, age_s: u64| fill_for(&store, &[account(unit)], 1 << 20, age_s);
        let database: Vec<String> = (0..2).map(|at| fill("postgresql", 9_000 - at)).collect();
        for at in 0..20 {
            fill("evil", 1_000 - at);
            store.prune(SystemTime::now(), None).expect("prunes");
        }
        let kept = names(&store);
        assert!(database.iter().all(|name| kept.contains(name)), "{kept:?}");
        assert!((3..8).contains(&kept.len()), "{kept:?}");
    }

    /// S9: fails on 5d310ca9, where a stall that began during another user's recording was stored for that user alone.
    #[test]
    fn s9_a_recording_for_two_accounts_stays_while_one_of_them_uses_little() {
        let (_place, store) = store(|limits| limits.bytes_max = 8 << 20);
        let shared = fill_for(&store, &[account("evil"), account("postgresql")], 1 << 20, 9_000);
        for at in 0..20 {
            fill_for(&store, &[account("evil")], 1 << 20, 1_000 - at);
            store.prune(SystemTime::now(), None).expect("prunes");
        }
        assert!(names(&store).contains(&shared), "{:?}", names(&store));
    }

    /// S9: fails on 5d310ca9, where a user who filled the file system had every recording removed.
    #[test]
    fn s9_a_full_file_system_leaves_the_newest_recording_of_each_account() {
        let (_place, store) = store(|limits| limits.keep_free_share = 0.95);
        assert_eq!(store.room(), Err(super::Full::Disk), "the machine's disk is used by more than 5 %");
        let mut newest = Vec::new();
        for unit in ["postgresql", "redis", "evil"] {
            fill_for(&store, &[account(unit)], 10, 900);
            newest.push(fill_for(&store, &[account(unit)], 10, 600));
        }
        assert_eq!(store.prune(SystemTime::now(), None).expect("prunes").removed.len(), 3);
        newest.sort();
        let mut kept = names(&store);
        kept.sort();
        assert_eq!(kept, newest);
    }

    #[test]
    fn a_recording_that_is_too_old_is_removed_whatever_the_quota() {
        let (_place, store) = store(|limits| limits.age_max_ns = 3_600_000_000_000);
        let old = fill(&store, 10, 7_200);
        let new = fill(&store, 10, 60);
        store.prune(SystemTime::now(), None).expect("prunes");
        assert_eq!(names(&store), [new], "{old}");
    }

    #[test]
    fn summaries_are_stored_beside_recordings_and_removed_by_age_alone() {
        let (_place, store) = store(|limits| (limits.bytes_max, limits.age_max_ns) = (0, 3_600_000_000_000));
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000);
        for _ in 0..2 {
            store.put_summary(now, b"rows").expect("written");
        }
        fill(&store, 10, 60);
        let path = |name: &str| store.path().join(name);
        let first = path("flatwater-20261118-110640-hour.summary.parquet");
        let file = fs::File::options().write(true).open(&first).expect("there");
        file.set_modified(SystemTime::now() - Duration::from_secs(7_200)).expect("dated");
        store.prune(SystemTime::now(), None).expect("prunes");
        assert!(!first.exists() && path("flatwater-20261118-110640-2-hour.summary.parquet").exists());
        assert_eq!(store.recordings().expect("listed").len(), 0, "the recording is removed for its size");
    }

    #[test]
    fn what_is_not_a_recording_is_left_alone() {
        let (_place, store) = store(|limits| (limits.bytes_max, limits.age_max_ns) = (0, 0));
        let path = store.path().to_owned();
        for (dir, file) in [
            ("flatwater-thesis", "chapter.tex"),
            ("flatwater-20261118-110640-thesis", "chapter.tex"),
            ("flatwater-tables", "calls.parquet"),
            (".making-sense", "notes.txt"),
        ] {
            fs::create_dir(path.join(dir)).expect("made");
            fs::write(path.join(dir).join(file), "dear").expect("written");
        }
        fs::write(path.join("notes"), "mine").expect("written");
        std::os::unix::fs::symlink("/etc", path.join("flatwater-link")).expect("linked");
        let before = entries(&store);
        let ours = fill(&store, 10, 60);
        assert_eq!(store.remove_leftovers().len(), 0);
        let pruned = store.prune(SystemTime::now(), None).expect("prunes");
        assert_eq!(pruned.removed.len(), 1, "{pruned:?} {ours}");
        assert_eq!(entries(&store), before);
        assert!(std::path::Path::new("/etc/passwd").exists());
    }

    /// Fails on 5d310ca9, where a kill left directories that no reader accepts and that were never removed.
    #[test]
    fn directories_that_a_kill_left_are_not_recordings_and_are_removed_at_the_next_start() {
        let (_place, store) = store(|_| {});
        let begin = || store.begin("stall", &Account::machine(), SystemTime::now()).expect("begins");
        std::mem::forget(begin());
        let with_header = begin();
        with_header.dir().replace("header.json", b"{}", true).expect("written");
        std::mem::forget(with_header);
        let kept = fill(&store, 10, 60);
        let half_removed = store.path().join(format!(".gone-{kept}"));
        fs::create_dir(&half_removed).expect("made");
        // Earlier versions left these.
        for (dir, file) in
            [("flatwater-20261118-110640-stall", "set-off-by"), ("flatwater-20261118-110641-stall-2", "calls.parquet")]
        {
            fs::create_dir(store.path().join(dir)).expect("made");
            fs::write(store.path().join(dir).join(file), "rows").expect("written");
        }
        assert_eq!(names(&store), [kept.as_str()]);
        let failed = store.remove_leftovers();
        assert!(failed.is_empty(), "{failed:?}");
        assert_eq!(entries(&store), [kept]);
    }

    #[test]
    fn a_recording_that_is_not_kept_is_removed() {
        let (_place, store) = store(|_| {});
        let begin = || store.begin("stall", &Account::machine(), SystemTime::now()).expect("begins");
        drop::<Making>(begin());
        let mut published = begin();
        published.publish().expect("named");
        drop(published);
        assert!(entries(&store).is_empty(), "{:?}", entries(&store));
    }

    /// A file system mounted in a recording, which therefore cannot be removed.
    struct Mounted {
        recording: fs::File,
    }

    impl Mounted {
        fn within(recording: &Path) -> Mounted {
            fs::create_dir(recording.join("here")).expect("made");
            mount("none", recording.join("here"), "tmpfs", MountFlags::empty(), None).expect("mounted, as root");
            Mounted { recording: fs::File::open(recording).expect("opens") }
        }
    }

    impl Drop for Mounted {
        fn drop(&mut self) {
            // By handle, because the recording has another name by now.
            let here = format!("/proc/self/fd/{}/here", self.recording.as_raw_fd());
            unmount(here, UnmountFlags::DETACH).expect("unmounted");
        }
    }

    /// Fails on 5d310ca9, where pruning ended at the first such recording, which it left half removed.
    #[test]
    fn a_recording_that_cannot_be_removed_does_not_end_pruning() {
        let (_place, store) = store(|limits| (limits.bytes_max, limits.age_max_ns) = (0, 0));
        let stuck = fill(&store, 10, 900);
        let _mounted = Mounted::within(&store.path().join(&stuck));
        fill(&store, 10, 600);
        let pruned = store.prune(SystemTime::now(), None).expect("prunes");
        assert_eq!((pruned.removed.len(), pruned.failed.len()), (1, 1), "{pruned:?}");
        assert_eq!(entries(&store), [format!(".gone-{stuck}")], "no recording is half removed");
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
        let name = || {
            let mut making = store.begin("stall", &Account::machine(), now).expect("begins");
            making.publish().expect("named");
            making.keep().0
        };
        assert_eq!(
            (name().as_str(), name().as_str()),
            ("flatwater-20261118-110640-stall", "flatwater-20261118-110640-stall-2")
        );
    }
}
