//! The public interface. A name that has to leave this list is a breaking change: it needs a new version of the format's
//! crate and a line in CHANGELOG.md.

mod names {
    #![expect(unused_imports, reason = "the compiler checks that the names exist")]

    mod root {
        use flatwater_recording::{
            About, AccessKind, AsyncCall, AsyncInterface, Basis, Bracket, Call, Cause, CauseBasis, CauseSpec,
            CgroupFile, ClassSums, Clock, ColumnKind, Controller, ControllerName, CpuOwner, DeviceTrouble, Dirtier,
            DurationBasis, Endianness, Ends, Entity, Event, EventKind, FORMAT_VERSION, Finished, FormatKind,
            FormatRead, Gap, GroupRole, HIGHEST_NS, Header, HistogramError, Hook, HookState, HookStatus, IgnoredLines,
            Imitation, ImportSummary, LateGaps, LatencyBucket, Limit, Limits, LineRange, Losses, Machine, MemoryScope,
            MemoryUser, NodeShape, Noise, NoiseClass, Note, Observed, OpKind, OperationFiles, OperationKind,
            Operations, OwnCost, OwnerBasis, PackedHistogram, QueueAhead, QueueOwner, Rank, ReadError, Recording,
            RecordingWriter, ReportedBy, Request, RequestOp, Rows, SAMPLED_TASKS_MAX, SampledTask, SectionRead,
            Segment, Series, SeriesColumn, ServiceTime, Setup, Source, SourceLine, Stack, StackId, Storage, Symbols,
            TEXT_BYTES_MAX, Table, TableError, Target, Task, Users, Values, Wait, Waited, WakerBasis, WakerKind,
            WatchedProcess, WriteError, brackets, classes_of, classes_text, device_words, histogram,
            holds_device_trouble, is_device_trouble, read, write_whole,
        };
    }
    mod knob {
        use flatwater_recording::knob::{
            KNOBS, Key, Knob, KnobError, KnobKind, KnobPlace, find, lru_gen_runs, nearest,
        };
    }
    mod outcome {
        use flatwater_recording::outcome::{
            BulkDelay, BulkOutcome, BulkWriter, CheckpointOutcome, CheckpointRow, GraphdbOutcome, JournalOutcome,
            JournalWriter, MaildirOutcome, MemoryMoment, SdetOutcome, SdetRun, WorkloadOutcome,
        };
    }
    mod printable {
        use flatwater_recording::printable::{is_hostile, line, output, shell_quoted, without_error_numbers};
    }
    mod redact {
        use flatwater_recording::redact::{REDACTED, line, words};
    }
    mod schema {
        use flatwater_recording::schema::{
            Column, ColumnKey, Group, Unit, all, buddy, cgroup, cpu, disks, find, meminfo, nodes, of_table, page,
            pressure, slabs, stored, unknown, vmstat, workload, writeback, zones,
        };
    }
    mod summary {
        use flatwater_recording::summary::{
            Blame, CALLS_OVER_NS, HourStart, Summarizer, SummaryError, SummaryOrigin, SummaryRow, VERSION, VERSION_KEY,
            Whose, check_version, to_parquet,
        };
    }
    mod symbol {
        use flatwater_recording::symbol::{Meaning, base_name, cause_of, lock_taker, meaning, meaning_inside};
    }
    mod units {
        use flatwater_recording::units::{Bytes, Nanos, Pages, UnitError};
    }
}
