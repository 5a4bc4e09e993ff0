//! From a host into the store: summaries, and whole recordings where they are wanted.
//!
//! What is there already is left alone, so that a push that was stopped goes on where it was. Nothing is ever removed here.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use chrono::Utc;
use flatwater_recording::{Recording, SummaryRow, summary};
use object_store::{ObjectStoreExt, PutPayload};

use crate::aside::{Aside, Why};
use crate::store::{Fleet, day, input_key, name_of, plain};
use crate::{FleetError, input};

const SUFFIX: &str = ".summary.parquet";
/// Larger files go up in parts of this size (S3 wants 5 MiB at the least).
const PART_BYTES: usize = 8 << 20;
/// Of files that say what was pushed already; beside the recordings.
const STATE: &str = ".flatwater-pushed";

#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whole recordings too, not only their summaries.
    pub recordings: bool,
    /// Bytes a second, at the most.
    pub bandwidth: Option<u64>,
}

#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Pushed {
    pub summaries: u64,
    pub recordings: u64,
    pub bytes: u64,
    /// Objects that were there already.
    pub there: u64,
    /// Recordings that are not sealed yet: next time.
    pub unfinished: u64,
    #[serde(skip)]
    pub aside: Aside,
}

/// One thing to push.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Summary(PathBuf),
    Recording(PathBuf),
}

/// Pushes these files and directories: summaries, recordings, and directories of them (as `watch` fills one).
pub async fn push(fleet: &Fleet, paths: &[PathBuf], options: &Options) -> Result<Pushed, FleetError> {
    let mut pusher = Pusher {
        fleet,
        recordings: options.recordings,
        limiter: Limiter::new(options.bandwidth),
        clocks: BTreeMap::new(),
        pushed: Pushed::default(),
    };
    for path in paths {
        let state = State::open(path, fleet);
        for source in sources(path)? {
            if state.has(&source, options) {
                pusher.pushed.there += 1;
                continue;
            }
            if pusher.one(&source).await? {
                state.add(&source, options);
            }
        }
    }
    Ok(pusher.pushed)
}

/// What is to be pushed of a path, in the order of names.
fn sources(path: &Path) -> Result<Vec<Source>, FleetError> {
    let named = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(SUFFIX));
    let is_recording = |path: &Path| path.join("header.json").exists();
    let about = std::fs::metadata(path).map_err(FleetError::file(path))?;
    if about.is_file() {
        return Ok(vec![Source::Summary(path.to_owned())]);
    }
    if is_recording(path) {
        return Ok(vec![Source::Recording(path.to_owned())]);
    }
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(path).map_err(FleetError::file(path))? {
        let entry = entry.map_err(FleetError::file(path))?.path();
        if entry.is_dir() && is_recording(&entry) {
            found.insert(Source::Recording(entry));
        } else if entry.is_file() && named(&entry) {
            // A recording brings its own.
            let of = entry.to_string_lossy().trim_end_matches(SUFFIX).to_owned();
            if !is_recording(Path::new(&of)) {
                found.insert(Source::Summary(entry));
            }
        }
    }
    Ok(found.into_iter().collect())
}

struct Pusher<'a> {
    fleet: &'a Fleet,
    recordings: bool,
    limiter: Limiter,
    /// By host and boot: how far its clock is from the store's, s.
    clocks: BTreeMap<(String, Option<String>), i64>,
    pushed: Pushed,
}

impl Pusher<'_> {
    /// Whether all of it is in the store now.
    async fn one(&mut self, source: &Source) -> Result<bool, FleetError> {
        match source {
            Source::Summary(path) => {
                let bytes = std::fs::read(path).map_err(FleetError::file(path))?;
                match input::decode(Bytes::from(bytes)) {
                    Ok(rows) => self.rows(rows, None).await.map(|()| true),
                    Err(refused) => {
                        self.pushed.aside.put(refused.why, path.display().to_string(), refused.exactly);
                        Ok(false)
                    }
                }
            }
            Source::Recording(path) => self.recording(path).await,
        }
    }

    async fn recording(&mut self, path: &Path) -> Result<bool, FleetError> {
        if !path.join("sealed.json").exists() {
            self.pushed.unfinished += 1;
            return Ok(false);
        }
        let beside = PathBuf::from(format!("{}{SUFFIX}", path.display()));
        let made = std::fs::read(&beside).ok().and_then(|bytes| input::decode(Bytes::from(bytes)).ok());
        let rows = match made {
            Some(rows) => rows,
            None => match Recording::open(path) {
                Ok(recording) => flatwater_explain::summary::of(&recording),
                Err(error) => {
                    self.pushed.aside.put(Why::Damaged, path.display().to_string(), error.to_string());
                    return Ok(false);
                }
            },
        };
        let Some(first) = rows.first() else { return Ok(false) };
        let below = format!("v=1/recordings/{}/{}", day(first.hour_start), name_of(first));
        if self.recordings {
            self.files(path, &below).await?;
            self.pushed.recordings += 1;
        }
        self.rows(rows, self.recordings.then_some(below)).await?;
        Ok(true)
    }

    /// The files of a recording; the one that says that it is whole goes last.
    async fn files(&mut self, path: &Path, below: &str) -> Result<(), FleetError> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(path).map_err(FleetError::file(path))? {
            let entry = entry.map_err(FleetError::file(path))?;
            // No link is followed out of the recording.
            if entry.file_type().is_ok_and(|kind| kind.is_file()) {
                files.push(entry.path());
            }
        }
        files.sort_by_key(|file| (file.ends_with("sealed.json"), file.clone()));
        for file in files {
            let name = file.file_name().map(|name| plain(&name.to_string_lossy())).unwrap_or_default();
            self.file(&file, &format!("{below}/{name}")).await?;
        }
        Ok(())
    }

    async fn file(&mut self, path: &Path, key: &str) -> Result<(), FleetError> {
        let location = self.fleet.key(key);
        let mut file = std::fs::File::open(path).map_err(FleetError::file(path))?;
        let bytes = file.metadata().map_err(FleetError::file(path))?.len();
        // A sealed recording does not change: what has its name and its size is it.
        if self.size_of(&location).await? == Some(bytes) {
            self.pushed.there += 1;
            return Ok(());
        }
        self.pushed.bytes += bytes;
        if bytes <= PART_BYTES as u64 {
            let mut whole = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
            file.read_to_end(&mut whole).map_err(FleetError::file(path))?;
            self.limiter.take(bytes).await;
            self.fleet.store.put(&location, PutPayload::from(whole)).await?;
            return Ok(());
        }
        // Nothing is seen of an object in parts until all of them are there.
        let mut upload = self.fleet.store.put_multipart(&location).await?;
        loop {
            let mut part = Vec::with_capacity(PART_BYTES);
            let read = file.by_ref().take(PART_BYTES as u64).read_to_end(&mut part);
            if read.map_err(FleetError::file(path))? == 0 {
                break;
            }
            self.limiter.take(part.len() as u64).await;
            if let Err(error) = upload.put_part(PutPayload::from(part)).await {
                let _ = upload.abort().await;
                return Err(error.into());
            }
        }
        upload.complete().await?;
        Ok(())
    }

    async fn size_of(&self, location: &object_store::path::Path) -> Result<Option<u64>, FleetError> {
        match self.fleet.store.head(location).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A summary: an object for each of its hours.
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

    /// How many seconds the clock here is ahead of the store's: what it says of an object that was put just now.
    async fn clock(&mut self, row: &SummaryRow) -> Result<i64, FleetError> {
        let who = (row.host.clone(), row.boot.clone());
        if let Some(known) = self.clocks.get(&who) {
            return Ok(*known);
        }
        let name = format!("{}+{}", plain(&row.host), plain(row.boot.as_deref().unwrap_or("none")));
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

/// Never more than so many bytes a second, over any stretch longer than one object or part.
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

/// Remembers what was pushed where, so that what a compactor took away is not sent again. Best effort: without it, things are
/// only sent twice, and counted once.
#[derive(Debug, Default)]
struct State {
    path: Option<PathBuf>,
    known: BTreeSet<String>,
    to: String,
}

impl State {
    fn open(path: &Path, fleet: &Fleet) -> State {
        let folder = if path.is_dir() && !path.join("header.json").exists() { path } else { return State::default() };
        let path = folder.join(STATE);
        let known = std::fs::read_to_string(&path).unwrap_or_default();
        State { path: Some(path), known: known.lines().map(str::to_owned).collect(), to: fleet.shown().to_owned() }
    }

    fn line(&self, source: &Source, options: &Options) -> String {
        let (Source::Summary(path) | Source::Recording(path)) = source;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let what = if options.recordings && matches!(source, Source::Recording(_)) { "recording" } else { "summary" };
        format!("{}\t{what}\t{name}", self.to)
    }

    fn has(&self, source: &Source, options: &Options) -> bool {
        self.known.contains(&self.line(source, options))
    }

    fn add(&self, source: &Source, options: &Options) {
        use std::io::Write;
        let Some(path) = &self.path else { return };
        if let Ok(mut file) = std::fs::File::options().create(true).append(true).open(path) {
            let _ = writeln!(file, "{}", self.line(source, options));
        }
    }
}
