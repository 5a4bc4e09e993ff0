//! A neighbour that streams: it writes (or reads) files front to back as fast as it can, so that page cache
//! fills with its dirty or clean pages until something has to give.

use super::{Actor, ActorStart, DirId, FileId, Footprint, Op, ParamError, ParamKind, ParamSpec, Params, Role, Stream};
use super::{Workload, WorkloadEntry};

pub const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "stream",
    sentence: "A neighbour that writes or reads files front to back, filling the page cache.",
    params: PARAMS,
    build,
};

const PARAMS: &[ParamSpec] = &[
    ParamSpec {
        name: "threads",
        kind: ParamKind::Count { min: 1, max: 256 },
        default: "1",
        sentence: "Threads, each with a file of its own.",
    },
    ParamSpec {
        name: "file_size",
        kind: ParamKind::Size { min: 4096, max: 1 << 44 },
        default: "1GiB",
        sentence: "Size of each file; at its end the thread begins again at offset 0.",
    },
    ParamSpec {
        name: "bytes",
        kind: ParamKind::Size { min: 512, max: 64 << 20 },
        default: "256KiB",
        sentence: "Bytes of one call.",
    },
    ParamSpec {
        name: "direction",
        kind: ParamKind::Choice(&["write", "read"]),
        default: "write",
        sentence: "Whether it dirties the page cache or fills it with clean pages.",
    },
    ParamSpec {
        name: "pause",
        kind: ParamKind::Duration { min_ns: 0, max_ns: 3_600_000_000_000 },
        default: "0ns",
        sentence: "Pause after each call, to bound its rate.",
    },
];

#[derive(Debug)]
struct Streams {
    threads: u64,
    file_bytes: u64,
    bytes: u64,
    read: bool,
    pause_ns: u64,
}

fn build(params: &Params, _seed: u64) -> Result<Box<dyn Workload>, ParamError> {
    let streams = Streams {
        threads: params.count("threads"),
        file_bytes: params.size_bytes("file_size"),
        bytes: params.size_bytes("bytes"),
        read: params.choice("direction") == "read",
        pause_ns: params.duration_ns("pause"),
    };
    if streams.bytes > streams.file_bytes {
        return Err(ParamError::Impossible {
            workload: "stream".to_owned(),
            why: format!("one call ({} B) is larger than the file ({} B)", streams.bytes, streams.file_bytes),
        });
    }
    Ok(Box::new(streams))
}

impl Workload for Streams {
    fn footprint(&self) -> Footprint {
        Footprint {
            disk_bytes: self.threads * self.file_bytes,
            growth_bytes_per_s: 0,
            files: self.threads,
            memory_bytes: self.threads * self.bytes,
            threads: u32::try_from(self.threads).unwrap_or(u32::MAX),
            processes: 0,
        }
    }

    fn actors(&self) -> Vec<Actor> {
        (0..self.threads)
            .map(|thread| Actor {
                name: format!("stream-{thread}"),
                role: Role::Neighbour,
                start: ActorStart::Immediately,
                stream: Box::new(OneStream {
                    file: FileId(thread),
                    created: false,
                    read: self.read,
                    filled: false,
                    offset_bytes: 0,
                    pause_next: false,
                    file_bytes: self.file_bytes,
                    bytes: self.bytes,
                    pause_ns: self.pause_ns,
                }),
            })
            .collect()
    }

    fn path(&self, file: FileId) -> String {
        format!("stream-{}", file.0)
    }

    fn directory(&self, _file: FileId) -> DirId {
        DirId(0)
    }

    fn directory_path(&self, _dir: DirId) -> String {
        String::new()
    }
}

#[derive(Debug)]
struct OneStream {
    file: FileId,
    created: bool,
    read: bool,
    /// A reader writes its file once before it reads it.
    filled: bool,
    offset_bytes: u64,
    pause_next: bool,
    file_bytes: u64,
    bytes: u64,
    pause_ns: u64,
}

impl Stream for OneStream {
    fn next(&mut self, _now_ns: u64) -> Option<Op> {
        if !self.created {
            self.created = true;
            return Some(Op::Create { file: self.file });
        }
        if std::mem::take(&mut self.pause_next) {
            return Some(Op::Sleep { ns: self.pause_ns });
        }
        self.pause_next = self.pause_ns > 0;
        let (file, offset_bytes, bytes) = (self.file, self.offset_bytes, self.bytes);
        let reading = self.read && self.filled;
        self.offset_bytes += bytes;
        if self.offset_bytes + bytes > self.file_bytes {
            self.offset_bytes = 0;
            self.filled = true;
        }
        Some(if reading { Op::Read { file, offset_bytes, bytes } } else { Op::Write { file, offset_bytes, bytes } })
    }
}
