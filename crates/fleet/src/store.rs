//! The store of a fleet, and the keys of the objects in it.
//!
//! ```text
//! v=1/in/table=summary/dt=2026-11-22/hour=02/shard=17/HOST+BOOT+SEQUENCE.parquet   as hosts push them
//! v=1/table=summary/dt=2026-11-22/hour=02/part-00-of-04.parquet                    compacted
//! v=1/table=days/dt=2026-11-22/day.parquet                                         a day's hours added up
//! v=1/recordings/dt=2026-11-22/HOST+BOOT+SEQUENCE/...                              whole recordings
//! v=1/hosts/HOST+BOOT.json                                                         hosts and their clocks
//! ```
//!
//! A key follows from the object's content, so pushing twice writes the same object twice.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use flatwater_recording::summary::{HourStart, SummaryRow};
use futures::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use url::Url;

use crate::FleetError;
use crate::time::Range;

/// Inputs of one hour are spread over this many prefixes, by a hash of the host.
pub const SHARDS: u32 = 64;
/// Maximum number of files of one table and hour.
pub const PARTS_MAX: u32 = 64;

/// An object store, and the fleet's prefix in it.
#[derive(Clone, Debug)]
pub struct Fleet {
    pub store: Arc<dyn ObjectStore>,
    root: Path,
    /// The directory, if the store is one.
    pub directory: Option<PathBuf>,
    shown: String,
}

impl Fleet {
    /// Opens a directory, or the URL of a bucket and prefix. Credentials and endpoints come from the environment, as
    /// for the clouds' own tools (AWS_ACCESS_KEY_ID, AWS_ENDPOINT, GOOGLE_SERVICE_ACCOUNT, AZURE_STORAGE_ACCOUNT_KEY
    /// ...).
    pub fn open(at: &str) -> Result<Fleet, FleetError> {
        let wrong = |why: String| FleetError::Place { at: at.to_owned(), why };
        let url = match at.contains("://") {
            true => Url::parse(at).map_err(|error| wrong(error.to_string()))?,
            false => return Fleet::directory(PathBuf::from(at)),
        };
        let root = Path::from(url.path().trim_matches('/'));
        let store: Arc<dyn ObjectStore> = match url.scheme() {
            "file" => {
                let path = url.to_file_path().map_err(|()| wrong("a file URL needs an absolute path".to_owned()))?;
                return Fleet::directory(path);
            }
            "s3" | "s3a" => Arc::new(AmazonS3Builder::from_env().with_url(at).build()?),
            "gs" => Arc::new(GoogleCloudStorageBuilder::from_env().with_url(at).build()?),
            "az" | "azure" | "abfs" | "abfss" => Arc::new(MicrosoftAzureBuilder::from_env().with_url(at).build()?),
            other => return Err(wrong(format!("the scheme '{other}' is unknown"))),
        };
        Ok(Fleet { store, root, directory: None, shown: at.trim_end_matches('/').to_owned() })
    }

    /// Like `open`, for operations that only read: a missing directory is an error, and is not made.
    pub fn existing(at: &str) -> Result<Fleet, FleetError> {
        let path = match at.contains("://") {
            false => Some(PathBuf::from(at)),
            true => Url::parse(at).ok().filter(|url| url.scheme() == "file").and_then(|url| url.to_file_path().ok()),
        };
        if let Some(path) = path.filter(|path| !path.is_dir()) {
            return Err(FleetError::NoDirectory { path });
        }
        Fleet::open(at)
    }

    /// Opens a fleet in this directory, which is made if it is missing.
    pub fn directory(path: PathBuf) -> Result<Fleet, FleetError> {
        std::fs::create_dir_all(&path).map_err(FleetError::file(&path))?;
        let path = path.canonicalize().map_err(FleetError::file(&path))?;
        let store = Arc::new(LocalFileSystem::new_with_prefix(&path)?);
        let shown = path.display().to_string();
        Ok(Fleet { store, root: Path::default(), directory: Some(path), shown })
    }

    /// The same fleet over another store: in tests, one that fails on purpose.
    #[must_use]
    pub fn over(&self, store: Arc<dyn ObjectStore>) -> Fleet {
        Fleet { store, ..self.clone() }
    }

    /// The store as the user gave it.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// The URL of the whole store, as other processes open it: `file:///srv/fleet/`, `s3://bucket/`.
    #[must_use]
    pub fn url(&self) -> Option<Url> {
        match &self.directory {
            Some(directory) => Url::from_directory_path(directory).ok(),
            None => Url::parse(&self.shown).ok()?.join("/").ok(),
        }
    }

    #[must_use]
    pub fn key(&self, below: &str) -> Path {
        Path::from_iter(self.root.parts().chain(Path::from(below).parts()))
    }

    /// The part of a key below the fleet's prefix.
    #[must_use]
    pub fn relative(&self, key: &Path) -> String {
        let relative = key.prefix_match(&self.root).map(|parts| parts.collect::<Path>());
        relative.unwrap_or_else(|| key.clone()).to_string()
    }

    /// Must be called before anything is written or removed. Root writes only in a directory of root that no other user
    /// can write: otherwise that user could plant links to other places.
    pub fn require_own(&self) -> Result<(), FleetError> {
        let Some(directory) = &self.directory else { return Ok(()) };
        if rustix::process::geteuid().is_root() {
            flatwater_safefs::Dir::open_own(directory)?;
        }
        Ok(())
    }

    /// Whether the path of an object has a link, if the store is a directory. Files beyond a link do not belong to the
    /// fleet, and are neither counted nor removed.
    #[must_use]
    pub fn is_beyond_link(&self, key: &Path) -> bool {
        let Some(directory) = &self.directory else { return false };
        let mut at = directory.clone();
        // flatwater's names have no character that a path encodes as %XX.
        key.parts().any(|part| {
            at.push(part.as_ref());
            part.as_ref().contains('%') || at.is_symlink()
        })
    }

    /// All objects below a prefix, ordered by key.
    pub async fn list(&self, below: &str) -> Result<Vec<ObjectMeta>, FleetError> {
        let mut all: Vec<ObjectMeta> = self.store.list(Some(&self.key(below))).try_collect().await?;
        all.sort_by(|one, other| one.location.cmp(&other.location));
        if let Some(directory) = &self.directory {
            let mut folder: Option<(Path, bool)> = None;
            all.retain(|meta| {
                // Objects of one folder are adjacent: check its path once, and not for each of ten thousand objects.
                let parent = meta.location.parent().unwrap_or_default();
                let is_beyond = match &folder {
                    Some((known, is_beyond)) if *known == parent => *is_beyond,
                    _ => {
                        let is_beyond = self.is_beyond_link(&parent);
                        folder.insert((parent, is_beyond)).1
                    }
                };
                let name = meta.location.filename().unwrap_or_default();
                !is_beyond && !name.contains('%') && !directory.join(meta.location.as_ref()).is_symlink()
            });
        }
        Ok(all)
    }

    /// The days with objects below a prefix and hours in the range, `dt=2026-11-22`, in order.
    pub async fn days(&self, below: &str, range: Option<Range>) -> Result<Vec<String>, FleetError> {
        let prefixes = self.store.list_with_delimiter(Some(&self.key(below))).await?.common_prefixes;
        let names = prefixes.iter().filter_map(|day| day.filename());
        let wanted = names.filter(|name| {
            name.strip_prefix("dt=").is_some_and(|date| range.is_none_or(|range| may_hold(range, date)))
        });
        let mut days: Vec<String> = wanted.map(str::to_owned).collect();
        days.sort();
        Ok(days)
    }

    /// The hours with objects below a prefix, with the prefix of each.
    pub async fn hours(&self, below: &str, range: Option<Range>) -> Result<Vec<Hour>, FleetError> {
        let mut hours = Vec::new();
        for day in self.days(below, range).await? {
            let day = self.key(&format!("{below}/{day}"));
            for hour in self.store.list_with_delimiter(Some(&day)).await?.common_prefixes {
                let start = hour_at(&hour);
                if range.is_none_or(|range| start.is_some_and(|start| range.has(start))) {
                    hours.push(Hour { start, relative: ending(&hour) });
                }
            }
        }
        hours.sort();
        Ok(hours)
    }
}

/// The last two parts of a prefix: `dt=2026-11-22/hour=02`.
fn ending(hour: &Path) -> String {
    let parts: Vec<String> = hour.parts().map(|part| part.as_ref().to_owned()).collect();
    parts[parts.len().saturating_sub(2)..].join("/")
}

/// The hour of a prefix `.../dt=2026-11-22/hour=02`.
fn hour_at(prefix: &Path) -> Option<HourStart> {
    let relative = ending(prefix);
    let (date, hour) = relative.strip_prefix("dt=")?.split_once("/hour=")?;
    hour_of(date, hour)
}

/// The hour of an object's key.
#[must_use]
pub fn hour_of_object(key: &Path) -> Option<HourStart> {
    let parts: Vec<_> = key.parts().collect();
    let (_, folder) = parts.split_last()?;
    hour_at(&folder.iter().cloned().collect())
}

/// The hours of `dt=2026-11-22`.
#[must_use]
pub fn hours_of_day(day: &str) -> Option<Range> {
    let from = hour_of(day.strip_prefix("dt=")?, "00")?;
    Some(Range { from, to: HourStart::of_hours(from.hours() + 24) })
}

/// An hour with objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hour {
    /// `None` for objects without wall time.
    pub start: Option<HourStart>,
    /// `dt=2026-11-22/hour=02`.
    pub relative: String,
}

/// Whether this day has hours of the range.
fn may_hold(range: Range, date: &str) -> bool {
    hour_of(date, "00").is_some_and(|first| {
        let last = HourStart::of_hours(first.hours() + 24);
        first < range.to && range.from < last
    })
}

fn hour_of(date: &str, hour: &str) -> Option<HourStart> {
    let at = chrono::NaiveDate::parse_from_str(date, "%Y-%m-%d").ok()?.and_hms_opt(hour.parse().ok()?, 0, 0)?;
    Some(HourStart::of_hours(at.and_utc().timestamp().div_euclid(3_600)))
}

/// `dt=2026-11-22/hour=02`; `dt=none/hour=none` without wall time.
#[must_use]
pub fn partition(hour: Option<HourStart>) -> String {
    let Some(hour) = hour else { return "dt=none/hour=none".to_owned() };
    let (year, month, day, of_day) = hour.civil();
    format!("dt={year:04}-{month:02}-{day:02}/hour={of_day:02}")
}

/// `dt=2026-11-22`.
#[must_use]
pub fn day(hour: Option<HourStart>) -> String {
    partition(hour).split('/').next().unwrap_or_default().to_owned()
}

/// The name of a summary: HOST+BOOT+SEQUENCE.
#[must_use]
pub fn name_of(row: &SummaryRow) -> String {
    let boot = row.boot.as_deref().unwrap_or("none");
    format!("{}+{}+{}", encode_name(&row.host), encode_name(boot), row.sequence)
}

/// The key of an input, below `v=1/in`.
#[must_use]
pub fn input_key(row: &SummaryRow) -> String {
    key_with_name(row, &name_of(row))
}

fn key_with_name(row: &SummaryRow, name: &str) -> String {
    let shard = shard_of(&row.host, SHARDS);
    format!("v=1/in/table=summary/{}/shard={shard:02}/{name}.parquet", partition(row.hour_start))
}

/// Whether this is the key of the input with these rows: of their host, its time since boot, sequence, hour and shard.
#[must_use]
pub fn is_key_of(key: &str, row: &SummaryRow) -> bool {
    key == input_key(row) || name_of_before(row).is_some_and(|name| key == key_with_name(row, &name))
}

/// Whether this is where `push` puts the recording of this summary. A recording can begin on the day before the hour.
#[must_use]
pub fn is_recording_of(place: &str, row: &SummaryRow) -> bool {
    let Some((day, name)) = place.strip_prefix("v=1/recordings/dt=").and_then(|rest| rest.split_once('/')) else {
        return false;
    };
    let is_day = day == "none" || chrono::NaiveDate::parse_from_str(day, "%Y-%m-%d").is_ok();
    is_day && (name == name_of(row) || name_of_before(row).is_some_and(|before| name == before))
}

/// The encoded name of the host that an input's key names.
#[must_use]
pub fn host_of_key(key: &Path) -> String {
    key.filename().unwrap_or_default().split('+').next().unwrap_or_default().to_owned()
}

/// The shard of a host, of this many.
#[must_use]
pub fn shard_of(host: &str, of: u32) -> u32 {
    crc32fast::hash(host.as_bytes()) % of.max(1)
}

/// Maximum length of a name in a key; most file systems allow 255 bytes, and a key has other parts.
const NAME_BYTES_MAX: usize = 100;

/// Encodes a name so that it is safe in keys and file systems, and different for different names. Other characters
/// become `_XX`, as does a `_` before two characters that could be such an `XX`. A long name ends with its length and
/// checksum.
#[must_use]
pub fn encode_name(name: &str) -> String {
    let is_digit = |byte: Option<&u8>| byte.is_some_and(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let bytes = name.as_bytes();
    let mut out = String::with_capacity(name.len());
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'_' if is_digit(bytes.get(at + 1)) && is_digit(bytes.get(at + 2)) => out.push_str("_5f"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => out.push(char::from(*byte)),
            // A dot is safe except at the beginning.
            b'.' if !out.is_empty() => out.push('.'),
            _ => {
                let _ = write!(out, "_{byte:02x}");
            }
        }
    }
    if out.len() > NAME_BYTES_MAX {
        out.truncate(NAME_BYTES_MAX - 20);
        // No other name has a `=`.
        let _ = write!(out, "_={:x}-{:08x}", name.len(), crc32fast::hash(bytes));
    }
    out
}

/// The name as versions before 0.3 wrote it. They encoded some different hosts as the same name, so there is one only
/// for hosts whose name they did not change.
fn name_of_before(row: &SummaryRow) -> Option<String> {
    let is_kept = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let host = &row.host;
    if host.is_empty() || host.len() > 200 || host.starts_with('.') || !host.bytes().all(is_kept) {
        return None;
    }
    let mut boot = String::new();
    for byte in row.boot.as_deref().unwrap_or("none").bytes().take(200) {
        match byte {
            b'.' if boot.is_empty() => boot.push_str("_2e"),
            _ if is_kept(byte) => boot.push(char::from(byte)),
            _ => _ = write!(boot, "_{byte:02x}"),
        }
    }
    Some(format!("{host}+{boot}+{}", row.sequence))
}

#[cfg(test)]
mod tests {
    use super::{Fleet, encode_name, input_key, is_key_of, is_recording_of, partition, shard_of};
    use flatwater_recording::summary::{HourStart, SummaryRow};

    #[test]
    fn a_key_follows_from_the_row_and_a_host_cannot_leave_its_place() {
        let row = SummaryRow {
            host: "db/../7".to_owned(),
            boot: Some("0b1c".to_owned()),
            sequence: 42,
            hour_start: Some(HourStart::of_ns(1_795_312_790_000_000_000)),
            ..SummaryRow::default()
        };
        let key = input_key(&row);
        assert!(key.starts_with("v=1/in/table=summary/dt=2026-11-22/hour=01/shard="), "{key}");
        assert!(key.ends_with("/db_2f.._2f7+0b1c+42.parquet"), "{key}");
        assert_eq!((encode_name("..").as_str(), partition(None).as_str()), ("_2e.", "dt=none/hour=none"));
        assert!(shard_of("db-7", 64) < 64 && shard_of("x", 0) == 0);
    }

    #[test]
    fn invalid_stores_are_refused_by_name() {
        let refused = Fleet::open("ftp://host/x").expect_err("not a store");
        assert!(refused.to_string().contains("s3://") && refused.is_usage(), "{refused}");
        let folder = tempfile::tempdir().expect("a folder");
        let new = folder.path().join("new");
        let new = new.to_str().expect("text");
        for reading in [new, &format!("file://{new}")] {
            let refused = Fleet::existing(reading).expect_err("nothing there");
            assert!(refused.to_string().contains("/new") && refused.is_usage(), "{refused}");
        }
        let fleet = Fleet::open(new).expect("made");
        assert!(Fleet::existing(new).is_ok());
        assert_eq!(fleet.url().and_then(|url| url.to_file_path().ok()), fleet.directory);
        let bucket = Fleet::open("s3://bucket/below/this").expect("a bucket");
        assert_eq!(bucket.url().map(String::from).as_deref(), Some("s3://bucket/"));
        assert_eq!(fleet.relative(&fleet.key("v=1/in/x")), "v=1/in/x");
    }

    #[test]
    fn a_key_and_a_recording_belong_to_one_host() {
        let row = |host: &str| SummaryRow { host: host.to_owned(), sequence: 7, ..SummaryRow::default() };
        let key = |name: &str| {
            format!("v=1/in/table=summary/dt=none/hour=none/shard={:02}/{name}.parquet", shard_of("db_01", 64))
        };
        // The present name, and the one before 0.3.
        assert!(is_key_of(&key("db_5f01+none+7"), &row("db_01")) && is_key_of(&key("db_01+none+7"), &row("db_01")));
        assert!(!is_key_of(&key("db_01+none+8"), &row("db_01")) && !is_key_of(&key("db_01+none+7"), &row("db\u{1}")));
        let own = "v=1/recordings/dt=2026-11-22/db_5f01+none+7";
        assert!(is_recording_of(own, &row("db_01")) && !is_recording_of(own, &row("db_02")));
        for other in ["v=1/recordings/dt=x/db_5f01+none+7", "v=1/in/db_5f01+none+7", "dt=2026-11-22/db_5f01+none+7", ""]
        {
            assert!(!is_recording_of(other, &row("db_01")), "{other}");
        }
        let long = format!("{own}/../db_02+none+7");
        assert!(!is_recording_of(&long, &row("db_01")));
    }

    /// S11: fails on 9232d20c, where a host could choose a name so that its objects replaced another host's.
    #[test]
    fn s11_different_names_are_different_objects() {
        let names = ["a/", "a_2f", "a_5f2f", "a__2f", "_", "__", "_2f", "a_b_7", "db_01", ".", "_2e", "a+b", "a_2bb"];
        let long = [format!("{}1", "x".repeat(300)), format!("{}2", "x".repeat(300)), "ä".repeat(60), "ä".repeat(61)];
        let encoded: std::collections::BTreeSet<String> =
            names.iter().map(|name| encode_name(name)).chain(long.iter().map(|name| encode_name(name))).collect();
        assert_eq!(encoded.len(), names.len() + long.len(), "{encoded:?}");
        assert!(encoded.iter().all(|name| name.len() <= super::NAME_BYTES_MAX), "{encoded:?}");
        let kept = |name: &str| super::encode_name(name) == name;
        assert!(kept("a_b_7") && kept("ip-10-0-0-7.eu-west-1.compute.internal"), "names of hosts stay as they are");
    }
}
