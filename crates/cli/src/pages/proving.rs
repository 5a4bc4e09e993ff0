//! The verbs that prove causes and fixes, prevent stalls, and set up.

use super::{INTERRUPTED, PLAIN, Page, Task};
use crate::status::Status;

pub(super) const PAGES: &[Page] = &[
    Page {
        verb: "compare",
        task: Task::Prove,
        examples: &[
            ("Was the change an improvement?", "flatwater compare before after"),
            ("For a database, which waits for fdatasync():", "flatwater compare before after --judge fdatasync.p99"),
        ],
        statuses: &[Status::Done, Status::Failed, Status::Usage, Status::NotProven, Status::NotEnough],
    },
    Page {
        verb: "reproduce",
        task: Task::Prove,
        examples: &[
            ("A scenario and fio jobs from a recording of programs:", "flatwater reproduce REC -o repro"),
            ("The same, run on this machine and compared:", "flatwater reproduce REC -o repro --check -d /scratch"),
        ],
        statuses: &[Status::Done, Status::Failed, Status::Usage, Status::NotProven, INTERRUPTED],
    },
    Page {
        verb: "verify",
        task: Task::Prove,
        examples: &[
            ("A fix of a built-in scenario:", "flatwater verify full-cgroup --fix limit"),
            ("Fix 1 of a recording's report:", "flatwater verify REC --fix 1"),
            (
                "A setting, judged by one operation:",
                "flatwater verify journal --set vm.dirty_bytes=64MiB --judge write.p99 --apply",
            ),
        ],
        statuses: &[Status::Done, Status::Failed, Status::Usage, Status::NotProven, Status::NotEnough, INTERRUPTED],
    },
    Page {
        verb: "probe",
        task: Task::Prove,
        examples: &[
            ("What can a neighbour do to this database?", "flatwater probe /var/lib/mydb"),
            (
                "One on another file system, within the limits of a cgroup:",
                "flatwater probe /var/lib/mydb /srv/other --cgroup /system.slice/mydb.service",
            ),
        ],
        statuses: &[Status::Done, Status::Failed, Status::Usage, Status::Unproven, Status::Harmed, INTERRUPTED],
    },
    Page {
        verb: "run",
        task: Task::Prove,
        examples: &[
            ("A journal beside a neighbour that fills their common cgroup:", "flatwater run full-cgroup"),
            (
                "Twenty seconds of a scenario in the model of an old kernel:",
                "flatwater run journal-2.6.32 --on sim -t 20s",
            ),
        ],
        statuses: &[Status::Done, Status::Failed, Status::Usage, Status::NotEnough, INTERRUPTED],
    },
    Page {
        verb: "scenarios",
        task: Task::Prove,
        examples: &[
            ("The built-in scenarios and their fixes:", "flatwater scenarios"),
            ("A copy to change:", "flatwater scenarios journal > mine.toml"),
        ],
        statuses: PLAIN,
    },
    Page {
        verb: "whatif",
        task: Task::Prove,
        examples: &[
            ("A setting of a recorded machine, in the model:", "flatwater whatif rec --sweep vm.dirty_bytes=16M..1G"),
            (
                "Two settings, judged by fsync():",
                "flatwater whatif journal --sweep vm.swappiness=0,60 --sweep vm.dirty_ratio=5,20 --goal fsync.p99",
            ),
        ],
        statuses: PLAIN,
    },
    Page {
        verb: "vm",
        task: Task::Prove,
        examples: &[
            ("Fetch a kernel for `run --on vm`:", "flatwater vm fetch-kernel"),
            ("A command in a guest:", "flatwater vm exec -- /bin/flatwater check"),
        ],
        statuses: PLAIN,
    },
    Page {
        verb: "precursor",
        task: Task::Prevent,
        examples: &[
            ("Prepare the log of a running program:", "flatwater precursor -p PID -f /var/lib/app/journal.log"),
            ("Recover the files of writers that died:", "flatwater precursor --leftovers --clear"),
            ("Follow the records that a writer appends:", "flatwater precursor tail '/var/lib/app/journal-{}.log'"),
        ],
        statuses: PLAIN,
    },
    Page {
        verb: "restore",
        task: Task::Setup,
        examples: &[
            ("After a run was killed:", "flatwater restore"),
            ("In a script, before a measurement:", "flatwater restore && flatwater run journal"),
        ],
        statuses: PLAIN,
    },
    Page {
        verb: "completions",
        task: Task::Setup,
        examples: &[
            ("Completions of a shell:", "flatwater completions bash > /etc/bash_completion.d/flatwater"),
            ("All manual pages:", "flatwater completions man -o /usr/local/share/man/man1"),
        ],
        statuses: PLAIN,
    },
];
