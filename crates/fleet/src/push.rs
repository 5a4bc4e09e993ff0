//! Copies summaries, and optionally whole recordings, from a host into the store.
//!
//! Objects that the store has are skipped, so a push that was stopped continues where it was. Push removes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use chrono::Utc;
use flatwater_recording::Recording;
use flatwater_recording::summary::{self, SummaryRow};
use flatwater_safefs::{Dir, Limited, Refusal, read_regular};
use object_store::{ObjectStoreExt, PutPayload};
use rustix::fs::FileType;

use crate::left_out::{LeftOut, Why};
use crate::sent::Sent;
use crate::store::{Fleet, day, encode_name, input_key, name_of};
use crate::{FleetError, input};

const SUFFIX: &str = ".summary.parquet";
/// Larger files are uploaded in parts of this size (S3 requires at least 5 MiB).
const PART_BYTES: usize = 8 << 20;
const HEADER: &str = "header.json";
const SEALED: &str = "sealed.json";

#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether to copy whole recordings, and not only summaries.
    pub recordings: bool,
    /// Maximum bytes per second.
    pub bandwidth: Option<u64>,
}

#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Pushed {
    pub summaries: u64,
    pub recordings: u64,
    pub bytes: u64,
    /// Objects that the store already had.
    pub there: u64,
    /// Recordings that are not sealed yet; the next push copies them.
    pub unfinished: u64,
    #[serde(skip)]
    pub left_out: LeftOut,
}

/// The name of a file or directory to push. It is opened only in its turn, because a directory may have thousands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Summary(String),
    Recording(String),
}

/// Pushes these files and directories: summaries, recordings, and directories of them, such as that of `watch`.
///
/// A file given by name is read wherever it is. Of a directory's content, only files of the user or of root are pushed,
/// and links are not followed: another user who can create names there must not get other files read.
pub async fn push(fleet: &Fleet, paths: &[PathBuf], options: &Options) -> Result<Pushed, FleetError> {
    let mut pusher = Pusher {
        fleet,
        recordings: options.recordings,
        limiter: Limiter::new(options.bandwidth),
        clocks: BTreeMap::new(),
        pushed: Pushed::default(),
    };
    fleet.require_own()?;
    for path in paths {
        pusher.path(path).await?;
    }
    Ok(pusher.pushed)
}

/// The content of a directory to push, ordered by name.
fn sources(dir: &Dir) -> Result<Vec<Source>, FleetError> {
    let mut found = BTreeSet::new();
    for name in dir.names()? {
        // flatwater's names are UTF-8; others are not flatwater's.
        let Some(name) = name.to_str() else { continue };
        let Ok(stat) = dir.stat(name) else { continue };
        let of = name.strip_suffix(SUFFIX);
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            // A directory that cannot be opened is refused in its turn, and reported.
            if dir.dir(name).map_or(true, |dir| dir.exists(HEADER)) {
                found.insert(Source::Recording(name.to_owned()));
            }
        } else if of.is_some() {
            found.insert(Source::Summary(name.to_owned()));
        }
    }
    // A summary beside its recording is pushed with the recording.
    let brought = |name: &str| {
        let of = name.strip_suffix(SUFFIX).map(|of| Source::Recording(of.to_owned()));
        of.is_some_and(|of| found.contains(&of))
    };
    Ok(found.iter().filter(|source| !matches!(source, Source::Summary(name) if brought(name))).cloned().collect())
}

struct Pusher<'a> {
    fleet: &'a Fleet,
    recordings: bool,
    limiter: Limiter,
    /// Offset of the host's clock from the store's, s, by host and boot.
    clocks: BTreeMap<(String, Option<String>), i64>,
    pushed: Pushed,
}

impl Pusher<'_> {
    async fn path(&mut self, path: &Path) -> Result<(), FleetError> {
        if std::fs::metadata(path).map_err(FleetError::file(path))?.is_dir() {
            // Links in the path are the user's choice.
            let whole = path.canonicalize().map_err(FleetError::file(path))?;
            if let (Some(above), Some(name)) = (whole.parent(), whole.file_name().and_then(OsStr::to_str))
                && whole.join(HEADER).symlink_metadata().is_ok()
            {
                self.recording(&Dir::open(above)?.believing_root(), name).await?;
                return Ok(());
            }
            return self.directory(&Dir::open(path)?.believing_root()).await;
        }
        let bytes = read_regular(path, input::BYTES_MAX)?;
        self.summary(bytes, &path.display().to_string()).await?;
        Ok(())
    }

    async fn directory(&mut self, dir: &Dir) -> Result<(), FleetError> {
        let sent = Sent::read(dir, self.fleet.shown());
        for source in sources(dir)? {
            let (what, name) = match &source {
                Source::Recording(name) if self.recordings => ("recording", name),
                Source::Summary(name) | Source::Recording(name) => ("summary", name),
            };
            if sent.has(what, name) {
                self.pushed.there += 1;
                continue;
            }
            let whole = match source {
                Source::Recording(_) => self.recording(dir, name).await?,
                Source::Summary(_) => match bounded(dir, name) {
                    Ok(bytes) => self.summary(bytes, &dir.path().join(name).display().to_string()).await?,
                    Err(refusal) => self.refused(dir, name, &refusal),
                },
            };
            if whole {
                sent.add(what, name);
            }
        }
        Ok(())
    }

    /// Notes a file that is not pushed.
    fn refused(&mut self, dir: &Dir, name: &str, refusal: &Refusal) -> bool {
        let why =
            if matches!(refusal, Refusal::Io { .. } | Refusal::TooLong { .. }) { Why::Damaged } else { Why::Foreign };
        self.pushed.left_out.put(why, dir.path().join(name).display().to_string(), refusal.to_string());
        false
    }

    /// Pushes a summary. Returns whether the store now has the whole summary, as do the following functions.
    async fn summary(&mut self, bytes: Vec<u8>, shown: &str) -> Result<bool, FleetError> {
        match input::decode(Bytes::from(bytes)) {
            Ok(rows) => self.rows(rows, None).await.map(|()| true),
            Err(refused) => {
                self.pushed.left_out.put(refused.why, shown, refused.exactly);
                Ok(false)
            }
        }
    }

    async fn recording(&mut self, above: &Dir, name: &str) -> Result<bool, FleetError> {
        let dir = match above.dir(name) {
            Ok(dir) => dir,
            Err(refusal) => return Ok(self.refused(above, name, &refusal)),
        };
        if !dir.exists(SEALED) {
            self.pushed.unfinished += 1;
            return Ok(false);
        }
        let beside = bounded(above, &format!("{name}{SUFFIX}"));
        let rows = match beside.ok().and_then(|bytes| input::decode(Bytes::from(bytes)).ok()) {
            Some(rows) => rows,
            // By its handle, because the path may have been replaced.
            None => match Recording::open(dir.proc_path()) {
                Ok(recording) => flatwater_explain::summary::of(&recording),
                Err(error) => {
                    let shown = dir.path().display().to_string();
                    let exactly = error.to_string().replace(&dir.proc_path().display().to_string(), &shown);
                    self.pushed.left_out.put(Why::Damaged, shown, exactly);
                    return Ok(false);
                }
            },
        };
        let Some(first) = rows.first() else { return Ok(false) };
        let below = format!("v=1/recordings/{}/{}", day(first.hour_start), name_of(first));
        let mut whole = true;
        if self.recordings {
            whole = self.files(&dir, &below).await?;
            self.pushed.recordings += u64::from(whole);
        }
        self.rows(rows, (self.recordings && whole).then_some(below)).await?;
        Ok(whole)
    }

    /// Copies the files of a recording. The manifest, which marks it as complete, is last, and only if all others were
    /// copied.
    async fn files(&mut self, dir: &Dir, below: &str) -> Result<bool, FleetError> {
        let mut names = dir.names()?;
        names.sort_by_key(|name| name == SEALED);
        let mut whole = true;
        for name in names {
            let name = name.to_string_lossy();
            if dir.stat(&name).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory) {
                continue;
            }
            match dir.read(&name) {
                Ok(file) if whole || name != SEALED => {
                    let shown = dir.path().join(&*name);
                    self.file(file, &shown, &format!("{below}/{}", encode_name(&name))).await?;
                }
                Ok(_) => {}
                Err(refusal) => whole = self.refused(dir, &name, &refusal),
            }
        }
        Ok(whole)
    }

    async fn file(&mut self, mut file: File, shown: &Path, key: &str) -> Result<(), FleetError> {
        let location = self.fleet.key(key);
        let bytes = file.metadata().map_err(FleetError::file(shown))?.len();
        // A sealed recording does not change: a file of the same name and size is the same.
        if self.size_of(&location).await? == Some(bytes) {
            self.pushed.there += 1;
            return Ok(());
        }
        if bytes <= PART_BYTES as u64 {
            let mut whole = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
            (&mut file).take(bytes).read_to_end(&mut whole).map_err(FleetError::file(shown))?;
            self.limiter.take(bytes).await;
            self.fleet.store.put(&location, PutPayload::from(whole)).await?;
            self.pushed.bytes += bytes;
            return Ok(());
        }
        // An object uploaded in parts becomes visible only when it is complete.
        let mut upload = self.fleet.store.put_multipart(&location).await?;
        let mut left = bytes;
        while left > 0 {
            let mut part = Vec::with_capacity(PART_BYTES);
            let read = (&mut file).take(left.min(PART_BYTES as u64)).read_to_end(&mut part);
            let read =
                read.and_then(|read| if read == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(read as u64) });
            let sent = match read {
                Ok(read) => {
                    left -= read;
                    self.limiter.take(read).await;
                    upload.put_part(PutPayload::from(part)).await.map_err(FleetError::from)
                }
                Err(error) => Err(FleetError::file(shown)(error)),
            };
            if let Err(error) = sent {
                let _ = upload.abort().await;
                return Err(error);
            }
        }
        upload.complete().await?;
        self.pushed.bytes += bytes;
        Ok(())
    }

    async fn size_of(&self, location: &object_store::path::Path) -> Result<Option<u64>, FleetError> {
        match self.fleet.store.head(location).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Stores a summary, one object per hour.
    async fn rows(&mut self, rows: Vec<SummaryRow>, recording: Option<String>) -> Result<(), FleetError> {
        let mut by_key: BTreeMap<String, Vec<SummaryRow>> = BTreeMap::new();
        for mut row in rows {
            row.clock_error_s = Some(self.clock(&row).await?);
            row.recording.clone_from(&recording);
            by_key.entry(input_key(&row)).or_default().push(row);
        }
        for (key, rows) in by_key {
            let location = self.fleet.key(&key);
            if self.size_of(&location).await?.is_some() {
                self.pushed.there += 1;
                continue;
            }
            let bytes = summary::to_parquet(&rows)?;
            self.limiter.take(bytes.len() as u64).await;
            self.pushed.bytes += bytes.len() as u64;
            self.fleet.store.put(&location, PutPayload::from(bytes)).await?;
            self.pushed.summaries += 1;
        }
        Ok(())
    }

    /// How far this clock is ahead of the store's, in seconds: puts an object and reads its time in the store.
    async fn clock(&mut self, row: &SummaryRow) -> Result<i64, FleetError> {
        let who = (row.host.clone(), row.boot.clone());
        if let Some(known) = self.clocks.get(&who) {
            return Ok(*known);
        }
        let name = format!("{}+{}", encode_name(&row.host), encode_name(row.boot.as_deref().unwrap_or("none")));
        let location = self.fleet.key(&format!("v=1/hosts/{name}.json"));
        let pushed_at = Utc::now();
        let about = serde_json::json!({
            "host": row.host, "boot": row.boot, "kernel": row.kernel, "shape": row.shape,
            "pushed_at": pushed_at.to_rfc3339(), "written_by": row.written_by,
        });
        self.fleet.store.put(&location, PutPayload::from(about.to_string().into_bytes())).await?;
        let stored = self.fleet.store.head(&location).await?.last_modified;
        let error_s = (pushed_at - stored).num_seconds();
        self.clocks.insert(who, error_s);
        Ok(error_s)
    }
}

/// Limits bytes per second, over any interval longer than one object or part.
#[derive(Debug)]
struct Limiter {
    bytes_per_s: Option<u64>,
    free_at: Instant,
}

impl Limiter {
    fn new(bytes_per_s: Option<u64>) -> Limiter {
        Limiter { bytes_per_s, free_at: Instant::now() }
    }

    async fn take(&mut self, bytes: u64) {
        let Some(rate) = self.bytes_per_s.filter(|rate| *rate > 0) else { return };
        let now = Instant::now();
        if self.free_at > now {
            tokio::time::sleep(self.free_at - now).await;
        }
        self.free_at = self.free_at.max(now) + Duration::from_secs_f64(bytes as f64 / rate as f64);
    }
}

/// Reads a file of a directory that is not larger than a summary can be.
fn bounded(dir: &Dir, name: &str) -> Result<Vec<u8>, Refusal> {
    let path = dir.path().join(name);
    let mut bytes = Vec::new();
    match Limited::new(dir.read(name)?, input::BYTES_MAX).read_to_end(&mut bytes) {
        Ok(true) => Ok(bytes),
        Ok(false) => Err(Refusal::TooLong { path, most: input::BYTES_MAX }),
        Err(source) => Err(Refusal::Io { action: "read", path, source }),
    }
}
