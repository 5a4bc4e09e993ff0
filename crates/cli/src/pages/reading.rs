//! The verbs that observe this machine, and that read recordings and logs.

use super::{INTERRUPTED, JUDGED, PLAIN, Page, Task};
use crate::status::Status;

pub(super) const PAGES: &[Page] = &[
    Page {
        verb: "check",
        task: Task::Observe,
        examples: &[
            ("Which causes can be seen here, and which settings risk stalls:", "flatwater check"),
            (
                "For the disk of a database, with the state of each hook:",
                "flatwater check -d /var/lib/postgresql --hooks",
            ),
        ],
        statuses: PLAIN,
    },
    Page {
        verb: "record",
        task: Task::Observe,
        examples: &[
            ("A running database for a minute:", "flatwater record -p PID -t 60s"),
            ("A command, from its start to its end:", "flatwater record -o rec -- ./backup.sh"),
            ("A service, each call of 5 ms or longer:", "flatwater record --unit postgresql.service -m 5ms -t 60s"),
        ],
        statuses: &[Status::Done, Status::Failed, Status::Usage, Status::NotEnough, INTERRUPTED, Status::Command(0)],
    },
    Page {
        verb: "watch",
        task: Task::Observe,
        examples: &[
            ("The daemon, with its own configuration:", "flatwater watch -c watch.toml"),
            ("Keep the last minute now, because something was slow:", "flatwater watch dump"),
        ],
        statuses: PLAIN,
    },
    Page {
        verb: "guard",
        task: Task::Observe,
        examples: &[
            ("Which neighbour to limit, and which limit is in force:", "flatwater guard list"),
            ("End each limit:", "flatwater guard release --all"),
        ],
        statuses: PLAIN,
    },
    Page {
        verb: "top",
        task: Task::Observe,
        examples: &[
            ("From the daemon, or by tracing if none runs:", "flatwater top"),
            ("By tracing, although the daemon runs:", "flatwater top --alone"),
        ],
        statuses: PLAIN,
    },
    Page {
        verb: "explain",
        task: Task::Read,
        examples: &[
            ("A recording:", "flatwater explain rec"),
            (
                "Logs, in a script that needs to know whether there was a stall:",
                "flatwater explain --exit-code vmstat.txt dmesg.txt",
            ),
        ],
        statuses: &[Status::Done, Status::Failed, Status::Usage, Status::NotEnough, Status::StallFound],
    },
    Page {
        verb: "import",
        task: Task::Read,
        examples: &[
            ("Explain the output of another tool:", "vmstat 1 30 | flatwater import -"),
            ("Convert logs to a recording:", "flatwater import sar.txt dmesg.txt -o rec"),
        ],
        statuses: JUDGED,
    },
    Page {
        verb: "report",
        task: Task::Read,
        examples: &[
            ("The page with charts, for a colleague:", "flatwater report rec --format html -o report.html"),
            ("One table for a spreadsheet:", "flatwater report rec --format csv --table calls -o calls.csv"),
        ],
        statuses: PLAIN,
    },
    Page {
        verb: "summary",
        task: Task::Read,
        examples: &[
            ("Beside the recording, as rec.summary.parquet:", "flatwater summary rec"),
            ("Into a directory that is uploaded:", "flatwater summary rec -o /srv/push/rec.parquet"),
        ],
        statuses: PLAIN,
    },
    Page {
        verb: "causes",
        task: Task::Read,
        examples: &[
            ("All causes, one line each:", "flatwater causes"),
            ("One cause, with mechanism, signature, fix and proof:", "flatwater causes journal-commit"),
        ],
        statuses: PLAIN,
    },
];
